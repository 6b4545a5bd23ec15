//! TCP Prague (draft-briscoe-iccrg-prague-congestion-control, RFC 9331 section 4.3), after the
//! reference in L4STeam's Linux tree:
//!
//! * ECT(1), accurate feedback, alpha as DCTCP's with 20 bits, one reduction by alpha / 2 per
//!   round trip with marks; between reductions, growth by one segment per *virtual* round trip.
//! * Less dependence on the round trip: below 25 ms, after 500 round trips, growth is that of a
//!   flow of 25 ms: scaled by (RTT / 25 ms)^2 per acknowledged segment.
//! * Pacing at the window per round trip (twice that in slow start), because bursts would be
//!   marked.
//! * Loss is answered by halving, as Reno.
//!
//! Deviations: no fallback when the bottleneck's AQM looks classic; no window in fractions of a
//! segment (the least is two segments); alpha is updated once per actual round trip.

use underload_aqm::time::Span;

use super::marking::MarkFraction;
use super::{Ack, Cause, CongestionControl, Loss, Window};

/// Prague's state.
#[derive(Debug)]
pub struct Prague {
    fraction: MarkFraction,
    segment_bytes: u64,
    rounds: u32,
    pacing: u64,
    /// Growth in units of 2^-24 segments.
    growth: u64,
}

impl Prague {
    /// At the start of a connection with segments of `segment_bytes`.
    pub fn new(segment_bytes: u32) -> Self {
        Self {
            fraction: MarkFraction::new(),
            segment_bytes: u64::from(segment_bytes),
            rounds: 0,
            pacing: 0,
            growth: 0,
        }
    }

    fn grow(&mut self, ack: &Ack, acknowledged: u32, window: &mut Window) {
        let rtt = ack.smoothed_rtt.as_nanos().max(1);
        let target = TARGET_RTT.as_nanos();
        let mut step = u128::from(acknowledged) << 24;
        if self.rounds >= TRANSITION_ROUNDS && rtt < target {
            step = step * u128::from(rtt) * u128::from(rtt) / (u128::from(target).pow(2));
        }
        self.growth += (step / u128::from(window.size.max(1))) as u64;
        let whole = (self.growth >> 24) as u32;
        self.growth &= (1 << 24) - 1;
        window.size = (window.size + whole).min(super::MAX_WINDOW);
    }
}

impl Prague {
    /// The window after a reduction by alpha / 2, the rest of a segment kept for growth: near the
    /// equilibrium a reduction is one segment, and cutting its rest off would nearly double the
    /// window.
    fn reduced(&mut self, window: u32) -> u32 {
        let exact = (u64::from(window) << 24) + self.growth;
        let reduced = exact - u64::from(window) * self.fraction.alpha() * 8;
        self.growth = reduced & ((1 << 24) - 1);
        ((reduced >> 24) as u32).max(2)
    }
}

impl CongestionControl for Prague {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        if self.fraction.on_ack(ack) {
            self.rounds = self.rounds.saturating_add(1);
        }
        if ack.may_grow() {
            let mut acknowledged = ack.acknowledged;
            if window.in_slow_start() {
                acknowledged = window.slow_start(acknowledged);
            }
            if acknowledged > 0 && !window.in_slow_start() {
                self.grow(ack, acknowledged, window);
            }
        }
        let bytes = u128::from(window.size) * u128::from(self.segment_bytes);
        let factor = if window.in_slow_start() { 2 } else { 1 };
        let rtt = u128::from(ack.smoothed_rtt.as_nanos());
        if let Some(rate) = (bytes * factor * 1_000_000_000).checked_div(rtt) {
            self.pacing = (rate as u64).max(1);
        }
    }

    fn on_loss(&mut self, loss: &Loss, window: &mut Window) {
        window.threshold = match loss.cause {
            Cause::Mark => self.reduced(window.size),
            Cause::Loss | Cause::Timeout => (window.size / 2).max(2),
        };
    }

    fn pacing(&self) -> Option<u64> {
        (self.pacing > 0).then_some(self.pacing)
    }
}

/// The round trip whose growth shorter ones imitate.
const TARGET_RTT: Span = Span::from_millis(25);
/// Round trips before that starts, so that short flows are as fast as others.
const TRANSITION_ROUNDS: u32 = 500;
