//! Westwood+ (Mascolo et al. 2001; Grieco and Mascolo 2004) as Linux `tcp_westwood.c` has it: Reno,
//! but when a loss is repaired, and after a timeout, window and threshold are the estimated
//! bandwidth times the smallest round trip.
//!
//! The estimate is one sample per round trip, at least 50 ms, through two filters of 7/8 and 1/8.
//! Times are counted in ticks of 4 ms, as in Linux with `CONFIG_HZ=250`, and round trips are
//! rounded up to them: over 41 ms the window is a fourteenth larger than the product.
//! Deviation: bytes acknowledged are counted as delivered segments, where Linux guesses them from
//! duplicate acknowledgements.

use underload_aqm::time::{Span, Time};

use super::{Ack, Cause, CongestionControl, HyStart, Loss, SlowStartExit, Window};

#[derive(Debug)]
pub struct Westwood {
    hystart: HyStart,
    segment_bytes: u64,
    /// Start of the current sample, in ticks since the start of the run.
    sample_start: Option<u64>,
    delivered_bytes: u64,
    /// Bytes per tick after the first and the second filter.
    coarse: u64,
    estimate: u64,
    /// Latest round trip, and the smallest since the last timeout, in ticks.
    rtt: u64,
    min_rtt: Option<u64>,
}

impl Westwood {
    pub fn new(exit: SlowStartExit, segment_bytes: u32) -> Self {
        Self {
            hystart: HyStart::new(exit),
            segment_bytes: u64::from(segment_bytes),
            sample_start: None,
            delivered_bytes: 0,
            coarse: 0,
            estimate: 0,
            rtt: 0,
            min_rtt: None,
        }
    }

    fn sample(&mut self, ack: &Ack) {
        if let Some(rtt) = ack.rtt {
            self.rtt = rtt.as_nanos().div_ceil(TICK.as_nanos());
        }
        let now = ack.now.since(Time::ZERO).as_nanos() / TICK.as_nanos();
        let start = *self.sample_start.get_or_insert(now);
        let elapsed = now - start;
        if self.rtt > 0 && elapsed > self.rtt.max(LEAST_TICKS) {
            let rate = self.delivered_bytes / elapsed;
            if self.coarse == 0 && self.estimate == 0 {
                (self.coarse, self.estimate) = (rate, rate);
            } else {
                self.coarse = (7 * self.coarse + rate) / 8;
                self.estimate = (7 * self.estimate + self.coarse) / 8;
            }
            self.delivered_bytes = 0;
            self.sample_start = Some(now);
        }
        self.delivered_bytes += u64::from(ack.delivered) * self.segment_bytes;
        self.min_rtt = Some(self.min_rtt.unwrap_or(self.rtt).min(self.rtt));
    }

    /// Returns the estimated bandwidth times the smallest round trip, in segments.
    fn product(&self) -> u32 {
        let bytes = self.estimate.saturating_mul(self.min_rtt.unwrap_or(0));
        (bytes / self.segment_bytes).clamp(2, u64::from(super::MAX_WINDOW)) as u32
    }
}

impl CongestionControl for Westwood {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        self.sample(ack);
        self.hystart.on_ack(ack, window);
        window.grow_as_reno(ack, |acknowledged| self.hystart.share(acknowledged));
    }

    fn on_loss(&mut self, loss: &Loss, window: &mut Window) {
        if loss.cause == Cause::Timeout {
            window.threshold = self.product();
            // The path may have changed: the next acknowledgement is the first of a new minimum.
            self.min_rtt = None;
        } else {
            window.threshold = (window.size / 2).max(2);
        }
        self.hystart.reset();
    }

    fn on_reduction_end(&mut self, window: &mut Window) {
        window.threshold = self.product();
        window.size = window.threshold;
    }
}

const TICK: Span = Span::from_millis(4);
/// Linux `TCP_WESTWOOD_RTT_MIN`, 50 ms in whole ticks.
const LEAST_TICKS: u64 = 50 / 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::tests::ack;

    /// Acknowledges `segments` segments each 4 ms for two seconds, with a round trip of 81 ms.
    fn acknowledged(segments: u32) -> (Westwood, Window) {
        let mut westwood = Westwood::new(SlowStartExit::Loss, 1_448);
        let mut window = Window::new(100);
        window.threshold = 100;
        for tick in 0..500 {
            let now = Time::from_nanos(tick * TICK.as_nanos());
            let rtt = Some(Span::from_millis(81));
            westwood.on_ack(&Ack { now, rtt, ..ack(segments) }, &mut window);
        }
        (westwood, window)
    }

    #[test]
    fn the_window_is_set_when_the_repair_ends_and_not_at_the_loss() {
        let (mut westwood, mut window) = acknowledged(3);
        let size = window.size;
        let rtt = Span::from_millis(81);
        let loss =
            Loss { now: Time::from_secs(2), cause: Cause::Loss, in_flight: 50, min_rtt: rtt };
        westwood.on_loss(&loss, &mut window);
        assert_eq!((window.threshold, window.size), (size / 2, size));
        westwood.on_reduction_end(&mut window);
        // Three segments a tick, and 81 ms are 21 ticks.
        assert_eq!((window.threshold, window.size), (63, 63));
    }

    #[test]
    fn after_a_timeout_the_threshold_is_the_bdp_and_the_minimum_round_trip_is_reset() {
        let (mut westwood, mut window) = acknowledged(3);
        let min_rtt = Span::from_millis(81);
        let now = Time::from_secs(2);
        let timeout = Loss { now, cause: Cause::Timeout, in_flight: 50, min_rtt };
        westwood.on_loss(&timeout, &mut window);
        assert_eq!(window.threshold, 63);
        let slower = Some(Span::from_millis(121));
        westwood.on_ack(&Ack { now, rtt: slower, ..ack(3) }, &mut window);
        assert_eq!(westwood.product(), 3 * 31);
    }
}
