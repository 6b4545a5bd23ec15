//! FESTIVE (Jiang, Sekar and Zhang, CoNEXT 2012): harmonic mean of 20 chunks, gradual switches,
//! delayed update.
//!
//! The randomised schedule of requests is not modelled; it serves the fairness between players.

use super::view::{View, harmonic_mean};

pub(super) fn choose(view: &View<'_>) -> usize {
    let Some(&current) = view.rungs.last() else { return 0 };
    let throughput = harmonic_mean(view.throughputs, THROUGHPUT_CHUNKS);
    let reference = reference(view, current, throughput);
    if reference == current {
        return current;
    }
    let recent = (STABILITY_S / view.chunk_s) as usize + 1;
    let rungs = &view.rungs[view.rungs.len().saturating_sub(recent)..];
    let switches = rungs.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let stability = libm::pow(2.0, switches as f64);
    let efficiency = |rung: usize| {
        let aim = throughput.min(view.ladder[reference]);
        libm::fabs(view.ladder[rung] / aim - 1.0)
    };
    let stay = stability + EFFICIENCY_WEIGHT * efficiency(current);
    let switch = stability + 1.0 + EFFICIENCY_WEIGHT * efficiency(reference);
    if switch < stay { reference } else { current }
}
/// Returns one step towards the target; a step up from rung n needs more than n chunks at it.
fn reference(view: &View<'_>, current: usize, throughput: f64) -> usize {
    let affordable = |rate: &f64| *rate <= CAUTION * throughput;
    let target = view.ladder.iter().rposition(affordable).unwrap_or(0);
    if target < current {
        return current - 1;
    }
    let stayed = view.rungs.iter().rev().take_while(|rung| **rung == current).count();
    if target > current && stayed > current { current + 1 } else { current }
}

const THROUGHPUT_CHUNKS: usize = 20;
/// Share of the throughput that a bit rate may take.
const CAUTION: f64 = 0.85;
/// Switches of this period are counted.
const STABILITY_S: f64 = 20.0;
/// Alpha of the paper.
const EFFICIENCY_WEIGHT: f64 = 12.0;

#[cfg(test)]
mod tests {
    use super::super::tests::view;
    use super::*;

    #[test]
    fn climbs_one_rung_at_a_time_and_slower_the_higher_it_is() {
        let mut rungs = vec![0];
        for _ in 0..20 {
            let throughputs = vec![10.0; rungs.len()];
            let rung = choose(&view(20.0, &throughputs, &rungs));
            rungs.push(rung);
        }
        assert_eq!(rungs[..15], [0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4]);
        assert_eq!(rungs.last(), Some(&5));
    }

    #[test]
    fn steps_down_when_the_throughput_falls() {
        assert_eq!(choose(&view(20.0, &[1.0; 20], &[4; 20])), 3);
    }
}
