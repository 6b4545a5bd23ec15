//! The reflector on a socket, with a thread.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use underload_probe::endpoint::{ProbeSocket, Received};
use underload_probe::wire::{Arrival, BASE_LEN, NtpTimestamp, Reply, reflect};
use underload_probe::{Counters, RunClock};

use super::{Guard, StampConfig, Verdict};
use crate::{CompatError, Threads};

/// A running reflector. Dropping it stops and joins its thread.
#[derive(Debug)]
pub struct StampServer {
    address: SocketAddr,
    counters: Arc<Counters<StampCounts>>,
    _threads: Threads,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StampCounts {
    pub answered: u64,
    /// Answers of reflectors, and datagrams from their ports.
    pub reflectors: u64,
    /// Datagrams dropped because their sender is unknown or not authorised.
    pub strangers: u64,
    pub limited: u64,
    pub refused: u64,
}

/// Longest test packet in bytes.
const REQUEST_LEN_MAX: usize = 1472;
/// Interval at which the thread checks whether it should stop.
const READ_TIMEOUT: Duration = Duration::from_millis(20);

impl StampServer {
    /// Answers on `socket`, which the caller has bound.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a socket option or the thread.
    pub fn start(socket: UdpSocket, config: StampConfig) -> Result<Self, CompatError> {
        let error = |step| move |source| CompatError::Socket { protocol: "STAMP", step, source };
        let address = socket.local_addr().map_err(error("reading its address"))?;
        let socket = ProbeSocket::new(socket, "STAMP reflector")?;
        socket.set_read_timeout(READ_TIMEOUT).map_err(error("setting a timeout"))?;
        let counters = Arc::<Counters<StampCounts>>::default();
        let (shared, port) = (Arc::clone(&counters), address.port());
        let mut threads = Threads::default();
        threads.spawn("STAMP", "stamp", move |stop| serve(socket, &config, port, stop, &shared))?;
        Ok(Self { address, counters, _threads: threads })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn counts(&self) -> StampCounts {
        self.counters.read()
    }
}

fn serve(
    mut socket: ProbeSocket,
    config: &StampConfig,
    own_port: u16,
    stop: &AtomicBool,
    counters: &Counters<StampCounts>,
) {
    config.timing.apply();
    let clock = RunClock::start();
    let mut guard = Guard::new(config.clone(), own_port);
    let mut request = [0; REQUEST_LEN_MAX];
    let mut answer = [0; REQUEST_LEN_MAX];
    while !stop.load(Ordering::Relaxed) {
        // Errors are the timeout, signals, and ICMP errors of earlier answers; the next request may
        // still arrive.
        let Ok(received) = socket.recv(&mut request) else { continue };
        let Some(peer) = received.peer else { continue };
        let datagram = &request[..received.len];
        let verdict = match guard.judge(clock.now_ns(), datagram, peer) {
            _ if received.truncated => Verdict::Stranger,
            verdict => verdict,
        };
        let reply = write(verdict, datagram, &received, clock, config, &mut answer);
        let sent =
            reply.map(|reply| socket.answer(&received, &answer[..reply.len], reply.traffic_class));
        counters.update(|counts| match (sent, verdict) {
            (Some(Ok(_)), _) => counts.answered += 1,
            (Some(Err(_)), _) => counts.refused += 1,
            (None, Verdict::Reflector) => counts.reflectors += 1,
            (None, Verdict::Limited) => counts.limited += 1,
            (None, _) => counts.strangers += 1,
        });
    }
}

/// Writes the answer, with the time of sending; `None` if the packet is not answered.
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
        Verdict::Reflector | Verdict::Stranger | Verdict::Limited => return None,
    };
    let reply = reflect(request, arrival, policy, out).ok()?;
    reply.stamp(out, now());
    Some(reply)
}
