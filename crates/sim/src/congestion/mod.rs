//! Congestion control: what each algorithm makes of acknowledgements and losses.
//!
//! An algorithm sees [`Ack`]s and [`Loss`]es and changes a [`Window`]. Loss detection, proportional
//! rate reduction and retransmission are the transport's and the same for all. Arithmetic is in
//! integers wherever the defining source has integers; the rest goes through `libm`, so that
//! results are equal on every machine.

mod algorithm;
mod bbr;
mod c2tcp;
mod cubic;
mod dctcp;
mod ecn_use;
mod hystart;
mod marking;
mod max_filter;
mod own;
mod pacing;
mod prague;
mod reno;
mod steered;
mod vivace;
mod westwood;

use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

pub use algorithm::{Algorithm, Controller};
pub use bbr::Bbr;
pub use c2tcp::C2tcp;
pub use cubic::Cubic;
pub use dctcp::Dctcp;
pub use ecn_use::EcnUse;
pub use hystart::{HyStart, SlowStartExit};
pub use max_filter::MaxFilter;
pub use own::{MakeControl, Own, OwnControl};
pub use pacing::{PacketRate, PayloadRate, SegmentSizes};
pub use prague::{Prague, PragueConfig};
pub use reno::Reno;
pub use steered::Steered;
pub use vivace::Vivace;
pub use westwood::Westwood;

/// Congestion window and slow start threshold, in segments.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Segments that may be in flight.
    pub size: u32,
    /// Slow start below it, congestion avoidance from it on.
    pub threshold: u32,
    /// Acknowledged segments not yet turned into growth.
    credit: u32,
}

impl Window {
    /// A window of `size` segments in slow start.
    pub const fn new(size: u32) -> Self {
        Self { size, threshold: u32::MAX, credit: 0 }
    }

    /// Whether the window is below its threshold.
    pub const fn in_slow_start(&self) -> bool {
        self.size < self.threshold
    }

    /// Grows by one per acknowledged segment up to the threshold; returns what is left over.
    pub fn slow_start(&mut self, acknowledged: u32) -> u32 {
        let size = self.size.saturating_add(acknowledged).min(self.threshold).min(MAX_WINDOW);
        let left = acknowledged - size.saturating_sub(self.size).min(acknowledged);
        self.size = size;
        left
    }

    /// Forgets the acknowledged segments that have not become growth.
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
}

/// The transport's state (Linux `tcp_ca_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is wrong.
    Open,
    /// The window shrinks after an ECN mark.
    Reducing,
    /// Losses are being repaired.
    Recovery,
    /// A retransmission timeout has happened.
    Timeout,
}

/// An acknowledgement, after the transport has taken it in.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// When it arrived.
    pub now: Time,
    /// Segments by which the window may grow: those newly known to have arrived, if the cumulative
    /// acknowledgement moves.
    pub acknowledged: u32,
    /// Segments newly known to have arrived.
    pub delivered: u32,
    /// Segments newly considered lost.
    pub lost: u32,
    /// Segments newly reported as marked CE.
    pub marked: u32,
    /// Round trip of the last segment that it acknowledges, if sent once.
    pub rtt: Option<Span>,
    /// Smallest round trip seen.
    pub min_rtt: Span,
    /// Smoothed round trip.
    pub smoothed_rtt: Span,
    /// Segments in flight before and after it.
    pub prior_in_flight: u32,
    /// See `prior_in_flight`.
    pub in_flight: u32,
    /// How long the pacer still holds back the next segment.
    pub pacing_wait: Span,
    /// Segments delivered since the connection began, this acknowledgement included.
    pub total_delivered: u32,
    /// First segment not acknowledged.
    pub first_outstanding: u32,
    /// Next segment to be sent for the first time.
    pub next_sequence: u32,
    /// The transport's state.
    pub state: State,
    /// Whether the window limits the sender; a window that is not used does not grow.
    pub window_limited: bool,
    /// Delivery rate.
    pub rate: Option<Delivered>,
}

/// A sample of the delivery rate.
#[derive(Clone, Copy, Debug)]
pub struct Delivered {
    /// Segments delivered in the interval.
    pub segments: u32,
    /// The longer of send and acknowledgement interval.
    pub interval: Span,
    /// Segments delivered when the sampled one was sent: a round begins where this passes the count
    /// at the round's start.
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
    /// A retransmission timeout.
    Timeout,
}

/// A congestion event.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// When it was found.
    pub now: Time,
    /// What happened.
    pub cause: Cause,
    /// Segments in flight.
    pub in_flight: u32,
    /// Smallest round trip seen.
    pub min_rtt: Span,
}

/// A congestion control algorithm.
pub trait CongestionControl {
    /// Takes in an acknowledgement, in any state.
    fn on_ack(&mut self, ack: &Ack, window: &mut Window);

    /// A congestion event begins: sets `window.threshold`, to which the transport brings the window
    /// by proportional rate reduction (after a timeout: by slow start).
    fn on_loss(&mut self, loss: &Loss, window: &mut Window);

    /// The latest reduction proved spurious and the transport has restored the window.
    fn on_undo(&mut self) {}

    /// Sending resumes after `idle` without anything in flight.
    fn on_restart(&mut self, _now: Time, _idle: Span, _window: &mut Window) {}

    /// The rate at which packets may leave; `None`: not paced.
    fn pacing(&self) -> Option<PacketRate> {
        None
    }

    /// Whether the algorithm sets the window in every state, so that the transport does not bring
    /// it down.
    fn owns_window(&self) -> bool {
        false
    }

    /// Whether the transport restores the window after a reduction that proves spurious; else
    /// [`on_undo`](Self::on_undo) does.
    fn is_restored_by_transport(&self) -> bool {
        !self.owns_window()
    }

    /// Whether a loss is answered even while a mark of the same round trip is: needed where marks
    /// are answered by less.
    fn answers_loss_while_reducing(&self) -> bool {
        false
    }

    /// Whether it holds back on purpose: what is sent now says nothing about the bandwidth, as if
    /// the application had sent no more.
    fn holds_back(&self) -> bool {
        false
    }
}

/// What an algorithm is built from.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Payload bytes per segment.
    pub segment_bytes: u32,
    /// Bytes per full packet: payload and headers.
    pub packet_bytes: u32,
    /// Initial window in segments.
    pub initial_window: u32,
    /// How slow start ends early.
    pub slow_start_exit: SlowStartExit,
    /// For Prague alone.
    pub prague: PragueConfig,
    /// Its own random numbers.
    pub rng: Rng,
}

impl Ack {
    /// Whether a loss-based window may grow by this acknowledgement.
    pub fn may_grow(&self) -> bool {
        self.window_limited
            && self.acknowledged > 0
            && matches!(self.state, State::Open | State::Timeout)
    }
}

/// The largest window, segments: blocks of selective acknowledgements reach that far.
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
            first_outstanding: segments,
            next_sequence: 2 * segments,
            state: State::Open,
            window_limited: true,
            rate: None,
        }
    }
}
