//! The result in plain words, for readers who skip the table: the comparisons of the variants first,
//! then what their applications got.

use std::collections::BTreeMap;

use underload_record::comparison::{Comparison, Verdict};
use underload_record::judgement::Suitability;
use underload_record::schema::{
    Direction, Judged, Phase, Quantile, RunRecord, TrialRecord, Validity, VariantLatency,
    VariantMetric, World,
};

use crate::claims::{self, LOSS_PERCENT, Sentence};
use crate::measured::{finding_lines, findings, grade_lines};
use crate::published::Count;
use crate::study;
use crate::subject::{Subject, run_suffix, subjects};
use crate::words::{
    count, factor, judged_by, judged_ms, metric_name, ms, named_metric, one_line, significant,
};
use crate::{across, alarms, clocks, inside, overload, probe_share, unfilled};
use underload_store::RunData;

/// Maximum number of lines of applications; the table has the rest.
const MOST_LINES: usize = 6;

/// Maximum number of variants whose numbers of an application are listed; of more, the lowest and
/// the highest.
const MOST_VALUES: usize = 6;

/// Maximum number of sentences on applications that become worse.
const MOST_WORSENED: usize = 3;

/// Maximum number of damaged parts of a run in the list.
const MOST_LEFT_OUT: usize = 5;

/// Times within this ratio are equal for a person.
const ALIKE: f64 = 1.1;

/// Returns the result in sentences. Never empty.
pub fn summary_lines(runs: &[RunData]) -> Vec<String> {
    summary(runs).into_iter().map(|sentence| sentence.text).collect()
}

/// As [`summary_lines`], with the claims that the sentences state.
pub fn summary(runs: &[RunData]) -> Vec<Sentence> {
    sentences(runs, &subjects(runs))
}

/// As [`summary`], for subjects that the caller already has.
pub(crate) fn sentences(runs: &[RunData], subjects: &[Subject<'_>]) -> Vec<Sentence> {
    let mut all = all_sentences(runs, subjects);
    for sentence in &mut all {
        sentence.text = one_line(&sentence.text);
    }
    all
}

fn all_sentences(runs: &[RunData], subjects: &[Subject<'_>]) -> Vec<Sentence> {
    // A single measurement is shown by its judgement, which has more detail than its variants.
    // Several runs are compared by their variants.
    if let [RunData { record, .. }] = runs
        && !record.verdict.is_empty()
    {
        let lines = findings(runs).map(|findings| finding_lines(&findings));
        return plain(lines.unwrap_or_else(|| record.verdict.clone()));
    }
    // Variants are compared within one run; runs are compared variant by variant.
    let own: Vec<&Subject<'_>> =
        subjects.iter().filter(|subject| subject.run_number == 0).collect();
    let loaded: Vec<&Subject<'_>> =
        own.iter().copied().filter(|subject| working(subject).is_some()).collect();
    let study = runs.first().map(|run| study::sentences(&run.record)).unwrap_or_default();
    let mut all = plain(study);
    if all.is_empty() {
        all = claims::sentences(&own);
    }
    let is_compared = !all.is_empty();
    if is_compared {
        all.extend(plain(worsened(&own)));
    } else {
        all.extend(plain(apart(&loaded)));
        all.extend(plain(own.iter().filter_map(|subject| all_lost(subject))));
    }
    let under_load = loaded.iter().filter_map(|variant| Some((*variant, working(variant)?)));
    all.extend(inside::sentence(under_load).map(Sentence::plain));
    all.extend(claims::of_later_runs(&own, &across::comparisons(subjects)));
    all.extend(plain(applications(&own)));
    all.extend(plain(sharing(&own)));
    if all.is_empty() {
        all.push(Sentence::plain(no_latency(subjects)));
    }
    if !is_compared {
        all.extend(plain(without_latency(&own)));
    }
    let published = Count::new(runs.iter().flat_map(|run| &run.record.expectations)).sentence();
    all.extend(published.map(Sentence::plain));
    // The file of another tool: the other sentences have its numbers.
    let graded = findings(runs).map(|findings| grade_lines(&findings)).unwrap_or_default();
    let overloaded = runs.iter().take(1).flat_map(|run| overload::sentences(&run.record));
    plain(overloaded.chain(graded)).into_iter().chain(all).collect()
}

fn plain(lines: impl IntoIterator<Item = String>) -> Vec<Sentence> {
    lines.into_iter().map(Sentence::plain).collect()
}

/// Returns what makes the result less reliable, and faults of the path: late machines, unfinished
/// runs, flows with too many congestion marks, probes that fill a link. Empty if there are none.
pub fn warnings(runs: &[RunData]) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        let suffix = run_suffix(runs, number);
        if !run.record.complete {
            let done = count(run.record.trials.len(), "trial");
            lines.push(format!(
                "The run{suffix} was cut short, or is under way; these are the {done} it finished."
            ));
        }
        for what in run.left_out.iter().take(MOST_LEFT_OUT) {
            lines.push(format!("A part of the run{suffix} is damaged and left out: {what}"));
        }
        let more = run.left_out.len().saturating_sub(MOST_LEFT_OUT);
        if more > 0 {
            lines.push(format!("Of the run{suffix} {more} more parts are damaged and left out."));
        }
        lines.extend(invalid(&run.record, &suffix));
        lines.extend(alarms::lines(&run.record, &suffix));
        lines.extend(clocks::line(&run.record, &suffix));
        lines.extend(probe_share::line(&run.record, &suffix));
        lines.extend(unfilled::line(&run.record, &suffix));
        lines.extend(unknown_load(&run.record, &suffix));
    }
    lines.iter().map(|line| one_line(line)).collect()
}

