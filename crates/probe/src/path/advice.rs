//! Advice: what to change, one sentence or two per finding.

use underload_record::ce_excess::{IDLE_SHARE, LOADED_SHARE};
use underload_record::schema::{Direction, Ecn, Marking};

use super::classify::Answer;
use super::evidence::Evidence;
use super::examine::{Examination, TreatmentVerdict};
use super::kind::QueueFamily;
use super::marks::{Change, Fate, MarkRow, MarkSurvey};

/// Delay under load that a call notices, ms.
const NOTICED_MS: f64 = 50.0;

/// Returns what the user can change, one sentence or two per finding; empty if all is well.
pub fn advice(marks: &[&MarkSurvey], examinations: &[Examination]) -> Vec<String> {
    let mut advice = Vec::new();
    for survey in marks {
        about_marks(survey, &mut advice);
    }
    for examination in examinations {
        about_grant(examination, &mut advice);
        about_queue(examination, &mut advice);
        about_treatment(examination, &mut advice);
        if let Some(evidence) = &examination.evidence {
            about_congestion_marks(examination.direction, evidence, &mut advice);
        }
    }
    // IPv4 and IPv6 often yield the same advice.
    let mut said = Vec::new();
    advice.retain(|line| {
        let is_new = !said.contains(line);
        said.push(line.clone());
        is_new
    });
    advice
}

fn about_marks(survey: &MarkSurvey, advice: &mut Vec<String>) {
    let is_ecn = |sent: Marking| sent.dscp == 0 && sent.ecn != Ecn::NotEct;
    let is_nqb = |sent: Marking| sent.dscp == Marking::NQB && sent.ecn == Ecn::NotEct;
    let any = |is_wanted: &dyn Fn(Marking) -> bool, is_so: &dyn Fn(&MarkRow) -> bool| {
        survey.rows.iter().filter(|row| is_wanted(row.sent)).any(is_so)
    };
    for (way, fate) in [("up", (|row| row.up) as fn(&MarkRow) -> Fate), ("down", |row| row.down)] {
        if any(&is_ecn, &|row| damages(row, fate(row)).1) {
            advice.push(format!(
                "ECN does not survive {way}: L4S and ECN cannot work on this path. Find the device \
                 that rewrites the field (often a home router's QoS setting, or a tunnel) and let \
                 it keep the two ECN bits."
            ));
        }
        if any(&is_nqb, &|row| damages(row, fate(row)).0) {
            advice.push(format!(
                "DSCP 45 does not survive {way}: applications cannot use it to request the low \
                 latency queue. Networks at the edge should pass 45 or map it back (RFC 9956)."
            ));
        }
    }
    // A packet that would be lost without its marking, too, is not lost because of it.
    let plain_passes = any(&|sent| sent == Marking::default(), &|row| row.answered > 0);
    for (name, is_wanted) in [("ECN", &is_ecn as &dyn Fn(_) -> _), ("DSCP 45", &is_nqb)] {
        if plain_passes && any(is_wanted, &|row| row.up == Fate::Lost) {
            advice.push(format!(
                "Packets with {name} are lost, up or down (from here the two cannot be told \
                 apart), while others pass: find the firewall or router that drops them."
            ));
        }
        if any(is_wanted, &|row| row.up == Fate::Refused) {
            advice.push(format!(
                "This machine refuses to send packets with {name}: its own firewall drops them."
            ));
        }
    }
}

/// Returns whether one direction damages the DSCP and the ECN field.
fn damages(row: &MarkRow, fate: Fate) -> (bool, bool) {
    match fate {
        Fate::Seen { dscp, ecn } => (dscp.is_damage(), ecn.is_damage()),
        // Congestion marks on some of the packets do not count as damage.
        Fate::Mixed { mostly } => (
            Change::from_dscps(row.sent.dscp, mostly.dscp).is_damage(),
            Change::from_ecns(row.sent.ecn, mostly.ecn).is_damage(),
        ),
        Fate::Lost | Fate::Unknown | Fate::Refused => (false, false),
    }
}
fn about_grant(examination: &Examination, advice: &mut Vec<String>) {
    if let Some(granted) = examination.held_up_at_bit_per_s {
        advice.push(format!(
            "The server's limit ({:.2} Mbit/s), not the line, limited the load {}: the line's \
             rate and queue are unknown. Ask for more, or use a server that grants more.",
            granted as f64 / 1e6,
            examination.direction
        ));
    }
}

fn about_queue(examination: &Examination, advice: &mut Vec<String>) {
    let (Some(evidence), Some(queue)) = (&examination.evidence, &examination.queue) else { return };
    let way = examination.direction;
    let standing_ms = evidence.tcp.p95_ms;
    match queue.answer.family() {
        Some(QueueFamily::DropTail) if standing_ms > NOTICED_MS => {
            let setting = match way {
                Direction::Up => {
                    "switch on the modem's or router's AQM (CAKE or FQ-CoDel at 95 % of the rate; \
                     DOCSIS-PIE at a cable modem), or set a smaller buffer"
                }
                Direction::Down => {
                    "ask the provider for AQM at its end, or shape in the router (CAKE on ingress \
                     at 90 % of the rate)"
                }
            };
            advice.push(format!(
                "The {way} buffer has no AQM and holds {standing_ms:.0} ms when full: \
                 {setting}."
            ));
        }
        Some(QueueFamily::DropTail) => advice.push(format!(
            "The {way} buffer has no AQM but is short ({standing_ms:.0} ms when full): calls are \
             fine, loss comes in bursts. An AQM would keep the rate with less loss."
        )),
        Some(QueueFamily::SingleQueueAqm) if standing_ms > NOTICED_MS => advice.push(format!(
            "There is an AQM {way}, yet {standing_ms:.0} ms of delay: its target is too high, or \
             its rate is not the line's."
        )),
        None if matches!(queue.answer, Answer::NotABottleneck) => advice.push(format!(
            "The load {way} filled no queue: the bottleneck is elsewhere, or faster than this test."
        )),
        Some(_) | None => {}
    }
}

