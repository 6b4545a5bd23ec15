//! Reno (RFC 5681): additive increase by one segment per round trip, halving on loss.
//!
//! Growth counts acknowledged segments (RFC 3465 without its limit of two, as Linux), so delayed
//! acknowledgements do not slow it. HyStart or HyStart++ may end slow start early, which neither
//! RFC 5681 nor Linux' Reno has; it is off by default ([`super::Algorithm::slow_start_exit`]).

use super::{Ack, CongestionControl, HyStart, Loss, SlowStartExit, Window};

#[derive(Debug)]
pub struct Reno {
    hystart: HyStart,
}

impl Reno {
    pub fn new(exit: SlowStartExit) -> Self {
        Self { hystart: HyStart::new(exit) }
    }
}

impl CongestionControl for Reno {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        self.hystart.on_ack(ack, window);
        window.grow_as_reno(ack, |acknowledged| self.hystart.share(acknowledged));
    }

    fn on_loss(&mut self, _loss: &Loss, window: &mut Window) {
        window.threshold = (window.size / 2).max(2);
        self.hystart.reset();
    }
}
