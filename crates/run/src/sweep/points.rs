//! The points of a sweep, each computed from its number: a million need no memory.

use underload_aqm::rng::Rng;

use super::axis::{Axis, Level};
use super::file::Design;

#[derive(Debug, Clone)]
pub(super) struct Points {
    design: Design,
    pub count: u64,
    seed: u64,
}

impl Points {
    /// Returns the points of a grid, or `samples` drawn points; `None` beyond 64 bits.
    pub(super) fn new(design: Design, samples: u64, axes: &[Axis], seed: u64) -> Option<Self> {
        let count = match design {
            Design::Grid => axes
                .iter()
                .try_fold(1_u64, |product, axis| product.checked_mul(axis.levels().unwrap_or(1)))?,
            Design::Random => samples,
        };
        Some(Self { design, count, seed })
    }

    /// Returns the value of each axis at a point. In a grid the last axis varies fastest.
    pub(super) fn levels(&self, axes: &[Axis], point: u64) -> Vec<Level> {
        match self.design {
            Design::Grid => {
                let mut rest = point;
                let place = |axis: &Axis| {
                    let levels = axis.levels().unwrap_or(1).max(1);
                    let level = axis.level(rest % levels);
                    rest /= levels;
                    level
                };
                let mut levels: Vec<Level> = axes.iter().rev().map(place).collect();
                levels.reverse();
                levels
            }
            Design::Random => axes.iter().map(|axis| axis.at(self.share(axis, point))).collect(),
        }
    }

    /// Draws a share of an axis, uniform from 0 to below 1.
    fn share(&self, axis: &Axis, point: u64) -> f64 {
        let axis = Rng::new(self.seed).child("sweep").child(&axis.name);
        let mut rng = axis.child(&point.to_string());
        (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::AxisKeys;
    use super::*;

    fn axes(is_grid: bool) -> Vec<Axis> {
        let read = |text: &str| {
            let keys: AxisKeys = super::super::keys_of(text).expect("TOML");
            Axis::read(keys, is_grid).expect("right")
        };
        let range = "key = \"path.rtt\"\nfrom = \"0ms\"\nto = \"1s\"";
        let steps = if is_grid { "\nsteps = 3" } else { "" };
        vec![
            read("key = \"path.up\"\nvalues = [\"1mbit\", \"2mbit\"]"),
            read(&format!("{range}{steps}")),
        ]
    }

    fn texts(points: &Points, axes: &[Axis], point: u64) -> Vec<String> {
        points.levels(axes, point).into_iter().map(|level| level.value.text).collect()
    }

    #[test]
    fn a_grid_has_every_combination_the_last_axis_fastest() {
        let axes = axes(true);
        let points = Points::new(Design::Grid, 0, &axes, 1).expect("few");
        let all: Vec<String> =
            (0..points.count).map(|point| texts(&points, &axes, point).join(" ")).collect();
        let wanted = ["1mbit 0s", "1mbit 500ms", "1mbit 1s", "2mbit 0s", "2mbit 500ms", "2mbit 1s"];
        assert_eq!(all, wanted);
    }

    #[test]
    fn draws_follow_from_the_seed_alone() {
        let axes = axes(false);
        let of = |seed| {
            let points = Points::new(Design::Random, 50, &axes, seed).expect("few");
            (0..50).map(|point| texts(&points, &axes, point)).collect::<Vec<_>>()
        };
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
    }
}
