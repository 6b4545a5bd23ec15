//! A site at the server, and the address and options by which a browser reaches it.

use std::net::TcpListener;

use underload_emu::machine::{Ends, SERVER_V4};
use underload_record::schema::{FlowDirection, FlowRecord, Metric};
use underload_scenario::{PageProtocol, Site};

use super::caddy::Caddy;
use super::server::{Content, Server};
use crate::error::{Doing as _, Result};
use crate::world::live::task::record;

/// A running site, which ends when this is dropped.
pub(super) struct Website {
    /// The address of its root, which ends with `/`.
    pub address: String,
    /// Chromium's arguments to reach it.
    pub arguments: Vec<String>,
    server: Server,
    caddy: Option<Caddy>,
    congestion_control: String,
}

impl Website {
    pub(super) fn start(ends: &Ends, site: &Site, content: impl Content) -> Result<Self> {
        let listener = ends
            .server()
            .open(|| TcpListener::bind((SERVER_V4, 0)))
            .doing("opening the site's socket")?;
        let of_server = listener.local_addr().of_world()?;
        let server = Server::start(listener, site, content)?;
        let is_http3 = site.protocol == PageProtocol::Http3;
        let caddy = is_http3.then(|| Caddy::start(ends.server(), of_server)).transpose()?;
        let scheme = match site.protocol {
            PageProtocol::Http1 => "http",
            PageProtocol::Http2 | PageProtocol::Http3 => "https",
        };
        let address = caddy.as_ref().map_or(of_server, |caddy| caddy.address);
        // Without the key Chromium would refuse the certificate, and connect a second time.
        let trust = |key: &String| format!("--ignore-certificate-errors-spki-list={key}");
        let key = caddy.as_ref().map(|caddy| &caddy.key).or(server.key.as_ref());
        // Without an earlier answer that offers HTTP/3, Chromium would speak HTTP/1.1.
        let quic = |caddy: &Caddy| format!("--origin-to-force-quic-on={}", caddy.address);
        let arguments = key.map(trust).into_iter().chain(caddy.as_ref().map(quic));
        Ok(Self {
            address: format!("{scheme}://{address}/"),
            arguments: arguments.collect(),
            server,
            caddy,
            congestion_control: site.congestion_control.clone(),
        })
    }

    /// Returns how many connections the server accepted; `None` if `caddy` accepted them.
    pub(super) fn connections(&self) -> Option<u64> {
        self.caddy.is_none().then(|| self.server.connections())
    }

    /// Returns the record of a flow from this site.
    pub(super) fn record(&self, name: &str, kind: &str, metrics: Vec<Metric>) -> FlowRecord {
        FlowRecord {
            congestion_control: self.caddy.is_none().then(|| self.congestion_control.clone()),
            ..record(name.to_owned(), kind, FlowDirection::Both, metrics)
        }
    }
}
