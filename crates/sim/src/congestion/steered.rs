//! A window in somebody's hands: no algorithm, but what [`env`](crate::env) steers.

use super::{Ack, CongestionControl, Loss, Window};

/// A window that stays as it was set, whatever happens.
#[derive(Debug)]
pub struct Steered {
    /// Segments that may be in flight.
    pub segments: u32,
}

impl CongestionControl for Steered {
    fn on_ack(&mut self, _ack: &Ack, window: &mut Window) {
        window.size = self.segments;
    }

    fn on_loss(&mut self, _loss: &Loss, _window: &mut Window) {}

    fn owns_window(&self) -> bool {
        true
    }
}
