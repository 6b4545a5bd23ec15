//! The first sentences of a report: the comparison that a scenario declares.

use std::collections::BTreeSet;

use underload_record::schema::{
    Direction, Headline, LatencyMeasure, Phase, Quantile, VariantLatency,
};
use underload_record::stats::hodges_lehmann_shift;
use underload_record::{CONFIDENCE, metric_of, metric_over_trials};

use crate::facts::{ALIKE, Certainty, NO_RATE_MBIT, RATE_ALIKE, losses, statistic, unequal_rates};
use crate::phrases::{self, factor, most_lost};
use crate::subject::Subject;
use crate::words::{LOST, count, judged_by, significant, usual_unit};

/// Returns the first sentences about the metric that the scenario declares; `None` if it declares
/// none.
pub(crate) fn lines(own: &[&Subject<'_>]) -> Option<Vec<String>> {
    let headline = own.first()?.run.record.scenario.headline.as_ref()?;
    if headline.metric.is_empty() {
        return None;
    }
    let names: Vec<&str> = own.iter().map(|subject| subject.variant.name.as_str()).collect();
    let named = |name: &str| own.iter().find(|subject| subject.variant.name == name).copied();
    let pairs: Vec<(&Subject<'_>, Option<&Subject<'_>>)> = headline
        .pairs(&names)
        .into_iter()
        .filter_map(|(variant, other)| Some((named(variant)?, other.and_then(named))))
        .collect();
    let lists = pairs.iter().map(|(variant, other)| {
        other.map_or_else(Vec::new, |other| Compared::all(headline, variant, other))
    });
    let compared = together(lists.collect(), |pair| pair.own.quantile);
    let (mut lines, told) = match compared.as_slice() {
        [] => return Some(alone(headline, &pairs)),
        [only] => {
            let lines = [Some(only.sentence(headline)), only.certainty(headline)];
            (lines.into_iter().flatten().collect(), 1)
        }
        several => (vec![middle(headline, several)], several.len()),
    };
    lines.extend(untold(pairs.len() - told, "pair of variants", "pairs of variants"));
    Some(lines)
}

/// Takes the element with the same statistic from each list: the one that most lists have, and of
/// several the highest.
fn together<T>(lists: Vec<Vec<T>>, quantile: impl Fn(&T) -> Option<Quantile>) -> Vec<T> {
    let has = |list: &&Vec<T>, wanted| list.iter().any(|element| quantile(element) == wanted);
    let all: BTreeSet<Option<Quantile>> = lists.iter().flatten().map(&quantile).collect();
    let by_number = |wanted: &Option<Quantile>| {
        (lists.iter().filter(|list| has(list, *wanted)).count(), *wanted)
    };
    let Some(common) = all.into_iter().max_by_key(by_number) else { return Vec::new() };
    let of_list = |list: Vec<T>| list.into_iter().find(|element| quantile(element) == common);
    lists.into_iter().filter_map(of_list).collect()
}

/// Returns a sentence on the elements with too few samples for the sentence before.
fn untold(number: usize, one: &str, several: &str) -> Option<String> {
    match number {
        0 => None,
        1 => Some(format!("One more {one} has too few samples or none.")),
        more => Some(format!("{more} more {several} have too few samples or none.")),
    }
}

/// A metric of a variant, with its statistic.
#[derive(Clone, Copy)]
struct Number<'a> {
    value: f64,
    unit: &'a str,
    quantile: Option<Quantile>,
    latency: Option<&'a VariantLatency>,
}

impl<'a> Number<'a> {
    /// Returns the metric, followed by lower quantiles of the same latency.
    fn all(subject: &'a Subject<'a>, name: &str) -> Vec<Self> {
        let (stem, declared) = statistic(name);
        let of = |quantile: Option<Quantile>, name: &str| {
            let latency = latency_of(subject, stem);
            let has_samples = match (latency, quantile) {
                (Some(latency), Some(quantile)) => latency.told_ns(quantile).is_some(),
                _ => true,
            };
            let judged = || latency.zip(quantile).and_then(|(latency, it)| latency.judged(it));
            let value = match judged() {
                Some(judged) => judged.as_ns() / 1e6,
                None => {
                    let value = metric_of(&subject.run.record, &subject.variant.name, name);
                    value.filter(|_| has_samples)?
                }
            };
            Some(Self { value, unit: unit(subject, name), quantile, latency })
        };
        let lower = Quantile::HIGHEST_FIRST.into_iter().filter(|quantile| {
            declared.is_some_and(|declared| *quantile < declared) && stem.contains(".rtt.")
        });
        let lower =
            lower.filter_map(|quantile| of(Some(quantile), &format!("{stem}{}", quantile.name())));
        of(declared, name).into_iter().chain(lower).collect()
    }

