//! The open-loop prober: one thread sends by a schedule, another receives.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use underload_record::schema::Marking;

use super::recent::{RecentDelays, RecentMaximum};
use super::{EndpointError, ProbeSocket, Received, ThreadTiming, join, spawn};
use crate::clock::{Instants, RunClock};
use crate::network::is_transient;
use crate::session::{ReplyRecord, Schedule, SentRecord, Slot};
use crate::wire::{
    BASE_LEN, ClassOfService, ErrorEstimate, NtpTimestamp, ReflectorPacket, SenderPacket, TlvFlags,
    tlv_type, write_tlv,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeClass {
    /// Unique among the probes, for example `probe` or `probe-nqb`.
    pub name: String,
    /// DSCP and ECN of the packets, which are also requested for the answers.
    pub marking: Marking,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProberConfig {
    /// 1 to [`Prober::CLASSES_MAX`] classes.
    pub classes: Vec<ProbeClass>,
    /// Interval between packets of a class; at least [`Prober::INTERVAL_MIN`].
    pub interval: Duration,
    /// Bytes of UDP payload in both directions; [`Prober::PAYLOAD_MIN`] to [`Prober::PAYLOAD_MAX`].
    pub payload_bytes: u16,
    /// When the first slot is due, on the run's clock.
    pub start_ns: u64,
    /// Scheduling of the sending and the receiving thread.
    pub timing: ThreadTiming,
    /// Session identifier of class 0; class `c` has `first_session + c`.
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

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeLog {
    /// Packets sent, by scheduled time.
    pub sent: Vec<SentRecord>,
    /// Answers, in order of arrival.
    pub replies: Vec<ReplyRecord>,
    /// Slots of the schedule, all classes.
    pub planned: u64,
    /// Slots that were not sent because they were late by an interval or more.
    pub skipped: u64,
    /// Slots that were not sent because the kernel refused the packet.
    pub refused: u64,
    /// Datagrams that were not answers, and answers above the limit of records.
    pub ignored: u64,
    /// Answers without a kernel time stamp; the time of the thread's wake-up is used instead.
    pub without_kernel_stamp: u64,
}

/// A running open-loop prober. Dropping it stops and joins its threads.
#[derive(Debug)]
pub struct Prober {
    shared: Arc<Shared>,
    sender: Option<JoinHandle<ProbeLog>>,
    receiver: Option<JoinHandle<ProbeLog>>,
}

#[derive(Debug)]
struct Shared {
    end_ns: AtomicU64,
    stop_receiving: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
    delays: Vec<RecentDelays>,
    lateness: RecentMaximum,
}

impl Prober {
    pub const CLASSES_MAX: usize = 16;
    /// Maximum number of records, of sent and received packets each: about 200 MB, an hour at 1 ms.
    pub const RECORDS_MAX: usize = 4_000_000;
    /// Base packet and Class of Service TLV.
    pub const PAYLOAD_MIN: u16 = 52;
    /// An Ethernet packet over IPv6 without fragments.
    pub const PAYLOAD_MAX: u16 = 1452;
    /// Ten thousand packets per second and class.
    pub const INTERVAL_MIN: Duration = Duration::from_micros(100);

    /// Starts probing `target` from `socket`, which must be bound in the network to measure.
    ///
    /// # Errors
    /// Returns an error if a parameter is out of range, the kernel refuses a socket option, or no
    /// route or no thread is available.
    pub fn start(
        socket: UdpSocket,
        target: SocketAddr,
        config: ProberConfig,
        clock: RunClock,
    ) -> Result<Self, EndpointError> {
        check(&config)?;
        let end = "probe";
        let error = |step| move |source| EndpointError::Socket { end, step, source };
        let mut sending = ProbeSocket::new(socket, end)?;
        sending.connect(target).map_err(error("connecting to the reflector"))?;
        let receiving = sending.try_clone().map_err(error("sharing it between threads"))?;
        receiving.set_read_timeout(RECEIVE_TIMEOUT).map_err(error("setting a timeout"))?;
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
            log: ProbeLog::default(),
        };
        let timing = config.timing;
        prober.receiver = Some(spawn("probe-receive", move || receiver.run(receiving, timing))?);
        let sender = Sender { clock, config, shared, log: ProbeLog::default() };
        prober.sender = Some(spawn("probe-send", move || sender.run(&sending))?);
        Ok(prober)
    }

    /// Sends no slot at or after `end_ns`. Until this is called the schedule has no end.
    pub fn end_at(&self, end_ns: u64) {
        self.shared.end_ns.store(end_ns, Ordering::Relaxed);
    }

    /// Returns the packets sent and the answers received so far, with duplicates.
    pub fn progress(&self) -> (u64, u64) {
        let received = self.shared.received.load(Ordering::Relaxed);
        (self.shared.sent.load(Ordering::Relaxed), received)
    }

    /// Returns the median round trip of each class since the last call, within 6 %, ns, for a live
    /// view; it includes the far host's processing time. `None` for a class without answers.
    pub fn recent_medians_ns(&self) -> Vec<Option<u64>> {
        self.shared.delays.iter().map(RecentDelays::take_median).collect()
    }

    /// Returns how late the latest packet since the last call was sent, ns.
    pub fn recent_lateness_ns(&self) -> u64 {
        self.shared.lateness.take()
    }

    /// Stops both threads at once, without waiting for answers, and returns their records.
    ///
    /// # Errors
    /// Returns [`EndpointError::Panicked`] if a thread panicked: a defect.
    pub fn finish(mut self) -> Result<ProbeLog, EndpointError> {
        self.stop();
        let sent = join(self.sender.take(), "probe-send")?;
        let received = join(self.receiver.take(), "probe-receive")?;
        Ok(ProbeLog {
            replies: received.replies,
            ignored: received.ignored,
            without_kernel_stamp: received.without_kernel_stamp,
            ..sent
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

/// Interval at which the receiving thread checks whether it should stop.
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
    check_payload("probe payload in bytes", config.payload_bytes)
}

pub(super) fn check_payload(name: &'static str, payload_bytes: u16) -> Result<(), EndpointError> {
    if !(Prober::PAYLOAD_MIN..=Prober::PAYLOAD_MAX).contains(&payload_bytes) {
        let (value, accepted) = (u64::from(payload_bytes), "52 to 1452");
        return Err(EndpointError::Parameter { name, value, accepted });
    }
    Ok(())
}

struct Sender {
    clock: RunClock,
    config: ProberConfig,
    shared: Arc<Shared>,
    log: ProbeLog,
}

impl Sender {
    fn run(mut self, socket: &ProbeSocket) -> ProbeLog {
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
        // The check of `payload_bytes` ensures that the packet fits.
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

/// Writes a test packet with a Class of Service request, padded to the length of `packet`.
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
    // A remainder shorter than a TLV header stays zero, which ends the list.
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

/// Decodes an answer to a packet of one of the `classes` sessions from `first_session` on.
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
    // If the wall clock was set between arrival and now, the kernel's stamp is implausible and the
    // time of the wake-up is used.
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

/// Returns when the answered packet was sent, as the answer itself reports.
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
    log: ProbeLog,
}

impl Receiver {
    fn run(mut self, mut socket: ProbeSocket, timing: ThreadTiming) -> ProbeLog {
        timing.apply();
        let mut buffer = [0; Prober::PAYLOAD_MAX as usize];
        while !self.shared.stop_receiving.load(Ordering::Relaxed) {
            match socket.recv(&mut buffer) {
                Ok(received) => self.note(&buffer[..received.len], received),
                Err(error) if is_transient(&error) => {}
                // A dead socket receives no more answers; the sender's packets then count as lost.
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
