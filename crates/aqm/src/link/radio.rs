//! A radio that several users share: the users of one cell, or the stations of one Wi-Fi.
//!
//! # Principle
//! One packet at a time is in the air. The user of a packet is its host. Each user has a rate, which
//! may vary, and a queue of any discipline; a packet of `n` bits occupies the air for `n / rate`. A
//! scheduler decides whose turn it is:
//!
//! * `airtime`: one user after the other, for the same time. This is round robin of a cell, and the
//!   fairness of Linux's mac80211 ("Ending the Anomaly", USENIX ATC 2017). mac80211 sends whole
//!   packets and counts deficits; here a turn ends in mid-packet, and the packet continues with the
//!   user's next turn.
//! * `packets`: one user after the other, for the same number of packets. This is 802.11's access:
//!   one slow station slows all others (Heusse and others, INFOCOM 2003, "Performance anomaly").
//! * `proportional-fair`: in each slot the user whose rate is highest in relation to its mean
//!   throughput (Viswanath, Tse and Laroia, IEEE Transactions on Information Theory, 2002).
//! * `none`: one queue for all users, in the order of its discipline, as in access points whose
//!   buffer is below the queue.
//!
//! A packet to a host that is no user is multicast: it is sent at one rate, and multicast packets
//! have a separate queue.
//!
//! # Memory
//! `memory` limits the bytes of all users together. An arrival that exceeds it is dropped, whoever
//! fills it: the plain sharing of the BoDe paper's section VII-E, in which a user with a deep queue
//! takes the memory of the others. Dropping from the longest queue instead would need a discipline
//! that gives up packets that it has accepted.
//!
//! # What is left out
//! Collisions, retries, and the choice of a rate; the two directions of a radio do not share the
//! air. The time of a segment is rounded up to a nanosecond.

use alloc::vec::Vec;

use crate::link::rate_process::{RadioConfig, Scheduler};
use crate::packet::Packet;
use crate::qdisc::{
    Admit, Backlog, BoxedQdisc, Count, Dequeue, DropReason, Observer, Qdisc, Stats,
};
use crate::rng::Rng;
use crate::time::{Span, Time};
use crate::token_bucket::NANOBITS_PER_BYTE;

/// The queues of a radio's users, with the air that they share.
pub(crate) struct Radio<P> {
    /// The parameters, including the running rate processes of the users.
    config: RadioConfig,
    /// Mean throughput of each user, bit/s in Q16.
    means_q16: Vec<u64>,
    /// The queues: one for each user, or one for all.
    lanes: Vec<Lane<P>>,
    /// Arrivals that the memory refused.
    refused: Count,
    /// The user whose turn it is, and the nanoseconds and packets that are left of the turn.
    sender: usize,
    left: (u64, u32),
    /// The end of the last segment, and whether its packet has another one.
    free_at: Time,
    is_cut: bool,
    /// Start and end of the transmission of the packet that left last.
    air: (Time, Time),
}

struct Lane<P> {
    queue: BoxedQdisc<P>,
    /// The packet in transmission.
    cut: Option<Cut<P>>,
    /// When the queue stops shaping; that of multicast packets also the next beacon.
    not_before: Time,
}

struct Cut<P> {
    packet: Packet<P>,
    start: Time,
    /// The part of the packet that is still to be sent.
    nanobits: u64,
}

impl<P> Radio<P> {
    /// Returns an idle radio with a queue for each rate, or one for all.
    pub(crate) fn new(config: &RadioConfig, queues: Vec<BoxedQdisc<P>>, rng: &Rng) -> Self {
        let mut config = config.clone();
        for (number, rate) in config.rates.iter_mut().enumerate() {
            *rate = rate.started(&user_stream(rng, number));
        }
        let lane = |queue| Lane { queue, cut: None, not_before: Time::ZERO };
        Self {
            means_q16: config.rates.iter().map(|_| 0).collect(),
            config,
            lanes: queues.into_iter().map(lane).collect(),
            refused: Count::default(),
            sender: 0,
            left: (0, 0),
            free_at: Time::ZERO,
            is_cut: false,
            air: (Time::ZERO, Time::ZERO),
        }
    }

