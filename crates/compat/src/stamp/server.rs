//! The reflector on a socket, with a thread.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use underload_probe::RunClock;
use underload_probe::endpoint::{ProbeSocket, Received};
use underload_probe::wire::{Arrival, BASE_LEN, NtpTimestamp, Reply, reflect, reflect_keyed};

use super::{Guard, StampConfig, Verdict};
use crate::CompatError;

/// A running reflector. Dropping it stops and joins its thread.
#[derive(Debug)]
pub struct StampServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Counts of a STAMP server: packets answered, refused and not understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StampCounts {
    /// Packets answered.
    pub answered: u64,
    /// Answers of reflectors, and datagrams from their ports.
    pub reflectors: u64,
    /// Datagrams of nobody who is answered, or of no sender.
    pub strangers: u64,
    /// Packets over a limit.
    pub limited: u64,
    /// Answers that the kernel refused to send.
    pub refused: u64,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    answered: AtomicU64,
    reflectors: AtomicU64,
    strangers: AtomicU64,
    limited: AtomicU64,
    refused: AtomicU64,
}

/// A datagram longer than this is no test packet.
const REQUEST_LEN_MAX: usize = 1472;
/// How often the thread looks whether it should stop.
const READ_TIMEOUT: Duration = Duration::from_millis(20);

impl StampServer {
    /// Answers on `socket`, which the caller bound.
    ///
    /// # Errors
    /// [`CompatError`]: a socket option refused, no thread.
    pub fn start(socket: UdpSocket, config: StampConfig) -> Result<Self, CompatError> {
        let failed = |step| move |source| CompatError::Socket { protocol: "STAMP", step, source };
        let address = socket.local_addr().map_err(failed("reading its address"))?;
        let socket = ProbeSocket::new(socket, "STAMP reflector")?;
        socket.set_read_timeout(READ_TIMEOUT).map_err(failed("setting a timeout"))?;
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = Builder::new()
            .name("stamp".to_owned())
            .spawn(move || serve(socket, &config, address.port(), &of_thread))
            .map_err(failed("starting its thread"))?;
        Ok(Self { address, shared, thread: Some(thread) })
    }

    /// The address and port that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the server has counted so far.
    pub fn counts(&self) -> StampCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StampCounts {
            answered: read(&self.shared.answered),
            reflectors: read(&self.shared.reflectors),
            strangers: read(&self.shared.strangers),
            limited: read(&self.shared.limited),
            refused: read(&self.shared.refused),
        }
    }
}

impl Drop for StampServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut socket: ProbeSocket, config: &StampConfig, own_port: u16, shared: &Shared) {
    config.timing.apply();
    let clock = RunClock::start();
    let mut guard = Guard::new(config.clone(), own_port);
    let mut request = [0; REQUEST_LEN_MAX];
    let mut answer = [0; REQUEST_LEN_MAX];
    while !shared.stop.load(Ordering::Relaxed) {
        // Errors are the timeout, signals, and ICMP complaints about earlier answers; none of them
        // says anything about the next request.
        let Ok(received) = socket.recv(&mut request) else { continue };
        let Some(peer) = received.peer else { continue };
        let datagram = &request[..received.len];
        let verdict = match guard.judge(clock.now_ns(), datagram, peer) {
            _ if received.truncated => Verdict::Stranger,
            verdict => verdict,
        };
        let Some(reply) = write(verdict, datagram, &received, clock, config, &mut answer) else {
            shared.counter_of(verdict).fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let counter = match socket.answer(&received, &answer[..reply.len], reply.traffic_class) {
            Ok(_) => &shared.answered,
            Err(_) => &shared.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Shared {
    /// For what is not answered.
    fn counter_of(&self, verdict: Verdict) -> &AtomicU64 {
        match verdict {
            Verdict::Reflector => &self.reflectors,
            Verdict::Limited => &self.limited,
            _ => &self.strangers,
        }
    }
}

/// Writes the answer, with the time of sending; `None` if there is none.
fn write(
    verdict: Verdict,
    datagram: &[u8],
    received: &Received,
    clock: RunClock,
    config: &StampConfig,
    out: &mut [u8],
) -> Option<Reply> {
    let now = || NtpTimestamp::from_unix_nanos(clock.now_on_both().unix_ns);
    let arrival = Arrival {
        received: received.kernel_unix_ns.map_or_else(now, NtpTimestamp::from_unix_nanos),
        traffic_class: received.traffic_class.unwrap_or(0),
        ttl: received.ttl.unwrap_or(0),
    };
    let policy = config.policy;
    let mut padded = [0; BASE_LEN];
    let request = match verdict {
        Verdict::Reflect => datagram,
        Verdict::ReflectPadded => {
            padded.iter_mut().zip(datagram).for_each(|(place, byte)| *place = *byte);
            &padded
        }
        Verdict::ReflectKeyed => {
            let key = config.key.as_ref()?;
            let reply = reflect_keyed(datagram, arrival, key, policy, out).ok()?;
            key.seal(&mut out[..reply.len], now());
            return Some(reply);
        }
        Verdict::Reflector | Verdict::Stranger | Verdict::Limited => return None,
    };
    let reply = reflect(request, arrival, None, policy, out).ok()?;
    reply.stamp(out, now());
    Some(reply)
}
