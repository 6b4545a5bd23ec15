//! TCP Prague (draft-briscoe-iccrg-prague-congestion-control, RFC 9331 section 4.3), after the
//! reference in L4STeam's Linux tree, version 0.7:
//!
//! * ECT(1) and accurate feedback. The window W has a fraction of 24 bits; the congestion window
//!   follows W rounded up by one segment per acknowledgement.
//! * Every *unmarked* segment that arrives increases W by 1/W, even while a mark is being answered
//!   (a flow through DualPI2 spends most of its time there), but not while a loss is repaired.
//! * Marks: once per round trip W is reduced by alpha / 2, where alpha is DCTCP's average. The
//!   first mark halves W; alpha is zero until then.
//! * Losses halve W, even while a mark is being answered.
//! * Less dependence on the round trip R: from the fourth round after slow start on, below 25 ms,
//!   growth is scaled by (R / 25 ms)^2, and alpha and reductions are computed once per 25 ms.
//! * Pacing at W per R, or at the segments in flight per R if they are more, because bursts would
//!   be marked; at twice that rate below half the slow start threshold.
//!
//! Deviations: no fallback when the bottleneck's AQM looks classic; no window in fractions of a
//! segment and no smaller packets below two segments; the pacing rate is not varied by 3 %.

use underload_aqm::time::{Span, Time};

use super::marking;
use super::{Ack, Cause, CongestionControl, Loss, MAX_WINDOW, PacketRate, Setup, State, Window};

type MarkFraction = marking::MarkFraction<24>;

/// How a flow's rate depends on its round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PragueConfig {
    /// Flows of shorter round trips behave like flows of this round trip; zero: no scaling. At most
    /// [`MAX_RTT_TARGET`](Self::MAX_RTT_TARGET).
    pub rtt_target: Span,
    /// Rounds after slow start before the scaling applies, so that short transfers stay fast.
    pub rtt_transition: u32,
}

impl PragueConfig {
    /// Linux does not scale longer round trips.
    pub const MAX_RTT_TARGET: Span = Span::from_millis(100);
}

impl Default for PragueConfig {
    /// 25 ms after 4 rounds.
    fn default() -> Self {
        Self { rtt_target: Span::from_millis(25), rtt_transition: 4 }
    }
}

#[derive(Debug, Default)]
pub struct Prague {
    config: PragueConfig,
    /// Bytes of a full packet, headers included.
    packet_bytes: u64,
    /// W in units of 2^-[`FRACTION_BITS`](Self::FRACTION_BITS) segments.
    pub(crate) exact: u64,
    /// The window that Prague set last. The transport set another one after a timeout or an undo.
    left: u32,
    fraction: MarkFraction,
    saw_mark: bool,
    /// When alpha was last averaged and W last reduced.
    averaged_at: Time,
    reduced_at: Time,
    /// Rounds since slow start.
    rounds: u32,
    /// Growth per unmarked segment and 1/W, in units of 2^-24 segments.
    gain: u64,
    pacing: Option<PacketRate>,
}

impl Prague {
    /// Fractional bits of W.
    pub(crate) const FRACTION_BITS: u32 = FRACTION_BITS;

    pub fn new(setup: &Setup) -> Self {
        Self {
            config: setup.prague,
            packet_bytes: u64::from(setup.packet_bytes),
            exact: u64::from(setup.initial_window) << FRACTION_BITS,
            left: setup.initial_window,
            gain: SEGMENT,
            ..Self::default()
        }
    }

    /// Adopts a window that the transport has set.
    fn follow(&mut self, window: &Window) {
        if window.size != self.left {
            self.exact = u64::from(window.size) << FRACTION_BITS;
            self.left = window.size;
        }
    }

    /// Returns W rounded up.
    fn whole(&self) -> u32 {
        (self.exact.div_ceil(SEGMENT) as u32).max(MIN_WINDOW)
    }

    /// Reduces W by `cut`, down to the minimum window, and ends slow start.
    fn cut(&mut self, cut: u64, window: &mut Window) {
        self.exact = self.exact.saturating_sub(cut).max(u64::from(MIN_WINDOW) * SEGMENT);
        window.threshold = self.whole();
    }

