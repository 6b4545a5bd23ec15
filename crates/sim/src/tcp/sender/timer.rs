//! The loss timer of a sender.

use underload_aqm::time::{Span, Time};

use super::super::rtt::MAX_TIMEOUT;

/// The event that the loss timer is armed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alarm {
    /// Retransmission timeout (RFC 6298).
    Timeout,
    /// Tail loss probe (RFC 8985 section 7).
    Probe,
    /// End of the reordering window (RFC 8985 section 6.3).
    Reordering,
}

/// A timer for one [`Alarm`] at a time; consecutive timeouts double.
#[derive(Debug)]
pub(super) struct LossTimer {
    pub(super) alarm: Alarm,
    /// [`Time::MAX`] if the timer is stopped.
    pub(super) deadline: Time,
    backoff: u32,
}

impl LossTimer {
    pub(super) fn new() -> Self {
        Self { alarm: Alarm::Timeout, deadline: Time::MAX, backoff: 0 }
    }

    #[inline]
    pub(super) fn is_running(&self) -> bool {
        self.deadline != Time::MAX
    }

    /// Returns whether the timeout was doubled since the last progress.
    pub(super) fn has_backed_off(&self) -> bool {
        self.backoff > 0
    }

    /// Returns whether the timer waits for reordered segments until after `now`.
    #[inline]
    pub(super) fn awaits_reordered(&self, now: Time) -> bool {
        self.alarm == Alarm::Reordering && self.deadline != Time::MAX && self.deadline > now
    }

    #[inline]
    pub(super) fn stop(&mut self) {
        self.deadline = Time::MAX;
    }

    #[inline]
    pub(super) fn set(&mut self, alarm: Alarm, at: Time) {
        (self.alarm, self.deadline) = (alarm, at);
    }

    /// Arms a retransmission timeout that starts at `now`.
    #[inline]
    pub(super) fn set_timeout(&mut self, now: Time, timeout: Span) {
        self.set(Alarm::Timeout, now + (timeout * (1 << self.backoff)).min(MAX_TIMEOUT));
    }

    /// Doubles the next timeout.
    pub(super) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
    }

    /// Ends the doubling after an acknowledgement.
    #[inline]
    pub(super) fn forget_backoff(&mut self) {
        self.backoff = 0;
    }
}

/// Limit of the doublings; [`MAX_TIMEOUT`] bounds the timeout itself.
const MAX_BACKOFF: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_double_up_to_the_limit_until_progress() {
        let mut timer = LossTimer::new();
        assert!(!timer.is_running());
        let (now, timeout) = (Time::from_secs(100), Span::from_millis(300));
        let mut lengths = Vec::new();
        for _ in 0..12 {
            timer.set_timeout(now, timeout);
            lengths.push(timer.deadline.since(now).as_millis());
            timer.back_off();
        }
        let expected = [300, 600, 1_200, 2_400, 4_800, 9_600, 19_200, 38_400, 76_800, 120_000];
        assert_eq!(lengths[..10], expected, "RFC 6298 section 5.5, at most 120 s as in Linux");
        assert_eq!(lengths[10..], [120_000, 120_000]);
        timer.forget_backoff();
        timer.set_timeout(now, timeout);
        assert_eq!(timer.deadline, now + timeout);
    }

    #[test]
    fn only_a_running_reordering_timer_counts() {
        let mut timer = LossTimer::new();
        timer.set(Alarm::Reordering, Time::from_millis(5));
        assert!(timer.awaits_reordered(Time::from_millis(4)));
        assert!(!timer.awaits_reordered(Time::from_millis(5)), "it is due");
        timer.stop();
        assert!(!timer.awaits_reordered(Time::ZERO));
        timer.set(Alarm::Probe, Time::from_millis(5));
        assert!(!timer.awaits_reordered(Time::ZERO));
    }
}
