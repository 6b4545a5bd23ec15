//! When a line runs next.
//!
//! Ten million lines that start within the same minute of the hour would cause 240 times the mean
//! load. So the time to the next run is exponentially distributed and independent of earlier runs:
//! lines do not synchronise, not even after an outage.

use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

pub const DAY: Span = Span::from_secs(86_400);

/// The part of every day in which runs may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub from: Span,
    /// Time since midnight, later than `from` and at most a day.
    pub until: Span,
}

impl Window {
    pub const ALWAYS: Self = Self { from: Span::ZERO, until: DAY };

    pub const fn length(self) -> Span {
        self.until.saturating_sub(self.from)
    }

    /// Returns how much time within windows has passed at `now`, nanoseconds.
    fn open_until(self, now: Time) -> u64 {
        let (days, of_day) =
            (now.as_nanos() / DAY.as_nanos(), Span::from_nanos(now.as_nanos() % DAY.as_nanos()));
        let today = of_day.saturating_sub(self.from).min(self.length());
        days * self.length().as_nanos() + today.as_nanos()
    }

    /// Returns the instant at which `open_ns` of time within windows has passed.
    fn when_open(self, open_ns: u64) -> Time {
        let length = self.length().as_nanos();
        let (days, rest) = (open_ns / length, open_ns % length);
        let midnight = DAY.as_nanos().saturating_mul(days);
        Time::from_nanos(midnight.saturating_add(self.from.as_nanos()).saturating_add(rest))
    }
}

/// Draws the time of a line's next run after `now`; `per_day`, its mean, is more than 0.
pub fn next_run(rng: &mut Rng, now: Time, per_day: f64, window: Window) -> Time {
    let mean_ns = window.length().as_nanos() as f64 / per_day;
    let wait_ns = -libm::log(uniform(rng)) * mean_ns;
    // A float above the largest integer is cast to the largest.
    window.when_open(window.open_until(now).saturating_add(wait_ns as u64))
}

/// Draws the wait after a refusal: uniform within a time that doubles with every refusal, so that
/// lines that were refused together do not retry together ("full jitter").
pub fn retry_after(rng: &mut Rng, refusals: u32) -> Span {
    let most = RETRY_FIRST.as_nanos() << refusals.min(RETRY_DOUBLINGS);
    RETRY_LEAST + Span::from_nanos((uniform(rng) * most as f64) as u64)
}

/// Draws the next attempt of a run that was due at `due` and was held back now, after `refusals`
/// earlier attempts; `None` if it would be later than `start_within` allows.
pub fn next_attempt(
    rng: &mut Rng,
    now: Time,
    refusals: u32,
    due: Time,
    start_within: Span,
) -> Option<Time> {
    let next = now + retry_after(rng, refusals);
    (next <= due + start_within).then_some(next)
}

/// Longest wait after the first refusal, beyond [`RETRY_LEAST`].
pub const RETRY_FIRST: Span = Span::from_secs(60);
/// Shortest wait after a refusal.
pub const RETRY_LEAST: Span = Span::from_secs(1);
/// The wait doubles this often, from 60 s to about an hour.
const RETRY_DOUBLINGS: u32 = 6;

/// Uniform above 0, at most 1.
pub(crate) fn uniform(rng: &mut Rng) -> f64 {
    ((rng.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Span = Span::from_secs(3_600);

    fn runs(window: Window, per_day: f64, days: u64) -> Vec<Time> {
        let (mut rng, mut now) = (Rng::new(1), Time::ZERO);
        let next = || {
            now = next_run(&mut rng, now, per_day, window);
            (now < Time::ZERO + DAY * days).then_some(now)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn runs_have_the_planned_rate_and_exponential_gaps() {
        let runs = runs(Window::ALWAYS, 6.0, 5_000);
        let mean = runs.len() as f64 / 5_000.0;
        assert!((mean - 6.0).abs() < 0.15, "{mean} runs a day");
        // An exponential distribution has 1/e beyond its mean, and 1/e of that beyond twice the
        // mean.
        let gaps: Vec<u64> =
            runs.windows(2).map(|pair| pair[1].since(pair[0]).as_nanos()).collect();
        let beyond = |hours: u64| {
            let long = |gap: &&u64| **gap > (HOUR * hours).as_nanos();
            gaps.iter().filter(long).count() as f64
        };
        for (share, of) in [(beyond(4), gaps.len() as f64), (beyond(8), beyond(4))] {
            assert!((share / of - 0.368).abs() < 0.02, "{share} of {of}");
        }
    }

    #[test]
    fn runs_are_inside_the_window_at_the_planned_daily_rate() {
        let window = Window { from: HOUR * 19, until: HOUR * 23 };
        let runs = runs(window, 2.0, 3_000);
        let of_day = |time: &Time| Span::from_nanos(time.as_nanos() % DAY.as_nanos());
        assert!(runs.iter().all(|run| (window.from..=window.until).contains(&of_day(run))));
        let mean = runs.len() as f64 / 3_000.0;
        assert!((mean - 2.0).abs() < 0.1, "{mean} runs a day");
    }

    #[test]
    fn devices_refused_together_retry_at_spread_later_times() {
        let mut rng = Rng::new(2);
        let mut mean = |refusals| {
            let waits = (0..2_000).map(|_| retry_after(&mut rng, refusals).as_nanos());
            waits.sum::<u64>() / 2_000 / 1_000_000_000
        };
        let means = [0, 1, 6, 7, u32::MAX].map(&mut mean);
        assert!((28..=34).contains(&means[0]) && (56..=66).contains(&means[1]), "{means:?}");
        assert!(means[2..].iter().all(|mean| (1_800..=2_040).contains(mean)), "{means:?}");
    }

    #[test]
    fn the_ends_of_time_do_not_overflow() {
        let mut rng = Rng::new(3);
        let late = next_run(&mut rng, Time::MAX, 1e-9, Window::ALWAYS);
        assert!(late >= Time::from_nanos(u64::MAX / 2));
        let window = Window { from: HOUR * 23, until: DAY };
        next_run(&mut rng, Time::MAX, 1e9, window);
    }
}
