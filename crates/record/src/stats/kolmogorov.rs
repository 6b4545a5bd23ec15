//! The largest distance between two empirical distribution functions.

use super::compare::ascending;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KolmogorovSmirnov {
    /// Largest distance between the two functions.
    pub distance: f64,
    /// Two-sided, by Kolmogorov's limit: accurate from a few dozen values per group on.
    pub p_value: f64,
}

/// Compares two groups. `None` if a group is empty or has a value that is not finite.
pub fn kolmogorov_smirnov(first: &[f64], second: &[f64]) -> Option<KolmogorovSmirnov> {
    let is_good = |values: &[f64]| !values.is_empty() && values.iter().all(|v| v.is_finite());
    if !is_good(first) || !is_good(second) {
        return None;
    }
    let (first, second) = (ascending(first), ascending(second));
    let (m, n) = (first.len() as f64, second.len() as f64);
    let (mut i, mut j, mut distance) = (0, 0, 0.0_f64);
    while i < first.len() && j < second.len() {
        // All equal values are passed before the functions are compared.
        let at = first[i].min(second[j]);
        i += first[i..].iter().take_while(|value| **value <= at).count();
        j += second[j..].iter().take_while(|value| **value <= at).count();
        distance = distance.max((i as f64 / m - j as f64 / n).abs());
    }
    let p_value = kolmogorov_tail((m * n / (m + n)).sqrt() * distance);
    Some(KolmogorovSmirnov { distance, p_value })
}

/// Returns the probability that the supremum of a Brownian bridge exceeds `x` (Kolmogorov 1933).
fn kolmogorov_tail(x: f64) -> f64 {
    // Both series are exact; each converges fast where the other does not.
    if x < 1.0 {
        if x < 0.1 {
            return 1.0;
        }
        let pi = std::f64::consts::PI;
        let term = |k: i32| (-(f64::from(2 * k - 1) * pi / x).powi(2) / 8.0).exp();
        return 1.0 - (2.0 * pi).sqrt() / x * (1..=8).map(term).sum::<f64>();
    }
    let term = |k: i32| {
        let sign = if k % 2 == 1 { 1.0 } else { -1.0 };
        sign * (-2.0 * f64::from(k * k) * x * x).exp()
    };
    (2.0 * (1..=8).map(term).sum::<f64>()).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    // a, b = [20, 21, 21, 22, 25, 25, 30, 31, 33, 40], [21, 25, 28, 31, 31, 35, 44, 45]
    // d = scipy.stats.ks_2samp(a, b).statistic
    // d, scipy.special.kolmogorov(numpy.sqrt(10 * 8 / 18) * d)
    #[test]
    fn the_distance_equals_scipys() {
        let first = [20.0, 21.0, 21.0, 22.0, 25.0, 25.0, 30.0, 31.0, 33.0, 40.0];
        let second = [21.0, 25.0, 28.0, 31.0, 31.0, 35.0, 44.0, 45.0];
        let found = kolmogorov_smirnov(&first, &second).expect("finite values");
        assert!((found.distance - KS_D).abs() < 1e-12, "{found:?}");
        assert!((found.p_value - KS_P).abs() < 1e-9, "{found:?}");
        let turned = kolmogorov_smirnov(&second, &first).expect("finite values");
        assert_eq!(turned, found);
    }

    // [scipy.special.kolmogorov(x) for x in (0.05, 0.3, 0.7, 0.999, 1.0, 1.36, 3.0)]
    #[test]
    fn the_tail_equals_scipys_on_both_sides_of_one() {
        for (x, tail) in TAILS {
            let found = kolmogorov_tail(x);
            assert!((found - tail).abs() <= 1e-12 + 1e-9 * tail, "{x}: {found} is not {tail}");
        }
    }

    #[test]
    fn equal_and_disjoint_groups_have_known_distances() {
        let same = kolmogorov_smirnov(&[1.0, 2.0, 2.0], &[2.0, 1.0, 2.0]).expect("finite");
        assert!(same.distance.abs() < 1e-12 && (same.p_value - 1.0).abs() < 1e-12);
        let apart = kolmogorov_smirnov(&[1.0; 50], &[2.0; 50]).expect("finite");
        assert!((apart.distance - 1.0).abs() < 1e-12 && apart.p_value < 1e-20);
        assert_eq!(kolmogorov_smirnov(&[], &[1.0]), None);
        assert_eq!(kolmogorov_smirnov(&[f64::NAN], &[1.0]), None);
    }

    const KS_D: f64 = 0.35;
    const KS_P: f64 = 0.647_620_785_579_080_5;
    const TAILS: [(f64, f64); 7] = [
        (0.05, 1.0),
        (0.3, 0.999_990_694_198_665_5),
        (0.7, 0.711_235_195_029_689_3),
        (0.999, 0.271_073_164_115_063_94),
        (1.0, 0.269_999_671_677_354_56),
        (1.36, 0.049_485_876_755_377_876),
        (3.0, 3.045_995_948_942_526e-08),
    ];
}
