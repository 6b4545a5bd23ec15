//! One direction of a path: a queue, a rate process behind it, then loss, delay and changes of
//! packets.

pub(crate) mod acks;
pub(crate) mod cellular;
mod constant;
mod docsis;
mod draw;
mod flight;
mod grants;
mod middlebox;
pub(crate) mod params;
mod piecewise;
pub(crate) mod radio;
mod rate_process;
mod schedule;
mod trace;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;

pub use cellular::{Cellular, CellularConfig, OutageLaw, Outages};
pub use constant::Constant;
pub use docsis::DocsisUpstream;
pub use flight::{Flight, FlightOptions, Jitter, JitterLaw, Reorder};
pub use grants::{Busy, Grants, RequestGrant, RequestMode};
pub use middlebox::{Middlebox, MiddleboxOptions};
pub use rate_process::RateProcess;
pub use schedule::{Schedule, Step};
pub use trace::{Opportunities, Trace};

use crate::packet::{Meta, Packet};
use crate::qdisc::{BoxedQdisc, Dequeue, DropReason, Observer, Qdisc};
use crate::rate::Rate;
use crate::rng::Rng;
use crate::service_flow::{Side, Waiting};
use crate::time::{Span, Time};

/// Returns the random numbers of a trial's link and queue, by direction (`up`, `down`) and index in
/// the chain of links. Every world draws from this stream, so that a cellular link with one seed
/// has the same rates, simulated and live.
pub fn hop_stream(trial: &Rng, direction: &str, hop: usize) -> Rng {
    trial.child("network").child(&format!("{direction} hop {hop}"))
}

/// A direction of a path without I/O or clock, driven by a simulator's events or an emulator's
/// timer.
///
/// # Contract
/// * `send` and `poll` take times that never go backwards.
/// * Everything between two calls is replayed at its nominal instant: the packets that come out,
///   and their times, do not depend on how often or how late `poll` is called.
/// * At one instant, arrivals (`send`) are enqueued before the link dequeues; therefore call
///   `send` for everything that arrived at `now` before `poll(now)`.
pub struct Link<P> {
    parts: LinkParts<P>,
    /// A packet that left the queue and is larger than the grants so far, because the queue does
    /// not know the size of its next packet, or dropped the packet for which the grants were.
    staged: Option<Packet<P>>,
    /// When the link acts next, and what it does; [`Time::MAX`] if it waits for a packet.
    activity: Activity,
    wake: Time,
    /// The packet in transmission that will be lost at its end.
    doomed: Option<Packet<P>>,
    /// Packets in transmission or in flight, ordered by the time at which they arrive at the far
    /// end. A packet enters when its transmission begins: everything about its path is known by
    /// then, and it is moved once less.
    flying: VecDeque<(Time, Packet<P>)>,
    /// The capacity of `flying`. Packets beyond it are lost, so that memory stays bounded.
    flying_limit: usize,
    /// Whether a packet that leaves only arrives after `delay`: one test instead of one per
    /// feature.
    is_plain: bool,
}

/// The next action of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    /// Waits for a packet.
    Idle,
    /// Waits until the queue stops shaping, or for a packet that need not wait; with grants also
    /// for the next request or grant.
    Waiting,
    Asking,
    Sending,
    /// Handles the next request, grant or transmission.
    Granting,
}

/// Independent loss of transmitted packets.
#[derive(Clone, Debug)]
pub struct Loss {
    /// The probability of a loss, as a fraction of 2^32.
    pub probability_q32: u64,
    /// The stream that each transmitted packet draws from.
    pub rng: Rng,
}

/// Everything a link consists of.
pub struct LinkParts<P> {
    /// The queue in front of the rate process.
    pub queue: BoxedQdisc<P>,
    /// The process that determines when packets may leave.
    pub rate: RateProcess,
    /// Link-layer bytes charged on top of each packet's length.
    pub overhead_bytes: u32,
    /// From the end of a transmission to arrival at the far end.
    pub delay: Span,
    /// Delays on top of `delay`.
    pub flight: Option<Box<Flight>>,
    /// The request-grant loop that packets wait for in the queue; `rate` is then the rate of a
    /// granted transmission.
    pub grants: Option<Box<Grants>>,
    /// Random loss after transmission.
    pub loss: Loss,
    /// Marks and remarks packets that are not lost.
    pub middlebox: Option<Box<Middlebox>>,
}

