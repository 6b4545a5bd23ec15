//! A synthetic cellular link: the Cox process of Sprout (Winstein, Sivaraman and Balakrishnan,
//! NSDI 2013, section 3.1), a Poisson process of delivery opportunities whose rate wanders.
//!
//! Time advances in ticks (20 ms in the paper's inference). In each tick the rate takes a step of
//! Brownian motion, reflected at `min` and `max`. The link draws a Poisson number of opportunities
//! with that mean, and offers them as a constant rate over the tick. Outages interrupt the process.
//!
//! # Deviations from the paper
//! * The motion may revert to `centre` (an Ornstein-Uhlenbeck process with the time constant
//!   `reversion`): otherwise the rate has a uniform distribution between its bounds in the long
//!   run, which no recording has. Without `reversion` it is the paper's motion.
//! * Outages begin after exponentially distributed gaps, and not when the motion reaches zero, so
//!   that their frequency and the spread of the rate can be fitted separately. The length is
//!   exponential, as in the paper, or of Pareto's law with shape 2 (the density falls with the
//!   third power; the paper's Figure 2 finds a power of 3.27 beyond 20 ms), limited to
//!   `outage-max`. Gaps and lengths are whole ticks. The motion stops during an outage.
//! * `reconfigure` draws a new rate at fixed intervals from the long-run distribution, for links
//!   that are reassigned by a clock.
//! * The motion starts from its long-run distribution rather than from a given rate.
//!
//! Ticks are computed when the link reaches them, so that memory does not grow; idle time costs a
//! few tens of nanoseconds per tick. The results follow only from the link's stream of random
//! numbers and the tick's number, and do not depend on when or how often the link is polled.

mod params;

use super::draw::{exp_minus_q63, exponential_span, normal_q16, pareto_span, poisson};
use super::piecewise::{Pieces, Transmitter};
use crate::rate::Rate;
use crate::rng::Rng;
use crate::time::{Span, Time};

pub use params::CellularConfig;
pub(crate) use params::{DEFINITION, configure};

/// Times in which no packet passes.
#[derive(Clone, Copy, Debug)]
pub struct Outages {
    /// Mean time from the end of one outage to the start of the next.
    pub gap: Span,
    /// Mean length, before it is limited to `longest`.
    pub length: Span,
    /// Upper bound of the length.
    pub longest: Span,
    /// Distribution of the length.
    pub law: OutageLaw,
}

/// Distribution of an outage's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutageLaw {
    /// No memory, as in the paper's model.
    Exponential,
    /// Shape 2, as heavy-tailed as the paper's measurement.
    Pareto,
}

/// A random rate that resembles a cellular link; see the module of its parameters.
#[derive(Clone, Debug)]
pub struct Cellular {
    pub(super) process: Process,
    transmitter: Transmitter,
}

impl Cellular {
    /// Returns a link whose rate is drawn from `rng`.
    pub fn new(config: CellularConfig, rng: &Rng) -> Self {
        assert!(config.max > config.min, "configuration refuses an empty range of rates");
        assert!(config.tick > Span::ZERO, "configuration refuses a tick of zero");
        assert!(config.opportunity_bytes > 0, "configuration refuses empty opportunities");
        Self { process: Process::new(config, rng), transmitter: Transmitter::default() }
    }

    /// Returns a copy of the link at its start, which draws from another stream.
    #[must_use]
    pub fn with_stream(&self, rng: &Rng) -> Self {
        Self::new(self.process.config, rng)
    }

    /// Returns the long-term rate, outages included: the mean of 4096 draws from the stationary
    /// distribution (exact to one or two percent).
    pub fn nominal_rate(&self) -> Rate {
        const DRAWS: u64 = 4_096;
        let mut process = self.process.clone();
        process.motion = Rng::new(0);
        let mean = (0..DRAWS).map(|_| process.long_run_draw()).sum::<u64>() / DRAWS;
        let share = |outages: Outages| {
            let whole = outages.gap + outages.length;
            u128::from(mean) * u128::from(outages.gap.as_nanos()) / u128::from(whole.as_nanos())
        };
        let rate = process.config.outages.map_or(u128::from(mean), share);
        Rate::from_bits_per_second((rate as u64).max(1))
    }

