//! Published numbers, and whether the run met them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A number that somebody published, as a band, held against an arm of this run.
///
/// `metric` names what is compared:
///
/// | name | meaning | usual unit |
/// |---|---|---|
/// | `PHASE.rtt.STAT` | round trip of the first open-loop probe, pooled | `ms` |
/// | `PHASE.rtt.STAT.within.LOW-HIGH` | trials whose own STAT lies from LOW up to HIGH ms | `%` |
/// | `PHASE.up.STAT`, `PHASE.down.STAT` | its one-way delay | `ms` |
/// | `PHASE.sojourn.up.STAT`, `... .down.STAT` | sojourn in that queue, mean over repeats | `ms` |
/// | `PHASE.queuing.up.STAT`, `... .down.STAT` | the same with its own transmission | `ms` |
/// | `PHASE.loss` | probes lost | `%` |
/// | `goodput.up`, `goodput.down` | payload of all flows | `Mbit/s` |
/// | `throughput.up`, `throughput.down` | sent by the bottleneck link | `Mbit/s` |
/// | `utilisation.up`, `utilisation.down` | of the link | `%` |
/// | `power.up`, `power.down` | `throughput` over the p99 of `load.queuing` | `mbit/s/s` |
/// | `drops.up`, `marks.up`, ... | of the packets offered, over the widest window recorded | `%` |
/// | `fairness.up`, `fairness.down` | Jain's index | `1` |
/// | `FLOW/ratio.OTHER` | goodput of an entry's flows over another's, mean over repeats | `1` |
/// | `cut`, `cut.DRAW=VALUE` | what a study's class saves, of all lines or of some | `%` |
/// | `FLOW/METRIC` | an application's metric | its own |
///
/// `PHASE` is `idle` or `load`, `STAT` is `p50`, `p90`, `p95`, `p99`, `p99.9`, `max` or `mean`.
/// A probe other than the first is named in front: `PROBE/load.rtt.p99`.
///
/// `codel/*` relative to `bode/*` normalises link by link before it averages, as papers do that run
/// over several recordings.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Expectation {
    /// The metric that is compared, see above.
    pub metric: String,
    /// The arm it is expected of. `*` in a part of it stands for any text: then the mean of the
    /// metric over all arms that match. With `choice`, `{}` stands for each candidate.
    pub arm: String,
    /// When given, the metric of `arm` divided by the same metric of this arm is compared instead.
    /// Where both have as many `*`, each arm is divided by the one that has the same parts there,
    /// and the mean of the ratios counts.
    #[serde(default)]
    pub relative_to: Option<String>,
    /// When given, not the metric is compared but which arm does best by it.
    #[serde(default)]
    pub choice: Option<Choice>,
    /// The number itself, in `unit`, where one was published; `None` = only a band.
    #[serde(default)]
    pub value: Option<f64>,
    /// Least value that meets it, in `unit`; `None` = no lower bound.
    pub low: Option<f64>,
    /// Greatest value that meets it, in `unit`; `None` = no upper bound.
    pub high: Option<f64>,
    /// Unit of `low`, `high` and `measured`, as printed: `ms`, `Mbit/s`, `%`, `1`.
    pub unit: String,
    /// Where it was published, for example `Comcast 2021, Figure 3`.
    pub source: String,
    /// Whether the run is the scenario's short form, which is not the published experiment: the
    /// number is shown and not judged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub short_form: bool,
    /// What this run measured; `None` when it did not.
    #[serde(default)]
    pub measured: Option<f64>,
    /// The outcome.
    #[serde(default)]
    pub verdict: Verdict,
    /// How the number was read off; may be empty.
    #[serde(default)]
    pub note: String,
    /// Why this scenario is known to miss it; empty where it is not.
    #[serde(default)]
    pub cause: String,
}

/// Which of several arms has the best metric. What is compared is the number that stands for that
/// arm, for example the size of its buffer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Whether the largest or the smallest metric is the best.
    pub best: Extreme,
    /// A smaller number is as good if its metric comes so close to the best, in the metric's unit.
    #[serde(default)]
    pub within: f64,
    /// Candidates and their numbers, in the expectation's unit. A candidate's arm is that of the
    /// expectation with the candidate's name in place of `{}`.
    pub among: BTreeMap<String, f64>,
}

/// An end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extreme {
    /// More is better.
    Largest,
    /// Less is better.
    Smallest,
}

impl Choice {
    /// The number of the best candidate by `metric`: the smallest of the numbers within reach of
    /// the best metric. `None` where a candidate has none.
    pub fn best_number(&self, metric: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let of = |(name, number): (&String, &f64)| Some((metric(name)?, *number));
        let candidates: Vec<(f64, f64)> = self.among.iter().map(of).collect::<Option<_>>()?;
        let metrics = candidates.iter().map(|(metric, _)| *metric);
        let is_best: Box<dyn Fn(f64) -> bool> = match self.best {
            Extreme::Largest => {
                let least = metrics.reduce(f64::max)? - self.within;
                Box::new(move |metric| metric >= least)
            }
            Extreme::Smallest => {
                let most = metrics.reduce(f64::min)? + self.within;
                Box::new(move |metric| metric <= most)
            }
        };
        let best = candidates.iter().filter(|(metric, _)| is_best(*metric));
        best.map(|(_, number)| *number).reduce(f64::min)
    }
}

