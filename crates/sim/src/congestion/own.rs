//! A congestion control of somebody's own, which the program was given while it ran, such as an
//! object of a scripting language.

use std::fmt;
use std::sync::Arc;

use underload_aqm::time::{Span, Time};

use super::{Ack, CongestionControl, Loss, PacketRate, Setup, Window};

/// Makes the control of one connection.
pub type MakeControl = dyn Fn(Setup) -> Box<dyn CongestionControl> + Send + Sync;

/// A congestion control that [`Algorithm`](super::Algorithm) does not know.
#[derive(Clone)]
pub struct OwnControl {
    /// Its name in records.
    pub name: String,
    /// Makes it for each connection.
    pub make: Arc<MakeControl>,
}

impl fmt::Debug for OwnControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnControl").field(&self.name).finish()
    }
}

/// One under way.
pub struct Own(pub(super) Box<dyn CongestionControl>);

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own").finish_non_exhaustive()
    }
}

impl CongestionControl for Own {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        self.0.on_ack(ack, window);
    }

    fn on_loss(&mut self, loss: &Loss, window: &mut Window) {
        self.0.on_loss(loss, window);
    }

    fn on_undo(&mut self) {
        self.0.on_undo();
    }

    fn on_restart(&mut self, now: Time, idle: Span, window: &mut Window) {
        self.0.on_restart(now, idle, window);
    }

    fn pacing(&self) -> Option<PacketRate> {
        self.0.pacing()
    }

    fn owns_window(&self) -> bool {
        self.0.owns_window()
    }

    fn is_restored_by_transport(&self) -> bool {
        self.0.is_restored_by_transport()
    }

    fn answers_loss_while_reducing(&self) -> bool {
        self.0.answers_loss_while_reducing()
    }

    fn holds_back(&self) -> bool {
        self.0.holds_back()
    }
}
