//! Which candidate to take: those that nothing beats in every respect, and of these one.

use serde::Serialize;
use underload_docsis::recommend::Choice;

/// Predicted effect of one candidate.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Name of the candidate in the sweep: `32KiB`, `target-10ms`.
    pub name: String,
    /// The setting.
    #[serde(skip)]
    pub choice: Choice,
    /// Working less idle latency, ms: median, worst over all round trips.
    pub added_p50_ms: f64,
    /// Latency that the load adds at the 99th percentile, ms.
    pub added_p99_ms: f64,
    /// The same for the low latency class, where there is one.
    pub low_latency_added_p99_ms: Option<f64>,
    /// Share of the link that one upload uses, per round trip, percent; in order of `rtts_ms`.
    pub utilisation_percent: Vec<f64>,
    /// The call's score, mean over all conditions.
    pub mos: f64,
    /// Page load time, seconds, median over all conditions; `None` where most never finish.
    pub page_load_s: Option<f64>,
}

impl Outcome {
    /// The lowest share over all round trips, percent.
    pub fn lowest_utilisation(&self) -> f64 {
        self.utilisation_percent.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Whether it is at least as good in every respect, and better in one.
    fn beats(&self, other: &Self) -> bool {
        let gains = [
            other.added_p99_ms - self.added_p99_ms,
            self.lowest_utilisation() - other.lowest_utilisation(),
            self.mos - other.mos,
        ];
        gains.iter().all(|gain| *gain >= 0.0) && gains.iter().any(|gain| *gain > 0.0)
    }
}

/// For each outcome, whether no other beats it: the Pareto front of latency, utilisation and score.
pub fn front(outcomes: &[Outcome]) -> Vec<bool> {
    outcomes.iter().map(|outcome| !outcomes.iter().any(|other| other.beats(outcome))).collect()
}

/// Scores that differ by less are the same to a listener.
const AUDIBLE_MOS: f64 = 0.1;

/// The rule by which a candidate was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The least latency of those that keep the utilisation asked for and the best score.
    LeastLatency,
    /// None keeps both; the best utilisation of those with the best score.
    BestScore,
}

/// The position of the choice among the outcomes that are `eligible` (others are there for
/// comparison), and how it was made; `None` without any.
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