/// Says that the file of a tool that only probes does not tell whether the line was busy.
fn unknown_load(record: &RunRecord, suffix: &str) -> Option<String> {
    let is_only_idle = |trial: &TrialRecord| {
        let mut phases = trial.phases.iter().map(|window| window.phase);
        trial.finding.is_none() && phases.next() == Some(Phase::Idle) && phases.next().is_none()
    };
    let is_unknown = record.world == World::Measured
        && !record.trials.is_empty()
        && record.trials.iter().all(is_only_idle);
    let tool = &record.scenario.name;
    is_unknown.then(|| {
        format!(
            "The file of {tool}{suffix} does not say whether the line was busy: its round trips count \
             as idle, and are the latency under load if it was."
        )
    })
}

fn invalid(record: &RunRecord, suffix: &str) -> Option<String> {
    let invalid: Vec<&Validity> =
        record.trials.iter().map(|trial| &trial.validity).filter(|it| !it.is_valid()).collect();
    let reasons = invalid.first()?.reasons_in_words();
    let example = reasons.first().map(|reason| match invalid.len() {
        1 => format!(", because {reason}"),
        _ => format!(", for example because {reason}"),
    });
    let example = example.unwrap_or_default();
    let (number, all) = (invalid.len(), count(record.trials.len(), "trial"));
    let verb = if number == 1 { "is" } else { "are" };
    let cure = if invalid.iter().any(|it| it.is_busy_machine()) {
        " The machine, not the line, may have caused the delay: run again on an idle machine."
    } else {
        ""
    };
    Some(format!("{number} of {all}{suffix} {verb} invalid and left out{example}.{cure}"))
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

/// Returns the headline latency of a variant under load if all its probes were lost.
fn vanished<'a>(subject: &Subject<'a>) -> Option<&'a VariantLatency> {
    let load = subject.summary.headline(Phase::Load)?;
    (load.sent > 0 && load.lost == load.sent).then_some(load)
}

/// Returns a sentence on a variant whose headline probes were all lost, which no other number shows.
fn all_lost(subject: &Subject<'_>) -> Option<String> {
    let load = vanished(subject)?;
    let (called, sent) = (subject.called(), count(load.sent, "probe"));
    Some(format!("With {called} all {sent}{} under load were lost.", subject.of_probe(load)))
}

