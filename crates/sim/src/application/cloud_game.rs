//! A game rendered far away: input up, 60 frames a second down.
//!
//! The player's input leaves every 33 ms in 128 bytes. Each frame shows all input that reached the
//! server before it; frames are normally distributed around the bit rate's share (a tenth as
//! standard deviation), cut into packets of 1200 bytes that leave at once. Nothing is sent again: a
//! frame of which a packet is lost is not shown.
//!
//! Input to photon is the time from sending an input to the arrival of the last packet of the first
//! frame shown with it, plus a constant for what happens at both ends (sampling, rendering,
//! encoding, decoding, display). A frame is late that takes longer than the quickest one by more
//! than a frame's time: the display has shown the one before twice.

use underload_aqm::packet::Packet;
use underload_aqm::rate::Rate;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_record::schema::{Direction, Metric};

use crate::flow::{Endpoint, Port, nth};
use crate::net::{Body, Segment};

use super::samples::Samples;
use super::{metric, normal, percent};

/// A cloud game.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudGameConfig {
    /// Rate of the video, of its payload above UDP.
    pub rate: Rate,
    /// Time spent at both ends: added to every input-to-photon delay.
    pub processing: Span,
}

impl Default for CloudGameConfig {
    /// 15 Mbit/s (1080p at 60 Hz as services recommend), 30 ms at both ends.
    fn default() -> Self {
        Self { rate: Rate::from_bits_per_second(15_000_000), processing: Span::from_millis(30) }
    }
}

/// An input of the player.
#[derive(Clone, Copy, Debug)]
struct Input {
    sent: Time,
    arrived: bool,
}

/// A frame under way.
#[derive(Clone, Copy, Debug)]
struct Frame {
    packets_missing: u32,
    /// Inputs sent before the newest that it shows, that one included.
    inputs: u32,
}

/// A player and the server.
#[derive(Debug)]
pub(super) struct CloudGame {
    config: CloudGameConfig,
    stop: Time,
    rng: Rng,
    started: Time,
    next_input: Time,
    next_frame: Time,
    inputs: Vec<Input>,
    frames: Vec<Frame>,
    packets_sent: u32,
    /// Inputs that have reached the server: up to the newest.
    inputs_at_server: u32,
    /// Inputs and frames that have been shown.
    inputs_shown: usize,
    frames_shown: u32,
    frame_delays: Samples,
    input_delays: Samples,
}

impl CloudGame {
    pub(super) fn new(config: &CloudGameConfig, stop: Time, rng: Rng) -> Self {
        Self {
            config: config.clone(),
            stop,
            rng,
            started: Time::ZERO,
            next_input: Time::MAX,
            next_frame: Time::MAX,
            inputs: Vec::new(),
            frames: Vec::new(),
            packets_sent: 0,
            inputs_at_server: 0,
            inputs_shown: 0,
            frames_shown: 0,
            frame_delays: Samples::default(),
            input_delays: Samples::default(),
        }
    }

    fn send_input(&mut self, port: &mut Port<'_>) {
        let number = self.inputs.len() as u32;
        self.inputs.push(Input { sent: port.now, arrived: false });
        port.send_message(Direction::Up, INPUT_BYTES, number, number);
        self.next_input = nth(self.started, INPUT_INTERVAL, u64::from(number) + 1);
    }

    fn send_frame(&mut self, port: &mut Port<'_>) {
        let number = self.frames.len() as u32;
        let mean = self.config.rate.bits_per_second() as f64 / 8.0 / 60.0;
        let size = mean * (1.0 + SIZE_DEVIATION * normal(&mut self.rng));
        let mut left = size.max(1.0) as u32;
        let packets_missing = left.div_ceil(PACKET_BYTES);
        self.frames.push(Frame { packets_missing, inputs: self.inputs_at_server });
        while left > 0 {
            let bytes = left.min(PACKET_BYTES);
            port.send_message(Direction::Down, bytes, self.packets_sent, number);
            self.packets_sent += 1;
            left -= bytes;
        }
        self.next_frame = nth(self.started, FRAME_INTERVAL, u64::from(number) + 1);
    }

    fn on_input(&mut self, number: u32) {
        self.inputs[number as usize].arrived = true;
        self.inputs_at_server = self.inputs_at_server.max(number + 1);
    }

    fn on_frame_packet(&mut self, now: Time, number: u32, age: Span) {
        let frame = &mut self.frames[number as usize];
        frame.packets_missing -= 1;
        if frame.packets_missing > 0 || number < self.frames_shown {
            return;
        }
        self.frames_shown = number + 1;
        self.frame_delays.push(age);
        let newest = frame.inputs as usize;
        let shown = self.inputs_shown.min(newest)..newest;
        for input in self.inputs[shown].iter().filter(|input| input.arrived) {
            self.input_delays.push(now.since(input.sent) + self.config.processing);
        }
        self.inputs_shown = self.inputs_shown.max(newest);
    }
}

impl Endpoint for CloudGame {
    fn start(&mut self, port: &mut Port<'_>) {
        self.started = port.now;
        self.next_input = port.now;
        self.next_frame = port.now;
        let length = self.stop.since(port.now);
        let count = |interval: Span| (length.as_nanos() / interval.as_nanos() + 1) as usize;
        self.inputs.reserve_exact(count(INPUT_INTERVAL));
        self.frames.reserve_exact(count(FRAME_INTERVAL));
        self.input_delays.reserve_for(length, INPUT_INTERVAL);
        self.frame_delays.reserve_for(length, FRAME_INTERVAL);
        self.on_timer(port);
    }

    fn receive(&mut self, port: &mut Port<'_>, direction: Direction, packet: &Packet<Segment>) {
        let Body::Message(message) = packet.payload.body else { return };
        match direction {
            Direction::Up => self.on_input(message.part_of),
            Direction::Down => {
                self.on_frame_packet(port.now, message.part_of, message.age(port.now));
            }
        }
    }

    fn on_timer(&mut self, port: &mut Port<'_>) {
        while self.next_input <= port.now && self.next_input < self.stop {
            self.send_input(port);
        }
        while self.next_frame <= port.now && self.next_frame < self.stop {
            self.send_frame(port);
        }
    }

    fn deadline(&self) -> Time {
        let next = self.next_input.min(self.next_frame);
        if next < self.stop { next } else { Time::MAX }
    }

    fn metrics(&self) -> Vec<Metric> {
        let frames = self.frames.len();
        let late = self.frame_delays.beyond_shortest(FRAME_INTERVAL);
        let lost_inputs = self.inputs.iter().filter(|input| !input.arrived).count();
        let mut metrics = self.input_delays.report("input_to_photon").to_vec();
        metrics.push(metric("frames_late", "%", percent(late, frames)));
        metrics.push(metric(
            "frames_lost",
            "%",
            percent(frames - self.frame_delays.count(), frames),
        ));
        metrics.push(metric("inputs_lost", "%", percent(lost_inputs, self.inputs.len())));
        metrics
    }

    fn bytes_reserved(&self) -> usize {
        self.inputs.capacity() * size_of::<Input>()
            + self.frames.capacity() * size_of::<Frame>()
            + self.frame_delays.bytes_reserved()
            + self.input_delays.bytes_reserved()
    }
}

const INPUT_BYTES: u32 = 128;
const INPUT_INTERVAL: Span = Span::from_millis(33);
/// 60 Hz.
const FRAME_INTERVAL: Span = Span::from_nanos(16_666_667);
const PACKET_BYTES: u32 = 1_200;
/// Standard deviation of frame sizes, as a share of their mean.
const SIZE_DEVIATION: f64 = 0.1;
