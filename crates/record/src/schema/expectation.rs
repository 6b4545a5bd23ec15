//! Published numbers, and whether the run met them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// A published number, as a band, that is compared with a variant of this run.
///
/// `metric` names what is compared:
///
/// | name | meaning | usual unit |
/// |---|---|---|
/// | `PHASE.rtt.STAT` | round trip of the first open-loop probe, pooled | `ms` |
/// | `PHASE.rtt.STAT.within.LOW-HIGH` | trials whose STAT is at least LOW and below HIGH ms | `%` |
/// | `PHASE.up.STAT`, `PHASE.down.STAT` | one-way delay of that probe | `ms` |
/// | `PHASE.sojourn.up.STAT`, `... .down.STAT` | sojourn in that queue, mean over repeats | `ms` |
/// | `load.inside.up.STAT`, `... .down.STAT` | round trip of TCP load, mean over repeats | `ms` |
/// | `PHASE.queuing.up.STAT`, `... .down.STAT` | sojourn plus serialisation time | `ms` |
/// | `PHASE.loss` | probes lost | `%` |
/// | `goodput.up`, `goodput.down` | payload of all flows | `Mbit/s` |
/// | `throughput.up`, `throughput.down` | sent by the bottleneck link | `Mbit/s` |
/// | `utilisation.up`, `utilisation.down` | share of the link's capacity used | `%` |
/// | `power.up`, `power.down` | `throughput` over the p99 of `load.queuing` | `mbit/s/s` |
/// | `drops.up`, `marks.up`, ... | share of the packets offered, over the widest window | `%` |
/// | `fairness.up`, `fairness.down` | Jain's index | `1` |
/// | `FLOW/ratio.OTHER` | goodput of an entry's flows over another's, mean over repeats | `1` |
/// | `cut`, `cut.DRAW=VALUE` | lag reduction in a study, over all lines or some | `%` |
/// | `FLOW/METRIC` | a metric of an application | that of the metric |
///
/// `PHASE` is `idle` or `load`, `STAT` is `p50`, `p90`, `p95`, `p99`, `p99.9`, `max` or `mean`.
/// A probe other than the first is named in front: `PROBE/load.rtt.p99`.
///
/// `codel/*` relative to `bode/*` normalises link by link before it averages, as papers do that run
/// over several recordings.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Expectation {
    pub metric: String,
    /// Name of the variant. A `*` in a part of the name matches any text; the metric is then the mean
    /// over all matching variants. With `curve`, `{}` is replaced by the name of each of its variants.
    pub variant: String,
    /// If set, the metric of `variant` divided by the metric of this variant is compared. If both names
    /// have the same number of `*`, each variant is divided by the variant with the same text there, and
    /// the mean of the ratios is compared.
    pub relative_to: Option<String>,
    /// If set, the shape of a curve of several variants is compared, not a metric.
    pub curve: Option<Curve>,
    /// The published number, in `unit`; `None` if only a band was published.
    pub value: Option<f64>,
    /// Smallest value inside the band, in `unit`; `None` = no lower bound.
    pub low: Option<f64>,
    /// Largest value inside the band, in `unit`; `None` = no upper bound.
    pub high: Option<f64>,
    /// Unit of `low`, `high` and `measured`, as printed: `ms`, `Mbit/s`, `%`, `1`.
    pub unit: String,
    /// The source, for example `Comcast 2021, Figure 3`.
    pub source: String,
    /// Whether the run is the short form: not the published experiment, so it is not judged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub short_form: bool,
    /// Value measured by this run; `None` if it has no such metric.
    pub measured: Option<f64>,
    pub verdict: Verdict,
    /// How the number was read from the publication; may be empty.
    pub note: String,
    /// Why this scenario is known to miss the band; empty if it is not.
    pub cause: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extreme {
    Largest,
    Smallest,
}

/// A curve of several variants' metrics. [`Shape`] says which number of it is compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    pub shape: Shape,
    /// Candidates whose metric differs from that of the peak or trough by at most this are in it,
    /// too, and the one with the smallest number counts; in the metric's unit.
    pub within: f64,
    /// The variants of the curve and their numbers, such as a buffer's size, in whose order the
    /// curve runs. A variant is [`Expectation::variant`] with its name here in place of `{}`.
    pub among: BTreeMap<String, f64>,
}

