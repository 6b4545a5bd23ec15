//! The result in plain words, for readers who skip the table.
//!
//! The comparison that the scenario declares comes first. Then, or without one, variants are compared
//! with the run's first variant: those that differ from it in their queues or in one other setting, or
//! if no variant does, all that differ. A sentence names every setting that differs, and both rates if
//! they are unequal.

use underload_record::schema::{
    Direction, InvalidReason, Judged, LatencyMeasure, Phase, Quantile, RunRecord, TrialRecord,
    Validity, VariantLatency, VariantMetric, VariantRatio, World,
};

use crate::facts::{
    ALIKE, Certainty, LOSS_PERCENT, RatioInterval, losses, ratio_interval, unequal_rates,
};
use crate::headline;
use crate::inside;
use crate::likeness::{Alike, Difference, Like, is_same_variant};
use crate::measured::{finding_lines, findings};
use crate::phrases::{self, factor, most_lost};
use crate::published::Count;
use crate::study;
use crate::subject::{Subject, run_suffix, subjects};
use crate::words::{
    count, judged_by, judged_ms, metric_name, ms, named_metric, one_line, significant,
};
use crate::{alarms, clocks, probe_share};
use underload_store::RunData;

/// The remark on variants that differ in more than one setting.
const SEVERAL_SETTINGS: &str =
    "The variants differ in more than one setting, so no single cause can be named.";

/// Most comparisons, and most lines of applications, with a sentence each; the table has the rest.
const MOST_LINES: usize = 4;

/// Most values of an application in one sentence, beside the base's.
const MOST_VALUES: usize = 3;

/// Most comparisons after the one that a scenario declares.
const MOST_BESIDES: usize = 2;

/// Variants whose shares of lost probes differ by less than this factor lost about as many.
const LIKE_LOSSES: f64 = 3.0;
/// Ratio of two latencies from which a loss beside them changes nothing in their order.
const FAR_APART: i64 = 2;

/// Most damaged parts of a run that are listed.
const MOST_LEFT_OUT: usize = 5;

/// Returns the result in sentences: the headline, then its qualifications. Never empty.
pub fn summary_lines(runs: &[RunData]) -> Vec<String> {
    sentences(runs, &subjects(runs))
}

/// As [`summary_lines`], for subjects that the caller already has.
pub(crate) fn sentences(runs: &[RunData], subjects: &[Subject<'_>]) -> Vec<String> {
    // The verdict of a measurement says more than its variants do. Beside other runs it is compared
    // like any run.
    if let [RunData { record, .. }] = runs
        && !record.verdict.is_empty()
    {
        if let Some(findings) = findings(runs) {
            return finding_lines(&findings).iter().map(|line| one_line(line)).collect();
        }
        return record.verdict.iter().map(|line| one_line(line)).collect();
    }
    // Variants are compared within one run; runs are compared variant by variant.
    let own: Vec<&Subject<'_>> =
        subjects.iter().filter(|subject| subject.run_number == 0).collect();
    let loaded: Vec<&Subject<'_>> =
        own.iter().copied().filter(|subject| working(subject).is_some()).collect();
    let alike = Alike::new(&own).by_queues();
    let study = runs.first().map(|run| study::sentences(&run.record)).unwrap_or_default();
    let mut lines = match loaded.as_slice() {
        // A study's sentences replace those about classes that it does not compare.
        _ if !study.is_empty() => study,
        loaded => match (headline::lines(&own), loaded) {
            (Some(lines), [_, _, ..]) => lines.into_iter().chain(besides(loaded, &alike)).collect(),
            (Some(lines), _) => lines,
            (None, []) => vec![no_latency(subjects)],
            (None, [only]) => vec![single(only)],
            (None, several) => latency_lines(several, &own, &alike),
        },
    };
    lines.extend(all_lost(&own));
    let under_load = loaded.iter().filter_map(|variant| Some((*variant, working(variant)?)));
    lines.extend(inside::sentence(under_load));
    lines.extend(loaded.iter().filter_map(|variant| across_runs(variant, subjects)));
    applications(&own, &alike, &mut lines);
    let has_headline = own.first().is_some_and(|it| it.run.record.scenario.headline.is_some());
    lines.extend(sharing(&alike).filter(|_| !has_headline));
    if lines.len() > 1 && loaded.is_empty() && lines.first() == Some(&no_latency(subjects)) {
        lines.remove(0);
    }
    lines.extend(Count::new(runs.iter().flat_map(|run| &run.record.expectations)).sentence());
    lines.extend(phrases::few_trials(&own));
    lines.iter().map(|line| one_line(line)).collect()
}

/// Returns what makes the result less reliable, and faults of the path: late machines, unfinished
/// runs, flows with too many congestion marks, probes that fill a link. Empty if there are none.
pub fn warnings(runs: &[RunData]) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        let suffix = run_suffix(runs, number);
        if !run.record.complete {
            let done = count(run.record.trials.len() as u64, "trial");
            lines.push(format!(
                "The run{suffix} was cut short, or is under way; these are the {done} it finished."
            ));
        }
        for what in run.left_out.iter().take(MOST_LEFT_OUT) {
            lines.push(format!("Of the run{suffix} this is damaged and left out: {what}"));
        }
        let more = run.left_out.len().saturating_sub(MOST_LEFT_OUT);
        if more > 0 {
            lines.push(format!("Of the run{suffix} {more} more are damaged and left out."));
        }
        lines.extend(invalid(&run.record, &suffix));
        lines.extend(alarms::lines(&run.record, &suffix));
        lines.extend(clocks::line(&run.record, &suffix));
        lines.extend(probe_share::line(&run.record, &suffix));
    }
    lines.iter().map(|line| one_line(line)).collect()
}

