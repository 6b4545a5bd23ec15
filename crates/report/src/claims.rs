//! The sentences of comparisons. What they state is decided in [`comparison`].

use std::collections::BTreeSet;

use serde::Serialize;
use underload_record::comparison::{
    self, Both, Claim, Comparison, DeclaredValues, EffectRange, Extent, Modes, PairCounts, REPEATS,
    RateChange, Verdict, repeats_itself,
};
use underload_record::schema::{Direction, Quantile, RunRecord, World};

use underload_record::stats::FEWEST_FOR_INTERVAL;

use crate::across::Across;
use crate::settings;
use crate::subject::Subject;
use crate::words::{count, factor, list, mbit, metric_name, number, significant};

/// Least loss of probes that is mentioned, percent.
pub(crate) const LOSS_PERCENT: f64 = 1.0;
/// Maximum number of variants that a sentence on several names.
const MOST_NAMES: usize = 6;
/// A sentence of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sentence {
    /// The [`Comparison::claim`] that it states; `None` for other sentences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    pub text: String,
}

impl Sentence {
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self { claim: None, text: text.into() }
    }
}

/// Returns the sentences of a run's comparisons, and one on what they rest on.
pub(crate) fn sentences(own: &[&Subject<'_>]) -> Vec<Sentence> {
    let Some(first) = own.first() else { return Vec::new() };
    let record = &first.run.record;
    let speaker = Speaker { own, record, comparisons: &record.comparisons };
    let claims = comparison::claims(&record.comparisons);
    let mut all: Vec<Sentence> = speaker.stated(&claims);
    let singles = claims.iter().filter(|claim| claim.extent == Extent::One);
    let mut singles = singles.flat_map(|claim| &claim.comparisons);
    if singles.any(|it| settings::is_mixed(&it.settings)) {
        let text = "Where a bracket names several settings, this does not show which of them makes \
                    the difference.";
        all.push(Sentence::plain(text));
    }
    all.extend(speaker.basis().map(Sentence::plain));
    all.extend(record.modes.iter().map(|it| Sentence::plain(speaker.modes(it))));
    let declared = comparison::declared_values(record);
    if declared.is_none() && !all.is_empty() {
        all.extend(speaker.not_compared().map(Sentence::plain));
    }
    all.extend(declared.map(|values| Sentence::plain(speaker.alone(&values))));
    all
}

struct Speaker<'a> {
    own: &'a [&'a Subject<'a>],
    record: &'a RunRecord,
    comparisons: &'a [Comparison],
}

