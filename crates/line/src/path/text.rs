//! The findings as text.

use std::fmt::{self, Write};

use underload_probe::path::{
    Answer, Classification, Evidence, Examination, HopChange, OVERLOAD, PRIORITY_SHARE, Part,
    PolicyFinding, QueueFamily, Treatment, TreatmentVerdict,
};
use underload_record::schema::{Direction, Ecn, Marking, Validity};

use super::{FamilyMarks, Findings};

pub(super) fn part_name(part: Part) -> &'static str {
    match part {
        Part::Tcp => "TCP fills the path",
        Part::Overload => "UDP exceeds its rate",
        Part::Treatment => "DSCP 45 beside DSCP 0",
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.marks.iter().try_for_each(|marks| write_marks(out, marks))?;
        self.directions.iter().try_for_each(|direction| write_examination(out, direction))?;
        if self.advice.is_empty() {
            writeln!(out, "No change is needed, according to these results.")?;
        } else {
            writeln!(out, "What to change")?;
        }
        self.advice.iter().try_for_each(|line| writeln!(out, "  - {line}"))
    }
}

fn write_marks(out: &mut dyn Write, marks: &FamilyMarks) -> fmt::Result {
    writeln!(out, "Markings to {}", marks.target)?;
    writeln!(out, "  {:<12} {:>8}  {:<34} down", "sent", "answered", Direction::Up.name())?;
    for row in &marks.survey.rows {
        let (sent, up, down) = (marking(row.sent), row.up, row.down);
        let answered = format!("{}/{}", row.answered, row.packets);
        writeln!(out, "  {sent:<12} {answered:>8}  {up:<34} {down}")?;
    }
    if let Some(reason) = &marks.hops_missing {
        writeln!(out, "  Hops: unknown: {reason}")?;
    }
    if let Some(trace) = &marks.hops {
        let quoting = trace.hops.iter().filter(|hop| hop.address.is_some()).count();
        match trace.hops.len() {
            _ if quoting == 0 => writeln!(out, "  Hops: none on the way up answers")?,
            all => writeln!(out, "  Hops: {quoting} of {all} on the way up quote the packet")?,
        }
        // Without an answer from any hop, nothing is known about the markings.
        let traced = trace.markings.iter().zip(&marks.changes).filter(|_| quoting > 0);
        for (sent, change) in traced {
            let row = marks.survey.rows.iter().find(|row| row.sent == *sent);
            let is_damaged = row.is_some_and(|row| row.answered > 0 && row.up.is_damage());
            let result = match change {
                Some(change) => format!("became {} {}", marking(change.to), between(change)),
                None if is_damaged => {
                    "unchanged at every hop that answers; changed after the last of them".to_owned()
                }
                None => "unchanged at every hop that answers".to_owned(),
            };
            writeln!(out, "  {}: {result}", marking(*sent))?;
        }
    }
    for finding in &marks.policies {
        let place = place(finding, marks);
        writeln!(out, "  Verdict {}: {}. Where: {place}.", finding.direction, finding.policy)?;
    }
    writeln!(out)
}

/// Returns where a policy is applied, as far as this machine can know.
fn place(finding: &PolicyFinding, marks: &FamilyMarks) -> String {
    let place = match (finding.direction, &finding.place) {
        (Direction::Down, _) => {
            "unknown, because only the way up is traced; run this command at the other end"
        }
        (Direction::Up, Some(change)) => return between(change),
        (Direction::Up, None) => match &marks.hops {
            Some(trace) if trace.hops.iter().any(|hop| hop.address.is_some()) => {
                "after the last hop that answers"
            }
            Some(_) => "unknown, no hop answered",
            None => "unknown, the hops were not traced",
        },
    };
    place.to_owned()
}

fn between(change: &HopChange) -> String {
    let named = |ttl: u8, address: Option<std::net::IpAddr>| match (ttl, address) {
        (0, _) => "this host".to_owned(),
        (ttl, Some(address)) => format!("hop {ttl} ({address})"),
        (ttl, None) => format!("hop {ttl}"),
    };
    let after = named(change.after_ttl, change.after);
    let seen_at = named(change.seen_at_ttl, change.seen_at);
    format!("between {after} and {seen_at}")
}

/// Formats `45 ect1`, or only the DSCP for Not-ECT.
fn marking(marking: Marking) -> String {
    match marking.ecn {
        Ecn::NotEct => marking.dscp.to_string(),
        ecn => format!("{} {}", marking.dscp, ecn.name()),
    }
}

