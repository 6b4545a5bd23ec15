//! The far end: answers test packets, one for one, never with more bytes than it got.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::{Bucket, EndpointError, ProbeSocket, Received, ThreadTiming};
use crate::clock::RunClock;
use crate::wire::{Arrival, MarkingPolicy, NtpTimestamp, reflect};

/// Policy and scheduling of a reflector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReflectorConfig {
    /// Answers per second at most, over all senders; the rest is dropped and counted. A burst of a
    /// tenth of it passes.
    pub packets_per_second_max: u32,
    /// Which DSCP and ECN values answers may carry.
    pub policy: MarkingPolicy,
    /// Scheduling of the thread.
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
    /// For a network that is ours: every marking, and a rate that no prober of ours reaches.
    pub fn lab() -> Self {
        Self { packets_per_second_max: 1_000_000, policy: MarkingPolicy::LAB, ..Self::default() }
    }
}

/// Counts of a reflector: packets answered, refused and not understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReflectorCounts {
    /// Requests answered.
    pub answered: u64,
    /// Datagrams that were no test packet, or longer than an Ethernet packet.
    pub malformed: u64,
    /// Requests over the rate limit.
    pub limited: u64,
    /// Datagrams from addresses that are not answered.
    pub unknown: u64,
    /// Answers that were no reflection, for example to the opening of a session's UDP part.
    pub spoken: u64,
    /// Answers that the kernel refused to send.
    pub refused: u64,
}

/// The decision about one datagram that reached the reflector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It is a test packet of somebody who may measure.
    Reflect,
    /// So many bytes of the room given are the answer; never more than the datagram had.
    Answer(usize),
    /// The datagram belongs to a load flow and was handed to it.
    Taken,
    /// The datagram is dropped without an answer.
    Ignore,
    /// Nothing is answered, because its sender asks too often.
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
    answered: AtomicU64,
    malformed: AtomicU64,
    limited: AtomicU64,
    unknown: AtomicU64,
    spoken: AtomicU64,
    refused: AtomicU64,
}

/// A datagram longer than this is no probe.
const REQUEST_BYTES_MAX: usize = 1472;
/// How often the thread looks whether it should stop.
const READ_TIMEOUT: Duration = Duration::from_millis(20);

impl Reflector {
    /// Answers on each of `sockets`, which are bound by the caller; a thread each. The rate limit
    /// is per socket.
    ///
    /// # Errors
    /// [`EndpointError`]: a socket option refused, no thread.
    pub fn start(sockets: Vec<UdpSocket>, config: ReflectorConfig) -> Result<Self, EndpointError> {
        Self::start_for(sockets, config, |_: &[u8], _, _: &mut [u8]| Gate::Reflect)
    }

    /// As [`Reflector::start`], but `gate` decides about every datagram. It is given the datagram,
    /// who sent it, and room for an answer as long as the datagram.
    ///
    /// # Errors
    /// As [`Reflector::start`].
    pub fn start_for(
        sockets: Vec<UdpSocket>,
        config: ReflectorConfig,
        gate: impl Fn(&[u8], SocketAddr, &mut [u8]) -> Gate + Clone + Send + 'static,
    ) -> Result<Self, EndpointError> {
        let shared = Arc::new(Shared::default());
        let mut reflector = Self { shared, threads: Vec::new() };
        for socket in sockets {
            let socket = ProbeSocket::new(socket, "reflector")?;
            let step = "setting a timeout";
            let failed = |source| EndpointError::Socket { end: "reflector", step, source };
            socket.set_read_timeout(READ_TIMEOUT).map_err(failed)?;
            let shared = Arc::clone(&reflector.shared);
            let gate = gate.clone();
            let name = "reflector";
            let thread = Builder::new()
                .name(name.to_owned())
                .spawn(move || run(socket, config, &shared, &gate))
                .map_err(|source| EndpointError::Thread { name, source })?;
            reflector.threads.push(thread);
        }
        Ok(reflector)
    }

    /// What the reflector has counted so far.
    pub fn counts(&self) -> ReflectorCounts {
        ReflectorCounts {
            answered: self.shared.answered.load(Ordering::Relaxed),
            malformed: self.shared.malformed.load(Ordering::Relaxed),
            limited: self.shared.limited.load(Ordering::Relaxed),
            unknown: self.shared.unknown.load(Ordering::Relaxed),
            spoken: self.shared.spoken.load(Ordering::Relaxed),
            refused: self.shared.refused.load(Ordering::Relaxed),
        }
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
        // Errors are the timeout, signals, and ICMP complaints about earlier answers; none of them
        // says anything about the next request.
        let Ok(received) = socket.recv(&mut request) else { continue };
        let bytes = &request[..received.len];
        let Some(peer) = received.peer else { continue };
        let counter = match gate(bytes, peer, &mut answer[..received.len]) {
            Gate::Taken => continue,
            Gate::Ignore => &shared.unknown,
            Gate::Limit => &shared.limited,
            _ if !bucket.take(clock.now_ns()) => &shared.limited,
            Gate::Answer(len) => {
                match socket.answer(&received, &answer[..len.min(received.len)], 0) {
                    Ok(_) => &shared.spoken,
                    Err(_) => &shared.refused,
                }
            }
            Gate::Reflect if received.truncated => &shared.malformed,
            Gate::Reflect => {
                respond(&socket, bytes, received, config.policy, clock, &mut answer, shared)
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn respond<'a>(
    socket: &ProbeSocket,
    request: &[u8],
    received: Received,
    policy: MarkingPolicy,
    clock: RunClock,
    answer: &mut [u8],
    shared: &'a Shared,
) -> &'a AtomicU64 {
    let now_ns = clock.now_on_both().unix_ns;
    let arrival = Arrival {
        received: NtpTimestamp::from_unix_nanos(received.kernel_unix_ns.unwrap_or(now_ns)),
        traffic_class: received.traffic_class.unwrap_or(0),
        ttl: received.ttl.unwrap_or(0),
    };
    let Ok(reply) = reflect(request, arrival, None, policy, answer) else {
        return &shared.malformed;
    };
    reply.stamp(answer, NtpTimestamp::from_unix_nanos(clock.now_on_both().unix_ns));
    match socket.answer(&received, &answer[..reply.len], reply.traffic_class) {
        Ok(_) => &shared.answered,
        Err(_) => &shared.refused,
    }
}
