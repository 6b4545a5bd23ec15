//! The responder on a socket, with a thread.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use underload_probe::endpoint::{ProbeSocket, Received, ThreadTiming};
use underload_probe::{Counters, Instants, RunClock};
use underload_service::CompatLedger;

use super::{IrttLimits, Responder, ResponderReply};
use crate::{CompatError, Threads};

/// A running irtt server. Dropping it ends all sessions and joins its thread.
#[derive(Debug)]
pub struct IrttServer {
    address: SocketAddr,
    counters: Arc<Counters<IrttCounts>>,
    _threads: Threads,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IrttCounts {
    /// Replies sent, with those to open requests.
    pub answered: u64,
    /// Datagrams that were not requests, of no session, or with a wrong digest.
    pub ignored: u64,
    pub limited: u64,
    pub closed: u64,
    pub sessions: usize,
}

/// Interval at which the thread checks whether it should stop.
const READ_TIMEOUT: Duration = Duration::from_millis(20);

impl IrttServer {
    /// Serves on `socket`, which the caller has bound. With a `key`, only clients with it
    /// (`--hmac=KEY`) are answered. The sessions' traffic is charged to `ledger`.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a socket option or the thread.
    pub fn start(
        socket: UdpSocket,
        limits: IrttLimits,
        key: Option<Vec<u8>>,
        ledger: CompatLedger,
    ) -> Result<Self, CompatError> {
        let error = |step| move |source| CompatError::Socket { protocol: "irtt", step, source };
        let address = socket.local_addr().map_err(error("reading its address"))?;
        let socket = ProbeSocket::new(socket, "irtt server")?;
        socket.set_read_timeout(READ_TIMEOUT).map_err(error("setting a timeout"))?;
        let responder = Responder::new(limits, key, ledger, random_token);
        let counters = Arc::<Counters<IrttCounts>>::default();
        let shared = Arc::clone(&counters);
        let mut threads = Threads::default();
        threads
            .spawn("irtt", "irtt", move |stop| serve(socket, responder, limits, stop, &shared))?;
        Ok(Self { address, counters, _threads: threads })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn counts(&self) -> IrttCounts {
        self.counters.read()
    }
}

fn random_token() -> Option<u64> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

fn serve(
    mut socket: ProbeSocket,
    mut responder: Responder,
    limits: IrttLimits,
    stop: &AtomicBool,
    counters: &Counters<IrttCounts>,
) {
    ThreadTiming::default().apply();
    let clock = RunClock::start();
    let mut datagram = vec![0; usize::from(limits.length_max)];
    let mut reply = Vec::with_capacity(datagram.len());
    while !stop.load(Ordering::Relaxed) {
        // Errors are the timeout, signals, and ICMP errors of earlier answers; the next request may
        // still arrive.
        let Ok(received) = socket.recv(&mut datagram) else { continue };
        let Some(peer) = received.peer else { continue };
        let outcome = if received.truncated {
            ResponderReply::Limited
        } else {
            let bytes = &datagram[..received.len];
            let arrived = arrival(&received, clock);
            responder.answer(arrived, peer, bytes, || clock.now_on_both(), &mut reply)
        };
        if let ResponderReply::Send { traffic_class } = outcome {
            // If the kernel refuses to send, the client counts a loss.
            let _ = socket.answer(&received, &reply, traffic_class);
        }
        counters.update(|counts| {
            match outcome {
                ResponderReply::Send { .. } => counts.answered += 1,
                ResponderReply::Ignored => counts.ignored += 1,
                ResponderReply::Limited => counts.limited += 1,
                ResponderReply::Closed => counts.closed += 1,
            }
            counts.sessions = responder.sessions();
        });
    }
}

/// Returns when the kernel received the datagram, on both clocks.
fn arrival(received: &Received, clock: RunClock) -> Instants {
    let now = clock.now_on_both();
    let unix_ns = received.kernel_unix_ns.unwrap_or(now.unix_ns);
    Instants { run_ns: u64::try_from(now.run_from_unix(unix_ns)).unwrap_or(0), unix_ns }
}
