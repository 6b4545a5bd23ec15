//! A client of ndt7, the test of M-Lab's public servers: one TCP connection with TLS and WebSocket
//! each way, 10 s, and what the sender's kernel knows of it.
//!
//! - [`locate`]: asks M-Lab which servers are near; its URLs are signed for this client.
//! - [`Ndt7Test`]: one direction. Messages carry the load; beside them the server tells what it has
//!   counted ([`Measurement`]).
//!
//! Round trips under load are those of the loading connection itself, as the kernel of the end that
//! sends smooths them: a short peak does not show, so there are medians and the largest reading and
//! no 99th percentile. Nothing is probed beside: the protocol is one connection, and these servers
//! are other people's.
//!
//! The other end may be anybody: each message, their number, the time of each step and of the whole
//! test are limited, and no number is believed that a line cannot have.

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
/// How long a test lasts by the protocol.
pub const DURATION: Duration = Duration::from_secs(10);

/// Why an ndt7 test failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Ndt7Error {
    /// The text names no ndt7 server.
    #[error("{text:?}: accepted is {accepted}")]
    Target {
        /// The text, shortened.
        text: String,
        /// What is accepted.
        accepted: &'static str,
    },
    /// The locate service has nobody, or its answer is none.
    #[error("{host}: {what}")]
    Locate {
        /// The host of the locate service.
        host: String,
        /// What is wrong with its answer.
        what: String,
    },
    /// The locate service could not be asked.
    #[error("asking {host}")]
    Ask {
        /// The host of the locate service.
        host: String,
        /// The error of the HTTP library.
        source: Box<ureq::Error>,
    },
    /// The network said no.
    #[error("{step} {host}")]
    Connect {
        /// The step that failed, as the message has it: "connecting to".
        step: &'static str,
        /// The server.
        host: String,
        /// The error of the system call.
        source: std::io::Error,
    },
    /// The server is no ndt7 server, or does not want to test.
    #[error("{host} is asked for an ndt7 test")]
    WebSocket {
        /// The server.
        host: String,
        /// The error of the WebSocket library.
        source: Box<tungstenite::Error>,
    },
    /// The other end broke the protocol.
    #[error("{host}: {what}")]
    Protocol {
        /// The server.
        host: String,
        /// What it did.
        what: &'static str,
    },
    /// This machine's TCP does not send as it is asked to.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// TLS cannot be set up, or nobody can be believed.
    #[error(transparent)]
    Trust(#[from] NqError),
    /// The test ended before anything was measured.
    #[error("{host}: {what}")]
    Nothing {
        /// The server.
        host: String,
        /// Why.
        what: &'static str,
    },
}