fn invalid(record: &RunRecord, suffix: &str) -> Option<String> {
    let reasons = |trial: &TrialRecord| match &trial.validity {
        Validity::Valid => None,
        Validity::Invalid { reasons } => Some(reasons.clone()),
    };
    let invalid: Vec<Vec<InvalidReason>> = record.trials.iter().filter_map(reasons).collect();
    let first = invalid.first()?.first();
    let example = first.map(|reason| format!(", for example because {reason}")).unwrap_or_default();
    let (number, all) = (invalid.len(), count(record.trials.len() as u64, "trial"));
    let verb = if number == 1 { "is" } else { "are" };
    Some(format!(
        "{number} of {all}{suffix} {verb} invalid and left out{example}: the machine, not the \
         line, may have caused the delay. Run again on an idle machine."
    ))
}

fn no_latency(subjects: &[Subject<'_>]) -> String {
    let trials: u64 = subjects.iter().map(|subject| subject.trials().count() as u64).sum();
    match trials {
        0 => "No valid trial, so nothing can be said of the variants.".to_owned(),
        _ => format!("{}, none with a working latency.", count(trials, "valid trial")),
    }
}

/// Returns the working latency of a variant's headline probe; `None` if no answer came back.
fn working<'a>(subject: &Subject<'a>) -> Option<&'a VariantLatency> {
    let load = subject.summary.headline(Phase::Load)?;
    load.value_ns(Quantile::P50).map(|_| load)
}

/// Returns the highest quantile that both have enough samples for, and its two values. Quantiles
/// that are lost probes in both, or in one of two that lost about as many, are skipped if there is
/// another. So are those that are a lost probe in one, if the next quantile with a number in both
/// ranks the two alike and far apart: a ratio of two numbers says more than "a lost probe".
fn highest(first: &VariantLatency, other: &VariantLatency) -> Option<(Quantile, Judged, Judged)> {
    let both = |quantile| Some((quantile, first.judged(quantile)?, other.judged(quantile)?));
    let all = || Quantile::HIGHEST_FIRST.into_iter().filter_map(both);
    let losses = [first.lost_percent(), other.lost_percent()];
    let are_alike = losses[0].max(losses[1]) < LIKE_LOSSES * losses[0].min(losses[1]);
    let lost = |(_, first, other): &(Quantile, Judged, Judged)| {
        [first, other].into_iter().filter(|value| **value == Judged::Lost).count()
    };
    let number = all().find(|known| lost(known) == 0);
    let ranks_alike = |(_, lost, of_other): &(Quantile, Judged, Judged)| match number {
        Some((quantile, Judged::Answered(first), Judged::Answered(other))) => {
            let (low, high) = (first.min(other), first.max(other));
            quantile != Quantile::P50
                && high > low * FAR_APART
                && (first > other) == (lost > of_other)
        }
        _ => false,
    };
    let is_skipped = |known: &(Quantile, Judged, Judged)| match lost(known) {
        0 => false,
        1 => are_alike || ranks_alike(known),
        _ => true,
    };
    all().find(|known| !is_skipped(known)).or_else(|| all().next())
}

