//! The control connection of a measurement between two machines: its messages, and the client. The
//! server is the crate `underload-service`.
//!
//! A client connects to the server's TCP port with TLS 1.3, requests a session ([`Question`]), and
//! receives the session or the reason of a refusal ([`Answer`]). It then proves its UDP address
//! ([`join`]), measures, and receives the server's notices on the same connection ([`Notice`]).

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
    CONVERSATION_MAX, Flagged, LOOK_INTERVAL, Lease, Limited, NoLease, Watch, prepare,
    read_message, write_message,
};
pub use client::{ConnectOptions, Granted, Remote, SessionNews, next_notice};
pub use error::{Result, ServiceError};
pub use fingerprint::{Fingerprint, from_hex};
pub use message::{
    Answer, Ask, FLOWS_PER_SESSION_MAX, MESSAGE_MAX, Notice, PROTOCOL, Question, body_len, decode,
    encode,
};
pub use private::read_secret;
pub use trust::{Pin, Trust};
pub use underload_record::text::in_full;