/// Names the variants without a working latency, if others have one or lost all their probes.
fn without_latency(own: &[&Subject<'_>]) -> Option<String> {
    let is_without =
        |subject: &&&Subject<'_>| working(subject).is_none() && vanished(subject).is_none();
    let names: Vec<String> = own.iter().filter(is_without).map(|it| it.called()).collect();
    // Steps of a measured line may have no load.
    let is_measured = own.first()?.run.record.world == World::Measured;
    let is_told = !is_measured && !names.is_empty() && names.len() < own.len();
    is_told.then(|| format!("Without a working latency: {}.", crate::words::list(&names)))
}

/// Returns `12 % of the probes were lost`; `None` if the loss is negligible.
fn loss(load: &VariantLatency) -> Option<String> {
    let lost = load.lost_percent();
    (lost >= LOSS_PERCENT).then(|| format!("{} % of the probes were lost", significant(lost)))
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
    let high = load.highest_judged();
    let high = high.filter(|(quantile, it)| *quantile != Quantile::P50 && *it != Judged::Lost);
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

/// Returns a sentence on each variant or step that is not compared with another.
fn apart(loaded: &[&Subject<'_>]) -> Vec<String> {
    let Some(first) = loaded.first() else { return Vec::new() };
    if let [only] = loaded {
        return vec![single(only)];
    }
    let line = |subject: &&Subject<'_>| format!("{}: {}.", subject.called(), own_words(subject));
    let mut lines: Vec<String> = loaded.iter().take(MOST_VALUES).map(line).collect();
    let more = loaded.len().saturating_sub(MOST_VALUES);
    lines.extend((more > 0).then(|| format!("The table has {}.", count(more, "more variant"))));
    if first.run.record.world != World::Measured {
        lines.push("The run does not record what the variants differ in.".to_owned());
    }
    lines
}

/// Returns a sentence on a number of each application by which it is judged, with that of every variant.
fn applications(own: &[&Subject<'_>]) -> Vec<String> {
    // Numbers of a measured line do not differ by step.
    if own.len() > 1 && own.iter().all(|subject| subject.run.record.world == World::Measured) {
        return Vec::new();
    }
    let compared = own.first().and_then(|it| it.run.record.comparisons.first());
    let is_compared = |metric: &VariantMetric| {
        compared.is_some_and(|it| {
            it.metric == format!("{}/{}", metric.flow, metric.name)
                && it.verdict != Verdict::NotMeasured
        })
    };
    let mut flows: Vec<&VariantMetric> = Vec::new();
    for metric in own.iter().flat_map(|subject| firsts(subject)) {
        if !flows.iter().any(|known| known.flow == metric.flow) {
            flows.push(metric);
        }
    }
    let more = flows.len().saturating_sub(MOST_LINES);
    let more = (more > 0).then(|| format!("The table has {}.", count(more, "more application")));
    let flows = flows.into_iter().take(MOST_LINES).map(|metric| bad_moments(metric, own));
    let flows: Vec<&VariantMetric> = flows.filter(|metric| !is_compared(metric)).collect();
    let is_mean = |metric: &&VariantMetric| {
        let statistic = metric.name.rsplit('_').next().and_then(|it| it.strip_prefix('p'));
        let is_percentile = statistic.is_some_and(|it| it.parse::<f64>().is_ok());
        metric.value.repeats > 1 && is_percentile
    };
    let means = flows
        .iter()
        .copied()
        .any(|metric| is_mean(&metric))
        .then(|| "Percentiles of applications are means of those of the trials.".to_owned());
    flows.into_iter().map(|metric| application(metric, own)).chain(more).chain(means).collect()
}

fn application(metric: &VariantMetric, own: &[&Subject<'_>]) -> String {
    let flow = &metric.flow;
    // A variant may have other numbers, such as one that loaded no page.
    let of = |subject: &Subject<'_>| {
        let mut numbers = firsts(subject).into_iter();
        let known =
            number_of(subject, metric).or_else(|| numbers.find(|number| number.flow == *flow))?;
        Some((subject.called(), with_most(subject, known), known.value.mean))
    };
    let values: Vec<(String, String, f64)> = own.iter().filter_map(|it| of(it)).collect();
    let numbers: Vec<&VariantMetric> =
        own.iter().filter_map(|subject| number_of(subject, metric)).collect();
    let maxima: Vec<&VariantMetric> =
        own.iter().filter_map(|subject| statistic_of(subject, metric, "max")).collect();
    let Some(((name, first, _), others)) = values.split_first() else { return String::new() };
    let is_shown = !own.iter().any(|subject| has_no_picture(subject, metric));
    let are_alike = are_alike(&numbers) && are_alike(&maxima);
    if others.is_empty() && own.len() == 1 {
        format!("{flow}: {first}.")
    } else if values.len() == own.len() && others.iter().all(|(_, words, _)| words == first) {
        format!("{flow}: {first} in every variant.")
    } else if is_shown && own.len() > 2 && numbers.len() == own.len() && are_alike {
        format!("{flow}: {first} with {name}; every other variant is within 10 % of that.")
    } else {
        let has_value =
            |subject: &&&Subject<'_>| values.iter().any(|(name, ..)| *name == subject.called());
        let others = own.iter().filter(|subject| !has_value(subject)).map(|it| it.called());
        let others: Vec<String> = others.collect();
        let without = match others.len() {
            0 => String::new(),
            few if few <= MOST_VALUES => {
                format!("; without a value with {}", crate::words::list(&others))
            }
            many => format!("; without a value with {many} variants"),
        };
        format!("{flow}: {}{without}.", list(&spoken_name(metric), &values))
    }
}

/// Lists the value of each variant, or of many the lowest and the highest. The name of the number is
/// only at the first.
fn list(name: &str, values: &[(String, String, f64)]) -> String {
    let with = |(called, words, _): &(String, String, f64)| format!("{words} with {called}");
    if values.len() <= MOST_VALUES {
        let shortened = |(position, value): (usize, &(String, String, f64))| match position {
            0 => with(value),
            _ => with(value).trim_start_matches(name).trim_start().to_owned(),
        };
        return values.iter().enumerate().map(shortened).collect::<Vec<_>>().join(", ");
    }
    let by_value = |a: &&(String, String, f64), b: &&(String, String, f64)| a.2.total_cmp(&b.2);
    let (low, high) = (values.iter().min_by(by_value), values.iter().max_by(by_value));
    let bare = |value: Option<&(String, String, f64)>| {
        let words = value.map(with).unwrap_or_default();
        words.trim_start_matches(name).trim_start().to_owned()
    };
    let gap = if name.is_empty() { "" } else { " " };
    format!("{name}{gap}from {} to {}, of {} variants", bare(low), bare(high), values.len())
}

fn firsts<'a>(subject: &Subject<'a>) -> Vec<&'a VariantMetric> {
    let applications = subject.applications().into_iter();
    applications.filter_map(|(_, metrics)| metrics.first().copied()).collect()
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
    let most = statistic_of(subject, metric, "max");
    let most = most.filter(|most| without_name(most) != without_name(metric));
    let most = most.map(|most| format!("longest {}", without_name(most)));
    let means = metric.suits.map(|it| it.name().to_owned());
    let brackets: Vec<String> = means.into_iter().chain(most).collect();
    if brackets.is_empty() { words } else { format!("{words} ({})", brackets.join(", ")) }
}

/// Says which applications a variant makes worse for their users although its latency is lower.
fn worsened(own: &[&Subject<'_>]) -> Vec<String> {
    let Some(first) = own.first() else { return Vec::new() };
    let of_one = |it: &Comparison| {
        let named = |name: &str| own.iter().find(|subject| subject.variant.name == name);
        let is_better = it.verdict == Verdict::Lower && it.unit == "ms";
        let (Some(before), Some(after), true) =
            (named(&it.baseline), named(&it.variant), is_better)
        else {
            return Vec::new();
        };
        let mut flows: BTreeMap<(Suitability, Suitability), Vec<String>> = BTreeMap::new();
        for old in &before.summary.metrics {
            let new = number_of(after, old).and_then(|new| new.suits);
            if let (Some(old_means), Some(new)) = (old.suits, new)
                && new > old_means
            {
                flows.entry((new, old_means)).or_default().push(old.flow.clone());
            }
        }
        let worse = |((new, old), flows): ((Suitability, Suitability), Vec<String>)| {
            let verb = if flows.len() == 1 { "is" } else { "are" };
            let (after, before) = (after.called(), before.called());
            let names = crate::words::list(&flows);
            format!(
                "But with {after} {names} {verb} {}, and {} with {before}.",
                new.name(),
                old.name()
            )
        };
        flows.into_iter().map(worse).collect::<Vec<String>>()
    };
    let comparisons = &first.run.record.comparisons;
    comparisons.iter().flat_map(of_one).take(MOST_WORSENED).collect()
}

/// Whether a delay of pictures belongs to an application that showed none. Each of its pictures
/// counts with its age at the end, so this delay measures the length of the load.
fn has_no_picture(subject: &Subject<'_>, metric: &VariantMetric) -> bool {
    let is_blank = |other: &VariantMetric| {
        other.flow == metric.flow && other.name == "frame_rate" && other.value.mean == 0.0
    };
    metric.name.starts_with("glass_to_glass") && subject.summary.metrics.iter().any(is_blank)
}

fn number_of<'a>(subject: &Subject<'a>, metric: &VariantMetric) -> Option<&'a VariantMetric> {
    subject
        .summary
        .metrics
        .iter()
        .find(|other| other.flow == metric.flow && other.name == metric.name)
}

/// Whether times are equal for a person: the longest is less than [`ALIKE`] times the shortest.
fn are_alike(numbers: &[&VariantMetric]) -> bool {
    let values = || numbers.iter().map(|number| number.of_variant());
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

/// Returns `64.2 ms` for `camera-to-screen delay p50 64.2 ms`.
fn without_name(metric: &VariantMetric) -> String {
    let name = spoken_name(metric);
    let words = named_metric(metric, &name);
    words.strip_prefix(&name).unwrap_or(&words).trim_start().to_owned()
}

/// Says how two groups of flows share a direction in each variant; `None` without two groups, or if the
/// scenario compares something else.
fn sharing(own: &[&Subject<'_>]) -> Option<String> {
    let first = own.first()?;
    if own.len() < 2 || first.run.record.scenario.headline.is_some() {
        return None;
    }
    let of = |subject: &Subject<'_>, direction| {
        subject.summary.throughput(direction)?.ratios.first().cloned()
    };
    let mut directions = [Direction::Up, Direction::Down].into_iter();
    let (direction, ratio) = directions.find_map(|it| Some((it, of(first, it)?)))?;
    let value = |subject: &&Subject<'_>| {
        let own = of(subject, direction)?;
        let is_same = own.flow == ratio.flow && own.over == ratio.over;
        is_same.then(|| (subject.called(), significant(own.value.mean), own.value.mean))
    };
    let values: Vec<(String, String, f64)> = own.iter().filter_map(value).collect();
    let all = || values.iter().map(|(.., value)| value.max(1e-9));
    let (low, high) = (all().reduce(f64::min)?, all().reduce(f64::max)?);
    let words = list("", &values);
    (high >= low * ALIKE).then(|| {
        let (flow, over) = (&ratio.flow, &ratio.over);
        let load = if direction == Direction::Up { "Upload" } else { "Download" };
        format!(
            "{load} goodput of {flow} divided by that of {over} (1 is an equal share): {words}."
        )
    })
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