/// Returns the headline latency of a variant under load if all its probes were lost.
fn vanished<'a>(subject: &Subject<'a>) -> Option<&'a VariantLatency> {
    let load = subject.summary.headline(Phase::Load)?;
    (load.sent > 0 && load.lost == load.sent).then_some(load)
}

/// Returns sentences on variants whose headline probes were all lost, which no other number shows.
fn all_lost(own: &[&Subject<'_>]) -> Vec<String> {
    let line = |(subject, load): (&Subject<'_>, &VariantLatency)| {
        let of_probe = subject.of_probe(load);
        let (called, sent) = (subject.called(), count(load.sent, "probe"));
        format!("With {called} all {sent}{of_probe} under load were lost.")
    };
    let lost = || own.iter().filter_map(|subject| Some((*subject, vanished(subject)?)));
    let mut lines: Vec<String> = lost().take(MOST_LINES).map(line).collect();
    let more = lost().count().saturating_sub(MOST_LINES);
    lines.extend((more > 0).then(|| format!("So they were with {}.", count_more(more))));
    lines
}

/// Returns `12 % of its probes were lost`; `None` if the loss is negligible.
fn loss(load: &VariantLatency) -> Option<String> {
    let lost = load.lost_percent();
    (lost >= LOSS_PERCENT).then(|| format!("{} % of its probes were lost", significant(lost)))
}

fn single(only: &Subject<'_>) -> String {
    format!("With {} {}.", only.called(), own_words(only))
}

/// Describes a variant's own latency: `the working latency is 24.1 ms at p50, 1.4 times the idle
/// latency of 17.5 ms; 29 ms at p99`, and the loss. If the p50 of all probes sent is a lost probe,
/// how many were lost, and the p50 of the others.
fn own_words(subject: &Subject<'_>) -> String {
    let unknown = || "the working latency is unknown".to_owned();
    let Some(load) = working(subject) else { return unknown() };
    let both = load.value_ns(Quantile::P50).zip(load.judged(Quantile::P50));
    let Some((answered_ns, judged)) = both else { return unknown() };
    let idle = subject.summary.headline(Phase::Idle);
    let idle = idle.and_then(|idle| idle.judged(Quantile::P50)).and_then(Judged::answered_ns);
    let against_idle = |p50_ns: i64| {
        idle.map_or(String::new(), |idle| {
            format!(", {} the idle latency of {} ms", times(p50_ns, idle), ms(idle))
        })
    };
    let Some(p50_ns) = judged.answered_ns() else {
        let lost = significant(load.lost_percent());
        return format!(
            "more than half of the probes{} were lost ({lost} %); those answered took {} ms at \
             p50{}",
            subject.of_probe(load),
            ms(answered_ns),
            against_idle(answered_ns)
        );
    };
    let high = load.highest_judged().filter(|(quantile, _)| *quantile != Quantile::P50);
    let high = high.map_or(String::new(), |(quantile, value)| {
        format!("; {} at {}", judged_ms(value), judged_by(quantile, [load]))
    });
    let lost = loss(load).map_or(String::new(), |words| format!("; {words}"));
    format!(
        "the working latency{} is {} at {}{}{high}{lost}",
        subject.of_probe(load),
        judged_ms(judged),
        judged_by(Quantile::P50, [load]),
        against_idle(p50_ns)
    )
}

/// Returns the comparisons with the first variant, largest effect first.
fn comparisons<'a>(alike: &'a Alike<'a>) -> Vec<Comparison<'a>> {
    let Some(first) = alike.base else { return Vec::new() };
    let mut comparisons: Vec<Comparison<'a>> =
        alike.others.iter().filter_map(|like| Comparison::of(first, like)).collect();
    comparisons.sort_by(|a, b| b.effect().total_cmp(&a.effect()));
    comparisons
}

/// Returns a few comparisons after the one that the scenario declares, of variants that it does not
/// compare. Empty if it declares several.
fn besides(loaded: &[&Subject<'_>], alike: &Alike<'_>) -> Vec<String> {
    let record = loaded.first().map(|subject| &subject.run.record);
    let Some(headline) = record.and_then(|record| record.scenario.headline.as_ref()) else {
        return Vec::new();
    };
    let names: Vec<&str> = loaded.iter().map(|subject| subject.variant.name.as_str()).collect();
    let pairs = headline.pairs(&names);
    if pairs.len() > 1 {
        return Vec::new();
    }
    let is_told =
        |variant: &str| pairs.iter().any(|(own, other)| *own == variant && other.is_some());
    let others = comparisons(alike).into_iter();
    let others = others.filter(|comparison| !is_told(&comparison.other.variant.name));
    others.take(MOST_BESIDES).map(|comparison| comparison.sentence_with_noise()).collect()
}

/// Returns sentences about several variants with a working latency; `own` are all variants of the run.
fn latency_lines(loaded: &[&Subject<'_>], own: &[&Subject<'_>], alike: &Alike<'_>) -> Vec<String> {
    let comparisons = comparisons(alike);
    let Some(headline) = comparisons.first() else { return apart(loaded, own.len(), alike) };
    let mut lines = vec![headline.sentence()];
    lines.extend(headline.certainty());
    let told = &comparisons[..comparisons.len().min(1 + MOST_LINES)];
    lines.extend(told.iter().skip(1).map(Comparison::sentence_with_noise));
    let is_mixed = told.iter().any(|comparison| comparison.difference.is_mixed());
    lines.extend(is_mixed.then(|| SEVERAL_SETTINGS.to_owned()));
    let is_told = |variant: &Subject<'_>| {
        let both = told.iter().flat_map(|comparison| [comparison.first, comparison.other]);
        vanished(variant).is_some() || both.into_iter().any(|it| it.position == variant.position)
    };
    let untold = own.iter().filter(|variant| !is_told(variant)).count();
    lines.extend((untold > 0).then(|| match extremes(loaded, own.len()) {
        Some(words) if untold > 1 => format!("{words}. The table has {}.", count_more(untold)),
        _ => format!("The table has {}.", count_more(untold)),
    }));
    lines
}

fn count_more(variants: usize) -> String {
    if variants == 1 { "one more variant".to_owned() } else { format!("{variants} more variants") }
}

/// Returns sentences about variants that are not compared with the first: each step of a measurement,
/// otherwise their range.
fn apart(loaded: &[&Subject<'_>], all_variants: usize, alike: &Alike<'_>) -> Vec<String> {
    let is_measured = loaded.iter().all(|subject| subject.run.record.world == World::Measured);
    if is_measured {
        let line =
            |subject: &&Subject<'_>| format!("{}: {}.", subject.called(), own_words(subject));
        let mut lines: Vec<String> = loaded.iter().take(MOST_LINES).map(line).collect();
        let untold = loaded.len().saturating_sub(MOST_LINES);
        lines.extend((untold > 0).then(|| format!("The table has {}.", count_more(untold))));
        return lines;
    }
    // If there are others, settings are known and the probes have too few samples to compare.
    let why = if alike.others.is_empty() {
        ". The run does not record what the variants differ in."
    } else {
        "."
    };
    extremes(loaded, all_variants).map(|words| words + why).into_iter().collect()
}

/// Describes the lowest and the highest latency of the variants, without a full stop; `None` if the
/// variants have no quantile in common.
fn extremes(loaded: &[&Subject<'_>], all_variants: usize) -> Option<String> {
    let all = |quantile: Quantile| -> Option<Vec<(Judged, &Subject<'_>)>> {
        loaded.iter().map(|subject| Some((working(subject)?.judged(quantile)?, *subject))).collect()
    };
    let mut highest_first = Quantile::HIGHEST_FIRST.into_iter();
    let (quantile, values) = highest_first.find_map(|quantile| Some((quantile, all(quantile)?)))?;
    // Of several lost probes, the variant that lost most has the highest latency.
    let lost_percent =
        |subject: &Subject<'_>| working(subject).map_or(0.0, VariantLatency::lost_percent);
    let by_value = |a: &&(Judged, &Subject<'_>), b: &&(Judged, &Subject<'_>)| {
        a.0.cmp(&b.0).then_with(|| lost_percent(a.1).total_cmp(&lost_percent(b.1)))
    };
    let (low, lowest) = values.iter().min_by(by_value)?;
    let (high, highest) = values.iter().max_by(by_value)?;
    let of_variants = match values.len() {
        number if number == all_variants => format!("the {number} variants"),
        number => format!("the {number} variants of {all_variants} whose probes came back,"),
    };
    let lost = most_lost(loaded.iter().filter_map(|subject| working(subject)));
    Some(format!(
        "Of {of_variants} {} has the lowest working latency{}, {} at {name}, and {} the highest, \
         {}{lost}",
        lowest.called(),
        working(lowest).map_or(String::new(), |load| lowest.of_probe(load)),
        judged_ms(*low),
        highest.called(),
        judged_ms(*high),
        name = judged_by(quantile, loaded.iter().filter_map(|subject| working(subject)))
    ))
}

/// The first variant and another, by the probe whose latencies differ most.
struct Comparison<'a> {
    first: &'a Subject<'a>,
    other: &'a Subject<'a>,
    difference: &'a Difference<'a>,
    /// Latency of the compared probe in both variants.
    latencies: (&'a VariantLatency, &'a VariantLatency),
    quantile: Quantile,
    /// The compared values of both variants.
    values: (Judged, Judged),
}

impl<'a> Comparison<'a> {
    fn of(first: &'a Subject<'a>, (other, difference): &'a Like<'a>) -> Option<Self> {
        let compared = |own: &'a VariantLatency| {
            let probe = Some(own.probe.as_str());
            let others = other.summary.latency(probe, LatencyMeasure::RoundTrip, Phase::Load)?;
            let (quantile, own_value, others_value) = highest(own, others)?;
            let (latencies, values) = ((own, others), (own_value, others_value));
            Some(Self { first, other, difference, latencies, quantile, values })
        };
        let all = first.open_loop().into_iter().filter_map(compared);
        // The first of equal effects wins, and the headline probe is the first.
        all.reduce(|most, next| if next.effect() > most.effect() { next } else { most })
    }

    /// Returns the larger value divided by the smaller; infinite if one is a lost probe.
    fn effect(&self) -> f64 {
        let (first, other) = self.values;
        if first == other {
            return 1.0;
        }
        first.max(other).as_ns() / first.min(other).as_ns().max(1.0)
    }

    fn sentence(&self) -> String {
        let (first, other) = (self.first.called(), self.other.called());
        let (first_value, other_value) = self.values;
        let (own, others) = self.latencies;
        let quantile = judged_by(self.quantile, [own, others]);
        let difference = self.difference.beside(&first, &other);
        let of_probe = self.first.of_probe(own);
        let mut besides = String::new();
        let rates = phrases::rates(&unequal_rates(self.first, self.other));
        if self.values == (Judged::Lost, Judged::Lost) {
            let variant = format!("{other}{difference}");
            let rates = rates.map_or(String::new(), |words| format!("; {words}"));
            let losses = phrases::losses_alone((&variant, others), (&first, own), &of_probe);
            return format!("{losses}{rates}.");
        }
        let lost = losses(self.latencies.0, self.latencies.1)
            .map(|(first, other)| phrases::losses(other, first));
        for words in [rates, lost].into_iter().flatten() {
            besides = besides + "; " + &words;
        }
        let (first_ms, other_ms) = (judged_ms(first_value), judged_ms(other_value));
        if self.effect() < ALIKE {
            let other_ms = other_ms.trim_end_matches(" ms");
            return format!(
                "With {other}{difference} the working latency{of_probe} hardly differs from that \
                 with {first}: {other_ms} against {first_ms} at {quantile}{besides}."
            );
        }
        let than = if other_value < first_value { "lower" } else { "higher" };
        let times = match self.effect() {
            effect if effect.is_finite() => format!(", {} times {than}", factor(effect)),
            _ => String::new(),
        };
        format!(
            "With {other}{difference} the working latency{of_probe} is {other_ms} at \
             {quantile} against {first_ms} with {first}{times}{besides}."
        )
    }

    /// Returns the sentence, followed by a remark if the difference is within the noise of repeats.
    fn sentence_with_noise(&self) -> String {
        let is_noise = self.effect() >= ALIKE && self.interval().is_some_and(|it| it.is_noise());
        let noise = if is_noise { " That is within the noise of repeats." } else { "" };
        self.sentence() + noise
    }

    fn interval(&self) -> Option<RatioInterval> {
        let (first, other) = self.latencies;
        ratio_interval((self.first, first), (self.other, other), self.quantile)
    }

    fn certainty(&self) -> Option<String> {
        let (first, other) = self.latencies;
        let known =
            Certainty::of_latencies((self.first, first), (self.other, other), self.quantile);
        known.as_ref().map(phrases::certainty)
    }
}

/// Compares a variant with the same variant in other runs of its scenario, such as a live run.
fn across_runs(variant: &Subject<'_>, all: &[Subject<'_>]) -> Option<String> {
    let load = working(variant)?;
    let p50 = load.judged(Quantile::P50)?;
    let words = |load: &VariantLatency, p50: Judged, change: String| {
        let p99 = load.judged(Quantile::P99);
        let p99 = p99.map_or(String::new(), |p99| {
            let value = judged_ms(p99);
            format!(", {} at {}", value.trim_end_matches(" ms"), judged_by(Quantile::P99, [load]))
        });
        let lost = loss(load).map_or(String::new(), |words| format!(", {words}"));
        let by = judged_by(Quantile::P50, [load]);
        format!("{} at {by}{change}{p99}{lost}", judged_ms(p50))
    };
    let same = |other: &&Subject<'_>| {
        other.run_number != variant.run_number && is_same_variant(variant, other)
    };
    let line = |other: &Subject<'_>| {
        if let Some(load) = vanished(other) {
            return Some(format!("{} lost all {}", other.name, count(load.sent, "probe")));
        }
        let load = working(other)?;
        let others = load.judged(Quantile::P50)?;
        let both = p50.answered_ns().zip(others.answered_ns());
        let change = both.map_or(String::new(), |(own, others)| {
            let change = (others as f64 / (own as f64).max(1.0) - 1.0) * 100.0;
            format!(" ({} %)", signed_percent(change))
        });
        Some(format!("{} {}", other.name, words(load, others, change)))
    };
    let others: Vec<String> = all.iter().filter(same).filter_map(line).take(MOST_LINES).collect();
    (!others.is_empty()).then(|| {
        format!("{} {}; {}.", variant.name, words(load, p50, String::new()), others.join("; "))
    })
}

