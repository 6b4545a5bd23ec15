//! The delay of a modem's low latency queue (`qdelayCoupledV`, MULPIv3.1 annex O).
//!
//! A modem's backlog waits for grants even without congestion. So the delay is computed from a
//! virtual queue that drains at the highest rate of the service flow, with or without grants. The
//! mean backlog that the wait for grants does not explain is added to it.

use crate::queue::control::UpdateTimer;
use crate::queue::docsis_pie::MAX_PACKET_BYTES;
use crate::rate::Rate;
use crate::service_flow::ProactiveGrants;
use crate::time::{Span, Time};

/// The virtual queue, and the mean of the real one.
#[derive(Clone, Debug)]
pub(super) struct VirtualQueue {
    /// `MAX_RATE` of annex O.
    rate: Rate,
    /// The backlog that the wait for grants explains.
    allowed_bytes: u64,
    /// The virtual queue accepts packets while its delay is below this.
    room: Span,
    /// The real queue accepts packets while its backlog is below this.
    limit_bytes: u64,
    /// When the virtual queue will be empty.
    empty_at: Time,
    /// The mean backlog, in 2^-16 bytes.
    mean_q16: i64,
    timer: UpdateTimer,
}

/// Time between updates of the mean.
const UPDATE_INTERVAL: Span = Span::from_micros(500);
/// The mean moves by 2^-7 of its distance with each update.
const MEAN_SHIFT: u32 = 7;

impl VirtualQueue {
    /// Returns an empty queue. `request_loop` is the time from a request to its grant,
    /// `limit_bytes` the buffer.
    pub fn new(
        rate: Rate,
        limit_bytes: u64,
        request_loop: Span,
        proactive: Option<ProactiveGrants>,
    ) -> Self {
        let guaranteed = proactive.map_or(0, |grants| grants.rate.bits_per_second());
        let asked = Rate::from_bits_per_second(rate.bits_per_second().saturating_sub(guaranteed));
        let unasked = proactive.map_or(0, |grants| grants.rate.bytes_in(grants.interval));
        let allowed_bytes = asked.bytes_in(request_loop) + unasked;
        let room_bytes = limit_bytes.saturating_sub(MAX_PACKET_BYTES);
        Self {
            rate,
            allowed_bytes,
            room: rate.time_for(room_bytes).unwrap_or_default(),
            limit_bytes: room_bytes.saturating_add(allowed_bytes),
            empty_at: Time::ZERO,
            mean_q16: 0,
            timer: UpdateTimer::new(Time::ZERO + UPDATE_INTERVAL, UPDATE_INTERVAL),
        }
    }

    /// Replays the updates that are due at `now`; `stored_bytes` were stored since the last one.
    #[inline]
    pub fn advance(&mut self, now: Time, stored_bytes: u64) {
        while let Some(due) = self.timer.take_due(now) {
            if !self.update(due, stored_bytes) {
                self.rest(now);
            }
        }
    }

    /// Makes the update at `due`. Returns whether the mean changed.
    fn update(&mut self, due: Time, stored_bytes: u64) -> bool {
        let stored_q16 = (stored_bytes.min(1 << 40) << 16) as i64;
        let step = (stored_q16 - self.mean_q16) >> MEAN_SHIFT;
        self.mean_q16 += step;
        self.raise(due);
        step != 0
    }

    /// Skips the updates up to `now`. The mean is constant, so only the last can change anything.
    fn rest(&mut self, now: Time) {
        if let Some(last) = self.timer.skip_due(now) {
            self.raise(last);
        }
    }

    /// The backlog that the wait for grants does not explain counts as congestion.
    fn raise(&mut self, at: Time) {
        let over = ((self.mean_q16 >> 16) as u64).saturating_sub(self.allowed_bytes);
        self.empty_at = self.empty_at.max(at + self.time_for(over));
    }

    /// Whether an arrival at `now` fits beside `stored_bytes`.
    pub fn has_room(&self, now: Time, stored_bytes: u64) -> bool {
        self.empty_at.since(now) < self.room && stored_bytes < self.limit_bytes
    }

    /// Adds an arrival of `len` bytes at `now`, and returns the delay with it.
    pub fn arrive(&mut self, now: Time, len: u32) -> Span {
        self.empty_at = self.empty_at.max(now) + self.time_for(u64::from(len));
        self.empty_at.since(now)
    }

    /// Removes the packet of `len` bytes that has just arrived and is not stored.
    pub fn give_back(&mut self, len: u32) {
        let back = self.time_for(u64::from(len)).as_nanos();
        self.empty_at = Time::from_nanos(self.empty_at.as_nanos().saturating_sub(back));
    }

