//! PIE as Linux 6.12 computes it, quirks included; see the [module](super) for the list.

use crate::aqm::{Aqm, Store, Verdict};
use crate::packet::{Meta, Packet};
use crate::qdisc::Backlog;
use crate::rng::Rng;
use crate::time::{Span, Time};

use super::PieLinuxConfig;
use crate::queue::control::UpdateTimer;

/// The AQM. Its probability has 56 fractional bits and, as in the kernel, no upper bound.
#[derive(Clone, Debug)]
pub struct PieLinux {
    config: PieLinuxConfig,
    target_ticks: u64,
    timer: UpdateTimer,
    state: State,
    rng: Rng,
}

/// The state that an update reads and writes; times in ticks of 64 ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    probability_q56: u64,
    accumulated_q56: u64,
    delay_ticks: u64,
    old_delay_ticks: u64,
    burst_ticks: u64,
    last_departure_ticks: Option<u64>,
}

impl PieLinux {
    /// Returns an idle controller that draws from `rng`.
    pub fn new(config: PieLinuxConfig, rng: Rng) -> Self {
        Self {
            target_ticks: span_ticks(config.target),
            timer: UpdateTimer::new(FIRST_UPDATE, config.update_interval),
            state: State { burst_ticks: BURST_TICKS, ..State::default() },
            config,
            rng,
        }
    }

    fn advance(&mut self, now: Time, backlog: Backlog) {
        while self.timer.take_due(now).is_some() {
            self.replay_update(now, backlog);
        }
    }

    #[cold]
    fn replay_update(&mut self, now: Time, backlog: Backlog) {
        let before = self.state.clone();
        self.update(backlog);
        if self.state == before {
            self.timer.skip_due(now);
        }
    }

    fn update(&mut self, backlog: Backlog) {
        let state = &mut self.state;
        let (delay, old_delay) = (state.delay_ticks, state.old_delay_ticks);
        let mut may_decay = delay != 0 || backlog.bytes == 0;
        let mut step = self.config.step(state.probability_q56, delay, old_delay, self.target_ticks);
        if step > 2 * PERCENT_OF_MAX as i64 && state.probability_q56 >= MAX_PROBABILITY / 10 {
            step = 2 * PERCENT_OF_MAX as i64;
        }
        if delay > HIGH_DELAY_TICKS {
            step = step.wrapping_add((MAX_PROBABILITY / 50) as i64);
        }
        let before = state.probability_q56;
        state.probability_q56 = before.wrapping_add_signed(step);
        if step > 0 && state.probability_q56 < before {
            state.probability_q56 = MAX_PROBABILITY;
            may_decay = false;
        } else if step <= 0 && state.probability_q56 > before {
            state.probability_q56 = 0;
        }
        if delay == 0 && old_delay == 0 && may_decay {
            state.probability_q56 -= state.probability_q56 / 64;
        }
        let low = self.target_ticks / 2;
        if delay < low && old_delay < low && state.probability_q56 == 0 {
            state.burst_ticks = BURST_TICKS;
            state.last_departure_ticks = None;
            state.accumulated_q56 = 0;
        }
        state.old_delay_ticks = delay;
    }

    /// Returns whether this arrival signals congestion. Once the sum has passed 8.5, only a drop or
    /// a lucky draw resets it: marks keep coming until then.
    // Not inlined, so that the code for a packet that passes stays small enough to be inlined.
    #[inline(never)]
    fn signals(&mut self, backlog: Backlog) -> bool {
        let state = &mut self.state;
        if (state.delay_ticks < self.target_ticks / 2
            && state.probability_q56 < MAX_PROBABILITY / 5)
            || backlog.bytes < 2 * u64::from(self.config.mtu_bytes)
        {
            return false;
        }
        if state.probability_q56 == 0 {
            state.accumulated_q56 = 0;
        }
        state.accumulated_q56 = state.accumulated_q56.wrapping_add(state.probability_q56);
        if state.accumulated_q56 < 85 * PERCENT_OF_MAX {
            return false;
        }
        if state.accumulated_q56 >= MAX_PROBABILITY / 2 * 17 {
            return true;
        }
        if self.rng.next_u64() >> 8 < state.probability_q56 {
            state.accumulated_q56 = 0;
            return true;
        }
        false
    }

    fn departed(&mut self, now_ticks: u64, arrived_ticks: u64, left: Backlog) {
        let state = &mut self.state;
        state.delay_ticks = if left.bytes == 0 { 0 } else { now_ticks - arrived_ticks };
        let since_last = state.last_departure_ticks.map_or(0, |last| now_ticks - last);
        state.last_departure_ticks = Some(now_ticks);
        // The kernel keeps this difference in 32 bits.
        state.burst_ticks = state.burst_ticks.saturating_sub(u64::from(since_last as u32));
    }
}

