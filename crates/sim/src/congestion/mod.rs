//! Congestion control: what each algorithm makes of acknowledgements and losses.
//!
//! An algorithm sees [`Ack`]s and [`Loss`]es and changes a [`Window`]. Loss detection, proportional
//! rate reduction and retransmission are the transport's and the same for all. Arithmetic is in
//! integers wherever the defining source has integers; the rest goes through `libm`, so that
//! results are equal on every machine.

mod bbr;
mod c2tcp;
mod cubic;
mod dctcp;
mod hystart;
mod marking;
mod max_filter;
mod prague;
mod reno;
mod vivace;
mod westwood;

use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

pub use bbr::Bbr;
pub use c2tcp::C2tcp;
pub use cubic::Cubic;
pub use dctcp::Dctcp;
pub use hystart::{HyStart, SlowStartExit};
pub use max_filter::MaxFilter;
pub use prague::Prague;
pub use reno::Reno;
pub use vivace::Vivace;
pub use westwood::Westwood;

use crate::tcp::EcnUse;

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

    /// Bytes per second to pace at; `None`: not paced.
    fn pacing(&self) -> Option<u64> {
        None
    }

    /// Whether the algorithm sets the window in every state, so that the transport leaves it alone.
    fn owns_window(&self) -> bool {
        false
    }

    /// Whether it holds back on purpose: what is sent now says nothing about the bandwidth, as if
    /// the application had sent no more.
    fn holds_back(&self) -> bool {
        false
    }
}

/// The congestion controls by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// [`Reno`].
    Reno,
    /// [`Cubic`].
    Cubic,
    /// [`Bbr`], version 1.
    Bbr,
    /// [`Westwood`]+.
    Westwood,
    /// [`Dctcp`].
    Dctcp,
    /// [`Prague`].
    Prague,
    /// [`C2tcp`].
    C2tcp,
    /// [`Vivace`].
    Vivace,
}

impl Algorithm {
    /// How slow start ends early in Linux: HyStart belongs to CUBIC there, and to what is built on
    /// it; Reno and Westwood+ go on to the first loss.
    pub fn slow_start_exit(self) -> SlowStartExit {
        match self {
            Self::Cubic | Self::C2tcp => SlowStartExit::HyStart,
            _ => SlowStartExit::Loss,
        }
    }

    /// Every one.
    pub const ALL: [Self; 8] = [
        Self::Reno,
        Self::Cubic,
        Self::Bbr,
        Self::Westwood,
        Self::Dctcp,
        Self::Prague,
        Self::C2tcp,
        Self::Vivace,
    ];

    /// The name in scenarios and records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Westwood => "westwood",
            Self::Dctcp => "dctcp",
            Self::Prague => "prague",
            Self::C2tcp => "c2tcp",
            Self::Vivace => "vivace",
        }
    }

    /// How a flow of this algorithm uses ECN when it is asked for `wish`: DCTCP and Prague cannot
    /// do without.
    pub const fn ecn(self, wish: EcnUse) -> EcnUse {
        match self {
            Self::Dctcp => EcnUse::Accurate,
            Self::Prague => EcnUse::L4s,
            _ => wish,
        }
    }

    /// The algorithm of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// What an algorithm is built from.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Payload bytes per segment.
    pub segment_bytes: u32,
    /// Initial window in segments.
    pub initial_window: u32,
    /// How slow start ends early.
    pub slow_start_exit: SlowStartExit,
    /// Its own random numbers.
    pub rng: Rng,
}

/// One of the algorithms, without dynamic dispatch per packet.
#[derive(Debug)]
pub enum Controller {
    /// See [`Reno`].
    Reno(Reno),
    /// See [`Cubic`].
    Cubic(Cubic),
    /// See [`Bbr`].
    Bbr(Bbr),
    /// See [`Westwood`].
    Westwood(Westwood),
    /// See [`Dctcp`].
    Dctcp(Dctcp),
    /// See [`Prague`].
    Prague(Prague),
    /// See [`C2tcp`].
    C2tcp(C2tcp),
    /// See [`Vivace`].
    Vivace(Vivace),
}

impl Controller {
    /// An instance at the start of a connection.
    pub fn new(algorithm: Algorithm, setup: Setup) -> Self {
        match algorithm {
            Algorithm::Reno => Self::Reno(Reno::new(setup.slow_start_exit)),
            Algorithm::Cubic => Self::Cubic(Cubic::new(setup.slow_start_exit)),
            Algorithm::Bbr => Self::Bbr(Bbr::new(setup)),
            Algorithm::Westwood => Self::Westwood(Westwood::new(setup.slow_start_exit)),
            Algorithm::Dctcp => Self::Dctcp(Dctcp::new()),
            Algorithm::Prague => Self::Prague(Prague::new(setup.segment_bytes)),
            Algorithm::C2tcp => Self::C2tcp(C2tcp::new(setup.slow_start_exit)),
            Algorithm::Vivace => Self::Vivace(Vivace::new(setup)),
        }
    }
}

macro_rules! each {
    ($self:ident, $inner:ident => $call:expr) => {
        match $self {
            Controller::Reno($inner) => $call,
            Controller::Cubic($inner) => $call,
            Controller::Bbr($inner) => $call,
            Controller::Westwood($inner) => $call,
            Controller::Dctcp($inner) => $call,
            Controller::Prague($inner) => $call,
            Controller::C2tcp($inner) => $call,
            Controller::Vivace($inner) => $call,
        }
    };
}

impl CongestionControl for Controller {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        each!(self, control => control.on_ack(ack, window));
    }

    fn on_loss(&mut self, loss: &Loss, window: &mut Window) {
        each!(self, control => control.on_loss(loss, window));
    }

    fn on_undo(&mut self) {
        each!(self, control => control.on_undo());
    }

    fn on_restart(&mut self, now: Time, idle: Span, window: &mut Window) {
        each!(self, control => control.on_restart(now, idle, window));
    }

    fn pacing(&self) -> Option<u64> {
        each!(self, control => control.pacing())
    }

    fn owns_window(&self) -> bool {
        each!(self, control => control.owns_window())
    }

    fn holds_back(&self) -> bool {
        each!(self, control => control.holds_back())
    }
}

impl Ack {
    /// Whether a loss-based window may grow by this acknowledgement.
    pub fn may_grow(&self) -> bool {
        self.window_limited
            && self.acknowledged > 0
            && matches!(self.state, State::Open | State::Timeout)
    }
}

/// Blocks of selective acknowledgements reach that far.
pub(crate) const MAX_WINDOW: u32 = 65_000;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

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
            total_delivered: segments,
            first_outstanding: segments,
            next_sequence: 2 * segments,
            state: State::Open,
            window_limited: true,
            rate: None,
        }
    }
}
