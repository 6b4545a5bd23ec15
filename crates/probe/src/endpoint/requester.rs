//! The request-response probe on a socket: one thread, one packet in flight.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use underload_record::schema::Marking;

use super::prober::{decode_reply, encode_request, is_transient};
use super::{EndpointError, ProbeLog, ProbeSocket, Prober, ThreadTiming};
use crate::clock::RunClock;
use crate::session::{ClosedLoop, ClosedLoopStep};

/// Configuration of a closed-loop requester.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequesterConfig {
    /// DSCP and ECN of requests and answers.
    pub marking: Marking,
    /// UDP payload, bytes; [`Prober::PAYLOAD_MIN`] to [`Prober::PAYLOAD_MAX`].
    pub payload_bytes: u16,
    /// The first request's instant on the run's clock, ns.
    pub start_ns: u64,
    /// After which a request counts as lost and the next one goes.
    pub timeout: Duration,
    /// Scheduling of the thread.
    pub timing: ThreadTiming,
    /// Session identifier.
    pub session: u16,
}

/// A running request-response probe. Dropping it stops and joins its thread.
#[derive(Debug)]
pub struct Requester {
    end_ns: Arc<AtomicU64>,
    thread: Option<JoinHandle<ProbeLog>>,
}

impl Requester {
    /// Starts asking `target` from `socket`, which must be bound in the network to measure.
    ///
    /// # Errors
    /// [`EndpointError`]: a parameter out of range, a socket option refused, no route, no thread.
    pub fn start(
        socket: UdpSocket,
        target: SocketAddr,
        config: RequesterConfig,
        clock: RunClock,
    ) -> Result<Self, EndpointError> {
        if !(Prober::PAYLOAD_MIN..=Prober::PAYLOAD_MAX).contains(&config.payload_bytes) {
            let (name, accepted) = ("request payload in bytes", "52 to 1452");
            let value = u64::from(config.payload_bytes);
            return Err(EndpointError::Parameter { name, value, accepted });
        }
        let end = "request-response";
        let failed = |step| move |source| EndpointError::Socket { end, step, source };
        let mut socket = ProbeSocket::new(socket, end)?;
        socket.connect(target).map_err(failed("connecting to the reflector"))?;
        socket.set_read_timeout(READ_TIMEOUT).map_err(failed("setting a timeout"))?;
        let end_ns = Arc::new(AtomicU64::new(u64::MAX));
        let end_of_thread = Arc::clone(&end_ns);
        let name = "request-response";
        let thread = Builder::new()
            .name(name.to_owned())
            .spawn(move || run(socket, &config, clock, &end_of_thread))
            .map_err(|source| EndpointError::Thread { name, source })?;
        Ok(Self { end_ns, thread: Some(thread) })
    }

    /// No request is sent at or after `end_ns`.
    pub fn end_at(&self, end_ns: u64) {
        self.end_ns.store(end_ns, Ordering::Relaxed);
    }

    /// Stops and gives what was recorded; every request was planned, none can be skipped.
    ///
    /// # Errors
    /// [`EndpointError::Panicked`] if the thread did: a bug.
    pub fn finish(mut self) -> Result<ProbeLog, EndpointError> {
        self.end_at(0);
        let Some(thread) = self.thread.take() else { return Ok(ProbeLog::default()) };
        thread.join().map_err(|_| EndpointError::Panicked { name: "request-response" })
    }
}

impl Drop for Requester {
    fn drop(&mut self) {
        self.end_at(0);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How often the thread looks whether it should stop or give a request up.
const READ_TIMEOUT: Duration = Duration::from_millis(20);

fn run(
    mut socket: ProbeSocket,
    config: &RequesterConfig,
    clock: RunClock,
    end_ns: &AtomicU64,
) -> ProbeLog {
    config.timing.apply();
    let mut session = ClosedLoop::new(u64::MAX, config.timeout.as_nanos() as u64);
    let mut packet = vec![0; usize::from(config.payload_bytes)];
    let mut buffer = [0; Prober::PAYLOAD_MAX as usize];
    let mut log = ProbeLog::default();
    while clock.now_ns() < config.start_ns && end_ns.load(Ordering::Relaxed) > 0 {
        config.timing.wait_until(clock, config.start_ns);
    }
    loop {
        let end_ns = end_ns.load(Ordering::Relaxed);
        session.end_at(end_ns);
        match session.step(clock.now_ns()) {
            ClosedLoopStep::Done => break,
            // Told to stop: the request in flight counts as lost.
            ClosedLoopStep::Wait { .. } if end_ns == 0 => break,
            ClosedLoopStep::Send(sequence) => {
                let now = clock.now_on_both();
                let marking = config.marking;
                let _ = encode_request(&mut packet, sequence, config.session, marking, now);
                // A packet that the kernel refused is one that gets no answer.
                let _ = socket.send(&packet, marking.to_byte(), None);
                session.sent(now.run_ns);
                log.planned += 1;
            }
            ClosedLoopStep::Wait { .. } => match socket.recv(&mut buffer) {
                Ok(received) => {
                    let now = clock.now_on_both();
                    let bytes = &buffer[..received.len];
                    match decode_reply(bytes, received, now, config.session, 1) {
                        Some(reply) => session.received(reply),
                        None => log.ignored += 1,
                    }
                    log.without_kernel_stamp += u64::from(received.kernel_unix_ns.is_none());
                }
                Err(error) if is_transient(&error) => {}
                Err(_) => clock.sleep_until(clock.now_ns() + 10_000_000),
            },
        }
    }
    (log.sent, log.replies) = session.into_records();
    log
}
