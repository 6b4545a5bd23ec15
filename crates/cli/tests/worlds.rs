//! Runs one scenario in every world: the columns and curves are equal, whichever world ran it.

#![expect(clippy::print_stderr, reason = "tests print why they were skipped")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde::Serialize;
use underload_store::RunDir;

/// A scenario with load in both directions, a queue that reports gauges, and a link whose rate
/// varies.
const SCENARIO: &str = r#"
title = "The same in every world"
[path]
up = "steps:0s=20mbit,500ms=10mbit,repeat=1s"
up_queue = "pie"
down = "30mbit:overhead=14B,mark=1%,remark=dscp:0>45@0%..50%"
down_queue = "fq-codel"
rtt = "10ms"
[phases]
idle = "300ms"
ramp = "300ms"
load = "600ms"
drain = "300ms"
[[flow]]
name = "bulk"
kind = "tcp"
congestion_control = "reno"
[[flow]]
name = "fetch"
kind = "tcp"
direction = "down"
congestion_control = "reno"
[[flow]]
kind = "probe"
interval = "10ms"
"#;

/// Runs the scenario in `world`. Returns the names of all recorded columns and curves; `None` if
/// this machine cannot run the world.
fn recorded(world: &str) -> Option<BTreeSet<String>> {
    let folder = tempfile::tempdir().expect("a folder for the test");
    std::fs::write(folder.path().join("same.toml"), SCENARIO).expect("writing the scenario");
    let output = Command::new(env!("CARGO_BIN_EXE_underload"))
        .args(["run", "same.toml", "--out", "out", "--world", world])
        .current_dir(folder.path())
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr);
    let refused = ["refused", "cannot be created", "not permitted", "/dev/net/tun"];
    if !output.status.success() && refused.iter().any(|word| text.contains(word)) {
        eprintln!(
            "SKIPPED: the {world} world: this machine forbids namespaces or TUN devices: {text}"
        );
        return None;
    }
    // A live trial on a busy machine is invalid, but is recorded as well.
    Some(names(&folder.path().join("out")))
}

fn names(run: &Path) -> BTreeSet<String> {
    let data = RunDir::read(run).expect("the record can be read");
    let mut names = BTreeSet::new();
    for series in &data.series {
        names.insert(format!("curve {} in {:?}", series.name, series.unit));
    }
    let [trial] = data.record.trials.as_slice() else { panic!("one trial") };
    for link in &trial.bottlenecks {
        let of = format!("{} link in {}", link.direction, link.window.phase);
        names.extend(fields(link).into_iter().map(|field| format!("{of}: {field}")));
    }
    for flow in &trial.flows {
        names.extend(fields(flow).into_iter().map(|field| format!("flow {}: {field}", flow.name)));
    }
    for latency in &trial.latencies {
        let of = format!("{:?} of {} in {}", latency.measure, latency.probe, latency.window.phase);
        names.extend(fields(latency).into_iter().map(|field| format!("{of}: {field}")));
    }
    names
}

/// Returns the fields of a record that have values, except the field that only trials with a lost
/// probe have, because losses are random.
fn fields(record: &impl Serialize) -> Vec<String> {
    let value = serde_json::to_value(record).expect("a record is JSON");
    let serde_json::Value::Object(fields) = value else { panic!("a record has fields") };
    let with_values = fields.into_iter().filter(|(_, value)| !value.is_null());
    with_values.map(|(name, _)| name).filter(|name| name != "of_sent_ns").collect()
}

#[test]
fn every_world_records_the_same() {
    let simulated = recorded("sim").expect("nothing forbids a simulation");
    for name in [
        "curve up.pie.probability in \"\"",
        "curve down.fair.active_flows in \"\"",
        "up link in load: queuing_delay",
        "down link in load: remarked",
        "up link in drain: sent",
        "RoundTrip of probe in drain: distribution",
    ] {
        assert!(simulated.contains(name), "{name} is not in {simulated:#?}");
    }
    let Some(live) = recorded("live") else { return };
    let only = |one: &BTreeSet<String>, other| one.difference(other).cloned().collect::<Vec<_>>();
    assert_eq!(only(&simulated, &live), [""; 0], "only simulated runs record these");
    assert_eq!(only(&live, &simulated), [""; 0], "only live runs record these");
}
