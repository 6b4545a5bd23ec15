//! Snapshots of the first sentences of built-in scenarios. Whenever one changes, a person checks
//! that the sentence is true and compares like with like. The snapshots also contain the results of
//! every variant, on which the sentences are based, so that a drift is seen in review even if no
//! published number is missed. `INSTA_UPDATE=always` writes both anew.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use underload_report::{load, summary_lines};

fn underload(arguments: &[&str], folder: &Path) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underload"));
    command.args(arguments).current_dir(folder).env("XDG_CACHE_HOME", folder);
    command.output().expect("the program starts")
}

/// Scenarios with flows of real browsers.
const LIVE_ONLY: [&str; 5] =
    ["call/browser", "call/cellular", "film/browser", "page/browser", "page/guideline"];

#[test]
fn every_built_in_scenario_prints_true_sentences() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let listed = underload(&["scenarios", "--json"], folder.path());
    let rows: Value = serde_json::from_slice(&listed.stdout).expect("one document");
    let (mut text, mut numbers) = (String::new(), String::new());
    for (position, row) in rows.as_array().expect("a list").iter().enumerate() {
        let name = row["name"].as_str().expect("a name");
        if !row["worlds"].as_array().expect("a list").contains(&"sim".into()) {
            assert!(LIVE_ONLY.contains(&name), "{name}");
            continue;
        }
        let out = format!("run-{position}");
        let arguments = ["run", name, "--world", "sim", "--short", "--no-cache", "--out", &out];
        let output = underload(&arguments, folder.path());
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let record = std::fs::read(folder.path().join(&out).join("run.json")).expect("a record");
        let record: Value = serde_json::from_slice(&record).expect("JSON");
        let _ = writeln!(numbers, "{name}\n{}", results(&record["summaries"]));
        let runs = load(&[folder.path().join(&out)]).expect("a run directory");
        let _ = writeln!(text, "{name}");
        for line in summary_lines(&runs) {
            let _ = writeln!(text, "    {line}");
        }
    }
    insta::assert_snapshot!(text);
    insta::assert_snapshot!("results_of_every_variant", numbers);
}

/// Returns a line for each latency under load, rate, queue and application metric, by variant, and
/// a checksum of all numbers of the summaries.
fn results(summaries: &Value) -> String {
    let mut text = String::new();
    let rows = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for mut variant in rows(summaries) {
        // A conclusion, which the sentences have.
        for metric in variant["metrics"].as_array_mut().into_iter().flatten() {
            metric.as_object_mut().map(|metric| metric.remove("suits"));
        }
        let mut sum = flate2::Crc::new();
        sum.update(variant.to_string().as_bytes());
        let _ = writeln!(text, "  {} [{:08x}]", word(&variant["variant"]), sum.sum());
        for latency in rows(&variant["latencies"]).iter().filter(|row| is_under_load(row)) {
            let _ = writeln!(text, "    {}", latency_line(latency));
        }
        for rate in rows(&variant["throughputs"]) {
            let _ = writeln!(text, "    {}", rate_line(&rate));
        }
        for queue in rows(&variant["bottlenecks"]) {
            let _ = writeln!(text, "    {}", queue_line(&queue));
        }
        for metric in rows(&variant["metrics"]) {
            let _ = writeln!(text, "    {}", metric_line(&metric));
        }
    }
    text
}

fn is_under_load(latency: &Value) -> bool {
    latency["phase"] == "load" && latency["measure"] == "round-trip"
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Nanoseconds of a quantile, in milliseconds.
fn ms(distribution: &Value, quantile: &str) -> String {
    distribution[quantile].as_f64().map_or("-".to_owned(), |ns| format!("{:.3}", ns / 1e6))
}

fn latency_line(row: &Value) -> String {
    let pooled = &row["pooled"];
    let quantiles = ["p50_ns", "p99_ns", "max_ns"].map(|quantile| ms(pooled, quantile));
    let (probe, sent, lost) = (word(&row["probe"]), &row["sent"], &row["lost"]);
    format!("{probe}: p50, p99, max {} ms; sent {sent}, lost {lost}", quantiles.join(" "))
}

fn rate_line(row: &Value) -> String {
    let mbit = |key: &str| {
        row[key]["mean"].as_f64().map_or("-".to_owned(), |rate| format!("{:.4}", rate / 1e6))
    };
    let (direction, goodput) = (word(&row["direction"]), mbit("goodput_bit_per_s"));
    format!("{direction}: goodput, link {goodput} {} Mbit/s", mbit("link_bit_per_s"))
}

fn queue_line(row: &Value) -> String {
    let (hop, direction) = (word(&row["hop"]), word(&row["direction"]));
    let (phase, offered, sent) = (word(&row["phase"]), &row["offered"], &row["sent"]);
    let (offered, sent) = (&offered["packets"], &sent["packets"]);
    let (drops, marks) = (&row["drops"], &row["marks"]);
    format!(
        "{hop} {direction} {phase}: offered {offered}, sent {sent}, drops {drops}, marks {marks}"
    )
}

fn metric_line(row: &Value) -> String {
    let value = row["value"]["mean"].as_f64().unwrap_or_default();
    let (flow, name, unit) = (word(&row["flow"]), word(&row["name"]), word(&row["unit"]));
    format!("{flow}: {name} {value:.5} {unit}")
}
