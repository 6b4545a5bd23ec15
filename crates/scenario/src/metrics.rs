//! The metrics that a scenario can have, so that an unknown name or a wrong unit is rejected before
//! the run instead of being reported as not measured after it.

use std::collections::{BTreeMap, BTreeSet};

use underload_aqm::config::closest;
use underload_record::{closest_metric, latency_names, metric_names, metric_unit};

use super::cohort::Cohort;
use super::flow::{Flow, FlowKind};
use super::variant::Variant;
use crate::flows;
use crate::keys::{Fault, alternatives, did_you_mean};

#[derive(Default)]
pub struct Metrics {
    /// Names of the entries. A command line, the short form, draws and sweeps may change the names
    /// and metrics of an entry's flows, but add no entry.
    entries: BTreeSet<String>,
    /// Names of the flows, and the common parts of numbered names.
    flows: BTreeSet<String>,
    /// Names of the open-loop and closed-loop probes.
    probes: BTreeSet<String>,
    /// `FLOW/METRIC` of applications, with units.
    own: BTreeMap<String, String>,
    /// Whether every trial has exactly the flows of the file.
    is_exact: bool,
    /// Whether any flow and study is accepted, because those of the scenario are unknown.
    accepts_flows: bool,
    /// The conditions that a study's lines are grouped by; `None` without a study.
    study: Option<Vec<String>>,
}

impl Metrics {
    /// Returns the metrics of these variants. `is_exact`: the flows of every trial are theirs.
    pub fn of(variants: &[Variant], cohort: Option<&Cohort>, is_exact: bool) -> Self {
        let study = cohort.and_then(Cohort::study).map(|study| study.by);
        let mut known = Self { is_exact, study, ..Self::default() };
        let mut before: &[Flow] = &[];
        for variant in variants {
            // Most variants differ only in their path.
            if variant.flows != before {
                variant.flows.iter().for_each(|flow| known.add(flow));
            }
            before = &variant.flows;
        }
        known
    }

    /// Accepts metrics of any flow and study, for a scenario whose variants are wrong.
    pub(crate) fn accepting_flows(self, accepts_flows: bool) -> Self {
        Self { accepts_flows, ..self }
    }

    fn add(&mut self, entry: &Flow) {
        let name = &entry.name;
        self.entries.insert(name.clone());
        if let FlowKind::Probe(probe) = &entry.kind {
            let open = flows::probes(name, &probe.classes).map(|(name, _)| name);
            let closed = probe.request_response(name).map(|(name, _)| name);
            self.probes.extend(open.chain(closed));
            return;
        }
        let properties = entry.kind.properties();
        let (direction, count) = properties.group();
        // `ratio` takes the sum of numbered flows by the common part of their names.
        self.flows.extend(flows::loads(name, direction, count.min(1)).map(|(_, name)| name));
        let metrics = properties.metrics();
        for (_, name) in flows::loads(name, direction, count) {
            for metric in &metrics {
                self.own.insert(format!("{name}/{}", metric.name), metric.unit.clone());
            }
            self.flows.insert(name);
        }
    }

    /// Returns the unit of a metric, `1` for a plain number, and `None` if it is unknown before the
    /// run; the fault of an unknown metric.
    pub fn check(&self, key: &str, metric: &str) -> Result<Option<String>, Fault> {
        // `NAME_variation` of a flow is computed from `NAME_p99` and `NAME_p50`.
        let stem = metric.strip_suffix("_variation").filter(|_| metric.contains('/'));
        let known = stem.map(|stem| format!("{stem}_p99"));
        let metric = known.as_deref().unwrap_or(metric);
        let found = match metric.split_once('/') {
            Some(_) if self.accepts_flows => Ok(None),
            None if self.accepts_flows && metric.starts_with("cut") => Ok(None),
            Some((flow, rest)) => self.of_flow(metric, flow, rest),
            None => self.plain(metric).map(Some),
        };
        let unit = found.map_err(|problem| Fault::new(key, problem))?;
        Ok(unit.map(|unit| if unit.is_empty() { "1".to_owned() } else { unit.to_owned() }))
    }

