//! Reno (RFC 5681): additive increase by one segment per round trip, halving on loss.
//!
//! Growth counts acknowledged segments (RFC 3465 without its limit of two, as Linux), so delayed
//! acknowledgements do not slow it. Slow start may also be ended early by HyStart or
//! HyStart++, which neither RFC 5681 nor Linux' Reno has: scenarios leave it off
//! ([`super::Algorithm::slow_start_exit`]).

use super::{Ack, CongestionControl, HyStart, Loss, SlowStartExit, Window};

/// Reno's state, which is all in the window.
#[derive(Debug)]
pub struct Reno {
    hystart: HyStart,
}

impl Reno {
    /// At the start of a connection.
    pub fn new(exit: SlowStartExit) -> Self {
        Self { hystart: HyStart::new(exit) }
    }
}

impl CongestionControl for Reno {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        self.hystart.on_ack(ack, window);
        if !ack.may_grow() {
            return;
        }
        let mut acknowledged = ack.acknowledged;
        if window.in_slow_start() {
            acknowledged = window.slow_start(self.hystart.share(acknowledged));
        }
        if acknowledged > 0 && !window.in_slow_start() {
            window.grow(acknowledged, window.size);
        }
    }

    fn on_loss(&mut self, _loss: &Loss, window: &mut Window) {
        window.threshold = (window.size / 2).max(2);
        self.hystart.reset();
    }
}