/// Whether a pattern names that arm: `1mbit/*` and `*/8KiB` name `1mbit/8KiB`. A part may have one
/// `*`, which stands for any characters of that part.
pub fn names_arm(pattern: &str, arm: &str) -> bool {
    let parts = |text: &str| text.split('/').count();
    let alike = |(wanted, part): (&str, &str)| match wanted.split_once('*') {
        Some((head, tail)) => {
            part.len() >= head.len() + tail.len() && part.starts_with(head) && part.ends_with(tail)
        }
        None => wanted == part,
    };
    parts(pattern) == parts(arm) && pattern.split('/').zip(arm.split('/')).all(alike)
}

/// Outcome of an expectation.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Verdict {
    /// The run has no such number.
    #[default]
    NotMeasured,
    /// Measured by a short form, see [`Expectation::short_form`].
    NotComparable,
    /// Inside the band.
    Met,
    /// Outside the band.
    Missed {
        /// Distance to the nearer end of the band, in the expectation's unit; negative when below.
        by: f64,
    },
}

impl Expectation {
    /// The pattern of every arm that it speaks of.
    pub fn arm_patterns(&self) -> Vec<String> {
        let mut patterns = match &self.choice {
            Some(choice) => choice.among.keys().map(|name| self.candidate(name)).collect(),
            None => vec![self.arm.clone()],
        };
        patterns.extend(self.relative_to.clone());
        patterns
    }

    /// Its number, from the metric of each of `arms`. `None` unless all that it speaks of have one.
    pub fn measure(&self, arms: &[&str], metric: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        if let Some(choice) = &self.choice {
            let of =
                |name: &str| mean(&parts_named(&self.candidate(name), arms), |arm, _| metric(arm));
            return choice.best_number(of);
        }
        let own = parts_named(&self.arm, arms);
        let Some(other) = &self.relative_to else { return mean(&own, |arm, _| metric(arm)) };
        let stars = |pattern: &str| pattern.split('/').filter(|part| part.contains('*')).count();
        if stars(&self.arm) == stars(other) {
            return mean(&own, |arm, parts| Some(metric(arm)? / metric(&filled(other, parts))?));
        }
        let divisor = mean(&parts_named(other, arms), |arm, _| metric(arm))?;
        mean(&own, |arm, _| metric(arm)).map(|value| value / divisor)
    }

    fn candidate(&self, name: &str) -> String {
        self.arm.replace("{}", name)
    }

    /// Records what was measured and decides. A value that is not finite counts as not measured, a
    /// bound that is not finite as no bound.
    pub fn judge(&mut self, measured: Option<f64>) {
        let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
        self.measured = finite(measured);
        self.verdict = match (self.measured, finite(self.low), finite(self.high)) {
            (None, _, _) => Verdict::NotMeasured,
            _ if self.short_form => Verdict::NotComparable,
            (Some(value), Some(low), _) if value < low => Verdict::Missed { by: value - low },
            (Some(value), _, Some(high)) if value > high => Verdict::Missed { by: value - high },
            _ => Verdict::Met,
        };
    }
}

/// The arms that a pattern names, each with what stands in place of its `*`.
pub(super) fn parts_named<'a>(pattern: &str, arms: &[&'a str]) -> Vec<(&'a str, Vec<&'a str>)> {
    let parts = |arm: &'a str| {
        let pairs = pattern.split('/').zip(arm.split('/'));
        let middle = |(wanted, part): (&str, &'a str)| {
            let (head, tail) = wanted.split_once('*')?;
            part.get(head.len()..part.len() - tail.len())
        };
        pairs.filter_map(middle).collect()
    };
    let named = arms.iter().filter(|arm| names_arm(pattern, arm));
    named.map(|arm| (*arm, parts(arm))).collect()
}

/// The arm that a pattern names when these parts stand in place of its `*`.
pub(super) fn filled(pattern: &str, parts: &[&str]) -> String {
    let mut parts = parts.iter();
    let fill = |part: &str| match part.split_once('*') {
        Some((head, tail)) => format!("{head}{}{tail}", parts.next().copied().unwrap_or("*")),
        None => part.to_owned(),
    };
    pattern.split('/').map(fill).collect::<Vec<_>>().join("/")
}

