//! The request-response probe on a socket: one thread with one packet in flight.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use underload_record::schema::Marking;

use super::prober::{check_payload, decode_reply, encode_request};
use super::{EndpointError, ProbeLog, ProbeSocket, Prober, ThreadTiming, join, spawn};
use crate::clock::RunClock;
use crate::network::is_transient;
use crate::session::{ClosedLoop, ClosedLoopStep};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequesterConfig {
    /// DSCP and ECN of requests and answers.
    pub marking: Marking,
    /// Bytes of UDP payload; [`Prober::PAYLOAD_MIN`] to [`Prober::PAYLOAD_MAX`].
    pub payload_bytes: u16,
    /// When the first request is due, on the run's clock.
    pub start_ns: u64,
    /// After this a request counts as lost and the next one is sent.
    pub timeout: Duration,
    pub timing: ThreadTiming,
    pub session: u16,
}

/// A running request-response probe. Dropping it stops and joins its thread.
#[derive(Debug)]
pub struct Requester {
    end_ns: Arc<AtomicU64>,
    thread: Option<JoinHandle<ProbeLog>>,
}

const NAME: &str = "request-response";

impl Requester {
    /// Starts probing `target` from `socket`, which must be bound in the network to measure.
    ///
    /// # Errors
    /// Returns an error if a parameter is out of range, the kernel refuses a socket option, or no
    /// route or no thread is available.
    pub fn start(
        socket: UdpSocket,
        target: SocketAddr,
        config: RequesterConfig,
        clock: RunClock,
    ) -> Result<Self, EndpointError> {
        check_payload("request payload in bytes", config.payload_bytes)?;
        let error = |step| move |source| EndpointError::Socket { end: NAME, step, source };
        let mut socket = ProbeSocket::new(socket, NAME)?;
        socket.connect(target).map_err(error("connecting to the reflector"))?;
        socket.set_read_timeout(READ_TIMEOUT).map_err(error("setting a timeout"))?;
        let end_ns = Arc::new(AtomicU64::new(u64::MAX));
        let end_of_thread = Arc::clone(&end_ns);
        let thread = spawn(NAME, move || run(socket, &config, clock, &end_of_thread))?;
        Ok(Self { end_ns, thread: Some(thread) })
    }

    /// Sends no request at or after `end_ns`.
    pub fn end_at(&self, end_ns: u64) {
        self.end_ns.store(end_ns, Ordering::Relaxed);
    }

    /// Stops the thread and returns its records. Every request is planned, none is skipped.
    ///
    /// # Errors
    /// Returns [`EndpointError::Panicked`] if the thread panicked: a defect.
    pub fn finish(mut self) -> Result<ProbeLog, EndpointError> {
        self.end_at(0);
        join(self.thread.take(), NAME)
    }
}

impl Drop for Requester {
    fn drop(&mut self) {
        self.end_at(0);
        let _ = join(self.thread.take(), NAME);
    }
}

/// Interval at which the thread checks whether to stop or to give up a request.
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
            // Stopped: the request in flight counts as lost.
            ClosedLoopStep::Wait { .. } if end_ns == 0 => break,
            ClosedLoopStep::Send(sequence) => {
                let now = clock.now_on_both();
                let marking = config.marking;
                let _ = encode_request(&mut packet, sequence, config.session, marking, now);
                // A packet that the kernel refuses gets no answer.
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
