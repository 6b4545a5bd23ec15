//! The latency probe: requests from the client, answered at once by the server.
//!
//! Open loop: one request per slot of a fixed schedule, independent of the answers, so that a queue
//! cannot slow down its own measurement. Closed loop: a request on the answer to the previous one,
//! or after a timeout; it samples bad moments rarely and is never a headline.

use underload_aqm::packet::{Dscp, Ecn, Packet};
use underload_aqm::time::{Span, Time};
use underload_record::schema::{Direction, Marking, Sample};

use crate::endpoint::{Endpoint, Port, UDP_HEADER_BYTES};
use crate::net::{Body, Segment};

#[derive(Clone, Copy, Debug)]
pub struct ProbeConfig {
    pub schedule: ProbeSchedule,
    /// Payload bytes of request and answer, without IP and UDP headers.
    pub payload_bytes: u16,
    /// ECN field of request and answer.
    pub ecn: Ecn,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeSchedule {
    /// A probe is sent every `interval`, whatever is answered.
    Open { interval: Span },
    /// A probe is sent on the answer to the previous one. After `timeout` an answer counts as lost
    /// and the next request is sent.
    Closed { timeout: Span },
}

impl Default for ProbeConfig {
    /// The defaults of the live probe: open loop, every 20 ms, with 52 bytes of payload.
    fn default() -> Self {
        let schedule = ProbeSchedule::Open { interval: Span::from_millis(20) };
        Self { schedule, payload_bytes: 52, ecn: Ecn::NotEct }
    }
}

#[derive(Debug, Default)]
pub(super) struct Probe {
    config: ProbeConfig,
    stop: Time,
    started: Time,
    next: Time,
    /// Sequence of the answer that a closed loop waits for.
    awaited: u32,
    samples: Vec<Sample>,
    /// When each request reached the server.
    arrivals: Vec<Time>,
}

impl Probe {
    pub(super) fn new(config: &ProbeConfig, stop: Time) -> Self {
        Self { config: *config, stop, next: Time::MAX, ..Self::default() }
    }
}

impl Endpoint for Probe {
    fn start(&mut self, port: &mut Port<'_>) {
        self.started = port.now;
        if let ProbeSchedule::Open { interval } = self.config.schedule {
            let slots = self.stop.since(port.now).as_nanos() / interval.as_nanos().max(1) + 1;
            let slots = (slots as usize).min(MAX_SAMPLES);
            self.samples.reserve_exact(slots);
            self.arrivals.reserve_exact(slots);
        }
        self.request(port, port.now);
    }

    fn on_timer(&mut self, port: &mut Port<'_>) {
        if self.next <= port.now {
            self.request(port, self.next);
        }
    }

    fn receive(&mut self, port: &mut Port<'_>, direction: Direction, packet: &Packet<Segment>) {
        let ecn = packet.meta.ecn;
        match (direction, packet.payload.body) {
            (Direction::Up, Body::Request { sequence }) => {
                self.arrivals[sequence as usize] = port.now;
                let reply = Body::Reply { sequence, far_ecn: ecn };
                port.send(Direction::Down, self.packet_bytes(), self.config.ecn, reply);
            }
            (Direction::Down, Body::Reply { sequence, far_ecn }) => {
                self.complete(port.now, sequence, far_ecn, ecn, port.address.dscp);
                if self.is_closed_loop() && sequence == self.awaited {
                    self.request(port, port.now);
                }
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Time {
        self.next
    }

    fn samples(&self) -> &[Sample] {
        &self.samples
    }

    fn take_samples(&mut self) -> Vec<Sample> {
        std::mem::take(&mut self.samples)
    }
}

impl Probe {
    fn is_closed_loop(&self) -> bool {
        matches!(self.config.schedule, ProbeSchedule::Closed { .. })
    }

    fn packet_bytes(&self) -> u32 {
        u32::from(self.config.payload_bytes) + UDP_HEADER_BYTES
    }

    fn request(&mut self, port: &mut Port<'_>, scheduled: Time) {
        if port.now >= self.stop || self.samples.len() >= MAX_SAMPLES {
            self.next = Time::MAX;
            return;
        }
        let sequence = self.samples.len() as u32;
        let ecn = self.config.ecn;
        self.samples.push(Sample {
            sequence: u64::from(sequence),
            closed_loop: self.is_closed_loop(),
            scheduled_ns: scheduled.as_nanos(),
            sent_ns: port.now.as_nanos(),
            marking_sent: Marking { dscp: port.address.dscp.value(), ecn },
            ..Sample::default()
        });
        self.arrivals.push(Time::MAX);
        self.awaited = sequence;
        self.next = match self.config.schedule {
            ProbeSchedule::Open { interval } => self.started + interval * (u64::from(sequence) + 1),
            ProbeSchedule::Closed { timeout } => port.now + timeout,
        };
        let bytes = self.packet_bytes();
        port.send(Direction::Up, bytes, self.config.ecn, Body::Request { sequence });
    }

    fn complete(&mut self, now: Time, sequence: u32, far: Ecn, near: Ecn, dscp: Dscp) {
        let sample = &mut self.samples[sequence as usize];
        let sent = Time::from_nanos(sample.sent_ns);
        let arrived = self.arrivals[sequence as usize];
        let dscp = dscp.value();
        sample.rtt_ns = Some(now.since(sent).as_nanos());
        sample.one_way_up_ns = Some(arrived.since(sent).as_nanos() as i64);
        sample.one_way_down_ns = Some(now.since(arrived).as_nanos() as i64);
        sample.marking_far = Some(Marking { dscp, ecn: far });
        sample.marking_near = Some(Marking { dscp, ecn: near });
    }
}

/// Maximum number of requests per probe and trial: enough for two hours with one every 1 ms.
const MAX_SAMPLES: usize = 8 << 20;
