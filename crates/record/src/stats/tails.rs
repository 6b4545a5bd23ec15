//! Tails and quantiles of the normal distribution and of Student's t.
//!
//! All are exact to 13 digits or more. Quantiles are found by bisection over the probabilities.

use std::f64::consts::{FRAC_2_PI, PI};

/// Returns the probability that a standard normal variable is above `x`.
pub(crate) fn normal_above(x: f64) -> f64 {
    if x < 0.0 {
        return 1.0 - normal_above(-x);
    }
    let density = (-x * x / 2.0).exp() / (2.0 * PI).sqrt();
    if x < SERIES_BELOW {
        // Abramowitz and Stegun 26.2.11: x + x^3/3 + x^5/(3 * 5) + ...
        let (mut term, mut sum, mut odd) = (x, x, 1.0);
        while term > sum * f64::EPSILON / 4.0 {
            odd += 2.0;
            term *= x * x / odd;
            sum += term;
        }
        return 0.5 - density * sum;
    }
    // Abramowitz and Stegun 26.2.14: 1/(x + 1/(x + 2/(x + ...))), from its far end.
    let fraction = (1..=FRACTIONS).rev().fold(x, |rest, number| x + f64::from(number) / rest);
    density / fraction
}

/// From here on the continued fraction is exact after [`FRACTIONS`] terms, and the series is not.
const SERIES_BELOW: f64 = 2.0;
const FRACTIONS: u32 = 100;

/// Returns the value that a standard normal variable is below with probability `share`, which is
/// at least 0.5: infinite for 1.
pub(crate) fn normal_quantile(share: f64) -> f64 {
    if share >= 1.0 {
        return f64::INFINITY;
    }
    least(|x| normal_above(x) <= 1.0 - share)
}

/// Returns the value that the size of a variable of Student's t with `freedom` degrees of freedom,
/// a whole number, is below with probability `share`.
pub(crate) fn student_t_within(share: f64, freedom: f64) -> f64 {
    if freedom < LARGE_FREEDOM {
        return least(|t| student_t_inside(t, freedom) >= share);
    }
    // Abramowitz and Stegun 26.7.5.
    let z = normal_quantile(0.5 + share / 2.0);
    let square = z * z;
    let terms: [&[f64]; 4] = [
        &[1.0 / 4.0, 1.0 / 4.0],
        &[3.0 / 96.0, 16.0 / 96.0, 5.0 / 96.0],
        &[-15.0 / 384.0, 17.0 / 384.0, 19.0 / 384.0, 3.0 / 384.0],
        &[
            -945.0 / 92_160.0,
            -1_920.0 / 92_160.0,
            1_482.0 / 92_160.0,
            776.0 / 92_160.0,
            79.0 / 92_160.0,
        ],
    ];
    let polynomial =
        |term: &[f64]| term.iter().rev().fold(0.0, |sum, factor| sum * square + factor);
    let correction = terms.iter().rev().fold(0.0, |sum, term| (sum + polynomial(term)) / freedom);
    z * (1.0 + correction)
}

/// Least degrees of freedom for the expansion in powers of 1/`freedom`, which is exact there; the
/// finite sum would be long.
const LARGE_FREEDOM: f64 = 1_000.0;

/// Returns the probability that the size of a variable of Student's t is below `t`, for a whole
/// number of degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4).
fn student_t_inside(t: f64, freedom: f64) -> f64 {
    let sine = t / freedom.sqrt().hypot(t);
    let cosine_square = freedom / (freedom + t * t);
    let is_odd = freedom % 2.0 > 0.5;
    let (mut term, mut sum) = (1.0, 0.0);
    let mut number = if is_odd { 3.0 } else { 2.0 };
    while number <= freedom {
        sum += term;
        term *= cosine_square * (number - 1.0) / number;
        number += 2.0;
    }
    if is_odd {
        let angle = (t / freedom.sqrt()).atan();
        return FRAC_2_PI * (angle + sine * cosine_square.sqrt() * sum);
    }
    sine * sum
}