/// The number of a curve that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// The number of the variant with the largest metric.
    Peak,
    /// The number of the variant with the smallest metric.
    Trough,
    /// The smallest ratio of a metric to the one before.
    Rising,
    /// The largest metric over the smallest.
    Flat,
}

impl Curve {
    /// Returns the number that is compared; `None` if a variant has no metric.
    fn number(&self, metric: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let point = |(name, number): (&String, &f64)| Some((*number, metric(name)?));
        let mut points: Vec<(f64, f64)> = self.among.iter().map(point).collect::<Option<_>>()?;
        points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let metrics = || points.iter().map(|(_, metric)| *metric);
        let (least, most) = (metrics().reduce(f64::min)?, metrics().reduce(f64::max)?);
        let first_in = |range: RangeInclusive<f64>| {
            points.iter().find(|(_, metric)| range.contains(metric)).map(|(number, _)| *number)
        };
        match self.shape {
            Shape::Peak => first_in(most - self.within..=most),
            Shape::Trough => first_in(least..=least + self.within),
            Shape::Rising => points.windows(2).map(|pair| pair[1].1 / pair[0].1).reduce(f64::min),
            Shape::Flat => Some(most / least),
        }
    }
}

/// Returns whether a pattern matches a variant's name: `1mbit/*` and `*/8KiB` match `1mbit/8KiB`. Each
/// part may have one `*`, which matches any characters of that part.
pub fn names_variant(pattern: &str, variant: &str) -> bool {
    parts_named(pattern, variant).is_some()
}

/// Returns the text in place of each `*` of a pattern, if the pattern matches the variant's name.
fn parts_named<'a>(pattern: &str, variant: &'a str) -> Option<Vec<&'a str>> {
    let mut stars = Vec::new();
    let mut parts = variant.split('/');
    for wanted in pattern.split('/') {
        let part = parts.next()?;
        match wanted.split_once('*') {
            Some((head, tail)) => stars.push(part.strip_prefix(head)?.strip_suffix(tail)?),
            None if wanted == part => {}
            None => return None,
        }
    }
    parts.next().is_none().then_some(stars)
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Verdict {
    /// The run has no such metric.
    #[default]
    NotMeasured,
    /// Measured by a short form, see [`Expectation::short_form`].
    NotComparable,
    Met,
    Missed {
        /// Distance to the nearer end of the band, in the expectation's unit; negative if below.
        by: f64,
    },
}

impl Expectation {
    /// Returns the patterns of all variants that the expectation uses.
    pub fn variant_patterns(&self) -> Vec<String> {
        let mut patterns = match &self.curve {
            Some(curve) => curve.among.keys().map(|name| self.candidate(name)).collect(),
            None => vec![self.variant.clone()],
        };
        patterns.extend(self.relative_to.clone());
        patterns
    }

    /// Returns the measured value, from the metric of each of `variants`; `None` if one of the variants
    /// that the expectation uses has no metric.
    pub fn measure(&self, variants: &[&str], metric: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let mean_of =
            |pattern: &str| mean(&variants_named(pattern, variants), |variant, _| metric(variant));
        if let Some(curve) = &self.curve {
            return curve.number(|name| mean_of(&self.candidate(name)));
        }
        let Some(other) = &self.relative_to else { return mean_of(&self.variant) };
        if stars(&self.variant) == stars(other) {
            let ratio = |variant: &str, parts: &[&str]| {
                Some(metric(variant)? / metric(&filled(other, parts))?)
            };
            return mean(&variants_named(&self.variant, variants), ratio);
        }
        let divisor = mean_of(other)?;
        mean_of(&self.variant).map(|value| value / divisor)
    }

    fn candidate(&self, name: &str) -> String {
        self.variant.replace("{}", name)
    }

