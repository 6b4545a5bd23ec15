//! The choice among the candidates, and their Pareto front.

use serde::Serialize;
use underload_docsis::recommend::Choice;

/// Predicted effect of one candidate.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Name of the candidate in the sweep, such as `32KiB` or `target-10ms`.
    pub name: String,
    #[serde(skip)]
    pub choice: Choice,
    /// Median latency under load minus idle latency; the largest over all round trips.
    pub added_p50_ms: f64,
    /// As `added_p50_ms`, at the 99th percentile.
    pub added_p99_ms: f64,
    /// As `added_p99_ms`, of the low latency class. `None` for candidates without this class.
    pub low_latency_added_p99_ms: Option<f64>,
    /// Share of the link that one upload uses at each of `rtts_ms`.
    pub utilisation_percent: Vec<f64>,
    /// Mean score of the call over all conditions.
    pub mos: f64,
    /// Median page load time over all conditions. `None` if most page loads never finish.
    pub page_load_s: Option<f64>,
}

impl Outcome {
    /// The lowest utilisation over all round trips, percent.
    pub fn lowest_utilisation(&self) -> f64 {
        self.utilisation_percent.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Whether this is nowhere worse than `other`, and better in latency, utilisation or score.
    fn beats(&self, other: &Self) -> bool {
        let gains = [
            other.added_p99_ms - self.added_p99_ms,
            self.lowest_utilisation() - other.lowest_utilisation(),
            self.mos - other.mos,
        ];
        gains.iter().all(|gain| *gain >= 0.0) && gains.iter().any(|gain| *gain > 0.0)
    }
}

/// Returns for each outcome whether it is on the Pareto front of latency, utilisation and score.
pub fn front(outcomes: &[Outcome]) -> Vec<bool> {
    outcomes.iter().map(|outcome| !outcomes.iter().any(|other| other.beats(outcome))).collect()
}

/// The smallest difference between scores that a listener notices.
const AUDIBLE_MOS: f64 = 0.1;

/// The rule by which a candidate was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The least latency among candidates with the wanted utilisation and the best score.
    LeastLatency,
    /// No candidate has both: the best utilisation among those with the best score.
    BestScore,
}

/// Returns the chosen one of the `eligible` outcomes, and the rule; `None` without any.
pub fn choose(
    outcomes: &[Outcome],
    eligible: impl Fn(&Outcome) -> bool,
    utilisation_percent: f64,
) -> Option<(usize, Rule)> {
    let eligible: Vec<_> = outcomes.iter().enumerate().filter(|(_, o)| eligible(o)).collect();
    let best = eligible.iter().map(|(_, outcome)| outcome.mos).fold(f64::NEG_INFINITY, f64::max);
    let fit = eligible.into_iter().filter(|(_, outcome)| outcome.mos >= best - AUDIBLE_MOS);
    let busy = fit.clone().filter(|(_, o)| o.lowest_utilisation() >= utilisation_percent);
    let least = busy.min_by(|(_, a), (_, b)| a.added_p99_ms.total_cmp(&b.added_p99_ms));
    if let Some((position, _)) = least {
        return Some((position, Rule::LeastLatency));
    }
    let busiest =
        fit.max_by(|(_, a), (_, b)| a.lowest_utilisation().total_cmp(&b.lowest_utilisation()));
    busiest.map(|(position, _)| (position, Rule::BestScore))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, added_p99_ms: f64, utilisation: f64, mos: f64) -> Outcome {
        Outcome {
            name: name.to_owned(),
            choice: Choice::Buffer(1),
            added_p50_ms: added_p99_ms / 2.0,
            added_p99_ms,
            low_latency_added_p99_ms: None,
            utilisation_percent: vec![utilisation, 100.0],
            mos,
            page_load_s: None,
        }
    }

    #[test]
    fn what_another_beats_in_every_respect_is_not_on_the_front() {
        let outcomes = [
            outcome("small", 10.0, 60.0, 4.2),
            outcome("worse", 12.0, 60.0, 4.1),
            outcome("large", 100.0, 99.0, 3.0),
            outcome("equal", 10.0, 60.0, 4.2),
        ];
        assert_eq!(front(&outcomes), [true, false, true, true]);
    }

    #[test]
    fn the_least_latency_that_keeps_link_and_call_well() {
        let outcomes = [
            outcome("too small", 10.0, 79.0, 4.4),
            outcome("right", 40.0, 81.0, 4.35),
            outcome("too large", 200.0, 99.0, 3.0),
        ];
        assert_eq!(choose(&outcomes, |_| true, 80.0), Some((1, Rule::LeastLatency)));
        assert_eq!(choose(&outcomes, |_| true, 60.0), Some((0, Rule::LeastLatency)));
        let others = |outcome: &Outcome| outcome.name != "right";
        assert_eq!(choose(&outcomes, others, 80.0), Some((0, Rule::BestScore)));
    }

    #[test]
    fn where_nothing_keeps_both_the_call_goes_first() {
        let outcomes = [outcome("a", 10.0, 50.0, 4.4), outcome("b", 90.0, 90.0, 2.0)];
        assert_eq!(choose(&outcomes, |_| true, 80.0), Some((0, Rule::BestScore)));
        assert_eq!(choose(&[], |_| true, 80.0), None);
    }
}
