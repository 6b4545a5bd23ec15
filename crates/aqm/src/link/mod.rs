//! One direction of a path: a queue, a rate process behind it, then loss and delay.

mod cellular;
mod docsis;
mod draw;
mod flight;
mod piecewise;
mod rate_process;
mod schedule;
mod trace;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

pub use cellular::{Cellular, CellularConfig, OutageLaw, Outages};
pub use docsis::DocsisUpstream;
pub use flight::{Flight, FlightOptions, Jitter, JitterLaw, Reorder, RequestGrant};
pub use rate_process::{Constant, RateProcess};
pub use schedule::{Schedule, ScheduleError, Step};
pub use trace::{Opportunities, Trace, TraceError};

use crate::packet::Packet;
use crate::qdisc::{Dequeue, DropReason, Observer, Qdisc};
use crate::rng::Rng;
use crate::time::{Span, Time};

/// One direction of a path, without I/O or clock; a simulator's heap and an emulator's timer
/// drive it alike.
///
/// # Contract
/// * `send` and `poll` take times that never go backwards.
/// * Everything between two calls is replayed at its nominal instant: the packets that come out,
///   and their times, do not depend on how often or how late `poll` is called.
/// * At one instant, arrivals (`send`) are enqueued before the link dequeues; therefore call
///   `send` for everything that arrived at `now` before `poll(now)`.
pub struct Link<P> {
    queue: Box<dyn Qdisc<P>>,
    rate: RateProcess,
    overhead_bytes: u32,
    delay: Span,
    flight: Option<Box<Flight>>,
    loss: Loss,
    /// The packet on the wire and the end of its transmission.
    in_service: Option<(Time, Packet<P>)>,
    /// When the idle link asks its queue again, where it has something to wait for.
    next_dequeue: Option<Time>,
    /// Transmitted packets with the time at which they reach the far end, in its order.
    flying: VecDeque<(Time, Packet<P>)>,
    /// Number of packets that `flying` may hold; more are lost, so that memory stays bounded.
    flying_limit: usize,
}

/// Independent loss of transmitted packets.
#[derive(Clone, Debug)]
pub struct Loss {
    /// Probability as a fraction of 2^32.
    pub probability_q32: u64,
    /// Stream that decides.
    pub rng: Rng,
}

/// Everything a link consists of.
pub struct LinkParts<P> {
    /// Where packets wait.
    pub queue: Box<dyn Qdisc<P>>,
    /// When they may leave.
    pub rate: RateProcess,
    /// Link-layer bytes charged on top of each packet's length.
    pub overhead_bytes: u32,
    /// From the end of a transmission to arrival at the far end.
    pub delay: Span,
    /// Delays on top of that; `None` where there are none.
    pub flight: Option<Box<Flight>>,
    /// Random loss after transmission.
    pub loss: Loss,
}

/// Packets in flight behind a link, at most: 10 Gbit/s of minimal packets for a second.
const FLYING_LIMIT: usize = 1 << 24;

impl<P> Link<P> {
    /// An idle link.
    pub fn new(parts: LinkParts<P>) -> Self {
        Self {
            queue: parts.queue,
            rate: parts.rate,
            overhead_bytes: parts.overhead_bytes,
            delay: parts.delay,
            flight: parts.flight,
            loss: parts.loss,
            in_service: None,
            next_dequeue: None,
            flying: VecDeque::new(),
            flying_limit: FLYING_LIMIT,
        }
    }

    /// Replays what happened before `now`, as `send` does first. An observer that must hear of an
    /// arrival in its place among departures and drops is told after this.
    pub fn advance_before(&mut self, now: Time, observer: &mut dyn Observer<P>) {
        self.advance(Until::Before(now), observer);
    }

    /// Offers a packet to the queue at `now`.
    pub fn send(&mut self, now: Time, mut packet: Packet<P>, observer: &mut dyn Observer<P>) {
        self.advance_before(now, observer);
        packet.meta.len += self.overhead_bytes;
        self.queue.enqueue(now, packet, observer);
        if self.in_service.is_none() && self.next_dequeue.is_none() {
            self.next_dequeue = self.rate.next_start(now);
        }
    }

