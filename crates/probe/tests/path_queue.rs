//! Classifies recorded evidence of simulated cells that were not used to train the model;
//! `docs/contributing/path.md` describes how they were made.

use serde::Deserialize;
use underload_probe::path::{Answer, Delay, Evidence, Overload, QueueFamily, QueueKind, classify};

#[derive(Deserialize)]
struct Recorded {
    kind: QueueKind,
    cell: String,
    evidence: Evidence,
}

fn recorded() -> Vec<Recorded> {
    let lines = include_str!("data/path_evidence.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).expect("a recorded cell")).collect()
}

#[test]
fn recorded_queues_are_recognised() {
    let recorded = recorded();
    for family in QueueFamily::ALL {
        let of_family = recorded.iter().filter(|cell| cell.kind.family() == family).count();
        assert!(of_family >= 3, "{family}: only {of_family} cells, the test shows nothing");
    }
    let mut silent = Vec::new();
    for cell in &recorded {
        match classify(&cell.evidence).answer {
            Answer::Known { family, .. } => assert_eq!(family, cell.kind.family(), "{}", cell.cell),
            answer => silent.push((cell.cell.as_str(), answer)),
        }
    }
    assert!(silent.len() * 20 <= recorded.len(), "not told: {silent:?}");
}

#[test]
fn without_overload_the_classifier_is_less_certain_but_not_wrong() {
    let (mut told, mut wrong) = (0, 0);
    let recorded = recorded();
    for cell in &recorded {
        let evidence = Evidence { overload: None, ..cell.evidence.clone() };
        if let Some(family) = classify(&evidence).answer.family() {
            told += 1;
            wrong += usize::from(family != cell.kind.family());
        }
    }
    assert!(told * 2 > recorded.len(), "{told} of {} told", recorded.len());
    assert!(wrong * 10 <= told, "{wrong} of {told} wrong");
}

#[test]
fn an_idle_path_is_no_bottleneck() {
    let mut evidence = recorded().remove(0).evidence;
    evidence.tcp = Delay { p99_ms: 0.4, p95_ms: 0.3, p50_ms: 0.1, ..Delay::default() };
    evidence.own_flow_ms = Some(0.2);
    evidence.overload = Some(Overload { load_lost: Some(0.0), ..Overload::default() });
    assert_eq!(classify(&evidence).answer, Answer::NotABottleneck);
}

#[test]
fn evidence_that_no_queue_explains_is_classified_as_unlike() {
    // A delay of a minute at a tenth of a kilobit per second, which no kind of queue explains.
    let mut evidence = recorded().remove(0).evidence;
    evidence.rate_bit_per_s = 100.0;
    evidence.base_rtt_ms = 60_000.0;
    evidence.tcp.p50_ms = 1.0;
    evidence.tcp.p5_ms = 60_000.0;
    let classification = classify(&evidence);
    assert_eq!(classification.answer, Answer::Unlike, "{classification:?}");
    assert_eq!(classification.answer.family(), None);
}

#[test]
fn the_delay_plateau_gives_the_buffer_size() {
    let fifo = recorded().into_iter().find(|cell| cell.cell.starts_with("fifo:limit="));
    let fifo = fifo.expect("a recorded fifo");
    let digits = fifo.cell.trim_start_matches("fifo:limit=").split('B').next();
    let limit: f64 = digits.and_then(|text| text.parse().ok()).expect("a size");
    let found = fifo.evidence.buffer_bytes() as f64;
    assert!((found / limit - 1.0).abs() < 0.15, "{}: {found}", fifo.cell);
}