    fn grow(&mut self, unmarked: u32, window: &mut Window) {
        let mut growing = unmarked;
        if window.in_slow_start() {
            growing = window.slow_start(unmarked);
            self.exact = u64::from(window.size) << FRACTION_BITS;
            self.left = window.size;
        }
        // 2^24 in two parts, so that no product exceeds 64 bits.
        self.exact += ((u64::from(growing) * self.gain) << 16) / (self.exact.max(SEGMENT) >> 8);
        self.exact = self.exact.min(u64::from(MAX_WINDOW) * SEGMENT);
    }

    /// Moves the window by one segment towards W.
    fn step(&mut self, window: &mut Window) {
        let whole = self.whole();
        if window.size < whole {
            window.size += 1;
        } else if window.size > whole {
            window.size -= 1;
        }
        self.left = window.size;
    }

    /// Returns whether the flow behaves like one of the target round trip.
    fn is_independent(&self, window: &Window) -> bool {
        !window.in_slow_start() && self.rounds >= self.config.rtt_transition
    }

    /// Returns whether a virtual round trip has passed since `then`; an actual one has passed.
    fn virtual_round_has_passed(&self, now: Time, then: Time, window: &Window) -> bool {
        !self.is_independent(window) || now.since(then) >= self.config.rtt_target
    }

    fn end_round(&mut self, ack: &Ack, window: &Window) {
        if self.saw_mark {
            self.fraction.average();
            self.averaged_at = ack.now;
        }
        self.fraction.begin_round(ack.next_sequence);
        if !window.in_slow_start() {
            self.rounds = self.rounds.saturating_add(1);
        }
        self.gain = SEGMENT;
        if self.rounds >= self.config.rtt_transition {
            self.gain = scaled_gain(ack.smoothed_rtt, self.config.rtt_target);
        }
    }

    fn pace(&mut self, ack: &Ack, window: &Window) {
        let in_flight = u64::from(ack.in_flight) << FRACTION_BITS;
        let mut bytes = (self.exact.max(in_flight) * self.packet_bytes) >> FRACTION_BITS;
        if window.size < window.threshold / 2 {
            bytes *= 2;
        }
        let rate = (bytes * 1_000_000_000).checked_div(ack.smoothed_rtt.as_nanos());
        let rate = rate.map(|rate| PacketRate::from_bytes_per_s(rate.max(1)));
        self.pacing = rate.or(self.pacing);
    }
}

/// Returns the growth in units of W: (R / target)^2 of a segment, at most one segment.
fn scaled_gain(rtt: Span, target: Span) -> u64 {
    let (rtt_us, target_us) = (rtt.as_nanos() / 1_000, target.as_nanos() / 1_000);
    if rtt_us >= target_us {
        return SEGMENT;
    }
    let square = target_us * target_us;
    ((rtt_us * rtt_us * SEGMENT + square / 2) / square).max(1)
}

impl CongestionControl for Prague {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        self.follow(window);
        if ack.marked > 0 && !self.saw_mark {
            self.saw_mark = true;
            self.cut(self.exact / 2, window);
        }
        let unmarked = ack.delivered.saturating_sub(ack.marked);
        if ack.window_limited && ack.state != State::Recovery {
            self.grow(unmarked, window);
        }
        self.step(window);
        let ended = self.fraction.count(ack);
        if ended && self.virtual_round_has_passed(ack.now, self.averaged_at, window) {
            self.end_round(ack, window);
        }
        self.pace(ack, window);
    }

    fn on_loss(&mut self, loss: &Loss, window: &mut Window) {
        self.follow(window);
        let cut = match loss.cause {
            Cause::Mark if self.virtual_round_has_passed(loss.now, self.reduced_at, window) => {
                self.reduced_at = loss.now;
                (u128::from(self.exact) * u128::from(self.fraction.alpha)) >> (FRACTION_BITS + 1)
            }
            Cause::Mark => return,
            Cause::Loss | Cause::Timeout => u128::from(self.exact / 2),
        };
        self.cut(cut as u64, window);
    }

    fn pacing(&self) -> Option<PacketRate> {
        self.pacing
    }

    fn owns_window(&self) -> bool {
        true
    }

    fn is_restored_by_transport(&self) -> bool {
        true
    }

    fn answers_loss_while_reducing(&self) -> bool {
        true
    }
}

const FRACTION_BITS: u32 = 24;
/// A segment in units of W.
const SEGMENT: u64 = 1 << FRACTION_BITS;
const MIN_WINDOW: u32 = 2;

#[cfg(test)]
mod tests;
