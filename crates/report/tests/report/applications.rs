//! The metrics of applications are shown beside their latency.

use std::error::Error;

use underload_record::schema::{FlowRecord, Metric, World};
use underload_report::{render, summary_lines, table};
use underload_store::RunData;

use crate::page::conclude_all;
use underload_record::synthetic::{self, BUFFER_CONTROL, DOCSIS_PIE, FQ_CODEL, Queue};

/// Trials with a call of which the first variant's is bad.
fn with_calls(queues: &[Queue]) -> RunData {
    let mut trials = synthetic::trials(queues, 2, 20_000_000);
    for trial in &mut trials {
        let score = if trial.record.variant == trial_variant(queues) { 1.5 } else { 4.25 };
        let metric = |name: &str, unit: &str, value| Metric {
            name: name.to_owned(),
            unit: unit.to_owned(),
            value: Some(value),
        };
        trial.record.flows.push(FlowRecord {
            name: "call".to_owned(),
            kind: "voip".to_owned(),
            metrics: vec![
                metric("mos", "MOS", score),
                metric("mos_up", "MOS", score),
                metric("frames_lost_up", "%", 0.125),
            ],
            ..FlowRecord::default()
        });
    }
    conclude_all(synthetic::record(World::Sim, queues), trials)
}

fn trial_variant(queues: &[Queue]) -> &'static str {
    queues[0].name
}

#[test]
fn the_terminal_and_the_first_lines_have_each_applications_numbers() {
    let mut runs = [with_calls(&[BUFFER_CONTROL, DOCSIS_PIE])];
    let text = table(&runs);
    assert!(text.starts_with("round-trip time, ms\n  phase  window"), "the premise: {text}");
    for score in ["1.50", "4.25"] {
        let row = format!("\n  call  mos {score}, mos up {score}, frames lost up 0.125 %\n");
        assert_eq!(text.matches(&row).count(), 1, "{text}");
    }
    // The synthetic probe has a metric, too, but is no application.
    assert!(!text.contains("\n  probe "), "{text}");
    let lines = summary_lines(&runs);
    let expected =
        "call: quality (MOS, 1 to 5) 1.50 (poor) with buffer-control, 4.25 (good) with docsis-pie.";
    assert!(lines.iter().any(|line| line == expected), "{lines:#?}");
    runs[0].record.summaries.iter_mut().for_each(|summary| summary.latencies.clear());
    let text = table(&runs);
    assert!(text.starts_with("buffer-control (") && !text.contains("window"), "{text}");
    let alone = summary_lines(&[with_calls(&[DOCSIS_PIE])]);
    assert!(
        alone.iter().any(|line| line == "call: quality (MOS, 1 to 5) 1.50 (poor)."),
        "{alone:#?}"
    );
}

#[test]
fn a_call_without_frames_has_no_delay() {
    let shown = "call: no picture with buffer-control, 4.25 ms with docsis-pie.";
    for (blank, expected) in [(2, "call: no picture in every variant."), (1, shown)] {
        let mut data = with_calls(&[BUFFER_CONTROL, DOCSIS_PIE]);
        for (number, summary) in data.record.summaries.iter_mut().enumerate() {
            for metric in summary.metrics.iter_mut().filter(|metric| metric.flow == "call") {
                let (name, unit) = match metric.name.as_str() {
                    "mos" => ("glass_to_glass_p50", "ms"),
                    _ => ("frame_rate", "Hz"),
                };
                if name == "frame_rate" && number < blank {
                    metric.value.mean = 0.0;
                }
                (metric.name, metric.unit) = (name.to_owned(), unit.to_owned());
                metric.suits = None;
            }
        }
        let lines = summary_lines(&[data]);
        assert!(lines.iter().any(|line| line.starts_with(expected)), "{lines:#?}");
    }
}

#[test]
fn the_page_has_application_numbers_below_the_latency_and_a_row_per_variant_of_many()
-> Result<(), Box<dyn Error>> {
    let few = render(&[with_calls(&[BUFFER_CONTROL, DOCSIS_PIE])])?;
    let row = "<td class=\"text\" colspan=\"10\"><div class=\"fit\"><b>mos ";
    assert_eq!(few.matches(row).count(), 2);
    assert!(
        few.contains("<td class=\"text\">call</td><td class=\"text\">mos "),
        "a row per number"
    );
    let names = ["a", "b", "c", "d", "e"];
    let mut many = vec![BUFFER_CONTROL];
    many.extend(names.map(|name| Queue { name, ..FQ_CODEL }));
    let page = render(&[with_calls(&many)])?;
    assert!(page.contains("<th class=\"text\">call</th><th>mos<br>"), "a row per variant");
    Ok(())
}
