//! The result in plain words, for people who will not read the table.

use std::collections::BTreeSet;

use crate::RunData;
use crate::schema::{
    ArmMetric, Direction, InvalidReason, Phase, Quantile, RunRecord, TrialRecord, Validity, Verdict,
};
use crate::stats::hodges_lehmann_ratio;
use crate::subject::{Subject, run_suffix, subjects};
use crate::summarise::CONFIDENCE;
use crate::words::{count, mbit, metric_words, ms, significant};

/// Ratios closer to 1 than this are called alike.
const ALIKE: f64 = 1.1;

/// Arms between the best and the worst that get a sentence each; more are left to the table.
const MOST_LINES: usize = 4;

/// Damaged parts of a run that are named one by one.
const MOST_LEFT_OUT: usize = 5;

/// Repeats per arm from which an interval is worth printing.
const FEW_REPEATS: usize = 5;

/// The result in sentences: first the headline, then what qualifies it. Never empty.
pub fn summary_lines(runs: &[RunData]) -> Vec<String> {
    let subjects = subjects(runs);
    let loaded: Vec<Measured<'_>> = subjects.iter().filter_map(Measured::of).collect();
    // Arms are compared within one run; runs are compared arm by arm.
    let first_run = loaded.first().map(|first| &first.subject.run.record);
    let within = |arm: &&Measured<'_>| {
        first_run.is_some_and(|first| std::ptr::eq(&raw const arm.subject.run.record, first))
    };
    let first_arms: Vec<&Measured<'_>> = loaded.iter().filter(within).collect();
    let mut lines = match first_arms.as_slice() {
        [] => vec![no_latency(&subjects)],
        [only] => vec![single(only)],
        _ => comparisons(&first_arms),
    };
    lines.extend(first_arms.iter().filter_map(|arm| across_runs(arm, &loaded)));
    lines.extend(applications(&subjects));
    lines.extend(expectations(runs));
    lines
}

/// What keeps the result from being believed: late machines, unfinished runs. Empty when nothing
/// does.
pub fn warnings(runs: &[RunData]) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        let suffix = run_suffix(runs, number);
        if !run.record.complete {
            let done = count(run.record.trials.len() as u64, "trial");
            lines.push(format!("The run{suffix} was cut short; these are the {done} it finished."));
        }
        for what in run.left_out.iter().take(MOST_LEFT_OUT) {
            lines.push(format!("Of the run{suffix} this is damaged and left out: {what}"));
        }
        let more = run.left_out.len().saturating_sub(MOST_LEFT_OUT);
        if more > 0 {
            lines.push(format!("Of the run{suffix} {more} more are damaged and left out."));
        }
        lines.extend(invalid(&run.record, &suffix));
    }
    lines
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
        "{number} of {all}{suffix} {verb} invalid and left out{example}: the machine, not the line, \
         may have caused the delay. Run again on an idle machine."
    ))
}

/// An arm with a working latency.
struct Measured<'a> {
    subject: &'a Subject<'a>,
    p50_ns: u64,
    p99_ns: u64,
    idle_p50_ns: Option<u64>,
}

impl<'a> Measured<'a> {
    fn of(subject: &'a Subject<'a>) -> Option<Measured<'a>> {
        let load = subject.summary.headline(Phase::Load)?;
        let idle = subject.summary.headline(Phase::Idle);
        Some(Measured {
            subject,
            p50_ns: load.value_ns(Quantile::P50)?,
            p99_ns: load.value_ns(Quantile::P99)?,
            idle_p50_ns: idle.and_then(|idle| idle.value_ns(Quantile::P50)),
        })
    }

    fn throughput(&self) -> Option<String> {
        let describe = |direction: Direction| {
            let carried = self.subject.summary.throughput(direction)?;
            let rate = carried.goodput_bit_per_s.or(carried.link_bit_per_s)?;
            Some(format!("{} Mbit/s {direction}", mbit(rate.mean)))
        };
        let both: Vec<String> =
            [Direction::Up, Direction::Down].into_iter().filter_map(describe).collect();
        (!both.is_empty()).then(|| both.join(" and "))
    }
}

