//! The comparison as tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::outcome::{METRICS, Outcome};
use super::{CASES, Outcomes, Results};

/// Heading, decimals, and the allowed difference from the reference: absolute or in percent,
/// whichever is larger.
const GOALS: [(&str, usize, f64, f64); METRICS] = [
    ("p50, ms", 1, 2.0, 5.0),
    ("p99, ms", 1, 5.0, 10.0),
    ("goodput, Mbit/s", 2, 0.0, 3.0),
    ("drops", 0, 0.0, 10.0),
    ("marks", 0, 0.0, 10.0),
    ("sent again", 0, 0.0, 10.0),
    ("share, %", 1, 5.0, 0.0),
    ("window, segments", 1, 0.0, 5.0),
    ("flow's round trip, ms", 1, 2.0, 5.0),
    ("pacing, Mbit/s", 2, 0.0, 5.0),
];

/// How many numbers of a world are within the goal, how many miss it while the reference is within
/// the spread of the world's seeds, and of how many, by metric.
#[derive(Default)]
struct Score {
    within: [usize; METRICS],
    in_spread: [usize; METRICS],
    all: [usize; METRICS],
    /// The reference's standard deviation over the world's, of numbers that vary in both.
    deviations: Vec<f64>,
}

/// Returns a table for each case, and how many numbers are within the goals. `worlds` begins with
/// the world that the others are compared with.
pub fn text(worlds: &[&'static str], results: &Results) -> String {
    let mut text = kernels(results);
    let mut scores: BTreeMap<&'static str, Score> = BTreeMap::new();
    for (case, (scenario, change)) in CASES.iter().enumerate() {
        let of_case = results.iter().filter(|((of, _), _)| *of == case);
        let of_case: Vec<_> = of_case.map(|((_, name), them)| (name.as_str(), them)).collect();
        if of_case.is_empty() {
            continue;
        }
        let change = change.map_or_else(String::new, |change| format!(" with `{change}`"));
        let scenario = scenario.trim_start_matches(concat!(env!("CARGO_MANIFEST_DIR"), "/"));
        let _ = writeln!(text, "\n`{scenario}`{change}; each cell {}:\n", worlds.join(" / "));
        let metrics = measured(&of_case);
        let headings =
            metrics.iter().map(|metric| GOALS[*metric].0).collect::<Vec<_>>().join(" | ");
        let _ = writeln!(text, "| variant | {headings} | not in Linux |");
        let _ = writeln!(text, "|---|{}---|", "---|".repeat(metrics.len()));
        for (variant, outcomes) in of_case {
            text += &row(variant, &metrics, (worlds, outcomes), &mut scores);
        }
    }
    text + &summary(worlds, &scores)
}

fn kernels(results: &Results) -> String {
    let outcomes = results.values().flat_map(BTreeMap::iter);
    let named = outcomes.filter_map(|(world, outcome)| match outcome {
        Outcome::Numbers(numbers) if *world != "sim" => {
            Some(format!("- `{world}`: {}\n", numbers.kernel))
        }
        _ => None,
    });
    named.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the metrics of which some variant has a number.
fn measured(of_case: &[(&str, &Outcomes)]) -> Vec<usize> {
    let outcomes = || of_case.iter().flat_map(|(_, outcomes)| outcomes.values());
    let has = |outcome: &Outcome, metric: usize| match outcome {
        Outcome::Numbers(numbers) => numbers.mean(metric).is_some(),
        Outcome::Refused(_) => false,
    };
    (0..METRICS).filter(|metric| outcomes().any(|outcome| has(outcome, *metric))).collect()
}

fn row(
    variant: &str,
    metrics: &[usize],
    (worlds, outcomes): (&[&'static str], &Outcomes),
    scores: &mut BTreeMap<&'static str, Score>,
) -> String {
    let numbers = |world: &str| match outcomes.get(world)? {
        Outcome::Numbers(numbers) => Some(numbers),
        Outcome::Refused(_) => None,
    };
    let mut cells = Vec::new();
    for &metric in metrics {
        let goal = &GOALS[metric];
        // The first world that has the number is the reference for the worlds after it.
        let mut reference = None;
        let mut cell = |world: &&'static str| {
            let Some(numbers) = numbers(world) else { return "-".to_owned() };
            let Some(value) = numbers.mean(metric) else { return "-".to_owned() };
            let mut text = format!("{value:.*}", goal.1);
            let deviation = numbers.deviation(metric);
            if let Some(deviation) = deviation {
                let _ = write!(text, " ±{deviation:.*}", goal.1.max(1));
            }
            let Some((reference, of_reference)) = reference else {
                reference = Some((value, deviation));
                return text;
            };
            let score = scores.entry(world).or_default();
            let ratio = of_reference.zip(deviation).map(|(reference, of)| reference / of);
            score.deviations.extend(ratio.filter(|ratio| *ratio > 0.0 && ratio.is_finite()));
            score.all[metric] += 1;
            if is_within(value, reference, goal) {
                score.within[metric] += 1;
                return text;
            }
            if numbers.is_in_spread(metric, reference) {
                score.in_spread[metric] += 1;
                return format!("_{text}_");
            }
            format!("**{text}**")
        };
        cells.push(worlds.iter().map(&mut cell).collect::<Vec<_>>().join(" / "));
    }
    let refused = outcomes.values().filter_map(|outcome| match outcome {
        Outcome::Refused(reason) => Some(reason.clone()),
        Outcome::Numbers(_) => None,
    });
    let refused: Vec<String> = refused.collect::<BTreeSet<_>>().into_iter().collect();
    format!("| {variant} | {} | {} |\n", cells.join(" | "), refused.join("; "))
}

fn is_within(value: f64, reference: f64, goal: &(&str, usize, f64, f64)) -> bool {
    let (_, _, apart, percent) = *goal;
    (value - reference).abs() <= f64::max(apart, reference * percent / 100.0)
}

/// Returns the numbers within the goals and, in parentheses, that count plus the numbers within the
/// spread of seeds.
fn summary(worlds: &[&str], scores: &BTreeMap<&str, Score>) -> String {
    let names = GOALS.map(|(heading, ..)| heading.split(',').next().unwrap_or(heading));
    let mut text = format!("\n| world | within | {} |\n", names.join(" | "));
    let _ = writeln!(text, "|---|---|{}", "---|".repeat(METRICS));
    let of = |within: usize, in_spread: usize, all: usize| match in_spread {
        0 => format!("{within} of {all}"),
        _ => format!("{within} ({}) of {all}", within + in_spread),
    };
    let (mut within, mut in_spread, mut all) = (0, 0, 0);
    let mut medians = String::new();
    for world in worlds {
        let Some(score) = scores.get(world) else { continue };
        let sums = [score.within, score.in_spread, score.all].map(|of| of.iter().sum::<usize>());
        (within, in_spread, all) = (within + sums[0], in_spread + sums[1], all + sums[2]);
        let parts = (0..METRICS)
            .map(|metric| of(score.within[metric], score.in_spread[metric], score.all[metric]))
            .collect::<Vec<_>>();
        let sum = of(sums[0], sums[1], sums[2]);
        let _ = writeln!(text, "| {world} | {sum} | {} |", parts.join(" | "));
        let mut ratios = score.deviations.clone();
        ratios.sort_by(f64::total_cmp);
        if let Some(median) = ratios.get(ratios.len() / 2) {
            let _ = writeln!(
                medians,
                "Standard deviations of `{}` over those of `{world}`: median {median:.2} of {}.\n",
                worlds[0],
                ratios.len(),
            );
        }
    }
    let _ = writeln!(text, "\n**{} within.**\n", of(within, in_spread, all));
    text + &medians
}

#[cfg(test)]
mod tests {
    use super::super::outcome::Numbers;
    use super::*;

    fn numbers([p50, p99, goodput, drops]: [f64; 4], kernel: &str) -> Outcome {
        let mut values = [None; METRICS];
        values[..4].copy_from_slice(&[p50, p99, goodput, drops].map(Some));
        let mut others = Vec::new();
        for drops in if kernel.is_empty() { [90.0, 130.0].as_slice() } else { &[] } {
            others.push([None; METRICS]);
            others.last_mut().unwrap()[3] = Some(*drops);
        }
        let trials = BTreeMap::from([(0, values)]);
        Outcome::Numbers(Box::new(Numbers { trials, others, kernel: kernel.to_owned() }))
    }

    #[test]
    fn misses_are_bold_seed_spread_is_italic_and_queues_absent_from_linux_have_a_reason() {
        let both = Outcomes::from([
            ("kernel", numbers([40.0, 60.0, 19.0, 100.0], "Linux 7")),
            ("sim", numbers([42.0, 67.0, 18.0, 120.0], "")),
        ]);
        let only = Outcomes::from([
            ("kernel", Outcome::Refused("no Linux queue `bode`".to_owned())),
            ("sim", numbers([40.0, 60.0, 19.0, 0.0], "")),
        ]);
        let name = |variant: &str| (1, variant.to_owned());
        let results = Results::from([(name("pie"), both), (name("bode"), only)]);
        let text = text(&["kernel", "sim"], &results);
        let row = "| pie | 40.0 / 42.0 | 60.0 / **67.0** | 19.00 / **18.00** | 100 / _120_ |  |\n";
        assert!(text.contains(row), "{text}");
        let row = "| bode | - / 40.0 | - / 60.0 | - / 19.00 | - / 0 | no Linux queue `bode` |\n";
        assert!(text.contains(row), "{text}");
        assert!(text.starts_with("- `kernel`: Linux 7\n"), "{text}");
        assert!(text.contains("\n**1 (2) of 4 within.**\n"), "{text}");
    }
}
