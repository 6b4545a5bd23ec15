//! A custom congestion control that is defined at run time, such as a Python object.

use std::fmt;
use std::sync::Arc;

use super::{CongestionControl, Setup};

/// Creates the control of one connection.
pub type MakeControl = dyn Fn(Setup) -> Box<dyn CongestionControl> + Send + Sync;

/// A congestion control that is not an [`Algorithm`](super::Algorithm).
#[derive(Clone)]
pub struct OwnControl {
    pub name: String,
    pub make: Arc<MakeControl>,
}

impl fmt::Debug for OwnControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnControl").field(&self.name).finish()
    }
}
