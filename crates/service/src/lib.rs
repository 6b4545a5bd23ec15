//! Measuring between two machines: the server, which may be left running. The client's side is
//! [`underload_probe::control`].
//!
//! A client connects to the TCP port with TLS 1.3, says what it wants to send and for how long, and
//! gets a **session**: a random token, a lease, rates and a volume. Everything else hangs on it:
//!
//! - probes are answered only at addresses of a session, which the TCP handshake or a cookie over
//!   UDP has proved; any other sender gets at most as many bytes as it sent, and a flood of forged
//!   packets allocates nothing;
//! - load flows come to the same ports, carry the session's token, come from its address, and end
//!   when the lease or the volume is used up, or when the control connection closes, however it
//!   closes; they are held to the granted rates;
//! - sessions are granted only while the sum of the granted rates stays within the server's, per
//!   direction, while their network leaves something to others, while the line is not busy with
//!   other things, and while their network and their token have quota left; otherwise the client
//!   is told when to come back;
//! - where the operator wants tokens, they are signed, short-lived, and good for a stated number of
//!   sessions, counted across restarts;
//! - where somebody keeps account of many servers, who shows his lease gets what it reserves, and
//!   whoever shows none may probe and no more.
//!
//! The server's certificate is its own; clients pin its fingerprint, given or kept from the first
//! use as with SSH. Probes and load themselves travel in the clear: encrypting them would measure
//! the processor. By default everything binds to loopback. `docs/measure.md` has the bytes.
//!
//! - `identity`: the certificate and its key.
//! - `tokens`: signed tokens, leases, and how often each was used.
//! - `admission`: who may measure now, and what each session may still move.
//! - `front`: the ports, and the conversation on a control connection.

mod admission;
mod front;
#[cfg(fuzzing)]
pub mod fuzzing;
mod identity;
mod random;
mod stamp;
mod tokens;

pub use admission::{CompatLedger, CompatShare, Limits, TooFast};
pub use front::{Access, Service, ServiceConfig, ServiceCounts, ServiceState};
pub use identity::Identity;
pub use tokens::{LeaseTerms, Leases, TokenKeys, TokenTerms};