/// Adds a number of each application by which it is judged: of the base and of the variant that differs
/// most from it; without comparable variants the smallest and the largest.
fn applications(own: &[&Subject<'_>], alike: &Alike<'_>, lines: &mut Vec<String>) {
    if let [only] = own {
        let numbers = firsts(only).into_iter().take(MOST_LINES);
        let numbers = numbers.map(|metric| bad_moments(metric, own));
        lines
            .extend(numbers.map(|metric| format!("{}: {}.", metric.flow, with_most(only, metric))));
        return;
    }
    // Numbers of a measured line do not differ by step.
    if own.iter().all(|subject| subject.run.record.world == World::Measured) {
        return;
    }
    let headline = own.first().and_then(|it| it.run.record.scenario.headline.as_ref());
    let is_told = |metric: &VariantMetric| {
        headline.is_some_and(|it| it.metric == format!("{}/{}", metric.flow, metric.name))
    };
    let mut flows: Vec<&str> = Vec::new();
    for metric in own.iter().flat_map(|subject| firsts(subject)) {
        if flows.contains(&&*metric.flow) || flows.len() == MOST_LINES {
            continue;
        }
        flows.push(&metric.flow);
        let line = match unlike(&metric.flow, alike) {
            Some(line) => Some(line),
            None => {
                let metric = bad_moments(metric, own);
                if is_told(metric) {
                    continue;
                }
                compared(metric, own, alike, lines).or_else(|| spread(metric, own))
            }
        };
        lines.extend(line);
    }
}

/// Returns a sentence on an application of which the base and a variant have different numbers, such
/// as one that loaded no page.
fn unlike(flow: &str, alike: &Alike<'_>) -> Option<String> {
    let base = alike.base?;
    let of = |subject: &Subject<'_>| {
        let mut numbers = firsts(subject).into_iter();
        let own = numbers.find(|metric| metric.flow == flow)?;
        Some((own.name.clone(), format!("{} with {}", with_most(subject, own), subject.called())))
    };
    let (name, first) = of(base)?;
    let mut others = alike.others.iter().filter_map(|(subject, _)| of(subject));
    let (_, other) = others.find(|(other, _)| *other != name)?;
    Some(format!("{flow}: {first}, {other}."))
}

