//! Measuring between two machines: a server that may be left running, and the client's side of it.
//!
//! A client connects to the control port with TLS 1.3, says what it wants to send and for how long,
//! and gets a **session**: a random token, a lease and a volume. Everything else hangs on the
//! session:
//!
//! - the reflector answers probes only from addresses that have a session, which the TCP handshake
//!   of the control connection proved; everybody else gets no octet back, so nothing is amplified
//!   and a flood of forged packets allocates nothing;
//! - the load server accepts only flows that carry the session's token and come from its address,
//!   and ends them when the lease or the volume is used up, or when the control connection closes,
//!   however it closes;
//! - sessions are granted only while the sum of the declared rates stays within the server's, per
//!   direction; otherwise the client is told when to come back.
//!
//! The server's certificate is its own; clients pin its fingerprint, given or kept from the first
//! use as with SSH. Probes and load themselves travel in the clear: encrypting them would measure
//! the processor. By default everything binds to loopback.
//!
//! A client behind an address translator that gives TCP and UDP different addresses gets no answers
//! to its probes.

mod client;
mod control;
mod identity;
mod ledger;
mod message;
mod server;
mod sessions;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub use client::{ConnectOptions, Remote};
pub use identity::{Fingerprint, Identity, Trust};
pub use ledger::{Ask, Limits};
pub use server::{Service, ServiceConfig, ServiceCounts};
pub(crate) use sessions::{Sessions, Share};

/// Why a server or a client of it could not work.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// A socket operation failed.
    #[error("{step}")]
    Socket {
        /// What was being done.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file could not be read or written.
    #[error("{}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A line of the file of known servers is not "HOST:PORT sha256:HEX".
    #[error("{}:{line}: not \"HOST:PORT sha256:HEX\"", path.display())]
    KnownServers {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
    },
    /// Certificates or keys could not be made or used.
    #[error("TLS: {0}")]
    Tls(String),
    /// The server is not the one that is known under this name.
    #[error(
        "{host} has the certificate {seen}, known is {known}: if it was replaced on purpose, remove \
         the old line from the file of known servers"
    )]
    Imposter {
        /// Who was asked.
        host: String,
        /// What it showed.
        seen: Fingerprint,
        /// What it should have shown.
        known: Fingerprint,
    },
    /// The server has no room now.
    #[error("the server is busy: try again in {} s", retry_after.as_secs())]
    Busy {
        /// When a lease ends, with some chance added so that not all come back at once.
        retry_after: Duration,
    },
    /// The server never grants this.
    #[error("the server refuses: {reason}")]
    Refused {
        /// In the server's words.
        reason: String,
    },
    /// The other end does not speak this protocol.
    #[error("the other end is no underload server of this version: {what}")]
    Protocol {
        /// What was wrong.
        what: String,
    },
    /// Part of the server could not start.
    #[error(transparent)]
    Load(#[from] crate::load::LoadError),
    /// Part of the server could not start.
    #[error(transparent)]
    Endpoint(#[from] crate::endpoint::EndpointError),
}