    /// Returns the integral of the rate, and advances the process to `to`.
    pub(super) fn offered_nanobits(&mut self, from: Time, to: Time) -> u128 {
        self.process.seek(from);
        let (mut now, mut nanobits) = (from, 0);
        while now < to {
            let end = self.process.piece_end().min(to);
            let rate = self.process.rate().bits_per_second();
            nanobits += u128::from(rate) * u128::from(end.since(now).as_nanos());
            self.process.seek(end);
            now = end;
        }
        nanobits
    }

    pub(super) fn next_start(&mut self, ready: Time) -> Time {
        self.transmitter.next_start(&mut self.process, ready)
    }

    pub(super) fn transmit(&mut self, start: Time, len: u32) -> Time {
        self.transmitter.transmit(&mut self.process, start, len)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Process {
    config: CellularConfig,
    /// The share of the distance from `centre` that remains after one tick, in Q32; 1 without
    /// reversion.
    keep_q32: u64,
    /// Standard deviation of one tick's step, with reversion of the stationary distribution.
    step_deviation: u64,
    long_run_deviation: Option<u64>,
    /// Streams for the motion, the opportunities and the outages.
    motion: Rng,
    arrivals: Rng,
    gaps: Rng,
    /// The rate of the motion, bit/s.
    moving: u64,
    /// The rate offered in the current tick.
    offered: Rate,
    tick_end: Time,
    /// When the current outage ends and the next one begins.
    outage_end: Time,
    next_outage: Time,
    next_reconfiguration: Time,
}

/// Maximum number of ticks computed one by one after a silence: a day of ticks of 20 ms. A longer
/// silence needs a wrong time stamp; a new rate is drawn, so that the work is bounded.
const SILENCE_MAX_TICKS: u64 = 1 << 22;

const ONE_Q32: u64 = 1 << 32;
const NANOS_PER_SECOND: u128 = 1_000_000_000;

impl Process {
    fn new(config: CellularConfig, rng: &Rng) -> Self {
        let volatility_squared = u128::from(config.volatility.bits_per_second()).pow(2);
        let spread =
            |nanos: u64| (volatility_squared * u128::from(nanos) / NANOS_PER_SECOND).isqrt() as u64;
        // The stationary variance of the reverting motion is volatility^2 * reversion / 2.
        let long_run_deviation = config.reversion.map(|time| spread(time.as_nanos() / 2));
        let keep_q32 = config.reversion.map_or(ONE_Q32, |time| {
            let ratio_q16 =
                (u128::from(config.tick.as_nanos()) << 16) / u128::from(time.as_nanos().max(1));
            exp_minus_q63(u64::try_from(ratio_q16).unwrap_or(u64::MAX)) >> 31
        });
        let step_deviation = long_run_deviation.map_or_else(
            || spread(config.tick.as_nanos()),
            |deviation| {
                let lost_q64 = (1_u128 << 64) - u128::from(keep_q32).pow(2);
                ((u128::from(deviation) * lost_q64.isqrt()) >> 32) as u64
            },
        );
        let mut process = Self {
            config,
            keep_q32,
            step_deviation,
            long_run_deviation,
            motion: rng.child("motion"),
            arrivals: rng.child("arrivals"),
            gaps: rng.child("outages"),
            moving: 0,
            offered: Rate::default(),
            tick_end: Time::ZERO,
            outage_end: Time::ZERO,
            next_outage: Time::MAX,
            next_reconfiguration: config.reconfigure.map_or(Time::MAX, |span| Time::ZERO + span),
        };
        process.moving = process.long_run_draw();
        process.plan_outage(Time::ZERO);
        process.enter_next();
        process
    }

    /// Draws a rate from the stationary distribution: normal around `centre` within the bounds;
    /// uniform between the bounds without reversion, and if the bounds hold only a small part of
    /// the normal one, which is then close to uniform.
    fn long_run_draw(&mut self) -> u64 {
        let (min, max) = (self.min(), self.max());
        if let Some(deviation) = self.long_run_deviation {
            for _ in 0..16 {
                let rate = self.config.centre.bits_per_second() as i64
                    + scaled(deviation, normal_q16(&mut self.motion));
                if (min..=max).contains(&rate) {
                    return rate as u64;
                }
            }
        }
        let width = (max - min) as u128;
        min as u64 + ((width * u128::from(self.motion.next_u32())) >> 32) as u64
    }

    fn min(&self) -> i64 {
        self.config.min.bits_per_second() as i64
    }

    fn max(&self) -> i64 {
        self.config.max.bits_per_second() as i64
    }

    /// Advances the motion by one tick.
    fn step(&mut self) {
        let centre = self.config.centre.bits_per_second() as i64;
        let distance = self.moving as i64 - centre;
        let kept = ((i128::from(distance) * i128::from(self.keep_q32)) >> 32) as i64;
        let moved = centre + kept + scaled(self.step_deviation, normal_q16(&mut self.motion));
        let (min, max) = (self.min(), self.max());
        let reflected = if moved < min {
            2 * min - moved
        } else if moved > max {
            2 * max - moved
        } else {
            moved
        };
        // A step that exceeds the width of the range is reflected only once, and then clamped.
        self.moving = reflected.clamp(min, max) as u64;
    }

    /// Returns the rate that carries a Poisson number of opportunities within a tick.
    fn draw_opportunities(&mut self) -> Rate {
        let tick_nanos = u128::from(self.config.tick.as_nanos());
        let nanobits = u128::from(self.config.opportunity_bytes) * 8 * NANOS_PER_SECOND;
        let mean_q16 = ((u128::from(self.moving) * tick_nanos) << 16) / nanobits;
        let number = poisson(&mut self.arrivals, mean_q16 as u64);
        Rate::from_bits_per_second((u128::from(number) * nanobits / tick_nanos) as u64)
    }

    fn plan_outage(&mut self, from: Time) {
        if let Some(outages) = self.config.outages {
            self.next_outage = from + exponential_span(&mut self.gaps, outages.gap);
        }
    }

    fn begin_outage(&mut self, now: Time) {
        let Some(outages) = self.config.outages else { return };
        let length = match outages.law {
            OutageLaw::Exponential => exponential_span(&mut self.gaps, outages.length),
            OutageLaw::Pareto => pareto_span(&mut self.gaps, outages.length),
        };
        self.outage_end = now + length.min(outages.longest);
        self.plan_outage(self.outage_end);
    }

    /// Restarts the process at the last tick before `time`.
    fn skip_to(&mut self, time: Time) {
        let ticks = time.since(self.tick_end).as_nanos() / self.config.tick.as_nanos();
        self.tick_end += self.config.tick * ticks;
        self.moving = self.long_run_draw();
        self.outage_end = self.tick_end;
        self.plan_outage(self.tick_end);
        if let Some(interval) = self.config.reconfigure {
            let passed = self.tick_end.as_nanos() / interval.as_nanos().max(1);
            self.next_reconfiguration = Time::ZERO + interval * passed.saturating_add(1);
        }
    }

    fn reconfigure(&mut self, now: Time) {
        let Some(interval) = self.config.reconfigure else { return };
        let passed = now.as_nanos() / interval.as_nanos().max(1);
        self.next_reconfiguration = Time::ZERO + interval * passed.saturating_add(1);
        self.moving = self.long_run_draw();
    }
}

/// Returns `deviation` times a number in Q16.
fn scaled(deviation: u64, number_q16: i64) -> i64 {
    ((i128::from(deviation) * i128::from(number_q16)) >> 16) as i64
}

impl Pieces for Process {
    fn rate(&self) -> Rate {
        self.offered
    }

    fn piece_end(&self) -> Time {
        self.tick_end
    }

    fn enter_next(&mut self) {
        let now = self.tick_end;
        self.tick_end += self.config.tick;
        if now >= self.next_reconfiguration {
            self.reconfigure(now);
        }
        if now >= self.next_outage {
            self.begin_outage(now);
        }
        self.offered = if now < self.outage_end {
            Rate::default()
        } else {
            self.step();
            self.draw_opportunities()
        };
    }

    fn seek(&mut self, time: Time) {
        let silence_ticks = time.since(self.tick_end).as_nanos() / self.config.tick.as_nanos();
        if silence_ticks > SILENCE_MAX_TICKS {
            self.skip_to(time);
        }
        while time >= self.tick_end && self.tick_end < Time::MAX {
            self.enter_next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const TICK: Span = Span::from_millis(20);

    fn config() -> CellularConfig {
        CellularConfig {
            centre: Rate::from_megabits_per_second(6),
            min: Rate::from_megabits_per_second(1),
            max: Rate::from_megabits_per_second(12),
            volatility: Rate::from_megabits_per_second(2),
            reversion: Some(Span::from_secs(2)),
            tick: TICK,
            opportunity_bytes: 1_504,
            outages: None,
            reconfigure: None,
        }
    }

    /// Motion and offered rate in Mbit/s of the first ticks.
    fn ticks(config: CellularConfig, count: usize) -> Vec<(f64, f64)> {
        let mut process = Process::new(config, &Rng::new(9));
        let mut out = Vec::new();
        for _ in 0..count {
            out.push((process.moving as f64 / 1e6, process.offered.bits_per_second() as f64 / 1e6));
            process.enter_next();
        }
        out
    }

    fn mean_and_deviation(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
        let count = values.clone().count() as f64;
        let mean = values.clone().sum::<f64>() / count;
        (mean, (values.map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt())
    }

    fn assert_near(measured: f64, expected: f64, share: f64) {
        assert!((measured / expected - 1.0).abs() < share, "{measured} is not {expected}");
    }

    #[test]
    fn the_spread_of_the_rate_grows_with_the_square_root_of_time() {
        // Far from the bounds: 100 s, steps of 20 ms.
        let wide = Rate::from_megabits_per_second(100_000);
        let centre = Rate::from_megabits_per_second(50_000);
        let free = CellularConfig { max: wide, centre, reversion: None, ..config() };
        let out = ticks(free, 50_000);
        for lag in [1_usize, 50] {
            let moved = (lag..out.len()).map(|index| out[index].0 - out[index - lag].0);
            let (_, deviation) = mean_and_deviation(moved);
            assert_near(deviation, 2.0 * (lag as f64 * 0.02).sqrt(), 0.05);
        }
    }

    #[test]
    fn mean_reversion_gives_the_theoretical_distribution() {
        let out = ticks(config(), 200_000);
        let (mean, deviation) = mean_and_deviation(out.iter().map(|tick| tick.0));
        // volatility * sqrt(reversion / 2) is 2, and the bounds are two and a half deviations from
        // the centre.
        assert_near(mean, 6.0, 0.04);
        assert_near(deviation, 2.0, 0.06);
        let bounded = out.iter().all(|tick| (1.0..=12.0).contains(&tick.0));
        assert!(bounded, "the motion leaves its bounds");
        let moved = |lag: usize| out.iter().zip(&out[lag..]);
        let products = moved(100).map(|(a, b)| (a.0 - mean) * (b.0 - mean));
        let correlation = products.sum::<f64>() / out.len() as f64 / deviation.powi(2);
        assert_near(correlation, (-1.0_f64).exp(), 0.15);
    }

    #[test]
    fn without_mean_reversion_the_rate_is_uniform_in_the_long_run() {
        let volatility = Rate::from_megabits_per_second(20);
        let out = ticks(CellularConfig { volatility, reversion: None, ..config() }, 200_000);
        let (mean, deviation) = mean_and_deviation(out.iter().map(|tick| tick.0));
        assert_near(mean, 6.5, 0.04);
        assert_near(deviation, 11.0 / 12.0_f64.sqrt(), 0.06);
    }

    #[test]
    fn opportunities_at_a_steady_rate_are_poisson() {
        let still = CellularConfig { volatility: Rate::default(), ..config() };
        let counts = ticks(still, 100_000).into_iter().map(|tick| tick.1 * 1e6 * 0.02 / 12_032.0);
        let counts: Vec<f64> = counts.collect();
        let (mean, deviation) = mean_and_deviation(counts.iter().copied());
        assert_near(mean, 6e6 * 0.02 / 12_032.0, 0.01);
        assert_near(deviation.powi(2), mean, 0.03);
        assert!(counts.iter().all(|count| (count - count.round()).abs() < 1e-3));
    }

    #[test]
    fn outages_have_their_gaps_and_lengths() {
        for law in [OutageLaw::Exponential, OutageLaw::Pareto] {
            let (gap, length) = (Span::from_secs(2), Span::from_millis(500));
            let outages = Some(Outages { gap, length, longest: Span::from_millis(900), law });
            // Many opportunities per tick, so that a tick without any is an outage.
            let config = CellularConfig { opportunity_bytes: 64, outages, ..config() };
            let out = ticks(config, 500_000);
            let runs: Vec<f64> = out
                .chunk_by(|a, b| (a.1 == 0.0) == (b.1 == 0.0))
                .filter(|run| run[0].1 == 0.0)
                .map(|run| run.len() as f64 * 0.02)
                .collect();
            assert!(runs.iter().all(|length| *length <= 0.92 * 2.0), "{law:?}");
            let expected = match law {
                OutageLaw::Exponential => 0.5 * (1.0 - (-1.8_f64).exp()),
                // The mean of Pareto's law from 0.25 s on, limited to 0.9 s.
                OutageLaw::Pareto => 0.5 - 0.25_f64.powi(2) / 0.9,
            };
            let (mean, _) = mean_and_deviation(runs.iter().copied());
            // Whole ticks add half a tick on average, and sometimes two outages touch.
            assert_near(mean, expected + 0.01, 0.06);
            assert_near(runs.len() as f64, 10_000.0 / (2.0 + expected), 0.06);
        }
    }

    #[test]
    fn a_reconfiguration_draws_afresh() {
        let volatility = Rate::from_bits_per_second(1_000);
        let reconfigure = Some(Span::from_secs(15));
        let slow = CellularConfig { volatility, reversion: None, reconfigure, ..config() };
        let out = ticks(slow, 750 * 40);
        let jumps: Vec<usize> =
            (1..out.len()).filter(|&i| (out[i].0 - out[i - 1].0).abs() > 0.01).collect();
        assert!(jumps.len() > 30, "{jumps:?}");
        assert!(jumps.iter().all(|tick| tick % 750 == 0), "{jumps:?}");
    }

    #[test]
    fn the_nominal_rate_is_what_a_busy_link_passes() {
        let law = OutageLaw::Exponential;
        let (gap, length) = (Span::from_secs(2), Span::from_millis(500));
        let outages = Some(Outages { gap, length, longest: Span::from_secs(60), law });
        let mut link = Cellular::new(CellularConfig { outages, ..config() }, &Rng::new(4));
        let (mut now, mut bits) = (Time::ZERO, 0.0);
        while now < Time::from_secs(10_000) {
            let start = link.next_start(now);
            now = link.transmit(start, 1_500);
            bits += 12_000.0;
        }
        let nominal = link.nominal_rate().bits_per_second() as f64;
        assert_near(bits / now.as_secs_f64(), nominal, 0.04);
    }

    #[test]
    fn the_link_skips_an_idle_time_of_centuries() {
        let outages = Some(Outages {
            gap: Span::from_secs(2),
            length: Span::from_millis(500),
            longest: Span::from_secs(1),
            law: OutageLaw::Exponential,
        });
        let reconfigure = Some(Span::from_secs(15));
        let mut link =
            Cellular::new(CellularConfig { outages, reconfigure, ..config() }, &Rng::new(4));
        let nominal = link.nominal_rate().bits_per_second() as f64;
        for start in [Time::from_nanos(1 << 63), Time::from_nanos(u64::MAX / 10 * 9)] {
            let (mut now, mut bits) = (start, 0.0);
            while now < start + Span::from_secs(1_000) {
                let ready = link.next_start(now);
                now = link.transmit(ready, 1_500);
                bits += 12_000.0;
            }
            assert_near(bits / now.since(start).as_secs_f64(), nominal, 0.1);
        }
        let start = link.next_start(Time::MAX);
        assert_eq!(link.transmit(start, 1_500), Time::MAX, "the end of time");
    }

    #[test]
    fn ticks_within_the_longest_idle_time_are_computed_one_by_one() {
        let mut once = Process::new(config(), &Rng::new(7));
        let mut often = once.clone();
        let end = Time::ZERO + TICK * 100_000;
        once.seek(end);
        for tick in 0..=100_000 {
            often.seek(Time::ZERO + TICK * tick);
        }
        assert_eq!((once.moving, once.tick_end), (often.moving, often.tick_end));
    }

    #[test]
    fn the_rate_depends_on_the_random_stream_alone() {
        let ends = |seed: u64, step: Span| {
            let mut link = Cellular::new(config(), &Rng::new(seed));
            let mut asked = Time::ZERO;
            while asked < Time::from_secs(60) {
                link.next_start(asked);
                asked += step;
            }
            link.transmit(Time::from_secs(60), 1_000_000)
        };
        let once = ends(1, Span::from_secs(60));
        assert_eq!(once, ends(1, Span::from_millis(7)));
        assert_ne!(once, ends(2, Span::from_secs(60)));
    }
}