    /// Formats the value with its unit, unless `says` contains the unit.
    fn words(&self, says: &str) -> String {
        match self.unit {
            unit if unit.is_empty() || says.contains(unit) || self.value.is_infinite() => {
                self.bare()
            }
            unit => format!("{} {unit}", self.bare()),
        }
    }

    /// Formats the value before `other`, which has the unit unless it is a lost probe.
    fn beside(&self, other: &Self, says: &str) -> String {
        if other.value.is_infinite() { self.words(says) } else { self.bare() }
    }

    /// Formats the value without its unit; infinity is a lost probe.
    fn bare(&self) -> String {
        if self.value.is_infinite() { LOST.to_owned() } else { significant(self.value) }
    }

    /// Whether a ratio of two values has a meaning; a ratio of scores has none.
    fn has_ratio(&self) -> bool {
        RATIO_UNITS.contains(&self.unit) && self.value > 0.0 && self.value.is_finite()
    }
}

const RATIO_UNITS: [&str; 4] = ["ms", "s", "Mbit/s", "Mbit/s/s"];

/// Returns the latency of a metric without its statistic, `PROBE/load.rtt.`.
fn latency_of<'a>(subject: &'a Subject<'a>, stem: &str) -> Option<&'a VariantLatency> {
    let (probe, rest) = match stem.split_once('/') {
        Some((probe, rest)) => (Some(probe), rest),
        None => (None, stem),
    };
    let phase = Phase::from_name(rest.strip_suffix(".rtt.")?)?;
    subject.summary.latency(probe, LatencyMeasure::RoundTrip, phase)
}

/// Returns the unit of a metric as used in sentences.
fn unit<'a>(subject: &'a Subject<'a>, name: &str) -> &'a str {
    if let Some((flow, own)) = name.split_once('/') {
        let mut metrics = subject.summary.metrics.iter();
        if let Some(known) = metrics.find(|known| known.flow == flow && known.name == own) {
            return &known.unit;
        }
        if own.starts_with("ratio.") {
            return "";
        }
    }
    usual_unit(name)
}

/// Returns ` at p99`, ` at p99 of sent`, ` at most` or ` on average`.
fn at<'a>(numbers: impl Iterator<Item = &'a Number<'a>> + Clone) -> String {
    match numbers.clone().next().and_then(|number| number.quantile) {
        None => String::new(),
        Some(Quantile::Max) => " at most".to_owned(),
        Some(Quantile::Mean) => " on average".to_owned(),
        Some(quantile) => {
            format!(" at {}", judged_by(quantile, numbers.filter_map(|number| number.latency)))
        }
    }
}

/// A variant's number and the number that it is compared with.
struct Compared<'a> {
    variant: &'a Subject<'a>,
    other: &'a Subject<'a>,
    own: Number<'a>,
    others: Number<'a>,
}

