//! Delivery rate estimation (Cheng, Cardwell et al.,
//! draft-cheng-iccrg-delivery-rate-estimation).

use underload_aqm::time::{Span, Time};

use super::super::scoreboard::{Delivery, Departure};
use crate::congestion::Delivered;

/// Counts deliveries, and records the count with each departure.
#[derive(Debug, Default)]
pub(super) struct RateSampler {
    /// Segments delivered, modulo 2^32.
    pub(super) delivered: u32,
    delivered_at: Time,
    /// When the most recently delivered segment was sent.
    window_opened: Time,
    /// The application limited the rate up to this count of deliveries; 0: it did not.
    app_limited_until: u32,
}

impl RateSampler {
    /// Starts measuring, at first or after idle time.
    pub(super) fn restart(&mut self, now: Time) {
        self.delivered_at = now;
        self.window_opened = now;
    }

    #[inline]
    pub(super) fn on_delivered(&mut self, now: Time, segments: u32) {
        if segments > 0 {
            self.delivered = self.delivered.wrapping_add(segments);
            self.delivered_at = now;
        }
    }

    /// Marks the segments in flight as limited by the application.
    #[inline]
    pub(super) fn limit_by_application(&mut self, in_flight: u32) {
        self.app_limited_until = (self.delivered + in_flight).max(1);
    }

    #[inline]
    pub(super) fn departure(&self, now: Time) -> Departure {
        Departure {
            now,
            window_opened: self.window_opened,
            delivered_at: self.delivered_at,
            delivered: self.delivered,
            app_limited: self.app_limited_until > 0,
        }
    }

    /// Returns the rate over the flight that `delivery` ends; `None` if the flight is shorter than
    /// the minimum round trip, as after reordering.
    #[inline]
    pub(super) fn sample(
        &mut self,
        now: Time,
        delivery: &Delivery,
        min_rtt: Span,
    ) -> Option<Delivered> {
        let sample = delivery.sample?;
        self.window_opened = sample.sent_at;
        if (self.delivered as i32).wrapping_sub(self.app_limited_until as i32) > 0 {
            self.app_limited_until = 0;
        }
        let interval = sample.send_interval.max(now.since(sample.prior_at));
        if interval < min_rtt {
            return None;
        }
        Some(Delivered {
            segments: self.delivered.wrapping_sub(sample.prior_delivered),
            interval,
            prior_delivered: sample.prior_delivered,
            app_limited: sample.app_limited,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::scoreboard::RateSample;
    use super::*;

    /// Handles the acknowledgement of a segment with this `departure`, at `interval` after the
    /// first segment of its flight was sent.
    fn delivery(departure: &Departure, interval: Span) -> Delivery {
        let sample = RateSample {
            prior_delivered: departure.delivered,
            prior_at: departure.delivered_at,
            sent_at: departure.now,
            send_interval: interval,
            app_limited: departure.app_limited,
        };
        Delivery { sample: Some(sample), ..Delivery::default() }
    }

    #[test]
    fn a_rate_is_over_the_longer_of_sending_and_acknowledging() {
        let mut rate = RateSampler::default();
        rate.restart(Time::ZERO);
        let departure = rate.departure(Time::from_millis(10));
        rate.on_delivered(Time::from_millis(50), 20);
        let rtt = Span::from_millis(40);
        let sampled = |rate: &mut RateSampler, sending_ms| {
            let delivery = delivery(&departure, Span::from_millis(sending_ms));
            let sample = rate.sample(Time::from_millis(50), &delivery, rtt)?;
            Some((sample.segments, sample.interval.as_millis()))
        };
        assert_eq!(sampled(&mut rate, 10), Some((20, 50)));
        assert_eq!(sampled(&mut rate, 80), Some((20, 80)));
        let none = rate.sample(Time::from_millis(30), &delivery(&departure, Span::ZERO), rtt);
        assert!(none.is_none(), "30 ms are less than a round trip");
    }

    #[test]
    fn application_limited_samples_are_marked_until_delivery() {
        let mut rate = RateSampler::default();
        rate.limit_by_application(5);
        let departure = rate.departure(Time::ZERO);
        assert!(departure.app_limited);
        let delivery = delivery(&departure, Span::from_millis(40));
        for (segments, limited) in [(5, true), (1, false)] {
            rate.on_delivered(Time::from_millis(40), segments);
            let sample = rate.sample(Time::from_millis(40), &delivery, Span::from_millis(40));
            assert!(sample.is_some_and(|sample| sample.app_limited), "as it left");
            assert_eq!(rate.departure(Time::from_millis(40)).app_limited, limited);
        }
    }

    #[test]
    fn counts_continue_beyond_32_bits() {
        let mut rate = RateSampler::default();
        rate.on_delivered(Time::ZERO, u32::MAX);
        let departure = rate.departure(Time::ZERO);
        rate.on_delivered(Time::from_millis(40), 11);
        assert_eq!(rate.delivered, 10);
        let delivery = delivery(&departure, Span::from_millis(40));
        let sample = rate.sample(Time::from_millis(40), &delivery, Span::ZERO);
        assert_eq!(sample.map(|sample| sample.segments), Some(11));
    }
}
