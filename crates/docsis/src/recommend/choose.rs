//! The choice among the candidates, and their Pareto front.

use serde::Serialize;

use super::candidates::size_name;
use super::{Aqm, Choice, Service};
use crate::Config;

/// Predicted effect of one candidate.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Name of the candidate.
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
fn front(outcomes: &[Outcome]) -> Vec<bool> {
    outcomes.iter().map(|outcome| !outcomes.iter().any(|other| other.beats(outcome))).collect()
}

/// The smallest difference between scores that a listener notices.
const AUDIBLE_MOS: f64 = 0.1;

/// The properties of a candidate that the user asks for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Wish {
    /// Smallest utilisation that a candidate must reach.
    pub utilisation_percent: f64,
    /// The largest added latency at p99. `None` if utilisation decides first.
    pub latency_ms: Option<f64>,
}

/// The rule by which a candidate was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The least latency among candidates with the wanted utilisation and the best score.
    LeastLatency,
    /// No candidate has both: the best utilisation among those with the best score.
    BestScore,
    /// The best utilisation among those with the best score that add at most the wanted latency.
    WithinLatency,
}

/// Returns the chosen one of the `eligible` outcomes, and the rule; `None` without any.
fn choose(
    outcomes: &[Outcome],
    eligible: impl Fn(&Outcome) -> bool,
    wish: Wish,
) -> Option<(usize, Rule)> {
    let eligible: Vec<_> = outcomes.iter().enumerate().filter(|(_, o)| eligible(o)).collect();
    let best = eligible.iter().map(|(_, outcome)| outcome.mos).fold(f64::NEG_INFINITY, f64::max);
    let fit = eligible.into_iter().filter(|(_, outcome)| outcome.mos >= best - AUDIBLE_MOS);
    let busiest = |(_, a): &(usize, &Outcome), (_, b): &(usize, &Outcome)| {
        a.lowest_utilisation().total_cmp(&b.lowest_utilisation())
    };
    let within = |limit_ms| fit.clone().filter(move |(_, o)| o.added_p99_ms <= limit_ms);
    if let Some((position, _)) = wish.latency_ms.and_then(|ms| within(ms).max_by(busiest)) {
        return Some((position, Rule::WithinLatency));
    }
    let busy = fit.clone().filter(|(_, o)| o.lowest_utilisation() >= wish.utilisation_percent);
    let least = busy.min_by(|(_, a), (_, b)| a.added_p99_ms.total_cmp(&b.added_p99_ms));
    if let Some((position, _)) = least {
        return Some((position, Rule::LeastLatency));
    }
    fit.max_by(busiest).map(|(position, _)| (position, Rule::BestScore))
}

/// The settings for a tier with their predicted effect, beside those of the other candidates. It
/// is displayed as a text of one screen.
#[derive(Debug, Clone, Serialize)]
pub struct Recommendation {
    #[serde(flatten)]
    pub service: Service,
    pub aqm: Aqm,
    /// Simulated base round trips.
    pub rtts_ms: Vec<f64>,
    /// Name of the chosen candidate.
    pub recommended: String,
    pub rule: Rule,
    #[serde(flatten)]
    pub wish: Wish,
    /// Name of the candidate with the size of the guideline's Table 2, which is for upstreams.
    pub table_2: Option<String>,
    /// Rate of the row in Table 2.
    pub table_2_rate_bit_per_s: Option<u64>,
    pub outcomes: Vec<Outcome>,
    /// Whether each of `outcomes` is on the Pareto front.
    pub pareto: Vec<bool>,
    /// Position of the chosen candidate in `outcomes`.
    #[serde(skip)]
    pub position: usize,
}

impl Recommendation {
    /// Chooses among the outcomes of all candidates, for a modem with buffers of up to `limit`
    /// bytes. `None` if no candidate has the AQM.
    pub fn new(
        service: Service,
        aqm: Aqm,
        rtts_ms: Vec<f64>,
        wish: Wish,
        limit: u64,
        outcomes: Vec<Outcome>,
    ) -> Option<Self> {
        let (position, rule) = choose(&outcomes, |o| aqm.allows(o.choice), wish)?;
        let table = service.table_2();
        Some(Self {
            service,
            aqm,
            rtts_ms,
            recommended: outcomes[position].name.clone(),
            rule,
            wish,
            table_2: table.map(|(_, bytes)| size_name(u64::from(bytes).min(limit))),
            table_2_rate_bit_per_s: table.map(|(rate, _)| rate),
            pareto: front(&outcomes),
            outcomes,
            position,
        })
    }

    pub fn chosen(&self) -> &Outcome {
        &self.outcomes[self.position]
    }

    /// Returns a configuration with the recommended settings.
    pub fn configuration(&self) -> Config {
        self.service.configuration(self.chosen().choice)
    }
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

    fn wish(utilisation_percent: f64) -> Wish {
        Wish { utilisation_percent, latency_ms: None }
    }

    #[test]
    fn dominated_candidates_are_not_on_the_front() {
        let outcomes = [
            outcome("small", 10.0, 60.0, 4.2),
            outcome("worse", 12.0, 60.0, 4.1),
            outcome("large", 100.0, 99.0, 3.0),
            outcome("equal", 10.0, 60.0, 4.2),
        ];
        assert_eq!(front(&outcomes), [true, false, true, true]);
    }

    #[test]
    fn the_least_latency_with_enough_utilisation_and_score_is_chosen() {
        let outcomes = [
            outcome("too small", 10.0, 79.0, 4.4),
            outcome("right", 40.0, 81.0, 4.35),
            outcome("too large", 200.0, 99.0, 3.0),
        ];
        assert_eq!(choose(&outcomes, |_| true, wish(80.0)), Some((1, Rule::LeastLatency)));
        assert_eq!(choose(&outcomes, |_| true, wish(60.0)), Some((0, Rule::LeastLatency)));
        let others = |outcome: &Outcome| outcome.name != "right";
        assert_eq!(choose(&outcomes, others, wish(80.0)), Some((0, Rule::BestScore)));
        for (ms, chosen) in [
            (40.0, (1, Rule::WithinLatency)),
            (39.0, (0, Rule::WithinLatency)),
            (9.0, (1, Rule::LeastLatency)),
        ] {
            let game = Wish { latency_ms: Some(ms), ..wish(80.0) };
            assert_eq!(choose(&outcomes, |_| true, game), Some(chosen), "{ms} ms");
        }
    }

    #[test]
    fn the_score_decides_if_no_candidate_has_both() {
        let outcomes = [outcome("a", 10.0, 50.0, 4.4), outcome("b", 90.0, 90.0, 2.0)];
        assert_eq!(choose(&outcomes, |_| true, wish(80.0)), Some((0, Rule::BestScore)));
        assert_eq!(choose(&[], |_| true, wish(80.0)), None);
    }
}
