//! Comparison of two groups: whether one is slower, and by how much.

use super::tails::{normal_above, normal_quantile};
use crate::schema::Estimate;

/// Groups up to this size are tested exactly when no two values are equal.
const EXACT_LIMIT: usize = 20;

/// The alternative hypothesis of a test, about the first group's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alternative {
    TwoSided,
    Less,
    Greater,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankMethod {
    /// From every arrangement of ranks.
    Exact,
    /// Normal approximation with corrections for ties and continuity.
    Normal,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MannWhitney {
    /// Pairs in which the first group's value is larger; a tie counts one half.
    pub u: f64,
    pub p_value: f64,
    /// Share of pairs in which the first group's value is larger: 0.5 for equal groups.
    pub superiority: f64,
    /// How `p_value` was computed.
    pub method: RankMethod,
}

/// Mann and Whitney's rank test (1947). Exact for up to 20 values per group without ties, otherwise
/// by normal approximation. `None` if a group is empty or has a value that is not finite.
pub fn mann_whitney(
    first: &[f64],
    second: &[f64],
    alternative: Alternative,
) -> Option<MannWhitney> {
    let ranks = Ranks::new(first, second)?;
    let (u, pairs) = (ranks.u, ranks.pairs());
    let p_value = match alternative {
        Alternative::Greater => ranks.at_least(u),
        Alternative::Less => ranks.at_least(pairs - u),
        Alternative::TwoSided => 2.0 * ranks.at_least(u.max(pairs - u)),
    };
    let (superiority, method) = (u / pairs, ranks.method());
    Some(MannWhitney { u, p_value: p_value.min(1.0), superiority, method })
}

/// The rank statistics of two groups.
struct Ranks {
    first: usize,
    second: usize,
    /// U of the first group.
    u: f64,
    /// The sum of t^3 - t over groups of t equal values.
    tie_term: f64,
}

impl Ranks {
    /// Returns `None` if a group is empty or has a value that is not finite.
    fn new(first: &[f64], second: &[f64]) -> Option<Self> {
        let finite = |values: &[f64]| !values.is_empty() && values.iter().all(|v| v.is_finite());
        if !finite(first) || !finite(second) {
            return None;
        }
        let mut all: Vec<(f64, bool)> = first.iter().map(|value| (*value, true)).collect();
        all.extend(second.iter().map(|value| (*value, false)));
        all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let (mut rank_sum, mut tie_term, mut before) = (0.0, 0.0, 0usize);
        // Zero equals minus zero, hence `==` and not a total order.
        #[expect(clippy::float_cmp, reason = "a tie is exact equality")]
        for tied in all.chunk_by(|a, b| a.0 == b.0) {
            let size = tied.len() as f64;
            let rank = before as f64 + f64::midpoint(size, 1.0);
            rank_sum += rank * tied.iter().filter(|(_, is_first)| *is_first).count() as f64;
            tie_term += size.powi(3) - size;
            before += tied.len();
        }
        let count = first.len() as f64;
        let u = rank_sum - count * (count + 1.0) / 2.0;
        Some(Self { first: first.len(), second: second.len(), u, tie_term })
    }

    fn pairs(&self) -> f64 {
        self.first as f64 * self.second as f64
    }

    fn method(&self) -> RankMethod {
        let small = self.first <= EXACT_LIMIT && self.second <= EXACT_LIMIT;
        if small && self.tie_term == 0.0 { RankMethod::Exact } else { RankMethod::Normal }
    }

    /// Returns the probability of U at or above `u` for equal groups.
    fn at_least(&self, u: f64) -> f64 {
        match self.method() {
            RankMethod::Exact => {
                let ways = arrangements(self.first, self.second);
                let from = u.ceil().clamp(0.0, self.pairs()) as usize;
                ways[from..].iter().sum::<f64>() / ways.iter().sum::<f64>()
            }
            RankMethod::Normal => {
                let deviation = self.deviation();
                if deviation == 0.0 {
                    return 1.0;
                }
                normal_above((u - self.pairs() / 2.0 - 0.5) / deviation)
            }
        }
    }

    /// Returns the standard deviation of U, corrected for ties.
    fn deviation(&self) -> f64 {
        let count = self.first as f64 + self.second as f64;
        let ties = self.tie_term / (count * (count - 1.0));
        (self.pairs() / 12.0 * (count + 1.0 - ties)).sqrt()
    }

    /// Returns the number of values of U, from 0 on, that the two-sided test rejects, which is the
    /// rank among all differences at which the interval starts. `None` if it rejects none.
    fn rejected(&self, confidence: f64) -> Option<u64> {
        let rejected = match self.method() {
            RankMethod::Exact => {
                // A probability equal to the limit may differ by rounding.
                let limit = 1.0 - confidence + 1e-12;
                let ways = arrangements(self.first, self.second);
                let total: f64 = ways.iter().sum();
                let chances = ways.iter().scan(0.0, |sum, ways| {
                    *sum += ways;
                    Some(2.0 * *sum / total)
                });
                chances.take_while(|chance| *chance <= limit).count() as u64
            }
            RankMethod::Normal => {
                let z = normal_quantile(0.5 + confidence / 2.0);
                (self.pairs() / 2.0 + 0.5 - z * self.deviation()).floor().max(0.0) as u64
            }
        };
        (rejected > 0).then_some(rejected)
    }
}

/// Returns the number of arrangements with each U: coefficients of a Gaussian binomial.
fn arrangements(first: usize, second: usize) -> Vec<f64> {
    let largest = first * second;
    let mut ways = vec![0.0f64; largest + 1];
    ways[0] = 1.0;
    for factor in 1..=first {
        for position in (second + factor..=largest).rev() {
            ways[position] -= ways[position - second - factor];
        }
        for position in factor..=largest {
            ways[position] += ways[position - factor];
        }
    }
    ways
}

/// Hodges and Lehmann's estimate (1963): the median of all differences first minus second, with the
/// interval that [`mann_whitney`] does not reject: if its p-value is at most 1 - `confidence`, the
/// interval excludes zero, except that with ties zero may be its end.
///
/// The estimate is exact, in time that grows with the sum of the sizes, not their product. `None`
/// if a group is empty or has a value that is not finite, or if the confidence is not strictly
/// between 0 and 1.
pub fn hodges_lehmann_shift(first: &[f64], second: &[f64], confidence: f64) -> Option<Estimate> {
    let inside = confidence > 0.0 && confidence < 1.0;
    let ranks = Ranks::new(first, second)?;
    let (first, second) = (ascending(first), ascending(second));
    if !inside {
        return None;
    }
    let pairs = first.len() as u64 * second.len() as u64;
    let difference = |rank: u64| nth_difference(&first, &second, rank);
    let estimate = f64::midpoint(difference(pairs.div_ceil(2)), difference(pairs / 2 + 1));
    let rank = ranks.rejected(confidence);
    Some(Estimate {
        value: estimate,
        low: rank.map(difference),
        high: rank.map(|rank| difference(pairs - rank + 1)),
    })
}

/// As [`hodges_lehmann_shift`] with quotients first over second, for positive values only.
pub fn hodges_lehmann_ratio(first: &[f64], second: &[f64], confidence: f64) -> Option<Estimate> {
    if first.iter().chain(second).any(|value| *value <= 0.0) {
        return None;
    }
    let logarithms = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
    let shift = hodges_lehmann_shift(&logarithms(first), &logarithms(second), confidence)?;
    Some(Estimate {
        value: shift.value.exp(),
        low: shift.low.map(f64::exp),
        high: shift.high.map(f64::exp),
    })
}

pub(super) fn ascending(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// Returns the difference of a rank, from 1, among all pairs: a binary search over all f64 values,
/// where each step counts the pairs at or below in one pass over both groups.
fn nth_difference(first: &[f64], second: &[f64], rank: u64) -> f64 {
    let smallest = first[0] - second[second.len() - 1];
    let largest = first[first.len() - 1] - second[0];
    let (mut low, mut high) = (order_key(smallest), order_key(largest));
    while low < high {
        let middle = low + (high - low) / 2;
        if pairs_at_or_below(first, second, from_order_key(middle)) >= rank {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    from_order_key(low)
}

fn pairs_at_or_below(first: &[f64], second: &[f64], limit: f64) -> u64 {
    let mut from = 0;
    let mut pairs = 0;
    for value in first {
        while from < second.len() && value - second[from] > limit {
            from += 1;
        }
        pairs += (second.len() - from) as u64;
    }
    pairs
}

/// Maps finite numbers to integers in the same order.
fn order_key(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn from_order_key(key: u64) -> f64 {
    f64::from_bits(if key >> 63 == 1 { key & !(1 << 63) } else { !key })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pair_at_the_limit_counts() {
        // The differences are 1, 0, -1, 2, 1, 0.
        for (limit, pairs) in [(-1.5, 0), (-1.0, 1), (0.0, 3), (1.0, 5), (2.0, 6)] {
            assert_eq!(pairs_at_or_below(&[1.0, 2.0], &[0.0, 1.0, 2.0], limit), pairs, "{limit}");
        }
    }

    /// Groups, method, U, p-values of the three alternatives.
    type RankCase<'a> = (&'a [f64], &'a [f64], RankMethod, f64, [f64; 3]);

    const SMALL_A: [f64; 6] = [19.2, 21.4, 18.8, 24.9, 20.1, 22.3];
    const SMALL_B: [f64; 5] = [240.5, 251.2, 17.9, 260.8, 255.1];
    const TIED_A: [f64; 10] = [20.0, 21.0, 21.0, 22.0, 25.0, 25.0, 30.0, 31.0, 33.0, 40.0];
    const TIED_B: [f64; 8] = [21.0, 25.0, 28.0, 31.0, 31.0, 35.0, 44.0, 45.0];

    fn large() -> (Vec<f64>, Vec<f64>) {
        let first = (0..40).map(|i| f64::from(i * 37 % 101) + f64::from(i) / 100.0).collect();
        let second = (0..30).map(|i| f64::from(i * 53 % 97) + 12.5 + f64::from(i) / 100.0);
        (first, second.collect())
    }

    // for alternative in ['two-sided', 'less', 'greater']:
    //     scipy.stats.mannwhitneyu(a, b, alternative=alternative, method=method)
    #[test]
    fn the_rank_test_equals_scipys() {
        let (large_a, large_b) = large();
        let cases: [RankCase<'_>; 3] = [
            (
                &SMALL_A,
                &SMALL_B,
                RankMethod::Exact,
                6.0,
                [0.125_541_125_541_125_54, 0.062_770_562_770_562_77, 0.958_874_458_874_458_9],
            ),
            (
                &TIED_A,
                &TIED_B,
                RankMethod::Normal,
                23.0,
                [0.140_151_670_392_311_36, 0.070_075_835_196_155_68, 0.941_165_638_394_633_4],
            ),
            (
                &large_a,
                &large_b,
                RankMethod::Normal,
                517.0,
                [0.327_533_107_141_740_33, 0.163_766_553_570_870_17, 0.839_148_099_200_341_5],
            ),
        ];
        let sides = [Alternative::TwoSided, Alternative::Less, Alternative::Greater];
        for (first, second, method, u, p_values) in cases {
            for (alternative, p_value) in sides.into_iter().zip(p_values) {
                let found = mann_whitney(first, second, alternative).expect("finite values");
                assert_eq!((found.method, found.u.to_bits()), (method, u.to_bits()));
                let error = (found.p_value - p_value).abs();
                assert!(error < 1e-9, "{alternative:?}: {} is not {p_value}", found.p_value);
                let share = u / (first.len() * second.len()) as f64;
                assert!((found.superiority - share).abs() < 1e-12, "{found:?}");
            }
        }
    }

    // d = numpy.sort(numpy.subtract.outer(a, b).ravel()); numpy.median(d)
    // d[k - 1], d[-k], with k as in the next test, or of ties and of more than 20 values
    // floor(m * n / 2 + 0.5 - scipy.stats.norm.ppf(0.975) * s) with s as in mannwhitneyu
    #[test]
    fn shifts_equal_the_quantiles_of_all_differences() {
        let (large_a, large_b) = large();
        let cases: [(&[f64], &[f64], [f64; 3]); 3] = [
            (&SMALL_A, &SMALL_B, [-230.0, -239.4, 2.2]),
            (&TIED_A, &TIED_B, [-5.5, -14.0, 2.0]),
            (&large_a, &large_b, [-6.53, -21.39, 7.71]),
        ];
        for (first, second, [estimate, low, high]) in cases {
            let shift = hodges_lehmann_shift(first, second, 0.95).expect("finite values");
            assert!((shift.value - estimate).abs() < 1e-9, "{shift:?}");
            assert!((shift.low.expect("large enough") - low).abs() < 1e-9, "{shift:?}");
            assert!((shift.high.expect("large enough") - high).abs() < 1e-9, "{shift:?}");
        }
        let ratio = hodges_lehmann_ratio(&SMALL_A, &SMALL_B, 0.95).expect("positive values");
        for (found, want) in [
            (Some(ratio.value), 0.085_348_463_514_568_33),
            (ratio.low, 0.074_840_764_331_210_22),
            (ratio.high, 1.122_905_027_932_961_5),
        ] {
            assert!((found.expect("large enough") - want).abs() < 1e-12, "{ratio:?}");
        }
    }

    // k = max(u for u in range(m * n // 2) if p(u - 1) <= 1 - confidence), where
    // p(u) = scipy.stats.mannwhitneyu(a, b, method='exact').pvalue of any a and b whose U is u
    #[test]
    fn intervals_begin_where_scipys_exact_test_ends() {
        let of_twenty =
            [0, 0, 0, 1, 3, 6, 9, 14, 18, 24, 31, 38, 46, 56, 65, 76, 88, 100, 114, 128_u64];
        let equal = (1..).zip(of_twenty).map(|(size, rank)| (size, size, 0.95, rank));
        let others = [
            (3, 5, 0.95, 1),
            (1, 20, 0.95, 0),
            (2, 8, 0.95, 1),
            (20, 3, 0.95, 9),
            (10, 8, 0.95, 18),
            (3, 3, 0.9, 1),
            (15, 15, 0.9, 73),
            (5, 5, 0.99, 1),
            (20, 20, 0.99, 106),
        ];
        for (first, second, confidence, rank) in equal.chain(others) {
            let ranks = Ranks { first, second, u: 0.0, tie_term: 0.0 };
            let found = ranks.rejected(confidence).unwrap_or(0);
            assert_eq!(found, rank, "{first} and {second} at {confidence}");
        }
    }

    #[test]
    fn the_exact_rank_test_is_used_only_for_small_groups() {
        let (large, _) = large();
        for (first, second) in [(&SMALL_A[..], &large[..]), (&large[..], &SMALL_A[..])] {
            let found = mann_whitney(first, second, Alternative::TwoSided).expect("finite values");
            assert_eq!(found.method, RankMethod::Normal);
        }
    }

    #[test]
    fn groups_that_cannot_be_compared_have_no_result() {
        for confidence in [-0.5, 0.0, 1.0, 1.5, f64::NAN] {
            let shift = hodges_lehmann_shift(&SMALL_A, &SMALL_B, confidence);
            assert_eq!(shift, None, "{confidence}");
        }
        assert_eq!(mann_whitney(&[], &[1.0], Alternative::TwoSided), None);
        assert_eq!(hodges_lehmann_shift(&[f64::NAN], &[1.0], 0.95), None);
        assert_eq!(hodges_lehmann_ratio(&[0.0], &[1.0], 0.95), None);
        let one = hodges_lehmann_shift(&[3.0], &[1.0], 0.95).expect("two values");
        assert_eq!((one.low, one.high), (None, None));
        assert!((one.value - 2.0).abs() < 1e-12);
        let alike = mann_whitney(&[1.0; 30], &[1.0; 30], Alternative::TwoSided).expect("values");
        assert!((alike.p_value - 1.0).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn an_interval_leaves_out_zero_where_the_test_says_so(
            first in prop::collection::vec(-1e6f64..1e6, 1..25),
            second in prop::collection::vec(-1e6f64..1e6, 1..25),
            apart in -1e6f64..1e6,
        ) {
            let first: Vec<f64> = first.iter().map(|value| value + apart).collect();
            let test = mann_whitney(&first, &second, Alternative::TwoSided).expect("finite values");
            let shift = hodges_lehmann_shift(&first, &second, 0.95).expect("finite values");
            let is_out = shift.low.is_some_and(|low| low > 0.0)
                || shift.high.is_some_and(|high| high < 0.0);
            prop_assert_eq!(is_out, test.p_value <= 0.05, "{:?} {:?}", test, shift);
        }

        #[test]
        fn the_shift_is_the_median_of_all_differences(
            first in prop::collection::vec(-1e6f64..1e6, 1..30),
            second in prop::collection::vec(-1e6f64..1e6, 1..30),
        ) {
            let mut all: Vec<f64> =
                first.iter().flat_map(|a| second.iter().map(move |b| a - b)).collect();
            all.sort_unstable_by(f64::total_cmp);
            let median = f64::midpoint(all[(all.len() - 1) / 2], all[all.len() / 2]);
            let shift = hodges_lehmann_shift(&first, &second, 0.9).expect("finite values");
            prop_assert!((shift.value - median).abs() <= 1e-9 * median.abs().max(1.0));
        }
    }
}