fn firsts<'a>(subject: &Subject<'a>) -> Vec<&'a VariantMetric> {
    let applications = subject.applications().into_iter();
    applications.filter_map(|(_, metrics)| metrics.first().copied()).collect()
}

fn is_same_number(one: &VariantMetric, other: &VariantMetric) -> bool {
    one.flow == other.flow && one.name == other.name
}

/// Returns the 99th percentile that belongs to a median if every variant has it, else the metric.
fn bad_moments<'a>(metric: &'a VariantMetric, own: &[&Subject<'a>]) -> &'a VariantMetric {
    let high = |subject: &Subject<'a>| statistic_of(subject, metric, "p99");
    let with_median = own.iter().filter(|subject| number_of(subject, metric).is_some());
    let all: Option<Vec<&VariantMetric>> = with_median.map(|subject| high(subject)).collect();
    all.and_then(|all| all.first().copied()).unwrap_or(metric)
}

/// Returns another statistic of a median, such as `p99`.
fn statistic_of<'a>(
    subject: &Subject<'a>,
    metric: &VariantMetric,
    statistic: &str,
) -> Option<&'a VariantMetric> {
    let stem = metric.name.strip_suffix("_p50").unwrap_or(&metric.name);
    let name = format!("{stem}_{statistic}");
    let mut metrics = subject.summary.metrics.iter();
    metrics.find(|other| other.flow == metric.flow && other.name == name)
}

