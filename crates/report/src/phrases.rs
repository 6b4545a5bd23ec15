//! Words for the comparisons in [`facts`](crate::facts).

use underload_record::CONFIDENCE;
use underload_record::schema::{VariantLatency, World};

use crate::facts::{Certainty, FEW_REPEATS, LOSS_PERCENT, UnequalRate};
use crate::subject::Subject;
use crate::words::{count, mbit, significant};

/// Returns a sentence on how certain a comparison is.
pub(crate) fn certainty(certainty: &Certainty) -> String {
    match certainty {
        Certainty::Identical { called, trials: all } => format!(
            "All {} of {called} are identical, because nothing in them is random, so they do not \
             show how sure that is. Add start_jitter to a flow to get intervals.",
            trials(*all)
        ),
        Certainty::NoRatio { trials: all } => {
            format!("Over {} per variant that is within the noise of repeats.", trials(*all))
        }
        Certainty::NoDifference { trials: all } => {
            format!("Over {} per variant that is within the noise.", trials(*all))
        }
        Certainty::Mean { trials: all } => {
            format!("That is the mean over {} per variant.", trials(*all))
        }
        Certainty::Ratio { by, trials: all, low, high } => {
            let between = match (low.is_finite(), high.is_finite()) {
                (true, true) => {
                    format!("lies between {} and {}", significant(*low), significant(*high))
                }
                (true, false) => format!("is at least {}", significant(*low)),
                (false, _) => "has no number, because lost probes have no round trip".to_owned(),
            };
            format!(
                "Over {} per variant the ratio of the trials' {by} {between} ({} % interval).",
                trials(*all),
                (CONFIDENCE * 100.0).round()
            )
        }
    }
}

/// Returns a sentence on how to see how sure a comparison of few trials is; `None` if one variant
/// has enough trials, if there is nothing to compare, or if the trials are lines of a study.
pub(crate) fn few_trials(variants: &[&Subject<'_>]) -> Option<String> {
    let record = &variants.first()?.run.record;
    if variants.len() < 2 || record.world == World::Measured || record.study.is_some() {
        return None;
    }
    let numbers =
        || variants.iter().map(|variant| variant.trials().count()).filter(|number| *number > 0);
    let (few, most) = (numbers().min()?, numbers().max()?);
    let is_random = !variants.iter().any(|variant| variant.repeats_itself());
    let each = if few == most { trials(few) } else { format!("{few} to {}", trials(most)) };
    let each = if each == "1 trial" { "One trial".to_owned() } else { each };
    (few < FEW_REPEATS && is_random)
        .then(|| format!("{each} each: run with `--repeat {FEW_REPEATS}` to see how sure this is."))
}

/// Returns text such as `goodput 2.31 against 9.42 Mbit/s up`; `None` if `unequal` is empty.
pub(crate) fn rates(unequal: &[UnequalRate]) -> Option<String> {
    let words = |rate: &UnequalRate| {
        let what = if rate.is_goodput { "goodput" } else { "rate on the link" };
        let (other, first) = (mbit(rate.other_bit_per_s), mbit(rate.first_bit_per_s));
        format!("{what} {other} against {first} Mbit/s {}", rate.direction)
    };
    let all: Vec<String> = unequal.iter().map(words).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// Formats two losses: `12 against 0 % of its probes were lost`.
pub(crate) fn losses(own: f64, others: f64) -> String {
    let (own, others) = (significant(own), significant(others));
    format!("{own} against {others} % of its probes were lost")
}

/// Compares a variant with another where both latencies are lost probes: `With cake 92.8 % of the
/// probes were lost against 76.0 % with fifo`. `of_probe` is empty or ` of NAME`.
pub(crate) fn losses_alone(
    (variant, own): (&str, &VariantLatency),
    (other, others): (&str, &VariantLatency),
    of_probe: &str,
) -> String {
    let [own, others] = [own, others].map(|latency| significant(latency.lost_percent()));
    format!(
        "With {variant} {own} % of the probes{of_probe} were lost against {others} % with {other}"
    )
}

/// Returns `; up to 12 % of their probes were lost`; empty if the loss is negligible.
pub(crate) fn most_lost<'a>(latencies: impl Iterator<Item = &'a VariantLatency>) -> String {
    let most = latencies.map(VariantLatency::lost_percent).reduce(f64::max);
    most.filter(|most| *most >= LOSS_PERCENT).map_or(String::new(), |most| {
        format!("; up to {} % of their probes were lost", significant(most))
    })
}

pub(crate) fn trials(number: usize) -> String {
    count(number as u64, "trial")
}

pub(crate) fn factor(ratio: f64) -> String {
    if ratio >= 9.95 { format!("{ratio:.0}") } else { format!("{ratio:.1}") }
}
