//! When a link may start a packet and when it has sent it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::cellular::Cellular;
use super::constant::Constant;
use super::docsis::DocsisUpstream;
use super::piecewise::Pieces;
use super::schedule::Schedule;
use super::trace::Opportunities;
use crate::packet::Meta;
use crate::rate::Rate;
use crate::rng::Rng;
use crate::time::{Span, Time};
use crate::token_bucket::NANOBITS_PER_BYTE;

/// The rate of a link as a function of time.
#[derive(Clone, Debug)]
pub enum RateProcess {
    /// No limit: every packet passes at once.
    Unlimited,
    /// One rate for all time.
    Constant(Constant),
    /// A rate that changes at given times.
    Schedule(Schedule),
    /// A recording of delivery opportunities, as Mahimahi uses it.
    Opportunities(Opportunities),
    /// A token bucket with a peak rate.
    Docsis(DocsisUpstream),
    /// A random process that resembles a cellular link.
    Cellular(Box<Cellular>),
    /// The queue has a rate for each user; see [`on_air`](crate::qdisc::Qdisc::on_air).
    PerUser(Box<RadioConfig>),
}

impl RateProcess {
    /// Returns this process at its start; a random one draws from a child stream of `rng`.
    #[must_use]
    pub fn started(&self, rng: &Rng) -> Self {
        match self {
            Self::Cellular(process) => {
                Self::Cellular(Box::new(process.with_stream(&rng.child("cellular"))))
            }
            known => known.clone(),
        }
    }

    /// Returns when a transmission may start, from `ready` on; `None` if never.
    #[inline]
    pub fn next_start(&mut self, ready: Time) -> Option<Time> {
        match self {
            Self::Unlimited | Self::Constant(_) | Self::PerUser(_) => Some(ready),
            Self::Schedule(process) => Some(process.next_start(ready)),
            Self::Opportunities(process) => Some(process.next_start(ready)),
            Self::Docsis(process) => process.next_start(ready),
            Self::Cellular(process) => Some(process.next_start(ready)),
        }
    }

    /// Returns the rate at `time`, and when it may change; zero for a process that has no rate at
    /// each instant. Only for times that do not go back.
    pub(super) fn piece(&mut self, time: Time) -> (Rate, Time) {
        match self {
            Self::Constant(process) => (process.rate, Time::MAX),
            Self::Schedule(process) => process.cursor.piece(time),
            Self::Cellular(process) => process.process.piece(time),
            _ => (Rate::default(), Time::MAX),
        }
    }

    /// Whether the rate changes with time.
    pub const fn varies(&self) -> bool {
        !matches!(self, Self::Unlimited | Self::Constant(_))
    }

    /// Returns the bytes that a link which is never idle sends from `from` up to `to`, rounded
    /// down; for a token bucket, without its burst. `None` without a limit. Only for a process that
    /// transmits nothing, and for windows that do not go back.
    pub fn offered_bytes(&mut self, from: Time, to: Time) -> Option<u64> {
        let steady =
            |rate: Rate| u128::from(rate.bits_per_second()) * u128::from(to.since(from).as_nanos());
        let nanobits = match self {
            Self::Unlimited | Self::PerUser(_) => return None,
            Self::Constant(process) => steady(process.rate),
            Self::Docsis(process) => steady(process.sustained_rate()),
            Self::Schedule(process) => process.offered_nanobits(from, to),
            Self::Opportunities(process) => return Some(process.offered_bytes(from, to)),
            Self::Cellular(process) => process.offered_nanobits(from, to),
        };
        Some((nanobits / u128::from(NANOBITS_PER_BYTE)) as u64)
    }

    /// Transmits `len` bytes from `start`, which [`RateProcess::next_start`] returned. Returns the
    /// end; `None` if the packet can never be transmitted.
    #[inline]
    pub fn transmit(&mut self, start: Time, len: u32) -> Option<Time> {
        match self {
            Self::Unlimited | Self::PerUser(_) => Some(start),
            Self::Constant(process) => Some(process.transmit(start, len)),
            Self::Schedule(process) => Some(process.transmit(start, len)),
            Self::Opportunities(process) => process.transmit(start, len),
            Self::Docsis(process) => process.transmit(start, len),
            Self::Cellular(process) => Some(process.transmit(start, len)),
        }
    }
}

