//! Queues with service flows: flows that were sent away, and latency histograms.

use std::error::Error;

use underload_record::schema::{LatencyHistogram, Phase, Sanction, World};
use underload_record::synthetic::{self, BUFFER_CONTROL, DOCSIS_PIE};
use underload_report::{render, table};
use underload_store::RunData;

use crate::page::conclude_all;

const MS: u64 = 1_000_000;

fn sanction(flow: &str, packets: u64, first_ms: u64) -> Sanction {
    Sanction {
        flow: flow.to_owned(),
        packets,
        first_ns: first_ms * MS,
        last_ns: (first_ms + 250) * MS,
        highest_score_ns: packets * MS,
    }
}

/// The second variant sends flows away, and counts the delays of two service flows.
fn data() -> RunData {
    let queues = [BUFFER_CONTROL, DOCSIS_PIE];
    let mut trials = synthetic::trials(&queues, 2, 10_000_000);
    let second = trials.iter_mut().filter(|trial| trial.record.variant == "docsis-pie");
    for (repeat, trial) in second.enumerate() {
        let mut ramp = trial.record.bottlenecks[0].clone();
        ramp.window.phase = Phase::Ramp;
        trial.record.bottlenecks.insert(0, ramp);
        for link in &mut trial.record.bottlenecks {
            let is_load = link.window.phase == Phase::Load;
            let at_ms = if is_load { 9_000 } else { 5_000 };
            link.sanctions.push(sanction("bulk <0>", 20 + repeat as u64, at_ms));
            if is_load {
                for flow in 1..30 {
                    link.sanctions.push(sanction(&format!("bulk {flow}"), 2, at_ms));
                }
            }
            let bins = [("low-latency", [90, 9, 1]), ("classic", [0, 0, 0])];
            link.latency_histograms.extend(bins.map(|(name, packets)| LatencyHistogram {
                service_flow: name.to_owned(),
                edges_ns: vec![MS / 2, 10 * MS],
                packets: packets.to_vec(),
            }));
        }
    }
    conclude_all(synthetic::record(World::Sim, &queues), trials)
}

#[test]
fn the_table_names_the_flows_sanctioned_most() {
    let data = data();
    let links = data.record.trials.iter().filter(|trial| trial.variant == "docsis-pie");
    let phases: usize = links.map(|trial| trial.bottlenecks.len()).sum();
    assert!(phases > 2, "the premise: several windows per trial");
    let packets = 41 * phases / 2;
    let text = table(&[data]);
    let start = format!("  up    queue protection sent away bulk <0> ({packets} packets), bulk 1");
    assert!(text.contains(&start), "{start}\n{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("bulk 1 (4 packets), bulk 2 (4 packets), 27 more"), "{text}");
    assert_eq!(text.matches("sent away").count(), 1, "nothing of the other variant: {text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100));
}

#[test]
fn the_page_has_each_flow_and_each_bin() -> Result<(), Box<dyn Error>> {
    let page = render(&[data()])?;
    // Words in the script do not count as shown.
    let page = page.split("<script>").next().unwrap_or_default();
    assert!(page.contains("Sent away from the low latency queue"));
    assert!(page.contains("bulk &lt;0&gt;") && page.contains("and 10 flows more"));
    assert!(page.contains("&lt; 0.500 ms") && page.contains("≥ 10.0"), "the bins");
    assert!(page.contains("docsis-pie, up, low-latency") && page.contains("90.0"));
    // A service flow that sent nothing has shares of nothing, not of zero divided by zero.
    assert!(page.contains("docsis-pie, up, classic") && !page.contains("NaN"));
    let without = conclude_all(
        synthetic::record(World::Sim, &[DOCSIS_PIE]),
        synthetic::trials(&[DOCSIS_PIE], 2, 10_000_000),
    );
    let page = render(&[without])?;
    assert!(!page.contains("Sent away") && !page.contains("Latency histograms"));
    Ok(())
}