    /// Rejects what is neither a metric nor a family of quantiles such as `load.rtt` and
    /// `call/delay`.
    pub(crate) fn check_family(&self, metric: &str) -> Result<(), Fault> {
        let of_family = |joint: char| self.check("metric", &format!("{metric}{joint}p50"));
        match of_family('.').or_else(|_| of_family('_')) {
            Ok(_) => Ok(()),
            Err(_) => self.check("metric", metric).map(drop),
        }
    }

    fn plain(&self, metric: &str) -> Result<&str, String> {
        if let (Some(rest), Some(by)) = (metric.strip_prefix("cut"), &self.study) {
            let draw = rest.strip_prefix('.').and_then(|rest| rest.split_once('='));
            return match draw {
                None if rest.is_empty() => Ok("%"),
                Some((draw, _)) if by.iter().any(|known| known == draw) => Ok("%"),
                _ => {
                    let known = alternatives(by.iter().map(String::as_str));
                    Err(format!("`{metric}`: expected `cut`, or `cut.DRAW=VALUE` of {known}"))
                }
            };
        }
        metric_unit(metric).ok_or_else(|| {
            let names = metric_names();
            let own = self.own.keys().map(String::as_str);
            let known = names.iter().map(|(name, _)| name.as_str()).chain(own);
            format!(
                "`{metric}` is not a metric; expected one such as load.rtt.p99, \
                 load.sojourn.up.p99, goodput.up or FLOW/METRIC{}",
                closest_metric(metric, known)
                    .map_or(String::new(), |meant| format!("; did you mean `{meant}`?"))
            )
        })
    }

    fn of_flow(&self, metric: &str, flow: &str, rest: &str) -> Result<Option<&str>, String> {
        if !self.is_exact {
            let is_of = |entry: &String| {
                let rest = flow.strip_prefix(entry.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            };
            return if self.entries.iter().any(is_of) {
                Ok(self.own.get(metric).map(String::as_str))
            } else {
                Err(self.unknown_flow(metric, flow))
            };
        }
        if let Some(other) = rest.strip_prefix("ratio.") {
            return match [flow, other].into_iter().find(|name| !self.flows.contains(*name)) {
                None => Ok(Some("1")),
                Some(unknown) => Err(self.unknown_flow(metric, unknown)),
            };
        }
        if let Some(unit) = self.own.get(metric) {
            return Ok(Some(unit));
        }
        let latencies = latency_names();
        let (is_probe, is_load) = (self.probes.contains(flow), self.flows.contains(flow));
        if !is_probe && !is_load {
            return Err(self.unknown_flow(metric, flow));
        }
        let known: Vec<&str> = if is_probe {
            if let Some((_, unit)) = latencies.iter().find(|(name, _)| name == rest) {
                return Ok(Some(unit));
            }
            latencies.iter().map(|(name, _)| name.as_str()).collect()
        } else {
            let own = self.own.keys().filter_map(|own| own.strip_prefix(flow)?.strip_prefix('/'));
            own.chain(["ratio.OTHER"]).collect()
        };
        let (near, known) = (closest(rest, known.clone()), alternatives(known));
        let meant = near.map(|near| format!("; did you mean `{flow}/{near}`?")).unwrap_or_default();
        Err(format!("`{metric}`: `{flow}` has no metric `{rest}`; expected {known}{meant}"))
    }

    fn unknown_flow(&self, metric: &str, flow: &str) -> String {
        let known = || self.probes.union(&self.flows).map(String::as_str);
        let (meant, known) = (did_you_mean(flow, known()), alternatives(known()));
        format!("`{metric}`: no flow is named `{flow}`; expected {known}{meant}")
    }
}

#[cfg(test)]
mod tests {
    use underload_record::metrics_of_trial;
    use underload_sim::trial::{TrialLabel, run};

    use super::*;
    use crate::simulation::configure;
    use crate::{Options, Scenario, builtin};