/// Returns the sentences of comparisons of later runs with the first, whose subjects `own` are.
/// Names the data behind them, unless the sentences of the first run name the same data.
pub(crate) fn of_later_runs(own: &[&Subject<'_>], across: &[Across<'_, '_>]) -> Vec<Sentence> {
    let comparisons: Vec<Comparison> = across.iter().map(|it| it.comparison.clone()).collect();
    let Some(first) = own.first() else { return Vec::new() };
    let record = &first.run.record;
    let speaker = Speaker { own, record, comparisons: &comparisons };
    let claims = comparison::claims(&comparisons);
    let basis = speaker.basis().filter(|_| record.comparisons.is_empty());
    speaker.stated(&claims).into_iter().chain(basis.map(Sentence::plain)).collect()
}

impl Speaker<'_> {
    fn called(&self, name: &str) -> String {
        let subject = self.own.iter().find(|subject| subject.variant.name == name);
        subject.map_or_else(|| name.to_owned(), |subject| subject.called())
    }

    fn stated(&self, claims: &[Claim<'_>]) -> Vec<Sentence> {
        let sentence =
            |it: &Claim<'_>| Sentence { claim: Some(it.id.clone()), text: self.sentence(it) };
        claims.iter().map(sentence).collect()
    }

    fn sentence(&self, claim: &Claim<'_>) -> String {
        match (claim.extent, claim.comparisons.as_slice()) {
            (Extent::One, [only, ..]) => self.one(only),
            (Extent::SameChange, several) => self.same_change(several),
            (_, several) => self.same_verdict(several),
        }
    }

    /// Returns what is compared: `latency under load of probe-dscp-45`.
    fn what(&self, metric: &str) -> String {
        let headline = self.record.scenario.headline.as_ref();
        if let Some(headline) = headline.filter(|headline| !headline.metric.is_empty()) {
            return headline.says.clone();
        }
        match metric.split_once('/') {
            None => "latency under load".to_owned(),
            Some((probe, rest)) if rest.contains(".rtt.") => {
                format!("latency under load of {probe}")
            }
            Some((flow, "mos")) => format!("quality of {flow} (MOS, 1 to 5)"),
            Some((flow, "pages_loaded")) => format!("number of pages that flow {flow} loaded"),
            Some((flow, metric)) => format!("{} of {flow}", metric_name(metric)),
        }
    }

    /// Returns the name of the baseline, and of its metric if the scenario declares one.
    fn baseline(&self, comparison: &Comparison) -> String {
        let says = self.record.scenario.headline.as_ref().map(|it| it.baseline_says.as_str());
        let is_own = comparison.variant == comparison.baseline;
        match (says.filter(|_| !comparison.baseline_metric.is_empty()), is_own) {
            (Some(words), true) => format!(" of {words}"),
            (Some(words), false) => {
                format!(" of {words} with {}", self.called(&comparison.baseline))
            }
            (None, _) => format!(" with {}", self.called(&comparison.baseline)),
        }
    }

    fn one(&self, it: &Comparison) -> String {
        let baseline = self.called(&it.baseline);
        let name = self.called(&it.variant);
        let changes = settings::beside(&it.settings, &baseline, &name);
        let with = format!("With {name}{changes}");
        let what = self.what(&it.metric);
        let (own, other) = (value(it.value, it), value(it.baseline_value, it));
        let against = self.baseline(it);
        let besides = besides(it);
        match (it.verdict, it.direction()) {
            (Verdict::Lower | Verdict::Higher, _) => {
                let by = it.range.map_or(String::new(), |_| effect(it));
                format!("{with} the {what} is {own} instead of {other}{against}: {by}{besides}.")
            }
            (Verdict::Alike, _) | (Verdict::TooFew, Verdict::Alike) if own == other => {
                format!("{with} the {what} is {own}, the same as{against}{besides}.")
            }
            (Verdict::Alike, _) | (Verdict::TooFew, Verdict::Alike) => format!(
                "{with} the {what} hardly differs: {} against {other}{against}{besides}.",
                bare(it.value, it)
            ),
            (Verdict::TooFew, _) => {
                format!("{with} the {what} is {own} against {other}{against}{besides}.")
            }
            (Verdict::NotSure, _) => format!(
                "{with} the {what} is {own} against {other}{against}, but that is not sure: {}{besides}.",
                pairs_in_words(it)
            ),
            (Verdict::Lost, _) => {
                let lost = it.lost_percent.unwrap_or_default();
                let (own, other) = (never_came_back(lost.variant), never_came_back(lost.baseline));
                format!("{with} {own},{against} {other}.")
            }
            (Verdict::Suspicious, _) => format!(
                "{with} the {what} is {own} against {other}{against}. No scenario gives such a \
                 difference: look at the trials first."
            ),
            (Verdict::NotMeasured | Verdict::NotComparable, _) => {
                let missing = if it.value.is_none() { name } else { baseline };
                format!(
                    "{with} the {what} cannot be compared: with {missing} it has too few values."
                )
            }
        }
    }

    fn is_of_later_runs(&self) -> bool {
        !std::ptr::eq(self.comparisons, self.record.comparisons.as_slice())
    }

    /// Describes one change on several lines: on how many it lowers the value, and where it does not.
    fn same_change(&self, all: &[&Comparison]) -> String {
        let Some(first) = all.first() else { return String::new() };
        let what = self.what(&first.metric);
        let named = |of: fn(&Comparison) -> &str| common(all.iter().map(|it| of(it)));
        let (variant, baseline) = (named(|it| &it.variant), named(|it| &it.baseline));
        let is_later = self.is_of_later_runs();
        let subject = match (variant.as_str(), settings::in_words(&first.settings)) {
            _ if is_later => format!("In later runs the {what}"),
            ("", words) if words.is_empty() => format!("The {what}"),
            ("", words) => format!("With {words}, the {what}"),
            (variant, _) => format!("With {variant} the {what}"),
        };
        let says = self.record.scenario.headline.as_ref().map(|it| it.baseline_says.as_str());
        let says = says.filter(|_| !first.baseline_metric.is_empty());
        let against = match (says, baseline.as_str()) {
            (Some(words), "") => format!(" than that of {words}"),
            (Some(words), same) => format!(" than that of {words} with {same}"),
            (None, _) if is_later => " than in the first".to_owned(),
            (None, "") => String::new(),
            (None, same) => format!(" than with {same}"),
        };
        let mut by_outcome: Vec<(Verdict, Vec<&Comparison>)> = Vec::new();
        for it in all {
            let outcome = outcome(it);
            match by_outcome.iter_mut().find(|(known, _)| *known == outcome) {
                Some((_, members)) => members.push(it),
                None => by_outcome.push((outcome, vec![it])),
            }
        }
        by_outcome.sort_by_key(|(outcome, members)| (std::cmp::Reverse(members.len()), *outcome));
        let mut parts = by_outcome.iter().enumerate().map(|(position, (outcome, members))| {
            let number = members.len();
            let share = match number {
                2 if all.len() == 2 => format!("in both comparisons{}", where_compared(all)),
                _ if number == all.len() => {
                    format!("in all {number} comparisons{}", where_compared(all))
                }
                _ if position == 0 => format!("in {number} of {} comparisons", all.len()),
                _ => format!("in {number}"),
            };
            let against = if position == 0 { against.as_str() } else { "" };
            let words = outcome_words(*outcome, against);
            let amount = amount(*outcome, members);
            let names = if position == 0 { String::new() } else { self.names(members) };
            format!("{words} {share}{amount}{names}")
        });
        let firstly = parts.next().unwrap_or_default();
        let others = parts.fold(String::new(), |text, part| text + "; " + &part);
        let middle = self.middle(all);
        format!("{subject} {firstly}{others}{middle}{}{}.", carried(all), most_lost(all))
    }

    /// Returns the numbers of the pair in the middle.
    fn middle(&self, all: &[&Comparison]) -> String {
        let mut known: Vec<&&Comparison> =
            all.iter().filter(|it| it.value.is_some() && it.baseline_value.is_some()).collect();
        let change = |it: &Comparison| it.ratio().or(it.value).unwrap_or_default();
        known.sort_by(|a, b| change(a).total_cmp(&change(b)));
        let Some(middle) = known.get(known.len().saturating_sub(1) / 2) else {
            return String::new();
        };
        let (own, other) = (value(middle.value, middle), value(middle.baseline_value, middle));
        let (name, baseline) = (self.called(&middle.variant), self.baseline(middle));
        format!("; for example {own} with {name} against {other}{baseline}")
    }

    /// Describes several variants that have the same verdict and no sentence of their own.
    fn same_verdict(&self, all: &[&Comparison]) -> String {
        let Some(first) = all.first() else { return String::new() };
        let outcome = outcome(first);
        let who = if all.len() <= MOST_NAMES {
            let names: Vec<String> = all.iter().map(|it| self.called(&it.variant)).collect();
            format!("{}: the {}", list(&names), self.what(&first.metric))
        } else {
            format!("The other {} variants: the {}", all.len(), self.what(&first.metric))
        };
        let mut baselines: Vec<&str> = all.iter().map(|it| it.baseline.as_str()).collect();
        baselines.dedup();
        let against = match baselines.as_slice() {
            [one] => format!(" than with {}", self.called(one)),
            _ => " than with what each is compared with".to_owned(),
        };
        let words = outcome_words(outcome, &against);
        let words = words.trim_end_matches(',');
        format!("{who} {words}{}{}.", amount(outcome, all), most_lost(all))
    }

    fn names(&self, members: &[&Comparison]) -> String {
        let names = members.iter().take(MOST_NAMES).map(|it| self.called(&it.variant));
        let names: Vec<String> = names.collect();
        let more = members.len().saturating_sub(MOST_NAMES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!(" ({}{more})", names.join(", "))
    }

    /// Says in how many trials the queue's AQM slept, and what the value was there.
    fn modes(&self, Modes { variant, metric, unit, asleep, awake }: &Modes) -> String {
        let what = self.what(metric);
        format!(
            "With {} the AQM was inactive and dropped nothing in {} of {} trials. The {what} is {} \
             {unit} there, and {} {unit} in the others (medians).",
            self.called(variant),
            asleep.trials,
            asleep.trials + awake.trials,
            significant(asleep.value),
            significant(awake.value),
        )
    }

    /// Names the variants that are neither compared nor a baseline, as their settings are unknown.
    fn not_compared(&self) -> Option<String> {
        let all = self.record.comparisons.iter();
        let compared: BTreeSet<&str> =
            all.flat_map(|it| [it.variant.as_str(), it.baseline.as_str()]).collect();
        let others = self.own.iter().filter(|it| !compared.contains(it.variant.name.as_str()));
        let others: Vec<String> = others.map(|it| it.called()).collect();
        let names = if others.len() <= MOST_NAMES {
            list(&others)
        } else {
            format!("the other {} variants", others.len())
        };
        (!others.is_empty())
            .then(|| format!("In the table only, as there is nothing to compare with: {names}."))
    }

    /// Describes values that a scenario compares with nothing.
    fn alone(&self, declared: &DeclaredValues) -> String {
        let headline = self.record.scenario.headline.as_ref();
        let says = headline.map_or("", |headline| &headline.says);
        let at = match comparison::statistic(&declared.metric).1 {
            Some(Quantile::Max) => " at most".to_owned(),
            Some(Quantile::Mean) => " on average".to_owned(),
            Some(quantile) => format!(" at {}", quantile.name()),
            None => String::new(),
        };
        let unit = if says.contains(&declared.unit) { "" } else { &declared.unit };
        let with_unit = |value: f64| format!("{} {unit}", significant(value)).trim().to_owned();
        let by_value = |a: &&(String, f64), b: &&(String, f64)| a.1.total_cmp(&b.1);
        let low = declared.values.iter().min_by(by_value);
        let high = declared.values.iter().max_by(by_value);
        let line = match (declared.values.as_slice(), low, high) {
            ([(variant, value)], ..) => {
                format!("With {} the {says} is {}{at}.", self.called(variant), with_unit(*value))
            }
            (all, Some((lowest, low)), Some((highest, high))) => format!(
                "The {says}{at} goes from {} ({}) to {} ({}) over {}.",
                significant(*low),
                self.called(lowest),
                with_unit(*high),
                self.called(highest),
                count(all.len(), "variant")
            ),
            _ => format!("The {says}, which this scenario is about, was not measured."),
        };
        if declared.missing.is_empty() || declared.values.is_empty() {
            return line;
        }
        let missing: Vec<String> =
            declared.missing.iter().map(|variant| self.called(variant)).collect();
        format!("{line} Without a value: {}.", list(&missing))
    }

    /// Names the metric of all comparisons and the trials behind them, once; `None` without
    /// comparisons.
    fn basis(&self) -> Option<String> {
        let comparisons = self.comparisons;
        let all: Vec<&Comparison> = comparisons.iter().collect();
        let same: Vec<&&Subject<'_>> =
            self.own.iter().filter(|it| repeats_itself(&it.trials().collect::<Vec<_>>())).collect();
        let is_random = same.is_empty();
        let has_value =
            comparisons.iter().any(|it| it.value.is_some() && it.baseline_value.is_some());
        let mut words: Vec<String> =
            quantile_words(&all).filter(|_| has_value).into_iter().collect();
        if let Some(same) = same.first() {
            words.push(format!(
                "All {} of {} are identical, because nothing in them is random, so they do not \
                 show how sure that is: add start_jitter to a flow",
                count(same.trials().count(), "trial"),
                same.called()
            ));
        }
        let pairs = || comparisons.iter().map(|it| it.pairs.compared).filter(|pairs| *pairs > 0);
        let (few, most) = (pairs().min()?, pairs().max()?);
        let each =
            if few == most { count(few, "trial") } else { format!("{few} to {most} trials") };
        match comparisons.iter().find_map(|it| it.range) {
            Some(range) => {
                let confidence = (range.confidence * 100.0).floor();
                let real = if self.record.world == World::Sim {
                    ". A real line may vary more"
                } else {
                    ""
                };
                words.push(format!(
                    "{each} each, compared pair by pair: with {confidence} % certainty the median of \
                     many trials is within the range, or rounds to the one number, that is \
                     given{real}"
                ));
            }
            None if is_random => {
                let each = if most == 1 { "one trial".to_owned() } else { each };
                let how = if self.record.world == World::Measured {
                    "measure more often".to_owned()
                } else {
                    format!("run with `--repeat {REPEATS}`")
                };
                words.push(format!("Only {each} each: {how} to see how sure this is"));
            }
            None => {}
        }
        if comparisons.iter().any(|it| it.verdict == Verdict::NotSure) {
            words.push(format!("For what is not sure run with `--repeat {}`", 2 * most.max(5)));
        }
        (!words.is_empty()).then(|| words.join(". ") + ".")
    }
}

/// Returns the sentence about pairs of values before and after a change. `what` names the number, and
/// `pairs` the pairs, such as `lines`.
pub fn change_sentence(what: &str, it: &Comparison, pairs: &str) -> String {
    let (own, other) = (value(it.value, it), value(it.baseline_value, it));
    let PairCounts { compared, lower, higher, .. } = it.pairs;
    let (more, than) = if higher > lower { (higher, "higher") } else { (lower, "lower") };
    let count = if compared > 0 {
        format!(", {than} in {more} of {compared} {pairs}")
    } else {
        String::new()
    };
    let ratio = |range: EffectRange| {
        let (middle, high) = range.middle.zip(range.high).filter(|_| it.is_ratio)?;
        let (low, confidence) = (significant(range.low), (range.confidence * 100.0).floor());
        let (middle, high) = (significant(middle), significant(high));
        Some(format!(": {middle} times ({low} to {high} at {confidence} %)"))
    };
    let by = it.range.and_then(ratio);
    let said = match it.verdict {
        Verdict::Lower | Verdict::Higher => {
            let by = by.unwrap_or_else(|| format!(": {}", effect(it)));
            format!("is {own} after, instead of {other} before{by}{count}")
        }
        Verdict::Alike => format!("hardly differs: {own} after, {other} before"),
        Verdict::NotSure => {
            let by = by.unwrap_or_default();
            format!("is {own} after, {other} before, but that is not sure{by}{count}")
        }
        Verdict::TooFew => format!(
            "is {own} after, {other} before{count}; {FEWEST_FOR_INTERVAL} or more {pairs} show how \
             sure that is"
        ),
        other => outcome_words(other, "").trim_end_matches(',').to_owned(),
    };
    format!("The {what} {said}{}.", besides(it))
}

fn never_came_back(lost_percent: f64) -> String {
    match lost_percent {
        100.0 => "no probe came back".to_owned(),
        0.0 => "every probe came back".to_owned(),
        percent => format!("{} % of the probes never came back", significant(percent)),
    }
}

/// Returns the verdict, or for too few trials what their values say.
fn outcome(it: &Comparison) -> Verdict {
    if it.verdict == Verdict::TooFew { it.direction() } else { it.verdict }
}

fn outcome_words(outcome: Verdict, against: &str) -> String {
    match outcome {
        Verdict::Lower => format!("is lower{against}"),
        Verdict::Higher => format!("is higher{against}"),
        Verdict::Alike => "hardly differs".to_owned(),
        Verdict::NotSure | Verdict::TooFew => "is not sure to differ".to_owned(),
        Verdict::Lost => "is unknown, as most probes never came back,".to_owned(),
        Verdict::Suspicious => "differs by more than any scenario gives".to_owned(),
        Verdict::NotMeasured | Verdict::NotComparable => "has too few values".to_owned(),
    }
}

/// Returns how much lower or higher: `, 1.6 to 7.3 times`, the middle of their pairs if all have a range, else of
/// the values: `, by 12 to 80 ms`.
fn amount(outcome: Verdict, members: &[&Comparison]) -> String {
    if !matches!(outcome, Verdict::Lower | Verdict::Higher) {
        return String::new();
    }
    let is_ratio = members.iter().all(|it| it.is_ratio && it.range.is_some());
    let size = |it: &&Comparison| {
        if !is_ratio {
            return Some((it.value? - it.baseline_value?).abs());
        }
        let ratio = it.range?.middle?;
        Some(if outcome == Verdict::Lower { 1.0 / ratio } else { ratio })
    };
    let mut sizes: Vec<f64> = members.iter().filter_map(size).filter(|it| it.is_finite()).collect();
    sizes.sort_unstable_by(f64::total_cmp);
    let (Some(low), Some(high)) = (sizes.first(), sizes.last()) else { return String::new() };
    let words: fn(f64) -> String = if is_ratio { factor } else { significant };
    let (low, high) = (words(*low), words(*high));
    let between = if low == high { low } else { format!("{low} to {high}") };
    match members.first().map_or("", |it| it.unit.as_str()) {
        _ if is_ratio => format!(", {between} times"),
        "" | "MOS" => format!(", by {between}"),
        unit => format!(", by {between} {unit}"),
    }
}

/// Returns `4.9 to 5.4 times lower`, `at least 3 times higher`, `0.5 to 0.7 higher`.
fn effect(it: &Comparison) -> String {
    let Some(range) = it.range else { return String::new() };
    let is_lower = it.verdict == Verdict::Lower;
    let than = if is_lower { "lower" } else { "higher" };
    let high = range.high.unwrap_or(f64::INFINITY);
    let (least, most) = match (it.is_ratio, is_lower) {
        (true, true) => (1.0 / high, 1.0 / range.low),
        (false, true) => (-high, -range.low),
        (_, false) => (range.low, high),
    };
    let number: fn(f64) -> String = if it.is_ratio { factor } else { significant };
    let unit = match it.unit.as_str() {
        _ if it.is_ratio => " times".to_owned(),
        "" | "MOS" => String::new(),
        unit => format!(" {unit}"),
    };
    // Whether a number, as it is printed, is no change: a ratio of 1 or a difference of 0.
    let is_nothing = |number: &str| number.parse() == Ok(if it.is_ratio { 1.0 } else { 0.0 });
    match (number(least), number(most)) {
        (least, _) if !most.is_finite() && is_nothing(&least) => format!(
            "{than} in {} of {} pairs of trials",
            it.pairs.lower.max(it.pairs.higher),
            it.pairs.compared
        ),
        (least, most) if is_nothing(&least) => format!("up to {most}{unit} {than}"),
        (least, _) if !most.is_finite() => format!("at least {least}{unit} {than}"),
        (least, most) if least == most => format!("{least}{unit} {than}"),
        (least, most) => format!("{least} to {most}{unit} {than}"),
    }
}

/// Returns `lower in 4 of 6 pairs of trials; 6 show differences from 1.4 times on`.
fn pairs_in_words(it: &Comparison) -> String {
    let pairs = it.pairs;
    let (more, than) =
        if pairs.lower >= pairs.higher { (pairs.lower, "lower") } else { (pairs.higher, "higher") };
    if more == pairs.compared && !it.is_middle_noticed() {
        return format!(
            "{than} in all {more} pairs of trials, but in most of them by too little to notice"
        );
    }
    let shown = it.range.filter(|_| it.is_ratio).and_then(|range| range.smallest_shown());
    let shown = shown.map_or(String::new(), |ratio| {
        format!("; so many show differences from {} times on", factor(ratio))
    });
    format!("{than} in {more} of {} pairs of trials{shown}", pairs.compared)
}

/// Returns the caveats of a comparison: unequal rates, lost probes.
fn besides(it: &Comparison) -> String {
    // Rates are already in a sentence about rates.
    let is_rate = it.unit.starts_with("Mbit/s") || it.variant == it.baseline;
    let rates = it.rates.iter().filter(|_| !is_rate).map(rate_words);
    let rates: Vec<String> = rates.collect();
    let lost = it.lost_percent.filter(|lost| lost.variant.max(lost.baseline) >= LOSS_PERCENT);
    let lost = lost.map(|Both { variant, baseline }| {
        let (own, others) = (significant(variant), significant(baseline));
        format!("{own} against {others} % of the probes were lost")
    });
    let rates = (!rates.is_empty()).then(|| rates.join(", "));
    rates.into_iter().chain(lost).fold(String::new(), |text, words| text + "; " + &words)
}

fn rate_words(rate: &RateChange) -> String {
    let what = if rate.is_goodput { "goodput" } else { "rate on the link" };
    let Both { variant, baseline } = rate.bit_per_s;
    format!("{what} {} against {} Mbit/s {}", mbit(variant), mbit(baseline), rate.direction)
}

/// Returns `; its rate up is 0.62 to 1.01 times the other's`; empty if all rates are alike.
fn carried(all: &[&Comparison]) -> String {
    let words = |direction: Direction| {
        let of = |it: &&Comparison| {
            let rate = it.rates.iter().find(|rate| rate.direction == direction);
            rate.map_or(1.0, |rate| rate.bit_per_s.variant / rate.bit_per_s.baseline)
        };
        // No share is computed if the total is zero.
        let mut shares: Vec<f64> = all.iter().map(of).filter(|it| it.is_finite()).collect();
        shares.sort_unstable_by(f64::total_cmp);
        let (low, high) = (shares.first()?, shares.last()?);
        let is_unequal = (*low, *high) != (1.0, 1.0);
        let (low, high) = (format!("{low:.2}"), format!("{high:.2}"));
        let times = if low == high { low } else { format!("{low} to {high}") };
        is_unequal.then(|| format!("; its rate {direction} is {times} times the other's"))
    };
    let is_rate = all.iter().any(|it| it.unit.starts_with("Mbit/s"));
    let both = [Direction::Up, Direction::Down].into_iter().filter(|_| !is_rate).filter_map(words);
    both.collect()
}

fn most_lost(all: &[&Comparison]) -> String {
    let lost = all.iter().filter_map(|it| it.lost_percent);
    let most = lost.map(|lost| lost.variant.max(lost.baseline)).reduce(f64::max);
    most.filter(|most| *most >= LOSS_PERCENT).map_or(String::new(), |most| {
        format!("; up to {} % of the probes were lost", significant(most))
    })
}

/// Returns the sentence on the percentile; `None` for a number without one.
fn quantile_words(all: &[&Comparison]) -> Option<String> {
    let first = all.first()?;
    let (_, quantile) = comparison::statistic(&first.metric);
    let lost = all.iter().filter_map(|it| it.lost_percent);
    let has_losses = lost.map(|lost| lost.variant.max(lost.baseline)).any(|lost| lost > 0.0);
    let (what, of, most) = if first.metric.ends_with("_of_sent") {
        let lost = "took that long or less, with the lost ones as the slowest";
        ("latencies", "probes sent", if has_losses { lost } else { "took that long or less" })
    } else {
        ("values", "values", "are that large or smaller")
    };
    match quantile? {
        Quantile::Max => Some(format!("The {what} compared are the longest of each variant")),
        Quantile::Mean => Some(format!("The {what} compared are means")),
        quantile => {
            let share = quantile.share()? * 100.0;
            Some(format!(
                "The {what} compared are {}: {} % of the {of} {most}",
                quantile.name(),
                significant(share).trim_end_matches(".0")
            ))
        }
    }
}

/// Formats a value with its unit.
fn value(value: Option<f64>, it: &Comparison) -> String {
    match it.unit.as_str() {
        "" | "MOS" => bare(value, it),
        unit => format!("{} {unit}", bare(value, it)),
    }
}

fn bare(value: Option<f64>, it: &Comparison) -> String {
    value.map_or_else(|| "unknown".to_owned(), |value| number(value, &it.unit))
}

/// Returns the parts between slashes that all names have: `bode` of `bode/lte` and `bode/subway`.
fn common<'a>(mut names: impl Iterator<Item = &'a str>) -> String {
    let Some(first) = names.next() else { return String::new() };
    let mut parts: Vec<&str> = first.split('/').collect();
    for name in names {
        let own: Vec<&str> = name.split('/').collect();
        parts.retain(|part| own.contains(part));
    }
    parts.join("/")
}

/// Returns ` (variants 57ms and 117ms)`: the part of each variant's name that is not common to all.
/// Empty if these parts are missing, equal or more than [`MOST_NAMES`].
fn where_compared(all: &[&Comparison]) -> String {
    let names = || all.iter().map(|it| it.variant.as_str());
    let shared = common(names());
    let shared: Vec<&str> = shared.split('/').collect();
    let own = |name: &str| {
        let parts: Vec<&str> = name.split('/').filter(|part| !shared.contains(part)).collect();
        parts.join("/")
    };
    let places: BTreeSet<String> = names().map(own).filter(|place| !place.is_empty()).collect();
    let is_clear = places.len() == all.len() && places.len() <= MOST_NAMES;
    let places: Vec<String> = names().map(own).collect();
    if is_clear { format!(" (variants {})", list(&places)) } else { String::new() }
}