fn write_examination(out: &mut dyn Write, examination: &Examination) -> fmt::Result {
    let Examination { direction, congestion_control, .. } = examination;
    writeln!(
        out,
        "Queue {direction} (TCP {congestion_control}, then UDP at {OVERLOAD} of its rate)"
    )?;
    if let Validity::Invalid { reasons } = &examination.validity {
        writeln!(out, "  INVALID: this machine, not the line, may have caused the delay")?;
        reasons.iter().try_for_each(|reason| writeln!(out, "    {reason}"))?;
    }
    examination.incomplete.iter().try_for_each(|what| writeln!(out, "  incomplete: {what}"))?;
    match (&examination.evidence, &examination.queue) {
        (Some(evidence), Some(queue)) => {
            writeln!(out, "  verdict    {}", verdict(queue, evidence))?;
            let probability = |family: QueueFamily| {
                format!("{family} {:.1} %", queue.probability(family) * 100.0)
            };
            let odds = QueueFamily::ALL.map(probability).join(", ");
            writeln!(out, "  posterior  {odds}")?;
            let (nearest, distance) = (&queue.nearest, queue.distance);
            writeln!(out, "  nearest    {nearest}, distance {distance:.1} (1 is typical)")?;
        }
        _ => match examination.held_up_at_bit_per_s {
            Some(granted) => writeln!(
                out,
                "  verdict    unknown: the server's limit ({:.2} Mbit/s), not the line, limited \
                 the load",
                granted as f64 / 1e6
            )?,
            None => writeln!(out, "  verdict    unknown")?,
        },
    }
    if let Some(evidence) = &examination.evidence {
        let is_line = examination.held_up_at_bit_per_s.is_none();
        write_evidence(out, evidence, if is_line { "line" } else { "load" })?;
    }
    if let Some(treatment) = &examination.treatment {
        let path_bit_per_s = examination.evidence.as_ref().map(|evidence| evidence.rate_bit_per_s);
        writeln!(out, "  DSCP 45    {}", treated(treatment, path_bit_per_s))?;
    }
    writeln!(out)
}

fn verdict(queue: &Classification, evidence: &Evidence) -> String {
    match queue.answer {
        Answer::Known { family: QueueFamily::DropTail, probability, .. } => {
            let kib = evidence.buffer_bytes() as f64 / 1024.0;
            format!(
                "drop-tail, {:.1} %: a buffer of about {kib:.0} KiB, or a limit on the delay",
                probability * 100.0
            )
        }
        Answer::Known { family, probability, like } => {
            let like = like.filter(|_| family == QueueFamily::SingleQueueAqm);
            let like = like.map_or_else(String::new, |kind| format!(", {kind}"));
            format!("{family}{like}, {:.1} %", probability * 100.0)
        }
        Answer::Ambiguous { family, probability } => {
            format!("unknown; {family} is likeliest with {:.1} %", probability * 100.0)
        }
        Answer::Unlike => "unknown: unlike every known queue".to_owned(),
        Answer::NotABottleneck => {
            "unknown: no delay and no loss, so the bottleneck is elsewhere".to_owned()
        }
    }
}

fn write_evidence(out: &mut dyn Write, evidence: &Evidence, rate_of: &str) -> fmt::Result {
    let tcp = evidence.tcp;
    let ms = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.1} ms"));
    let share = |value: Option<f64>| {
        value.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0))
    };
    let (mbit_per_s, base_ms) = (evidence.rate_bit_per_s / 1e6, evidence.base_rtt_ms);
    writeln!(out, "  {rate_of:<10} {mbit_per_s:.2} Mbit/s, idle round trip {base_ms:.1} ms")?;
    let swing = ms(evidence.swing_period_ms);
    writeln!(
        out,
        "  {:<10} delay p5 {:.1}, p50 {:.1}, p95 {:.1}, p99 {:.1} ms; {:.0} % of the time at the \
         top; swings every {swing}",
        "under TCP",
        tcp.p5_ms,
        tcp.p50_ms,
        tcp.p95_ms,
        tcp.p99_ms,
        tcp.at_top * 100.0,
    )?;
    let [own, nqb, ect1] = [evidence.own_flow_ms, evidence.nqb_ms, evidence.ect1_ms].map(ms);
    writeln!(out, "  {:<10} own flow {own}; DSCP 45 {nqb}; ECT(1) {ect1}", "")?;
    let lost = share(evidence.loss_share);
    let burst = evidence.loss_burst_segments.map_or("-".to_owned(), |burst| format!("{burst:.1}"));
    writeln!(out, "  {:<10} segments lost {lost}, {burst} at a time", "")?;
    if let Some(udp) = evidence.overload {
        let (load_lost, nqb, ect1) = (share(udp.load_lost), ms(udp.nqb_ms), ms(udp.ect1_ms));
        writeln!(
            out,
            "  {:<10} delay {:.1} ms, then p10 {:.1}, p50 {:.1}, p90 {:.1} ms; lost {:.1} % of the \
             probes, {load_lost} of the load; DSCP 45 {nqb}; ECT(1) {ect1}",
            "under UDP",
            udp.early_ms,
            udp.late_p10_ms,
            udp.late_p50_ms,
            udp.late_p90_ms,
            udp.lost * 100.0,
        )?;
    }
    let marks = [evidence.ce_of_ect0, evidence.ce_of_ect1, evidence.ce_idle].map(share);
    let [ect0, ect1, idle] = marks;
    writeln!(out, "  {:<10} of ECT(0) {ect0}, of ECT(1) {ect1}, while idle {idle}", "CE marks")
}

