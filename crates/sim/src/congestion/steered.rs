//! A window that a caller controls through [`env`](crate::env).

use super::{Ack, CongestionControl, Loss, Window};

/// A window of constant size, unaffected by losses.
#[derive(Debug)]
pub struct Steered {
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
