//! Round trip time and the retransmission timeout (RFC 6298, with Linux's bounds).

use underload_aqm::time::{Span, Time};

/// Smoothed round trip time, its variation, and the smallest one of the last five minutes.
#[derive(Debug)]
pub(super) struct RttEstimator {
    smoothed: Option<Span>,
    variation: Span,
    min: Windowed,
}

#[derive(Debug)]
struct Windowed {
    value: Span,
    at: Time,
}

impl RttEstimator {
    pub(super) fn new() -> Self {
        let min = Windowed { value: Span::from_nanos(u64::MAX), at: Time::ZERO };
        Self { smoothed: None, variation: Span::ZERO, min }
    }

    pub(super) fn smoothed(&self) -> Option<Span> {
        self.smoothed
    }

    /// `Span` of `u64::MAX` before the first sample.
    pub(super) fn min(&self) -> Span {
        self.min.value
    }

    /// Updates the minimum alone.
    pub(super) fn on_min_sample(&mut self, now: Time, rtt: Span) {
        if rtt <= self.min.value || now.since(self.min.at) > MIN_WINDOW {
            self.min = Windowed { value: rtt, at: now };
        }
    }

    /// Updates average and variation (RFC 6298 section 2).
    pub(super) fn on_sample(&mut self, rtt: Span) {
        let rtt = rtt.as_nanos();
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(Span::from_nanos(rtt));
            self.variation = Span::from_nanos(rtt / 2);
            return;
        };
        let smoothed = smoothed.as_nanos();
        let variation = self.variation.as_nanos();
        self.variation = Span::from_nanos(variation - variation / 4 + smoothed.abs_diff(rtt) / 4);
        self.smoothed = Some(Span::from_nanos(smoothed - smoothed / 8 + rtt / 8));
    }

    /// The timeout before backing off: Linux keeps the variation's share at 200 ms at least.
    pub(super) fn timeout(&self) -> Span {
        match self.smoothed {
            None => INITIAL_TIMEOUT,
            Some(smoothed) => {
                smoothed + Span::from_nanos((4 * self.variation.as_nanos()).max(MIN_MARGIN_NS))
            }
        }
    }
}

/// RFC 6298 section 2.1.
pub(super) const INITIAL_TIMEOUT: Span = Span::from_secs(1);
/// Linux `TCP_RTO_MAX`.
pub(super) const MAX_TIMEOUT: Span = Span::from_secs(120);
/// Linux `TCP_RTO_MIN`, applied to the variation.
const MIN_MARGIN_NS: u64 = 200_000_000;
/// Linux `tcp_min_rtt_wlen`.
const MIN_WINDOW: Span = Span::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_rfc_6298_and_keeps_linux_margin() {
        let mut rtt = RttEstimator::new();
        assert_eq!(rtt.timeout(), Span::from_secs(1));
        rtt.on_sample(Span::from_millis(100));
        assert_eq!(rtt.timeout(), Span::from_millis(300), "srtt + 4 * srtt/2");
        for _ in 0..100 {
            rtt.on_sample(Span::from_millis(100));
        }
        assert_eq!(rtt.timeout(), Span::from_millis(300), "srtt + 200 ms");
        rtt.on_sample(Span::from_millis(180));
        assert_eq!(rtt.smoothed(), Some(Span::from_millis(110)), "7/8 and 1/8");
    }
}