fn about_treatment(examination: &Examination, advice: &mut Vec<String>) {
    let way = examination.direction;
    match examination.treatment.map(|treatment| treatment.verdict) {
        Some(TreatmentVerdict::Priority) => advice.push(format!(
            "DSCP 45 gets more than its share {way}: marking pays, so it will be abused. Treat it \
             as best effort in a separate queue (RFC 9956 section 4)."
        )),
        Some(TreatmentVerdict::Disadvantage) => advice.push(format!(
            "A load with DSCP 45 gets less than its share {way}: policed, protected against, or \
             mapped to a lower class."
        )),
        _ => {}
    }
}

fn about_congestion_marks(way: Direction, evidence: &Evidence, advice: &mut Vec<String>) {
    if let Some(share) = evidence.ce_idle.filter(|share| *share > IDLE_SHARE) {
        advice.push(format!(
            "{:.1} % of ECT packets are marked CE {way} while nothing is queued: a device marks \
             without congestion, and ECN senders slow down for no reason.",
            share * 100.0
        ));
    }
    for (name, share) in [("ECT(0)", evidence.ce_of_ect0), ("ECT(1)", evidence.ce_of_ect1)] {
        if let Some(share) = share.filter(|share| *share > LOADED_SHARE) {
            advice.push(format!(
                "{:.0} % of {name} probes are marked CE {way} under load, although they send \
                 little: the marking threshold is below what the link needs.",
                share * 100.0
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use underload_record::schema::Validity;

    use super::super::classify::classify;
    use super::*;
    use crate::path::MARKINGS;

    /// Returns the advice for a path with `fate(marking)` up and down.
    fn advised(fate: impl Fn(Marking) -> [Fate; 2]) -> Vec<String> {
        let row = |sent: &Marking| {
            let [up, down] = fate(*sent);
            let answered =
                if matches!(up, Fate::Seen { .. } | Fate::Mixed { .. }) { 20 } else { 0 };
            MarkRow { sent: *sent, packets: 20, answered, up, down }
        };
        let survey = MarkSurvey { rows: MARKINGS.iter().map(row).collect() };
        advice(&[&survey], &[])
    }

    #[test]
    fn a_load_delayed_by_the_server_proves_nothing_about_the_line() {
        let text = include_str!("../../tests/data/path_evidence.jsonl");
        let cell: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let evidence: Evidence = serde_json::from_value(cell["evidence"].clone()).unwrap();
        let reached = evidence.rate_bit_per_s as u64;
        let examined = Examination {
            direction: Direction::Up,
            congestion_control: "cubic".to_owned(),
            validity: Validity::Valid,
            incomplete: Vec::new(),
            queue: Some(classify(&evidence)),
            evidence: Some(evidence),
            held_up_at_bit_per_s: None,
            treatment: None,
        };
        let held = |granted: u64, server_says_so| {
            let mut examined = examined.clone();
            examined.hold_against_grant(granted, server_says_so);
            (examined.queue.is_none(), advice(&[], &[examined]))
        };
        assert!(!held(reached * 2, false).0);
        for (is_unknown, said) in [held(reached, false), held(reached * 2, true)] {
            assert!(is_unknown && said.len() == 1, "{said:?}");
            assert!(said[0].contains("not the line, limited the load up"), "{said:?}");
        }
    }

    const KEPT: Fate = Fate::Seen { dscp: Change::Kept, ecn: Change::Kept };

    #[test]
    fn a_changed_dscp_does_not_count_as_damage_to_ecn() {
        // A provider that marks everything CS1.
        let remarked = Fate::Seen { dscp: Change::Remarked(8), ecn: Change::Kept };
        let lines = advised(|_| [KEPT, remarked]);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("DSCP 45 does not survive down"), "{lines:?}");
    }

    #[test]
    fn a_bleached_ecn_field_is_reported_for_its_direction_only() {
        let bleached = Fate::Seen { dscp: Change::Kept, ecn: Change::Bleached };
        let lines = advised(|sent| {
            let up = if sent.ecn == Ecn::Ect1 { bleached } else { KEPT };
            [up, KEPT]
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("ECN does not survive up"), "{lines:?}");
    }

    #[test]
    fn loss_is_reported_for_its_direction_only() {
        let lost_ecn = |sent: Marking| if sent.ecn == Ecn::Ect1 { Fate::Lost } else { KEPT };
        let lines = advised(|sent| [lost_ecn(sent); 2]);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("Packets with ECN are lost, up or down"), "{lines:?}");
        assert_eq!(advised(|_| [Fate::Lost; 2]), Vec::<String>::new(), "nothing passes at all");
    }

    #[test]
    fn congestion_marks_on_some_packets_do_not_count_as_damage() {
        let mostly = |sent: Marking| match sent.ecn {
            Ecn::Ect0 | Ecn::Ect1 => Fate::Mixed { mostly: Marking { ecn: Ecn::Ce, ..sent } },
            _ => KEPT,
        };
        assert_eq!(advised(|sent| [mostly(sent), KEPT]), Vec::<String>::new());
    }

    #[test]
    fn markings_refused_by_this_machine_do_not_count_as_damage_by_the_path() {
        let refused = |sent: Marking| if sent.dscp == Marking::NQB { Fate::Refused } else { KEPT };
        let lines = advised(|sent| [refused(sent); 2]);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("This machine refuses to send packets with DSCP 45"));
    }
}
