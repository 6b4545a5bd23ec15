//! PIE as Mahimahi's `pie_packet_queue.cc` computes it; see the [module](super) for the list.
//!
//! Mahimahi applies the gains to milliseconds instead of seconds: from p = 0.1 % on, a step is 62.5
//! times that of RFC 8033, and more below. Its probabilities are binary fractions except for the
//! decay, so fixed point loses nothing that its floating point keeps.

use crate::aqm::{Aqm, Store, Verdict};
use crate::packet::{Meta, Packet};
use crate::qdisc::Backlog;
use crate::rng::Rng;
use crate::time::{Span, Time};

use crate::queue::control::{ONE_Q56, add_clamped_q56, q56_to_f64, ratio_q56};

/// Parameters of [`PieMahimahi`], both in whole milliseconds, rounded down.
#[derive(Clone, Debug)]
pub struct PieMahimahiConfig {
    /// The target delay (`qdelay_ref`).
    pub target: Span,
    /// How long a burst passes without drops (`max_burst`).
    pub max_burst: Span,
}

/// PIE as in Mahimahi.
#[derive(Clone, Debug)]
pub struct PieMahimahi {
    target_ms: u64,
    max_burst_ms: u64,
    last_update_ms: u64,
    state: State,
    rng: Rng,
}

/// The state that an update reads and writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    probability_q56: u64,
    delay_ms: u64,
    old_delay_ms: u64,
    burst_left_ms: u64,
    /// The current measurement of departures: its start and its bytes.
    measurement: Option<(u64, u64)>,
    /// Average departure rate in whole bytes per millisecond; 0 while unknown.
    rate_bytes_per_ms: u64,
}

impl PieMahimahi {
    /// Returns an idle controller that draws from `rng`.
    pub fn new(config: &PieMahimahiConfig, rng: Rng) -> Self {
        Self {
            target_ms: config.target.as_millis(),
            max_burst_ms: config.max_burst.as_millis(),
            last_update_ms: 0,
            state: State::default(),
            rng,
        }
    }

    /// Makes all updates that are due; each sees the current queue.
    fn catch_up(&mut self, now_ms: u64, backlog_bytes: u64) {
        while now_ms - self.last_update_ms > UPDATE_MS {
            let before = self.state.clone();
            self.update(backlog_bytes);
            self.last_update_ms += UPDATE_MS;
            if self.state == before {
                let missed = (now_ms - self.last_update_ms).saturating_sub(1) / UPDATE_MS;
                self.last_update_ms += missed * UPDATE_MS;
            }
        }
    }

    fn update(&mut self, backlog_bytes: u64) {
        let state = &mut self.state;
        state.old_delay_ms = state.delay_ms;
        state.delay_ms = backlog_bytes.checked_div(state.rate_bytes_per_ms).unwrap_or(0);
        let mut may_decay = state.delay_ms != 0 || backlog_bytes == 0;

        // 0.125 per ms of error and 1.25 per ms of change: eighths of (error + 10 change).
        let delay = i128::from(state.delay_ms);
        let eighths =
            (delay - i128::from(self.target_ms)) + 10 * (delay - i128::from(state.old_delay_ms));
        let divisor = match state.probability_q56 {
            p if p < ratio_q56(1, 100) => 128,
            p if p < ratio_q56(1, 10) => 32,
            _ => 16,
        };
        let step_q56 = eighths * i128::from(ONE_Q56) / (8 * divisor);
        if i128::from(state.probability_q56) + step_q56 > i128::from(ONE_Q56) {
            may_decay = false;
        }
        state.probability_q56 = add_clamped_q56(state.probability_q56, step_q56, ONE_Q56);
        if state.delay_ms == 0 && state.old_delay_ms == 0 && may_decay {
            state.probability_q56 -= state.probability_q56 / 50;
        }
        state.burst_left_ms = state.burst_left_ms.saturating_sub(UPDATE_MS);
        let low_ms = self.target_ms / 2;
        if state.probability_q56 == 0
            && state.delay_ms < low_ms
            && state.old_delay_ms < low_ms
            && state.rate_bytes_per_ms > 0
        {
            state.measurement = None;
            state.rate_bytes_per_ms = 0;
            state.burst_left_ms = self.max_burst_ms;
        }
    }

    /// Measures the departure rate over 16 KiB, and reduces the burst allowance by the time of the
    /// measurement.
    fn departed(&mut self, now_ms: u64, len: u32, left_bytes: u64) {
        let state = &mut self.state;
        if left_bytes >= MEASURED_BYTES && state.measurement.is_none() {
            state.measurement = Some((now_ms, 0));
        }
        let Some((since_ms, bytes)) = &mut state.measurement else { return };
        *bytes += u64::from(len);
        let elapsed_ms = now_ms - *since_ms;
        if *bytes <= MEASURED_BYTES || elapsed_ms == 0 {
            return;
        }
        let sample = *bytes / elapsed_ms;
        state.rate_bytes_per_ms = match state.rate_bytes_per_ms {
            0 => sample,
            average => average - (average >> 3) + (sample >> 3),
        };
        state.measurement = (left_bytes >= MEASURED_BYTES).then_some((now_ms, 0));
        state.burst_left_ms = state.burst_left_ms.saturating_sub(elapsed_ms);
    }
}