/// The rule by which a radio chooses the user that sends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    Airtime,
    Packets,
    ProportionalFair,
    /// All users share one queue, whose order decides.
    None,
}

/// The parameters of a radio.
#[derive(Clone, Debug)]
pub struct RadioConfig {
    /// The users, in rising order.
    pub hosts: Vec<u32>,
    /// Whether the user of a packet is its source, else its destination.
    pub by_source: bool,
    /// The rates of the users, and that of multicast packets.
    pub rates: Vec<RateProcess>,
    pub scheduler: Scheduler,
    /// The longest turn; longer than `access`.
    pub slot: Span,
    /// The most packets of a turn.
    pub aggregate: u32,
    /// Air time of each turn besides its packets.
    pub access: Span,
    /// Time constant of the mean throughput; not zero.
    pub averaging: Span,
    /// Interval of the beacons after which multicast packets are sent; zero: at any time.
    pub dtim: Span,
    /// The most bytes of all users.
    pub memory: Option<u64>,
}

impl RadioConfig {
    /// Returns the user of a packet; the number of users for a multicast packet.
    pub(super) fn user(&self, meta: &Meta) -> usize {
        let host = if self.by_source { meta.src } else { meta.dst };
        self.hosts.binary_search(&host).unwrap_or(self.hosts.len())
    }

    /// Returns the number of queues.
    pub(crate) fn queues(&self) -> usize {
        if self.scheduler == Scheduler::None { 1 } else { self.rates.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::LinkSetup;

    /// Keeps each link busy, and sums the bytes that it offers in consecutive windows.
    #[test]
    fn a_busy_link_sends_what_it_offers() {
        let trace = "1\n1\n1\n7\n8\n8\n20\n90\n91\n91\n91\n95\n";
        for spec in [
            "3mbit",
            "steps:0s=6mbit,300ms=600kbit,700ms=9mbit",
            "steps:0s=6mbit,30ms=0bit,70ms=9mbit,repeat=85ms",
            "trace:x",
            "trace:x,profile=exact",
            "cellular:preset=lte-driving",
            "docsis:rate=5mbit,peak=7mbit,burst=2000B",
        ] {
            let setup = LinkSetup::parse_with(spec, &mut |_| Ok(trace.as_bytes().to_vec()));
            let setup = setup.expect(spec);
            let rng = Rng::new(3);
            let (mut offer, mut link) = (setup.rate.started(&rng), setup.rate.started(&rng));
            let windows = [0, 450, 1_003, 5_000, 20_000].map(Time::from_millis);
            let offered: u64 = windows
                .windows(2)
                .map(|pair| offer.offered_bytes(pair[0], pair[1]).expect("a rate"))
                .sum();
            let (mut now, mut sent) = (Time::ZERO, 0);
            while let Some(end) = link.next_start(now).and_then(|start| link.transmit(start, 100)) {
                now = end;
                if now >= windows[4] {
                    break;
                }
                sent += 100;
            }
            // The difference may be one packet cut at the end, the bucket's burst, and rounding of
            // the windows.
            assert!(sent <= offered + 2_100 && offered < sent + 1_604, "{spec}: {sent} {offered}");
        }
    }

    #[test]
    fn the_offered_bytes_of_a_window_follow_the_rate_within_it() {
        let setup = LinkSetup::parse("steps:0s=6mbit,10s=600kbit").expect("a link");
        let mut offer = setup.rate.started(&Rng::new(1));
        let mut window = |from, to| offer.offered_bytes(Time::from_secs(from), Time::from_secs(to));
        assert_eq!(window(4, 10), Some(4_500_000));
        assert_eq!(window(10, 20), Some(750_000));
        let mut unlimited = RateProcess::Unlimited;
        assert_eq!(unlimited.offered_bytes(Time::ZERO, Time::from_secs(1)), None);
    }

    #[test]
    fn a_rate_that_does_not_divide_does_not_drift() {
        // At 3 Mbit/s one byte takes 2666.67 ns, and 300,000 bytes take exactly 0.8 s.
        let mut link = Constant::new(Rate::from_megabits_per_second(3));
        let end = (0..300_000).fold(Time::ZERO, |start, _| link.transmit(start, 1));
        assert_eq!(end, Time::from_millis(800));
    }
}
