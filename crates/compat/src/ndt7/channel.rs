//! A connection of a test: TCP, TLS and WebSocket, without a blocking step.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use socket2::SockRef;
use tungstenite::client::{ClientRequestBuilder, client_with_config};
use tungstenite::handshake::HandshakeError;
use tungstenite::protocol::{WebSocket, WebSocketConfig};
use underload_probe::control::{Flagged, Limited, NoLease};
use underload_probe::load::{keep_little_unsent, set_congestion_control};
use underload_probe::network::{connect_first, current_network, wait_for};

use super::{Ndt7Error, SUBPROTOCOL};
use crate::https;
use crate::nq::NqTarget;

/// Time limit of the TCP, TLS and WebSocket handshakes together.
const OPENING_MAX: Duration = Duration::from_secs(10);
/// Interval at which time limit and interruption are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// The protocol's largest message, which both ends must accept.
const FRAME_BYTES_MAX: usize = 1 << 24;

/// Longest unsent output: a message of an upload, and answers to pings that the server does not read.
const UNSENT_BYTES_MAX: usize = 2 << 20;

/// The time limit is below TLS and WebSocket, whose libraries read on while only records or
/// fragments without content arrive.
type Tls = StreamOwned<ClientConnection, Limited<TcpStream, Flagged, NoLease>>;
pub(super) type Web = WebSocket<Counting<Tls>>;

pub(super) struct Channel {
    pub web: Web,
    /// A second handle of the socket, for `poll` and the kernel's counters.
    pub socket: OwnedFd,
    pub address: SocketAddr,
    pub handshake: Duration,
}

/// Counts the bytes that TLS returns: they show progress within a message of 16 MiB.
pub(super) struct Counting<S> {
    inner: S,
    pub read_bytes: u64,
}

impl<S: Read> Read for Counting<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read_bytes += count as u64;
        Ok(count)
    }
}

impl<S: Write> Write for Counting<S> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self.inner.write(buffer)? {
            // TLS accepted nothing because its buffer is full, not because the connection has
            // ended.
            0 if !buffer.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Channel {
    /// Connects to `target`, which the host at `named_by` named, and opens the WebSocket, in ten
    /// seconds at most. Uploads use `congestion_control`, or the system's default.
    pub fn open(
        target: &NqTarget,
        named_by: &[IpAddr],
        tls: Arc<ClientConfig>,
        congestion_control: Option<&str>,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<Self, Ndt7Error> {
        let host = || target.authority();
        let error =
            |step| move |source: io::Error| Ndt7Error::Connect { step, host: host(), source };
        let flag = Flagged::new(cancelled);
        let found = (target.host.as_str(), target.port).to_socket_addrs();
        let found: Vec<SocketAddr> = found.map_err(error("resolving"))?.collect();
        let found = https::allowed(found, named_by).map_err(error("connecting to"))?;
        let stop = || cancelled.load(Ordering::Relaxed);
        let start = Instant::now();
        let won = connect_first(&found, &*current_network(), OPENING_MAX, &stop);
        let (stream, address) = won.map_err(|silence| {
            let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            error("connecting to")(silence.map_or_else(none, |silence| silence.source))
        })?;
        let handshake = start.elapsed();
        let socket = stream.as_fd().try_clone_to_owned().map_err(error("connecting to"))?;
        stream.set_nodelay(true).map_err(error("connecting to"))?;
        stream.set_nonblocking(true).map_err(error("connecting to"))?;
        // After connecting, because the route can set another one.
        if let Some(name) = congestion_control {
            set_congestion_control(&SockRef::from(&stream), name)?;
        }
        // Unsent data waits here, not in the network.
        let _ = keep_little_unsent(&SockRef::from(&stream));
        let name = ServerName::try_from(target.host.clone()).map_err(|_| Ndt7Error::Protocol {
            host: host(),
            what: "this is not a valid host name",
        })?;
        let connection = ClientConnection::new(tls, name)
            .map_err(|source| error("the TLS handshake with")(io::Error::other(source)))?;
        let left = OPENING_MAX.saturating_sub(start.elapsed());
        let inner = StreamOwned::new(connection, Limited::new(stream, flag, left));
        let web = upgrade(target, Counting { inner, read_bytes: 0 }, &socket)?;
        Ok(Self { web, socket, address, handshake })
    }

    /// Limits what follows to `allowed` from now on.
    pub fn allow(&mut self, allowed: Duration) {
        self.web.get_mut().inner.sock.allow(allowed);
    }

    /// Whether the time is up, or the test was cancelled.
    pub fn is_over(&self) -> bool {
        self.web.get_ref().inner.sock.is_over()
    }

    /// Waits up to `CHECK_INTERVAL` until the socket is readable or, with `also_write`, writable.
    pub fn wait(&self, also_write: bool) {
        let flags =
            if also_write { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
        // Returning early is harmless.
        let _ = wait_for(self.socket.as_fd(), flags, CHECK_INTERVAL);
    }
}

fn upgrade(target: &NqTarget, stream: Counting<Tls>, socket: &OwnedFd) -> Result<Web, Ndt7Error> {
    let host = || target.authority();
    let error =
        |source: tungstenite::Error| Ndt7Error::WebSocket { host: host(), source: source.into() };
    let url = format!("wss://{}{}", target.authority(), target.path);
    let url = url.parse().map_err(|_| Ndt7Error::Protocol {
        host: host(),
        what: "its address is not a valid WebSocket URL",
    })?;
    let request = ClientRequestBuilder::new(url)
        .with_sub_protocol(SUBPROTOCOL)
        .with_header("User-Agent", concat!("underload/", env!("CARGO_PKG_VERSION")));
    let config = WebSocketConfig::default()
        .max_write_buffer_size(UNSENT_BYTES_MAX)
        .max_message_size(Some(FRAME_BYTES_MAX))
        .max_frame_size(Some(FRAME_BYTES_MAX));
    let mut outcome = client_with_config(request, stream, Some(config));
    loop {
        match outcome {
            Ok((web, _)) => return Ok(web),
            Err(HandshakeError::Failure(tungstenite::Error::Io(source))) => {
                let is_late = source.kind() == io::ErrorKind::TimedOut;
                let step = if is_late { "opening" } else { "the TLS handshake with" };
                return Err(Ndt7Error::Connect { step, host: host(), source });
            }
            Err(HandshakeError::Failure(source)) => return Err(error(source)),
            Err(HandshakeError::Interrupted(half)) => {
                // Returning early is harmless.
                let _ = wait_for(socket.as_fd(), PollFlags::POLLIN, CHECK_INTERVAL);
                outcome = half.handshake();
            }
        }
    }
}
