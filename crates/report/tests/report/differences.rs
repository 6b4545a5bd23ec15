//! Sentences that compare variants name every setting in which the variants differ.

use underload_record::schema::{
    Direction, Headline, InsideLatency, Interval, Quantile, RunRecord, ScenarioRecord,
    VariantInside, World,
};
use underload_record::synthetic::{self, BUFFER_CONTROL, DOCSIS_PIE, Queue};
use underload_report::{render, summary_lines};
use underload_store::RunData;

use crate::page::conclude_all;

const TWO: [Queue; 2] = [BUFFER_CONTROL, DOCSIS_PIE];

/// Two variants of six trials each, with these settings.
fn run(settings: [&[(&str, &str)]; 2], change: impl FnOnce(&mut RunRecord)) -> RunData {
    let mut record = synthetic::record(World::Sim, &TWO);
    record.expectations.clear();
    for (variant, settings) in record.variants.iter_mut().zip(settings) {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        variant.factors = settings.iter().map(own).collect();
    }
    change(&mut record);
    conclude_all(record, synthetic::trials(&TWO, 6, 10_000_000))
}

fn lines(settings: [&[(&str, &str)]; 2]) -> Vec<String> {
    summary_lines(&[run(settings, |_| {})])
}

const NO_CAUSE: &str = "Where a bracket names several settings, this does not show which of them makes the \
                        difference.";

#[test]
fn queues_of_both_directions_are_compared_and_named() {
    for at in ["path.", "path.hop.mesh."] {
        let [up, down] = ["up_queue", "down_queue"].map(|key| format!("{at}{key}"));
        let both = |queue| [(up.as_str(), queue), (down.as_str(), queue)];
        let [today, sqm] = [both("fifo:limit=256KiB"), both("cake")];
        let lines = lines([&today, &sqm]);
        let place = if at == "path." { "" } else { " at mesh" };
        let told = format!(
            "With docsis-pie (both queues{place}: cake instead of fifo) the latency under load is \
             30.1 ms instead of 285 ms with buffer-control: 8.8 to 9.5 times lower."
        );
        assert_eq!(lines[0], told);
        assert!(lines[1].contains("with 96 % certainty"), "{lines:?}");
        assert!(!lines.iter().any(|line| line == NO_CAUSE), "{lines:?}");
    }
}

#[test]
fn variants_that_differ_in_several_settings_are_compared_without_a_cause() {
    let today = [("path.up", "10mbit"), ("path.up_queue", "fifo"), ("flow.backup.count", "1")];
    let sqm = [("path.up", "9mbit"), ("path.up_queue", "cake"), ("flow.backup.count", "4")];
    let lines = lines([&today, &sqm]);
    let told = "With docsis-pie (up queue: cake instead of fifo, count of backup: 4 instead of 1, \
                up link: 9mbit instead of 10mbit) the latency under load is 30.1 ms instead of 285";
    assert!(lines[0].starts_with(told), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| *line == NO_CAUSE).count(), 1, "{lines:?}");
    let page = render(&[run([&today, &sqm], |_| {})]).expect("a page");
    assert!(page.contains("<h2 id=\"compared\">") && page.contains(NO_CAUSE));
}

#[test]
fn variants_with_different_lines_are_compared() {
    let lines = lines([&[("path.up", "10mbit")], &[("path.up", "20mbit")]]);
    let told =
        "With docsis-pie (up link: 20mbit instead of 10mbit) the latency under load is 30.1 ms";
    assert!(lines[0].starts_with(told) && !lines.contains(&NO_CAUSE.to_owned()), "{lines:?}");
}

#[test]
fn the_scenarios_baseline_replaces_the_first_variant() {
    let settings: [&[(&str, &str)]; 2] = [&[("path.up_queue", "a")], &[("path.up_queue", "b")]];
    let data = run(settings, |record| {
        let baseline = "docsis-pie".to_owned();
        record.scenario.headline = Some(Headline { baseline, ..Headline::default() });
    });
    let lines = summary_lines(std::slice::from_ref(&data));
    let told = "With buffer-control (up queue: a instead of b) the latency under load is 285 ms \
                instead of 30.1 ms with docsis-pie: 8.8 to 9.5 times higher.";
    assert_eq!(lines[0], told);
}

#[test]
fn variants_with_unknown_settings_are_not_compared() {
    let lines = lines([&[], &[]]);
    assert!(lines[0].starts_with("buffer-control: the working latency is 241 ms"), "{lines:?}");
    assert!(lines[1].starts_with("docsis-pie: the working latency is 2"), "{lines:?}");
    assert_eq!(lines[2], "The run does not record what the variants differ in.");
}

#[test]
fn a_queue_of_the_load_alone_is_reported() {
    let told_with = |inside_ms: f64, text: &str| {
        let mut data = run([&[("path.up_queue", "a")], &[("path.up_queue", "b")]], |_| {});
        let mean = Interval { mean: inside_ms * 1e6, repeats: 6, ..Interval::default() };
        let over_repeats = [(Quantile::P99, mean)].into();
        let direction = Direction::Up;
        data.record.summaries[1].inside =
            vec![VariantInside { direction, values: 12_000, over_repeats }];
        let smallest_ns = Some(20_000_000);
        for trial in &mut data.record.trials {
            trial.inside = vec![InsideLatency { direction, smallest_ns, ..Default::default() }];
        }
        data.record.scenario.text = text.to_owned();
        summary_lines(&[data]).into_iter().find(|line| line.ends_with("other traffic little."))
    };
    let told = "With docsis-pie the packets of the load itself wait 346 ms longer than idle at p99, \
                those of the probes 12.5 ms: the load delays itself, and other traffic little.";
    assert_eq!(told_with(366.0, "").as_deref(), Some(told));
    assert_eq!(told_with(75.0, ""), None, "less than 50 ms more than beside");
    assert_eq!(told_with(366.0, "extra_rtt = \"100ms\""), None, "no common base");
}

#[test]
fn files_of_one_variant_each_are_compared_with_the_first_and_named_by_their_labels() {
    let file = |label: &str, queue: Queue| {
        let mut record = synthetic::record(World::Measured, &[queue]);
        record.scenario = ScenarioRecord { name: label.to_owned(), ..ScenarioRecord::default() };
        record.expectations.clear();
        record.label = label.to_owned();
        conclude_all(record, synthetic::trials(&[queue], 1, 10_000_000))
    };
    let lines = summary_lines(&[
        file("before", BUFFER_CONTROL),
        file("after", DOCSIS_PIE),
        file("again", BUFFER_CONTROL),
    ]);
    let starts = [
        "With buffer-control (before) the working latency is ",
        "With docsis-pie:profile=rfc,target=10ms (after) (up queue: docsis-pie instead of fifo) the \
         latency under load is 29.0 ms against 255 ms with buffer-control (before)",
        "With buffer-control (again) the latency under load is 255 ms, the same as with ",
        "The latencies compared are p99: ",
    ];
    assert_eq!(lines.len(), starts.len(), "{lines:#?}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{lines:#?}");
    }
}