/// Formats a number with the maximum that belongs to it, if it is a median: `round trip p50 209 ms
/// (at most 241 ms)`.
fn with_most(subject: &Subject<'_>, metric: &VariantMetric) -> String {
    if metric.name == "pages_loaded" && metric.value.mean == 0.0 {
        return "no page loaded".to_owned();
    }
    if has_no_picture(subject, metric) {
        return "no picture".to_owned();
    }
    let words = named_metric(metric, &spoken_name(metric));
    match statistic_of(subject, metric, "max") {
        Some(most) if without_name(most) != without_name(metric) => {
            format!("{words} (at most {})", without_name(most))
        }
        _ => words,
    }
}

/// Whether a delay of pictures is of an application that showed none. Each of its pictures counts
/// with its age at the end, so the delay is that of the load.
fn has_no_picture(subject: &Subject<'_>, metric: &VariantMetric) -> bool {
    let is_blank = |other: &VariantMetric| {
        other.flow == metric.flow && other.name == "frame_rate" && other.value.mean == 0.0
    };
    metric.name.starts_with("glass_to_glass") && subject.summary.metrics.iter().any(is_blank)
}

fn number_of<'a>(subject: &Subject<'a>, metric: &VariantMetric) -> Option<&'a VariantMetric> {
    subject.summary.metrics.iter().find(|other| is_same_number(other, metric))
}

