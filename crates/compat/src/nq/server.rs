//! The server: connections with a lease, and their requests.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HOST, HeaderValue, RETRY_AFTER};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use underload_probe::Counters;
use underload_probe::load::{keep_little_unsent, set_congestion_control};
use underload_probe::network::{CustomerNetwork, Evict, unless};
use underload_record::judgement::{Judgement, Sentences};
use underload_record::schema::Direction;
use underload_service::CompatLedger;

use super::NqLimits;
use super::answer::{Content, InFlight, response, uncached_response};
use super::config::{LARGE, NqConfig, OLD, SMALL, UPLOAD, WELL_KNOWN};
use super::lease::Lease;
use super::page::{
    self, CHANNEL, Channels, JUDGEMENT, JUDGEMENT_BYTES_MAX, OFFER_BYTES_MAX, OfferError,
    Transfers, Wording,
};
use super::transfer::{Reader, Transfer};
use crate::{CompatError, Place, Places, places};

/// A running responsiveness server. Dropping it ends its connections.
#[derive(Debug)]
pub struct NqServer {
    address: SocketAddr,
    host: Arc<Host>,
    runtime: Option<Runtime>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NqCounts {
    /// Connections with a complete TLS handshake.
    pub connections: u64,
    /// Connections closed because there was no place.
    pub busy: u64,
    pub requests: u64,
    pub open: usize,
}

struct Host {
    limits: NqLimits,
    ledger: CompatLedger,
    places: Places,
    tls: TlsAcceptor,
    counters: Counters<NqCounts>,
    /// Loads of browsers; `None` without a page.
    page: Option<Transfers>,
    /// Words the judgements of the page's results.
    sentences: Wording,
    /// Opens channels for the page's probes.
    channels: Option<Arc<dyn Channels>>,
}

/// The client's address, and the local address of the connection.
#[derive(Clone, Debug)]
struct Ends {
    from: IpAddr,
    reached: IpAddr,
    /// A second handle of the connection's socket, for `TCP_INFO`; `None` without a page.
    socket: Option<Arc<OwnedFd>>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the TLS acceptor, which holds the private key.
        f.debug_struct("Host").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// The draft's size of the large resource.
const LARGE_BYTES: u64 = 8 << 30;
/// Time limit for the TLS handshake, and for the head of a request.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// A connection without a request for this long is closed.
const IDLE_MAX: Duration = Duration::from_secs(1);
const STREAMS_MAX: u32 = 128;
const DOWNLOADS_BY: &str = "cubic";
const LEASE_IS_OVER: &str = "the time or the volume of this connection is used up";
const PAYLOAD: &str = "application/octet-stream";
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("60");

impl NqServer {
    /// Serves on `listener`, which the caller has bound, with the certificate of `tls`; load is
    /// charged to `ledger`.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a socket option or the threads.
    pub fn start(
        listener: TcpListener,
        tls: &ServerConfig,
        limits: NqLimits,
        ledger: CompatLedger,
    ) -> Result<Self, CompatError> {
        let none = |_: &Judgement| Sentences::default();
        Self::serve(listener, tls, limits, ledger, None, (none, None))
    }

    /// As [`NqServer::start`], but for browsers: the page that measures, and its resources. Without
    /// HTTP/2, by which probes would share a connection with the load. `sentences` words the
    /// judgements of the page's results. With `channels`, the page's probes are datagrams if the
    /// browser and the network allow them.
    pub fn start_page(
        listener: TcpListener,
        tls: &ServerConfig,
        limits: NqLimits,
        ledger: CompatLedger,
        sentences: Wording,
        channels: Option<Arc<dyn Channels>>,
    ) -> Result<Self, CompatError> {
        let page = Some(Transfers::default());
        Self::serve(listener, tls, limits, ledger, page, (sentences, channels))
    }

