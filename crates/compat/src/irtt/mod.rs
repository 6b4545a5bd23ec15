//! A server for `irtt client`: isochronous UDP round trips, protocol version 1 (irtt 0.9).
//!
//! A client opens a session with its parameters, receives a token and the allowed parameters, and
//! then sends probes, which are answered with time stamps and reception counts.
//!
//! Differences from irtt's own server:
//!
//! - **An address must be proven before it receives more than it sent.** The protocol's open reply
//!   is 8 bytes longer than its request. The first request of an unknown address is therefore not
//!   answered; irtt's client repeats it after a second, and both requests together allow the reply.
//!   An address that has used a token is answered at once from then on.
//! - An answer is never longer than its request, whatever length was negotiated.
//! - A session that is opened and never used expires after [`IrttLimits::unused_timeout`]; when the
//!   table is full the oldest unused one is removed. In irtt's server both last forever.
//! - One open session per address and port: a repeated request gets the same token again.
//! - When no session is free the client gets a rejection at once ("connection accepted and
//!   closed"); irtt's own server has no such limit.
//! - Receive time stamps are the kernel's.
//! - Payload is generated here; the only fill that a client can request is `rand`.

mod address;
mod answer;
mod packet;
mod parameters;
mod responder;
mod server;
mod session;

use std::time::Duration;

use underload_probe::wire::MarkingPolicy;

pub use packet::{Request, RequestKind};
pub use parameters::{Parameters, ParametersError};
pub use responder::{Responder, ResponderReply};
pub use server::{IrttCounts, IrttServer};

/// The UDP port that irtt's client sends to.
pub const IRTT_PORT: u16 = 2112;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IrttLimits {
    pub sessions_max: usize,
    /// A network is a /24 of IPv4 or a /56 of IPv6.
    pub sessions_per_network_max: usize,
    /// Longest test that a client may request.
    pub duration_max: Duration,
    /// Shortest mean interval between probes of a session; a burst of five passes.
    pub interval_min: Duration,
    /// Largest UDP payload that is accepted, bytes.
    pub length_max: u16,
    /// A used session ends when nothing arrives for this long.
    pub idle_timeout: Duration,
    /// An unused session ends after this.
    pub unused_timeout: Duration,
    pub policy: MarkingPolicy,
}

impl Default for IrttLimits {
    /// 64 sessions, 8 per network, ten minutes, 1 ms, an Ethernet packet.
    fn default() -> Self {
        Self {
            sessions_max: 64,
            sessions_per_network_max: 8,
            duration_max: Duration::from_mins(10),
            interval_min: Duration::from_millis(1),
            length_max: 1472,
            idle_timeout: Duration::from_mins(1),
            unused_timeout: Duration::from_secs(10),
            policy: MarkingPolicy::PUBLIC,
        }
    }
}

/// How long a test may send after its time: its schedule may be late.
const DURATION_GRACE: Duration = Duration::from_secs(2);
