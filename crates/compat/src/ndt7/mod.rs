//! A client of ndt7, the test of M-Lab's public servers: for each direction one TCP connection with
//! TLS and WebSocket, 10 s of load, and the measurements of the sender's kernel.
//!
//! - [`locate`]: asks M-Lab for servers nearby; their URLs are signed for this client.
//! - [`Ndt7Test`]: one direction. Binary messages are the load; in text messages the server reports
//!   its counters ([`Measurement`]).
//!
//! Round trips under load are those of the loading connection itself, smoothed by the sender's
//! kernel. Short peaks do not show, so results are medians and the largest value, without a 99th
//! percentile. No probes run beside the test: the protocol is one connection, and the servers
//! belong to others.
//!
//! The server is not trusted: size and number of messages, the time of each step and of the whole
//! test are limited, and implausible numbers are ignored.

mod channel;
mod client;
mod locate;
mod message;
mod target;

use std::time::Duration;

use underload_probe::load::LoadError;

pub use client::{End, Ndt7Result, Ndt7Test, ServerCount};
pub use locate::{LOCATE_URL, Located, locate, read_located};
pub use message::{MESSAGE_BYTES_MAX, Measurement};
pub use target::Ndt7Target;

use crate::nq::NqError;

/// The WebSocket subprotocol, which both ends name.
pub const SUBPROTOCOL: &str = "net.measurementlab.ndt.v7";
/// Length of a test by the protocol.
pub const DURATION: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Ndt7Error {
    #[error("{text:?}: accepted is {accepted}")]
    Target { text: String, accepted: &'static str },
    #[error("{host}: {what}")]
    Locate { host: String, what: String },
    #[error("asking {host}")]
    Ask { host: String, source: Box<ureq::Error> },
    #[error("{step} {host}")]
    Connect {
        /// The step that failed, as the message shows it: "connecting to".
        step: &'static str,
        host: String,
        source: std::io::Error,
    },
    /// The server does not support ndt7, or rejects the test.
    #[error("requesting an ndt7 test from {host}")]
    WebSocket { host: String, source: Box<tungstenite::Error> },
    #[error("{host}: {what}")]
    Protocol { host: String, what: &'static str },
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Trust(#[from] NqError),
    #[error("{host}: {what}")]
    Nothing { host: String, what: &'static str },
}
