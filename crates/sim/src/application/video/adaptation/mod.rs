//! The choice of the bit rate of the next chunk.

mod bola;
mod buffer_based;
mod festive;
mod robust_mpc;
mod view;

use robust_mpc::RobustMpc;
use serde::{Deserialize, Serialize};
use underload_aqm::time::Span;
use view::Choice;
pub(super) use view::View;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Player {
    /// The buffer alone decides (Huang et al., SIGCOMM 2014).
    #[default]
    Bb,
    /// Harmonic mean of throughput, gradual and delayed switches (Jiang et al., CoNEXT 2012).
    Festive,
    /// Lyapunov optimisation of utility over the buffer (Spiteri et al., INFOCOM 2016).
    Bola,
    /// Model predictive control with a pessimistic throughput (Yin et al., SIGCOMM 2015).
    RobustMpc,
}

pub(super) struct Adaptation {
    player: Player,
    mpc: RobustMpc,
}

impl Adaptation {
    pub(super) fn new(player: Player) -> Self {
        Self { player, mpc: RobustMpc::default() }
    }

    /// Chooses the next chunk. The first chunk is of the lowest rung.
    pub(super) fn choose(&mut self, view: &View<'_>) -> Choice {
        let rung = match self.player {
            _ if view.rungs.is_empty() => 0,
            Player::Bb => buffer_based::choose(view),
            Player::Festive => festive::choose(view),
            Player::Bola => return bola::choose(view),
            Player::RobustMpc => self.mpc.choose(view),
        };
        Choice { rung, wait: Span::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::view::harmonic_mean;
    use super::*;

    pub(super) const LADDER: [f64; 6] = [0.3, 0.75, 1.2, 1.85, 2.85, 4.3];

    /// A player with a buffer of `buffer` after chunks of the given throughputs and rungs.
    pub(super) fn view<'a>(buffer_s: f64, throughputs: &'a [f64], rungs: &'a [usize]) -> View<'a> {
        View {
            ladder: &LADDER,
            chunk_s: 4.0,
            buffer_s,
            buffer_max_s: 60.0,
            throughputs,
            rungs,
            chunks_left: 30,
        }
    }

    #[test]
    fn every_player_starts_at_the_bottom() {
        for player in [Player::Bb, Player::Festive, Player::Bola, Player::RobustMpc] {
            let choice = Adaptation::new(player).choose(&view(0.0, &[], &[]));
            assert_eq!(choice, Choice { rung: 0, wait: Span::ZERO });
        }
    }

    #[test]
    fn the_harmonic_mean_is_that_of_the_last_values() {
        assert!((harmonic_mean(&[9.0, 1.0, 2.0], 2) - 4.0 / 3.0).abs() < 1e-12);
        assert!(harmonic_mean(&[], 5).abs() < f64::EPSILON);
    }
}
