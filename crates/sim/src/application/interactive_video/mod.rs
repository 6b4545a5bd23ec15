//! Interactive video, one direction of a call: an encoder whose rate adapts to the network.
//!
//! The camera captures 30 frames a second. The encoder makes each as large as the controlled rate
//! allows (normally distributed with a standard deviation of a tenth), and skips frames while more
//! than half a second of video waits to be sent. Packets of up to 1200 bytes are paced at 2.5 times
//! the rate. The receiver reports every 50 ms which packets arrived when; lost packets are
//! retransmitted before others. A frame is shown once it and all earlier frames are complete.
//!
//! The control of Skype and Hangouts is not published; that of WebRTC is used instead. Not
//! modelled: forward error correction, key frames, the receiver's de-jitter buffer, probing for
//! bandwidth at the start. A report repeats the contents of a lost one.
//!
//! Glass to glass is the time from capturing a frame to showing it, plus 30 ms for encoding,
//! decoding and display. A freeze is a gap between frames shown of more than 183 ms (WebRTC's
//! definition: the usual gap plus 150 ms, or three times the usual gap).

mod control;
mod trend;

use std::collections::VecDeque;

use underload_aqm::packet::Packet;
use underload_aqm::rate::Rate;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_record::schema::{Direction, Metric};

pub use control::RateControl;

use super::numbers::{metric, normal, percent};
use super::samples::Samples;
use crate::endpoint::{Endpoint, Port, UDP_HEADER_BYTES};
use crate::net::{Body, Message, Segment};
use control::{Controller, Fate};

/// A direction of a video call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InteractiveVideoConfig {
    pub direction: Direction,
    pub control: RateControl,
    /// Maximum rate of the encoder.
    pub max_rate: Rate,
}

impl Default for InteractiveVideoConfig {
    /// Downstream with Google congestion control, at most 2.5 Mbit/s: the peak rate of Skype in the
    /// BoDe paper's tests.
    fn default() -> Self {
        let max_rate = Rate::from_bits_per_second(2_500_000);
        Self { direction: Direction::Down, control: RateControl::Gcc, max_rate }
    }
}

#[derive(Clone, Copy, Debug)]
struct Part {
    frame: u32,
    index: u32,
    bytes: u32,
}

/// A packet that has been sent, until a report covers it.
#[derive(Clone, Copy, Debug)]
struct Sent {
    part: Part,
    at: Time,
    arrival: Option<Time>,
}

/// A frame that has not been shown.
#[derive(Clone, Copy, Debug)]
struct Frame {
    captured: Time,
    /// Packets that have not arrived, one bit each.
    missing: u64,
}

pub(super) struct InteractiveVideo {
    config: InteractiveVideoConfig,
    stop: Time,
    rng: Rng,
    started: Time,
    controller: Controller,
    next_picture: Time,
    pictures: u32,
    next_report: Time,
    reports: u32,
    /// Packets to be sent, in order.
    waiting: VecDeque<Part>,
    waiting_bytes: u64,
    release: Time,
    /// Packets sent that no report covers yet, from number `first_sent` on.
    sent: VecDeque<Sent>,
    first_sent: u32,
    /// Lost packets to be retransmitted.
    lost: Vec<Part>,
    packets_lost: usize,
    packets_sent: usize,
    screen: Screen,
}

#[derive(Debug, Default)]
struct Screen {
    /// Frames not shown, from number `first` on.
    frames: VecDeque<Frame>,
    first: u32,
    /// The number after the last packet that arrived.
    end: u32,
    /// Packets since the last report.
    news: u32,
    received_bytes: u64,
    last_shown: Time,
    freezes: u32,
    frozen: Span,
    delays: Samples,
}

impl InteractiveVideo {
    pub(super) fn new(config: &InteractiveVideoConfig, stop: Time, rng: Rng) -> Self {
        Self {
            stop,
            rng,
            started: Time::ZERO,
            controller: Controller::new(config.control, config.max_rate.bits_per_second() as f64),
            next_picture: Time::MAX,
            pictures: 0,
            next_report: Time::MAX,
            reports: 0,
            waiting: VecDeque::with_capacity(256),
            waiting_bytes: 0,
            release: Time::ZERO,
            sent: VecDeque::with_capacity(1 << 10),
            first_sent: 0,
            lost: Vec::with_capacity(256),
            packets_lost: 0,
            packets_sent: 0,
            screen: Screen { frames: VecDeque::with_capacity(256), ..Screen::default() },
            config: config.clone(),
        }
    }

