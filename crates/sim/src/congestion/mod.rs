//! Congestion control algorithms.
//!
//! An algorithm receives [`Ack`]s and [`Loss`]es and changes a [`Window`]. Loss detection,
//! proportional rate reduction and retransmission belong to the transport and are common to all.
//! Arithmetic is in integers if the defining source uses integers, and otherwise in `libm`, so that
//! results are equal on every machine.

mod algorithm;
mod bbr;
mod c2tcp;
mod cubic;
mod dctcp;
mod ecn_use;
mod hystart;
mod ledbat;
mod marking;
mod max_filter;
mod own;
mod pacing;
mod prague;
mod reno;
mod steered;
mod vegas;
mod vivace;
mod westwood;

use std::fmt;

use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

pub use algorithm::{Algorithm, Controller};
pub use bbr::Bbr;
pub use c2tcp::C2tcp;
pub use cubic::Cubic;
pub use dctcp::Dctcp;
pub use ecn_use::EcnUse;
pub use hystart::{HyStart, SlowStartExit};
pub use ledbat::Ledbat;
pub use own::{MakeControl, OwnControl};
pub use pacing::{PacketRate, PayloadRate, SegmentSizes};
pub use prague::{Prague, PragueConfig};
pub use reno::Reno;
pub use steered::Steered;
pub use vegas::Vegas;
pub use vivace::Vivace;
pub use westwood::Westwood;

/// Congestion window and slow start threshold, in segments.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub size: u32,
    /// Slow start below, congestion avoidance from this size on.
    pub threshold: u32,
    /// Acknowledged segments not yet converted to growth.
    credit: u32,
}

impl Window {
    /// Creates a window of `size` segments in slow start.
    pub const fn new(size: u32) -> Self {
        Self { size, threshold: u32::MAX, credit: 0 }
    }

    pub const fn in_slow_start(&self) -> bool {
        self.size < self.threshold
    }

    /// Grows by one per acknowledged segment up to the threshold; returns the remaining segments.
    pub fn slow_start(&mut self, acknowledged: u32) -> u32 {
        let size = self.size.saturating_add(acknowledged).min(self.threshold).min(MAX_WINDOW);
        let left = acknowledged - size.saturating_sub(self.size).min(acknowledged);
        self.size = size;
        left
    }

    /// Clears the credit of acknowledged segments.
    pub const fn drop_credit(&mut self) {
        self.credit = 0;
    }

    /// Grows by one per `per` acknowledged segments.
    pub fn grow(&mut self, acknowledged: u32, per: u32) {
        let per = per.max(1);
        if self.credit >= per {
            self.credit = 0;
            self.size += 1;
        }
        self.credit += acknowledged;
        if self.credit >= per {
            let growth = self.credit / per;
            self.credit -= growth * per;
            self.size += growth;
        }
        self.size = self.size.min(MAX_WINDOW);
    }

    /// Grows as Reno: by `share` of the acknowledged segments, or by one segment per window.
    fn grow_as_reno(&mut self, ack: &Ack, share: impl FnOnce(u32) -> u32) {
        if !ack.may_grow() {
            return;
        }
        let mut acknowledged = ack.acknowledged;
        if self.in_slow_start() {
            acknowledged = self.slow_start(share(acknowledged));
        }
        if acknowledged > 0 && !self.in_slow_start() {
            self.grow(acknowledged, self.size);
        }
    }
}

/// The transport's state (Linux `tcp_ca_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Open,
    /// The window shrinks after an ECN mark.
    Reducing,
    /// Losses are being repaired.
    Recovery,
    /// A retransmission timeout has happened.
    Timeout,
}

/// An acknowledgement, after the transport has processed it.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    pub now: Time,
    /// Segments newly known to have arrived, if the cumulative acknowledgement advances.
    pub acknowledged: u32,
    /// Segments newly known to have arrived.
    pub delivered: u32,
    /// Segments newly considered lost.
    pub lost: u32,
    /// Segments newly reported as marked CE.
    pub marked: u32,
    /// Round trip of the last acknowledged segment, if it was sent once.
    pub rtt: Option<Span>,
    pub min_rtt: Span,
    pub smoothed_rtt: Span,
    /// Segments in flight before the acknowledgement.
    pub prior_in_flight: u32,
    /// Segments in flight after the acknowledgement.
    pub in_flight: u32,
    /// Time until the pacer releases the next segment.
    pub pacing_wait: Span,
    /// Segments delivered since the start of the connection, including this acknowledgement.
    pub total_delivered: u32,
    /// Segments and retransmissions considered lost since the start of the connection.
    pub total_lost: u32,
    /// First segment not acknowledged.
    pub first_outstanding: u32,
    /// Next segment to be sent for the first time.
    pub next_sequence: u32,
    pub state: State,
    /// Whether the window limits the sender; an unused window does not grow.
    pub window_limited: bool,
    pub rate: Option<Delivered>,
}

