//! The state machine of RFC 8289 section 5, over the arithmetic of a profile.

use core::fmt::Debug;

use super::CodelConfig;
use crate::aqm::{Aqm, Marking, Store, mark_if_capable, signal};
use crate::packet::Packet;
use crate::qdisc::{Backlog, MarkReason};
use crate::time::{Span, Time};

/// The clock and the square root of a profile.
pub trait Arithmetic {
    /// A point in time; the default value stands for "never".
    type Instant: Copy + Debug + Default + PartialEq;
    /// A length of time.
    type Length: Copy + Debug + Default;
    /// The state from which the profile computes the next square root.
    type Root: Copy + Debug + Default;

    /// Converts a point in time.
    fn instant(time: Time) -> Self::Instant;
    /// Converts a length of time.
    fn length(span: Span) -> Self::Length;
    /// Returns the time from `earlier` to `now`.
    fn since(now: Self::Instant, earlier: Self::Instant) -> Self::Length;
    /// Returns the time that is `length` after `from`.
    fn after(from: Self::Instant, length: Self::Length) -> Self::Instant;
    /// Whether `a` is shorter than `b`.
    fn is_shorter(a: Self::Length, b: Self::Length) -> bool;
    /// Whether the interval that ends at `end` has ended.
    fn is_over(now: Self::Instant, end: Self::Instant) -> bool;
    /// Whether a drop at `next` is due.
    fn is_due(now: Self::Instant, next: Self::Instant) -> bool;
    /// Returns the root of `count`. `last` is the previous root, whose count was smaller by one
    /// unless dropping has just begun.
    fn root(last: Self::Root, count: u32) -> Self::Root;
    /// Returns `interval / sqrt(count)`.
    fn spacing(interval: Self::Length, count: u32, root: Self::Root) -> Self::Length;
    /// Returns the time within which CoDel resumes at its last drop rate (RFC 8289, section 5.5).
    fn sixteen_times(interval: Self::Length) -> Self::Length;
    /// Returns the backlog behind which the law never signals.
    fn guarded<P>(store: &impl Store<P>) -> Backlog;
    /// Returns the gauge of the last sojourn, in nanoseconds; `None` if the profile has none.
    fn gauge_ns(sojourn: Self::Length) -> Option<f64>;
}

/// CoDel in a profile; small, because a fair queue has one per flow.
#[derive(Clone, Debug)]
pub struct Codel<A: Arithmetic> {
    target: A::Length,
    interval: A::Length,
    guard_bytes: u32,
    ce_threshold: Option<A::Length>,
    /// When the sojourn will have been above target for an interval; the default while it is below.
    first_above: A::Instant,
    pub(super) drop_next: A::Instant,
    /// The sojourn of the last packet that was examined.
    sojourn: A::Length,
    pub(super) count: u32,
    pub(super) last_count: u32,
    pub(super) root: A::Root,
    dropping: bool,
    ecn: bool,
}

impl<A: Arithmetic> Codel<A> {
    /// Returns CoDel in its initial state.
    pub fn new(config: CodelConfig) -> Self {
        Self {
            target: A::length(config.target),
            interval: A::length(config.interval),
            guard_bytes: config.guard_bytes,
            ce_threshold: None,
            first_above: A::Instant::default(),
            drop_next: A::Instant::default(),
            sojourn: A::Length::default(),
            count: 0,
            last_count: 0,
            root: A::Root::default(),
            dropping: false,
            ecn: config.ecn,
        }
    }

    /// Also marks every ECN-capable packet that waited longer than `threshold`, apart from the
    /// control law and even if ECN is off for it.
    #[must_use]
    pub fn with_ce_threshold(mut self, threshold: Option<Span>) -> Self {
        self.ce_threshold = threshold.map(A::length);
        self
    }

    /// Returns whether a packet that leaves `left_bytes` behind it may be signalled (`do_dequeue`
    /// of section 5.6, `codel_should_drop` of Linux).
    #[inline]
    fn may_signal(&mut self, now: A::Instant, arrived: Time, left_bytes: u64) -> bool {
        self.sojourn = A::since(now, A::instant(arrived));
        if A::is_shorter(self.sojourn, self.target) || left_bytes <= u64::from(self.guard_bytes) {
            self.first_above = A::Instant::default();
            return false;
        }
        if self.first_above == A::Instant::default() {
            self.first_above = A::after(now, self.interval);
            return false;
        }
        A::is_over(now, self.first_above)
    }

