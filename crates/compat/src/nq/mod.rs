//! Responsiveness under working conditions (draft-ietf-ippm-responsiveness-09): the server that
//! Apple's `networkQuality` and goresponsiveness test against, and a client of such servers.
//!
//! - [`NqServer`]: the configuration at `/.well-known/nq` and `/config`, one byte at `/small`,
//!   much at `/large`, and a sink at `/upload`, over HTTP/2 and HTTP/1.1 with TLS 1.3.
//!   [`NqServer::start_page`] serves browsers instead: a page, and the same resources for it.
//! - [`NqClient`]: loads one direction with ever more connections until it is saturated, probes on
//!   the loaded connections and on fresh ones.
//!
//! The three formulas that are in use are in [`underload_probe::rpm`].
//!
//! This is the only module with an asynchronous runtime: HTTP/2 multiplexes streams over one
//! connection, and the libraries that do it well are built on one. Nothing here measures with the
//! precision of the probes in [`underload_probe::endpoint`]; the method is defined in milliseconds.
//!
//! Where the server differs from others: a connection has a lease (time and volume), so that a
//! `GET` of 8 GiB is not for anyone for ever; one that is not used for a second is closed, because
//! goresponsiveness leaves every probe's open; connections are limited in all and per network; who
//! is too much is told 429 with `Retry-After`, and why in words. Payload is generated here.

mod answer;
mod client;
mod config;
mod connection;
mod page;
mod server;
mod stability;
mod trust;

use std::time::Duration;

use rustls::pki_types::InvalidDnsNameError;
use underload_probe::control::ServiceError;
use underload_probe::load::LoadError;

pub use client::{NqClient, NqOptions, NqResult};
pub use config::{NqConfig, NqTarget};
#[cfg(feature = "channel")]
pub(crate) use page::OFFER_BYTES_MAX;
pub use page::{Channels, OfferError};
pub use server::{NqCounts, NqServer, NqStartError};
pub use stability::{INTERVALS, Stability};
pub use trust::NqTrust;

/// The TCP port that the reference server uses.
pub const NQ_PORT: u16 = 4043;

/// Limits of what clients of the server may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NqLimits {
    /// Connections at once.
    pub connections_max: usize,
    /// Connections at once from one network (a /24, a /56): a client opens up to 16 to load, and up
    /// to 100 a second to probe.
    pub connections_per_network_max: usize,
    /// Life of a connection.
    pub duration_max: Duration,
    /// Payload of a connection, both ways together, bytes.
    pub bytes_max: u64,
    /// What a connection may send ahead of what was read of its uploads, bytes.
    pub window_bytes: u32,
}

impl Default for NqLimits {
    /// 1024 connections, 256 per network, a minute, 16 GiB, windows for 1 Gbit/s at 100 ms.
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

/// Why a responsiveness test failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NqError {
    /// The URL is not one of a responsiveness server.
    #[error("{url:?}: accepted is https://HOST[:PORT][/PATH]")]
    Url {
        /// The URL that the user gave.
        url: String,
    },
    /// The server's answer is no configuration.
    #[error("the configuration of {host}: {what}")]
    Config {
        /// The server, as the user named it.
        host: String,
        /// What is wrong in the server's answer.
        what: &'static str,
    },
    /// The network said no.
    #[error("{step} {host}")]
    Connect {
        /// The step that failed, as the message has it: "reading its address".
        step: &'static str,
        /// The server, as the user named it.
        host: String,
        /// The error of the system call.
        source: std::io::Error,
    },
    /// HTTP failed.
    #[error("{step} {host}")]
    Http {
        /// The step that failed, as the message has it: "reading its address".
        step: &'static str,
        /// The server, as the user named it.
        host: String,
        /// The error of the HTTP library.
        source: hyper::Error,
    },
    /// The server answered with another status than 200.
    #[error("{host} answers {status}; 429 is \"too busy\"")]
    Status {
        /// The server, as the user named it.
        host: String,
        /// HTTP status.
        status: u16,
    },
    /// This machine's TCP does not send as it is asked to.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
    /// The server cannot be believed by the fingerprint given.
    #[error(transparent)]
    Pinned(#[from] ServiceError),
    /// There is no certificate authority to trust.
    #[error("the system has no certificate authorities; give the server's fingerprint")]
    NoAuthorities,
    /// A certificate cannot be for the host.
    #[error("{host:?} is no name for a certificate")]
    Name {
        /// The host of the URL.
        host: String,
        /// What is wrong with the name.
        source: InvalidDnsNameError,
    },
    /// The test ended before anything was measured.
    #[error("{0}")]
    Nothing(&'static str),
}
