//! A game rendered at a server: input up, frames down; by default every 33 ms and 60 a second.
//!
//! The player's input is sent in 128 bytes. Each frame shows all input that reached the
//! server before it. Frame sizes are normally distributed around the bit rate's share (standard
//! deviation a tenth), in packets of 1200 bytes. Nothing is retransmitted: a frame with a lost
//! packet is not shown.
//!
//! At a constant rate the packets of a frame are sent at once. An L4S video (ECT(1)) adapts its
//! rate (`control`): the size of a frame corresponds to four fifths of the rate, within the rates
//! of the encoder, and its packets are paced at the rate, so that even a large frame is sent before
//! the next. A frame is skipped while more than two frames of data wait. The receiver reports
//! arrivals at most every 5 ms and at the end of a frame.
//!
//! Lag is the delay that the path adds between the player's hand and the screen: the delay up of
//! the newest input that a frame shows, plus the time from the frame's capture to the arrival of
//! its last packet. The time that an input waits for the next frame is not included. A spike is a
//! frame with more than 100 ms of lag, or a lost frame.
//!
//! Input to photon is the time from sending an input to the arrival of the last packet of the first
//! frame that shows it, plus a constant for processing at both ends (sampling, rendering, encoding,
//! decoding, display). A frame is late if its delay exceeds that of the quickest frame by more than
//! a frame interval: the display has shown the previous frame twice.
//!
//! The age of a frame is its lag plus that constant. A newer frame is worth more than an older one:
//! the value of a frame falls in proportion to its age from 1 to 0 at `deadline`, and is 0 if the
//! frame is never shown.

mod control;
mod fallback;
mod screen;

use std::collections::VecDeque;

use underload_aqm::packet::{Ecn, Packet};
use underload_aqm::rate::Rate;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_record::schema::{Direction, Metric};

use super::numbers::{metric, normal, percent};
use super::samples::Samples;
use crate::congestion::PacketRate;
use crate::endpoint::{Endpoint, Port, UDP_HEADER_BYTES};
use crate::net::{Body, Segment};
use control::RateControl;
use screen::{Frame, Screen};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudGameConfig {
    /// Rate of the video's UDP payload; the maximum if it adapts.
    pub rate: Rate,
    /// Minimum rate of an L4S video that adapts; `None`: the rate is constant, without ECN.
    pub least_rate: Option<Rate>,
    /// Processing time at both ends, added to every input-to-photon delay.
    pub processing: Span,
    /// Frames per second that the server sends.
    pub frame_rate: u32,
    pub input_interval: Span,
    /// Age at which a frame has no value.
    pub deadline: Span,
}

impl Default for CloudGameConfig {
    /// 15 Mbit/s (1080p at 60 Hz as services recommend), constant, 30 ms at both ends; a frame has
    /// no value once its lag is a spike.
    fn default() -> Self {
        Self {
            rate: Rate::from_bits_per_second(15_000_000),
            least_rate: None,
            processing: Span::from_millis(30),
            frame_rate: 60,
            input_interval: Span::from_millis(33),
            deadline: Span::from_millis(130),
        }
    }
}

impl CloudGameConfig {
    pub(super) fn ecn(&self) -> Ecn {
        if self.least_rate.is_some() { Ecn::Ect1 } else { Ecn::NotEct }
    }

    fn frame_interval(&self) -> Span {
        let rate = u64::from(self.frame_rate.max(1));
        Span::from_nanos((1_000_000_000 + rate / 2) / rate)
    }
}

#[derive(Clone, Copy, Debug)]
struct Input {
    sent: Time,
    arrived: bool,
}

/// A packet of a frame that waits for the pacer.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    frame: u32,
    bytes: u32,
}

pub(super) struct CloudGame {
    config: CloudGameConfig,
    stop: Time,
    rng: Rng,
    started: Time,
    next_input: Time,
    next_frame: Time,
    pictures: u32,
    inputs: Vec<Input>,
    packets_sent: u32,
    /// The number after the newest input at the server, and the delay of that input.
    inputs_at_server: u32,
    newest_input_took: Span,
    /// `None` at a constant rate.
    control: Option<RateControl>,
    waiting: VecDeque<Waiting>,
    waiting_bytes: u64,
    release: Time,
    screen: Screen,
    inputs_shown: usize,
    input_delays: Samples,
}

