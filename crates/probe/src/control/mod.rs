//! The control connection of a measurement between two machines: what is said on it, and the
//! client's side of it. The server is the crate `underload-service`.
//!
//! A client connects to the server's TCP port with TLS 1.3, asks for a session ([`Question`]), and
//! gets it or a reason why not ([`Answer`]). It then proves its UDP address ([`join`]), measures,
//! and hears on the same connection what the server says of the session ([`Notice`]).

mod channel;
pub mod claims;
mod client;
mod error;
mod fingerprint;
pub mod join;
mod message;
pub mod private;
mod trust;

/// Default TCP and UDP port of `underload serve`.
pub const SERVER_PORT: u16 = 4862;

pub use channel::{
    CONVERSATION_MAX, Flagged, LOOK_INTERVAL, Lease, Limited, Watch, prepare, read_message,
    write_message,
};
pub use client::{ConnectOptions, Granted, Remote, SessionNews, next_notice};
pub use error::{ServiceError, in_full};
pub use fingerprint::{Fingerprint, from_hex};
pub use message::{
    Answer, Ask, FLOWS_PER_SESSION_MAX, MESSAGE_MAX, Notice, PROTOCOL, Question, body_len, decode,
    encode,
};
pub use private::read_secret;
pub use trust::{Names, Pin, Trust};
