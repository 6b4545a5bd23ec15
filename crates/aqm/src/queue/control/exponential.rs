//! Natural logarithm and exponential in fixed point, for laws that are written with them.

/// ln 2 as a fraction of 2^32.
const LN_2_Q32: u64 = 2_977_044_472;
/// 1 / ln 2 as a fraction of 2^32.
const LOG2_E_Q32: u64 = 6_196_328_019;

/// Returns `ln(value)` as a fraction of 2^48, for 1 to 2 in millionths. Exact to 2^-44.
pub(crate) fn ln_q48(millionths: u64) -> u64 {
    // ln(v) = 2 artanh(z) = 2 (z + z^3/3 + z^5/5 + ...) with z = (v - 1) / (v + 1), at most 1/3.
    let (above, sum) = (millionths - 1_000_000, millionths + 1_000_000);
    let z_q48 = ((u128::from(above) << 48) / u128::from(sum)) as u64;
    let multiply = |a: u64, b: u64| ((u128::from(a) * u128::from(b)) >> 48) as u64;
    let square_q48 = multiply(z_q48, z_q48);
    let (mut power_q48, mut sum_q48, mut divisor) = (z_q48, 0, 1);
    while power_q48 > 0 {
        sum_q48 += power_q48 / divisor;
        power_q48 = multiply(power_q48, square_q48);
        divisor += 2;
    }
    2 * sum_q48
}

/// Returns `exp(-x)` as a fraction of 2^32, for an `x` in the same unit. Exact to 2^-28.
pub(crate) fn exp_of_minus_q32(x_q32: u64) -> u64 {
    // exp(-x) = 2^-(whole + part), and 2^-part = exp(-part ln 2) by its series.
    let exponent_q32 = (u128::from(x_q32) * u128::from(LOG2_E_Q32)) >> 32;
    let whole = exponent_q32 >> 32;
    if whole > 32 {
        return 0;
    }
    let part_q32 = exponent_q32 as u64 & (ONE_Q32 - 1);
    let y_q32 = (part_q32 * LN_2_Q32) >> 32;
    let series = |sum_q32: u64, term: u64| ONE_Q32 - ((y_q32 * sum_q32) >> 32) / term;
    let fraction_q32 = (1..=12).rev().fold(ONE_Q32, series);
    fraction_q32 >> whole
}

const ONE_Q32: u64 = 1 << 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_that_of_std() {
        for millionths in [1_000_000, 1_000_001, 1_001_000, 1_100_000, 1_500_000, 2_000_000] {
            let ln = ln_q48(millionths) as f64 / (1_u64 << 48) as f64;
            let expected = (millionths as f64 / 1e6).ln();
            assert!((ln - expected).abs() < 1e-13, "{millionths}: {ln} is not {expected}");
        }
    }

    #[test]
    fn the_exponential_is_that_of_std() {
        for thousandths in (0..25_000).chain([30_000, 1_000_000]) {
            let x = f64::from(thousandths) / 1_000.0;
            let power = exp_of_minus_q32((x * ONE_Q32 as f64) as u64) as f64 / ONE_Q32 as f64;
            assert!((power - (-x).exp()).abs() < 4e-9, "{x}: {power} is not {}", (-x).exp());
        }
        assert_eq!((exp_of_minus_q32(0), exp_of_minus_q32(u64::MAX)), (ONE_Q32, 0));
    }
}
