//! Exact quantiles of stored samples.

use std::collections::BTreeMap;

use crate::schema::{Distribution, Quantile};

/// Returns the nearest-rank quantile: the smallest value with at least `q * n` values at or below
/// it (the inverse of the empirical distribution, definition 1 of Hyndman and Fan 1996).
///
/// `q` is clamped to 0..=1; `None` if `sorted` is empty.
pub fn nearest_rank<T: Copy>(sorted: &[T], q: f64) -> Option<T> {
    nearest_rank_of(sorted, sorted.len(), q)
}

/// Returns the median, between the two middle values of an even count; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(f64::midpoint(sorted[(sorted.len() - 1) / 2], upper))
}

/// Returns the nearest-rank quantile of `count` values, of which `sorted` has the smallest ones;
/// the others are lost probes, which count as longer. `None` if the quantile falls on one of them.
pub fn nearest_rank_of<T: Copy>(sorted: &[T], count: usize, q: f64) -> Option<T> {
    let position = rank(count, q).checked_sub(1)?;
    sorted.get(position).copied()
}

/// Returns quantiles of all probes `sent`; `sorted` has the delays of the answered ones. A quantile
/// that falls on a lost probe is `None`. Empty if no probe was lost: the quantiles of
/// [`distribution`] are then equal.
pub fn of_sent<T: Copy + Into<i128>>(sorted: &[T], sent: u64) -> BTreeMap<Quantile, Option<i64>> {
    of_sent_by_rank(sorted.len() as u64, sent, |rank| nanos(sorted[rank as usize - 1]))
}

/// As [`of_sent`]; `at_rank` returns the answered value of a rank from 1.
pub(super) fn of_sent_by_rank(
    answered: u64,
    sent: u64,
    at_rank: impl Fn(u64) -> i64,
) -> BTreeMap<Quantile, Option<i64>> {
    if answered == 0 || sent <= answered {
        return BTreeMap::new();
    }
    let at = |share| {
        let rank = rank(sent as usize, share) as u64;
        (rank <= answered).then(|| at_rank(rank))
    };
    Quantile::WITH_SHARE.into_iter().map(|(quantile, share)| (quantile, at(share))).collect()
}

/// Sorts the values and returns their distribution. Larger values count as [`i64::MAX`].
pub fn distribution<T: Copy + Ord + Into<i128>>(values: &mut [T]) -> Option<Distribution> {
    values.sort_unstable();
    let (min_ns, max_ns) = (nanos(*values.first()?), nanos(*values.last()?));
    let sum: i128 = values.iter().map(|value| (*value).into()).sum();
    let at = |permille| nearest_rank(values, f64::from(permille) / 1_000.0).map_or(max_ns, nanos);
    let mean_ns = nanos(sum.div_euclid(values.len() as i128));
    Some(Distribution::new(values.len() as u64, [min_ns, max_ns, mean_ns], at))
}

