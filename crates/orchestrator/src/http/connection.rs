//! Serves connections, with limits on their number and on the time of each step.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use underload_probe::network::{CustomerNetwork, Evict, Place, PlaceLimits, Places, unless};

use super::core::Limits;
use super::proxy::{client, client_of_header, has_any};

type Connection = Place<CustomerNetwork>;

/// The state that all connections share.
pub(super) struct Listening {
    pub router: Router,
    pub tls: Option<TlsAcceptor>,
    pub limits: Limits,
    pub places: Places<CustomerNetwork>,
    /// True once the server stops.
    pub stopping: watch::Receiver<bool>,
}

const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Maximum number of bytes of a request's head.
const HEAD_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// How long answers in flight may take when the server stops.
pub(super) const GOODBYE_MAX: Duration = Duration::from_secs(10);
/// For this time after a request, new connections of the same network do not replace the one of the
/// request.
const GRACE: Duration = Duration::from_secs(1);
/// Pause after a failed accept: no descriptors, or the connection died before it was accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Listening {
    /// Accepts connections until the server stops, and then waits for the answers in flight.
    pub async fn run(self: Arc<Self>, listener: TcpListener) {
        let mut stopping = self.stopping.clone();
        loop {
            let stopped = pin!(stopping.wait_for(|stop| *stop));
            let accepted = pin!(listener.accept());
            let Some(accepted) = unless(stopped, accepted).await else { break };
            let Ok((stream, from)) = accepted else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (evict, evicted) = evict();
            let network = CustomerNetwork::of_host(from.ip());
            let is_proxy = has_any(self.limits.trusted_proxies, from.ip())
                || has_any(self.limits.proxy_protocol, from.ip());
            let most = self.limits.connections;
            let most = if is_proxy { most } else { self.limits.connections_per_network };
            let place = self.places.take_of(most, Instant::now(), network, Some(evict));
            // No answer to a refused connection: it would cost a handshake.
            let Some(place) = place else { continue };
            let listening = Arc::clone(&self);
            tokio::spawn(async move {
                let conversation = pin!(listening.converse(stream, from, &place));
                let _ = unless(pin!(evicted), conversation).await;
            });
        }
        drop(listener);
        let until = Instant::now() + GOODBYE_MAX;
        while self.places.taken() > 0 && Instant::now() < until {
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn converse(&self, mut stream: TcpStream, mut from: SocketAddr, place: &Connection) {
        // Answers are written in one piece, so nothing is gained by waiting for more.
        let _ = stream.set_nodelay(true);
        let patience = HANDSHAKE_MAX.min(self.limits.idle_max);
        if has_any(self.limits.proxy_protocol, from.ip()) {
            let named = timeout(patience, client_of_header(&mut stream, from)).await;
            let Ok(Ok(client)) = named else { return };
            from = client;
        }
        let Some(tls) = &self.tls else { return self.requests(stream, from, place).await };
        let handshake = timeout(patience, tls.accept(stream)).await;
        if let Ok(Ok(stream)) = handshake {
            self.requests(stream, from, place).await;
        }
    }

    async fn requests<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        from: SocketAddr,
        place: &Connection,
    ) {
        let router = TowerToHyperService::new(self.router.clone());
        let service = service_fn(|mut request: Request<Incoming>| {
            // Silent connections are evicted before those with recent requests.
            place.renew(Instant::now());
            let client = client(from, request.headers(), self.limits.trusted_proxies);
            request.extensions_mut().insert(ConnectInfo(client));
            router.call(request)
        });
        let mut http = Builder::new();
        http.timer(TokioTimer::new())
            // From the end of one request to the end of the next one's head.
            .header_read_timeout(self.limits.idle_max)
            .max_headers(HEADERS_MAX)
            .max_header_size(HEAD_MAX);
        let mut served = pin!(http.serve_connection(TokioIo::new(stream), service));
        let mut stopping = self.stopping.clone();
        let stopped = pin!(stopping.wait_for(|stop| *stop));
        if unless(stopped, served.as_mut()).await.is_none() {
            served.as_mut().graceful_shutdown();
            let _ = timeout(GOODBYE_MAX, served).await;
        }
    }
}

pub(super) fn places(limits: &Limits) -> Places<CustomerNetwork> {
    Places::new(PlaceLimits {
        in_all: limits.connections,
        per_network: limits.connections_per_network,
        grace: GRACE,
    })
}

/// Returns a function whose call ends a wait for the receiver.
pub(super) fn evict() -> (Evict, oneshot::Receiver<()>) {
    let (evict, evicted) = oneshot::channel();
    (Box::new(move || drop(evict)), evicted)
}
