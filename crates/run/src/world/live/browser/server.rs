//! The server of a page: HTTP/1.1, or HTTP/2 over TLS. For HTTP/3 it is behind `caddy`.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use data_encoding::{BASE64, HEXLOWER};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;
use underload_probe::load::set_congestion_control;
use underload_service::Identity;
use underload_sim::application::web::{
    HTML_BYTES, IMAGE_BYTES, IMAGES, RESPONSE_HEADER_BYTES, SCRIPT_BYTES,
};

use crate::error::{Doing as _, RunError};
use crate::scenario::{BrowserFlow, PageProtocol};

/// A running server, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct PageServer {
    connections: Arc<AtomicU64>,
    runtime: Option<Runtime>,
    /// SHA-256 of its public key in base64, as browsers name keys; `None` without TLS.
    pub key: Option<String>,
}

/// The resources of the page that the model `web` loads.
struct Page {
    html: Bytes,
    script: Bytes,
    image: Bytes,
}

struct Site {
    page: Page,
    /// `None`: HTTP/1.1 without TLS.
    tls: Option<TlsAcceptor>,
    keeps_alive: bool,
    congestion_control: String,
    connections: Arc<AtomicU64>,
}

/// A GIF of one pixel. Decoders ignore the bytes after its end.
const IMAGE: &[u8] = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\0\0,\
    \0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";
/// Bytes of an image's response header without its filler: the status line, the header lines of
/// this server and the date.
const OWN_HEADER_BYTES: u64 = 140;
/// A TLS record with at most this many bytes of plaintext fits into one packet.
const RECORD_BYTES: usize = 1_400;
/// `connection: close` and its line's end.
const CLOSE_BYTES: u64 = 19;

impl PageServer {
    /// Serves the page of a flow on `listener`.
    pub(super) fn start(listener: TcpListener, flow: &BrowserFlow) -> Result<Self, RunError> {
        let (tls, key) = match flow.protocol {
            PageProtocol::Http1 | PageProtocol::Http3 => (None, None),
            PageProtocol::Http2 => {
                let (tls, key) = new_tls()?;
                (Some(tls), Some(key))
            }
        };
        set_congestion_control(&SockRef::from(&listener), &flow.congestion_control).of_world()?;
        let connections = Arc::new(AtomicU64::new(0));
        let site = Arc::new(Site {
            page: Page::new(flow.fetches_script),
            tls,
            keeps_alive: flow.keeps_alive,
            congestion_control: flow.congestion_control.clone(),
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

impl Drop for PageServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Site {
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
        let path = request.uri().path();
        let (kind, body) = match path {
            "/" => ("text/html", &self.page.html),
            "/script.js" => ("text/javascript", &self.page.script),
            _ if path.starts_with("/image/") => ("image/gif", &self.page.image),
            _ => {
                let mut missing = Response::new(Full::default());
                *missing.status_mut() = StatusCode::NOT_FOUND;
                return missing;
            }
        };
        let own = OWN_HEADER_BYTES + if self.keeps_alive { 0 } else { CLOSE_BYTES };
        let filler = "-".repeat(RESPONSE_HEADER_BYTES.saturating_sub(own) as usize);
        let mut response = Response::new(Full::new(body.clone()));
        let headers = response.headers_mut();
        for (name, value) in [(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-store")] {
            headers.insert(name, hyper::header::HeaderValue::from_static(value));
        }
        if let Ok(filler) = filler.parse() {
            headers.insert("x-filler", filler);
        }
        response
    }
}

impl Page {
    /// Makes the page. The HTML names its resources in its last bytes, since the model requests
    /// them once it has all of the HTML.
    fn new(names_script: bool) -> Self {
        let script = names_script.then(|| "<script src=\"/script.js\"></script>\n".to_owned());
        let images = (0..IMAGES).map(|number| format!("<img src=\"/image/{number}\">\n"));
        let names: String = script.into_iter().chain(images).collect();
        // Without the icon the browser would request one.
        let head = "<!doctype html><title>A page</title><link rel=\"icon\" href=\"data:,\">\n<!--";
        let html = filled(head, HTML_BYTES, &format!("-->\n{names}"));
        let mut image = IMAGE.to_vec();
        image.resize(IMAGE_BYTES as usize, 0);
        let script = filled("/*", SCRIPT_BYTES, "*/\n");
        Self { html: html.into(), script: script.into(), image: image.into() }
    }
}

/// Returns a text of `bytes` that begins with `head` and ends with `tail`.
fn filled(head: &str, bytes: u64, tail: &str) -> String {
    let filler = (bytes as usize).saturating_sub(head.len() + tail.len());
    format!("{head}{}{tail}", " ".repeat(filler))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use tokio_rustls::rustls::{ClientConnection, ServerConnection};
    use underload_probe::control::Fingerprint;

    use super::*;
    use crate::scenario::{FlowKind, Scenario};

    /// Serves the page of a flow with these keys, and returns each whole response.
    fn responses(keys: &str, paths: &[&str]) -> Vec<Vec<u8>> {
        let text = format!(
            "[path]\nup = \"10mbit\"\n[[flow]]\nkind = \"probe\"\n\
             [[flow]]\nkind = \"browser\"\ncongestion_control = \"reno\"\n{keys}"
        );
        let scenario = Scenario::parse(&text, "test").expect("a scenario");
        let FlowKind::Browser(flow) = &scenario.arms[0].flows[1].kind else { panic!("a browser") };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = PageServer::start(listener, flow).expect("a server");
        let fetch = |path: &&str| {
            let mut stream = std::net::TcpStream::connect(address).expect("a connection");
            let close = if flow.keeps_alive { "Connection: close\r\n" } else { "" };
            let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\n{close}\r\n");
            stream.write_all(request.as_bytes()).expect("it reads");
            let mut response = Vec::new();
            stream.read_to_end(&mut response).expect("it answers, and ends the connection");
            response
        };
        let all = paths.iter().map(fetch).collect();
        assert_eq!(server.connections(), paths.len() as u64);
        all
    }

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

    #[test]
    fn the_served_page_has_the_sizes_of_the_models() {
        let paths = ["/", "/script.js", "/image/7", "/other"];
        let all = responses("keep_alive = false\nscript = \"fetched\"", &paths);
        let parts = |response: &Vec<u8>| {
            let end = response.windows(4).position(|four| four == b"\r\n\r\n").expect("a header");
            (end as u64 + 4, response[end + 4..].to_vec())
        };
        let [html, script, image, other] = [0, 1, 2, 3].map(|index| parts(&all[index]));
        let lengths = [&html, &script, &image, &other].map(|(_, body)| body.len() as u64);
        assert_eq!(lengths, [HTML_BYTES, SCRIPT_BYTES, IMAGE_BYTES, 0]);
        assert_eq!(image.0, RESPONSE_HEADER_BYTES);
        let html = String::from_utf8(html.1).expect("text");
        assert_eq!(html.matches("<img ").count(), IMAGES);
        assert!(html.contains("<script ") && html.ends_with("/image/99\">\n"), "{html}");
        let [kept] = responses("", &["/"]).try_into().expect("one");
        assert!(!String::from_utf8_lossy(&kept).contains("<script "));
        assert!(all[3].starts_with(b"HTTP/1.1 404 "));
    }
}