impl<'a> Compared<'a> {
    /// Compares two variants by every statistic that both have, the highest first.
    fn all(headline: &Headline, variant: &'a Subject<'a>, other: &'a Subject<'a>) -> Vec<Self> {
        let others = match headline.baseline_metric.as_str() {
            "" => Number::all(other, &headline.metric),
            other_metric => Number::all(other, other_metric),
        };
        let alike = |own: Number<'a>| {
            let others = others.iter().find(|others| others.quantile == own.quantile)?;
            Some(Self { variant, other, own, others: *others })
        };
        let all: Vec<Self> =
            Number::all(variant, &headline.metric).into_iter().filter_map(alike).collect();
        // Two percentiles of lost probes cannot be compared: a lower percentile takes their place.
        let is_lost = |pair: &Self| pair.own.value.is_infinite() && pair.others.value.is_infinite();
        if all.iter().all(is_lost) {
            return all;
        }
        all.into_iter().filter(|pair| !is_lost(pair)).collect()
    }

    /// Returns the baseline's number over the variant's; `None` if the ratio has no meaning.
    fn ratio(&self) -> Option<f64> {
        let both = self.own.has_ratio() && self.others.has_ratio();
        both.then(|| self.others.value / self.own.value)
    }

    /// Returns the baseline's number minus the variant's; 0 if both are lost probes.
    fn difference(&self) -> f64 {
        let (own, others) = (self.own.value, self.others.value);
        if own.is_infinite() && others.is_infinite() { 0.0 } else { others - own }
    }

    /// Formats the ratio: `, 1.7 times lower`.
    fn change(&self) -> String {
        self.ratio().map_or(String::new(), |ratio| format!(", {}", times(ratio)))
    }

    fn sentence(&self, headline: &Headline) -> String {
        let (variant, says, own) =
            (self.variant.called(), &headline.says, self.own.words(&headline.says));
        let is_same_variant = self.variant.position == self.other.position;
        if let Some((own, others)) = self.own.latency.zip(self.others.latency)
            && self.own.value.is_infinite()
            && self.others.value.is_infinite()
            && !is_same_variant
        {
            let (other, of_probe) = (self.other.called(), self.variant.of_probe(own));
            return phrases::losses_alone((&variant, own), (&other, others), &of_probe) + ".";
        }
        let against = match (headline.baseline_says.as_str(), is_same_variant) {
            (words, true) => format!("{} of {words}", self.others.words(&headline.says)),
            ("", false) => {
                format!("{} with {}", self.others.words(&headline.says), self.other.called())
            }
            (words, false) => {
                format!(
                    "{} of {words} with {}",
                    self.others.words(&headline.says),
                    self.other.called()
                )
            }
        };
        let at = at([&self.own, &self.others].into_iter());
        let besides = self.besides(is_same_variant);
        format!(
            "With {variant} the {says} is {own}{at} against {against}{}{besides}.",
            self.change()
        )
    }

    /// Returns the caveats of the comparison: unequal rates, lost probes.
    fn besides(&self, is_same_variant: bool) -> String {
        // Rates are already in a sentence about rates.
        let says_rates = is_same_variant || self.own.unit.starts_with("Mbit/s");
        let rates = if says_rates { Vec::new() } else { unequal_rates(self.other, self.variant) };
        let lost = self.own.latency.zip(self.others.latency);
        let lost = lost.and_then(|(own, others)| losses(own, others));
        let lost = lost.map(|(own, others)| phrases::losses(own, others));
        let both = [phrases::rates(&rates), lost].into_iter().flatten();
        both.fold(String::new(), |text, words| text + "; " + &words)
    }

    fn certainty(&self, headline: &Headline) -> Option<String> {
        let known = match (self.own.latency, self.others.latency, self.own.quantile) {
            (Some(own), Some(others), Some(quantile)) => {
                Certainty::of_latencies((self.other, others), (self.variant, own), quantile)
            }
            _ => Certainty::of_numbers(self.other, self.variant, || self.is_noise(headline)),
        };
        known.as_ref().map(phrases::certainty)
    }

    /// Whether the interval of the difference of the trials' numbers includes 0.
    fn is_noise(&self, headline: &Headline) -> bool {
        let values = |variant: &Subject<'_>, metric: &str| {
            metric_over_trials(&variant.run.record, &variant.variant.name, metric)
        };
        let others = match headline.baseline_metric.as_str() {
            "" => values(self.other, &headline.metric),
            metric => values(self.other, metric),
        };
        let shift =
            hodges_lehmann_shift(&values(self.variant, &headline.metric), &others, CONFIDENCE);
        let bounds = shift.and_then(|shift| shift.low.zip(shift.high));
        bounds.is_some_and(|(low, high)| (low..=high).contains(&0.0))
    }
}

/// Formats a ratio: `1.7 times lower`, `hardly a difference`.
fn times(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= ALIKE => format!("{} times lower", factor(ratio)),
        ratio if ratio * ALIKE <= 1.0 => format!("{} times higher", factor(1.0 / ratio)),
        _ => "hardly a difference".to_owned(),
    }
}

/// Returns the part of a pattern that all matching names have: `bode` for `bode/*/*`, empty for
/// `*/*`.
fn common(pattern: &str) -> String {
    let parts = pattern.split('/').map(|part| part.replace('*', ""));
    let parts: Vec<String> = parts
        .map(|part| part.trim_matches('-').to_owned())
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("/")
}

