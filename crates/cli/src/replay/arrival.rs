//! Packets of a recording, in a stream.

use underload_aqm::packet::Meta;
use underload_aqm::time::Time;

/// A packet of the recording.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Number of the packet in the input, from 0.
    pub id: u64,
    /// Time at which the packet's first byte is at the queue.
    pub time: Time,
    /// Length and header fields that the queue sees.
    pub meta: Meta,
    /// Whether the filter wants it.
    pub is_wanted: bool,
}

/// A stream of packets, which ends at the first error.
pub type Arrivals = Box<dyn Iterator<Item = anyhow::Result<Arrival>>>;
