//! The packets of a recording.

use underload_aqm::packet::Meta;
use underload_aqm::time::Time;

#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Position of the packet in the input, from 0.
    pub id: u64,
    pub time: Time,
    pub meta: Meta,
    /// Whether the packet passes the filter.
    pub is_wanted: bool,
}

/// A stream of packets that ends at the first error.
pub type Arrivals = Box<dyn Iterator<Item = anyhow::Result<Arrival>>>;

/// Returns the packets of `next` up to its first error.
pub fn until_error(
    mut next: impl FnMut() -> Option<anyhow::Result<Arrival>> + 'static,
) -> Arrivals {
    let mut failed = false;
    Box::new(std::iter::from_fn(move || {
        if failed {
            return None;
        }
        let item = next();
        failed = matches!(item, Some(Err(_)));
        item
    }))
}