/// Describes several pairs of variants: both of two, else the median pair and how many agree with it.
fn middle(headline: &Headline, pairs: &[Compared<'_>]) -> String {
    let lowers = |pair: &&Compared<'_>| pair.own.value < pair.others.value;
    let of_all = pairs.len();
    let lower = pairs.iter().filter(lowers).count();
    let (than, like_it) =
        if lower * 2 >= of_all { ("lower", lower) } else { ("higher", of_all - lower) };
    let mut ordered: Vec<&Compared<'_>> = pairs.iter().collect();
    let change = |pair: &Compared<'_>| pair.ratio().unwrap_or_else(|| pair.difference());
    ordered.sort_by(|a, b| change(a).total_cmp(&change(b)));
    let middle = (of_all - 1) / 2;
    let (which_pair, shown) = match ordered.as_slice() {
        [one, other] => ("they are", vec![one, other]),
        all => ("the median pair is", vec![&all[middle]]),
    };
    let at = at(pairs.iter().flat_map(|pair| [&pair.own, &pair.others]));
    let says = &headline.says;
    let instead = match (headline.baseline.as_str(), headline.baseline_says.as_str()) {
        ("", words) => format!(" than that of {words}"),
        (baseline, words) => match (words, common(baseline).as_str()) {
            ("", "") => " than with its counterpart".to_owned(),
            ("", same) => format!(" than with {same}"),
            (words, "") => format!(" than that of {words}"),
            (words, same) => format!(" than that of {words} with {same}"),
        },
    };
    let the = match common(&headline.variant).as_str() {
        "" => "The".to_owned(),
        same => format!("With {same} the"),
    };
    let which = match (like_it, of_all) {
        (2, 2) => "in both pairs of variants".to_owned(),
        (all, of_all) if all == of_all => format!("in all {of_all} pairs of variants"),
        _ => format!("in {like_it} of {of_all} pairs of variants"),
    };
    let lost = most_lost(
        pairs.iter().flat_map(|pair| [pair.own.latency, pair.others.latency].into_iter().flatten()),
    );
    let carried = carried(pairs).map_or(String::new(), |words| format!("; {words}"));
    let pair = |pair: &&&Compared<'_>| {
        let own = pair.own.beside(&pair.others, says);
        let others = pair.others.words(says);
        format!("{}, {own} against {others}{}", pair.variant.called(), pair.change())
    };
    let shown = shown.iter().map(pair).collect::<Vec<_>>().join(", and ");
    format!("{the} {says} is {than}{at}{instead} {which}; {which_pair} {shown}{carried}{lost}.")
}

/// Returns `it carried 0.62 to 1.01 of the others' rate down`; `None` if all rates are alike.
fn carried(pairs: &[Compared<'_>]) -> Option<String> {
    let share = |pair: &Compared<'_>, direction| {
        let of = |subject: &Subject<'_>| {
            let carried = subject.summary.throughput(direction)?;
            let rate = carried.goodput_bit_per_s.or(carried.link_bit_per_s)?.mean;
            (rate >= NO_RATE_MBIT * 1e6).then_some(rate)
        };
        Some(of(pair.variant)? / of(pair.other)?)
    };
    let words = |direction: Direction| {
        let shares: Vec<f64> = pairs.iter().filter_map(|pair| share(pair, direction)).collect();
        let low = shares.iter().copied().reduce(f64::min)?;
        let high = shares.iter().copied().reduce(f64::max)?;
        let is_unequal = high > RATE_ALIKE || low * RATE_ALIKE < 1.0;
        let both = format!("{low:.2} to {high:.2} of the rate {direction}");
        is_unequal.then_some(both)
    };
    let both: Vec<String> =
        [Direction::Up, Direction::Down].into_iter().filter_map(words).collect();
    (!both.is_empty()).then(|| format!("beside the others it carried {}", both.join(", ")))
}

/// Describes numbers without a number to compare them with.
fn alone(headline: &Headline, pairs: &[(&Subject<'_>, Option<&Subject<'_>>)]) -> Vec<String> {
    let says = &headline.says;
    let lists = pairs.iter().map(|(variant, _)| {
        let all = Number::all(variant, &headline.metric).into_iter();
        all.map(|number| (variant.called(), number)).collect()
    });
    let numbers = together(lists.collect(), |(_, number)| number.quantile);
    let value = |of: &(String, Number<'_>)| of.1.value;
    let least = numbers.iter().min_by(|a, b| value(a).total_cmp(&value(b)));
    let most = numbers.iter().max_by(|a, b| value(a).total_cmp(&value(b)));
    let lost = most_lost(numbers.iter().filter_map(|(_, number)| number.latency));
    let line = match (numbers.as_slice(), least.zip(most)) {
        ([(variant, only)], _) => {
            format!(
                "With {variant} the {says} is {}{}{lost}.",
                only.words(says),
                at([only].into_iter())
            )
        }
        (several, Some(((least, low), (most, high)))) => format!(
            "The {says}{} goes from {} ({least}) to {} ({most}) over {}{lost}.",
            at(several.iter().map(|(_, number)| number)),
            low.beside(high, says),
            high.words(says),
            count(several.len() as u64, "variant")
        ),
        _ => {
            let needs =
                if headline.metric.ends_with("p99") { " (a p99 needs 500 values)" } else { "" };
            return vec![format!(
                "The {says}, which this scenario is about, was not measured{needs}."
            )];
        }
    };
    let untold = untold(pairs.len() - numbers.len(), "variant", "variants");
    [Some(line), untold].into_iter().flatten().collect()
}