impl PieLinuxConfig {
    /// The kernel's PIE marks up to this probability.
    pub(super) const TENTH_Q56: u64 = MAX_PROBABILITY / 10;

    /// Returns a probability of whole percents as `fq_pie` scales it, as a fraction of 2^56.
    pub(in crate::queue) const fn percent_q56(percent: u64) -> u64 {
        percent * PERCENT_OF_MAX
    }

    /// Returns the change of probability, in the kernel's wrapping arithmetic.
    fn step(&self, probability_q56: u64, delay: u64, old_delay: u64, target: u64) -> i64 {
        let per_tick = MAX_PROBABILITY / TICKS_PER_SECOND;
        let mut alpha = (u64::from(self.alpha_sixteenths) * per_tick) >> 4;
        let mut beta = (u64::from(self.beta_sixteenths) * per_tick) >> 4;
        if probability_q56 < MAX_PROBABILITY / 10 {
            (alpha, beta) = (alpha >> 1, beta >> 1);
            let mut power = 100;
            while power <= 1_000_000 && probability_q56 < MAX_PROBABILITY / power {
                (alpha, beta) = (alpha >> 2, beta >> 2);
                power *= 10;
            }
        }
        let proportional = alpha.wrapping_mul(delay.wrapping_sub(target));
        let integral = beta.wrapping_mul(delay.wrapping_sub(old_delay));
        proportional.wrapping_add(integral) as i64
    }
}

impl Aqm for PieLinux {
    #[inline]
    fn on_enqueue(&mut self, now: Time, meta: &Meta, backlog: Backlog) -> Verdict {
        self.advance(now, backlog);
        if self.state.burst_ticks > 0 || !self.signals(backlog) {
            return Verdict::Pass;
        }
        let low_enough = self.state.probability_q56 <= self.config.ecn_up_to_q56;
        if self.config.ecn && low_enough && meta.ecn.is_capable() {
            return Verdict::Signal;
        }
        self.state.accumulated_q56 = 0;
        Verdict::Drop
    }

    fn on_refused(&mut self, now: Time, _meta: &Meta, backlog: Backlog) {
        self.advance(now, backlog);
        self.state.accumulated_q56 = 0;
    }

    #[inline]
    fn dequeue<P>(&mut self, now: Time, store: &mut impl Store<P>) -> Option<Packet<P>> {
        self.advance(now, store.backlog());
        let head = store.head()?;
        let left = store.backlog().without(head.len);
        self.departed(time_ticks(now), time_ticks(head.arrived), left);
        store.pop()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("pie.probability", self.state.probability_q56 as f64 / MAX_PROBABILITY as f64);
        visit("pie.delay_ns", (self.state.delay_ticks << TICK_SHIFT) as f64);
        visit("pie.burst_left_ns", (self.state.burst_ticks << TICK_SHIFT) as f64);
    }
}

/// The kernel's packet scheduler counts time in units of 2^6 ns.
const TICK_SHIFT: u32 = 6;
const TICKS_PER_SECOND: u64 = 1_000_000_000 >> TICK_SHIFT;
/// Probability one: 2^56 - 1.
const MAX_PROBABILITY: u64 = u64::MAX >> 8;
const PERCENT_OF_MAX: u64 = MAX_PROBABILITY / 100;
const FIRST_UPDATE: Time = Time::from_millis(500);
const BURST_TICKS: u64 = 150_000_000 >> TICK_SHIFT;
/// Above this delay (250 ms) the probability grows by another 2 % per update.
const HIGH_DELAY_TICKS: u64 = 250_000_000 >> TICK_SHIFT;

const fn span_ticks(span: Span) -> u64 {
    span.as_nanos() >> TICK_SHIFT
}