/// The mean over arms; `None` where one has no value, or there is none.
fn mean(arms: &[(&str, Vec<&str>)], value: impl Fn(&str, &[&str]) -> Option<f64>) -> Option<f64> {
    let values = arms.iter().map(|(arm, parts)| value(arm, parts));
    let values: Vec<f64> = values.collect::<Option<_>>()?;
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_form_is_not_judged() {
        let mut band = Expectation { low: Some(15.0), short_form: true, ..Default::default() };
        for (measured, verdict) in [
            (Some(20.0), Verdict::NotComparable),
            (Some(1.0), Verdict::NotComparable),
            (None, Verdict::NotMeasured),
        ] {
            band.judge(measured);
            assert_eq!((band.measured, band.verdict), (measured, verdict));
        }
    }

    #[test]
    fn stars_on_both_sides_compare_arm_by_arm() {
        let values = [("codel/a", 6.0), ("codel/b", 40.0), ("bode/a", 2.0), ("bode/b", 4.0)];
        let arms = values.map(|(arm, _)| arm);
        let of =
            |arm: &str| values.iter().find(|(known, _)| *known == arm).map(|(_, value)| *value);
        let measure = |arm: &str, other: Option<&str>| {
            let (arm, relative_to) = (arm.to_owned(), other.map(str::to_owned));
            Expectation { arm, relative_to, ..Expectation::default() }.measure(&arms, of)
        };
        assert_eq!(measure("codel/*", Some("bode/*")), Some(6.5), "the mean of 3 and 10");
        assert_eq!(measure("codel/*", Some("bode/a")), Some(11.5), "23 over 2");
        assert_eq!(measure("codel/a", Some("bode/*")), Some(2.0), "6 over 3");
        assert_eq!(measure("*/*", Some("bode/*")), Some(13.0 / 3.0), "the mean over all over 3");
        assert_eq!(measure("*/b", Some("*/b")), Some(1.0));
        assert_eq!(measure("codel/*", Some("b*e/a")), None, "`bae` is no arm");
        assert_eq!(measure("c*el/b", Some("b*e/b")), Some(10.0), "`od` in both");
        assert_eq!(measure("codel/*", Some("pie/*")), None);
        assert_eq!(measure("pie/*", None), None);
    }

    #[test]
    fn a_band_has_two_closed_ends() {
        let mut band = Expectation { low: Some(15.0), high: Some(30.0), ..Default::default() };
        for (measured, verdict) in [
            (Some(15.0), Verdict::Met),
            (Some(30.0), Verdict::Met),
            (Some(14.0), Verdict::Missed { by: -1.0 }),
            (Some(32.5), Verdict::Missed { by: 2.5 }),
            (Some(f64::NAN), Verdict::NotMeasured),
            (None, Verdict::NotMeasured),
        ] {
            band.judge(measured);
            assert_eq!(band.verdict, verdict, "{measured:?}");
        }
        band.low = Some(f64::INFINITY);
        band.judge(Some(20.0));
        assert_eq!(band.verdict, Verdict::Met);
    }

    #[test]
    fn patterns_name_arms_part_by_part() {
        for (pattern, arm, expected) in [
            ("1mbit/8KiB", "1mbit/8KiB", true),
            ("1mbit/*", "1mbit/8KiB", true),
            ("*/8KiB", "1mbit/16KiB", false),
            ("*", "1mbit/8KiB", false),
            ("1mbit/*", "1mbit", false),
            ("call-*/8KiB", "call-57ms/8KiB", true),
            ("call-*/8KiB", "page-57ms/8KiB", false),
            ("1mbit*t", "1mbit", false),
        ] {
            assert_eq!(names_arm(pattern, arm), expected, "{pattern} {arm}");
        }
    }

    #[test]
    fn a_choice_is_the_number_of_the_best_or_of_the_least_that_is_nearly_as_good() {
        let scores = [("8", 4.0), ("16", 4.4), ("32", 4.45), ("64", 3.0)];
        let arms = ["call/8KiB", "call/16KiB", "call/32KiB", "call/64KiB"];
        let score = |arm: &str| {
            let name = arm.strip_prefix("call/")?.strip_suffix("KiB")?;
            scores.iter().find(|(known, _)| *known == name).map(|(_, score)| *score)
        };
        let numbers = [("8KiB", 8.0), ("16KiB", 16.0), ("32KiB", 32.0), ("64KiB", 64.0)];
        let choice = |best, within| Expectation {
            arm: "call/{}".to_owned(),
            choice: Some(Choice {
                best,
                within,
                among: numbers.map(|(name, number)| (name.to_owned(), number)).into(),
            }),
            ..Expectation::default()
        };
        assert_eq!(choice(Extreme::Largest, 0.0).measure(&arms, score), Some(32.0));
        assert_eq!(choice(Extreme::Largest, 0.1).measure(&arms, score), Some(16.0));
        assert_eq!(choice(Extreme::Smallest, 0.0).measure(&arms, score), Some(64.0));
        let without_32 = |arm: &str| score(arm).filter(|score| *score < 4.45);
        assert_eq!(choice(Extreme::Largest, 0.0).measure(&arms, without_32), None);
        let patterns = choice(Extreme::Largest, 0.0).arm_patterns();
        assert_eq!(patterns, ["call/16KiB", "call/32KiB", "call/64KiB", "call/8KiB"]);
    }
}