    /// Records the measured value and sets the verdict. A value that is not finite counts as not
    /// measured; a bound that is not finite is ignored.
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

/// Returns the variants that a pattern matches, each with the text in place of each `*`.
pub(super) fn variants_named<'a>(
    pattern: &str,
    variants: &[&'a str],
) -> Vec<(&'a str, Vec<&'a str>)> {
    variants.iter().filter_map(|variant| Some((*variant, parts_named(pattern, variant)?))).collect()
}

/// Returns the number of parts of a pattern that have a `*`.
pub(super) fn stars(pattern: &str) -> usize {
    pattern.split('/').filter(|part| part.contains('*')).count()
}

/// Replaces the `*` of a pattern by `parts`.
pub(super) fn filled(pattern: &str, parts: &[&str]) -> String {
    let mut parts = parts.iter();
    let fill = |part: &str| match part.split_once('*') {
        Some((head, tail)) => format!("{head}{}{tail}", parts.next().copied().unwrap_or("*")),
        None => part.to_owned(),
    };
    pattern.split('/').map(fill).collect::<Vec<_>>().join("/")
}

/// Returns the mean over variants; `None` without a variant, or if one has no value.
fn mean(
    variants: &[(&str, Vec<&str>)],
    value: impl Fn(&str, &[&str]) -> Option<f64>,
) -> Option<f64> {
    let values = variants.iter().map(|(variant, parts)| value(variant, parts));
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
    fn stars_on_both_sides_compare_variant_by_variant() {
        let values = [("codel/a", 6.0), ("codel/b", 40.0), ("bode/a", 2.0), ("bode/b", 4.0)];
        let variants = values.map(|(variant, _)| variant);
        let of = |variant: &str| {
            values.iter().find(|(known, _)| *known == variant).map(|(_, value)| *value)
        };
        let measure = |variant: &str, other: Option<&str>| {
            let (variant, relative_to) = (variant.to_owned(), other.map(str::to_owned));
            Expectation { variant, relative_to, ..Expectation::default() }.measure(&variants, of)
        };
        assert_eq!(measure("codel/*", Some("bode/*")), Some(6.5), "the mean of 3 and 10");
        assert_eq!(measure("codel/*", Some("bode/a")), Some(11.5), "23 over 2");
        assert_eq!(measure("codel/a", Some("bode/*")), Some(2.0), "6 over 3");
        assert_eq!(measure("*/*", Some("bode/*")), Some(13.0 / 3.0), "the mean over all over 3");
        assert_eq!(measure("*/b", Some("*/b")), Some(1.0));
        assert_eq!(measure("codel/*", Some("b*e/a")), None, "`bae` is no variant");
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
    fn patterns_name_variants_part_by_part() {
        for (pattern, variant, expected) in [
            ("1mbit/8KiB", "1mbit/8KiB", true),
            ("1mbit/*", "1mbit/8KiB", true),
            ("*/8KiB", "1mbit/16KiB", false),
            ("*", "1mbit/8KiB", false),
            ("1mbit/*", "1mbit", false),
            ("call-*/8KiB", "call-57ms/8KiB", true),
            ("call-*/8KiB", "page-57ms/8KiB", false),
            ("1mbit*t", "1mbit", false),
        ] {
            assert_eq!(names_variant(pattern, variant), expected, "{pattern} {variant}");
        }
    }

    #[test]
    fn a_curve_is_judged_by_its_peak_its_steps_or_its_spread() {
        let scores = [("8", 4.0), ("16", 4.4), ("32", 4.45), ("64", 3.0)];
        let variants = ["call/8KiB", "call/16KiB", "call/32KiB", "call/64KiB"];
        let score = |variant: &str| {
            let name = variant.strip_prefix("call/")?.strip_suffix("KiB")?;
            scores.iter().find(|(known, _)| *known == name).map(|(_, score)| *score)
        };
        let numbers = [("8KiB", 8.0), ("16KiB", 16.0), ("32KiB", 32.0), ("64KiB", 64.0)];
        let curve = |shape, within| Expectation {
            variant: "call/{}".to_owned(),
            curve: Some(Curve {
                shape,
                within,
                among: numbers.map(|(name, number)| (name.to_owned(), number)).into(),
            }),
            ..Expectation::default()
        };
        assert_eq!(curve(Shape::Peak, 0.0).measure(&variants, score), Some(32.0));
        assert_eq!(curve(Shape::Peak, 0.1).measure(&variants, score), Some(16.0));
        assert_eq!(curve(Shape::Trough, 0.0).measure(&variants, score), Some(64.0));
        assert_eq!(curve(Shape::Rising, 0.0).measure(&variants, score), Some(3.0 / 4.45));
        assert_eq!(curve(Shape::Flat, 0.0).measure(&variants, score), Some(4.45 / 3.0));
        let without_32 = |variant: &str| score(variant).filter(|score| *score < 4.45);
        assert_eq!(curve(Shape::Peak, 0.0).measure(&variants, without_32), None);
        let patterns = curve(Shape::Peak, 0.0).variant_patterns();
        assert_eq!(patterns, ["call/16KiB", "call/32KiB", "call/64KiB", "call/8KiB"]);
    }
}
