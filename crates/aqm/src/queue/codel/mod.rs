//! CoDel, Controlled Delay (RFC 8289), in three profiles.
//!
//! # Principle
//! A queue that drains within a round trip is useful; a standing queue is only delay. CoDel
//! observes the *minimum* sojourn over a sliding `interval`: once every packet of an interval has
//! waited `target` or longer, it drops (or marks) a packet at the head, and the next one `interval
//! / sqrt(count)` later, at shorter and shorter distances until a packet has waited less than
//! `target`. A queue with at most one packet behind the head (`guard_bytes`) is never signalled.
//!
//! # Parameters
//! RFC 8289: `target` is of section 4.3, `interval` of 4.2, `mtu` of 5.3, `ecn` of 3.
//!
//! # Where the profiles differ
//! | point | [`Rfc`] | [`Linux`] (6.12) | [`Mahimahi`] |
//! |---|---|---|---|
//! | clock | nanoseconds | 32-bit ticks of 1024 ns, compared across the wrap | whole milliseconds |
//! | interval is over | `now >= first_above` | `now > first_above` | `now >= first_above` |
//! | guard looks at | this queue | the whole discipline | this queue |
//! | 1/sqrt(count) | exact, rounded down to 1 ns | 16 bits, one Newton step per count | exact, rounded down to 1 ms |
//! | who is dropped | the head | the head | the *follower*; the head is delivered |
//! | ECN | one mark per dequeue | one mark per dequeue | none |
//!
//! The RFC says "mark instead" and not how often. Marking a packet twice has no effect, so a mark
//! ends the dequeue as in Linux.
//!
//! # How it is validated
//! `linux` and `mahimahi` are compared packet by packet with the kernel's and Mahimahi's own code
//! over four scripts, and `rfc` with the drop times of the section 5 pseudo-code in exact
//! arithmetic; the law suite tests all of them. See `docs/queues/codel.md`.

mod law;
mod linux;
mod mahimahi;
mod params;
mod rfc;

pub use law::{Arithmetic, Codel};
pub use linux::Linux;
pub use mahimahi::Mahimahi;
pub(crate) use params::{
    CE_THRESHOLD, DEFINITION, ECN, INTERVAL, MTU, TARGET, ce_threshold, configure,
};
pub use params::{CodelProfile, CodelQueue};
pub use rfc::Rfc;

use crate::config::from_values;
use crate::time::Span;

from_values! {
    /// The parameters of CoDel, by the names of RFC 8289.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CodelConfig(values) {
        /// Acceptable standing sojourn (section 4.3).
        pub target: Span = values.get(TARGET),
        /// Window of the minimum sojourn (section 4.2).
        pub interval: Span = values.get(INTERVAL),
        /// No signal while at most this many bytes are left behind the head.
        pub guard_bytes: u32 = values.get(MTU) as u32,
        /// Whether ECN-capable packets are marked instead of dropped.
        pub ecn: bool = values.get(ECN),
    }
}

/// Returns `interval / sqrt(count)`, rounded down to the unit of `interval`. Exact: the square root
/// of a quotient rounded down is the rounded-down square root of the quotient.
fn spacing(interval: u64, count: u32) -> u64 {
    let interval = u128::from(interval);
    (interval * interval / u128::from(count.max(1))).isqrt() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spacing_is_the_exact_quotient_rounded_down() {
        let expected = [100_000_000, 70_710_678, 57_735_026, 50_000_000, 44_721_359];
        for (count, nanos) in (1..).zip(expected) {
            assert_eq!(spacing(100_000_000, count), nanos, "count {count}");
        }
        for count in 1..10_000 {
            let spaced = u128::from(spacing(50, count));
            let exceeds = |root: u128| root * root * u128::from(count) > 2_500;
            assert!(!exceeds(spaced) && exceeds(spaced + 1), "count {count}: {spaced}");
        }
    }
}
