//! What to change, in plain words.

use underload_report::schema::{Direction, Ecn};

use super::classify::{Answer, QueueFamily};
use super::evidence::Evidence;
use super::examine::{Examination, TreatmentVerdict};
use super::marks::{Fate, MarkSurvey};

/// Delay under load that a call notices, ms.
const NOTICED_MS: f64 = 50.0;
/// CE on an idle path, share of the probes.
const EXCESS_IDLE: f64 = 0.01;
/// CE of one class under load above which an AQM is out of its working range.
const EXCESS_LOADED: f64 = 0.5;

/// One sentence or two per finding that somebody could act on; empty if all is well.
pub fn advice(marks: &[&MarkSurvey], examinations: &[Examination]) -> Vec<String> {
    let mut advice = Vec::new();
    for survey in marks {
        about_marks(survey, &mut advice);
    }
    for examination in examinations {
        about_queue(examination, &mut advice);
        about_treatment(examination, &mut advice);
        if let Some(evidence) = &examination.evidence {
            about_congestion_marks(examination.direction, evidence, &mut advice);
        }
    }
    // Both families often say the same.
    let mut said = Vec::new();
    advice.retain(|line| {
        let is_new = !said.contains(line);
        said.push(line.clone());
        is_new
    });
    advice
}

fn about_marks(survey: &MarkSurvey, advice: &mut Vec<String>) {
    for (way, fate) in [("up", up as fn(&_) -> Fate), ("down", down)] {
        let damaged = |wanted: &dyn Fn(u8, Ecn) -> bool| {
            let of_interest = |row: &&super::MarkRow| wanted(row.sent.dscp, row.sent.ecn);
            survey.rows.iter().filter(of_interest).any(|row| fate(row).is_damage())
        };
        if damaged(&|dscp, ecn| dscp == 0 && ecn != Ecn::NotEct) {
            advice.push(format!(
                "ECN does not survive {way}: L4S and ECN cannot work on this path. Find the device \
                 that rewrites the field (often a home router's QoS setting, or a tunnel) and let \
                 it keep the two ECN bits."
            ));
        }
        if damaged(&|dscp, ecn| dscp == 45 && ecn == Ecn::NotEct) {
            advice.push(format!(
                "DSCP 45 does not survive {way}: applications cannot ask for the low latency queue \
                 by it. Networks at the edge should pass 45 or map it back (RFC 9956)."
            ));
        }
    }
}

fn up(row: &super::MarkRow) -> Fate {
    row.up
}

fn down(row: &super::MarkRow) -> Fate {
    row.down
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
                "The {way} buffer is a plain one and holds {standing_ms:.0} ms when full: {setting}."
            ));
        }
        Some(QueueFamily::DropTail) => advice.push(format!(
            "The {way} buffer is plain but short ({standing_ms:.0} ms when full): calls are fine, \
             loss comes in bursts. An AQM would keep the rate with less loss."
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
             as best effort in a queue of its own (RFC 9956 section 4)."
        )),
        Some(TreatmentVerdict::Disadvantage) => advice.push(format!(
            "A load with DSCP 45 gets less than its share {way}: policed, protected against, or \
             mapped to a lower class."
        )),
        _ => {}
    }
}

fn about_congestion_marks(way: Direction, evidence: &Evidence, advice: &mut Vec<String>) {
    if let Some(share) = evidence.ce_idle.filter(|share| *share > EXCESS_IDLE) {
        advice.push(format!(
            "{:.1} % of ECT packets are marked CE {way} while nothing is queued: a device marks \
             without reason, and ECN senders slow down for nothing.",
            share * 100.0
        ));
    }
    for (name, share) in [("ECT(0)", evidence.ce_of_ect0), ("ECT(1)", evidence.ce_of_ect1)] {
        if let Some(share) = share.filter(|share| *share > EXCESS_LOADED) {
            advice.push(format!(
                "{:.0} % of {name} probes are marked CE {way} under load, although they send next \
                 to nothing: the marking threshold is below what the link needs.",
                share * 100.0
            ));
        }
    }
}
