//! Connections: how many, for whom, and how long each step may take.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

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
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::Limits;
use super::frequency::network;

/// What every connection needs.
pub(super) struct Listening {
    pub router: Router,
    pub tls: Option<TlsAcceptor>,
    pub limits: Limits,
    pub places: Places,
    /// True once no more requests are wanted.
    pub stopping: watch::Receiver<bool>,
}

/// A TLS handshake takes at most so long.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Bytes of a request's head at most.
const HEAD_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// Answers in flight get so long to end.
pub(super) const GOODBYE_MAX: Duration = Duration::from_secs(10);
/// Out of descriptors, or a connection that died before it was accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Listening {
    /// Accepts until it is told to stop, and then waits for what is in flight.
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
            // Who gets no place is told nothing: an answer would cost a handshake.
            let Some(place) = self.places.take(from.ip()) else { continue };
            let listening = Arc::clone(&self);
            tokio::spawn(async move {
                let _place = place;
                listening.converse(stream, from).await;
            });
        }
        drop(listener);
        let until = tokio::time::Instant::now() + GOODBYE_MAX;
        while self.places.taken() > 0 && tokio::time::Instant::now() < until {
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn converse(&self, stream: TcpStream, from: SocketAddr) {
        // Answers are written whole.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else { return self.requests(stream, from).await };
        let patience = HANDSHAKE_MAX.min(self.limits.idle_max);
        let handshake = timeout(patience, tls.accept(stream)).await;
        if let Ok(Ok(stream)) = handshake {
            self.requests(stream, from).await;
        }
    }

    async fn requests<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S, from: SocketAddr) {
        let router = TowerToHyperService::new(self.router.clone());
        let service = service_fn(|mut request: Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(from));
            router.call(request)
        });
        let mut http = Builder::new();
        http.timer(TokioTimer::new())
            // It runs from the end of one request to the end of the next one's head.
            .header_read_timeout(self.limits.idle_max)
            .max_headers(HEADERS_MAX)
            .max_header_size(HEAD_MAX);
        let mut served = pin!(http.serve_connection(TokioIo::new(stream), service));
        let mut stopping = self.stopping.clone();
        let stopped = pin!(stopping.wait_for(|stop| *stop));
        // Whatever ends a connection, there is nobody left to tell.
        if unless(stopped, served.as_mut()).await.is_none() {
            served.as_mut().graceful_shutdown();
            let _ = timeout(GOODBYE_MAX, served).await;
        }
    }
}

/// What `wanted` comes to, unless `end` comes first.
async fn unless<W: Future>(
    mut end: Pin<&mut impl Future>,
    mut wanted: Pin<&mut W>,
) -> Option<W::Output> {
    poll_fn(|context| {
        if end.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        wanted.as_mut().poll(context).map(Some)
    })
    .await
}

/// The places of connections: so many in all, and of these so many for one network.
#[derive(Clone, Debug)]
pub(super) struct Places {
    taken: Arc<Mutex<Taken>>,
    in_all_max: usize,
    per_network_max: usize,
}

#[derive(Debug, Default)]
struct Taken {
    in_all: usize,
    of_network: BTreeMap<IpAddr, usize>,
}

/// A place, given back when it is dropped.
struct Place {
    places: Places,
    network: IpAddr,
}

impl Places {
    pub fn new(in_all_max: usize, per_network_max: usize) -> Self {
        Self { taken: Arc::default(), in_all_max, per_network_max }
    }

    fn take(&self, address: IpAddr) -> Option<Place> {
        let network = network(address);
        let mut taken = self.lock();
        let of_network = taken.of_network.get(&network).copied().unwrap_or(0);
        if taken.in_all >= self.in_all_max || of_network >= self.per_network_max {
            return None;
        }
        taken.in_all += 1;
        taken.of_network.insert(network, of_network + 1);
        Some(Place { places: self.clone(), network })
    }

    /// Connections that are open.
    pub fn taken(&self) -> usize {
        self.lock().in_all
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Nothing that holds the lock can panic half-way through a change.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.in_all -= 1;
        match taken.of_network.get_mut(&self.network) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.of_network.remove(&self.network)),
        }
    }
}
