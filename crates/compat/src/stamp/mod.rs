//! A reflector for STAMP and TWAMP-light senders (RFC 8762, RFC 8972, RFC 5357 appendix I).
//!
//! The source of a datagram may be forged. To prevent that two reflectors answer each other, or
//! that a reflector sends more than it receives:
//!
//! - **A reflector's answer is not answered.** It has the time of its arrival where a sender's
//!   packet is zero. Packets from ports below 1024 (862 is STAMP's) and from the reflector's own
//!   port are not answered either, because services listen there.
//! - **Packets shorter than a base packet**, which TWAMP-light senders send, are answered only for
//!   listed senders ([`StampConfig::sources`]): the answer is longer, and a truncated one would
//!   look like a request. Listed senders may use any padding (RFC 5357 recommends random bytes);
//!   others must send the zeros that RFC 8762 section 4.2.1 demands.
//! - Answers are limited per second in all and per network.

mod gate;
mod server;
mod source;

pub use gate::{Guard, Verdict};
pub use server::{StampCounts, StampServer};
pub use source::Source;

use underload_probe::endpoint::ThreadTiming;
use underload_probe::wire::MarkingPolicy;

/// STAMP's UDP port (RFC 8762 section 4.1).
pub const STAMP_PORT: u16 = 862;

/// The senders, limits and markings of a reflector.
#[derive(Clone, Debug)]
pub struct StampConfig {
    /// Answers per second to all senders; a burst of a tenth of a second passes.
    pub packets_per_second_max: u32,
    /// Answers per second to one network (a /24 of IPv4, a /56 of IPv6).
    pub packets_per_second_per_network_max: u32,
    /// The senders that are answered; empty for every sender.
    pub sources: Vec<Source>,
    /// The DSCP and ECN values that answers may carry.
    pub policy: MarkingPolicy,
    pub timing: ThreadTiming,
}

impl Default for StampConfig {
    /// Answers every sender, up to 10,000 times per second and 2,000 times per network, with the
    /// markings of [`MarkingPolicy::PUBLIC`].
    fn default() -> Self {
        Self {
            packets_per_second_max: 10_000,
            packets_per_second_per_network_max: 2_000,
            sources: Vec::new(),
            policy: MarkingPolicy::PUBLIC,
            timing: ThreadTiming::default(),
        }
    }
}