/// Returns the least number that is not negative for which a monotone condition is true.
fn least(is_reached: impl Fn(f64) -> bool) -> f64 {
    // Numbers that are not negative are in the order of their bits.
    let (mut low, mut high) = (0_u64, f64::INFINITY.to_bits());
    while low < high {
        let middle = low.midpoint(high);
        if is_reached(f64::from_bits(middle)) { high = middle } else { low = middle + 1 }
    }
    f64::from_bits(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(found: f64, want: f64, what: &str) {
        assert!((found - want).abs() <= want.abs() * 1e-13, "{what}: {found} is not {want}");
    }

    // mpmath 1.3: erfc(x / sqrt(2)) / 2
    #[test]
    fn normal_tails_equal_tabulated_ones() {
        for (x, want) in [
            (0.0, 0.5),
            (0.5, 0.308_537_538_725_986_9),
            (1.0, 0.158_655_253_931_457_05),
            (2.0, 0.022_750_131_948_179_21),
            (2.5, 0.006_209_665_325_776_135),
            (3.0, 0.001_349_898_031_630_094_5),
            (5.0, 2.866_515_718_791_939e-7),
            (8.0, 6.220_960_574_271_784e-16),
            (20.0, 2.753_624_118_606_233_7e-89),
        ] {
            assert_close(normal_above(x), want, &format!("above {x}"));
            assert_close(normal_above(-x), 1.0 - want, &format!("above -{x}"));
        }
        let ends = [f64::INFINITY, f64::NEG_INFINITY].map(|z| normal_above(z).to_bits());
        assert_eq!(ends, [0.0_f64, 1.0].map(f64::to_bits));
    }

    #[test]
    fn normal_quantiles_equal_tabulated_ones() {
        for (share, want) in [
            (0.75, 0.674_489_750_196_081_7),
            (0.9, 1.281_551_565_544_600_6),
            (0.95, 1.644_853_626_951_472_3),
            (0.975, 1.959_963_984_540_053_9),
            (0.995, 2.575_829_303_548_900_5),
            (0.9995, 3.290_526_731_491_926),
        ] {
            assert_close(normal_quantile(share), want, &format!("{share}"));
        }
        assert_eq!((normal_quantile(0.5), normal_quantile(1.0)), (0.0, f64::INFINITY));
    }

    // mpmath 1.3: the root of 1 - betainc(n / 2, 1 / 2, 0, n / (n + t * t), regularized=True) - p
    #[test]
    fn students_quantiles_equal_tabulated_ones() {
        for (freedom, want_95, want_99) in [
            (1.0, 12.706_204_736_174_693, 63.656_741_162_871_524),
            (2.0, 4.302_652_729_749_462, 9.924_843_200_918_29),
            (3.0, 3.182_446_305_283_708, 5.840_909_309_733_355),
            (4.0, 2.776_445_105_197_793_5, 4.604_094_871_349_992),
            (5.0, 2.570_581_835_636_315, 4.032_142_983_555_227),
            (9.0, 2.262_157_162_798_205, 3.249_835_541_592_126),
            (10.0, 2.228_138_851_986_274_2, 3.169_272_672_616_951),
            (29.0, 2.045_229_642_132_704, 2.756_385_903_670_605),
            (30.0, 2.042_272_456_301_238, 2.749_995_653_567_225),
            (100.0, 1.983_971_518_523_552, 2.625_890_521_438_017_6),
            (999.0, 1.962_341_461_133_449_6, 2.580_759_637_267_636_5),
            (1_000.0, 1.962_339_080_826_408, 2.580_754_698_065_950_8),
            (1_001.0, 1.962_336_705_280_879_5, 2.580_749_768_750_524_7),
            (5_000.0, 1.960_438_551_706_507_5, 2.576_812_966_556_281),
            (1_000_000.0, 1.959_966_356_814_106_7, 2.575_834_220_105_334),
        ] {
            assert_close(student_t_within(0.95, freedom), want_95, &format!("95 % of {freedom}"));
            assert_close(student_t_within(0.99, freedom), want_99, &format!("99 % of {freedom}"));
        }
    }
}
