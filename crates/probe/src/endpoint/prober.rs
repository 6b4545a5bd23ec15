//! The open-loop prober: a sending thread that keeps a schedule, a receiving thread that keeps up.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use underload_record::schema::Marking;

use super::recent::{RecentDelays, RecentMaximum};
use super::{EndpointError, ProbeSocket, Received, RecentLatency, ThreadTiming};
use crate::clock::{Instants, RunClock};
use crate::session::{ReplyRecord, Schedule, SentRecord, Slot};
use crate::wire::{
    BASE_LEN, ClassOfService, ErrorEstimate, NtpTimestamp, ReflectorPacket, SenderPacket, TlvFlags,
    tlv_type, write_tlv,
};

/// One series of probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeClass {
    /// Unique among the probes, for example `probe` or `probe-nqb`.
    pub name: String,
    /// DSCP and ECN that its packets carry, and that the answers are asked to carry.
    pub marking: Marking,
}

/// Classes, schedule and threads of a prober.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProberConfig {
    /// The series, 1 to [`Prober::CLASSES_MAX`].
    pub classes: Vec<ProbeClass>,
    /// From one packet of a class to the next; at least [`Prober::INTERVAL_MIN`].
    pub interval: Duration,
    /// UDP payload, bytes; [`Prober::PAYLOAD_MIN`] to [`Prober::PAYLOAD_MAX`], the same both ways.
    pub payload_bytes: u16,
    /// The first slot's instant on the run's clock, ns.
    pub start_ns: u64,
    /// Scheduling of the sending and the receiving thread.
    pub timing: ThreadTiming,
    /// Session identifier of class 0; class `c` has this plus `c`.
    pub first_session: u16,
}

impl Default for ProberConfig {
    /// One best-effort class every 10 ms in the smallest packets, starting at once.
    fn default() -> Self {
        Self {
            classes: vec![ProbeClass { name: "probe".to_owned(), marking: Marking::default() }],
            interval: Duration::from_millis(10),
            payload_bytes: Prober::PAYLOAD_MIN,
            start_ns: 0,
            timing: ThreadTiming::default(),
            first_session: 1,
        }
    }
}

/// Everything that a prober recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeLog {
    /// Packets that left, by scheduled time.
    pub sent: Vec<SentRecord>,
    /// Answers, in order of arrival.
    pub replies: Vec<ReplyRecord>,
    /// Slots that the schedule asked for, all classes.
    pub planned: u64,
    /// Of these, never sent because they were late by an interval or more.
    pub skipped: u64,
    /// Of these, never sent because the kernel refused the packet.
    pub refused: u64,
    /// Datagrams that were no answer, and answers past the record's limit.
    pub ignored: u64,
    /// Answers without a kernel time stamp, which carry the time of the thread's wake-up instead.
    pub without_kernel_stamp: u64,
}

/// A running open-loop prober. Dropping it stops and joins its threads.
#[derive(Debug)]
pub struct Prober {
    shared: Arc<Shared>,
    sender: Option<JoinHandle<SenderLog>>,
    receiver: Option<JoinHandle<ReceiverLog>>,
}

#[derive(Debug)]
struct Shared {
    end_ns: AtomicU64,
    stop_receiving: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
    /// One per class.
    delays: Vec<RecentDelays>,
    lateness: RecentMaximum,
}

#[derive(Debug, Default)]
struct SenderLog {
    sent: Vec<SentRecord>,
    planned: u64,
    skipped: u64,
    refused: u64,
}

#[derive(Debug, Default)]
struct ReceiverLog {
    replies: Vec<ReplyRecord>,
    ignored: u64,
    without_kernel_stamp: u64,
}

impl Prober {
    /// Series at most.
    pub const CLASSES_MAX: usize = 16;
    /// Records at most, sent and received each: about 200 MB, an hour at 1 ms.
    pub const RECORDS_MAX: usize = 4_000_000;
    /// Base packet and Class of Service TLV.
    pub const PAYLOAD_MIN: u16 = 52;
    /// An Ethernet packet without fragments over IPv6.
    pub const PAYLOAD_MAX: u16 = 1452;
    /// Ten thousand packets per second and class.
    pub const INTERVAL_MIN: Duration = Duration::from_micros(100);

