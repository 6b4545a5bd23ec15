//! The responder on a socket, with a thread.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use underload_probe::endpoint::{ProbeSocket, Received, ThreadTiming};
use underload_probe::{Instants, RunClock};
use underload_service::CompatLedger;

use super::{IrttLimits, Responder, ResponderReply};
use crate::CompatError;

/// A running irtt server. Dropping it ends all sessions and joins its thread.
#[derive(Debug)]
pub struct IrttServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Counts of an irtt server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IrttCounts {
    /// Replies sent, opens included.
    pub answered: u64,
    /// Datagrams that were no request, of no session, or with a wrong digest.
    pub ignored: u64,
    /// Requests over a limit.
    pub limited: u64,
    /// Sessions closed by their client.
    pub closed: u64,
    /// Sessions under way.
    pub sessions: usize,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    answered: AtomicU64,
    ignored: AtomicU64,
    limited: AtomicU64,
    closed: AtomicU64,
    sessions: AtomicUsize,
}

/// How often the thread looks whether it should stop.
const READ_TIMEOUT: Duration = Duration::from_millis(20);

impl IrttServer {
    /// Serves on `socket`, which is bound by the caller. With a `key`, only clients that have it
    /// (`--hmac=KEY`) are answered. Sessions pay from `ledger` for what they move.
    ///
    /// # Errors
    /// [`CompatError`]: a socket option refused, no thread.
    pub fn start(
        socket: UdpSocket,
        limits: IrttLimits,
        key: Option<Vec<u8>>,
        ledger: CompatLedger,
    ) -> Result<Self, CompatError> {
        let failed = |step| move |source| CompatError::Socket { protocol: "irtt", step, source };
        let address = socket.local_addr().map_err(failed("reading its address"))?;
        let socket = ProbeSocket::new(socket, "irtt server")?;
        socket.set_read_timeout(READ_TIMEOUT).map_err(failed("setting a timeout"))?;
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let responder = Responder::new(limits, key, ledger, random_token);
        let thread = Builder::new()
            .name("irtt".to_owned())
            .spawn(move || serve(socket, responder, limits, &of_thread))
            .map_err(failed("starting its thread"))?;
        Ok(Self { address, shared, thread: Some(thread) })
    }

    /// The address and port that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the server has counted so far.
    pub fn counts(&self) -> IrttCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        IrttCounts {
            answered: read(&self.shared.answered),
            ignored: read(&self.shared.ignored),
            limited: read(&self.shared.limited),
            closed: read(&self.shared.closed),
            sessions: self.shared.sessions.load(Ordering::Relaxed),
        }
    }
}

impl Drop for IrttServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn random_token() -> Option<u64> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

fn serve(mut socket: ProbeSocket, mut responder: Responder, limits: IrttLimits, shared: &Shared) {
    ThreadTiming::default().apply();
    let clock = RunClock::start();
    let mut datagram = vec![0; usize::from(limits.length_max)];
    let mut reply = Vec::with_capacity(datagram.len());
    while !shared.stop.load(Ordering::Relaxed) {
        // Errors are the timeout, signals, and ICMP complaints about earlier answers; none of them
        // says anything about the next request.
        let Ok(received) = socket.recv(&mut datagram) else { continue };
        let Some(peer) = received.peer else { continue };
        let outcome = if received.truncated {
            ResponderReply::Limited
        } else {
            let bytes = &datagram[..received.len];
            let arrived = arrival(&received, clock);
            responder.answer(arrived, peer, bytes, || clock.now_on_both(), &mut reply)
        };
        let counter = match outcome {
            // What the kernel refuses to send, the client counts as lost.
            ResponderReply::Send { traffic_class } => {
                let _ = socket.answer(&received, &reply, traffic_class);
                &shared.answered
            }
            ResponderReply::Ignored => &shared.ignored,
            ResponderReply::Limited => &shared.limited,
            ResponderReply::Closed => &shared.closed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        shared.sessions.store(responder.sessions(), Ordering::Relaxed);
    }
}

/// When the kernel received the datagram, on both clocks.
fn arrival(received: &Received, clock: RunClock) -> Instants {
    let now = clock.now_on_both();
    let unix_ns = received.kernel_unix_ns.unwrap_or(now.unix_ns);
    Instants { run_ns: u64::try_from(now.run_from_unix(unix_ns)).unwrap_or(0), unix_ns }
}
