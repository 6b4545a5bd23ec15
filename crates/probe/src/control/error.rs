//! Errors of a server and of its clients.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fingerprint::Fingerprint;

/// The result of talking to a server, or of its keys and files.
pub type Result<T, E = ServiceError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error("{step}")]
    Socket { step: &'static str, source: io::Error },
    #[error("{transport} at {address}")]
    Bind { transport: &'static str, address: SocketAddr, source: io::Error },
    /// A file or a folder with secrets cannot be used.
    #[error("{}: {what}", path.display())]
    Keys { path: PathBuf, what: String },
    #[error(
        "{}: another server counts the uses of its tokens here; start this server with --state and \
         another directory", path.display()
    )]
    InUse { path: PathBuf },
    #[error("{} cannot be used", path.display())]
    Certificate {
        path: PathBuf,
        /// The TLS library's error: the file has no PEM section, or one that it cannot parse.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("making a certificate")]
    NewCertificate(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("fingerprint {text:?} is not \"sha256:\" and 64 hexadecimal digits")]
    Fingerprint { text: String },
    #[error(
        "UDP port {port} of the server does not answer: something on the path blocks UDP, or the \
         port is not forwarded"
    )]
    UdpBlocked { port: u16, source: io::Error },
    #[error("{}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}:{line}: not \"HOST:PORT sha256:HEX\"", path.display())]
    KnownServers { path: PathBuf, line: usize },
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
    #[error("the server showed no certificate")]
    NoCertificate,
    #[error("the system's source of random numbers failed")]
    Randomness,
    /// The server's key differs from the key that is known for this name.
    /// The server is not the one that is known under this name.
    #[error(
        "{host} shows the key {seen}, but its known key is {known}: {}",
        remedy(host, known_servers.as_deref())
    )]
    Imposter {
        host: String,
        seen: Fingerprint,
        known: Fingerprint,
        /// The file that has the known key; `None` if the user gave the key.
        known_servers: Option<PathBuf>,
    },
    /// No address answered, or the one that answered did not complete the conversation.
    #[error("no answer from {host} at {address}")]
    NoAnswer { host: String, address: SocketAddr, source: Box<ServiceError> },
    #[error(
        "the token was not sent: it is for the server {named}, and {host} is {seen}; check HOST, \
         or ask the operator of {host} for a token"
    )]
    TokenForAnother {
        host: String,
        seen: Fingerprint,
        /// The server that the token names.
        named: Fingerprint,
    },
    #[error(
        "the token was not sent: it names no server, and the key of {host} is not known yet; give \
         --trust with the server's fingerprint if the token is for {host}"
    )]
    TokenForNobody { host: String },
    #[error("interrupted before a session was granted")]
    Cancelled,
    #[error("the server is busy: {reason}; try again in {} s", retry_after.as_secs().max(1))]
    Busy {
        reason: String,
        /// Time until the end of a lease, with jitter so that clients do not all return at once.
        retry_after: Duration,
    },
    /// The server never grants this.
    #[error("the server refuses: {reason}")]
    Refused { reason: String },
    #[error("the other end is no underload server of this version: {what}")]
    Protocol { what: String },
    #[error("the other end is no underload server of this version")]
    Message(#[source] serde_json::Error),
    #[error("writing a message as JSON")]
    Encode(#[source] serde_json::Error),
    #[error(transparent)]
    Load(#[from] crate::load::LoadError),
    #[error(transparent)]
    Endpoint(#[from] crate::endpoint::EndpointError),
}

/// Returns what to do if the server's key was replaced on purpose.
fn remedy(host: &str, known_servers: Option<&Path>) -> String {
    match known_servers {
        Some(path) => format!(
            "if it was replaced on purpose, remove the line of {host} from {}",
            path.display()
        ),
        None => "if it was replaced on purpose, give its new fingerprint instead".to_owned(),
    }
}

impl ServiceError {
    /// Returns [`ServiceError::Certificate`] with the TLS library's error.
    pub fn certificate(
        path: &Path,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Certificate { path: path.to_owned(), source: Box::new(source) }
    }
}
