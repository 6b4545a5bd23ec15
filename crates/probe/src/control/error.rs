//! Why a session could not be had or a server not run.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fingerprint::Fingerprint;

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
    NewCertificate(#[source] Box<dyn std::error::Error + Send + Sync>),
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

impl ServiceError {
    /// The file of a certificate or of its key, and what the TLS library found in it.
    pub fn certificate(
        path: &Path,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Certificate { path: path.to_owned(), source: Box::new(source) }
    }
}

/// An error with its reasons.
pub fn in_full(error: &ServiceError) -> String {
    let mut words = error.to_string();
    let mut reason = std::error::Error::source(error);
    while let Some(error) = reason {
        words = format!("{words}: {error}");
        reason = error.source();
    }
    words
}
