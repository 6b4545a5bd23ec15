//! Spreads segments over time at the rate that a congestion control asks for.

use underload_aqm::time::{Span, Time};

use crate::congestion::PacketRate;

/// When the next segment may leave (Linux `tcp_update_skb_after_send`).
#[derive(Debug)]
pub(super) struct Pacer {
    release_at: Time,
    /// Rate and size of the packet before, and how long it took: most are alike, and a division
    /// costs as much as everything else here.
    last: (PacketRate, u32),
    last_length: Span,
    waiting: bool,
}

impl Pacer {
    pub(super) fn new() -> Self {
        Self {
            release_at: Time::ZERO,
            last: (PacketRate::default(), 0),
            last_length: Span::ZERO,
            waiting: false,
        }
    }

    /// When a segment that was held back may leave; [`Time::MAX`] with none.
    #[inline]
    pub(super) fn deadline(&self) -> Time {
        if self.waiting { self.release_at } else { Time::MAX }
    }

    /// How long after `now` the next segment may leave.
    #[inline]
    pub(super) fn wait(&self, now: Time) -> Span {
        self.release_at.since(now)
    }

    /// Whether the last question held a segment back.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting
    }

    #[inline]
    pub(super) fn stop_waiting(&mut self) {
        self.waiting = false;
    }

    /// The next segment may leave at once, for example after a timeout.
    pub(super) fn release(&mut self, now: Time) {
        self.release_at = now;
    }

    /// Whether the next segment is held back at `rate`.
    #[inline]
    pub(super) fn holds_back(&mut self, now: Time, rate: Option<PacketRate>) -> bool {
        self.waiting = rate.is_some() && self.release_at > now;
        self.waiting
    }

    /// Counts a segment that left in a packet of `packet_bytes`. Of the time since it might have
    /// left, up to half its own length is credit for the next.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Time, packet_bytes: u32, rate: Option<PacketRate>) {
        let Some(rate) = rate else { return };
        if (rate, packet_bytes) != self.last {
            self.last = (rate, packet_bytes);
            self.last_length = rate.time_for(packet_bytes);
        }
        let length = self.last_length.as_nanos();
        let credit = now.since(self.release_at).as_nanos().min(length / 2);
        self.release_at = now.max(self.release_at) + Span::from_nanos(length - credit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Option<PacketRate> = Some(PacketRate::from_bytes_per_s(1_000_000));

    #[test]
    fn segments_leave_at_the_rate() {
        let mut pacer = Pacer::new();
        pacer.release(Time::from_secs(1));
        let mut now = Time::from_secs(1);
        for _ in 0..100 {
            assert!(!pacer.holds_back(now, RATE));
            pacer.on_sent(now, 1_500, RATE);
            assert!(pacer.holds_back(now, RATE));
            now = pacer.deadline();
        }
        assert_eq!(now, Time::from_secs(1) + Span::from_micros(150_000), "1500 bytes at 1 MB/s");
    }

    #[test]
    fn a_pause_is_credit_for_half_a_segment_only() {
        let mut pacer = Pacer::new();
        let now = Time::from_secs(9);
        pacer.on_sent(now, 1_500, RATE);
        assert!(pacer.holds_back(now, RATE));
        assert_eq!(pacer.deadline(), now + Span::from_micros(750));
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pacer = Pacer::new();
        let now = Time::from_secs(1);
        pacer.on_sent(now, 1_500, RATE);
        assert!(!pacer.holds_back(now, None));
        assert_eq!(pacer.deadline(), Time::MAX);
        let zero = Some(PacketRate::default());
        pacer.on_sent(now, 1_500, zero);
        assert!(pacer.holds_back(now, zero), "what was sent at a rate before still counts");
    }
}