impl CloudGame {
    pub(super) fn new(config: &CloudGameConfig, stop: Time, rng: Rng) -> Self {
        let control = config.least_rate.map(|least| {
            let [first, paced] = [least, config.rate].map(pacing_rate);
            let most = PacketRate::from_bytes_per_s(MOST_PACING * paced.bytes_per_s());
            let packet_bytes = PACKET_BYTES + UDP_HEADER_BYTES;
            RateControl::new(packet_bytes, first, most, rng.child("control"))
        });
        Self {
            config: config.clone(),
            stop,
            rng,
            started: Time::ZERO,
            next_input: Time::MAX,
            next_frame: Time::MAX,
            pictures: 0,
            inputs: Vec::new(),
            packets_sent: 0,
            inputs_at_server: 0,
            newest_input_took: Span::ZERO,
            waiting: VecDeque::with_capacity(if control.is_some() { 256 } else { 0 }),
            control,
            waiting_bytes: 0,
            release: Time::ZERO,
            screen: Screen::new(config.processing, config.deadline),
            inputs_shown: 0,
            input_delays: Samples::default(),
        }
    }

    fn send_input(&mut self, port: &mut Port<'_>) {
        let number = self.inputs.len() as u32;
        self.inputs.push(Input { sent: port.now, arrived: false });
        let ecn = self.config.ecn();
        port.send_message_with(ecn, Direction::Up, INPUT_BYTES, number, number);
        self.next_input = self.started + self.config.input_interval * (u64::from(number) + 1);
    }

    /// Returns the payload rate of the video, bit/s.
    fn video_rate(&self) -> f64 {
        let most = self.config.rate.bits_per_second() as f64;
        let (Some(control), Some(least)) = (&self.control, self.config.least_rate) else {
            return most;
        };
        let allowed = control.rate().bytes_per_s() as f64 * 8.0 / (PACING * WIRE_PER_PAYLOAD);
        allowed.clamp(least.bits_per_second() as f64, most)
    }

    /// Captures a frame, and sends or queues its packets.
    fn capture(&mut self, port: &mut Port<'_>) {
        self.pictures += 1;
        self.next_frame = self.started + self.config.frame_interval() * u64::from(self.pictures);
        let mean = self.video_rate() / 8.0 / f64::from(self.config.frame_rate);
        let size = mean * (1.0 + SIZE_DEVIATION * normal(&mut self.rng));
        if self.waiting_bytes as f64 > MOST_WAITING_FRAMES * mean {
            return;
        }
        let mut left = size.max(1.0) as u32;
        let input_took = (self.inputs_at_server > 0).then_some(self.newest_input_took);
        let frame = self.screen.expect(Frame {
            captured: port.now,
            packets_missing: left.div_ceil(PACKET_BYTES),
            inputs: self.inputs_at_server,
            input_took,
        });
        while left > 0 {
            let bytes = left.min(PACKET_BYTES);
            left -= bytes;
            if self.control.is_some() {
                self.waiting.push_back(Waiting { frame, bytes });
                self.waiting_bytes += u64::from(bytes);
            } else {
                self.send_packet(port, Waiting { frame, bytes });
            }
        }
    }

    fn send_packet(&mut self, port: &mut Port<'_>, packet: Waiting) {
        let (ecn, number) = (self.config.ecn(), self.packets_sent);
        port.send_message_with(ecn, Direction::Down, packet.bytes, number, packet.frame);
        self.packets_sent += 1;
    }

    /// Sends what pacing allows.
    fn send_due(&mut self, port: &mut Port<'_>) {
        while self.release <= port.now {
            let Some(control) = &self.control else { return };
            let least = self.config.least_rate.map(pacing_rate).unwrap_or_default();
            let rate = control.rate().max(least);
            let Some(packet) = self.waiting.pop_front() else { return };
            self.waiting_bytes -= u64::from(packet.bytes);
            self.send_packet(port, packet);
            self.release = port.now + rate.time_for(packet.bytes + UDP_HEADER_BYTES);
        }
    }

    fn on_input(&mut self, number: u32, took: Span) {
        self.inputs[number as usize].arrived = true;
        if number >= self.inputs_at_server {
            self.inputs_at_server = number + 1;
            self.newest_input_took = took;
        }
    }

    fn on_frame_packet(&mut self, now: Time, number: u32) {
        let Some(newest) = self.screen.on_packet(now, number) else { return };
        let newest = newest as usize;
        let shown = self.inputs_shown.min(newest)..newest;
        for input in self.inputs[shown].iter().filter(|input| input.arrived) {
            self.input_delays.push(now.since(input.sent) + self.config.processing);
        }
        self.inputs_shown = self.inputs_shown.max(newest);
    }

    /// Counts a packet of an L4S video, and sends a report if one is due.
    fn report_on(&mut self, port: &mut Port<'_>, packet: &Packet<Segment>) {
        let Body::Message(message) = packet.payload.body else { return };
        let bytes = packet.meta.len.saturating_sub(UDP_HEADER_BYTES);
        let marked = packet.meta.ecn == Ecn::Ce;
        if let Some(report) = self.screen.note(port.now, &message, bytes, marked) {
            let bytes = REPORT_BYTES + UDP_HEADER_BYTES;
            port.send(Direction::Up, bytes, self.config.ecn(), Body::Report(report));
        }
    }