/// A sample of the delivery rate.
#[derive(Clone, Copy, Debug)]
pub struct Delivered {
    /// Segments delivered in the interval.
    pub segments: u32,
    /// The longer of send and acknowledgement interval.
    pub interval: Span,
    /// Segments that had been delivered when the sampled segment was sent. A round trip has passed
    /// once this reaches the number that had been delivered at the start of the round trip.
    pub prior_delivered: u32,
    /// The application, not the network, limited the rate.
    pub app_limited: bool,
}

/// Why the window must shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Loss found by acknowledgements; once per window.
    Loss,
    /// A mark; once per window.
    Mark,
    Timeout,
}

#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// When it was detected.
    pub now: Time,
    pub cause: Cause,
    pub in_flight: u32,
    pub min_rtt: Span,
}

pub trait CongestionControl {
    /// Processes an acknowledgement, in any state.
    fn on_ack(&mut self, ack: &Ack, window: &mut Window);

    /// Answers a congestion event by setting `window.threshold`. The transport then reduces the
    /// window by proportional rate reduction (after a timeout: restarts slow start).
    fn on_loss(&mut self, loss: &Loss, window: &mut Window);

    /// Called when all segments that were in flight at the start of a reduction are acknowledged,
    /// with the window at its threshold, or restored if nothing was lost (Linux
    /// `CA_EVENT_COMPLETE_CWR`). Not called after a timeout.
    fn on_reduction_end(&mut self, _window: &mut Window) {}

    /// Called when the latest reduction was spurious and the transport has restored the window.
    fn on_undo(&mut self) {}

    /// Called when sending resumes after `idle` without anything in flight.
    fn on_restart(&mut self, _now: Time, _idle: Span, _window: &mut Window) {}

    /// Returns the pacing rate; `None`: not paced.
    fn pacing(&self) -> Option<PacketRate> {
        None
    }

    /// Returns whether the algorithm sets the window in every state, not the transport.
    fn owns_window(&self) -> bool {
        false
    }

    /// Returns whether the transport undoes reductions, and not [`on_undo`](Self::on_undo).
    fn is_restored_by_transport(&self) -> bool {
        !self.owns_window()
    }

    /// Returns whether a loss is answered even while a mark of the same round trip is being
    /// answered; needed if marks reduce the window by less.
    fn answers_loss_while_reducing(&self) -> bool {
        false
    }

    /// Returns whether the algorithm now sends less than the path allows, so that delivery rates
    /// count as limited by the application.
    fn holds_back(&self) -> bool {
        false
    }
}

impl fmt::Debug for dyn CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("dyn CongestionControl")
    }
}

#[derive(Clone, Debug)]
pub struct Setup {
    /// Payload bytes per segment.
    pub segment_bytes: u32,
    /// Bytes per full packet: payload and headers.
    pub packet_bytes: u32,
    /// Initial window in segments.
    pub initial_window: u32,
    pub slow_start_exit: SlowStartExit,
    /// Used by Prague only.
    pub prague: PragueConfig,
    pub rng: Rng,
}

impl Ack {
    /// Returns whether a loss-based window may grow by this acknowledgement.
    pub fn may_grow(&self) -> bool {
        self.window_limited
            && self.acknowledged > 0
            && matches!(self.state, State::Open | State::Timeout)
    }
}

/// The largest window, segments: the range of selective acknowledgement blocks.
pub const MAX_WINDOW: u32 = 65_000;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A connection with full packets of 1500 bytes.
    pub(crate) fn setup() -> Setup {
        Setup {
            segment_bytes: 1_448,
            packet_bytes: 1_500,
            initial_window: 10,
            slow_start_exit: SlowStartExit::Loss,
            prague: PragueConfig::default(),
            rng: Rng::new(1),
        }
    }

    /// An acknowledgement of `segments` in an open state, after 20 ms.
    pub(crate) fn ack(segments: u32) -> Ack {
        let rtt = Span::from_millis(20);
        Ack {
            now: Time::from_secs(1),
            acknowledged: segments,
            delivered: segments,
            lost: 0,
            marked: 0,
            rtt: Some(rtt),
            min_rtt: rtt,
            smoothed_rtt: rtt,
            prior_in_flight: segments,
            in_flight: 0,
            pacing_wait: Span::ZERO,
            total_delivered: segments,
            total_lost: 0,
            first_outstanding: segments,
            next_sequence: 2 * segments,
            state: State::Open,
            window_limited: true,
            rate: None,
        }
    }
}