/// 10 Gbit/s of minimal packets for a second.
const FLYING_LIMIT: usize = 1 << 24;

impl<P> Link<P> {
    /// Returns an idle link.
    pub fn new(parts: LinkParts<P>) -> Self {
        Self {
            is_plain: parts.overhead_bytes == 0
                && parts.flight.is_none()
                && parts.loss.probability_q32 == 0
                && parts.middlebox.is_none(),
            parts,
            staged: None,
            activity: Activity::Idle,
            wake: Time::MAX,
            doomed: None,
            flying: VecDeque::new(),
            flying_limit: FLYING_LIMIT,
        }
    }

    /// Offers a packet to the queue at `now`.
    #[inline]
    pub fn send(&mut self, now: Time, mut packet: Packet<P>, observer: &mut impl Observer<P>) {
        self.advance_before(now, observer);
        if self.parts.overhead_bytes > 0 {
            add_overhead(&mut packet.meta, self.parts.overhead_bytes);
        }
        self.parts.queue.enqueue(now, packet, observer);
        if matches!(self.activity, Activity::Idle | Activity::Waiting) {
            match &mut self.parts.grants {
                None => self.ask(now),
                Some(grants) => {
                    let is_idle = self.activity == Activity::Idle;
                    self.wake = if is_idle { grants.resume(now) } else { now };
                    self.activity = Activity::Granting;
                }
            }
        }
    }

    /// Replays everything before `now`, as `send` does first. An observer that reports arrivals in
    /// order with departures and drops calls this before it reports one.
    #[inline]
    pub fn advance_before(&mut self, now: Time, observer: &mut impl Observer<P>) {
        if self.wake < now {
            self.advance(now - Span::from_nanos(1), observer);
        }
    }

    /// Takes the next packet at the far end by `now`, oldest first. Call until it returns `None`.
    #[inline]
    pub fn poll(
        &mut self,
        now: Time,
        observer: &mut impl Observer<P>,
    ) -> Option<(Time, Packet<P>)> {
        self.peek(now, observer)?;
        self.flying.pop_front()
    }

    /// Returns what [`poll`](Self::poll) would return and leaves it in place: a simulator that
    /// copies the packet from there, and discards it by [`Link::discard`], moves it once less.
    #[inline]
    pub fn peek(
        &mut self,
        now: Time,
        observer: &mut impl Observer<P>,
    ) -> Option<&(Time, Packet<P>)> {
        if self.wake <= now {
            self.advance(now, observer);
        }
        self.flying.front().filter(|(arrival, _)| *arrival <= now)
    }

    /// Discards the packet that [`Link::peek`] returned.
    #[inline]
    pub fn discard(&mut self) {
        self.flying.pop_front();
    }

    /// Returns the packet in flight that arrives after `position` others, in the order known so
    /// far.
    #[inline]
    pub fn in_flight_at(&self, position: usize) -> Option<&Packet<P>> {
        self.flying.get(position).map(|(_, packet)| packet)
    }

    /// Returns when `poll` may next return a packet: never later than it does, possibly earlier.
    /// `None` if not before another `send`.
    #[inline]
    pub fn next_event(&self) -> Option<Time> {
        let flying = self.flying.front().map(|(arrival, _)| *arrival);
        if flying.is_some() && self.parts.flight.is_none() {
            return flying;
        }
        // A packet that is sent later may overtake packets in flight if the link has extra delays.
        let next = (self.activity != Activity::Idle).then(|| self.wake + self.parts.delay);
        flying.into_iter().chain(next).min()
    }

    /// Changes the rate of a link whose rate is constant, from the next transmission after `now`
    /// on. Returns `false`, and changes nothing, for other links and for a rate of zero.
    pub fn set_rate(&mut self, now: Time, rate: Rate, observer: &mut impl Observer<P>) -> bool {
        self.advance_before(now, observer);
        match &mut self.parts.rate {
            RateProcess::Constant(process) if !rate.is_zero() && self.parts.grants.is_none() => {
                *process = Constant::new(rate);
                true
            }
            _ => false,
        }
    }

