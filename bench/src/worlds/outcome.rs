//! The numbers of a run's variants, and why a world cannot run a variant.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

/// The number of metrics in [`Numbers::values`].
pub const METRICS: usize = 9;
/// The first of the metrics in `Numbers::values` that are means of a flow's series.
const MEANS: usize = 6;
/// The series of a flow's means, in the order of `Numbers::values`, and its unit in the tables.
const SERIES: [(&str, f64); METRICS - MEANS] =
    [(".congestion_window", 1.0), (".rtt", 1e6), (".pacing_rate", 1e6)];

/// The result of a variant in one world, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Numbers(Box<Numbers>),
    /// Why the world cannot run it.
    Refused(String),
}

/// Round trip p50 and p99 in ms, goodput of all flows in Mbit/s, dropped packets, segments sent
/// again in the whole trial, share of the goodput of the flows with the first flow's congestion
/// control if there are two of them in percent, mean window in segments, mean smoothed round trip
/// of the flow in ms, mean pacing rate in Mbit/s. All but the segments sent again are of the load
/// phase; `None` if the trial is invalid or measured none.
pub type Values = [Option<f64>; METRICS];

#[derive(Debug, Clone, PartialEq)]
pub struct Numbers {
    /// Values of the first trial.
    pub values: Values,
    /// Smallest and largest value of all trials, if there are several.
    pub spread: [Option<(f64, f64)>; METRICS],
    /// The kernel that ran the trial.
    pub kernel: String,
}

/// Reads the variants of a run directory with their numbers.
pub fn read(run: &Path) -> anyhow::Result<Vec<(String, Numbers)>> {
    let file = run.join("run.json");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let record: Value = serde_json::from_str(&text)?;
    let kernel = record["host"]["kernel"].as_str().unwrap_or_default();
    let mut variants: Vec<(String, Numbers)> = Vec::new();
    for trial in list(&record["trials"]) {
        let name = trial["variant"].as_str().context("a trial without a name")?;
        let values = values(trial);
        match variants.iter_mut().find(|(known, _)| known == name) {
            Some((_, numbers)) => numbers.widen(&values),
            None => {
                let spread = [None; METRICS];
                let numbers = Numbers { values, spread, kernel: kernel.to_owned() };
                variants.push((name.to_owned(), numbers));
            }
        }
    }
    Ok(variants)
}

