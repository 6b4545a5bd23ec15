//! The server of a page or a film: HTTP/1.1, or HTTP/2 over TLS. For HTTP/3 it is behind `caddy`.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use data_encoding::{BASE64, HEXLOWER};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;
use underload_probe::load::set_congestion_control;
use underload_scenario::{PageProtocol, Site};
use underload_service::Identity;
use underload_sim::application::web::RESPONSE_HEADER_BYTES;

use crate::error::{Doing as _, RunError};

/// A running server, which ends when this is dropped.
pub(super) struct Server {
    connections: Arc<AtomicU64>,
    runtime: Option<Runtime>,
    /// SHA-256 of its public key in base64, as browsers name keys; `None` without TLS.
    pub key: Option<String>,
}

/// The resources of a site.
pub(super) trait Content: Send + Sync + 'static {
    /// Returns the media type and the bytes of the resource at a path; `None` if it is missing.
    fn resource(&self, path: &str) -> Option<(&'static str, Bytes)>;
}

struct Service {
    content: Box<dyn Content>,
    /// `None`: HTTP/1.1 without TLS.
    tls: Option<TlsAcceptor>,
    keeps_alive: bool,
    congestion_control: String,
    connections: Arc<AtomicU64>,
}

/// Bytes of an image's response header without its filler: the status line, the header lines of
/// this server and the date.
const OWN_HEADER_BYTES: u64 = 172;
/// A TLS record with at most this many bytes of plaintext fits into one packet.
const RECORD_BYTES: usize = 1_400;
/// `connection: close` and its line's end.
const CLOSE_BYTES: u64 = 19;

impl Server {
    /// Serves the resources of a site on `listener`.
    pub(super) fn start(
        listener: TcpListener,
        served: &Site,
        content: impl Content,
    ) -> Result<Self, RunError> {
        let (tls, key) = match served.protocol {
            PageProtocol::Http1 | PageProtocol::Http3 => (None, None),
            PageProtocol::Http2 => {
                let (tls, key) = new_tls()?;
                (Some(tls), Some(key))
            }
        };
        set_congestion_control(&SockRef::from(&listener), &served.congestion_control).of_world()?;
        let connections = Arc::new(AtomicU64::new(0));
        let site = Arc::new(Service {
            content: Box::new(content),
            tls,
            keeps_alive: served.keeps_alive,
            congestion_control: served.congestion_control.clone(),
            connections: Arc::clone(&connections),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("page-server")
            .enable_all()
            .build()
            .doing("starting the thread of a page's server")?;
        listener.set_nonblocking(true).of_world()?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener).of_world()?
        };
        runtime.spawn(site.serve(listener));
        Ok(Self { connections, runtime: Some(runtime), key })
    }

