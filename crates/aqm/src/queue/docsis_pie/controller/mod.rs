//! The controller of DOCSIS-PIE: probability, states and verdicts, for a delay that the caller
//! computes.

use crate::aqm::Verdict;
use crate::qdisc::Backlog;
use crate::queue::control::{
    Gains, ONE_Q56, add_clamped_q56, low_probability_shift, q56_to_f64, ratio_q56,
};
use crate::rng::Rng;
use crate::time::Span;

/// The state of appendix A of RFC 8034 between packets, without the token bucket.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    target: Span,
    half_target: Span,
    buffer_bytes: u64,
    pub(super) state: State,
    accumulated_q56: u64,
    /// Packets that arrived while the controller slept.
    pub slept: u64,
    rng: Rng,
}

/// The state that an update reads and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub probability_q56: u64,
    pub old_delay: Span,
    pub burst_left: Span,
    pub activity: Activity,
}

/// The state of the AQM (`aqm_state_`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// The buffer has not been a third full since the queue was quiet: nothing is dropped.
    Inactive,
    /// The next drop starts a burst allowance. Counts consecutive quiet updates.
    Quiescent {
        quiet_updates: u32,
    },
    Active,
}

impl Controller {
    /// Returns an idle controller for a buffer of `buffer_bytes`.
    pub fn new(target: Span, buffer_bytes: u64, rng: Rng) -> Self {
        Self {
            target,
            half_target: Span::from_nanos(target.as_nanos() / 2),
            buffer_bytes,
            state: State {
                probability_q56: 0,
                old_delay: Span::ZERO,
                burst_left: Span::ZERO,
                activity: Activity::Inactive,
            },
            accumulated_q56: 0,
            slept: 0,
            rng,
        }
    }

    /// Returns the probability for a packet of mean size.
    pub const fn probability_q56(&self) -> u64 {
        self.state.probability_q56
    }

    /// Whether nothing is dropped until the buffer is a third full (`INACTIVE`).
    pub fn is_asleep(&self) -> bool {
        self.state.activity == Activity::Inactive
    }

    /// Judges an arrival of `len` bytes. `backlog` excludes it.
    #[inline]
    pub fn judge(&mut self, len: u32, backlog: Backlog) -> Verdict {
        if !self.drops(len, backlog) {
            return Verdict::Pass;
        }
        self.accumulated_q56 = 0;
        if matches!(self.state.activity, Activity::Quiescent { .. }) {
            self.state.activity = Activity::Active;
            self.state.burst_left = MAX_BURST;
        }
        Verdict::Drop
    }

    /// Called for an arrival that exceeds the limit of the queue.
    pub const fn on_refused(&mut self) {
        self.accumulated_q56 = 0;
    }

    /// Makes the periodic update of appendix A.2 with the current delay. Returns whether it changed
    /// anything.
    pub fn update(&mut self, delay: Span) -> bool {
        let target = self.target;
        let before = self.state.clone();
        let state = &mut self.state;
        if state.burst_left > Span::ZERO {
            state.probability_q56 = 0;
        } else {
            let step_q56 = GAINS.step_q56(delay, state.old_delay, target);
            state.probability_q56 = next_probability_q56(state, step_q56, delay);
        }
        state.burst_left = state.burst_left.saturating_sub(UPDATE_INTERVAL);
        let quiet = delay < self.half_target
            && state.old_delay < self.half_target
            && state.probability_q56 == 0
            && state.burst_left == Span::ZERO;
        state.activity = state.activity.after_update(quiet);
        state.old_delay = delay;
        self.state != before
    }

    /// Whether this arrival is dropped (`drop_early`).
    fn drops(&mut self, len: u32, backlog: Backlog) -> bool {
        let state = &mut self.state;
        if state.burst_left > Span::ZERO {
            return false;
        }
        if state.probability_q56 == 0 {
            self.accumulated_q56 = 0;
        }
        if state.activity == Activity::Inactive {
            if backlog.bytes < self.buffer_bytes / 3 {
                self.slept += 1;
                return false;
            }
            state.activity = Activity::Quiescent { quiet_updates: 0 };
        }
        self.signals(len, backlog)
    }