/// Compares the number of the base with the one that differs most from it. Leaves out what the
/// lines in `known` already have.
fn compared(
    metric: &VariantMetric,
    own: &[&Subject<'_>],
    alike: &Alike<'_>,
    known: &[String],
) -> Option<String> {
    let first = alike.base?;
    let base = number_of(first, metric)?;
    let apart = |other: &VariantMetric| (other.value.mean - base.value.mean).abs();
    let numbers = alike.others.iter().filter_map(|like| Some((like, number_of(like.0, metric)?)));
    let ((other, difference), most) = numbers.max_by(|a, b| apart(a.1).total_cmp(&apart(b.1)))?;
    let (low, high) = (with_most(first, base), with_most(other, most));
    let (flow, base, others) = (&metric.flow, first.called(), other.called());
    let numbers = || own.iter().filter_map(|subject| number_of(subject, metric));
    let maxima: Vec<&VariantMetric> =
        own.iter().filter_map(|subject| statistic_of(subject, metric, "max")).collect();
    let medians: Vec<&VariantMetric> = numbers().collect();
    if low == high {
        let mut all = own.iter().filter_map(|it| Some(with_most(it, number_of(it, metric)?)));
        if all.all(|words| words == low) {
            return Some(format!("{flow}: {low} in every variant."));
        }
    }
    let is_shown = !own.iter().any(|subject| has_no_picture(subject, metric));
    if is_shown && medians.len() == own.len() && are_alike(&medians) && are_alike(&maxima) {
        return Some(format!("{flow}: {low} in every variant, within 10 %."));
    }
    if low == high {
        return Some(format!(
            "{flow}: {low} with {base} and with each variant that is compared with it."
        ));
    }
    let news = |text: String| {
        if known.iter().any(|line| line.contains(&text)) { String::new() } else { text }
    };
    let has_name = low.starts_with(&spoken_name(metric));
    let short = |words: &str| {
        if has_name { without_own_name(metric, words) } else { words.to_owned() }
    };
    if (2..=MOST_VALUES).contains(&alike.others.len()) {
        let words = |(other, difference): &Like<'_>| {
            let value = short(&with_most(other, number_of(other, metric)?));
            let called = other.called();
            Some(format!("{value} with {called}{}", news(difference.beside(&base, &called))))
        };
        let values: Vec<String> = alike.others.iter().filter_map(words).collect();
        return Some(format!("{flow}: {low} with {base}, {}.", values.join(", ")));
    }
    let rates = phrases::rates(&unequal_rates(first, other));
    let rates = rates.map_or(String::new(), |rates| format!("; {rates}"));
    let (difference, rates) = (news(difference.beside(&base, &others)), news(rates));
    let high = short(&high);
    Some(format!("{flow}: {low} with {base}, {high} with {others}{difference}{rates}."))
}