    fn serve(
        listener: TcpListener,
        tls: &ServerConfig,
        limits: NqLimits,
        ledger: CompatLedger,
        page: Option<Transfers>,
        (sentences, channels): (Wording, Option<Arc<dyn Channels>>),
    ) -> Result<Self, CompatError> {
        let protocol = if page.is_some() { "web" } else { "nq" };
        let error = |step| move |source| CompatError::Socket { protocol, step, source };
        let address = listener.local_addr().map_err(error("reading its address"))?;
        listener.set_nonblocking(true).map_err(error("making its socket non-blocking"))?;
        let mut tls = tls.clone();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        if page.is_some() {
            tls.alpn_protocols.remove(0);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("nq")
            .enable_all()
            .build()
            .map_err(error("starting its threads"))?;
        let host = Arc::new(Host {
            limits,
            ledger,
            places: places(limits.connections_max, limits.connections_per_network_max),
            tls: TlsAcceptor::from(Arc::new(tls)),
            counters: Counters::default(),
            page,
            sentences,
            channels,
        });
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(error("watching its port"))?
        };
        runtime.spawn(serve(Arc::clone(&host), listener));
        Ok(Self { address, host, runtime: Some(runtime) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn counts(&self) -> NqCounts {
        NqCounts { open: self.host.places.taken(), ..self.host.counters.read() }
    }
}

impl Drop for NqServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(host: Arc<Host>, listener: tokio::net::TcpListener) {
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            // Out of descriptors, or the connection ended before it was accepted.
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (evict, evicted) = oneshot::channel::<()>();
        let evict: Evict = Box::new(move || drop(evict));
        let network = CustomerNetwork::of(from.ip());
        let Some(place) = host.places.take(Instant::now(), network, Some(evict)) else {
            host.counters.update(|counts| counts.busy += 1);
            continue;
        };
        let host = Arc::clone(&host);
        tokio::spawn(async move {
            // An error has ended the connection.
            let conversation = pin!(host.converse(stream, from.ip(), Arc::new(place)));
            if unless(pin!(evicted), conversation).await.is_none() {
                host.counters.update(|counts| counts.busy += 1);
            }
        });
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    // Keeps little unsent data, so that probes wait in the network and not in this socket.
    let _ = keep_little_unsent(&socket);
    // The default of `measure`, so that results do not depend on this machine's default. A system
    // without it sends with its own.
    let _ = set_congestion_control(&socket, DOWNLOADS_BY);
    Ok(())
}

impl Host {
    async fn converse(
        self: &Arc<Self>,
        stream: TcpStream,
        from: IpAddr,
        place: Arc<Place>,
    ) -> io::Result<()> {
        prepare(&stream)?;
        let handle = || stream.as_fd().try_clone_to_owned().ok().map(Arc::new);
        let socket = self.page.as_ref().and_then(|_| handle());
        let ends = Ends { from, reached: stream.local_addr()?.ip(), socket };
        let tls = timeout(HANDSHAKE_MAX, self.tls.accept(stream)).await??;
        self.counters.update(|counts| counts.connections += 1);
        let duration = self.limits.duration_max;
        let lease = Lease::new(duration, self.limits.bytes_max);
        let (host, service_lease) = (Arc::clone(self), Arc::clone(&lease));
        let service = service_fn(move |request| {
            let (host, in_flight) = (Arc::clone(&host), InFlight::new(&service_lease));
            let (place, ends) = (Arc::clone(&place), ends.clone());
            // Connections without requests are evicted first.
            place.renew(Instant::now());
            async move { host.answer(request, ends, in_flight, &place).await }
        });
        let mut http = Builder::new(TokioExecutor::new());
        http.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_MAX);
        http.http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(HANDSHAKE_MAX)
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(self.limits.window_bytes / 2)
            .initial_connection_window_size(self.limits.window_bytes);
        let mut served = pin!(http.serve_connection(TokioIo::new(tls), service));
        let mut before = None;
        while !lease.is_over() {
            if timeout(IDLE_MAX, served.as_mut()).await.is_ok() {
                return Ok(());
            }
            let now = lease.requests_if_idle();
            if now.is_some() && now == before {
                break;
            }
            before = now;
        }
        served.as_mut().graceful_shutdown();
        // Leaves a second for an unfinished body.
        let _ = timeout(IDLE_MAX, served).await;
        Ok(())
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        ends: Ends,
        mut in_flight: InFlight,
        place: &Place,
    ) -> Result<Response<Content>, hyper::Error> {
        let from = ends.from;
        self.counters.update(|counts| counts.requests += 1);
        let path = request.uri().path().to_owned();
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let writes = matches!(*request.method(), Method::POST | Method::PUT);
        if let Some(transfers) = &self.page {
            if page::is_cross_origin(&request) {
                return Ok(status(StatusCode::FORBIDDEN));
            }
            if reads && let Some(answer) = transfers.answer(&path, request.uri().query()) {
                return Ok(answer);
            }
        }
        let answer = match path.as_str() {
            WELL_KNOWN | OLD if self.page.is_some() => status(StatusCode::NOT_FOUND),
            WELL_KNOWN | OLD if reads => self.configuration(&request, from),
            SMALL if reads => response(PAYLOAD, Content::bytes(&b"u"[..])),
            LARGE | UPLOAD if let Err(reason) = self.may_load(&in_flight.lease, from, place) => {
                busy(reason)
            }
            LARGE if reads => {
                self.begin(request.uri().query(), &ends, &mut in_flight, Direction::Down);
                response(PAYLOAD, Content::generated(LARGE_BYTES, in_flight, Arc::default()))
            }
            UPLOAD if writes => {
                let query = request.uri().query().map(str::to_owned);
                let begin = |in_flight: &mut InFlight| {
                    self.begin(query.as_deref(), &ends, in_flight, Direction::Up)
                };
                return receive(request.into_body(), in_flight, begin).await;
            }
            CHANNEL if writes => return Ok(self.channel(request, ends).await),
            JUDGEMENT if writes && self.page.is_some() => return Ok(self.judge(request).await),
            WELL_KNOWN | OLD | SMALL | LARGE | UPLOAD => status(StatusCode::METHOD_NOT_ALLOWED),
            _ => status(StatusCode::NOT_FOUND),
        };
        let is_head = request.method() == Method::HEAD;
        Ok(if is_head { answer.map(|_| Content::Ready(None)) } else { answer })
    }

    /// Returns the page's load that a request belongs to, if it names one, and starts to read the
    /// round trips of its connection.
    fn begin(
        &self,
        query: Option<&str>,
        ends: &Ends,
        in_flight: &mut InFlight,
        direction: Direction,
    ) -> Arc<Transfer> {
        let named = self.page.as_ref().and_then(|it| it.transfer(query, ends.from));
        if let (Some(transfer), Some(socket)) = (&named, &ends.socket) {
            let (socket, lease) = (Arc::clone(socket), Arc::clone(&in_flight.lease));
            let reader = Reader::start(socket, direction, lease, Arc::clone(transfer));
            in_flight.reader = Some(reader);
        }
        named.unwrap_or_default()
    }

    async fn channel(&self, request: Request<Incoming>, ends: Ends) -> Response<Content> {
        // Not an error status, which the browser would report in its console.
        let Some(channels) = &self.channels else { return status(StatusCode::NO_CONTENT) };
        let (head, body) = request.into_parts();
        let bytes = match read(body, OFFER_BYTES_MAX).await {
            Ok(bytes) => bytes,
            Err(code) => return status(code),
        };
        let Ok(offer) = str::from_utf8(&bytes) else { return status(StatusCode::BAD_REQUEST) };
        let authority = head.headers.get(HOST).and_then(|host| host.to_str().ok());
        match channels.answer(offer, ends.from, ends.reached, authority) {
            Ok(answer) => uncached_response("application/sdp", answer),
            Err(OfferError::Busy) => busy("no place or volume is left for a channel"),
            Err(OfferError::Description(_)) => status(StatusCode::BAD_REQUEST),
        }
    }

    async fn judge(&self, request: Request<Incoming>) -> Response<Content> {
        let bytes = match read(request.into_body(), JUDGEMENT_BYTES_MAX).await {
            Ok(bytes) => bytes,
            Err(code) => return status(code),
        };
        match page::judgements(&bytes, self.sentences) {
            Some(judgements) => uncached_response("application/json", judgements),
            None => status(StatusCode::BAD_REQUEST),
        }
    }

    /// Checks whether a connection may load. The error is the reason, for the client.
    fn may_load(&self, lease: &Lease, from: IpAddr, place: &Place) -> Result<(), &'static str> {
        lease.ensure_share(|| self.ledger.enter(from, self.limits.duration_max))?;
        // Needs no eviction any more: the ledger limits the load of each network, and its duration.
        place.keep();
        if lease.is_over() { Err(LEASE_IS_OVER) } else { Ok(()) }
    }

    /// The configuration is refused to networks without free places, because a client without a
    /// configuration does not test.
    fn configuration(&self, request: &Request<Incoming>, from: IpAddr) -> Response<Content> {
        if self.places.is_full_for(&CustomerNetwork::of(from)) {
            return busy("all places are taken");
        }
        let header = || request.headers().get(HOST).and_then(|host| host.to_str().ok());
        let authority = request.uri().authority().map(hyper::http::uri::Authority::as_str);
        let json = authority.or_else(header).and_then(NqConfig::encode_for);
        let Some(json) = json else { return status(StatusCode::BAD_REQUEST) };
        uncached_response("application/json", json)
    }
}

/// Reads a body of at most `bytes_max` bytes. The error is the status for the client.
async fn read(body: Incoming, bytes_max: usize) -> Result<Bytes, StatusCode> {
    let read = timeout(HANDSHAKE_MAX, Limited::new(body, bytes_max).collect()).await;
    let read = read.map_err(|_| StatusCode::REQUEST_TIMEOUT)?;
    Ok(read.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?.to_bytes())
}

/// Reads an upload to its end, or to the end of the lease. Calls `begin` when the first byte has
/// arrived, so that a request without payload takes no place among the transfers.
async fn receive(
    mut body: Incoming,
    mut in_flight: InFlight,
    begin: impl Fn(&mut InFlight) -> Arc<Transfer>,
) -> Result<Response<Content>, hyper::Error> {
    let mut transfer = None;
    while let Some(frame) = body.frame().await {
        let mut arrived = frame?.data_ref().map_or(0, Bytes::len);
        in_flight.lease.spend(arrived);
        if arrived > 0 {
            let transfer = transfer.get_or_insert_with(|| begin(&mut in_flight));
            transfer.bytes.fetch_add(arrived as u64, Ordering::Relaxed);
        }
        let lease = &in_flight.lease;
        // Unread data fills the client's window, which slows the client down.
        while arrived > 0 && !lease.is_over() {
            match lease.take(Direction::Up, arrived) {
                Ok(bytes) => arrived -= bytes,
                Err(wait) => sleep(wait).await,
            }
        }
        if lease.is_over() {
            return Ok(busy(LEASE_IS_OVER));
        }
    }
    Ok(status(StatusCode::OK))
}

fn status(status: StatusCode) -> Response<Content> {
    let mut response = Response::new(Content::Ready(None));
    *response.status_mut() = status;
    response
}

/// Makes a response with status 429 and the reason.
fn busy(reason: &'static str) -> Response<Content> {
    let mut response = response("text/plain; charset=utf-8", Content::bytes(reason));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    response.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_S);
    response
}

#[cfg(test)]
mod tests {
    use underload_probe::load::congestion_control_of;

    use super::*;

    #[test]
    fn downloads_are_sent_with_cubic_whatever_the_machine_prefers() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            for before in ["reno", DOWNLOADS_BY] {
                set_congestion_control(&SockRef::from(&accepted), before).unwrap();
                prepare(&accepted).unwrap();
                assert_eq!(congestion_control_of(&SockRef::from(&accepted)).unwrap(), "cubic");
            }
            drop(client);
        });
    }
}
