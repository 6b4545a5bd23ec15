//! A server for `irtt client`: isochronous UDP round trips, protocol version 1 (irtt 0.9).
//!
//! A client opens with its parameters, gets a token and what the server allows, and then sends
//! probes that are answered with time stamps and reception counts.
//!
//! Where it differs from irtt's own server:
//!
//! - **An address is proven before it is answered with more than it sent.** The protocol's open
//!   reply is 8 bytes longer than its request. The first request of an unknown address therefore
//!   draws no answer; irtt's client sends it again after a second, and then the two together pay
//!   for the reply. An address that has used a token is answered at once from then on.
//! - An answer never has more bytes than its request, whatever length was negotiated.
//! - A session that is opened and never used expires after [`IrttLimits::unused_timeout`]; when the
//!   table is full the oldest unused one makes room. Both are for ever in irtt's server.
//! - One open per address and port: a repeated request gets the same token again.
//! - When there is no room the client is told at once ("connection accepted and closed"); irtt's
//!   own server knows no such limit.
//! - Receive time stamps are the kernel's.
//! - Payload is generated here; the only fill that may be asked for is `rand`.

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

/// Limits of what clients may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IrttLimits {
    /// Sessions at once.
    pub sessions_max: usize,
    /// Sessions at once from one network: a /24 of IPv4, a /56 of IPv6.
    pub sessions_per_network_max: usize,
    /// Length of a test.
    pub duration_max: Duration,
    /// From one probe of a session to the next, on average; a burst of five passes.
    pub interval_min: Duration,
    /// Bytes of UDP payload.
    pub length_max: u16,
    /// A session that was used is over when nothing came for this long.
    pub idle_timeout: Duration,
    /// A session that was opened and not used is over after this.
    pub unused_timeout: Duration,
    /// Markings that answers may carry on request.
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

/// How long after its time a test may still send: its schedule may have slipped.
const DURATION_GRACE: Duration = Duration::from_secs(2);
