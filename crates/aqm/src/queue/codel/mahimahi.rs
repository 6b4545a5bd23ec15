//! CoDel as Mahimahi's `codel_packet_queue` runs it, defect included: in the baselines of papers
//! that were measured with it, this is "CoDel".
//!
//! The packet that the law chooses is delivered and the one behind it is lost, because an inner
//! variable hides the outer one (Mahimahi issue 165); the same loop also loses the packet that
//! ended the dropping state. Use it to repeat such a figure, never to judge CoDel.

use super::spacing;
use crate::aqm::{Aqm, Store};
use crate::packet::Packet;
use crate::qdisc::{Backlog, DropReason};
use crate::time::{Span, Time};

/// CoDel, profile `mahimahi`. All instants and spans are in whole milliseconds.
#[derive(Clone, Debug)]
pub struct Mahimahi {
    target_ms: u64,
    interval_ms: u64,
    guard_bytes: u64,
    /// When the sojourn will have been above target for an interval; 0 while it is below.
    first_above_ms: u64,
    drop_next_ms: u64,
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl Mahimahi {
    /// Returns CoDel in its initial state, with times rounded down to milliseconds.
    pub const fn new(target: Span, interval: Span, guard_bytes: u32) -> Self {
        Self {
            target_ms: target.as_millis(),
            interval_ms: interval.as_millis(),
            guard_bytes: guard_bytes as u64,
            first_above_ms: 0,
            drop_next_ms: 0,
            count: 0,
            last_count: 0,
            dropping: false,
        }
    }

    /// Whether the law would signal a packet that leaves `left` behind it; never the last packet.
    #[inline]
    fn may_signal(&mut self, now_ms: u64, arrived: Time, left: Backlog) -> bool {
        let sojourn_ms = now_ms.saturating_sub(arrived.as_millis());
        if left.is_empty() || sojourn_ms < self.target_ms || left.bytes <= self.guard_bytes {
            self.first_above_ms = 0;
            return false;
        }
        if self.first_above_ms == 0 {
            self.first_above_ms = now_ms + self.interval_ms;
            return false;
        }
        now_ms >= self.first_above_ms
    }

    /// Drops the packet behind the head. Returns whether the law would have signalled it.
    fn lose_follower<P>(&mut self, now_ms: u64, store: &mut impl Store<P>) -> bool {
        let Some(follower) = store.pop() else { return false };
        let may_signal = self.may_signal(now_ms, follower.meta.arrived, store.backlog());
        store.drop(follower, DropReason::ControlLaw);
        may_signal
    }

    #[cold]
    fn act<P>(&mut self, now_ms: u64, store: &mut impl Store<P>) {
        if !self.dropping {
            self.lose_follower(now_ms, store);
            self.enter(now_ms);
            return;
        }
        while self.dropping && now_ms >= self.drop_next_ms {
            let may_signal = self.lose_follower(now_ms, store);
            self.count = self.count.wrapping_add(1);
            if may_signal {
                self.drop_next_ms = self.control_law(self.drop_next_ms);
            } else {
                self.dropping = false;
            }
        }
    }

    fn control_law(&self, from_ms: u64) -> u64 {
        from_ms + spacing(self.interval_ms, self.count)
    }

    fn enter(&mut self, now_ms: u64) {
        self.dropping = true;
        let delta = self.count.wrapping_sub(self.last_count);
        // Unsigned in the original: a next drop still ahead counts as infinitely long ago.
        let lately = now_ms.wrapping_sub(self.drop_next_ms) < self.interval_ms * 16;
        self.count = if delta > 1 && lately { delta } else { 1 };
        self.drop_next_ms = self.control_law(now_ms);
        self.last_count = self.count;
    }
}

impl Aqm for Mahimahi {
    #[inline]
    fn dequeue<P>(&mut self, now: Time, store: &mut impl Store<P>) -> Option<Packet<P>> {
        let head = store.head()?;
        let left = store.backlog().without(head.len);
        let now_ms = now.as_millis();
        if self.may_signal(now_ms, head.arrived, left) {
            let head = store.pop();
            self.act(now_ms, store);
            return head;
        }
        self.dropping = false;
        store.pop()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("codel.count", f64::from(self.count));
        visit("codel.dropping", f64::from(u8::from(self.dropping)));
    }
}