    /// A scenario with every kind of flow that is simulated.
    const SCENARIO: &str = r#"
        [path]
        up = "20mbit"
        up_queue = "fifo:limit=400p"
        down = "20mbit"
        down_queue = "fifo:limit=400p"
        rtt = "20ms"
        [phases]
        idle = "1s"
        ramp = "1s"
        load = "2s"
        drain = "1s"
        [[flow]]
        name = "ping"
        kind = "probe"
        interval = "10ms"
        closed_loop = true
        classes = [{ dscp = 0 }, { dscp = 45, ecn = "ect1" }]
        [[flow]]
        name = "bulk"
        kind = "tcp"
        direction = "both"
        count = 2
        delivery = true
        congestion_control = "cubic"
        [[flow]]
        kind = "udp"
        rate = "100kbit"
        direction = "up"
        [[flow]]
        name = "call"
        kind = "voip"
        [[flow]]
        kind = "web"
        [[flow]]
        kind = "video"
        [[flow]]
        kind = "interactive-video"
        [[flow]]
        name = "sent"
        kind = "interactive-video"
        direction = "up"
        [[flow]]
        kind = "game"
        [[flow]]
        kind = "cloud-game"
        [[flow]]
        name = "l4s-game"
        kind = "cloud-game"
        marking = "l4s"
    "#;

    fn parse(rest: &str) -> Result<Scenario, String> {
        Scenario::parse(&format!("{SCENARIO}{rest}"), "test").map_err(|error| error.to_string())
    }

    #[test]
    fn the_known_metrics_and_units_are_those_that_trials_record() {
        let scenario = parse("").expect("a scenario");
        let config = configure(&scenario.variants[0], 1, TrialLabel::default()).expect("simulated");
        let record = run(config).expect("a trial").record;
        let metrics = Metrics::of(&scenario.variants, None, true);
        let recorded = record.flows.iter().flat_map(|flow| {
            let name = |name: &str| format!("{}/{name}", flow.name);
            flow.metrics.iter().map(move |metric| (name(&metric.name), metric.unit.clone()))
        });
        assert_eq!(metrics.own, recorded.collect());
        assert!(metrics.own.len() > 60, "{:?}", metrics.own);
        // Metrics that only a link with a varying rate has, and percentiles that need more probes.
        let needs_more = |name: &str| {
            name.contains("queuing") || name.starts_with("power") || name.ends_with("_of_sent")
        };
        let plain = metric_names().into_iter().map(|(name, _)| name);
        let plain: Vec<String> = plain.filter(|name| !needs_more(name)).collect();
        let values = metrics_of_trial(&record, &plain);
        for (name, value) in plain.iter().zip(values) {
            assert!(value.is_some(), "{name} is not measured");
        }
        for probe in ["ping", "ping-dscp-45-ect1", "ping-request-response"] {
            // A closed loop behind a queue sends too few probes for a high percentile.
            let name = format!("{probe}/load.rtt.p50");
            assert_eq!(metrics.check("", &name), Ok(Some("ms".to_owned())));
            assert!(metrics_of_trial(&record, &[name])[0].is_some(), "{probe}");
        }
        for ratio in ["bulk-up/ratio.bulk-down-1", "udp/ratio.bulk-up-0", "web/ratio.call"] {
            assert_eq!(metrics.check("", ratio), Ok(Some("1".to_owned())), "{ratio}");
        }
        assert_eq!(metrics.check("", "video/qoe"), Ok(Some("1".to_owned())));
        let steady = "game/round_trip_variation";
        assert_eq!(metrics.check("", steady), Ok(Some("ms".to_owned())));
        let names = [steady, "game/round_trip_p99", "game/round_trip_p50"].map(str::to_owned);
        let values = metrics_of_trial(&record, &names);
        assert_eq!(values[0], values[1].zip(values[2]).map(|(high, median)| high - median));
    }

    /// Returns two published numbers, the second one of `metric`.
    fn published(metric: &str, unit: &str, rest: &str) -> String {
        let rest = if rest.is_empty() { "variant = \"default\"\nhigh = 1" } else { rest };
        let text = "[[published]]\nmetric = \"load.rtt.p50\"\nvariant = \"default\"\nhigh = 1\n\
                    unit = \"ms\"\nsource = \"s\"\n[[published]]";
        format!("{text}\nmetric = \"{metric}\"\nunit = \"{unit}\"\n{rest}\nsource = \"s\"")
    }

