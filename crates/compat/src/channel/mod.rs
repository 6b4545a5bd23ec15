//! Probes of a browser as datagrams: a WebRTC data channel, unordered and never sent again.
//!
//! A page cannot send UDP, but for this: ICE (RFC 8445), DTLS (RFC 6347) and SCTP (RFC 8831) below
//! a channel. [`ChannelServer`] answers a page's offer, which comes by HTTPS, and then its probes
//! on one UDP socket: eight bytes with a number, and back with how many had arrived.
//!
//! - [`Offer`]: what is read of a session description.
//! - `crypto`: DTLS's ciphers and signatures, from ring.
//! - `session`, `echo`: one browser, without sockets; `table`: all of them.
//!
//! The three protocols are read and spoken by the crates `is`, `dimpl` and `sctp-proto`, which know
//! neither sockets nor clocks. It is the lite end of ICE: it never calls anybody, and answers
//! nobody with more bytes than it got who has not shown that he receives.

mod crypto;
mod echo;
#[cfg(fuzzing)]
pub mod fuzzing;
#[cfg(any(test, fuzzing))]
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

/// Limits of what browsers may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelLimits {
    /// Channels at once, those included that were asked for and have not come.
    pub sessions_max: usize,
    /// Of these, from one network: a /24 of IPv4, a /56 of IPv6.
    pub sessions_per_network_max: usize,
    /// Life of a channel, from its offer on.
    pub duration_max: Duration,
    /// Who asked and has no open channel by then loses the place.
    pub setup_max: Duration,
}

impl Default for ChannelLimits {
    /// 64 channels, 8 per network, a minute, 10 s.
    fn default() -> Self {
        Self {
            sessions_max: 64,
            sessions_per_network_max: 8,
            duration_max: Duration::from_mins(1),
            setup_max: Duration::from_secs(10),
        }
    }
}

/// A channel that was silent for so long is over: browsers check it every few seconds.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// A socket or a thread.
    #[error(transparent)]
    Compat(#[from] CompatError),
    /// There is no randomness for a certificate.
    #[error("making a certificate")]
    Certificate(#[source] rcgen::Error),
    /// The ciphers do not work as they should.
    #[error("setting up DTLS")]
    Dtls(#[source] dimpl::Error),
}