    fn time_for(&self, bytes: u64) -> Span {
        self.rate.time_for(bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8 Mbit/s: a byte per microsecond. A loop of 4 ms explains 4000 bytes.
    fn queue(proactive: Option<ProactiveGrants>) -> VirtualQueue {
        let rate = Rate::from_megabits_per_second(8);
        VirtualQueue::new(rate, 40_000, Span::from_millis(4), proactive)
    }

    fn us(micros: u64) -> Time {
        Time::from_micros(micros)
    }

    #[test]
    fn the_virtual_queue_drains_at_the_highest_rate_without_departures() {
        let mut queue = queue(None);
        assert_eq!(queue.arrive(us(1_000), 1_000), Span::from_micros(1_000));
        assert_eq!(queue.arrive(us(1_000), 500), Span::from_micros(1_500));
        assert_eq!(queue.arrive(us(1_600), 100), Span::from_micros(1_000));
        assert_eq!(queue.arrive(us(9_000), 64), Span::from_micros(64), "never below zero");
    }

    #[test]
    fn refused_and_redirected_packets_do_not_count() {
        let mut queue = queue(None);
        queue.arrive(us(0), 1_000);
        queue.arrive(us(100), 300);
        queue.give_back(300);
        assert_eq!(queue.arrive(us(100), 1), Span::from_micros(901));
    }

    #[test]
    fn the_mean_moves_by_a_128th_of_its_distance_every_500_microseconds() {
        let mut queue = queue(None);
        queue.advance(us(499), 12_800);
        assert_eq!(queue.mean_q16, 0);
        queue.advance(us(500), 12_800);
        assert_eq!(queue.mean_q16, 100 << 16);
        queue.advance(us(1_000), 12_800);
        assert_eq!(queue.mean_q16, (100 << 16) + (((12_700 << 16) as i64) >> 7));
    }

    #[test]
    fn a_backlog_that_the_wait_for_grants_explains_does_not_count_as_delay() {
        let mut queue = queue(None);
        queue.advance(us(10_000_000), 4_000);
        assert_eq!(queue.arrive(us(10_000_000), 10), Span::from_micros(10));
    }

    #[test]
    fn backlog_beyond_the_wait_for_grants_is_delay() {
        let mut queue = queue(None);
        queue.advance(us(10_000_000), 6_000);
        let stored = queue.mean_q16 >> 16;
        assert!((5_999..=6_000).contains(&stored), "{stored}");
        let delay = queue.arrive(us(10_000_000), 10).as_nanos() / 1_000;
        assert_eq!(delay, stored as u64 - 4_000 + 10);
    }

    /// Half of the rate is granted proactively, every 2 ms: 4 Mbit/s x 4 ms and 4 Mbit/s x 2 ms.
    #[test]
    fn with_proactive_grants_more_of_the_backlog_is_delay() {
        let rate = Rate::from_megabits_per_second(4);
        let queue = queue(Some(ProactiveGrants { rate, interval: Span::from_millis(2) }));
        assert_eq!(queue.allowed_bytes, 2_000 + 1_000);
    }

    #[test]
    fn updates_do_not_depend_on_the_number_of_polls() {
        for stored in [0, 5_000, 60_000] {
            let (mut often, mut once) = (queue(None), queue(None));
            for both in [&mut often, &mut once] {
                both.advance(us(100_000), 9_000);
            }
            (1_001..=20_003).for_each(|step| often.advance(us(step * 100), stored));
            once.advance(us(2_000_300), stored);
            assert_eq!((often.mean_q16, often.empty_at), (once.mean_q16, once.empty_at));
        }
    }

    #[test]
    fn the_virtual_queue_and_memory_both_limit_the_backlog() {
        let mut queue = queue(None);
        assert!(queue.has_room(us(0), 41_999) && !queue.has_room(us(0), 42_000));
        queue.arrive(us(0), 37_999);
        assert!(queue.has_room(us(0), 0));
        queue.arrive(us(0), 1);
        assert!(!queue.has_room(us(0), 0) && queue.has_room(us(1), 0));
    }

    #[test]
    fn extreme_numbers_do_not_overflow_the_virtual_queue() {
        let mut queue = queue(None);
        let late = Time::from_nanos(1 << 63);
        queue.advance(late, u64::MAX);
        assert!(queue.arrive(late, u32::MAX) > Span::from_secs(4_000));
        queue.give_back(u32::MAX);
        assert!(!queue.has_room(late, u64::MAX));
    }
}