    #[test]
    fn an_unknown_metric_is_refused_with_its_place() {
        let headline = |metric: &str| {
            format!("[headline]\nmetric = \"{metric}\"\nsays = \"it\"\nvariant = \"default\"")
        };
        let plot = |kind: &str, metric: &str| {
            let head = format!("[[plot]]\nkind = \"{kind}\"\ntitle = \"t\"\nvariants = \"{{x}}\"");
            format!("{head}\nmetric = \"{metric}\"\nsays = \"it\"")
        };
        for (text, problem) in [
            (published("load.rtt.p99.9", "ms", ""), ""),
            (published("goodput.up", "Mbit/s", ""), ""),
            (published("video/qoe", "1", ""), ""),
            (published("ping/load.loss", "%", ""), ""),
            (published("call/mos", "MOS", ""), ""),
            (headline("bulk-up/ratio.bulk-down"), ""),
            (plot("cdf", "load.rtt"), ""),
            (plot("cdf", "load.rtt.mean"), ""),
            (plot("cdf", "udp/delay"), ""),
            (plot("cdf", "load.queuing.down"), ""),
            (
                published("load.rtt.p50", "us", ""),
                "`us` is not the unit of `load.rtt.p50`; expected",
            ),
            (
                published("goodput.up", "kbit/s", ""),
                "published[1].unit: `kbit/s` is not the unit of",
            ),
            (
                published("lod.rtt.p99", "ms", ""),
                "published[1].metric: `lod.rtt.p99` is not a metric; expected one such as \
                 load.rtt.p99, load.sojourn.up.p99, goodput.up or FLOW/METRIC; did you mean \
                 `load.rtt.p99`?",
            ),
            (published("load.rtt.p42", "ms", ""), "; did you mean `load.rtt.p"),
            (published("cut", "%", ""), "`cut` is not a metric"),
            (
                published("call/moss", "MOS", ""),
                "published[1].metric: `call/moss`: `call` has no metric `moss`; ",
            ),
            (published("call/moss", "MOS", ""), "; did you mean `call/mos`?"),
            (published("ping/load.rtt.p100", "ms", ""), "; did you mean `ping/load.rtt.p"),
            (
                headline("bulkk-up-0/load.rtt.p99"),
                ": no flow is named `bulkk-up-0`; expected bulk-down, ",
            ),
            (headline("bulkk-up-0/load.rtt.p99"), "; did you mean `bulk-up-0`?"),
            (headline("bulk-up/ratio.bulk"), "no flow is named `bulk`"),
            (plot("bars", "goodputt.up"), "plot[0].metric: `goodputt.up` is not a metric"),
            (plot("bars", "load.rtt"), "plot[0].metric: `load.rtt` is not a metric"),
            (plot("cdf", "load.rt"), "plot[0].metric: `load.rt` is not a metric"),
        ] {
            let told = parse(&text).err().unwrap_or_default();
            assert!(told.contains(problem) && told.is_empty() == problem.is_empty(), "{told}");
        }
        let variants = "[[variant]]\nname = \"default\"\npath.rtt = \"30ms\"\n\
                    [[variant]]\nname = \"b\"\npath.up = \"1mbit\"\n";
        let ratio = published("load.rtt.p99", "ms", "pairs = [[\"b\", \"default\"]]\nlow = 2");
        let told = parse(&format!("{variants}{ratio}")).expect_err("a ratio is in no unit");
        assert!(told.contains("unit: `ms` is not the unit of a ratio; expected `1`"), "{told}");
    }

    #[test]
    fn a_command_line_may_rename_flows_that_the_file_refers_to() {
        let published = "[[published]]\nmetric = \"udp/delay_p99\"\nunit = \"ms\"\nhigh = 1\n\
                         variant = \"default\"\nsource = \"s\"\n";
        let set = vec!["flow.udp.count=2".to_owned()];
        let options = Options { set, ..Options::default() };
        let with = |metric: &str| {
            let text = format!("{SCENARIO}{published}").replace("udp/delay_p99", metric);
            let load = &mut builtin::load_file;
            let parsed = Scenario::parse_with(&text, "test", &options, load);
            parsed.map_err(|error| error.to_string())
        };
        assert!(with("udp/delay_p99").is_ok());
        let told = with("upd/delay_p99").expect_err("no such entry");
        assert!(told.contains("no flow is named `upd`") && told.contains("`udp`?"), "{told}");
    }
}
