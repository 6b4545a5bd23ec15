//! CoDel as RFC 8289 section 5 writes it, with an exact square root.

use super::{CodelConfig, spacing};
use crate::aqm::{Aqm, Store, signal};
use crate::packet::Packet;
use crate::time::{Span, Time};

#[derive(Clone, Debug)]
pub struct Rfc {
    config: CodelConfig,
    /// When the sojourn will have been above target for an interval; `None` while it is below.
    first_above: Option<Time>,
    drop_next: Time,
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl Rfc {
    /// Returns CoDel in its initial state.
    pub const fn new(config: CodelConfig) -> Self {
        Self {
            config,
            first_above: None,
            drop_next: Time::ZERO,
            count: 0,
            last_count: 0,
            dropping: false,
        }
    }

    /// `do_dequeue` (section 5.6): whether a packet with `left_bytes` behind it may be signalled.
    #[inline]
    fn may_signal(&mut self, now: Time, arrived: Time, left_bytes: u64) -> bool {
        let sojourn = now.since(arrived);
        if sojourn < self.config.target || left_bytes <= u64::from(self.config.guard_bytes) {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = Some(now + self.config.interval);
                false
            }
            Some(first_above) => now >= first_above,
        }
    }

    /// Takes the next packet; returns also whether it may be signalled.
    fn take<P>(&mut self, now: Time, store: &mut impl Store<P>) -> Option<(Packet<P>, bool)> {
        let Some(packet) = store.pop() else {
            self.first_above = None;
            return None;
        };
        let may_signal = self.may_signal(now, packet.meta.arrived, store.backlog().bytes);
        Some((packet, may_signal))
    }

    fn control_law(&self, from: Time) -> Time {
        from + Span::from_nanos(spacing(self.config.interval.as_nanos(), self.count))
    }

    /// Signals `head`, if the law says so. Returns the packet to transmit.
    #[cold]
    fn act<P>(
        &mut self,
        now: Time,
        head: Packet<P>,
        store: &mut impl Store<P>,
    ) -> Option<Packet<P>> {
        if self.dropping {
            return self.catch_up(now, head, store);
        }
        let next = match signal(self.config.ecn, head, store) {
            Some(marked) => Some(marked),
            None => self.take(now, store).map(|(next, _)| next),
        };
        self.enter(now);
        next
    }

    /// The `while` loop of the dropping state: several drops may be due at once.
    fn catch_up<P>(
        &mut self,
        now: Time,
        mut head: Packet<P>,
        store: &mut impl Store<P>,
    ) -> Option<Packet<P>> {
        while self.dropping && now >= self.drop_next {
            self.count = self.count.saturating_add(1);
            if let Some(marked) = signal(self.config.ecn, head, store) {
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
    fn enter(&mut self, now: Time) {
        self.dropping = true;
        let delta = self.count.saturating_sub(self.last_count);
        let lately = now.since(self.drop_next) < self.config.interval * 16;
        self.count = if delta > 1 && lately { delta } else { 1 };
        self.drop_next = self.control_law(now);
        self.last_count = self.count;
    }
}

impl Aqm for Rfc {
    #[inline]
    fn dequeue<P>(&mut self, now: Time, store: &mut impl Store<P>) -> Option<Packet<P>> {
        let Some(head) = store.head() else {
            self.first_above = None;
            self.dropping = false;
            return None;
        };
        let left_bytes = store.backlog().bytes - u64::from(head.len);
        if self.may_signal(now, head.arrived, left_bytes) {
            let head = store.pop()?;
            return self.act(now, head, store);
        }
        self.dropping = false;
        store.pop()
    }

    fn on_overlimit(&mut self, _now: Time, packets: u32) {
        self.count = self.count.saturating_add(packets);
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("codel.count", f64::from(self.count));
        visit("codel.dropping", f64::from(u8::from(self.dropping)));
    }
}
