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
            Design::Random | Design::LatinHypercube => samples,
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
            Design::LatinHypercube => {
                let place = |axis: &Axis| {
                    let stratum = self.stratum(axis, point);
                    axis.at((stratum as f64 + self.share(axis, point)) / self.count as f64)
                };
                axes.iter().map(place).collect()
            }
        }
    }

    fn stream(&self, axis: &Axis) -> Rng {
        Rng::new(self.seed).child("sweep").child(&axis.name)
    }

    /// Draws a share of an axis, uniform from 0 to below 1.
    fn share(&self, axis: &Axis, point: u64) -> f64 {
        let mut rng = self.stream(axis).child(&point.to_string());
        (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns the part of an axis that a point is in: each part has one point.
    fn stratum(&self, axis: &Axis, point: u64) -> u64 {
        let mut keys = self.stream(axis).child("permutation");
        let keys: [u64; ROUNDS] = std::array::from_fn(|_| keys.next_u64());
        permuted(point, self.count, &keys)
    }
}

const ROUNDS: usize = 6;

/// Maps a number below `count` to another, as a permutation: a Feistel network over the next power
/// of four, repeated until the result is below `count` (Black and Rogaway 2002).
fn permuted(number: u64, count: u64, keys: &[u64; ROUNDS]) -> u64 {
    let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
    let half = bits.div_ceil(2).max(1);
    let mask = (1_u64 << half) - 1;
    let mut number = number;
    loop {
        let (mut left, mut right) = (number >> half, number & mask);
        for key in keys {
            (left, right) = (right, left ^ (scrambled(right ^ key) & mask));
        }
        number = (left << half) | right;
        if number < count {
            return number;
        }
    }
}

/// Mixes all bits of a number (the finaliser of `MurmurHash3`).
fn scrambled(mut number: u64) -> u64 {
    number ^= number >> 33;
    number = number.wrapping_mul(0xff51_afd7_ed55_8ccd);
    number ^= number >> 33;
    number = number.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ (number >> 33)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
    fn each_part_of_a_hypercube_has_one_point() {
        for count in [1, 2, 3, 100, 1_000] {
            let axes = axes(false);
            let points = Points::new(Design::LatinHypercube, count, &axes, 7).expect("few");
            let parts: BTreeSet<u64> = (0..count)
                .map(|point| {
                    let seconds = points.levels(&axes, point)[1].value.amount.expect("a time");
                    // Rounding to a microsecond may move a time into the next part.
                    ((seconds - 1e-6).max(0.0) * count as f64) as u64
                })
                .collect();
            assert!(parts.len() as u64 >= count * 99 / 100, "{} of {count}", parts.len());
            let small = (0..count).filter(|point| texts(&points, &axes, *point)[0] == "1mbit");
            assert_eq!(small.count() as u64, count.div_ceil(2), "both rates alike");
        }
    }

    #[test]
    fn a_permutation_meets_every_number_once() {
        for count in [1_u64, 2, 5, 16, 17, 1_000, 4_097] {
            let keys = [1, 2, 3, 4, 5, 6];
            let met: BTreeSet<u64> = (0..count).map(|n| permuted(n, count, &keys)).collect();
            assert_eq!(met, (0..count).collect());
        }
        let in_place = (0..1_000).filter(|n| permuted(*n, 1_000, &[9, 8, 7, 6, 5, 4]) == *n);
        assert!(in_place.count() < 10, "it permutes");
    }

    #[test]
    fn draws_follow_from_the_seed_alone() {
        let axes = axes(false);
        let of = |design, seed| {
            let points = Points::new(design, 50, &axes, seed).expect("few");
            (0..50).map(|point| texts(&points, &axes, point)).collect::<Vec<_>>()
        };
        for design in [Design::Random, Design::LatinHypercube] {
            assert_eq!(of(design, 3), of(design, 3));
            assert_ne!(of(design, 3), of(design, 4));
        }
    }
}
