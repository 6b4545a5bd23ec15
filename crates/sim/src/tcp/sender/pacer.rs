//! Paces segments at the rate of a congestion control.

use underload_aqm::time::{Span, Time};

use crate::congestion::PacketRate;

/// When the next segment may be sent (Linux `tcp_update_skb_after_send`).
#[derive(Debug, Default)]
pub(super) struct Pacer {
    release_at: Time,
    /// Rate and size of the previous packet, and its time at that rate: most packets are equal, and
    /// a division would cost as much as everything else here.
    last: (PacketRate, u32),
    last_length: Span,
    /// Whether the last call of [`Self::holds_back`] delayed a segment.
    pub(super) waiting: bool,
}

impl Pacer {
    /// Returns when a delayed segment may be sent; [`Time::MAX`] if none is delayed.
    #[inline]
    pub(super) fn deadline(&self) -> Time {
        if self.waiting { self.release_at } else { Time::MAX }
    }

    /// Returns the time from `now` until the next segment may be sent.
    #[inline]
    pub(super) fn wait(&self, now: Time) -> Span {
        self.release_at.since(now)
    }

    #[inline]
    pub(super) fn stop_waiting(&mut self) {
        self.waiting = false;
    }

    /// Lets the next segment be sent at once, for example after a timeout.
    pub(super) fn release(&mut self, now: Time) {
        self.release_at = now;
    }

    /// Returns whether the next segment must wait at `rate`.
    #[inline]
    pub(super) fn holds_back(&mut self, now: Time, rate: Option<PacketRate>) -> bool {
        self.waiting = rate.is_some() && self.release_at > now;
        self.waiting
    }

    /// Schedules the next segment after one in a packet of `packet_bytes`. The time for which that
    /// packet was sent late is credit for the next one, up to half its transmission time.
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
        let mut pacer = Pacer::default();
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
    fn a_pause_gives_credit_for_at_most_half_a_segment() {
        let mut pacer = Pacer::default();
        let now = Time::from_secs(9);
        pacer.on_sent(now, 1_500, RATE);
        assert!(pacer.holds_back(now, RATE));
        assert_eq!(pacer.deadline(), now + Span::from_micros(750));
    }

    #[test]
    fn without_a_rate_segments_are_not_paced() {
        let mut pacer = Pacer::default();
        let now = Time::from_secs(1);
        pacer.on_sent(now, 1_500, RATE);
        assert!(!pacer.holds_back(now, None));
        assert_eq!(pacer.deadline(), Time::MAX);
        let zero = Some(PacketRate::default());
        pacer.on_sent(now, 1_500, zero);
        assert!(pacer.holds_back(now, zero), "what was sent at a rate before still counts");
    }
}