impl Aqm for PieMahimahi {
    #[inline]
    fn on_enqueue(&mut self, now: Time, _meta: &Meta, backlog: Backlog) -> Verdict {
        self.catch_up(now.as_millis(), backlog.bytes);
        let state = &self.state;
        let delay_is_low = state.old_delay_ms < self.target_ms / 2;
        if state.burst_left_ms > 0
            || (delay_is_low && state.probability_q56 < ratio_q56(20, 100))
            || backlog.bytes < 2 * PACKET_BYTES
        {
            return Verdict::Pass;
        }
        if self.rng.next_u64() >> 8 < state.probability_q56 { Verdict::Drop } else { Verdict::Pass }
    }

    fn on_refused(&mut self, now: Time, _meta: &Meta, backlog: Backlog) {
        self.catch_up(now.as_millis(), backlog.bytes);
    }

    #[inline]
    fn dequeue<P>(&mut self, now: Time, store: &mut impl Store<P>) -> Option<Packet<P>> {
        let len = store.head()?.len;
        let left_bytes = store.backlog().without(len).bytes;
        self.departed(now.as_millis(), len, left_bytes);
        self.catch_up(now.as_millis(), left_bytes);
        store.pop()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("pie.probability", q56_to_f64(self.state.probability_q56));
        visit("pie.delay_ns", (self.state.delay_ms * NANOS_PER_MS) as f64);
        visit("pie.burst_left_ns", (self.state.burst_left_ms * NANOS_PER_MS) as f64);
    }
}

const NANOS_PER_MS: u64 = 1_000_000;
const UPDATE_MS: u64 = 30;
/// The length of a measurement of the departure rate, and the backlog that starts one.
const MEASURED_BYTES: u64 = 16_384;
/// Mahimahi's packet size: 1500 bytes and 4 of TUN header.
const PACKET_BYTES: u64 = 1_504;

#[cfg(test)]
mod tests {
    use super::*;

    fn pie() -> PieMahimahi {
        PieMahimahi::new(&PieMahimahiConfig::default(), Rng::new(4))
    }

    #[test]
    fn first_steps_are_those_of_the_published_code() {
        // 1500 B/ms and 45,000 B stored: delay 30 ms. Step 1: (15 + 300) / 8 / 128 = 0.3076;
        // step 2, from p >= 0.1 on: 15 / 8 / 16 = 0.1172.
        let mut pie = pie();
        pie.state.rate_bytes_per_ms = 1_500;
        pie.update(45_000);
        assert!((q56_to_f64(pie.state.probability_q56) - 315.0 / 1_024.0).abs() < 1e-12);
        pie.update(45_000);
        let expected = 315.0 / 1_024.0 + 15.0 / 128.0;
        assert!((q56_to_f64(pie.state.probability_q56) - expected).abs() < 1e-12);
        for _ in 0..100 {
            pie.update(45_000);
        }
        assert_eq!(pie.state.probability_q56, ONE_Q56);
    }

    #[test]
    fn a_late_update_is_computed_with_the_current_queue_and_not_before_it_is_due() {
        let mut late = pie();
        late.state.rate_bytes_per_ms = 1_500;
        late.catch_up(30, 45_000);
        assert_eq!(late.state.probability_q56, 0, "30 ms are not yet more than 30 ms");
        late.catch_up(91, 45_000);
        assert_eq!(late.last_update_ms, 90);
        let mut stepped = pie();
        stepped.state.rate_bytes_per_ms = 1_500;
        (0..3).for_each(|_| stepped.update(45_000));
        assert_eq!(late.state, stepped.state);
    }

    #[test]
    fn an_idle_queue_is_skipped_to_the_same_phase() {
        let mut pie = pie();
        pie.state.probability_q56 = ONE_Q56;
        pie.catch_up(1_000_000_000_007, 0);
        assert_eq!(pie.state.probability_q56, 0);
        assert_eq!(pie.last_update_ms, 1_000_000_000_007 / 30 * 30);
    }

    #[test]
    fn the_departure_rate_is_measured_over_more_than_16_kib() {
        let mut pie = pie();
        for packet in 0..11_u64 {
            pie.departed(100 + packet, 1_500, 60_000);
        }
        // The eleventh departure completes 16,500 bytes, 10 ms after the first.
        assert_eq!(pie.state.rate_bytes_per_ms, 1_650);
        for packet in 0..11_u64 {
            pie.departed(111 + packet, 1_500, 60_000);
        }
        // Measured from the departure at 110 ms: 16,500 B in 11 ms; the new value has weight 1/8.
        assert_eq!(pie.state.rate_bytes_per_ms, 1_650 - 206 + 187);
    }
}