    /// Takes the next packet; returns also whether it may be signalled.
    fn take<P>(&mut self, now: A::Instant, store: &mut impl Store<P>) -> Option<(Packet<P>, bool)> {
        let Some(packet) = store.pop() else {
            self.first_above = A::Instant::default();
            return None;
        };
        let may_signal = self.may_signal(now, packet.meta.arrived, A::guarded(store).bytes);
        Some((packet, may_signal))
    }

    pub(super) fn control_law(&self, from: A::Instant) -> A::Instant {
        A::after(from, A::spacing(self.interval, self.count, self.root))
    }

    /// Finishes a dequeue that may signal. Returns the packet to transmit.
    #[cold]
    fn act<P>(
        &mut self,
        now: Time,
        head: Packet<P>,
        may_signal: bool,
        store: &mut impl Store<P>,
    ) -> Option<Packet<P>> {
        let mut packet = if may_signal {
            self.apply_law(A::instant(now), head, store)?
        } else {
            self.dropping = false;
            head
        };
        if self.ce_threshold.is_some_and(|threshold| A::is_shorter(threshold, self.sojourn))
            && mark_if_capable(&mut packet.meta) == Marking::Marked
        {
            store.marked(&packet, MarkReason::Threshold);
        }
        Some(packet)
    }

    /// Applies the law to a `head` that it may signal. Returns the packet to transmit.
    fn apply_law<P>(
        &mut self,
        now: A::Instant,
        head: Packet<P>,
        store: &mut impl Store<P>,
    ) -> Option<Packet<P>> {
        if self.dropping {
            return self.catch_up(now, head, store);
        }
        let next = match signal(self.ecn, head, store) {
            Some(marked) => Some(marked),
            None => self.take(now, store).map(|(next, _)| next),
        };
        self.enter(now);
        next
    }

    /// The loop of the dropping state: several drops may be due at once, but only one mark.
    fn catch_up<P>(
        &mut self,
        now: A::Instant,
        mut head: Packet<P>,
        store: &mut impl Store<P>,
    ) -> Option<Packet<P>> {
        while self.dropping && A::is_due(now, self.drop_next) {
            self.set_count(self.count.wrapping_add(1));
            if let Some(marked) = signal(self.ecn, head, store) {
                self.drop_next = self.control_law(self.drop_next);
                return Some(marked);
            }
            let next = self.take(now, store);
            if let Some((_, true)) = next {
                self.drop_next = self.control_law(self.drop_next);
            } else {
                self.dropping = false;
            }
            head = next?.0;
        }
        Some(head)
    }

    /// Starts a dropping state; a recent one resumes where it ended.
    pub(super) fn enter(&mut self, now: A::Instant) {
        self.dropping = true;
        let delta = self.count.wrapping_sub(self.last_count);
        let since_last = A::since(now, self.drop_next);
        let is_recent = A::is_shorter(since_last, A::sixteen_times(self.interval));
        self.set_count(if delta > 1 && is_recent { delta } else { 1 });
        self.last_count = self.count;
        self.drop_next = self.control_law(now);
    }

    pub(super) fn set_count(&mut self, count: u32) {
        self.count = count;
        self.root = A::root(self.root, count);
    }
}

impl<A: Arithmetic> Aqm for Codel<A> {
    #[inline]
    fn dequeue<P>(&mut self, now: Time, store: &mut impl Store<P>) -> Option<Packet<P>> {
        let Some(head) = store.head() else {
            self.first_above = A::Instant::default();
            self.dropping = false;
            return None;
        };
        let left_bytes = A::guarded(store).bytes - u64::from(head.len);
        let may_signal = self.may_signal(A::instant(now), head.arrived, left_bytes);
        if may_signal || self.ce_threshold.is_some() {
            let head = store.pop()?;
            return self.act(now, head, may_signal, store);
        }
        self.dropping = false;
        store.pop()
    }

    /// Packets that an overflow drops count as signals, too, so that the law signals more often.
    fn on_overlimit(&mut self, _now: Time, packets: u32) {
        self.count = self.count.wrapping_add(packets);
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("codel.count", f64::from(self.count));
        visit("codel.dropping", f64::from(u8::from(self.dropping)));
        if let Some(sojourn_ns) = A::gauge_ns(self.sojourn) {
            visit("codel.sojourn_ns", sojourn_ns);
        }
    }
}
