//! How often a pool of servers is full.
//!
//! Runs that begin independently of each other find a pool of servers full as often as calls find a
//! trunk group busy: for runs of one size by Erlang's B formula (Erlang 1917), for several sizes by
//! the recursion of Kaufman (1981) and Roberts (1981), of which Erlang's formula is a special case.

/// Runs of one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Class {
    /// Mean number of runs under way if none were refused.
    pub erlang: f64,
    /// Units of the pool that one run takes.
    pub units: usize,
}

/// Returns the share of runs of each class, from 0 to 1, that find fewer units free than they take
/// in a pool of `capacity` units.
///
/// The distribution of used units q follows from `q p(q) = sum of erlang * units * p(q - units)`.
pub fn blocking(classes: &[Class], capacity: usize) -> Vec<f64> {
    // Rescaled in between, because the terms of a thousand erlang exceed the range of a float.
    let mut weights = vec![0.0; capacity + 1];
    weights[0] = 1.0;
    let mut sum = 1.0;
    for used in 1..=capacity {
        let term = |class: &Class| {
            let from = used.checked_sub(class.units.max(1));
            from.map_or(0.0, |from| class.erlang * class.units.max(1) as f64 * weights[from])
        };
        weights[used] = classes.iter().map(term).sum::<f64>() / used as f64;
        sum += weights[used];
        if sum > RESCALE_ABOVE {
            weights[..=used].iter_mut().for_each(|weight| *weight /= sum);
            sum = 1.0;
        }
    }
    let share = |class: &Class| {
        let first_full = (capacity + 1).saturating_sub(class.units.max(1));
        weights[first_full..].iter().sum::<f64>() / sum
    };
    classes.iter().map(share).collect()
}

/// Far below the largest float, and far above any sum that matters.
const RESCALE_ABOVE: f64 = 1e200;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the share of calls that find all `slots` busy (Erlang's B formula).
    pub(crate) fn erlang_b(erlang: f64, slots: usize) -> f64 {
        blocking(&[Class { erlang, units: 1 }], slots)[0]
    }

    fn close(found: f64, want: f64, within: f64) {
        assert!((found - want).abs() <= within, "{found} is not {want}");
    }

    #[test]
    fn blocking_equals_erlangs_tables() {
        // Tables of Erlang B: 1 % blocking at 4.46 erlang and 10 trunks, 29.0 and 40, 84.1 and 100.
        for (erlang, slots) in [(4.46, 10), (29.0, 40), (84.1, 100)] {
            close(erlang_b(erlang, slots), 0.01, 0.0002);
        }
        // By hand: 1 erlang and 2 trunks, (1/2) / (1 + 1 + 1/2).
        close(erlang_b(1.0, 2), 0.2, 1e-12);
        close(erlang_b(0.0, 3), 0.0, 0.0);
        close(erlang_b(5.0, 0), 1.0, 0.0);
    }

    #[test]
    fn thousands_of_erlang_do_not_overflow() {
        let busy = erlang_b(20_000.0, 10_000);
        close(busy, 0.5, 0.001);
        assert!(erlang_b(1_000.0, 10_000) < 1e-9);
    }

    #[test]
    fn blocking_of_two_sizes_equals_the_sum_over_all_states() {
        // All states (n1, n2) with n1 + 3 n2 <= 7 weighted by a^n / n!: the product form.
        let (small, large) = (2.0, 0.7);
        let factorial = |n: u32| (1..=n).map(f64::from).product::<f64>();
        let (mut all, mut no_small, mut no_large) = (0.0, 0.0, 0.0);
        for n1 in 0..=7_u32 {
            for n2 in (0..=2_u32).filter(|n2| n1 + 3 * n2 <= 7) {
                let weight =
                    small_power(small, n1) / factorial(n1) * small_power(large, n2) / factorial(n2);
                let used = n1 + 3 * n2;
                all += weight;
                no_small += if used + 1 > 7 { weight } else { 0.0 };
                no_large += if used + 3 > 7 { weight } else { 0.0 };
            }
        }
        let classes = [Class { erlang: small, units: 1 }, Class { erlang: large, units: 3 }];
        let found = blocking(&classes, 7);
        close(found[0], no_small / all, 1e-12);
        close(found[1], no_large / all, 1e-12);
    }

    fn small_power(base: f64, exponent: u32) -> f64 {
        (0..exponent).map(|_| base).product()
    }
}
