//! A TCP connection whose every wait is short: until data arrives, time is up, or the flow stops.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket};
use underload_record::schema::Marking;

use super::{LoadError, keep_little_unsent};
use crate::clock::RunClock;
use crate::network::{POLL_INTERVAL, is_temporary, wait_for};
use crate::system::{AsFd as _, PollFlags, is_connecting, set_class_v6};

pub(super) struct Peer {
    pub stream: TcpStream,
    /// The flow's name in errors.
    pub flow: String,
    pub clock: RunClock,
    pub stop: Arc<AtomicBool>,
}

impl Peer {
    /// Configures a connected socket: non-blocking, little unsent data, and a reset on close that
    /// drops the queued data, so that the load ends as soon as it is stopped.
    pub(super) fn new(
        stream: TcpStream,
        flow: &str,
        clock: RunClock,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, LoadError> {
        let peer = Self { stream, flow: flow.to_owned(), clock, stop };
        let options = SockRef::from(&peer.stream);
        peer.stream.set_nonblocking(true).map_err(peer.error("making its socket non-blocking"))?;
        options.set_tcp_nodelay(true).map_err(peer.error("setting TCP_NODELAY"))?;
        keep_little_unsent(&options).map_err(peer.error("limiting unsent data"))?;
        let reset = options.set_linger(Some(Duration::ZERO));
        reset.map_err(peer.error("closing by reset"))?;
        Ok(peer)
    }

    pub(super) fn error(&self, step: &'static str) -> impl Fn(io::Error) -> LoadError + use<> {
        let flow = self.flow.clone();
        move |source| LoadError::Socket { flow: flow.clone(), step, source }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits for `flags`, at most [`POLL_INTERVAL`] and at most until `until_ns`.
    pub(super) fn wait(&self, flags: PollFlags, until_ns: u64) -> io::Result<PollFlags> {
        let left = Duration::from_nanos(until_ns.saturating_sub(self.clock.now_ns()));
        wait_for(self.stream.as_fd(), flags, left.min(POLL_INTERVAL))
    }

    /// Fails if the peer has closed the connection, even if data from it is unread. Called before a
    /// flow counts as finished: without it, a flow that is stopped just after its connection broke
    /// would look successful.
    pub(super) fn check_connected(&self) -> io::Result<()> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        match self.stream.peek(&mut [0]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(()),
            Err(error) if is_temporary(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads until `bytes` is full.
    ///
    /// # Errors
    /// Returns [`LoadError::Cancelled`] if the flow is stopped, [`LoadError::Socket`] after
    /// `until_ns`, at the end of the stream, and if reading fails.
    pub(super) fn read_exact(&self, bytes: &mut [u8], until_ns: u64) -> Result<(), LoadError> {
        let error_of = self.error("waiting for the other end's answer");
        let mut filled = 0;
        while filled < bytes.len() {
            self.check(until_ns)?;
            match (&self.stream).read(&mut bytes[filled..]) {
                Ok(0) => return Err(error_of(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => filled += count,
                Err(error) if is_temporary(&error) => {
                    self.wait(PollFlags::POLLIN, until_ns).map_err(&error_of)?;
                }
                Err(error) => return Err(error_of(error)),
            }
        }
        Ok(())
    }

    pub(super) fn write_all(&self, mut rest: &[u8], until_ns: u64) -> Result<(), LoadError> {
        let error_of = self.error("writing to the other end");
        while !rest.is_empty() {
            self.check(until_ns)?;
            match (&self.stream).write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if is_temporary(&error) => {
                    self.wait(PollFlags::POLLOUT, until_ns).map_err(&error_of)?;
                }
                Err(error) => return Err(error_of(error)),
            }
        }
        Ok(())
    }

    fn check(&self, until_ns: u64) -> Result<(), LoadError> {
        if self.is_stopped() {
            return Err(LoadError::Cancelled);
        }
        if self.clock.now_ns() >= until_ns {
            return Err(self.error("waiting for the other end")(io::ErrorKind::TimedOut.into()));
        }
        Ok(())
    }
}

/// Connects; no single wait exceeds [`POLL_INTERVAL`].
pub(super) fn connect(
    socket: Socket,
    server: std::net::SocketAddr,
    flow: &str,
    clock: RunClock,
    stop: Arc<AtomicBool>,
    until_ns: u64,
) -> Result<Peer, LoadError> {
    let step = "connecting to the load server";
    let error_of = |source| LoadError::Socket { flow: flow.to_owned(), step, source };
    socket.set_nonblocking(true).map_err(error_of)?;
    let begun = socket.connect(&server.into());
    let stream = TcpStream::from(socket);
    match begun {
        Ok(()) => return Peer::new(stream, flow, clock, stop),
        Err(error) if is_connecting(&error) => {}
        Err(error) => return Err(error_of(error)),
    }
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(LoadError::Cancelled);
        }
        if clock.now_ns() >= until_ns {
            return Err(error_of(io::ErrorKind::TimedOut.into()));
        }
        let ready =
            wait_for(stream.as_fd(), PollFlags::POLLOUT, POLL_INTERVAL).map_err(error_of)?;
        if !ready.is_empty() {
            return match stream.take_error().map_err(error_of)? {
                None => Peer::new(stream, flow, clock, stop),
                Some(error) => Err(error_of(error)),
            };
        }
    }
}

/// Sets DSCP (and, for UDP, ECN) of the packets that a socket sends.
pub(super) fn set_marking(
    socket: &SockRef<'_>,
    domain: Domain,
    marking: Marking,
) -> io::Result<()> {
    let class = u32::from(marking.to_byte());
    if domain == Domain::IPV6 {
        set_class_v6(socket, class)?;
        // For IPv4 peers of a dual-stack socket; a socket for IPv6 alone rejects the option and
        // needs none.
        let _ = socket.set_tos_v4(class);
        return Ok(());
    }
    socket.set_tos_v4(class)
}
