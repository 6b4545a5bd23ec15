//! The first sentence on a study.

use underload_record::comparison::Verdict;
use underload_record::schema::{Interval, StudyClass, StudyGroup, StudyRecord, World};
use underload_record::synthetic::{self, BUFFER_CONTROL, DOCSIS_PIE};
use underload_report::summary_lines;
use underload_store::RunData;

use crate::page::conclude_all;

fn interval(mean: f64, ends: Option<(f64, f64)>) -> Interval {
    let (low, high) = (ends.map(|ends| ends.0), ends.map(|ends| ends.1));
    Interval { mean, low, high, confidence: 0.95, repeats: 31 }
}

fn class(lag_ms: f64) -> StudyClass {
    StudyClass { lag_ns: Some(interval(lag_ms * 1e6, None)), ..StudyClass::default() }
}

/// A study of two variants whose groups are these.
fn study(groups: Vec<StudyGroup>) -> RunData {
    let queues = [BUFFER_CONTROL, DOCSIS_PIE];
    let mut data = conclude_all(
        synthetic::record(World::Sim, &queues),
        synthetic::trials(&queues, 2, 50_000_000),
    );
    data.record.study = Some(StudyRecord {
        class: "probe-dscp-45".to_owned(),
        against: "probe-dscp-8".to_owned(),
        groups,
        ..StudyRecord::default()
    });
    data
}

fn group(variant: &str, cut: Option<Interval>) -> StudyGroup {
    let classes = [("probe-dscp-45", class(4.0)), ("probe-dscp-8", class(40.0))];
    StudyGroup {
        variant: variant.to_owned(),
        runs: 7,
        runs_void: 1,
        classes: classes.map(|(name, class)| (name.to_owned(), class)).into(),
        cut_percent: cut,
        ..StudyGroup::default()
    }
}

fn judged(variant: &str, verdict: Verdict, cut: Interval) -> StudyGroup {
    StudyGroup { verdict, ..group(variant, Some(cut)) }
}

#[test]
fn a_study_begins_with_the_cut_and_its_interval() {
    let data = study(vec![
        judged("sure", Verdict::Lower, interval(90.0, Some((85.0, 95.0)))),
        judged("worse", Verdict::Higher, interval(-20.0, Some((-30.0, -10.0)))),
        judged("chance", Verdict::NotSure, interval(2.0, Some((-10.0, 14.0)))),
        group("void", None),
        group("fifth", None),
        StudyGroup {
            conditions: vec![("home".to_owned(), "unlimited".to_owned())],
            ..group("sure", Some(interval(99.0, None)))
        },
    ]);
    let lines = summary_lines(&[data]);
    let expected = [
        "With sure, probe-dscp-45 has 90.0 % less lag than probe-dscp-8 (85.0 to 95.0 % at 95 %) \
         over 31 lines: 4.00 against 40.0 ms of round trip at p99 under load above the idle \
         median, the mean of the lines.",
        "With worse, probe-dscp-45 has 20.0 % more lag than probe-dscp-8 (10.0 to 30.0 % at 95 %) \
         over 31 lines:",
        "With chance, probe-dscp-45 is not sure to differ from probe-dscp-8 in its lag (-10.0 to \
         14.0 % less at 95 %) over 31 lines:",
        "With void, probe-dscp-45 and probe-dscp-8 cannot be compared: of 8 runs 7 count,",
    ];
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}\n{expected}");
    }
    assert!(!lines.iter().any(|line| line.contains("fifth") || line.contains("working")));
}

#[test]
fn a_study_without_counted_runs_says_so() {
    let lines = summary_lines(&[study(Vec::new())]);
    assert_eq!(lines[0], "No run of a line counts, so nothing can be said of its classes.");
}
