//! Requests over TLS with little work, because the load shares the machine with the server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, version};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

#[derive(Clone)]
pub struct Target {
    address: SocketAddr,
    tls: TlsConnector,
    name: ServerName<'static>,
}

pub struct Connection {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub retry_after_s: Option<u64>,
    pub body: Vec<u8>,
}

impl Target {
    pub fn new(address: SocketAddr, certificate: &CertificateDer<'static>) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost")?;
        Ok(Self { address, tls: TlsConnector::from(Arc::new(config)), name })
    }

    /// Connects from an address of the loopback network.
    pub async fn connect(&self, from: Ipv4Addr) -> io::Result<Connection> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((IpAddr::V4(from), 0).into())?;
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        let stream = self.tls.connect(self.name.clone(), stream).await?;
        Ok(Connection { stream, buffer: Vec::with_capacity(4_096) })
    }
}

impl Connection {
    /// Sends a request and reads its answer, which must have a `Content-Length`.
    pub async fn ask(&mut self, request: &[u8]) -> io::Result<Answer> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        self.buffer.clear();
        loop {
            if let Some((answer, _)) = parse(&self.buffer)? {
                return Ok(answer);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// Parses the answer at the start of `bytes` once it is complete. Also returns its length.
fn parse(bytes: &[u8]) -> io::Result<Option<(Answer, usize)>> {
    let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") else { return Ok(None) };
    let bad = || io::Error::from(io::ErrorKind::InvalidData);
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| bad())?;
    let status = head.get(9..12).and_then(|it| it.parse().ok()).ok_or_else(bad)?;
    let header = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(it, _)| it.eq_ignore_ascii_case(name)).find_map(|(_, it)| it.parse().ok())
    };
    let length = header("content-length").ok_or_else(bad)? as usize;
    let Some(body) = bytes.get(end + 4..end + 4 + length) else { return Ok(None) };
    let answer = Answer { status, retry_after_s: header("retry-after"), body: body.to_vec() };
    Ok(Some((answer, end + 4 + length)))
}
