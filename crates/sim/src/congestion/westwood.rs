//! Westwood+ (Mascolo et al. 2001; Grieco and Mascolo 2004) as Linux `tcp_westwood.c` has it: Reno,
//! but after a loss the threshold is the estimated bandwidth times the smallest round trip.
//!
//! The estimate is one sample per round trip, at least 50 ms, through two filters of 7/8 and 1/8.
//! Deviation: bytes acknowledged are counted as delivered segments, where Linux guesses them from
//! duplicate acknowledgements.

use underload_aqm::time::{Span, Time};

use super::{Ack, Cause, CongestionControl, HyStart, Loss, SlowStartExit, Window};

#[derive(Debug, Default)]
pub struct Westwood {
    hystart: HyStart,
    window_start: Option<Time>,
    delivered: u64,
    /// Segments per second, times 2^16, after the first and the second filter.
    coarse: u64,
    estimate: u64,
    primed: bool,
}

impl Westwood {
    pub fn new(exit: SlowStartExit) -> Self {
        Self { hystart: HyStart::new(exit), ..Self::default() }
    }

    fn sample(&mut self, ack: &Ack) {
        self.delivered += u64::from(ack.delivered);
        let start = *self.window_start.get_or_insert(ack.now);
        let elapsed = ack.now.since(start);
        let due = ack.smoothed_rtt.max(MIN_WINDOW);
        if elapsed <= due {
            return;
        }
        let rate = (u128::from(self.delivered) << 16) * 1_000_000_000;
        let rate = (rate / u128::from(elapsed.as_nanos())) as u64;
        if self.primed {
            self.coarse = (7 * self.coarse + rate) / 8;
            self.estimate = (7 * self.estimate + self.coarse) / 8;
        } else {
            (self.coarse, self.estimate, self.primed) = (rate, rate, true);
        }
        self.delivered = 0;
        self.window_start = Some(ack.now);
    }

    fn product(&self, min_rtt: Span) -> u32 {
        let segments = u128::from(self.estimate) * u128::from(min_rtt.as_nanos());
        ((segments / 1_000_000_000) >> 16).clamp(2, u128::from(super::MAX_WINDOW)) as u32
    }
}

impl CongestionControl for Westwood {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        self.sample(ack);
        self.hystart.on_ack(ack, window);
        window.grow_as_reno(ack, |acknowledged| self.hystart.share(acknowledged));
    }

    fn on_loss(&mut self, loss: &Loss, window: &mut Window) {
        let product = if self.primed { self.product(loss.min_rtt) } else { window.size / 2 };
        window.threshold = product.max(2);
        if loss.cause == Cause::Timeout {
            self.window_start = None;
            self.delivered = 0;
        }
        self.hystart.reset();
    }
}

// Linux `TCP_WESTWOOD_RTT_MIN`.
const MIN_WINDOW: Span = Span::from_millis(50);
