//! One connection of the client: TCP, TLS, HTTP/2, each step timed.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::{ACCEPT_ENCODING, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::NqError;
use super::answer::Content;
use super::config::{CONFIG_BYTES_MAX, NqTarget};

/// A connection, and what its handshakes took.
pub(super) struct Connection {
    pub sender: SendRequest<Content>,
    pub tcp: Duration,
    pub tls: Duration,
    /// A second handle to the connection's socket, for `TCP_INFO`.
    pub socket: OwnedFd,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// What the steps of a probe on a fresh connection took, ns: TCP, TLS, HTTP.
pub(super) struct FreshProbe(pub u64, pub u64, pub u64);

/// Name, addresses and trust of the server to connect to.
#[derive(Clone)]
pub(super) struct Peer {
    pub address: SocketAddr,
    pub target: NqTarget,
    pub tls: Arc<ClientConfig>,
}

/// A step that takes longer than this has failed.
pub(super) const STEP_MAX: Duration = Duration::from_secs(10);
const STREAM_WINDOW: u32 = 8 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

impl Peer {
    pub(super) async fn connect(&self) -> Result<Connection, NqError> {
        let host = || self.target.authority();
        let failed =
            |step| move |source: io::Error| NqError::Connect { step, host: host(), source };
        let late = |step| {
            move |_| NqError::Connect { step, host: host(), source: io::ErrorKind::TimedOut.into() }
        };
        let name = ServerName::try_from(self.target.host.clone())
            .map_err(|source| NqError::Name { host: self.target.host.clone(), source })?;
        let start = Instant::now();
        let stream = timeout(STEP_MAX, TcpStream::connect(self.address)).await;
        let stream = stream.map_err(late("connecting to"))?.map_err(failed("connecting to"))?;
        let tcp = start.elapsed();
        stream.set_nodelay(true).map_err(failed("connecting to"))?;
        let socket = stream.as_fd().try_clone_to_owned().map_err(failed("connecting to"))?;
        let start = Instant::now();
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let stream = timeout(STEP_MAX, connector.connect(name, stream)).await;
        let stream = stream
            .map_err(late("the TLS handshake with"))?
            .map_err(failed("the TLS handshake with"))?;
        let tls = start.elapsed();
        let mut http = Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let (sender, connection) =
            http.handshake(TokioIo::new(stream)).await.map_err(|source| NqError::Http {
                step: "the HTTP/2 opening with",
                host: host(),
                source,
            })?;
        // Its failures show on the requests.
        let driver = tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Connection { sender, tcp, tls, socket, driver })
    }

    /// Sends a request; the answer's head, if its status is 200.
    pub(super) async fn ask(
        &self,
        sender: &mut SendRequest<Content>,
        method: Method,
        path: &str,
        body: Content,
    ) -> Result<Response<Incoming>, NqError> {
        let failed = |source| self.http("asking", source);
        let request = Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.target.authority()))
            .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
            .header(
                USER_AGENT,
                HeaderValue::from_static(concat!("underload/", env!("CARGO_PKG_VERSION"))),
            )
            .body(body)
            .map_err(|_| NqError::Url { url: path.to_owned() })?;
        sender.ready().await.map_err(failed)?;
        let response = sender.send_request(request).await.map_err(failed)?;
        let status = response.status().as_u16();
        if status == 200 {
            return Ok(response);
        }
        Err(NqError::Status { host: self.target.authority(), status })
    }

    pub(super) fn http(&self, step: &'static str, source: hyper::Error) -> NqError {
        NqError::Http { step, host: self.target.authority(), source }
    }

    /// A whole answer, if it is short.
    pub(super) async fn fetch(
        &self,
        sender: &mut SendRequest<Content>,
        path: &str,
    ) -> Result<Bytes, NqError> {
        let body = Content::Ready(None);
        let response = self.ask(sender, Method::GET, path, body).await?;
        let mut incoming = response.into_body();
        let mut bytes = Vec::new();
        while let Some(frame) = incoming.frame().await {
            let frame = frame.map_err(|source| self.http("reading from", source))?;
            bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            if bytes.len() > CONFIG_BYTES_MAX {
                let (host, what) = (self.target.authority(), "it is longer than 64 KiB");
                return Err(NqError::Config { host, what });
            }
        }
        Ok(bytes.into())
    }

    /// A request for the small resource on a connection that exists: its time, ns.
    pub(super) async fn probe(
        &self,
        sender: &mut SendRequest<Content>,
        path: &str,
    ) -> Result<u64, NqError> {
        let start = Instant::now();
        self.fetch(sender, path).await?;
        Ok(ns(start.elapsed()))
    }

    /// Times a request on a new connection: TCP, TLS and HTTP separately.
    pub(super) async fn probe_afresh(&self, path: &str) -> Result<FreshProbe, NqError> {
        let mut connection = self.connect().await?;
        let http_ns = self.probe(&mut connection.sender, path).await?;
        Ok(FreshProbe(ns(connection.tcp), ns(connection.tls), http_ns))
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