fn no_latency(subjects: &[Subject<'_>]) -> String {
    let trials: u64 = subjects.iter().map(|subject| subject.trials().count() as u64).sum();
    match trials {
        0 => "No valid trial, so nothing can be said of the arms.".to_owned(),
        _ => format!("{}, none with a working latency.", count(trials, "valid trial")),
    }
}

fn single(only: &Measured<'_>) -> String {
    let against_idle = only.idle_p50_ns.map_or(String::new(), |idle| {
        format!(", {} the idle latency of {} ms", times(only.p50_ns, idle), ms(idle))
    });
    format!(
        "With {} the working latency is {} ms at p50{against_idle}; {} ms at p99.",
        only.subject.called(),
        ms(only.p50_ns),
        ms(only.p99_ns)
    )
}

/// Arms are compared on equal links: a queue on a slower link is no worse for it. Where no two
/// arms share their links, the links are what is compared.
fn comparisons(measured: &[&Measured<'_>]) -> Vec<String> {
    let mut groups: Vec<(Option<String>, Vec<&Measured<'_>>)> = Vec::new();
    for arm in measured {
        let links = links(arm.subject);
        match groups.iter_mut().find(|(known, _)| *known == links) {
            Some((_, arms)) => arms.push(arm),
            None => groups.push((links, vec![arm])),
        }
    }
    let comparable = |(_, arms): &&(Option<String>, Vec<&Measured<'_>>)| arms.len() > 1;
    let pairs: Vec<_> = groups.iter().filter(comparable).collect();
    match pairs.as_slice() {
        [] => comparison(measured),
        [(_, arms)] if arms.len() == measured.len() => comparison(arms),
        _ if pairs.len() > MOST_LINES => comparison(measured),
        _ => {
            let mut lines: Vec<String> = Vec::new();
            for (links, arms) in pairs {
                let mut about = comparison(arms);
                if let (Some(links), Some(first)) = (links, about.first_mut()) {
                    *first = format!("On {links}: {}", lower_first(first));
                }
                // What is true of several links is said once.
                about.retain(|line| !lines.contains(line));
                lines.append(&mut about);
            }
            lines
        }
    }
}

/// The links of an arm's bottlenecks, as its first valid trial recorded them; `None` where every
/// trial drew its own, from the same distributions as the other arms'.
fn links(subject: &Subject<'_>) -> Option<String> {
    let trial = subject.trials().next().filter(|trial| trial.conditions.is_empty())?;
    // Each phase has a summary of its own; the link is the same in all.
    let names: BTreeSet<String> =
        trial.bottlenecks.iter().map(|it| format!("{} {}", it.link, it.direction)).collect();
    Some(names.into_iter().collect::<Vec<_>>().join(", "))
}

fn lower_first(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

fn comparison(measured: &[&Measured<'_>]) -> Vec<String> {
    let key = |arm: &&&Measured<'_>| arm.p50_ns;
    let (Some(best), Some(worst)) =
        (measured.iter().min_by_key(key), measured.iter().max_by_key(key))
    else {
        return Vec::new();
    };
    let mut lines = vec![headline(best, worst)];
    if let (Some(best_rate), Some(worst_rate)) = (best.throughput(), worst.throughput()) {
        lines.push(format!(
            "Throughput: {best_rate} with {}, {worst_rate} with {}.",
            best.subject.name, worst.subject.name
        ));
    }
    if let Some(certainty) = certainty(best.subject, worst.subject) {
        lines.push(certainty);
    }
    let ends = [best.subject.position, worst.subject.position];
    let between: Vec<&&Measured<'_>> =
        measured.iter().filter(|arm| !ends.contains(&arm.subject.position)).collect();
    if between.len() > MOST_LINES {
        lines.push(format!("{} more arms lie between them; the table has all.", between.len()));
        return lines;
    }
    for arm in between {
        let (name, p50, p99) = (arm.subject.called(), ms(arm.p50_ns), ms(arm.p99_ns));
        lines.push(format!("{name}: {p50} ms at p50, {p99} ms at p99."));
    }
    lines
}

/// The same arm in other runs: simulated beside live.
fn across_runs(arm: &Measured<'_>, all: &[Measured<'_>]) -> Option<String> {
    let same = |other: &&Measured<'_>| {
        other.subject.arm.name == arm.subject.arm.name
            && other.subject.position != arm.subject.position
    };
    let others: Vec<String> = all
        .iter()
        .filter(same)
        .map(|other| {
            let change = (other.p50_ns as f64 / (arm.p50_ns as f64).max(1.0) - 1.0) * 100.0;
            let (p50, p99) = (ms(other.p50_ns), ms(other.p99_ns));
            format!("{} {p50} ms at p50 ({change:+.0} %), {p99} at p99", other.subject.name)
        })
        .collect();
    let (name, p50, p99) = (&arm.subject.name, ms(arm.p50_ns), ms(arm.p99_ns));
    (!others.is_empty())
        .then(|| format!("{name} {p50} ms at p50, {p99} at p99; {}.", others.join("; ")))
}

fn headline(best: &Measured<'_>, worst: &Measured<'_>) -> String {
    let ratio = worst.p50_ns as f64 / (best.p50_ns as f64).max(1.0);
    if ratio < ALIKE {
        return format!(
            "The arms hardly differ: working latency is {} to {} ms at p50.",
            ms(best.p50_ns),
            ms(worst.p50_ns)
        );
    }
    format!(
        "With {} the working latency is {} ms at p50 against {} ms with {}, {}x lower \
         (p99: {} against {} ms).",
        best.subject.called(),
        ms(best.p50_ns),
        ms(worst.p50_ns),
        worst.subject.called(),
        factor(ratio),
        ms(best.p99_ns),
        ms(worst.p99_ns)
    )
}

/// How sure the repeats make us, from the medians of the trials.
fn certainty(best: &Subject<'_>, worst: &Subject<'_>) -> Option<String> {
    let (best_medians, worst_medians) = (medians(best), medians(worst));
    let fewest = best_medians.len().min(worst_medians.len());
    if fewest == 0 {
        return None;
    }
    let repeats = count(fewest as u64, "trial");
    if fewest < FEW_REPEATS {
        return Some(format!("That is from {repeats} per arm, too few to say how sure it is."));
    }
    let ratio = hodges_lehmann_ratio(&worst_medians, &best_medians, CONFIDENCE)?;
    let (low, high) = (ratio.low?, ratio.high?);
    let percent = (CONFIDENCE * 100.0).round();
    if low <= 1.0 {
        return Some(format!("Over {repeats} per arm that is within the noise of repeats."));
    }
    Some(format!(
        "Over {repeats} per arm the ratio of medians lies between {} and {} ({percent} % interval).",
        significant(low),
        significant(high)
    ))
}

fn medians(subject: &Subject<'_>) -> Vec<f64> {
    let latencies = subject.latencies(Phase::Load).into_iter();
    latencies
        .filter_map(|(_, summary)| summary.distribution)
        .map(|distribution| distribution.p50_ns as f64)
        .collect()
}

/// The first number of each application, and between which arms it lies.
fn applications(subjects: &[Subject<'_>]) -> Vec<String> {
    let mut names: Vec<(&str, &str)> = Vec::new();
    let firsts: Vec<(&Subject<'_>, &ArmMetric)> = subjects
        .iter()
        .flat_map(|subject| {
            let firsts = subject.applications().into_iter();
            firsts.filter_map(move |(_, metrics)| Some((subject, *metrics.first()?)))
        })
        .collect();
    for (_, metric) in &firsts {
        let name = (metric.flow.as_str(), metric.name.as_str());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let line = |(flow, name): &(&str, &str)| {
        let same = |(_, metric): &&(&Subject<'_>, &ArmMetric)| {
            metric.flow == *flow && metric.name == *name
        };
        let by_mean = |a: &&(&Subject<'_>, &ArmMetric), b: &&(&Subject<'_>, &ArmMetric)| {
            a.1.value.mean.total_cmp(&b.1.value.mean)
        };
        let least = firsts.iter().filter(same).min_by(by_mean)?;
        let most = firsts.iter().filter(same).max_by(by_mean)?;
        let (low, high) = (metric_words(least.1), metric_words(most.1));
        Some(if subjects.len() == 1 {
            format!("{flow}: {low}.")
        } else if low == high {
            format!("{flow}: {low} with every arm.")
        } else {
            format!("{flow}: {low} with {}, {high} with {}.", least.0.called(), most.0.called())
        })
    };
    names.iter().take(MOST_LINES).filter_map(line).collect()
}

fn expectations(runs: &[RunData]) -> Option<String> {
    let verdicts: Vec<Verdict> = runs
        .iter()
        .flat_map(|run| &run.record.expectations)
        .map(|expectation| expectation.verdict)
        .collect();
    if verdicts.is_empty() {
        return None;
    }
    let met = verdicts.iter().filter(|verdict| **verdict == Verdict::Met).count();
    let unmeasured = verdicts.iter().filter(|verdict| **verdict == Verdict::NotMeasured).count();
    let (missed, all) = (verdicts.len() - met - unmeasured, verdicts.len());
    let unmeasured = match unmeasured {
        0 => String::new(),
        number => format!("; {number} not measured"),
    };
    Some(format!("Of {all} published numbers {met} are met and {missed} missed{unmeasured}."))
}

fn times(value: u64, of: u64) -> String {
    let ratio = value as f64 / (of as f64).max(1.0);
    if ratio < ALIKE { "about".to_owned() } else { format!("{} times", factor(ratio)) }
}

fn factor(ratio: f64) -> String {
    if ratio >= 9.95 { format!("{ratio:.0}") } else { format!("{ratio:.1}") }
}
