//! Directions of a line that carry less than the applications of a variant need.

use serde::{Deserialize, Serialize};

use super::indexed::Indexed;
use crate::schema::{BottleneckSummary, Direction, Phase, RunRecord, TrialRecord};

/// A direction of a variant's line that carries less than its applications need, whatever its queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Overload {
    pub variant: String,
    pub direction: Direction,
    /// The names of the applications' flows.
    pub flows: Vec<String>,
    /// The sum of [`crate::schema::FlowRecord::least_bit_per_s`] of the flows.
    pub needs_bit_per_s: u64,
    /// The capacity of the slowest link in the load phase, of the trial in which it is highest.
    pub carries_bit_per_s: u64,
}

/// Returns the overloaded directions of every variant.
pub(super) fn overloads(run: &RunRecord) -> Vec<Overload> {
    let by_name = Indexed::of(run);
    let of = |name: &str| {
        let trials = by_name.valid_trials(name);
        [Direction::Up, Direction::Down].map(|direction| overload(name, trials, direction))
    };
    run.variants.iter().flat_map(|variant| of(&variant.name)).flatten().collect()
}

fn overload(name: &str, trials: &[&TrialRecord], direction: Direction) -> Option<Overload> {
    let flows = trials.first()?.flows.iter();
    let least = flows.filter_map(|flow| Some((&flow.name, flow.least_bit_per_s?[direction])));
    let (flows, needs): (Vec<String>, Vec<u64>) =
        least.filter(|(_, needs)| *needs > 0).map(|(name, needs)| (name.clone(), needs)).unzip();
    let needs_bit_per_s = needs.into_iter().fold(0, u64::saturating_add);
    let is_loaded =
        |it: &&BottleneckSummary| it.direction == direction && it.window.phase == Phase::Load;
    let slowest = |trial: &&TrialRecord| {
        let links = trial.bottlenecks.iter().filter(is_loaded);
        links.filter_map(|link| link.capacity_bit_per_s).min()
    };
    let carries_bit_per_s = trials.iter().filter_map(slowest).max()?;
    let variant = name.to_owned();
    (needs_bit_per_s > carries_bit_per_s).then_some(Overload {
        variant,
        direction,
        flows,
        needs_bit_per_s,
        carries_bit_per_s,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{FlowRecord, PerDirection, PhaseWindow, VariantRecord};

    #[test]
    fn a_direction_that_carries_less_than_its_applications_need_is_named() {
        let flow = |name: &str, up, down| FlowRecord {
            name: name.to_owned(),
            least_bit_per_s: Some(PerDirection::new(up, down)),
            ..FlowRecord::default()
        };
        let link = |direction, phase, capacity| BottleneckSummary {
            direction,
            window: PhaseWindow { phase, start_ns: 0, end_ns: 1 },
            capacity_bit_per_s: Some(capacity),
            ..BottleneckSummary::default()
        };
        let trial = |capacity| TrialRecord {
            variant: "a".to_owned(),
            flows: vec![flow("call", 60, 8), flow("game", 40, 110), FlowRecord::default()],
            bottlenecks: vec![
                link(Direction::Up, Phase::Idle, 1),
                link(Direction::Up, Phase::Load, capacity),
                link(Direction::Up, Phase::Load, 1_000),
                link(Direction::Down, Phase::Load, 118),
            ],
            ..TrialRecord::default()
        };
        let run = |capacities: &[u64]| RunRecord {
            variants: vec![VariantRecord { name: "a".to_owned(), ..VariantRecord::default() }],
            trials: capacities.iter().map(|capacity| trial(*capacity)).collect(),
            ..RunRecord::default()
        };
        let found = overloads(&run(&[80, 99]));
        let flows = ["call", "game"].map(str::to_owned).to_vec();
        let up = Overload {
            variant: "a".to_owned(),
            direction: Direction::Up,
            flows,
            needs_bit_per_s: 100,
            carries_bit_per_s: 99,
        };
        assert_eq!(found, [up]);
        assert_eq!(overloads(&run(&[80, 100])), [], "one trial has enough");
        assert_eq!(overloads(&run(&[])), []);
    }
}