impl Numbers {
    /// Widens the spread to the values of another trial.
    pub fn widen(&mut self, values: &Values) {
        for ((spread, value), first) in self.spread.iter_mut().zip(values).zip(self.values) {
            let (Some(value), Some(first)) = (*value, first) else { continue };
            let (least, most) = spread.unwrap_or((first, first));
            *spread = Some((least.min(value), most.max(value)));
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn values(trial: &Value) -> Values {
    let is_valid = trial["validity"]["verdict"] == "valid";
    let in_load = |of_phase: &&Value| of_phase["window"]["phase"] == "load";
    let latency = list(&trial["latencies"])
        .iter()
        .filter(in_load)
        .find(|latency| latency["measure"] == "round-trip" && latency["closed_loop"] == false);
    let quantile = |key: &str| Some(latency?["distribution"][key].as_f64()? / 1e6);
    let flows = list(&trial["flows"]);
    let mut rates: BTreeMap<&str, f64> = BTreeMap::new();
    for flow in flows {
        let directions = ["goodput_up_bit_per_s", "goodput_down_bit_per_s"];
        for rate in directions.iter().filter_map(|key| flow[*key].as_f64()) {
            *rates.entry(flow["congestion_control"].as_str().unwrap_or_default()).or_default() +=
                rate;
        }
    }
    let goodput: f64 = rates.values().sum();
    let mut controls = flows.iter().filter_map(|flow| flow["congestion_control"].as_str());
    let first = controls.find_map(|control| rates.get(control));
    let queues = list(&trial["bottlenecks"]).iter().filter(in_load);
    let drops = queues.flat_map(|queue| queue["drops"].as_object().into_iter().flatten());
    let drops = drops.filter_map(|(_, dropped)| dropped["packets"].as_f64());
    let again = flows.iter().filter_map(|flow| flow["retransmits"].as_f64());
    [
        quantile("p50_ns"),
        quantile("p99_ns"),
        is_valid.then_some(goodput / 1e6),
        // The sum of no numbers is a negative zero.
        is_valid.then(|| drops.sum::<f64>() + 0.0),
        again.reduce(|sum, flow| sum + flow),
        first.filter(|_| is_valid && rates.len() == 2).map(|rate| 100.0 * rate / goodput),
        None,
        None,
        None,
    ]
}

/// Adds the means of the flow's series in the load phase, from the tables that `underload export`
/// wrote.
pub fn add_means(
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
        let mut points = [const { Vec::new() }; SERIES.len()];
        let mut variant = "";
        for line in text.lines() {
            let columns: Vec<&str> = line.split(',').collect();
            let [_, name, series, _, time_ns, value] = columns.as_slice() else { continue };
            let is_in_load = time_ns.parse().is_ok_and(|time| (start_ns..end_ns).contains(&time));
            let kind = SERIES.iter().position(|(suffix, _)| series.ends_with(suffix));
            if let Some(kind) = kind.filter(|_| is_in_load) {
                variant = name;
                points[kind].push(value.parse::<f64>()?);
            }
        }
        let Some((_, numbers)) = variants.iter_mut().find(|(name, _)| name == variant) else {
            continue;
        };
        let means = numbers.values[MEANS..].iter_mut().zip(points);
        for ((mean, points), (_, unit)) in means.zip(SERIES).filter(|((_, of), _)| !of.is_empty()) {
            *mean = Some(points.iter().sum::<f64>() / points.len() as f64 / unit);
        }
    }
    Ok(())
}

/// Returns the reason from the error of a world that refuses a variant; `None` for other errors.
pub fn refusal(scenario: &str, variant: &str, text: &str) -> Option<String> {
    let error = text.lines().find_map(|line| line.strip_prefix("error: "))?;
    let (_, reason) = error.split_once(&format!("{scenario}: "))?;
    let reason = reason.strip_prefix(&format!("variant {variant}: ")).unwrap_or(reason);
    let short = reason.split([';', '|']).next()?.split(": available are").next()?;
    Some(short.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_those_of_the_load_phase() {
        let [idle, ramp, load] = ["idle", "ramp", "load"].map(|phase| json!({"phase": phase}));
        let latency = |window, closed_loop, p50_ns, p99_ns| {
            let distribution = json!({"p50_ns": p50_ns, "p99_ns": p99_ns});
            json!({"measure": "round-trip", "closed_loop": closed_loop, "window": window,
                   "distribution": distribution})
        };
        let trial = json!({
            "variant": "codel", "validity": {"verdict": "valid"},
            "latencies": [
                latency(&idle, false, 1, 2), latency(&load, true, 3, 4),
                latency(&load, false, 41_500_000, 46_000_000),
            ],
            "flows": [
                {"congestion_control": "dctcp", "goodput_up_bit_per_s": 9_000_000,
                 "goodput_down_bit_per_s": null, "retransmits": 5},
                {"congestion_control": "dctcp", "goodput_up_bit_per_s": 6_000_000,
                 "retransmits": 2},
                {"congestion_control": "bbr", "goodput_down_bit_per_s": 5_000_000,
                 "retransmits": 4},
                {"goodput_up_bit_per_s": null, "retransmits": null},
            ],
            "bottlenecks": [
                {"window": ramp, "drops": {"control-law": {"packets": 90}}},
                {"window": load, "drops": {"control-law": {"packets": 7},
                                           "overlimit": {"packets": 2}}},
            ],
        });
        let known = [41.5, 46.0, 20.0, 9.0, 11.0, 75.0].map(Some);
        assert_eq!(values(&trial)[..MEANS], known);
        assert_eq!(values(&trial)[MEANS..], [None; METRICS - MEANS]);
        let invalid = json!({"variant": "codel", "validity": {"verdict": "invalid"}});
        assert_eq!(values(&invalid), [None; METRICS]);
    }

    #[test]
    fn the_spread_is_that_of_all_trials() {
        let values = |p50, drops| {
            let mut values = [None; METRICS];
            (values[0], values[3]) = (Some(p50), drops);
            values
        };
        let values_of_first = values(5.0, None);
        let spread = [None; METRICS];
        let mut numbers = Numbers { values: values_of_first, spread, kernel: String::new() };
        numbers.widen(&values(3.0, Some(1.0)));
        numbers.widen(&values(4.0, Some(2.0)));
        assert_eq!(numbers.values, values_of_first);
        assert_eq!(numbers.spread[0], Some((3.0, 5.0)));
        assert_eq!(numbers.spread[3], None, "the first trial has no number");
    }

    #[test]
    fn a_refusal_has_a_short_reason_and_other_errors_have_none() {
        let refused = |text| refusal("bode/step", "bode/bbr", text);
        let text = "error: bode/step: variant bode/bbr: path.down_queue: there is no Linux queue \
                    `bode`; known: fifo\n";
        let reason = "path.down_queue: there is no Linux queue `bode`";
        assert_eq!(refused(text).as_deref(), Some(reason));
        let of_guest = "error: variant bode/bbr, repeat 1: bode/step: variant bode/bbr: flow.x: \
                        this kernel does not offer `prague`: available are reno bbr";
        let reason = "flow.x: this kernel does not offer `prague`";
        assert_eq!(refused(of_guest).as_deref(), Some(reason));
        assert_eq!(refused("error: no kernel at /x"), None);
        assert_eq!(refused("killed"), None);
    }
}