    /// Returns the queue, for its counters and gauges.
    pub fn queue(&self) -> &dyn Qdisc<P> {
        self.parts.queue.as_ref()
    }

    /// Reports the state of the queue and of its grants, by dotted name.
    pub fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        self.parts.queue.gauges(visit);
        if let Some(grants) = &self.parts.grants {
            grants.gauges(visit);
        }
    }

    /// Returns the number of packets in transmission or in flight.
    pub fn in_flight(&self) -> usize {
        let between = [&self.doomed, &self.staged];
        self.flying.len() + between.into_iter().flatten().count()
    }

    /// Does everything up to and including `last`.
    #[inline(never)]
    fn advance(&mut self, last: Time, observer: &mut impl Observer<P>) {
        while self.wake <= last {
            // The processor predicts this order of tests on a busy link better than a jump table.
            if self.activity == Activity::Sending {
                self.finish(observer);
                if self.wake > last {
                    return;
                }
            }
            if self.activity == Activity::Asking {
                self.start(observer);
                continue;
            }
            match self.activity {
                Activity::Waiting if self.parts.grants.is_none() => self.ask(self.wake),
                Activity::Waiting | Activity::Granting => self.grant(observer),
                Activity::Idle | Activity::Asking | Activity::Sending => return,
            }
        }
    }

    /// Waits until the rate process allows a transmission, from `ready` on.
    #[inline]
    fn ask(&mut self, ready: Time) {
        (self.activity, self.wake) = match self.parts.rate.next_start(ready) {
            Some(start) => (Activity::Asking, start),
            None => (Activity::Idle, Time::MAX),
        };
    }

    #[inline]
    fn finish(&mut self, observer: &mut impl Observer<P>) {
        let end = self.wake;
        self.lose_doomed(end, observer);
        if self.parts.queue.backlog().is_empty() {
            (self.activity, self.wake) = (Activity::Idle, Time::MAX);
        } else {
            self.ask(end);
        }
    }

    #[inline]
    fn start(&mut self, observer: &mut impl Observer<P>) {
        let start = self.wake;
        match self.parts.queue.dequeue(start, observer) {
            Dequeue::Packet(packet) => {
                let len = packet.meta.len;
                self.transmit(start, packet, len, observer);
            }
            Dequeue::Empty => (self.activity, self.wake) = (Activity::Idle, Time::MAX),
            Dequeue::NotBefore(time) => {
                debug_assert!(time > start, "a queue that shapes must name a later instant");
                // The process is queried only here, because it must not advance beyond an earlier
                // event.
                (self.activity, self.wake) = (Activity::Waiting, time);
            }
        }
    }

    /// Handles one event of a link with requests and grants.
    #[inline(never)]
    fn grant(&mut self, observer: &mut impl Observer<P>) {
        let now = self.wake;
        let Some(mut grants) = self.parts.grants.take() else { return };
        let mut waiting = self.waiting();
        let mut not_before = None;
        grants.advance(now, waiting);
        while let Some(side) = grants.turn(now, waiting) {
            self.lose_doomed(now, observer);
            match self.serve(now, side, observer) {
                Dequeue::Packet(packet) => {
                    let len = packet.meta.len;
                    match grants.rest(side, len) {
                        Some(rest) => {
                            self.transmit(now, packet, rest, observer);
                            grants.sent(side, len, self.wake);
                            if !grants.is_free(now) {
                                // The next packet is chosen when the transmission ends.
                                break;
                            }
                        }
                        None => self.staged = Some(packet),
                    }
                }
                // The grants serve the packet when the queue stops shaping.
                Dequeue::NotBefore(time) => not_before = Some(time),
                Dequeue::Empty => {}
            }
            let before = core::mem::replace(&mut waiting, self.waiting());
            if not_before.is_some() || waiting == before {
                break;
            }
        }
        if grants.is_free(now) {
            self.lose_doomed(now, observer);
        }
        let next = grants.next_event(now, waiting).into_iter().chain(not_before).min();
        self.activity = match not_before {
            Some(_) => Activity::Waiting,
            None if next.is_some() => Activity::Granting,
            None => Activity::Idle,
        };
        self.wake = next.unwrap_or(Time::MAX);
        self.parts.grants = Some(grants);
    }

    /// Takes the next packet of `side` out of the queue.
    fn serve(&mut self, now: Time, side: Side, observer: &mut impl Observer<P>) -> Dequeue<P> {
        if let Some(packet) = self.staged.take() {
            return Dequeue::Packet(packet);
        }
        match self.parts.queue.service_flows() {
            Some(flows) => flows.serve(now, side, observer),
            None => self.parts.queue.dequeue(now, observer),
        }
    }

    /// Returns the backlog of each service flow.
    fn waiting(&mut self) -> [Waiting; 2] {
        if let Some(flows) = self.parts.queue.service_flows() {
            return flows.waiting();
        }
        let stored = self.parts.queue.backlog();
        let staged = self.staged.as_ref().map_or(0, |packet| packet.meta.len);
        let head_bytes = if staged > 0 {
            Some(staged)
        } else if stored.is_empty() {
            None
        } else {
            // A queue that does not know its next packet yet chooses it when the first byte is
            // granted.
            self.parts.queue.head_bytes().or(Some(1))
        };
        let bytes = stored.bytes + u64::from(staged);
        [Waiting::default(), Waiting { bytes, head_bytes }]
    }

    /// Drops the packet whose transmission ends now, if it is to be lost.
    fn lose_doomed(&mut self, now: Time, observer: &mut impl Observer<P>) {
        if let Some(packet) = self.doomed.take() {
            observer.dropped(now, packet, DropReason::Loss);
        }
    }

    /// Begins to transmit the last `bytes` of `packet` and settles its way to the far end.
    // Not inlined, so that the packet is passed in memory and moved as a whole. If this function is
    // inlined, the packet is moved in pieces, and a read of several pieces at once that were just
    // written stalls.
    #[inline(never)]
    fn transmit(
        &mut self,
        start: Time,
        packet: Packet<P>,
        bytes: u32,
        observer: &mut impl Observer<P>,
    ) {
        let Some(end) = self.parts.rate.transmit(start, bytes) else {
            observer.dropped(start, packet, DropReason::Oversize);
            return self.ask(start);
        };
        let (begun, end) = match self.parts.rate {
            RateProcess::PerUser(_) => self.parts.queue.on_air().unwrap_or((start, end)),
            _ => (start, end),
        };
        observer.transmitted(begun, end, &packet);
        (self.activity, self.wake) = (Activity::Sending, end);
        if self.is_plain && self.flying.len() < self.flying_limit {
            self.flying.push_back((end + self.parts.delay, packet));
        } else {
            self.launch(start, end, packet, observer);
        }
    }

    /// Determines the delay, change or loss of a packet behind the link.
    #[inline(never)]
    fn launch(
        &mut self,
        start: Time,
        end: Time,
        mut packet: Packet<P>,
        observer: &mut impl Observer<P>,
    ) {
        let arrival = match &mut self.parts.flight {
            None => end + self.parts.delay,
            Some(flight) => flight.arrival(end, self.parts.delay),
        };
        let lost = self.parts.loss.probability_q32 > 0
            && u64::from(self.parts.loss.rng.next_u32()) < self.parts.loss.probability_q32;
        let lost = lost || self.flying.len() >= self.flying_limit;
        if let Some(middlebox) = &mut self.parts.middlebox
            && !lost
        {
            middlebox.pass(start, &mut packet, observer);
        }
        // Written only if a field changes: copying a packet that was just written stalls.
        if self.parts.overhead_bytes > 0 {
            packet.meta.len -= self.parts.overhead_bytes;
        }
        if lost {
            self.doomed = Some(packet);
        } else if self.parts.flight.is_none() || !self.overtakes(arrival) {
            self.flying.push_back((arrival, packet));
        } else {
            let place = self.flying.partition_point(|(time, _)| *time <= arrival);
            self.flying.insert(place, (arrival, packet));
        }
    }

    fn overtakes(&self, arrival: Time) -> bool {
        self.flying.back().is_some_and(|(last, _)| *last > arrival)
    }
}

/// Not inlined, so that the compiler does not unpack packets that have no overhead.
#[cold]
fn add_overhead(meta: &mut Meta, overhead_bytes: u32) {
    meta.len += overhead_bytes;
}