    /// Returns the metrics that only an L4S video has.
    fn control_metrics(&self, control: &RateControl) -> [Metric; 4] {
        let length = self.stop.since(self.started);
        let classic = control.classic_for(self.stop.max(self.started));
        let skipped = self.pictures as usize - self.screen.expected();
        let (received, marked) = self.screen.received_and_marked();
        let megabits = self.screen.received_bytes as f64 * 8e3 / length.as_nanos() as f64;
        let share = 100.0 * classic.as_nanos() as f64 / length.as_nanos() as f64;
        let known = length > Span::ZERO;
        [
            metric("bit_rate", "Mbit/s", known.then_some(megabits)),
            metric("packets_marked", "%", percent(marked, received)),
            metric("frames_skipped", "%", percent(skipped, self.pictures as usize)),
            metric("as_classic_sender", "%", known.then_some(share)),
        ]
    }
}

impl Endpoint for CloudGame {
    fn start(&mut self, port: &mut Port<'_>) {
        self.started = port.now;
        self.next_input = port.now;
        self.next_frame = port.now;
        let length = self.stop.since(port.now);
        let inputs = length.as_nanos() / self.config.input_interval.as_nanos() + 1;
        self.inputs.reserve_exact(inputs as usize);
        self.input_delays.reserve_for(length, self.config.input_interval);
        self.screen.reserve_for(length, self.config.frame_interval());
        self.on_timer(port);
    }

    fn receive(&mut self, port: &mut Port<'_>, direction: Direction, packet: &Packet<Segment>) {
        match (direction, packet.payload.body) {
            (Direction::Up, Body::Message(message)) => {
                self.on_input(message.part_of, message.age(port.now));
            }
            (Direction::Up, Body::Report(report)) => {
                if let Some(control) = &mut self.control {
                    control.on_report(port.now, &report, self.packets_sent);
                    self.send_due(port);
                }
            }
            (Direction::Down, Body::Message(message)) => {
                self.on_frame_packet(port.now, message.part_of);
                if self.control.is_some() {
                    self.report_on(port, packet);
                }
            }
            _ => {}
        }
    }

    fn on_timer(&mut self, port: &mut Port<'_>) {
        while self.next_input <= port.now && self.next_input < self.stop {
            self.send_input(port);
        }
        while self.next_frame <= port.now && self.next_frame < self.stop {
            self.capture(port);
        }
        if let Some(control) = &mut self.control {
            control.on_timer(port.now, self.packets_sent);
        }
        self.send_due(port);
    }

    fn deadline(&self) -> Time {
        let next = self.next_input.min(self.next_frame);
        let next = if next < self.stop { next } else { Time::MAX };
        if self.waiting.is_empty() { next } else { next.min(self.release) }
    }

    fn metrics(&self) -> Vec<Metric> {
        let lost_inputs = self.inputs.iter().filter(|input| !input.arrived).count();
        let mut metrics = self.screen.metrics(self.stop.since(self.started));
        metrics.extend(self.input_delays.report("input_to_photon"));
        metrics.push(metric(
            "frames_late",
            "%",
            self.screen.late_percent(self.config.frame_interval()),
        ));
        metrics.push(metric("frames_lost", "%", self.screen.lost_percent()));
        metrics.push(metric("inputs_lost", "%", percent(lost_inputs, self.inputs.len())));
        if let Some(control) = &self.control {
            metrics.extend(self.control_metrics(control));
        }
        metrics
    }
}

/// Returns the pacing rate of a video of this payload rate.
fn pacing_rate(video: Rate) -> PacketRate {
    let bytes_per_s = video.bits_per_second() as f64 / 8.0 * PACING * WIRE_PER_PAYLOAD;
    PacketRate::from_bytes_per_s(bytes_per_s as u64)
}

const INPUT_BYTES: u32 = 128;
const PACKET_BYTES: u32 = 1_200;
const WIRE_PER_PAYLOAD: f64 = (PACKET_BYTES + UDP_HEADER_BYTES) as f64 / PACKET_BYTES as f64;
/// Standard deviation of frame sizes, as a share of their mean.
const SIZE_DEVIATION: f64 = 0.1;
/// Minimum ratio of pacing to video rate: enough for a frame 2.5 deviations above the mean.
const PACING: f64 = 1.25;
/// Maximum pacing rate divided by the pacing rate of the encoder's highest video rate. It is above 1,
/// so that a path that is faster than the encoder delivers frames sooner. TCP has a similar limit: in
/// slow start its window grows to at most twice what it uses.
const MOST_PACING: u64 = 2;
/// A frame is skipped while more than this number of mean-size frames wait.
const MOST_WAITING_FRAMES: f64 = 2.0;
/// Counts, time stamp and depth as [`crate::net::Report`] has them.
const REPORT_BYTES: u32 = 20;