    /// Returns the queue of a user.
    fn lane_of(&self, user: usize) -> usize {
        if self.lanes.len() == 1 { 0 } else { user }
    }

    /// Returns the queue of multicast packets, if they wait for beacons.
    fn beacon_lane(&self) -> Option<usize> {
        let last = self.lanes.len() - 1;
        (self.config.dtim > Span::ZERO && last > 0).then_some(last)
    }

    /// Returns when a queue may send, from `at` on; `None` if it stores nothing.
    fn chance(&mut self, lane: usize, at: Time) -> Option<Time> {
        let Lane { queue, cut, not_before } = &self.lanes[lane];
        let user = match cut {
            Some(cut) => self.config.user(&cut.packet.meta),
            None if queue.backlog().is_empty() => return None,
            None if *not_before > at => return Some(*not_before),
            // The user of the next packet of a common queue is unknown.
            None if self.lanes.len() == 1 => return Some(at),
            None => lane,
        };
        let (rate, end) = self.config.rates[user].piece(at);
        Some(if rate.is_zero() { end } else { at })
    }

    fn can_send(&mut self, lane: usize, at: Time) -> bool {
        self.chance(lane, at).is_some_and(|chance| chance <= at)
    }

    /// Whether the last turn has not ended at `at`.
    fn continues(&self, at: Time) -> bool {
        at == self.free_at && self.left.0 > 0 && self.left.1 > 0
    }

    /// Returns the queue whose turn it is at `at`.
    fn turn(&mut self, at: Time) -> Option<usize> {
        let current = self.lane_of(self.sender);
        let first = [Some(current).filter(|_| self.continues(at)), self.beacon_lane()];
        for lane in first.into_iter().flatten() {
            if self.can_send(lane, at) {
                return Some(lane);
            }
        }
        let mut best = None;
        for step in 1..=self.lanes.len() {
            let lane = (current + step) % self.lanes.len();
            if !self.can_send(lane, at) {
                continue;
            }
            if self.config.scheduler != Scheduler::ProportionalFair {
                return Some(lane);
            }
            if best.is_none_or(|best| self.is_preferred(lane, best, at)) {
                best = Some(lane);
            }
        }
        best
    }

    /// Whether `user` has the higher rate in relation to its mean throughput.
    fn is_preferred(&mut self, user: usize, other: usize, at: Time) -> bool {
        let mut product = |rate: usize, mean: usize| {
            let rate = self.config.rates[rate].piece(at).0.bits_per_second();
            u128::from(rate) * u128::from(self.means_q16[mean])
        };
        product(user, other) > product(other, user)
    }

    /// Takes the next packet out of a queue. Returns whether there was one.
    fn load(&mut self, lane: usize, now: Time, observer: &mut dyn Observer<P>) -> bool {
        let Lane { queue, cut, not_before } = &mut self.lanes[lane];
        match queue.dequeue(now, observer) {
            Dequeue::Packet(packet) => {
                let nanobits = u64::from(packet.meta.len).saturating_mul(NANOBITS_PER_BYTE);
                *cut = Some(Cut { packet, start: now, nanobits });
            }
            Dequeue::NotBefore(time) => *not_before = time,
            Dequeue::Empty => {}
        }
        cut.is_some()
    }

    /// Sends from the packet in transmission of a queue until the packet or the turn ends, or the
    /// rate changes. Returns the packet if this is its last segment.
    fn send(&mut self, lane: usize, at: Time) -> Option<Packet<P>> {
        let is_same_turn = self.continues(at);
        let cut = self.lanes[lane].cut.as_mut()?;
        let user = self.config.user(&cut.packet.meta);
        let (rate, piece_end) = self.config.rates[user].piece(at);
        let rate = rate.bits_per_second();
        let needed = cut.nanobits.checked_div(rate)? + u64::from(cut.nanobits % rate > 0);
        let mut access = Span::ZERO;
        if user != self.sender || !is_same_turn {
            access = self.config.access;
            self.sender = user;
            self.left = (self.config.slot.as_nanos() - access.as_nanos(), self.config.aggregate);
        }
        let spent = needed.min(piece_end.since(at).as_nanos()).min(self.left.0);
        let sent = cut.nanobits.min(rate.saturating_mul(spent));
        cut.nanobits -= sent;
        self.left.0 -= spent;
        self.is_cut = cut.nanobits > 0;
        self.free_at = at + access + Span::from_nanos(spent);
        self.average(user, self.free_at.since(at), sent);
        if self.is_cut {
            return None;
        }
        self.left.1 -= 1;
        let cut = self.lanes[lane].cut.take()?;
        self.air = (cut.start, self.free_at);
        Some(cut.packet)
    }