    /// The rest of `drop_early`, for an AQM that is awake.
    // Not inlined, so that the code for a packet that passes stays small enough to be inlined.
    #[inline(never)]
    fn signals(&mut self, len: u32, backlog: Backlog) -> bool {
        let state = &self.state;
        let packet_q56 = packet_probability_q56(state.probability_q56, len);
        self.accumulated_q56 = self.accumulated_q56.saturating_add(packet_q56);
        let low = state.old_delay < self.half_target && state.probability_q56 < TWENTY_PERCENT_Q56;
        if low || backlog.bytes <= 2 * MEAN_PACKET_BYTES || self.accumulated_q56 < LOW_Q56 {
            return false;
        }
        self.accumulated_q56 >= HIGH_Q56 || self.rng.next_u64() >> 8 <= packet_q56
    }

    /// Reports the state worth plotting.
    pub fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("docsis-pie.probability", q56_to_f64(self.state.probability_q56));
        visit("docsis-pie.delay_ns", self.state.old_delay.as_nanos() as f64);
        visit("docsis-pie.burst_left_ns", self.state.burst_left.as_nanos() as f64);
        let activity = match self.state.activity {
            Activity::Inactive => 0.0,
            Activity::Quiescent { .. } => 1.0,
            Activity::Active => 2.0,
        };
        visit("docsis-pie.activity", activity);
    }
}

/// Applies the control law of appendix A.2, for a state without burst allowance.
fn next_probability_q56(state: &State, step_q56: i128, delay: Span) -> u64 {
    let old_q56 = state.probability_q56;
    let mut step_q56 = match old_q56 {
        p if p < TEN_PERCENT_Q56 => step_q56 / (1 << low_probability_shift(p)),
        p if p < ONE_Q56 => step_q56 * 2,
        p if p < 10 * ONE_Q56 => step_q56 * 8,
        _ => step_q56 * 32,
    };
    if old_q56 >= TEN_PERCENT_Q56 {
        step_q56 = step_q56.min(i128::from(TWO_PERCENT_Q56));
    }
    // Temporarily below zero: the bounds are the last of A.2's rules.
    let mut probability_q56 = i128::from(old_q56) + step_q56;
    if delay < LATENCY_LOW && state.old_delay < LATENCY_LOW {
        probability_q56 -= probability_q56 / 50;
    } else if delay > LATENCY_HIGH {
        probability_q56 += i128::from(TWO_PERCENT_Q56);
    }
    add_clamped_q56(0, probability_q56, LIMIT_Q56)
}

/// Returns the probability of one packet: proportional to its size, at most 0.85.
pub(super) fn packet_probability_q56(probability_q56: u64, len: u32) -> u64 {
    (probability_q56 / MEAN_PACKET_BYTES).saturating_mul(u64::from(len)).min(LOW_Q56)
}

impl Activity {
    fn after_update(self, quiet: bool) -> Self {
        match self {
            Self::Active if quiet => Self::Quiescent { quiet_updates: 0 },
            Self::Quiescent { quiet_updates } if quiet && quiet_updates < RESET_UPDATES => {
                Self::Quiescent { quiet_updates: quiet_updates + 1 }
            }
            Self::Quiescent { .. } if quiet => Self::Inactive,
            Self::Quiescent { .. } => Self::Quiescent { quiet_updates: 0 },
            other => other,
        }
    }
}

/// `A` = 0.25 Hz and `B` = 2.5 Hz.
const GAINS: Gains = Gains { alpha_microhertz: 250_000, beta_microhertz: 2_500_000 };
/// Time between updates (`INTERVAL`).
pub(crate) const UPDATE_INTERVAL: Span = Span::from_millis(16);
const MAX_BURST: Span = Span::from_millis(142);
/// The AQM sleeps after this many quiet updates and one more: `BURST_RESET_TIMEOUT`, 1 s.
const RESET_UPDATES: u32 = 62;
const MEAN_PACKET_BYTES: u64 = 1_024;
const MIN_PACKET_BYTES: u64 = 64;
const LATENCY_LOW: Span = Span::from_millis(5);
const LATENCY_HIGH: Span = Span::from_millis(200);
const LOW_Q56: u64 = ratio_q56(85, 100);
const HIGH_Q56: u64 = ratio_q56(85, 10);
pub(super) const LIMIT_Q56: u64 = LOW_Q56 * (MEAN_PACKET_BYTES / MIN_PACKET_BYTES);
const TWO_PERCENT_Q56: u64 = ratio_q56(2, 100);
const TEN_PERCENT_Q56: u64 = ratio_q56(10, 100);
const TWENTY_PERCENT_Q56: u64 = ratio_q56(20, 100);
/// The largest frame of DOCSIS 3.1, and the smallest useful buffer.
pub(crate) const MAX_PACKET_BYTES: u64 = 2_000;

#[cfg(test)]
mod tests;
