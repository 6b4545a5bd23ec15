//! The numbers of a run's variants, and why a world cannot run a variant.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

/// The number of metrics in [`Numbers::values`].
pub const METRICS: usize = 6;
// Places of two metrics in `Numbers::values`.
const SENT_AGAIN: usize = 4;
const WINDOW: usize = 5;

/// The result of a variant in one world, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Numbers(Numbers),
    /// Why the world cannot run it.
    Refused(String),
}

/// Results of the load phase.
#[derive(Debug, Clone, PartialEq)]
pub struct Numbers {
    /// Round trip p50 and p99 in ms, goodput of all flows in Mbit/s, dropped packets, segments sent
    /// again in the whole trial, mean window in segments; `None` if the trial is invalid or
    /// measured none.
    pub values: [Option<f64>; METRICS],
    /// The kernel that ran the trial.
    pub kernel: String,
}

/// Reads the variants of a run directory with their numbers.
pub fn read(run: &Path) -> anyhow::Result<Vec<(String, Numbers)>> {
    let file = run.join("run.json");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let record: Value = serde_json::from_str(&text)?;
    let kernel = record["host"]["kernel"].as_str().unwrap_or_default();
    let summaries = record["summaries"].as_array().context("a record without summaries")?;
    let numbers = |summary: &Value| {
        let name = summary["arm"].as_str().context("a summary without a name")?.to_owned();
        let trials = record["trials"].as_array().map_or(&[][..], Vec::as_slice);
        let of_variant = trials.iter().filter(|trial| trial["arm"] == summary["arm"]);
        let mut values = values(summary);
        let flows = of_variant.flat_map(|trial| trial["flows"].as_array().into_iter().flatten());
        let again: Vec<f64> = flows.filter_map(|flow| flow["retransmits"].as_f64()).collect();
        values[SENT_AGAIN] = (!again.is_empty()).then(|| again.iter().sum());
        Ok((name, Numbers { values, kernel: kernel.to_owned() }))
    };
    summaries.iter().map(numbers).collect()
}

fn values(summary: &Value) -> [Option<f64>; METRICS] {
    let list = |key: &str| summary[key].as_array().map_or(&[][..], Vec::as_slice);
    let latency = list("latencies").iter().find(|latency| {
        latency["phase"] == "load"
            && latency["measure"] == "round-trip"
            && latency["closed_loop"] == false
    });
    let quantile = |key: &str| Some(latency?["pooled"][key].as_f64()? / 1e6);
    let goodput = list("throughputs").iter();
    let goodput = goodput.filter_map(|rate| rate["goodput_bit_per_s"]["mean"].as_f64());
    let is_valid = summary["trials_valid"].as_u64().is_some_and(|trials| trials > 0);
    let drops = list("bottlenecks").iter().filter(|queue| queue["phase"] == "load");
    let drops = drops.flat_map(|queue| queue["drops"].as_object().into_iter().flatten());
    let drops = drops.filter_map(|(_, dropped)| dropped["packets"].as_f64());
    [
        quantile("p50_ns"),
        quantile("p99_ns"),
        is_valid.then(|| goodput.sum::<f64>() / 1e6),
        // The sum of no numbers is a negative zero.
        is_valid.then(|| drops.sum::<f64>() + 0.0),
        None,
        None,
    ]
}

/// Adds the mean windows of the load phase, from the tables that `underload export` wrote.
pub fn add_windows(
    run: &Path,
    tables: &Path,
    variants: &mut [(String, Numbers)],
) -> anyhow::Result<()> {
    let record: Value = serde_json::from_slice(&fs::read(run.join("run.json"))?)?;
    let phases = record["trials"][0]["phases"].as_array().context("a trial without phases")?;
    let load = phases.iter().find(|window| window["phase"] == "load").context("no load phase")?;
    let [start_ns, end_ns] = ["start_ns", "end_ns"].map(|key| load[key].as_u64().unwrap_or(0));
    for file in fs::read_dir(tables)? {
        let file = file?.path();
        if !file.to_string_lossy().ends_with("-series.csv") {
            continue;
        }
        let text = fs::read_to_string(&file)?;
        let mut windows = Vec::new();
        let mut variant = "";
        for line in text.lines() {
            let columns: Vec<&str> = line.split(',').collect();
            let [_, arm, series, _, time_ns, value] = columns.as_slice() else { continue };
            let is_in_load = time_ns.parse().is_ok_and(|time| (start_ns..end_ns).contains(&time));
            if series.ends_with(".congestion_window") && is_in_load {
                variant = arm;
                windows.push(value.parse::<f64>()?);
            }
        }
        let found = variants.iter_mut().find(|(name, _)| name == variant);
        if let Some((_, numbers)) = found.filter(|_| !windows.is_empty()) {
            let mean = windows.iter().sum::<f64>() / windows.len() as f64;
            numbers.values[WINDOW] = Some(mean);
        }
    }
    Ok(())
}

/// Returns the reason from the error of a world that refuses a variant; `None` for other errors.
pub fn refusal(scenario: &str, variant: &str, text: &str) -> Option<String> {
    let error = text.lines().find_map(|line| line.strip_prefix("error: "))?;
    let (_, reason) = error.split_once(&format!("{scenario}: "))?;
    let reason = reason.strip_prefix(&format!("arm {variant}: ")).unwrap_or(reason);
    let short = reason.split([';', '|']).next()?.split(": available are").next()?;
    Some(short.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_load_phase() {
        let summary = serde_json::json!({
            "arm": "codel", "trials_valid": 1,
            "latencies": [
                {"phase": "idle", "measure": "round-trip", "closed_loop": false,
                 "pooled": {"p50_ns": 1, "p99_ns": 2}},
                {"phase": "load", "measure": "round-trip", "closed_loop": true,
                 "pooled": {"p50_ns": 3, "p99_ns": 4}},
                {"phase": "load", "measure": "round-trip", "closed_loop": false,
                 "pooled": {"p50_ns": 41_500_000, "p99_ns": 46_000_000}},
            ],
            "throughputs": [
                {"goodput_bit_per_s": {"mean": 19e6}}, {"goodput_bit_per_s": null},
            ],
            "bottlenecks": [
                {"phase": "ramp", "drops": {"control-law": {"packets": 90}}},
                {"phase": "load", "drops": {"control-law": {"packets": 7},
                                            "overlimit": {"packets": 2}}},
            ],
        });
        assert_eq!(values(&summary), [Some(41.5), Some(46.0), Some(19.0), Some(9.0), None, None]);
        let invalid = serde_json::json!({"arm": "codel", "trials_valid": 0});
        assert_eq!(values(&invalid), [None; METRICS]);
    }

    #[test]
    fn a_refusal_has_a_short_reason_and_another_error_none() {
        let refused = |text| refusal("bode/step", "bode/bbr", text);
        let text = "error: bode/step: arm bode/bbr: path.down_queue: there is no Linux queue \
                    `bode`; known: fifo\n";
        let reason = "path.down_queue: there is no Linux queue `bode`";
        assert_eq!(refused(text).as_deref(), Some(reason));
        let of_guest = "error: arm bode/bbr, repeat 1: bode/step: arm bode/bbr: flow.x: this \
                        kernel does not offer `prague`: available are reno bbr";
        let reason = "flow.x: this kernel does not offer `prague`";
        assert_eq!(refused(of_guest).as_deref(), Some(reason));
        assert_eq!(refused("error: no kernel at /x"), None);
        assert_eq!(refused("killed"), None);
    }
}