    /// Captures, encodes and queues a frame, unless too much video is waiting.
    fn capture(&mut self, now: Time) {
        self.pictures += 1;
        self.next_picture = self.started + FRAME_INTERVAL * u64::from(self.pictures);
        let rate = self.controller.rate();
        if self.waiting_bytes as f64 * 8.0 > rate * MAX_WAIT_S {
            return;
        }
        let size = rate / 8.0 / 30.0 * (1.0 + SIZE_DEVIATION * normal(&mut self.rng));
        let size = (size as u32).clamp(1, MAX_PARTS * PACKET_BYTES);
        let parts = size.div_ceil(PACKET_BYTES);
        let frame = self.screen.first + self.screen.frames.len() as u32;
        self.screen.frames.push_back(Frame { captured: now, missing: u64::MAX >> (64 - parts) });
        for index in 0..parts {
            let bytes = (size - index * PACKET_BYTES).min(PACKET_BYTES);
            self.waiting.push_back(Part { frame, index, bytes });
        }
        self.waiting_bytes += u64::from(size);
    }

    /// Sends what pacing allows.
    fn send_due(&mut self, port: &mut Port<'_>) {
        while self.release <= port.now {
            let Some(part) = self.waiting.pop_front() else { return };
            self.waiting_bytes -= u64::from(part.bytes);
            let sequence = self.first_sent + self.sent.len() as u32;
            let payload = part.bytes + RTP_HEADER_BYTES;
            port.send_message(self.config.direction, payload, sequence, part.frame);
            self.sent.push_back(Sent { part, at: port.now, arrival: None });
            self.packets_sent += 1;
            let seconds = f64::from(part.bytes) * 8.0 / (PACING * self.controller.rate());
            self.release = port.now + Span::from_nanos((seconds * 1e9) as u64);
        }
    }

    fn on_packet(&mut self, now: Time, sequence: u32) {
        let Some(offset) = sequence.checked_sub(self.first_sent) else { return };
        let Some(sent) = self.sent.get_mut(offset as usize) else { return };
        sent.arrival = Some(now);
        let part = sent.part;
        self.screen.end = self.screen.end.max(sequence + 1);
        self.screen.news += 1;
        self.screen.on_part(now, part);
    }

    fn send_report(&mut self, port: &mut Port<'_>) {
        let payload = REPORT_BYTES + 2 * self.screen.news;
        self.screen.news = 0;
        let backwards = self.config.direction.opposite();
        port.send_message(backwards, payload, self.reports, self.screen.end);
        self.reports += 1;
        self.next_report = self.started + REPORT_INTERVAL * (u64::from(self.reports) + 1);
    }

    /// Handles a report, which covers all packets up to the newest that had arrived when it was
    /// sent.
    fn on_report(&mut self, now: Time, report: &Message) {
        // The time stamp is in whole microseconds.
        let known = now - report.age(now) + Span::from_micros(1);
        let mut rtt = Span::ZERO;
        while self.first_sent < report.part_of {
            let Some(sent) = self.sent.pop_front() else { break };
            self.first_sent += 1;
            let arrival = sent.arrival.filter(|arrival| *arrival <= known);
            let bytes = sent.part.bytes + RTP_HEADER_BYTES;
            self.controller.on_packet(&Fate { sent: sent.at, arrival, bytes });
            if arrival.is_some() {
                rtt = now.since(sent.at);
            } else {
                self.lost.push(sent.part);
            }
        }
        self.controller.on_report(now, rtt);
        self.packets_lost += self.lost.len();
        // Retransmissions are sent before other packets, the oldest first.
        while let Some(part) = self.lost.pop() {
            self.waiting_bytes += u64::from(part.bytes);
            self.waiting.push_front(part);
        }
    }
}

impl Screen {
    fn on_part(&mut self, now: Time, part: Part) {
        let Some(offset) = part.frame.checked_sub(self.first) else { return };
        let Some(frame) = self.frames.get_mut(offset as usize) else { return };
        let bit = 1 << part.index;
        if frame.missing & bit != 0 {
            frame.missing &= !bit;
            self.received_bytes += u64::from(part.bytes);
        }
        while let Some(frame) = self.frames.front().filter(|frame| frame.missing == 0) {
            let delay = now.since(frame.captured) + PROCESSING;
            self.frames.pop_front();
            self.first += 1;
            self.show(now, delay);
        }
    }

