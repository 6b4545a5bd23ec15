//! Explains a sentence: the trials that it rests on, the arithmetic and the rule.

use std::fmt::Write as _;

use underload_record::comparison::{Comparison, Verdict, effect, pairs_of};
use underload_record::schema::RunRecord;
use underload_store::RunData;

use crate::across;
use crate::subject::subjects;
use crate::verdict::sentences;
use crate::words::{plain_text, significant};

/// Maximum number of comparisons of one claim that are explained.
const MOST: usize = 6;

/// A variant of a run.
type OfRun<'a> = (&'a RunRecord, &'a str);

/// Explains the claim `id`, such as `S1`, of runs that are reported together; `None` if no sentence
/// states it.
pub fn explain(runs: &[RunData], id: &str) -> Option<String> {
    let first = &runs.first()?.record;
    let subjects = subjects(runs);
    let sentences = sentences(runs, &subjects);
    let stated = sentences.iter().find(|sentence| sentence.claim.as_deref() == Some(id))?;
    let between = across::comparisons(&subjects);
    let own = first
        .comparisons
        .iter()
        .map(|it| (it, (first, it.variant.as_str()), (first, it.baseline.as_str())));
    let later =
        between.iter().map(|it| (&it.comparison, it.variant.of_run(), it.baseline.of_run()));
    let all: Vec<(&Comparison, OfRun<'_>, OfRun<'_>)> =
        own.chain(later).filter(|(comparison, ..)| comparison.claim == id).collect();
    let mut text = format!("{id}: {}\n", stated.text);
    for (comparison, variant, baseline) in all.iter().take(MOST) {
        explain_one(&mut text, comparison, *variant, *baseline);
    }
    let more = all.len().saturating_sub(MOST);
    if more > 0 {
        let _ = writeln!(text, "and {more} more; the table of comparisons has all");
    }
    Some(plain_text(&text))
}

fn explain_one(text: &mut String, it: &Comparison, variant: OfRun<'_>, baseline: OfRun<'_>) {
    let quotient = if it.is_ratio { "quotient" } else { "difference" };
    let unit = if it.unit.is_empty() { String::new() } else { format!(", {}", it.unit) };
    let _ = writeln!(text, "{} compared with {}: {}{unit}", it.variant, it.baseline, it.metric);
    let _ = writeln!(text, "  {:>6} {:>10} {:>10} {quotient:>10}", "repeat", "value", "baseline");
    for (repeat, value, baseline) in pairs_of(it, variant, baseline) {
        let shown = |value: f64| if value.is_finite() { significant(value) } else { "lost".into() };
        let effect = effect(value, baseline, it.is_ratio);
        let (value, baseline) = (shown(value), shown(baseline));
        let _ = writeln!(text, "  {repeat:>6} {value:>10} {baseline:>10} {:>10}", shown(effect));
    }
    let range = it.range.map_or("no range with fewer than five pairs".to_owned(), |range| {
        let end = |value: Option<f64>| value.map_or("no bound".to_owned(), significant);
        format!(
            "middle {}, range {} to {}, which holds the median of many trials with {} %",
            end(range.middle),
            significant(range.low),
            end(range.high),
            significant(range.confidence * 100.0)
        )
    });
    let _ = writeln!(text, "  {range}");
    let _ = writeln!(text, "  {}: {}", it.verdict.name(), rule(it.verdict));
}

const fn rule(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Lower | Verdict::Higher => {
            "the range excludes equality, and a person notices the middle difference"
        }
        Verdict::Alike => "nobody notices a difference within the range (1 ms and 5 %)",
        Verdict::NotSure => "the range includes equality and differences that a person notices",
        Verdict::TooFew => "a range needs five pairs of trials in which something is random",
        Verdict::Lost => "more than half of the probes of one never came back",
        Verdict::Suspicious => "no scenario gives a quotient beyond 2,000",
        Verdict::NotMeasured | Verdict::NotComparable => "one of the two has too few values",
    }
}