    /// Starts probing `target` from `socket`, which must be bound in the network to measure.
    ///
    /// # Errors
    /// [`EndpointError`]: a parameter out of range, a socket option refused, no route, no threads.
    pub fn start(
        socket: UdpSocket,
        target: SocketAddr,
        config: ProberConfig,
        clock: RunClock,
    ) -> Result<Self, EndpointError> {
        check(&config)?;
        let end = "probe";
        let failed = |step| move |source| EndpointError::Socket { end, step, source };
        let mut sending = ProbeSocket::new(socket, end)?;
        sending.connect(target).map_err(failed("connecting to the reflector"))?;
        let receiving = sending.try_clone().map_err(failed("sharing it between threads"))?;
        receiving.set_read_timeout(RECEIVE_TIMEOUT).map_err(failed("setting a timeout"))?;
        let shared = Arc::new(Shared {
            end_ns: AtomicU64::new(u64::MAX),
            stop_receiving: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            delays: config.classes.iter().map(|_| RecentDelays::default()).collect(),
            lateness: RecentMaximum::default(),
        });
        let mut prober = Self { shared: Arc::clone(&shared), sender: None, receiver: None };
        let receiver = Receiver {
            clock,
            first_session: config.first_session,
            classes: config.classes.len() as u16,
            shared: Arc::clone(&shared),
            log: ReceiverLog::default(),
        };
        let timing = config.timing;
        let name = "probe-receive";
        let body = move || receiver.run(receiving, timing);
        prober.receiver = Some(spawn(name, body)?);
        let sender = Sender { clock, config, shared, log: SenderLog::default() };
        prober.sender = Some(spawn("probe-send", move || sender.run(&sending))?);
        Ok(prober)
    }

    /// No slot at or after `end_ns` is sent. Until this is called the schedule goes on.
    pub fn end_at(&self, end_ns: u64) {
        self.shared.end_ns.store(end_ns, Ordering::Relaxed);
    }

    /// Packets sent and answers received so far, duplicates included.
    pub fn progress(&self) -> (u64, u64) {
        let received = self.shared.received.load(Ordering::Relaxed);
        (self.shared.sent.load(Ordering::Relaxed), received)
    }

    /// Round trips of each class since the last call, for a live view; time in the far host
    /// included. `None` for a class that nothing came back of.
    pub fn recent(&self) -> Vec<Option<RecentLatency>> {
        self.shared.delays.iter().map(RecentDelays::take).collect()
    }

    /// How late the latest packet since the last call was sent, ns.
    pub fn recent_lateness_ns(&self) -> u64 {
        self.shared.lateness.take()
    }

    /// Stops both threads, at once and without waiting for answers, and gives what they recorded.
    ///
    /// # Errors
    /// [`EndpointError::Panicked`] if a thread did: a bug.
    pub fn finish(mut self) -> Result<ProbeLog, EndpointError> {
        self.stop();
        let sent = join(self.sender.take(), "probe-send")?;
        let received = join(self.receiver.take(), "probe-receive")?;
        Ok(ProbeLog {
            sent: sent.sent,
            replies: received.replies,
            planned: sent.planned,
            skipped: sent.skipped,
            refused: sent.refused,
            ignored: received.ignored,
            without_kernel_stamp: received.without_kernel_stamp,
        })
    }

    fn stop(&self) {
        self.end_at(0);
        self.shared.stop_receiving.store(true, Ordering::Relaxed);
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop();
        let _ = join(self.sender.take(), "probe-send");
        let _ = join(self.receiver.take(), "probe-receive");
    }
}

/// How often the receiving thread looks whether it should stop.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(20);

fn check(config: &ProberConfig) -> Result<(), EndpointError> {
    let classes = config.classes.len();
    if !(1..=Prober::CLASSES_MAX).contains(&classes) {
        let (name, accepted) = ("number of probe classes", "1 to 16");
        return Err(EndpointError::Parameter { name, value: classes as u64, accepted });
    }
    if config.interval < Prober::INTERVAL_MIN {
        let value = config.interval.as_nanos() as u64;
        let (name, accepted) = ("probe interval in ns", "100000 (100 us) and more");
        return Err(EndpointError::Parameter { name, value, accepted });
    }
    if !(Prober::PAYLOAD_MIN..=Prober::PAYLOAD_MAX).contains(&config.payload_bytes) {
        let (name, accepted) = ("probe payload in bytes", "52 to 1452");
        let value = u64::from(config.payload_bytes);
        return Err(EndpointError::Parameter { name, value, accepted });
    }
    Ok(())
}

