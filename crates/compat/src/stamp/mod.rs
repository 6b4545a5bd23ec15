//! A reflector for STAMP and TWAMP-light senders (RFC 8762, RFC 8972, RFC 5357 appendix I).
//!
//! Anybody may forge the source of a datagram. So that a reflector cannot be made to talk to
//! another one, or to send more than it got:
//!
//! - **A reflector's answer is not answered.** It has the time of its arrival where a sender's
//!   packet is zero. Source ports below 1024 (862 is STAMP's) and the reflector's own are not
//!   answered either: services listen there.
//! - **Packets shorter than a base packet**, as TWAMP-light senders send, are answered only to
//!   senders on a list ([`StampConfig::sources`]): the answer is longer, and a cut one could not
//!   be told from a request. Senders on the list may pad with what they like (RFC 5357 recommends
//!   random bytes); others have to keep the zeros that RFC 8762 section 4.2.1 demands.
//! - With a key ([`StampConfig::key`]) only packets with the right digest are answered.
//! - Answers are limited per second in all and per network.

mod gate;
mod server;
mod source;

pub use gate::{Guard, Verdict};
pub use server::{StampCounts, StampServer};
pub use source::Source;

use underload_probe::endpoint::ThreadTiming;
use underload_probe::wire::{MarkingPolicy, StampKey};

/// STAMP's UDP port (RFC 8762 section 4.1).
pub const STAMP_PORT: u16 = 862;

/// Whom a reflector answers, and how much.
#[derive(Clone, Debug)]
pub struct StampConfig {
    /// Answers per second at most, over all senders; a burst of a tenth of it passes.
    pub packets_per_second_max: u32,
    /// Answers per second to one network (a /24 of IPv4, a /56 of IPv6).
    pub packets_per_second_per_network_max: u32,
    /// The senders that are answered; every sender if it is empty.
    pub sources: Vec<Source>,
    /// The key that senders have to sign with, if any.
    pub key: Option<StampKey>,
    /// Which DSCP and ECN values answers may carry.
    pub policy: MarkingPolicy,
    /// Scheduling of the thread.
    pub timing: ThreadTiming,
}

impl Default for StampConfig {
    /// Everybody, 10,000 answers per second, 2,000 of them to one network; harmless markings only.
    fn default() -> Self {
        Self {
            packets_per_second_max: 10_000,
            packets_per_second_per_network_max: 2_000,
            sources: Vec::new(),
            key: None,
            policy: MarkingPolicy::PUBLIC,
            timing: ThreadTiming::default(),
        }
    }
}