pub(crate) fn nanos(value: impl Into<i128>) -> i64 {
    value.into().clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// As [`distribution`], with a weight for each value: quantile q is the smallest value such that
/// values at or below it have at least the share q of all weight. Sorts the pairs; values of weight
/// 0 count only for `count`, minimum and maximum. `None` if the sum of weights is 0.
pub fn weighted_distribution(pairs: &mut [(i64, u64)]) -> Option<Distribution> {
    pairs.sort_unstable();
    let (min_ns, max_ns) = (pairs.first()?.0, pairs.last()?.0);
    let total: u128 = pairs.iter().map(|(_, weight)| u128::from(*weight)).sum();
    let sum: i128 = pairs.iter().map(|(v, weight)| i128::from(*v) * i128::from(*weight)).sum();
    let mean_ns = nanos(sum.checked_div_euclid(total as i128)?);
    let at = |permille| {
        let mut below = 0;
        let reached = pairs.iter().find(|(_, weight)| {
            below += u128::from(*weight);
            below * 1000 >= total * u128::from(permille)
        });
        reached.map_or(max_ns, |(value, _)| *value)
    };
    Some(Distribution::new(pairs.len() as u64, [min_ns, max_ns, mean_ns], at))
}

/// Returns the rank from 1 to `count`, or 0 if `count` is 0. The product is lowered by a few units
/// in the last place, so that 0.95 * 20 is rank 19 although binary 0.95 exceeds the decimal.
pub(crate) fn rank(count: usize, q: f64) -> usize {
    let product = q.clamp(0.0, 1.0) * count as f64;
    let rank = (product - product * (4.0 * f64::EPSILON)).ceil() as usize;
    rank.clamp(count.min(1), count)
}

#[cfg(test)]
mod tests {
    use super::*;

    // numpy.quantile(x, q, method='inverted_cdf') over
    // x = [15, 20, 35, 40, 50] and x = range(1, 1001)
    #[test]
    fn quantiles_equal_numpys_inverted_cdf() {
        let five = [15u64, 20, 35, 40, 50];
        for (q, want) in [(0.0, 15), (0.05, 15), (0.3, 20), (0.4, 20), (0.5, 35), (1.0, 50)] {
            assert_eq!(nearest_rank(&five, q), Some(want), "q {q}");
        }
        let thousand: Vec<u64> = (1..=1000).collect();
        for (q, want) in [(0.5, 500), (0.9, 900), (0.95, 950), (0.99, 990), (0.999, 999)] {
            assert_eq!(nearest_rank(&thousand, q), Some(want), "q {q}");
        }
    }

    #[test]
    fn decimal_quantiles_of_every_size_match_integer_arithmetic() {
        for count in 0..3000usize {
            for per_mille in [0usize, 1, 500, 900, 950, 990, 999, 1000] {
                let exact = (count * per_mille).div_ceil(1000).clamp(count.min(1), count);
                assert_eq!(rank(count, per_mille as f64 / 1000.0), exact, "{per_mille} of {count}");
            }
        }
    }

    #[test]
    fn a_weight_counts_like_repeated_values() {
        let mut pairs = [(40, 3), (10, 5), (30, 0), (20, 992)];
        let mut repeated: Vec<i64> = pairs
            .iter()
            .flat_map(|(value, weight)| std::iter::repeat_n(*value, *weight as usize))
            .collect();
        let plain = distribution(&mut repeated).expect("values");
        let weighted = weighted_distribution(&mut pairs).expect("weights");
        assert_eq!(weighted, Distribution { count: 4, ..plain });
        assert_eq!(weighted_distribution(&mut [(5, 0)]), None);
    }

    #[test]
    fn a_lost_probe_is_longer_than_every_answer() {
        for (answered, lost) in [(1_i64, 1_u64), (97, 3), (99, 1), (495, 5), (1000, 0), (0, 9)] {
            let values: Vec<i64> = (1..=answered).collect();
            let mut all: Vec<i64> = values.clone();
            all.extend((0..lost).map(|_| i64::MAX));
            let found = of_sent(&values, all.len() as u64);
            let mut counted = crate::stats::SignedHistogram::default();
            for value in &values {
                counted.record(*value);
            }
            assert_eq!(counted.of_sent(all.len() as u64).len(), found.len());
            assert_eq!(found.is_empty(), lost == 0 || answered == 0, "{answered} {lost}");
            for (quantile, value) in found {
                let exact = nearest_rank(&all, quantile.share().unwrap()).unwrap();
                assert_eq!(value, Some(exact).filter(|it| *it < i64::MAX), "{quantile:?}");
            }
        }
    }

    #[test]
    fn no_values_have_no_distribution() {
        assert_eq!(distribution::<u64>(&mut []), None);
        assert_eq!(nearest_rank::<u64>(&[], 0.5), None);
    }

    #[test]
    fn the_mean_does_not_overflow() {
        let result = distribution(&mut [i64::MAX, i64::MAX - 2]).expect("two values");
        assert_eq!(result.mean_ns, i64::MAX - 1);
        assert_eq!((result.min_ns, result.p50_ns), (i64::MAX - 2, i64::MAX - 2));
        assert_eq!((result.p999_ns, result.count), (i64::MAX, 2));
        assert_eq!(distribution(&mut [u64::MAX]).map(|all| all.p50_ns), Some(i64::MAX));
    }

    #[test]
    fn negative_values_keep_their_sign_and_the_mean_is_rounded_down() {
        let all = distribution(&mut [-9_i64, -4, 2]).expect("three values");
        assert_eq!((all.min_ns, all.p50_ns, all.max_ns, all.mean_ns), (-9, -4, 2, -4));
        let weighted = weighted_distribution(&mut [(2, 1), (-9, 1), (-4, 1)]);
        assert_eq!(weighted, Some(all));
    }
}