    /// Takes the next packet that has reached the far end by `now`, oldest first. Call until it
    /// returns `None`.
    pub fn poll(&mut self, now: Time, observer: &mut dyn Observer<P>) -> Option<(Time, Packet<P>)> {
        self.advance(Until::AtOrBefore(now), observer);
        if self.flying.front()?.0 > now {
            return None;
        }
        self.flying.pop_front()
    }

    /// When `poll` could next return a packet: never later than it does, possibly earlier.
    /// `None`: not before another `send`.
    pub fn next_event(&self) -> Option<Time> {
        let flying = self.flying.front().map(|(arrival, _)| *arrival);
        if flying.is_some() && self.flight.is_none() {
            return flying;
        }
        let end = self.in_service.as_ref().map(|(end, _)| *end).or(self.next_dequeue);
        // With extra delays, a packet still to be sent may overtake those that fly.
        let next = end.map(|end| end + self.delay);
        flying.into_iter().chain(next).min()
    }

    /// The queue in front of the link.
    pub fn queue(&self) -> &dyn Qdisc<P> {
        self.queue.as_ref()
    }

    /// Packets transmitted or in transmission that have not reached the far end.
    pub fn in_flight(&self) -> usize {
        self.flying.len() + usize::from(self.in_service.is_some())
    }

    fn advance(&mut self, until: Until, observer: &mut dyn Observer<P>) {
        loop {
            if let Some((end, packet)) = self.in_service.take_if(|(end, _)| until.includes(*end)) {
                self.finish(end, packet, observer);
                self.next_dequeue =
                    if self.queue.backlog().is_empty() { None } else { self.rate.next_start(end) };
            } else if let Some(start) = self.next_dequeue.take_if(|start| until.includes(*start)) {
                self.start(start, observer);
            } else {
                return;
            }
        }
    }

    fn start(&mut self, start: Time, observer: &mut dyn Observer<P>) {
        match self.queue.dequeue(start, observer) {
            Dequeue::Packet(packet) => match self.rate.transmit(start, packet.meta.len) {
                Some(end) => {
                    observer.transmitted(start, end, &packet);
                    self.in_service = Some((end, packet));
                }
                None => {
                    observer.dropped(start, packet, DropReason::Oversize);
                    self.next_dequeue = self.rate.next_start(start);
                }
            },
            Dequeue::Empty => {}
            Dequeue::NotBefore(time) => {
                debug_assert!(time > start, "a queue that shapes must name a later instant");
                self.next_dequeue = self.rate.next_start(time);
            }
        }
    }

    fn finish(&mut self, end: Time, mut packet: Packet<P>, observer: &mut dyn Observer<P>) {
        let arrival = match &mut self.flight {
            None => end + self.delay,
            Some(flight) => flight.arrival(end, packet.meta.len, self.delay),
        };
        packet.meta.len -= self.overhead_bytes;
        let lost = self.loss.probability_q32 > 0
            && u64::from(self.loss.rng.next_u32()) < self.loss.probability_q32;
        if lost || self.flying.len() >= self.flying_limit {
            observer.dropped(end, packet, DropReason::Loss);
            return;
        }
        if self.flying.back().is_none_or(|(last, _)| *last <= arrival) {
            self.flying.push_back((arrival, packet));
        } else {
            let place = self.flying.partition_point(|(time, _)| *time <= arrival);
            self.flying.insert(place, (arrival, packet));
        }
    }
}

/// How far a link is brought forward.
#[derive(Clone, Copy)]
enum Until {
    Before(Time),
    AtOrBefore(Time),
}

impl Until {
    fn includes(self, time: Time) -> bool {
        match self {
            Self::Before(limit) => time < limit,
            Self::AtOrBefore(limit) => time <= limit,
        }
    }
}