fn spawn<T: Send + 'static>(
    name: &'static str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, EndpointError> {
    let failed = |source| EndpointError::Thread { name, source };
    Builder::new().name(name.to_owned()).spawn(body).map_err(failed)
}

fn join<T: Default>(thread: Option<JoinHandle<T>>, name: &'static str) -> Result<T, EndpointError> {
    let Some(thread) = thread else { return Ok(T::default()) };
    thread.join().map_err(|_| EndpointError::Panicked { name })
}

struct Sender {
    clock: RunClock,
    config: ProberConfig,
    shared: Arc<Shared>,
    log: SenderLog,
}

impl Sender {
    fn run(mut self, socket: &ProbeSocket) -> SenderLog {
        self.config.timing.apply();
        let classes = self.config.classes.len() as u16;
        let interval_ns = self.config.interval.as_nanos() as u64;
        let mut schedule = Schedule::new(self.config.start_ns, interval_ns, classes);
        let mut packet = vec![0; usize::from(self.config.payload_bytes)];
        while self.log.sent.len() < Prober::RECORDS_MAX {
            schedule.end_at(self.shared.end_ns.load(Ordering::Relaxed));
            let Some(due_ns) = schedule.next_due_ns() else { break };
            let now_ns = self.config.timing.wait_until(self.clock, due_ns);
            schedule.end_at(self.shared.end_ns.load(Ordering::Relaxed));
            if let Some(slot) = schedule.take_due(now_ns) {
                self.send(socket, slot, &mut packet);
            }
        }
        self.log.planned = (0..classes).map(|class| schedule.planned(class)).sum();
        self.log.skipped = (0..classes).map(|class| schedule.skipped(class)).sum();
        self.log
    }

    fn send(&mut self, socket: &ProbeSocket, slot: Slot, packet: &mut [u8]) {
        let marking = self.config.classes[usize::from(slot.class)].marking;
        let session = self.config.first_session.wrapping_add(slot.class);
        let now = self.clock.now_on_both();
        // The buffer has room for both by the check on `payload_bytes`.
        let encoded = encode_request(packet, slot.sequence, session, marking, now);
        let sent = encoded.and_then(|()| socket.send(packet, marking.to_byte(), None).ok());
        if sent.is_none() {
            self.log.refused += 1;
            return;
        }
        self.shared.sent.fetch_add(1, Ordering::Relaxed);
        self.shared.lateness.note(now.run_ns.saturating_sub(slot.scheduled_ns));
        self.log.sent.push(SentRecord {
            class: slot.class,
            sequence: slot.sequence,
            scheduled_ns: slot.scheduled_ns,
            sent_ns: now.run_ns,
        });
    }
}

/// Writes a test packet with a Class of Service request, and padding up to the packet's length.
pub(crate) fn encode_request(
    packet: &mut [u8],
    sequence: u32,
    session: u16,
    marking: Marking,
    now: Instants,
) -> Option<()> {
    let timestamp = NtpTimestamp::from_unix_nanos(now.unix_ns);
    let error_estimate = ErrorEstimate::UNSYNCHRONIZED;
    SenderPacket { sequence, timestamp, error_estimate, session }.encode(packet).ok()?;
    let request = ClassOfService::request(marking.dscp, marking.ecn.bits()).encode();
    let flags = TlvFlags::UNRECOGNIZED;
    let class_type = tlv_type::CLASS_OF_SERVICE;
    let used = BASE_LEN + write_tlv(&mut packet[BASE_LEN..], flags, class_type, &request).ok()?;
    // Fewer bytes than a TLV header stay zero, which ends the list.
    let padding = packet.len().saturating_sub(used);
    if padding >= 4 {
        let rest = &mut packet[used..];
        rest.fill(0);
        let header_len = (padding - 4) as u16;
        rest[..2].copy_from_slice(&[flags.0, tlv_type::EXTRA_PADDING]);
        rest[2..4].copy_from_slice(&header_len.to_be_bytes());
    }
    Some(())
}

