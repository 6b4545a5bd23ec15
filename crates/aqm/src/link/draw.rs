//! Random variates in integer arithmetic, the same on every machine.

use crate::rng::Rng;
use crate::time::Span;

const ONE_Q63: u64 = 1 << 63;
const INVERSE_E_Q63: u64 = 3_393_088_950_634_442_637;
/// Above this mean (in Q16), a rounded normal number replaces the Poisson number.
const LARGE_MEAN_Q16: u64 = 16 << 16;

/// Returns a normal number of mean 0 and variance 1 in Q16: the sum of twelve uniform numbers
/// (Irwin-Hall), so never beyond six deviations; its kurtosis is 2.9 rather than 3.
pub(super) fn normal_q16(rng: &mut Rng) -> i64 {
    const MEAN: i64 = 12 * 0xffff / 2;
    let sum: u64 = (0..3)
        .map(|_| {
            let bits = rng.next_u64();
            (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48)
        })
        .sum();
    sum as i64 - MEAN
}

/// Returns an exponential number of mean 1 in Q32 by von Neumann's comparison of uniform numbers
/// (1951): exact but for the grain of 2^-32.
pub(super) fn exponential_q32(rng: &mut Rng) -> u64 {
    let mut whole = 0_u64;
    loop {
        let fraction = rng.next_u32();
        let (mut last, mut descending) = (fraction, 1_u32);
        loop {
            let next = rng.next_u32();
            if next >= last {
                break;
            }
            (last, descending) = (next, descending + 1);
        }
        if descending % 2 == 1 {
            return whole << 32 | u64::from(fraction);
        }
        whole += 1;
    }
}

/// Returns an exponentially distributed time.
pub(super) fn exponential_span(rng: &mut Rng, mean: Span) -> Span {
    let nanos = (u128::from(mean.as_nanos()) * u128::from(exponential_q32(rng))) >> 32;
    Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Returns a time of Pareto's law with shape 2: the density falls with the third power.
pub(super) fn pareto_span(rng: &mut Rng, mean: Span) -> Span {
    let root_q32 = rng.next_u64().isqrt().max(1);
    let nanos = (u128::from(mean.as_nanos() / 2) << 32) / u128::from(root_q32);
    Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Returns a Poisson number of this mean: by inversion of the distribution up to a mean of 16,
/// above it a rounded normal number of the same mean and variance.
pub(super) fn poisson(rng: &mut Rng, mean_q16: u64) -> u64 {
    if mean_q16 > LARGE_MEAN_Q16 {
        let deviation_q16 = (u128::from(mean_q16) << 16).isqrt() as i64;
        let number_q16 = mean_q16 as i64 + ((deviation_q16 * normal_q16(rng)) >> 16);
        return ((number_q16 + (1 << 15)) >> 16).max(0) as u64;
    }
    let mut probability = exp_minus_q63(mean_q16);
    let mut left = rng.next_u64() >> 1;
    let mut number = 0;
    // The mean is at most 16: beyond 100 the probability is below the sum's rounding error.
    while left >= probability && number < 100 {
        left -= probability;
        number += 1;
        probability =
            (u128::from(probability) * u128::from(mean_q16) / u128::from(number << 16)) as u64;
    }
    number
}

/// Returns exp(-x) in Q63 for x in Q16.
pub(super) fn exp_minus_q63(x_q16: u64) -> u64 {
    let fraction_q16 = x_q16 & 0xffff;
    // Taylor's series in Horner's form; the first term left out is below 2^-63.
    let mut result = ONE_Q63;
    for term in (1..=20).rev() {
        let part = (u128::from(result) * u128::from(fraction_q16) / term) >> 16;
        result = ONE_Q63 - part as u64;
    }
    for _ in 0..(x_q16 >> 16).min(64) {
        result = ((u128::from(result) * u128::from(INVERSE_E_Q63)) >> 63) as u64;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Mean and variance of 100,000 draws.
    fn moments(mut draw: impl FnMut(&mut Rng) -> f64) -> (f64, f64) {
        let mut rng = Rng::new(5);
        let draws: Vec<f64> = (0..100_000).map(|_| draw(&mut rng)).collect();
        let mean = draws.iter().sum::<f64>() / 1e5;
        (mean, draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / 1e5)
    }

    fn assert_near(measured: f64, expected: f64, tolerance: f64) {
        assert!((measured - expected).abs() <= tolerance, "{measured} is not {expected}");
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let (mean, variance) = moments(|rng| normal_q16(rng) as f64 / 65_536.0);
        assert_near(mean, 0.0, 0.01);
        assert_near(variance, 1.0, 0.02);
        let (mean, variance) = moments(|rng| exponential_q32(rng) as f64 / 4_294_967_296.0);
        assert_near(mean, 1.0, 0.01);
        assert_near(variance, 1.0, 0.03);
        for expected in [0.05, 0.9, 7.5, 15.9, 16.1, 300.0] {
            let mean_q16 = (expected * 65_536.0) as u64;
            let (mean, variance) = moments(|rng| poisson(rng, mean_q16) as f64);
            assert_near(mean, expected, 0.01 * (1.0 + expected));
            // Rounding adds a twelfth to the variance of the normal form.
            assert_near(variance, expected, 0.03 * (1.0 + expected) + 0.09);
        }
    }

    #[test]
    fn tails_are_those_of_the_distributions() {
        let share = |draw: &mut dyn FnMut(&mut Rng) -> bool| moments(|rng| f64::from(draw(rng))).0;
        let second = Span::from_secs(1);
        let long = share(&mut |rng| exponential_span(rng, second) > Span::from_secs(3));
        assert_near(long, (-3.0_f64).exp(), 0.003);
        let long = share(&mut |rng| pareto_span(rng, second) > Span::from_secs(2));
        assert_near(long, 1.0 / 16.0, 0.003);
        let none = share(&mut |rng| pareto_span(rng, second) < Span::from_millis(500));
        assert_near(none, 0.0, 0.0);
        let beyond = share(&mut |rng| normal_q16(rng).abs() > 2 * 65_536);
        assert_near(beyond, 0.0455, 0.003);
    }

    #[test]
    fn the_exponential_function_is_right_to_ten_digits() {
        for x in [0.0, 0.001, 0.5, 0.999, 1.0, 3.7, 16.0, 40.25] {
            let x_q16 = (x * 65_536.0) as u64;
            let exact = (-(x_q16 as f64) / 65_536.0).exp();
            let computed = exp_minus_q63(x_q16) as f64 / ONE_Q63 as f64;
            assert_near(computed, exact, 1e-10 * exact + 1e-17);
        }
    }
}
