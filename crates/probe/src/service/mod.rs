//! Measuring between two machines: a server that may be left running, and the client's side of it.
//!
//! A client connects to the TCP port with TLS 1.3, says what it wants to send and for how long, and
//! gets a **session**: a random token, a lease, rates and a volume. Everything else hangs on it:
//!
//! - probes are answered only at addresses that have a session, which the TCP handshake proved, or
//!   a cookie over UDP; everybody else gets no more bytes than he sent, and a
//!   flood of forged packets allocates nothing;
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

mod allowance;
mod client;
mod compat_share;
mod control;
mod conversation;
mod counters;
mod front;
#[cfg(fuzzing)]
pub mod fuzzing;
mod held;
mod host;
mod identity;
mod join;
mod leases;
mod ledger;
mod line;
mod message;
mod openings;
mod private;
mod quota;
mod server;
mod sessions;
mod share;
mod stamp;
mod token;
mod uses;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use client::{ConnectOptions, Granted, Remote, SessionNews};
pub use compat_share::{CompatLedger, CompatShare};
pub use counters::{ServiceCounts, ServiceState};
pub use identity::{Fingerprint, Identity, Trust};
pub use leases::{LeaseTerms, Leases};
pub use ledger::{Ask, Limits};
pub use line::Line;
pub use private::read_secret;
pub use server::{Access, Service, ServiceConfig};
pub use sessions::FLOWS_PER_SESSION_MAX;
pub use share::TooFast;
pub use token::{TokenKeys, TokenTerms};

/// Why a server or a client of it could not work.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// A socket operation failed.
    #[error("{step}")]
    Socket {
        /// The step that failed, as the message has it: "reading its address".
        step: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// A port cannot be had.
    #[error("{transport} at {address}")]
    Bind {
        /// TCP or UDP.
        transport: &'static str,
        /// Where.
        address: SocketAddr,
        /// The error of the system call.
        source: io::Error,
    },
    /// A file or a folder with secrets cannot be used.
    #[error("{}: {what}", path.display())]
    Keys {
        /// The file, by the path that was opened.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Another server keeps its record here.
    #[error(
        "{}: another server counts the uses of its tokens here; give this one --state with a \
         directory of its own", path.display()
    )]
    InUse {
        /// The record of uses that the other server holds.
        path: PathBuf,
    },
    /// The file of a certificate or of its key cannot be used.
    #[error("{} cannot be used", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What the TLS library found: nothing in PEM, or nothing that it can read.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A certificate of our own could not be made.
    #[error("making a certificate")]
    NewCertificate(#[source] rcgen::Error),
    /// What was given as a fingerprint is none.
    #[error("fingerprint {text:?} is not \"sha256:\" and 64 hexadecimal digits")]
    Fingerprint {
        /// As the user gave it.
        text: String,
    },
    /// The server's UDP port does not answer, or not from here.
    #[error(
        "UDP port {port} of the server does not answer: something in between blocks UDP, or the \
         port is not forwarded"
    )]
    UdpBlocked {
        /// The port that the server named.
        port: u16,
        /// The error of the system call.
        source: io::Error,
    },
    /// A file could not be read or written.
    #[error("{}", path.display())]
    File {
        /// The file, by the path that was opened.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// A line of the file of known servers is not "HOST:PORT sha256:HEX".
    #[error("{}:{line}: not \"HOST:PORT sha256:HEX\"", path.display())]
    KnownServers {
        /// The file, by the path that was opened.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
    },
    /// TLS could not be set up with this certificate, key or name.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
    /// The handshake ended without a certificate of the server.
    #[error("the server showed no certificate")]
    NoCertificate,
    /// The system has no random numbers to give.
    #[error("the system gives no random numbers")]
    Randomness,
    /// The server is not the one that is known under this name.
    #[error(
        "{host} shows the key {seen}, known is {known}: {}",
        remedy(host, known_servers.as_deref())
    )]
    Imposter {
        /// The server, as the user named it.
        host: String,
        /// What it showed.
        seen: Fingerprint,
        /// What it should have shown.
        known: Fingerprint,
        /// The file that remembers it; none where the user named the key.
        known_servers: Option<PathBuf>,
    },
    /// Nobody answers under this name, or not as a server does.
    #[error("no answer from {host} at {address}")]
    NoAnswer {
        /// The server, as the user named it.
        host: String,
        /// At which of its addresses.
        address: SocketAddr,
        /// What became of it.
        source: Box<ServiceError>,
    },
    /// The token is for another server than the one that answered.
    #[error(
        "the token was not sent: it is for the server {named}, and {host} is {seen}; check HOST, \
         or ask whoever runs {host} for a token"
    )]
    TokenForAnother {
        /// The server, as the user named it.
        host: String,
        /// What it showed.
        seen: Fingerprint,
        /// For whom the token is.
        named: Fingerprint,
    },
    /// The token does not say for whom it is, and neither does anything else.
    #[error(
        "the token was not sent: it does not say for which server it is, and {host} was never seen \
         before; give --trust with the server's fingerprint if the token is good"
    )]
    TokenForNobody {
        /// The server, as the user named it.
        host: String,
    },
    /// The user asked to stop.
    #[error("interrupted before a session was granted")]
    Cancelled,
    /// The server has no room now.
    #[error("the server is busy: {reason}; try again in {} s", retry_after.as_secs().max(1))]
    Busy {
        /// In the server's words.
        reason: String,
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
    /// A message of the other end is none of this protocol.
    #[error("the other end is no underload server of this version")]
    Message(#[source] serde_json::Error),
    /// A message or a token of ours could not be written down.
    #[error("writing a message as JSON")]
    Encode(#[source] serde_json::Error),
    /// Part of the server could not start.
    #[error(transparent)]
    Load(#[from] crate::load::LoadError),
    /// Part of the server could not start.
    #[error(transparent)]
    Endpoint(#[from] crate::endpoint::EndpointError),
}

/// What to do where a server's key was replaced on purpose.
fn remedy(host: &str, known_servers: Option<&Path>) -> String {
    match known_servers {
        Some(path) => format!(
            "if it was replaced on purpose, remove the line of {host} from {}",
            path.display()
        ),
        None => "the known one was given by hand: give the other if it was replaced on purpose"
            .to_owned(),
    }
}
