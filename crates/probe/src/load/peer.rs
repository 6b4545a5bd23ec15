//! A TCP connection whose every wait ends soon: when data comes, when time is up, when told to
//! stop.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::poll::PollFlags;
use socket2::{Domain, SockRef, Socket};
use underload_record::schema::Marking;

use super::{LoadError, keep_little_unsent};
use crate::clock::RunClock;
use crate::network::{POLL_INTERVAL, is_temporary, wait_for};

/// One end of a flow's connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub stream: TcpStream,
    /// Names the flow in errors.
    pub flow: String,
    pub clock: RunClock,
    pub stop: Arc<AtomicBool>,
}

impl Peer {
    /// Takes over a connected socket: no blocking, little unsent data, and on close whatever is
    /// still queued is dropped with a reset, so that the load ends when it is told to.
    pub(super) fn new(
        stream: TcpStream,
        flow: &str,
        clock: RunClock,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, LoadError> {
        let peer = Self { stream, flow: flow.to_owned(), clock, stop };
        let options = SockRef::from(&peer.stream);
        peer.stream.set_nonblocking(true).map_err(peer.failed("making its socket non-blocking"))?;
        options.set_tcp_nodelay(true).map_err(peer.failed("setting TCP_NODELAY"))?;
        let not_sent = keep_little_unsent(&options);
        not_sent.map_err(peer.failed("limiting unsent data"))?;
        let reset = options.set_linger(Some(Duration::ZERO));
        reset.map_err(peer.failed("closing by reset"))?;
        Ok(peer)
    }

    pub(super) fn failed(&self, step: &'static str) -> impl Fn(io::Error) -> LoadError + use<> {
        let flow = self.flow.clone();
        move |source| LoadError::Socket { flow: flow.clone(), step, source }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits for `flags`, at most [`POLL_INTERVAL`] and until `until_ns`.
    pub(super) fn wait(&self, flags: PollFlags, until_ns: u64) -> io::Result<PollFlags> {
        let left = Duration::from_nanos(until_ns.saturating_sub(self.clock.now_ns()));
        wait_for(self.stream.as_fd(), flags, left.min(POLL_INTERVAL))
    }

    /// Fails where the other end is gone, even if what it sent before is still to be read. To be
    /// asked before a flow counts as finished: told to stop just after the connection broke, it
    /// would look as if nothing had been the matter.
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
    /// [`LoadError::Cancelled`] when told to stop, [`LoadError::Socket`] after `until_ns`, at the
    /// end of the stream, and for what the kernel says.
    pub(super) fn read_exact(&self, bytes: &mut [u8], until_ns: u64) -> Result<(), LoadError> {
        let failed = self.failed("waiting for the other end's answer");
        let mut filled = 0;
        while filled < bytes.len() {
            self.check(until_ns)?;
            match (&self.stream).read(&mut bytes[filled..]) {
                Ok(0) => return Err(failed(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => filled += count,
                Err(error) if is_temporary(&error) => {
                    self.wait(PollFlags::POLLIN, until_ns).map_err(&failed)?;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// As [`Peer::read_exact`].
    pub(super) fn write_all(&self, bytes: &[u8], until_ns: u64) -> Result<(), LoadError> {
        let failed = self.failed("writing to the other end");
        let mut rest = bytes;
        while !rest.is_empty() {
            self.check(until_ns)?;
            match (&self.stream).write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if is_temporary(&error) => {
                    self.wait(PollFlags::POLLOUT, until_ns).map_err(&failed)?;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    fn check(&self, until_ns: u64) -> Result<(), LoadError> {
        if self.is_stopped() {
            return Err(LoadError::Cancelled);
        }
        if self.clock.now_ns() >= until_ns {
            return Err(self.failed("waiting for the other end")(io::ErrorKind::TimedOut.into()));
        }
        Ok(())
    }
}

/// Connects without ever blocking for longer than [`POLL_INTERVAL`].
///
/// # Errors
/// As [`Peer::read_exact`].
pub(super) fn connect(
    socket: Socket,
    server: std::net::SocketAddr,
    flow: &str,
    clock: RunClock,
    stop: Arc<AtomicBool>,
    until_ns: u64,
) -> Result<Peer, LoadError> {
    let step = "connecting to the load server";
    let failed = |source| LoadError::Socket { flow: flow.to_owned(), step, source };
    socket.set_nonblocking(true).map_err(failed)?;
    let begun = socket.connect(&server.into());
    let stream = TcpStream::from(socket);
    let in_progress = |error: &io::Error| error.raw_os_error() == Some(libc::EINPROGRESS);
    match begun {
        Ok(()) => return Peer::new(stream, flow, clock, stop),
        Err(error) if in_progress(&error) => {}
        Err(error) => return Err(failed(error)),
    }
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(LoadError::Cancelled);
        }
        if clock.now_ns() >= until_ns {
            return Err(failed(io::ErrorKind::TimedOut.into()));
        }
        let ready = wait_for(stream.as_fd(), PollFlags::POLLOUT, POLL_INTERVAL).map_err(failed)?;
        if !ready.is_empty() {
            return match stream.take_error().map_err(failed)? {
                None => Peer::new(stream, flow, clock, stop),
                Some(error) => Err(failed(error)),
            };
        }
    }
}

/// Sets DSCP (and, for UDP, ECN) of everything that a socket sends.
///
/// # Errors
/// Sets the DSCP and ECN bits of the packets that a socket sends.
pub(super) fn set_marking(
    socket: &SockRef<'_>,
    domain: Domain,
    marking: Marking,
) -> io::Result<()> {
    let class = u32::from(marking.to_byte());
    if domain == Domain::IPV6 {
        socket.set_tclass_v6(class)?;
        // For IPv4 peers of a dual-stack socket; a pure IPv6 socket has no such option to need.
        let _ = socket.set_tos_v4(class);
        return Ok(());
    }
    socket.set_tos_v4(class)
}