/// If both loads together have less than this share of the path's rate, they did not compete.
const FULL_SHARE: f64 = 0.8;
/// Shares that differ from a half by at most this are not reported.
const EVEN: f64 = 0.05;

/// `path_bit_per_s` is the rate of TCP alone, or `None` if it is unknown.
fn treated(treatment: &Treatment, path_bit_per_s: Option<f64>) -> String {
    let Treatment { best_effort_bit_per_s, nqb_bit_per_s, verdict } = *treatment;
    let (nqb, best_effort) = (nqb_bit_per_s as f64, best_effort_bit_per_s as f64);
    let (both, share) = (nqb + best_effort, nqb / (nqb + best_effort));
    let rates =
        format!("{:.2} Mbit/s beside {:.2} Mbit/s with DSCP 0", nqb / 1e6, best_effort / 1e6);
    if let Some(path) = path_bit_per_s.filter(|path| both < FULL_SHARE * path) {
        return format!(
            "treatment of a load unknown: {rates} did not fill the {:.2} Mbit/s of the path, so \
             the loads did not compete",
            path / 1e6
        );
    }
    let verdict = match verdict {
        TreatmentVerdict::BestEffort => "as best effort, not as priority",
        TreatmentVerdict::Priority => "as PRIORITY",
        TreatmentVerdict::Disadvantage => "worse than best effort",
    };
    let uneven = match treatment.verdict {
        TreatmentVerdict::BestEffort if (share - 0.5).abs() > EVEN => format!(
            "; {:.0} to {:.0} %, where up to {:.0} % is chance with few flows",
            share * 100.0,
            (1.0 - share) * 100.0,
            PRIORITY_SHARE * 100.0
        ),
        _ => String::new(),
    };
    format!("a load is treated {verdict}: {rates}{uneven}")
}

#[cfg(test)]
mod tests {
    use underload_probe::path::{HopTrace, MarkSurvey};

    use super::*;

    #[test]
    fn without_answering_hops_no_hop_is_printed() {
        let sent = Marking { dscp: 45, ecn: Ecn::Ect1 };
        let trace = HopTrace { markings: vec![sent], hops: Vec::new(), target_at: None };
        let marks = FamilyMarks {
            target: ([192, 0, 2, 1], 862).into(),
            survey: MarkSurvey { rows: Vec::new() },
            hops: Some(trace),
            hops_missing: None,
            changes: vec![None],
            policies: Vec::new(),
        };
        let mut text = String::new();
        write_marks(&mut text, &marks).unwrap();
        assert!(text.ends_with("  Hops: none on the way up answers\n\n"), "{text}");
    }

    #[test]
    fn shares_within_chance_and_loads_below_the_rate_are_reported() {
        let told = |nqb_mbit: f64, best_effort_mbit: f64, path_mbit: Option<f64>| {
            let treatment = Treatment {
                nqb_bit_per_s: (nqb_mbit * 1e6) as u64,
                best_effort_bit_per_s: (best_effort_mbit * 1e6) as u64,
                verdict: TreatmentVerdict::BestEffort,
            };
            treated(&treatment, path_mbit.map(|mbit| mbit * 1e6))
        };
        assert_eq!(
            told(5.86, 3.61, Some(9.6)),
            "a load is treated as best effort, not as priority: 5.86 Mbit/s beside 3.61 Mbit/s \
             with DSCP 0; 62 to 38 %, where up to 68 % is chance with few flows"
        );
        assert!(told(4.9, 4.7, None).ends_with("beside 4.70 Mbit/s with DSCP 0"));
        let idle = told(0.3, 0.3, Some(9.6));
        assert!(idle.contains("unknown") && idle.contains("9.60 Mbit/s"), "{idle}");
    }

    #[test]
    fn a_load_limited_by_the_server_reports_no_line_rate() {
        let examination = Examination {
            direction: Direction::Up,
            congestion_control: "cubic".to_owned(),
            validity: Validity::Valid,
            incomplete: Vec::new(),
            evidence: None,
            held_up_at_bit_per_s: Some(2_000_000),
            queue: None,
            treatment: None,
        };
        let mut text = String::new();
        write_examination(&mut text, &examination).unwrap();
        assert!(text.contains("the server's limit (2.00 Mbit/s), not the line"), "{text}");
    }
}
