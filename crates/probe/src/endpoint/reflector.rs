//! The far end: answers each test packet with one packet, never longer than the request.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Bucket, EndpointError, ProbeSocket, Received, ThreadTiming, spawn};
use crate::Counters;
use crate::clock::RunClock;
use crate::wire::{Arrival, MarkingPolicy, NtpTimestamp, reflect};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReflectorConfig {
    /// Maximum number of answers per second to all senders; others are dropped and counted. A burst
    /// of a tenth of a second passes.
    pub packets_per_second_max: u32,
    /// The DSCP and ECN values that answers may carry.
    pub policy: MarkingPolicy,
    pub timing: ThreadTiming,
}

impl Default for ReflectorConfig {
    /// Ten thousand answers per second, harmless markings only.
    fn default() -> Self {
        Self {
            packets_per_second_max: 10_000,
            policy: MarkingPolicy::PUBLIC,
            timing: ThreadTiming::default(),
        }
    }
}

impl ReflectorConfig {
    /// Returns the configuration for a lab: every marking, and a rate above that of any prober.
    pub fn lab() -> Self {
        Self { packets_per_second_max: 1_000_000, policy: MarkingPolicy::LAB, ..Self::default() }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReflectorCounts {
    /// Requests that were reflected.
    pub answered: u64,
    /// Datagrams that were not test packets, or longer than an Ethernet packet.
    pub malformed: u64,
    pub limited: u64,
    /// Datagrams that the gate ignored.
    pub unknown: u64,
    /// Other answers of the gate, such as those of the handshake that opens a session's UDP part.
    pub spoken: u64,
    pub refused: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// A test packet of a sender that may measure.
    Reflect,
    /// Send the first bytes of the answer buffer; at most as many as the datagram has.
    Answer(usize),
    /// A load flow has received the datagram.
    Taken,
    Ignore,
    /// Drop the datagram, because its sender exceeds its rate.
    Limit,
}

/// A running reflector. Dropping it stops and joins its threads.
#[derive(Debug)]
pub struct Reflector {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    counters: Counters<ReflectorCounts>,
}

/// Longest probe in bytes.
const REQUEST_BYTES_MAX: usize = 1472;
/// Interval at which a thread checks whether it should stop.
const READ_TIMEOUT: Duration = Duration::from_millis(20);

impl Reflector {
    /// Answers on each of `sockets`, which the caller has bound, with a thread each. The rate limit
    /// is per socket.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a socket option or a thread.
    pub fn start(sockets: Vec<UdpSocket>, config: ReflectorConfig) -> Result<Self, EndpointError> {
        Self::start_for(sockets, config, |_: &[u8], _, _: &mut [u8]| Gate::Reflect)
    }

    /// Answers as [`Reflector::start`] does, but calls `gate` for every datagram, with the
    /// datagram, its sender, and an answer buffer as long as the datagram.
    pub fn start_for(
        sockets: Vec<UdpSocket>,
        config: ReflectorConfig,
        gate: impl Fn(&[u8], SocketAddr, &mut [u8]) -> Gate + Clone + Send + 'static,
    ) -> Result<Self, EndpointError> {
        let shared = Arc::new(Shared::default());
        let mut reflector = Self { shared, threads: Vec::new() };
        for socket in sockets {
            let socket = ProbeSocket::new(socket, "reflector")?;
            let (end, step) = ("reflector", "setting a timeout");
            let error = |source| EndpointError::Socket { end, step, source };
            socket.set_read_timeout(READ_TIMEOUT).map_err(error)?;
            let (shared, gate) = (Arc::clone(&reflector.shared), gate.clone());
            let thread = spawn("reflector", move || run(socket, config, &shared, &gate))?;
            reflector.threads.push(thread);
        }
        Ok(reflector)
    }

    pub fn counts(&self) -> ReflectorCounts {
        self.shared.counters.read()
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn run(
    mut socket: ProbeSocket,
    config: ReflectorConfig,
    shared: &Shared,
    gate: &impl Fn(&[u8], SocketAddr, &mut [u8]) -> Gate,
) {
    config.timing.apply();
    let clock = RunClock::start();
    let mut bucket = Bucket::new(config.packets_per_second_max);
    let mut request = [0; REQUEST_BYTES_MAX];
    let mut answer = [0; REQUEST_BYTES_MAX];
    while !shared.stop.load(Ordering::Relaxed) {
        // Errors are the timeout, signals, and ICMP errors of earlier answers; the next request may
        // still arrive.
        let Ok(received) = socket.recv(&mut request) else { continue };
        let bytes = &request[..received.len];
        let Some(peer) = received.peer else { continue };
        let count: Count = match gate(bytes, peer, &mut answer[..received.len]) {
            Gate::Taken => continue,
            Gate::Ignore => |counts| counts.unknown += 1,
            Gate::Limit => |counts| counts.limited += 1,
            _ if !bucket.take(clock.now_ns()) => |counts| counts.limited += 1,
            Gate::Answer(len) => {
                match socket.answer(&received, &answer[..len.min(received.len)], 0) {
                    Ok(_) => |counts| counts.spoken += 1,
                    Err(_) => |counts| counts.refused += 1,
                }
            }
            Gate::Reflect if received.truncated => |counts| counts.malformed += 1,
            Gate::Reflect => respond(&socket, bytes, received, config.policy, clock, &mut answer),
        };
        shared.counters.update(count);
    }
}

/// Counts the outcome of one datagram.
type Count = fn(&mut ReflectorCounts);

fn respond(
    socket: &ProbeSocket,
    request: &[u8],
    received: Received,
    policy: MarkingPolicy,
    clock: RunClock,
    answer: &mut [u8],
) -> Count {
    let now_ns = clock.now_on_both().unix_ns;
    let arrival = Arrival {
        received: NtpTimestamp::from_unix_nanos(received.kernel_unix_ns.unwrap_or(now_ns)),
        traffic_class: received.traffic_class.unwrap_or(0),
        ttl: received.ttl.unwrap_or(0),
    };
    let Ok(reply) = reflect(request, arrival, policy, answer) else {
        return |counts| counts.malformed += 1;
    };
    reply.stamp(answer, NtpTimestamp::from_unix_nanos(clock.now_on_both().unix_ns));
    match socket.answer(&received, &answer[..reply.len], reply.traffic_class) {
        Ok(_) => |counts| counts.answered += 1,
        Err(_) => |counts| counts.refused += 1,
    }
}