/// Whether times are equal for a person: the longest is less than [`ALIKE`] times the shortest.
fn are_alike(numbers: &[&VariantMetric]) -> bool {
    let values = || numbers.iter().map(|number| number.value.mean);
    let is_time = numbers.iter().all(|number| matches!(number.unit.as_str(), "ms" | "s"));
    let (low, high) = (values().reduce(f64::min), values().reduce(f64::max));
    is_time && low.zip(high).is_none_or(|(low, high)| high < low * ALIKE)
}

fn spoken_name(metric: &VariantMetric) -> String {
    match metric.name.as_str() {
        "mos" => "quality (MOS, 1 to 5)".to_owned(),
        name => metric_name(name),
    }
}

/// Returns `64.2 ms` for `camera to screen p50 64.2 ms`.
fn without_name(metric: &VariantMetric) -> String {
    without_own_name(metric, &named_metric(metric, &spoken_name(metric)))
}

/// Returns `words` without the name of the metric at their start.
fn without_own_name(metric: &VariantMetric, words: &str) -> String {
    words.strip_prefix(&spoken_name(metric)).unwrap_or(words).trim_start().to_owned()
}

/// Compares how two groups of flows share a direction: with the base, and with the variant in which the
/// ratio differs most; `None` without two groups.
fn sharing(alike: &Alike<'_>) -> Option<String> {
    let base = alike.base?;
    let of = |subject: &Subject<'_>, direction| {
        subject.summary.throughput(direction)?.ratios.first().cloned()
    };
    let mut directions = [Direction::Up, Direction::Down].into_iter();
    let (direction, own) = directions.find_map(|it| Some((it, of(base, it)?)))?;
    let apart =
        |ratio: &VariantRatio| (ratio.value.mean.max(1e-9) / own.value.mean.max(1e-9)).ln().abs();
    let others = alike.others.iter().filter_map(|(other, _)| Some((other, of(other, direction)?)));
    let others = others.filter(|(_, ratio)| ratio.flow == own.flow && ratio.over == own.over);
    let (other, most) = others.max_by(|a, b| apart(&a.1).total_cmp(&apart(&b.1)))?;
    if apart(&most) < ALIKE.ln() {
        return None;
    }
    Some(format!(
        "{} has {} times the goodput {direction} of {} with {}, {} times with {}.",
        own.flow,
        significant(own.value.mean),
        own.over,
        base.called(),
        significant(most.value.mean),
        other.called()
    ))
}

fn spread(metric: &VariantMetric, own: &[&Subject<'_>]) -> Option<String> {
    let numbers = || own.iter().filter_map(|subject| number_of(subject, metric));
    let by_mean = |a: &&VariantMetric, b: &&VariantMetric| a.value.mean.total_cmp(&b.value.mean);
    let (low, high) = (numbers().min_by(by_mean)?, numbers().max_by(by_mean)?);
    let variants = count(numbers().count() as u64, "variant");
    let (flow, name) = (&metric.flow, spoken_name(metric));
    let (least, most) = (significant(low.value.mean), without_name(high));
    Some(format!("{flow}: {name} from {least} to {most} over {variants}."))
}

/// Formats a percentage with its sign; `0` if it rounds to 0.
fn signed_percent(change: f64) -> String {
    if change.abs() < 0.5 { "0".to_owned() } else { format!("{change:+.0}") }
}

fn times(value: i64, of: i64) -> String {
    match value as f64 / (of as f64).max(1.0) {
        ratio if ratio * ALIKE <= 1.0 => "lower than".to_owned(),
        ratio if ratio < ALIKE => "about".to_owned(),
        ratio => format!("{} times", factor(ratio)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_below_the_idle_latency_is_lower() {
        let cases = [(68, "lower than"), (146, "lower than"), (147, "about"), (177, "about")];
        for (value, words) in cases.into_iter().chain([(178, "1.1 times"), (3907, "24 times")]) {
            assert_eq!(times(value, 161), words, "{value}");
        }
    }
}