const fn time_ticks(time: Time) -> u64 {
    time.as_nanos() >> TICK_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Ecn;
    use alloc::format;
    use alloc::string::String;

    const FULL: Backlog = Backlog { packets: 100, bytes: 150_000 };

    fn standing_at(millis: u64) -> PieLinux {
        let mut pie = PieLinux::new(PieLinuxConfig::default(), Rng::new(9));
        pie.state.delay_ticks = span_ticks(Span::from_millis(millis));
        pie.state.old_delay_ticks = pie.state.delay_ticks;
        pie
    }

    /// The probability to four significant digits, as the kernel's own function printed it.
    fn printed(pie: &PieLinux) -> String {
        let p = pie.state.probability_q56 as f64 / MAX_PROBABILITY as f64;
        format!("{p:.3e}")
    }

    fn after_updates(mut pie: PieLinux, updates: &[u32]) -> alloc::vec::Vec<String> {
        let mut done = 0;
        let run_to = |&n: &u32| {
            (done..n).for_each(|_| pie.update(FULL));
            done = n;
            printed(&pie)
        };
        updates.iter().map(run_to).collect()
    }

    #[test]
    fn a_constant_delay_of_30_ms_raises_p_as_in_the_kernel() {
        let p = after_updates(standing_at(30), &[1, 10, 100, 500, 1_000, 4_000]);
        assert_eq!(p, ["9.155e-7", "8.606e-5", "4.205e-2", "7.339e-1", "1.671e0", "7.296e0"]);
    }

    #[test]
    fn a_constant_delay_of_300_ms_raises_p_above_one_as_in_the_kernel() {
        // The kernel's third value was printed as 3.97.
        let p = after_updates(standing_at(300), &[1, 10, 100, 2_000]);
        assert_eq!(p, ["2.002e-2", "3.735e-1", "3.973e0", "7.997e1"]);
    }

    #[test]
    fn p_of_an_idle_queue_decays_as_in_the_kernel() {
        let mut pie = standing_at(0);
        pie.state.probability_q56 = MAX_PROBABILITY / 2;
        for printed in [0.49034, 0.48084, 0.47148, 0.46226] {
            pie.update(Backlog::default());
            let p = pie.state.probability_q56 as f64 / MAX_PROBABILITY as f64;
            assert!((p - printed).abs() < 0.000_01, "{p} is not {printed}");
        }
    }

    #[test]
    fn an_error_of_100_ms_adds_what_the_kernel_adds_at_each_level() {
        // 0.125 Hz x 100 ms = 0.0125, divided by 2048 below a millionth, by 1 from a tenth on.
        let steps = [(0, 6.10e-6), (MAX_PROBABILITY / 10, 0.0125)];
        for (probability, expected) in steps {
            let config = PieLinuxConfig::default();
            let delay = span_ticks(Span::from_millis(115));
            let step = config.step(probability, delay, delay, span_ticks(config.target));
            let added = step as f64 / MAX_PROBABILITY as f64;
            assert!((added / expected - 1.0).abs() < 1e-3, "{added} is not {expected}");
        }
    }

    fn ready_to_signal(ecn: bool) -> PieLinux {
        let mut pie = standing_at(30);
        pie.config.ecn = ecn;
        pie.state.burst_ticks = 0;
        pie.state.probability_q56 = MAX_PROBABILITY / 20;
        pie
    }

    #[test]
    fn first_signal_comes_between_packet_17_and_171() {
        let meta = Meta::new(1_500, 0);
        for seed in 0..2_000 {
            let mut pie = ready_to_signal(false);
            pie.rng = Rng::new(seed);
            let arrivals = 1..=200;
            let first = arrivals
                .into_iter()
                .find(|_| pie.on_enqueue(Time::ZERO, &meta, FULL) != Verdict::Pass);
            assert!((17..=171).contains(&first.unwrap()), "seed {seed}: {first:?}");
        }
        // If no draw signals: 170 x 0.05 is rounded to just below 8.5, and packet 171 exceeds it.
        let mut unlucky = ready_to_signal(false);
        unlucky.state.accumulated_q56 = 170 * unlucky.state.probability_q56;
        assert_eq!(unlucky.on_enqueue(Time::ZERO, &meta, FULL), Verdict::Drop);
    }

    #[test]
    fn marks_keep_the_accumulated_probability_and_a_drop_resets_it() {
        let mut capable = Meta::new(1_500, 0);
        capable.ecn = Ecn::Ect0;
        let mut pie = ready_to_signal(true);
        pie.state.accumulated_q56 = 9 * MAX_PROBABILITY;
        let marked = (0..50)
            .filter(|_| pie.on_enqueue(Time::ZERO, &capable, FULL) == Verdict::Signal)
            .count();
        assert_eq!(marked, 50, "every ECN-capable arrival is marked once the sum passed 8.5");
        assert_eq!(pie.on_enqueue(Time::ZERO, &Meta::new(1_500, 0), FULL), Verdict::Drop);
        assert_eq!(pie.on_enqueue(Time::ZERO, &capable, FULL), Verdict::Pass);
    }

    #[test]
    fn the_burst_allowance_shrinks_by_the_time_between_departures() {
        let mut pie = standing_at(30);
        pie.departed(1_000_000, 900_000, FULL);
        assert_eq!(pie.state.burst_ticks, BURST_TICKS, "the first departure only starts the clock");
        pie.departed(2_000_000, 900_000, FULL);
        assert_eq!(pie.state.burst_ticks, BURST_TICKS - 1_000_000);
        pie.departed(9_000_000, 900_000, FULL);
        assert_eq!(pie.state.burst_ticks, 0);
    }

    #[test]
    fn updates_of_an_idle_year_are_skipped() {
        let mut pie = standing_at(0);
        pie.state.probability_q56 = MAX_PROBABILITY;
        pie.advance(Time::from_secs(3_600 * 24 * 365), Backlog::default());
        assert_eq!(pie.state.probability_q56, 0);
        assert_eq!(pie.state.burst_ticks, BURST_TICKS);
    }
}
