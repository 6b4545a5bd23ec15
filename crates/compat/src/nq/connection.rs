//! A connection of the client: TCP, TLS and HTTP/2, with the time of each step.

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

/// An open connection, with the times of its handshakes.
pub(super) struct Connection {
    pub sender: SendRequest<Content>,
    tcp: Duration,
    pub tls: Duration,
    /// A second handle of the connection's socket, for `TCP_INFO`.
    pub socket: OwnedFd,
    driver: JoinHandle<()>,
}

impl Connection {
    pub(super) fn tcp_ns(&self) -> u64 {
        ns(self.tcp)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

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
        let error = |step| move |source| connect_error(step, &self.target, source);
        let name = ServerName::try_from(self.target.host.clone())
            .map_err(|source| NqError::Name { host: self.target.host.clone(), source })?;
        let start = Instant::now();
        let stream = in_time(TcpStream::connect(self.address)).await;
        let stream = stream.map_err(error("connecting to"))?;
        let tcp = start.elapsed();
        stream.set_nodelay(true).map_err(error("connecting to"))?;
        let socket = stream.as_fd().try_clone_to_owned().map_err(error("connecting to"))?;
        let start = Instant::now();
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let stream = in_time(connector.connect(name, stream)).await;
        let stream = stream.map_err(error("the TLS handshake with"))?;
        let tls = start.elapsed();
        let mut http = Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let (sender, connection) = http
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|source| self.http_error("the HTTP/2 opening with", source))?;
        // A failure of the connection also fails its requests.
        let driver = tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Connection { sender, tcp, tls, socket, driver })
    }

    /// Sends a request and returns the head of the response, which must have status 200.
    pub(super) async fn request(
        &self,
        sender: &mut SendRequest<Content>,
        method: Method,
        path: &str,
        body: Content,
    ) -> Result<Response<Incoming>, NqError> {
        let error = |source| self.http_error("asking", source);
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
        sender.ready().await.map_err(error)?;
        let response = sender.send_request(request).await.map_err(error)?;
        let status = response.status().as_u16();
        if status == 200 {
            return Ok(response);
        }
        Err(NqError::Status { host: self.target.authority(), status })
    }

    pub(super) fn http_error(&self, step: &'static str, source: hyper::Error) -> NqError {
        NqError::Http { step, host: self.target.authority(), source }
    }

    /// Requests a resource of at most [`CONFIG_BYTES_MAX`] and returns its content.
    pub(super) async fn fetch(
        &self,
        sender: &mut SendRequest<Content>,
        path: &str,
    ) -> Result<Bytes, NqError> {
        let body = Content::Ready(None);
        let response = self.request(sender, Method::GET, path, body).await?;
        let mut incoming = response.into_body();
        let mut bytes = Vec::new();
        while let Some(frame) = incoming.frame().await {
            let frame = frame.map_err(|source| self.http_error("reading from", source))?;
            bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            if bytes.len() > CONFIG_BYTES_MAX {
                let (host, what) = (self.target.authority(), "it is longer than 64 KiB");
                return Err(NqError::Config { host, what });
            }
        }
        Ok(bytes.into())
    }

    /// Times a request for the small resource on an open connection, ns.
    pub(super) async fn probe(
        &self,
        sender: &mut SendRequest<Content>,
        path: &str,
    ) -> Result<u64, NqError> {
        let start = Instant::now();
        self.fetch(sender, path).await?;
        Ok(ns(start.elapsed()))
    }

    /// Times TCP, TLS and a request on a new connection, ns.
    pub(super) async fn probe_new_connection(&self, path: &str) -> Result<[u64; 3], NqError> {
        let mut connection = self.connect().await?;
        let http_ns = self.probe(&mut connection.sender, path).await?;
        Ok([connection.tcp_ns(), ns(connection.tls), http_ns])
    }
}

pub(super) fn connect_error(step: &'static str, target: &NqTarget, source: io::Error) -> NqError {
    NqError::Connect { step, host: target.authority(), source }
}

/// Runs a step, and fails with a timeout after [`STEP_MAX`].
async fn in_time<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(STEP_MAX, step).await?
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