    /// Averages the throughput of every user over the last segment, in which `sender` sent
    /// `nanobits`.
    fn average(&mut self, sender: usize, span: Span, nanobits: u64) {
        let kept = u128::from(self.config.averaging.saturating_sub(span).as_nanos());
        for (number, mean_q16) in self.means_q16.iter_mut().enumerate() {
            let added = if number == sender { u128::from(nanobits) << 16 } else { 0 };
            let sum = u128::from(*mean_q16) * kept + added;
            *mean_q16 = (sum / u128::from(self.config.averaging.as_nanos())) as u64;
        }
    }
}

/// Returns the random numbers of a user's rate and queue.
pub(crate) fn user_stream(rng: &Rng, number: usize) -> Rng {
    rng.child(&alloc::format!("user {number}"))
}

impl<P> Qdisc<P> for Radio<P> {
    fn enqueue(&mut self, now: Time, packet: Packet<P>, observer: &mut dyn Observer<P>) -> Admit {
        let len = packet.meta.len;
        let fits = |memory| self.backlog().bytes + u64::from(len) <= memory;
        if !self.config.memory.is_none_or(fits) {
            self.refused.add(len);
            observer.dropped(now, packet, DropReason::Overlimit);
            return Admit::Refused;
        }
        let number = self.lane_of(self.config.user(&packet.meta));
        let waits = self.beacon_lane() == Some(number);
        let lane = &mut self.lanes[number];
        if !waits {
            lane.not_before = Time::ZERO;
        } else if lane.queue.backlog().is_empty() {
            let nanos = self.config.dtim.as_nanos();
            lane.not_before = Time::from_nanos(now.as_nanos().div_ceil(nanos) * nanos);
        }
        lane.queue.enqueue(now, packet, observer)
    }

    fn dequeue(&mut self, now: Time, observer: &mut dyn Observer<P>) -> Dequeue<P> {
        loop {
            if self.free_at > now {
                let is_empty = self.backlog().is_empty();
                return if is_empty { Dequeue::Empty } else { Dequeue::NotBefore(self.free_at) };
            }
            // A packet that was cut continues when the air was free, even if the caller is late.
            let at = if self.is_cut { self.free_at } else { now };
            let Some(lane) = self.turn(at) else {
                self.is_cut = false;
                let chances = (0..self.lanes.len()).filter_map(|lane| self.chance(lane, at));
                match chances.min() {
                    None => return Dequeue::Empty,
                    Some(time) if time > now => return Dequeue::NotBefore(time),
                    Some(time) => (self.free_at, self.is_cut) = (time, true),
                }
                continue;
            };
            if (self.lanes[lane].cut.is_some() || self.load(lane, now, observer))
                && let Some(packet) = self.send(lane, at)
            {
                return Dequeue::Packet(packet);
            }
        }
    }

    /// Counts the packets in transmission.
    fn backlog(&self) -> Backlog {
        let mut sum = Backlog::default();
        for Lane { queue, cut, .. } in &self.lanes {
            sum = sum + queue.backlog();
            if let Some(cut) = cut {
                sum.add(cut.packet.meta.len);
            }
        }
        sum
    }

    fn stats(&self) -> Stats {
        let refused =
            Stats { offered: self.refused, dropped_enqueue: self.refused, ..Stats::default() };
        let sum = self.lanes.iter().fold(refused, |sum, lane| sum + lane.queue.stats());
        sum.with_sent(self.backlog())
    }

    fn on_air(&self) -> Option<(Time, Time)> {
        Some(self.air)
    }
}
