//! The numbers of a run's variants, and why a world cannot run a variant.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

/// The number of metrics in [`Values`].
pub const METRICS: usize = 10;
/// The first of the metrics in [`Values`] that are means of a flow's series.
const MEANS: usize = 7;
/// The series of a flow's means, in the order of [`Values`], and its unit in the tables.
const SERIES: [(&str, f64); METRICS - MEANS] =
    [(".congestion_window", 1.0), (".rtt", 1e6), (".pacing_rate", 1e6)];

/// The result of a variant in one world, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Numbers(Box<Numbers>),
    /// Why the world cannot run it.
    Refused(String),
}

/// Round trip p50 and p99 in ms, goodput of all flows in Mbit/s, dropped packets, marked packets if
/// there are any, segments sent again in the whole trial, share of the goodput of the flows with
/// the first flow's congestion control if there are two of them in percent, mean window in
/// segments, mean smoothed round trip of the flow in ms, mean pacing rate in Mbit/s. All but the
/// segments sent again are of the load phase; `None` if the trial is invalid or measured none.
pub type Values = [Option<f64>; METRICS];

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Numbers {
    /// The values of each trial, by its index in the run.
    pub trials: BTreeMap<u64, Values>,
    /// Values of trials that count only for the spread.
    pub others: Vec<Values>,
    /// The kernel that ran the trials.
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
        let position = variants.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            let numbers = Numbers { kernel: kernel.to_owned(), ..Numbers::default() };
            variants.push((name.to_owned(), numbers));
            variants.len() - 1
        });
        let index = trial["index"].as_u64().context("a trial without an index")?;
        variants[position].1.trials.insert(index, values(trial));
    }
    Ok(variants)
}

impl Numbers {
    fn known(&self, metric: usize) -> Vec<f64> {
        self.trials.values().filter_map(|values| values[metric]).collect()
    }

    /// The mean of the trials; `None` if no trial has the metric.
    pub fn mean(&self, metric: usize) -> Option<f64> {
        let known = self.known(metric);
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }

    /// The standard deviation over the trials, of which several must have the metric.
    pub fn deviation(&self, metric: usize) -> Option<f64> {
        let (known, mean) = (self.known(metric), self.mean(metric)?);
        let squares: f64 = known.iter().map(|value| (value - mean).powi(2)).sum();
        (known.len() > 1).then(|| (squares / (known.len() - 1) as f64).sqrt())
    }

    /// Returns whether a value lies between the least and the most of all trials.
    pub fn is_in_spread(&self, metric: usize, value: f64) -> bool {
        let others = self.others.iter().filter_map(|values| values[metric]);
        let all: Vec<f64> = self.known(metric).into_iter().chain(others).collect();
        all.iter().any(|of| *of <= value) && all.iter().any(|of| *of >= value)
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
    let queues: Vec<&Value> = list(&trial["bottlenecks"]).iter().filter(in_load).collect();
    // A count of drops is an object with packets and bytes. Adding zero turns the negative zero of
    // an empty sum into zero.
    let packets = |key: &str| {
        let reasons = queues.iter().flat_map(|queue| queue[key].as_object().into_iter().flatten());
        let counts = reasons.filter_map(|(_, of)| of["packets"].as_f64().or(of.as_f64()));
        is_valid.then(|| counts.sum::<f64>() + 0.0)
    };
    let again = flows.iter().filter_map(|flow| flow["retransmits"].as_f64());
    [
        quantile("p50_ns"),
        quantile("p99_ns"),
        is_valid.then_some(goodput / 1e6),
        packets("drops"),
        packets("marks").filter(|marks| *marks > 0.0),
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
        let (mut trial, mut variant) = (0, "");
        for line in text.lines() {
            let columns: Vec<&str> = line.split(',').collect();
            let [index, name, series, _, time_ns, value] = columns.as_slice() else { continue };
            let is_in_load = time_ns.parse().is_ok_and(|time| (start_ns..end_ns).contains(&time));
            let kind = SERIES.iter().position(|(suffix, _)| series.ends_with(suffix));
            if let Some(kind) = kind.filter(|_| is_in_load) {
                (trial, variant) = (index.parse()?, *name);
                points[kind].push(value.parse::<f64>()?);
            }
        }
        let Some((_, numbers)) = variants.iter_mut().find(|(name, _)| name == variant) else {
            continue;
        };
        let Some(values) = numbers.trials.get_mut(&trial) else { continue };
        let means = values[MEANS..].iter_mut().zip(points);
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
                                           "overlimit": {"packets": 2}}, "marks": {"threshold": 3}},
            ],
        });
        let known = [41.5, 46.0, 20.0, 9.0, 3.0, 11.0, 75.0].map(Some);
        assert_eq!(values(&trial)[..MEANS], known);
        assert_eq!(values(&trial)[MEANS..], [None; METRICS - MEANS]);
        let invalid = json!({"variant": "codel", "validity": {"verdict": "invalid"}});
        assert_eq!(values(&invalid), [None; METRICS]);
    }

    #[test]
    fn trials_have_a_mean_a_deviation_and_a_spread() {
        let values = |p50, drops| {
            let mut values = [None; METRICS];
            (values[0], values[3]) = (Some(p50), drops);
            values
        };
        let trials = BTreeMap::from([(4, values(5.0, None)), (5, values(3.0, Some(1.0)))]);
        let others = vec![values(9.0, None)];
        let numbers = Numbers { trials, others, kernel: String::new() };
        assert_eq!([0, 1, 3].map(|metric| numbers.mean(metric)), [Some(4.0), None, Some(1.0)]);
        let deviations = [0, 1, 3].map(|metric| numbers.deviation(metric));
        assert_eq!(deviations, [Some(2.0_f64.sqrt()), None, None]);
        let in_spread = [2.9, 3.0, 9.0, 9.1].map(|value| numbers.is_in_spread(0, value));
        assert_eq!(in_spread, [false, true, true, false]);
        assert!(!numbers.is_in_spread(1, 0.0), "no trial has it");
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
