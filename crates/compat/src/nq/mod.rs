//! Responsiveness under working conditions (draft-ietf-ippm-responsiveness-09): a server for
//! Apple's `networkQuality` and goresponsiveness, and a client of such servers.
//!
//! - [`NqServer`]: the configuration at `/.well-known/nq` and `/config`, one byte at `/small`,
//!   8 GiB at `/large`, and a sink at `/upload`, over HTTP/2 and HTTP/1.1 with TLS 1.3.
//!   [`NqServer::start_page`] serves browsers instead: a page, and the same resources for it.
//! - [`NqClient`]: loads one direction with more and more connections until it is saturated, and
//!   sends probes on the loaded connections and on new ones.
//!
//! The three formulas in use are in [`underload_probe::rpm`].
//!
//! This is the only module with an asynchronous runtime, which the libraries for HTTP/2 require.
//! It does not measure with the precision of the probes in [`underload_probe::endpoint`]; the
//! method is defined in milliseconds.
//!
//! The server differs from others in these points: the time and volume of a connection are limited,
//! so that a `GET` of 8 GiB ends; a connection without a request for a second is closed, because
//! goresponsiveness leaves those of all probes open; connections are limited in total and per
//! network; a rejected client gets 429 with `Retry-After` and the reason. Payload is generated.

mod answer;
mod client;
mod config;
mod connection;
mod lease;
mod page;
mod server;
mod stability;
mod transfer;
mod trust;

use std::time::Duration;

use rustls::pki_types::InvalidDnsNameError;
use underload_probe::control::ServiceError;
use underload_probe::load::LoadError;

pub use client::{NqClient, NqOptions, NqResult};
pub use config::{NqConfig, NqTarget};
#[cfg(feature = "channel")]
pub(crate) use page::OFFER_BYTES_MAX;
pub use page::{Channels, OfferError, Wording};
pub use server::{NqCounts, NqServer};
pub use stability::{INTERVALS, Stability};
pub use trust::NqTrust;

/// The TCP port that the reference server uses.
pub const NQ_PORT: u16 = 4043;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NqLimits {
    pub connections_max: usize,
    /// Open connections of one network (a /24, a /56): a client opens up to 16 for load, and up to
    /// 100 a second for probes.
    pub connections_per_network_max: usize,
    pub duration_max: Duration,
    /// Payload of a connection in both directions together, bytes.
    pub bytes_max: u64,
    /// Flow-control window: unread bytes of uploads that a connection may have, bytes.
    pub window_bytes: u32,
}

impl Default for NqLimits {
    /// 1024 connections, 256 per network, 1 minute, 16 GiB, windows for 1 Gbit/s at 100 ms.
    fn default() -> Self {
        Self {
            connections_max: 1024,
            connections_per_network_max: 256,
            duration_max: Duration::from_mins(1),
            bytes_max: 16 << 30,
            window_bytes: 16 << 20,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NqError {
    #[error("{url:?}: accepted is https://HOST[:PORT][/PATH]")]
    Url { url: String },
    #[error("the configuration of {host}: {what}")]
    Config { host: String, what: &'static str },
    #[error("{step} {host}")]
    Connect {
        /// The step that failed, as the message shows it: "connecting to".
        step: &'static str,
        host: String,
        source: std::io::Error,
    },
    #[error("{step} {host}")]
    Http {
        /// The step that failed, as the message shows it: "reading from".
        step: &'static str,
        host: String,
        source: hyper::Error,
    },
    #[error("{host} answers {status}; 429 is \"too busy\"")]
    Status { host: String, status: u16 },
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
    /// The server's certificate cannot be checked by the given fingerprint.
    #[error(transparent)]
    Pinned(#[from] ServiceError),
    #[error("the system has no certificate authorities; give the server's fingerprint")]
    NoAuthorities,
    #[error("{host:?} is not a valid host name")]
    Name { host: String, source: InvalidDnsNameError },
    #[error("{0}")]
    Nothing(&'static str),
}