    /// Returns how many connections the server accepted.
    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Returns TLS with a new key, and the key's SHA-256 in base64.
fn new_tls() -> Result<(TlsAcceptor, String), RunError> {
    let identity = Identity::generate().of_world()?;
    let key = key_hash(&identity)?;
    let mut config = identity.server_config().of_world()?.as_ref().clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A browser can read a record only once it has all of it. TCP's initial window carries 14 KiB:
    // the first bytes of a record of 16 KiB, the default, would wait for another round trip.
    config.max_fragment_size = Some(RECORD_BYTES);
    Ok((TlsAcceptor::from(Arc::new(config)), key))
}

/// Returns the SHA-256 of a public key in base64.
pub(super) fn key_hash(identity: &Identity) -> Result<String, RunError> {
    let fingerprint = identity.fingerprint().to_string();
    let hexadecimal = fingerprint.trim_start_matches("sha256:");
    let hash = HEXLOWER.decode(hexadecimal.as_bytes()).of_world()?;
    Ok(BASE64.encode(&hash))
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Service {
    async fn serve(self: Arc<Self>, listener: tokio::net::TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors, or the connection ended before it was accepted.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            self.connections.fetch_add(1, Ordering::Relaxed);
            // An error ends the connection, and the browser reports what it did not get.
            tokio::spawn(Arc::clone(&self).converse(stream));
        }
    }

    async fn converse(self: Arc<Self>, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        // A listener's congestion control does not replace that of a route.
        set_congestion_control(&SockRef::from(&stream), &self.congestion_control)
            .map_err(io::Error::other)?;
        let site = Arc::clone(&self);
        let service = service_fn(move |request| {
            let site = Arc::clone(&site);
            async move { Ok::<_, Infallible>(site.answer(&request)) }
        });
        let served = match &self.tls {
            None => {
                let mut http = hyper::server::conn::http1::Builder::new();
                http.keep_alive(self.keeps_alive);
                http.serve_connection(TokioIo::new(stream), service).await
            }
            Some(tls) => {
                let stream = tls.accept(stream).await?;
                let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                http.serve_connection(TokioIo::new(stream), service).await
            }
        };
        served.map_err(io::Error::other)
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let Some((kind, body)) = self.content.resource(request.uri().path()) else {
            let mut missing = Response::new(Full::default());
            *missing.status_mut() = StatusCode::NOT_FOUND;
            return missing;
        };
        let own = OWN_HEADER_BYTES + if self.keeps_alive { 0 } else { CLOSE_BYTES };
        let filler = "-".repeat(RESPONSE_HEADER_BYTES.saturating_sub(own) as usize);
        let mut response = Response::new(Full::new(body));
        let headers = response.headers_mut();
        // The page of a film is not of this server.
        let all = (ACCESS_CONTROL_ALLOW_ORIGIN, "*");
        for (name, value) in [(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-store"), all] {
            headers.insert(name, hyper::header::HeaderValue::from_static(value));
        }
        if let Ok(filler) = filler.parse() {
            headers.insert("x-filler", filler);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tokio_rustls::rustls::{ClientConnection, ServerConnection};
    use underload_probe::control::Fingerprint;
    use underload_sim::application::web::HTML_BYTES;

    use super::*;

    /// Passes a handshake on between both ends, until they have nothing more to send.
    fn shake_hands(client: &mut ClientConnection, server: &mut ServerConnection) {
        while client.wants_write() || server.wants_write() {
            let (mut up, mut down) = (Vec::new(), Vec::new());
            client.write_tls(&mut up).expect("memory");
            server.read_tls(&mut up.as_slice()).expect("memory");
            server.process_new_packets().expect("a client's messages");
            server.write_tls(&mut down).expect("memory");
            client.read_tls(&mut down.as_slice()).expect("memory");
            client.process_new_packets().expect("a server's messages");
        }
    }

    #[test]
    fn each_tls_record_of_a_page_fits_into_one_packet() {
        let (acceptor, key) = new_tls().expect("a server");
        let hash = BASE64.decode(key.as_bytes()).expect("base64");
        let pin: Fingerprint = format!("sha256:{}", HEXLOWER.encode(&hash)).parse().expect("a pin");
        let mut config = pin.client_config().expect("a client").as_ref().clone();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = "underload".try_into().expect("a name");
        let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
        let mut server = ServerConnection::new(Arc::clone(acceptor.config())).expect("a server");
        shake_hands(&mut client, &mut server);
        server.writer().write_all(&vec![0; HTML_BYTES as usize]).expect("memory");
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).expect("memory");
        }
        let (mut rest, mut records) = (wire.as_slice(), 0);
        while let [_, _, _, high, low, tail @ ..] = rest {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            // The maximum segment size with time stamps on Ethernet.
            assert!(5 + length <= 1_448, "a record of {length} bytes");
            (rest, records) = (&tail[length..], records + 1);
        }
        assert!(records * RECORD_BYTES >= HTML_BYTES as usize && rest.is_empty(), "{records}");
    }
}
