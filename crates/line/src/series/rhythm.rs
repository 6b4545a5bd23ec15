//! The pauses of a series of measurements.

use std::time::Duration;

use underload_aqm::rng::Rng;

/// With `--jitter` each pause is the interval times 0.75 to 1.25, so that clients that were started
/// together do not measure together.
const JITTER_LEAST: f64 = 0.75;
const JITTER_SPAN: f64 = 0.5;

/// M-Lab's rules for non-interactive clients (ndt7 protocol specification, "Requirements for
/// non-interactive clients"): pauses drawn from an exponential distribution with a mean of six
/// hours, at least 2,160 s and at most 54,000 s. 2,160 s is a day by the 40 tests that its locate
/// service admits per day.
pub const PUBLIC_MEAN_LEAST: Duration = Duration::from_hours(6);
pub const PUBLIC_PAUSE_LEAST: Duration = Duration::from_mins(36);
/// The longest pause as a multiple of the mean: 54,000 s by six hours.
const LONGEST_MEANS: f64 = 2.5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rhythm {
    /// `every` from one start to the next, randomly shortened or lengthened with `jitter`.
    Steady { every: Duration, jitter: bool },
    /// From one end to the next start, as M-Lab requires: exponential with this mean, so that
    /// clients never synchronise with each other, with the hour, or with periods of the line.
    Memoryless { mean: Duration },
}

impl Rhythm {
    pub fn pause(self, random: &mut Rng) -> Duration {
        // In [0, 1).
        let share = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        match self {
            Self::Steady { every, jitter: false } => every,
            Self::Steady { every, jitter: true } => {
                every.mul_f64(JITTER_LEAST + JITTER_SPAN * share)
            }
            Self::Memoryless { mean } => {
                let drawn = mean.mul_f64((-(1.0 - share).ln()).min(LONGEST_MEANS));
                drawn.max(PUBLIC_PAUSE_LEAST)
            }
        }
    }

    /// Whether pauses count from the start of a measurement instead of its end.
    pub fn is_from_start(self) -> bool {
        matches!(self, Self::Steady { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The specification's program draws pauses with a mean of 21,600 s, from 2,160 to 54,000 s.
    #[test]
    fn pauses_between_public_tests_are_exponential_and_within_the_limits_of_m_lab() {
        let mut random = Rng::new(1);
        let rhythm = Rhythm::Memoryless { mean: PUBLIC_MEAN_LEAST };
        let drawn: Vec<f64> =
            (0..20_000).map(|_| rhythm.pause(&mut random).as_secs_f64()).collect();
        let below = |s: f64| drawn.iter().filter(|it| **it < s).count() as f64 / 20_000.0;
        assert!(drawn.iter().all(|s| (2_160.0..=54_000.0).contains(s)));
        // P(X < x) = 1 - exp(-x / mean), within four standard deviations of 20,000 draws.
        for x in [4_000.0_f64, 10_000.0, 21_600.0, 43_200.0] {
            let expected = 1.0 - (-x / 21_600.0).exp();
            assert!((below(x) - expected).abs() < 0.015, "{x}: {} for {expected}", below(x));
        }
        let at_least = drawn.iter().filter(|it| **it <= 2_160.0).count() as f64 / 20_000.0;
        assert!((at_least - (1.0 - (-0.1_f64).exp())).abs() < 0.01, "{at_least}");
    }

    #[test]
    fn steady_pauses_equal_the_requested_interval() {
        let mut random = Rng::new(1);
        let every = Duration::from_secs(400);
        assert_eq!(Rhythm::Steady { every, jitter: false }.pause(&mut random), every);
        for _ in 0..1_000 {
            let pause = Rhythm::Steady { every, jitter: true }.pause(&mut random).as_secs_f64();
            assert!((300.0..=500.0).contains(&pause), "{pause}");
        }
    }
}
