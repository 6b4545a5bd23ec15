//! The server for measurements between two machines. The client is [`underload_probe::control`].
//!
//! A client connects to the TCP port with TLS 1.3, states the rates and the duration that it wants,
//! and receives a **session**: a random token, a lease, rates and a volume. All traffic belongs to
//! a session:
//!
//! - probes are answered only at addresses of a session, which the TCP handshake or a cookie over
//!   UDP has proved; any other sender receives at most as many bytes as it sent, and a flood of
//!   forged packets allocates nothing;
//! - load flows use the same ports, carry the session's token, come from its address, are limited
//!   to the granted rates, and end when the lease or the volume ends or the control connection
//!   closes;
//! - a session is granted only while the granted rates fit the server's capacity per direction, its
//!   network leaves capacity to others, the line has capacity beside other traffic, and its network
//!   and its token have quota left; otherwise the server answers when to retry;
//! - tokens, if the operator requires them, are signed, short-lived, and good for a stated number
//!   of sessions, counted across restarts;
//! - if an orchestrator reserves capacity at many servers, a client with a lease gets its reserved
//!   rates, and a client without one may only probe.
//!
//! The server's certificate is self-signed; clients pin its fingerprint, given by the user or
//! stored at the first use as with SSH. Probes and load are not encrypted: encryption would measure
//! the processor. By default all sockets bind to loopback. `docs/contributing/measure.md` describes
//! the bytes.
//!
//! - `identity`: the certificate and its key.
//! - `tokens`: signed tokens, leases, and the number of uses of each.
//! - `admission`: who may measure now, and what is left of each session's rates and volume.
//! - `front`: the ports, and the conversation on a control connection.

mod admission;
mod front;
#[cfg(feature = "fuzzing")]
#[path = "../tests/support/fuzzing.rs"]
pub mod fuzzing;
mod identity;
mod random;
mod stamp;
mod tokens;

pub use admission::{CompatLedger, CompatShare, Limits, TooFast};
pub use front::{Access, Service, ServiceConfig, ServiceCounts, ServiceState};
pub use identity::Identity;
pub use tokens::{LeaseTerms, Leases, TokenKeys, TokenTerms};