    fn show(&mut self, now: Time, delay: Span) {
        if self.delays.count() > 0 {
            let (freezes, frozen) = freeze(now.since(self.last_shown));
            self.freezes += freezes;
            self.frozen = self.frozen + frozen;
        }
        self.last_shown = now;
        self.delays.push(delay);
    }
}

/// Returns the number of freezes (0 or 1) in a gap between two frames, and their length.
fn freeze(gap: Span) -> (u32, Span) {
    if gap > LONGEST_GAP { (1, gap) } else { (0, Span::ZERO) }
}

impl Endpoint for InteractiveVideo {
    fn start(&mut self, port: &mut Port<'_>) {
        self.started = port.now;
        self.next_picture = port.now;
        self.next_report = port.now + REPORT_INTERVAL;
        self.screen.last_shown = port.now;
        self.screen.delays.reserve_for(self.stop.since(port.now), FRAME_INTERVAL);
        self.on_timer(port);
    }

    fn receive(&mut self, port: &mut Port<'_>, direction: Direction, packet: &Packet<Segment>) {
        if port.now >= self.stop {
            return;
        }
        let Body::Message(message) = packet.payload.body else { return };
        if direction == self.config.direction {
            self.on_packet(port.now, message.sequence);
        } else {
            self.on_report(port.now, &message);
            self.send_due(port);
        }
    }

    fn on_timer(&mut self, port: &mut Port<'_>) {
        if port.now >= self.stop {
            return;
        }
        if self.next_picture <= port.now {
            self.capture(port.now);
        }
        if self.next_report <= port.now {
            self.send_report(port);
        }
        self.send_due(port);
    }

    fn deadline(&self) -> Time {
        let release = if self.waiting.is_empty() { Time::MAX } else { self.release };
        let next = self.next_picture.min(self.next_report).min(release);
        if next < self.stop { next } else { Time::MAX }
    }

    fn metrics(&self) -> Vec<Metric> {
        let screen = &self.screen;
        let length = self.stop.since(self.started).as_secs_f64();
        let (last_freeze, last_frozen) = freeze(self.stop.since(screen.last_shown));
        let frozen = (screen.frozen + last_frozen).as_secs_f64();
        let per_second = |count: f64| (length > 0.0).then(|| count / length);
        // A frame that was never shown counts with its age at the end.
        let mut delays = screen.delays.clone();
        for frame in &screen.frames {
            delays.push(self.stop.since(frame.captured) + PROCESSING);
        }
        let mut metrics = delays.report("glass_to_glass").to_vec();
        let freezes = f64::from(screen.freezes + last_freeze);
        metrics.push(metric("freezes", "", Some(freezes)));
        metrics.push(metric("frozen", "%", per_second(100.0 * frozen)));
        metrics.push(metric("frame_rate", "Hz", per_second(screen.delays.count() as f64)));
        let megabits = screen.received_bytes as f64 * 8.0 / 1e6;
        metrics.push(metric("bit_rate", "Mbit/s", per_second(megabits)));
        metrics.push(metric("packets_lost", "%", percent(self.packets_lost, self.packets_sent)));
        metrics
    }
}

/// Rates at the IP layer forwards, with the lowest rate of the encoder and a packet per frame, and
/// backwards, of the reports; bit/s.
pub(super) const LEAST_BIT_PER_S: [u32; 2] = [
    control::MIN_RATE as u32 + 30 * 8 * (RTP_HEADER_BYTES + UDP_HEADER_BYTES),
    20 * 8 * (REPORT_BYTES + UDP_HEADER_BYTES),
];
// 30 Hz.
const FRAME_INTERVAL: Span = Span::from_nanos(33_333_333);
const REPORT_INTERVAL: Span = Span::from_millis(50);
/// RTCP transport feedback without its two bytes per packet.
const REPORT_BYTES: u32 = 20;
/// RTP with the extension that numbers packets across streams.
const RTP_HEADER_BYTES: u32 = 20;
const PACKET_BYTES: u32 = 1_200;
/// Packets per frame: bits of [`Frame::missing`]. At 8 Mbit/s a frame has 28, at most 37.
const MAX_PARTS: u32 = 64;
const SIZE_DEVIATION: f64 = 0.1;
/// Pacing over rate, as WebRTC's.
const PACING: f64 = 2.5;
/// Video waiting to be sent, in seconds, beyond which frames are skipped.
const MAX_WAIT_S: f64 = 0.5;
/// Encoding, decoding and display.
const PROCESSING: Span = Span::from_millis(30);
/// A longer gap between frames is a freeze.
const LONGEST_GAP: Span = Span::from_millis(183);
