//! The packets of a recording.

use underload_aqm::packet::Meta;
use underload_aqm::time::Time;

#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Position of the packet in the input, from 0.
    pub id: u64,
    /// Arrival at the queue.
    pub time: Time,
    pub meta: Meta,
    /// Whether the packet passes the filter.
    pub is_wanted: bool,
}

/// A stream of packets that ends at the first error.
pub type Arrivals = Box<dyn Iterator<Item = anyhow::Result<Arrival>>>;
