//! Sentences about a trial of a shaper: hours with it against hours without it.

use underload_record::comparison::Verdict;
use underload_record::history::{CONTRAST_CONFIDENCE, Contrast, RUNS_MIN};
use underload_record::schema::{Direction, PerDirection};

use crate::significant;

/// The trial compares this number of each hour: the longer of the two delays.
const WHAT: &str = "p99 under load, beside or inside it";

/// The values of the hours without the shaper, and of those with it.
pub type Hours = [Vec<f64>; 2];

/// Returns what the hours show, and whether the delay is lower with the shaper.
pub fn trial_sentences(delays_ms: &Hours, goodput: &PerDirection<Hours>) -> (Vec<String>, bool) {
    let [without, with] = delays_ms;
    let Some(contrast) = Contrast::new(with, without) else {
        let (with, without) = (with.len(), without.len());
        let few = format!(
            "{with} hours with the shaper and {without} without it were measured, and a \
             comparison needs {RUNS_MIN} of each: no effect is shown."
        );
        return (vec![few], false);
    };
    let verdict = contrast.verdict("ms");
    let effect = match verdict {
        Verdict::Lower => "The shaper helps",
        Verdict::Higher => "The shaper does harm",
        Verdict::Alike => "The shaper changes nothing that a person notices",
        _ => "No effect is shown",
    };
    let mut lines = vec![format!("{effect}: {}", difference(WHAT, "ms", &contrast))];
    for direction in Direction::ALL {
        let [without, with] = &goodput[direction];
        if let Some(contrast) = Contrast::new(with, without) {
            lines.push(difference(&format!("Goodput {direction}"), "Mbit/s", &contrast));
        }
    }
    (lines, verdict == Verdict::Lower)
}

/// Returns the difference that the shaper makes, with its interval.
fn difference(what: &str, unit: &str, contrast: &Contrast) -> String {
    let Contrast { with, without, shift } = contrast;
    let interval = match (shift.low, shift.high) {
        (Some(low), Some(high)) => format!(
            "{:.0} % interval {} to {}",
            CONTRAST_CONFIDENCE * 100.0,
            signed(low),
            signed(high)
        ),
        _ => "too few hours for an interval".to_owned(),
    };
    format!(
        "{what}: median {} {unit} in {} hours with the shaper, {} {unit} in {} without it; \
         difference {} {unit} ({interval}).",
        significant(with.p50),
        with.runs,
        significant(without.p50),
        without.runs,
        signed(shift.value)
    )
}

fn signed(value: f64) -> String {
    format!("{}{}", if value < 0.0 { "-" } else { "+" }, significant(value.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hours of two days: delays with and without the shaper, and goodput down.
    fn sentences(delay_ms: impl Fn(u32, bool) -> f64) -> (Vec<String>, bool) {
        let side = |is_shaped: bool| (0..24).map(move |it| 2 * it + u32::from(is_shaped));
        let delays = [false, true].map(|it| side(it).map(|slot| delay_ms(slot, it)).collect());
        let down = [19.0, 17.9].map(|rate| vec![rate; 24]);
        trial_sentences(&delays, &PerDirection::new(Hours::default(), down))
    }

    #[test]
    fn a_trial_says_whether_the_shaper_helps_and_what_it_costs() {
        let spread = |slot: u32| f64::from(slot * 37 % 48) / 10.0;
        let (lines, helps) =
            sentences(|slot, is_shaped| spread(slot) + if is_shaped { 24.0 } else { 220.0 });
        assert!(helps);
        assert!(
            lines[0].starts_with("The shaper helps: p99 under load, beside or inside it: median ")
                && lines[0].contains(" ms in 24 hours with the shaper, 222 ms in 24 without it")
                && lines[0].contains("(99 % interval -19"),
            "{lines:?}"
        );
        assert!(lines[1].starts_with("Goodput down: median 17.9 Mbit/s"), "{lines:?}");
        assert_eq!(lines.len(), 2, "goodput up is unknown");
        let (lines, helps) = sentences(|slot, _| 20.0 + spread(slot));
        assert!(!helps && lines[0].starts_with("No effect is shown: "), "{lines:?}");
        let worse = |slot: u32, is_shaped: bool| spread(slot) + if is_shaped { 90.0 } else { 20.0 };
        let (lines, helps) = sentences(worse);
        assert!(!helps && lines[0].starts_with("The shaper does harm: "), "{lines:?}");
    }

    #[test]
    fn a_trial_of_few_hours_has_no_verdict() {
        let (lines, helps) = trial_sentences(&Hours::default(), &PerDirection::default());
        assert!(!helps && lines[0].starts_with("0 hours with the shaper and 0 without"));
    }
}
