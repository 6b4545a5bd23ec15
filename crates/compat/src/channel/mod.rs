//! Probes of a browser as datagrams: a WebRTC data channel, unordered and without retransmission.
//!
//! WebRTC is the only way for a page to send UDP: ICE (RFC 8445), DTLS (RFC 6347) and SCTP
//! (RFC 8831) below a data channel. [`ChannelServer`] answers a page's offer, which comes by HTTPS,
//! and then its probes on one UDP socket: a probe has a number, the answer also the count of probes
//! that had arrived.
//!
//! - [`Offer`]: the parts of a session description that the server needs.
//! - `crypto`: DTLS's ciphers and signatures, from ring.
//! - `session`, `echo`: one browser, without sockets; `table`: all of them.
//!
//! The crates `is`, `dimpl` and `sctp-proto` implement the three protocols without sockets or
//! clocks. The server is an ICE-lite agent: it never sends first. An address that has not proven
//! that it receives gets no more bytes than it sent.

mod crypto;
mod echo;
#[cfg(feature = "fuzzing")]
#[path = "../../tests/support/fuzzing.rs"]
pub mod fuzzing;
#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../tests/support/harness.rs"]
mod harness;
mod sdp;
mod server;
mod session;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use sdp::Offer;
pub use server::{ChannelCounts, ChannelServer};

use crate::CompatError;
use crate::nq::OfferError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelLimits {
    /// Channels at once, including those whose browser has not connected yet.
    pub sessions_max: usize,
    /// Channels at once of one network: a /24 of IPv4, a /56 of IPv6.
    pub sessions_per_network_max: usize,
    /// Longest life of a channel, from its offer on.
    pub duration_max: Duration,
    /// A browser without an open channel after this time loses its place.
    pub setup_max: Duration,
}

impl Default for ChannelLimits {
    /// 64 channels, 8 per network, 1 minute, 10 s.
    fn default() -> Self {
        Self {
            sessions_max: 64,
            sessions_per_network_max: 8,
            duration_max: Duration::from_mins(1),
            setup_max: Duration::from_secs(10),
        }
    }
}

/// A channel without a datagram for this long ends; browsers check it every few seconds.
const IDLE_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    #[error(transparent)]
    Compat(#[from] CompatError),
    #[error("making a certificate")]
    Certificate(#[source] rcgen::Error),
    #[error("setting up DTLS")]
    Dtls(#[source] dimpl::Error),
}
