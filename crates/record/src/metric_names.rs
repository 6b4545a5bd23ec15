//! The names of metrics without a flow, with their units, so that an unknown name is rejected
//! before a run instead of being reported after it as not measured. [`crate::metric_of`] computes
//! them.

use underload_aqm::config::closest;

use crate::fold::ShareWithin;
use crate::schema::{Phase, Quantile};

/// Ends the name of a percentile of all probes sent, of which a lost one counts as longer than any answer.
pub(crate) const OF_SENT: &str = "_of_sent";
/// How steady a delay is: its 99th percentile minus its median (a delay variation of RFC 5481).
pub(crate) const VARIATION: &str = "variation";

const PHASES: [Phase; 2] = [Phase::Idle, Phase::Load];
/// Metrics of each direction, with their units.
const DIRECTION_METRICS: [(&str, &str); 7] = [
    ("goodput", "Mbit/s"),
    ("throughput", "Mbit/s"),
    ("utilisation", "%"),
    ("power", "Mbit/s/s"),
    ("drops", "%"),
    ("marks", "%"),
    ("fairness", "1"),
];

/// Returns every name without a parameter, with its unit as printed.
pub fn metric_names() -> Vec<(String, &'static str)> {
    let mut names = latency_names();
    for phase in PHASES {
        for queue in ["sojourn.up", "sojourn.down", "queuing.up", "queuing.down"] {
            names.extend(Quantile::ALL.map(|it| (format!("{phase}.{queue}.{}", it.name()), "ms")));
        }
    }
    for direction in ["up", "down"] {
        let of = |it: Quantile| (format!("load.inside.{direction}.{}", it.name()), "ms");
        names.extend(Quantile::ALL.map(of));
    }
    for (what, unit) in DIRECTION_METRICS {
        names.extend(["up", "down"].map(|direction| (format!("{what}.{direction}"), unit)));
    }
    names
}

/// Returns the metrics of a probe, with their units. `PROBE/` before the name selects the probe.
pub fn latency_names() -> Vec<(String, &'static str)> {
    let mut names = Vec::new();
    for phase in PHASES {
        for measure in ["rtt", "up", "down"] {
            let of = |it: Quantile| (format!("{phase}.{measure}.{}", it.name()), "ms");
            names.extend(Quantile::ALL.map(of));
            names.push((format!("{phase}.{measure}.{VARIATION}"), "ms"));
        }
        let of_sent =
            |(it, _): (Quantile, f64)| (format!("{phase}.rtt.{}{OF_SENT}", it.name()), "ms");
        names.extend(Quantile::WITH_SHARE.map(of_sent));
        names.push((format!("{phase}.loss"), "%"));
    }
    names
}

/// Returns the unit of a metric without a flow: one of [`metric_names`], or a share of trials;
/// `None` if the name is unknown.
pub fn metric_unit(name: &str) -> Option<&'static str> {
    let known = metric_names().into_iter().find(|(known, _)| known == name);
    known.map(|(_, unit)| unit).or_else(|| ShareWithin::parse(name).map(|_| "%"))
}

/// Returns the metric of `known` that `name` probably means: one that starts or ends with it,
/// `load.rtt` first, or else the nearest by its letters.
pub fn closest_metric<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Option<&'a str> {
    let is_part = |known: &&str| {
        let rest = known.strip_suffix(name);
        rest.is_some_and(|rest| rest.ends_with(['.', '/']))
            || known.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
    };
    let parts = || known.clone().filter(is_part).filter(|_| !name.is_empty());
    let of_load = parts().find(|known| known.starts_with("load.rtt."));
    of_load.or_else(|| parts().next()).or_else(|| closest(name, known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_of_a_metric_name_suggests_the_metric() {
        let names = metric_names();
        let known = names.iter().map(|(name, _)| name.as_str()).chain(["call/mos"]);
        for (name, meant) in [
            ("p99", Some("load.rtt.p99")),
            ("rtt.p50", Some("load.rtt.p50")),
            ("load.rtt", Some("load.rtt.p50")),
            ("goodput", Some("goodput.up")),
            ("mos", Some("call/mos")),
            ("lod.rtt.p99", Some("load.rtt.p99")),
            ("", None),
        ] {
            assert_eq!(closest_metric(name, known.clone()), meant, "{name}");
        }
    }

    #[test]
    fn names_have_units() {
        for (name, unit) in [
            ("load.rtt.p99.9", Some("ms")),
            ("idle.down.mean", Some("ms")),
            ("load.loss", Some("%")),
            ("load.queuing.up.max", Some("ms")),
            ("load.inside.down.p99", Some("ms")),
            ("idle.inside.down.p99", None),
            ("load.rtt.mean.within.15-30", Some("%")),
            ("load.rtt.variation", Some("ms")),
            ("goodput.up", Some("Mbit/s")),
            ("power.down", Some("Mbit/s/s")),
            ("fairness.up", Some("1")),
            ("load.rtt.p42", None),
            ("lod.rtt.p99", None),
            ("load.rtt", None),
            ("load.rtt.mean.within.15", None),
            ("goodput", None),
            ("", None),
        ] {
            assert_eq!(metric_unit(name), unit, "{name}");
        }
    }
}
