//! The servers for clients of other tools that run beside a measurement server, and what they
//! share of it.

use std::any::Any;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustls::ServerConfig;
use underload_probe::wire::MarkingPolicy;
use underload_service::CompatLedger;

use crate::bind;
#[cfg(feature = "channel")]
use crate::channel::{ChannelLimits, ChannelServer};
use crate::nq::{Channels, NqLimits, NqServer, Wording};
use crate::stamp::{Source, StampConfig, StampServer};

/// The clients of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// networkQuality and other responsiveness clients.
    Nq,
    /// STAMP and TWAMP-light senders.
    Stamp,
    /// Browsers, which get a page that measures.
    Web,
}

impl Tool {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nq => "nq",
            Self::Stamp => "stamp",
            Self::Web => "web",
        }
    }
}

/// The settings of all listeners.
pub struct Listeners {
    /// TLS of the measurement server.
    pub tls: Arc<ServerConfig>,
    /// The STAMP senders that are answered; empty for every sender, on loopback for this machine's.
    pub stamp_from: Vec<Source>,
    pub policy: MarkingPolicy,
    /// The rate of all clients of other tools together, which the ledger enforces.
    pub bit_per_s: u64,
    pub ledger: CompatLedger,
    /// Words the judgements of the page's results.
    pub wording: Wording,
}

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct Listener {
    pub tool: Tool,
    pub address: SocketAddr,
    _server: Box<dyn Any>,
}

type Cause = Box<dyn Error + Send + Sync>;

impl Listeners {
    /// Starts a server for a tool at an address.
    ///
    /// # Errors
    /// Returns an error if the port is taken, or the kernel refuses a socket option or the threads.
    pub fn listen(&self, tool: Tool, at: SocketAddr) -> Result<Listener, Cause> {
        let (server, address) = match tool {
            Tool::Stamp => self.stamp(at)?,
            Tool::Nq | Tool::Web => self.http(tool == Tool::Web, at)?,
        };
        Ok(Listener { tool, address, _server: server })
    }

    fn stamp(&self, at: SocketAddr) -> Result<(Box<dyn Any>, SocketAddr), Cause> {
        let socket = bind::udp(at)?;
        let local = socket.local_addr()?;
        // This server does not use the ledger: the limit keeps even the longest answers below a
        // quarter of the rate.
        let answers = (self.bit_per_s.max(1) / (4 * 8 * 1500)).clamp(20, 10_000) as u32;
        let config = StampConfig {
            packets_per_second_max: answers,
            packets_per_second_per_network_max: answers.div_ceil(5),
            sources: self.sources(at.ip()),
            policy: self.policy,
            ..StampConfig::default()
        };
        Ok((Box::new(StampServer::start(socket, config)?), local))
    }

    fn sources(&self, at: IpAddr) -> Vec<Source> {
        match (self.stamp_from.as_slice(), at) {
            ([], IpAddr::V4(at)) if at.is_loopback() => vec![Source::LOOPBACK_V4],
            ([], IpAddr::V6(at)) if at.is_loopback() => vec![Source::LOOPBACK_V6],
            (named, _) => named.to_vec(),
        }
    }

    /// Listens for responsiveness clients, or for browsers.
    fn http(&self, is_page: bool, at: SocketAddr) -> Result<(Box<dyn Any>, SocketAddr), Cause> {
        let listener = bind::tcp(at)?;
        let at = listener.local_addr()?;
        let base = NqLimits::default();
        // 100 ms at the rate: the window limits uploads to what the server reads.
        let window = (self.bit_per_s.max(1) / 80).clamp(64 << 10, u64::from(base.window_bytes));
        let limits = NqLimits { window_bytes: window as u32, ..base };
        let (tls, ledger) = (&self.tls, self.ledger.clone());
        let server = if is_page {
            let channels = self.channels(at)?;
            NqServer::start_page(listener, tls, limits, ledger, self.wording, channels)?
        } else {
            NqServer::start(listener, tls, limits, ledger)?
        };
        Ok((Box::new(server), at))
    }

    /// Starts data channels for the page's probes, on the UDP port of the same number.
    #[cfg(feature = "channel")]
    fn channels(&self, at: SocketAddr) -> Result<Option<Arc<dyn Channels>>, Cause> {
        let error = |error| format!("the UDP port for its data channels: {error}");
        let socket = bind::udp(at).map_err(error)?;
        let server = ChannelServer::start(socket, ChannelLimits::default(), self.ledger.clone())?;
        Ok(Some(Arc::new(server)))
    }

    /// Without data channels, the page probes with requests.
    #[cfg(not(feature = "channel"))]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as the one above")]
    fn channels(&self, _: SocketAddr) -> Result<Option<Arc<dyn Channels>>, Cause> {
        Ok(None)
    }
}