/// Reads an answer to a packet of one of `classes` sessions from `first_session` on.
pub(super) fn decode_reply(
    bytes: &[u8],
    received: Received,
    now: Instants,
    first_session: u16,
    classes: u16,
) -> Option<ReplyRecord> {
    let (packet, tlvs) = ReflectorPacket::decode(bytes).ok()?;
    let class = packet.sender.session.wrapping_sub(first_session);
    if class >= classes {
        return None;
    }
    // A wall clock that was set between arrival and now would give nonsense: then the wake-up
    // counts.
    let stamped_ns = received.kernel_unix_ns.map(|unix_ns| now.run_from_unix(unix_ns));
    let plausible = |ns: &u64| *ns <= now.run_ns && now.run_ns - ns < 10_000_000_000;
    let stamped_ns = stamped_ns.and_then(|ns| u64::try_from(ns).ok()).filter(plausible);
    let class_of_service = tlvs
        .find(tlv_type::CLASS_OF_SERVICE)
        .filter(|tlv| !tlv.flags.contains(TlvFlags::UNRECOGNIZED))
        .and_then(|tlv| ClassOfService::decode(tlv.value).ok());
    let on_run_clock = |time: NtpTimestamp| time.to_unix_nanos().map(|ns| now.run_from_unix(ns));
    Some(ReplyRecord {
        class,
        sequence: packet.sender.sequence,
        received_ns: stamped_ns.unwrap_or(now.run_ns),
        far_received_ns: on_run_clock(packet.received),
        far_sent_ns: on_run_clock(packet.timestamp),
        marking_far: class_of_service
            .map(|seen| Marking::from_byte(seen.dscp_received << 2 | seen.ecn_received)),
        marking_near: received.traffic_class.map(Marking::from_byte),
    })
}

/// When the packet that an answer answers left, as the answer itself says.
fn echoed_departure_ns(bytes: &[u8], now: Instants) -> Option<u64> {
    let (packet, _) = ReflectorPacket::decode(bytes).ok()?;
    let sent_ns = now.run_from_unix(packet.sender.timestamp.to_unix_nanos()?);
    u64::try_from(sent_ns).ok()
}

struct Receiver {
    clock: RunClock,
    first_session: u16,
    classes: u16,
    shared: Arc<Shared>,
    log: ReceiverLog,
}

impl Receiver {
    fn run(mut self, mut socket: ProbeSocket, timing: ThreadTiming) -> ReceiverLog {
        timing.apply();
        let mut buffer = [0; Prober::PAYLOAD_MAX as usize];
        while !self.shared.stop_receiving.load(Ordering::Relaxed) {
            match socket.recv(&mut buffer) {
                Ok(received) => self.note(&buffer[..received.len], received),
                Err(error) if is_transient(&error) => {}
                // A dead socket gives no more answers; the sender's packets then count as lost.
                Err(_) => self.clock.sleep_until(self.clock.now_ns() + 10_000_000),
            }
        }
        self.log
    }

    fn note(&mut self, bytes: &[u8], received: Received) {
        let now = self.clock.now_on_both();
        let reply = decode_reply(bytes, received, now, self.first_session, self.classes);
        match reply {
            Some(reply) if self.log.replies.len() < Prober::RECORDS_MAX => {
                self.log.without_kernel_stamp += u64::from(received.kernel_unix_ns.is_none());
                self.shared.received.fetch_add(1, Ordering::Relaxed);
                if let (Some(delays), Some(sent_ns)) = (
                    self.shared.delays.get(usize::from(reply.class)),
                    echoed_departure_ns(bytes, now),
                ) {
                    delays.note(reply.received_ns.saturating_sub(sent_ns));
                }
                self.log.replies.push(reply);
            }
            _ => self.log.ignored += 1,
        }
    }
}

/// True for the read timeout, a signal, and the far end's "no such port", which is an answer that
/// may be different for the next packet.
pub(super) fn is_transient(error: &io::Error) -> bool {
    let kind = error.kind();
    kind == io::ErrorKind::WouldBlock
        || kind == io::ErrorKind::Interrupted
        || kind == io::ErrorKind::ConnectionRefused
}
