//! A telephone call: G.711 in both directions, 160 bytes every 20 ms, with de-jitter buffers and a
//! quality score.
//!
//! A frame is **lost** if it never arrives and **late** if it arrives after the de-jitter buffer
//! should have played it; neither is heard. Mouth-to-ear delay is the 20 ms of speech in a frame
//! plus the time from sending to playing. Both ends send all the time, without silence suppression.

mod playout;
pub mod quality;

use underload_aqm::packet::Packet;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_record::schema::{Direction, Metric};

pub use playout::JitterBuffer;

use super::numbers::{metric, percent};
use crate::endpoint::{Endpoint, Port};
use crate::net::{Body, Segment};
use playout::Playout;
use quality::Impairment;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoipConfig {
    /// The de-jitter buffer of both ends.
    pub jitter_buffer: JitterBuffer,
    /// Whether receivers conceal lost frames (G.711 Appendix I).
    pub concealment: bool,
}

impl Default for VoipConfig {
    /// A fixed buffer of 40 ms, with concealment.
    fn default() -> Self {
        let jitter_buffer = JitterBuffer::Fixed { delay: Span::from_millis(40) };
        Self { jitter_buffer, concealment: true }
    }
}

/// Both ends of a call.
#[derive(Debug)]
pub(super) struct Voip {
    stop: Time,
    started: Time,
    next: Time,
    sent: u32,
    concealment: bool,
    /// The receivers, up and down.
    listeners: [Listener; 2],
}

#[derive(Debug)]
struct Listener {
    playout: Playout,
    /// Per frame, whether it was played.
    heard: Vec<bool>,
    late: usize,
    received: usize,
    /// Sum of the times from sending to playing of the frames heard.
    delay_sum_ns: u64,
}

impl Voip {
    pub(super) fn new(config: &VoipConfig, stop: Time, rng: &Rng) -> Self {
        let listener = |label| Listener {
            playout: Playout::new(config.jitter_buffer, rng.child(label)),
            heard: Vec::new(),
            late: 0,
            received: 0,
            delay_sum_ns: 0,
        };
        Self {
            stop,
            started: Time::ZERO,
            next: Time::MAX,
            sent: 0,
            concealment: config.concealment,
            listeners: [listener("up"), listener("down")],
        }
    }

    fn send_frames(&mut self, port: &mut Port<'_>) {
        for direction in [Direction::Up, Direction::Down] {
            port.send_message(direction, FRAME_BYTES + RTP_HEADER_BYTES, self.sent, self.sent);
        }
        for listener in &mut self.listeners {
            listener.heard.push(false);
        }
        self.sent += 1;
        self.next = self.started + FRAME * u64::from(self.sent);
    }
}

impl Endpoint for Voip {
    fn start(&mut self, port: &mut Port<'_>) {
        self.started = port.now;
        self.next = port.now;
        let frames = self.stop.since(port.now).as_nanos() / FRAME.as_nanos() + 1;
        for listener in &mut self.listeners {
            listener.heard.reserve_exact(frames as usize);
        }
        self.on_timer(port);
    }

    fn receive(&mut self, port: &mut Port<'_>, direction: Direction, packet: &Packet<Segment>) {
        let Body::Message(frame) = packet.payload.body else { return };
        self.listeners[direction as usize].arrive(frame.sequence, frame.age(port.now));
    }

    fn on_timer(&mut self, port: &mut Port<'_>) {
        while self.next <= port.now && self.next < self.stop {
            self.send_frames(port);
        }
    }

    fn deadline(&self) -> Time {
        if self.next < self.stop { self.next } else { Time::MAX }
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = Vec::new();
        let mut worse = None;
        for (listener, direction) in self.listeners.iter().zip([Direction::Up, Direction::Down]) {
            let score = listener.report(direction, self.concealment, &mut metrics);
            worse = match (worse, score) {
                (Some(worse), Some(score)) => Some(f64::min(worse, score)),
                (worse, score) => worse.or(score),
            };
        }
        // Lists each metric of one direction next to the same metric of the other.
        let down = metrics.split_off(metrics.len() / 2);
        let both = metrics.into_iter().zip(down).flat_map(|(up, down)| [up, down]);
        std::iter::once(metric("mos", "MOS", worse)).chain(both).collect()
    }
}

impl Listener {
    fn arrive(&mut self, frame: u32, delay: Span) {
        self.received += 1;
        match self.playout.arrive(frame, delay) {
            Some(offset) => {
                self.delay_sum_ns += offset.as_nanos();
                self.heard[frame as usize] = true;
            }
            None => self.late += 1,
        }
    }

    /// Adds the metrics of this direction; returns its score by the E-model, if anything was sent.
    fn report(
        &self,
        direction: Direction,
        concealment: bool,
        metrics: &mut Vec<Metric>,
    ) -> Option<f64> {
        let sent = self.heard.len();
        let impairment = self.impairment(concealment);
        // A call in which nothing is heard has the worst rating.
        let rate = |method: fn(&Impairment) -> f64| {
            (sent > 0).then(|| impairment.as_ref().map_or(0.0, method))
        };
        let rating = rate(quality::e_model);
        let score = rating.map(quality::mean_opinion_score);
        let reduced = rate(quality::cole_rosenbluth).map(quality::mean_opinion_score);
        let delay = impairment.map(|impairment| impairment.delay_ms);
        let lost = percent(sent - self.received, sent);
        let mut add = |name, unit, value| {
            metrics.push(metric(format!("{name}_{direction}"), unit, value));
        };
        add("mos", "MOS", score);
        add("mos_cole_rosenbluth", "MOS", reduced);
        add("rating", "R", rating);
        add("mouth_to_ear", "ms", delay);
        add("frames_lost", "%", lost);
        add("frames_late", "%", percent(self.late, sent));
        score
    }

    /// Returns `None` if nothing was heard.
    fn impairment(&self, concealment: bool) -> Option<Impairment> {
        let heard = self.received - self.late;
        if heard == 0 {
            return None;
        }
        let sent = self.heard.len();
        let loss = (sent - heard) as f64 / sent as f64;
        let delay_ms = (self.delay_sum_ns as f64 / heard as f64 + FRAME.as_nanos() as f64) / 1e6;
        Some(Impairment { delay_ms, loss, burst_ratio: self.burst_ratio(loss), concealment })
    }

    /// Returns the mean length of loss bursts over `1 / (1 - loss)` (G.107 section 3.6).
    fn burst_ratio(&self, loss: f64) -> f64 {
        let missing = self.heard.iter().filter(|heard| !**heard).count();
        let begins = |pair: &&[bool]| pair[0] && !pair[1];
        let first = usize::from(self.heard.first() == Some(&false));
        let bursts = self.heard.windows(2).filter(begins).count() + first;
        if bursts == 0 {
            return 1.0;
        }
        missing as f64 / bursts as f64 * (1.0 - loss)
    }
}

/// G.711 at 64 kbit/s in frames of 20 ms.
const FRAME: Span = Span::from_millis(20);
const FRAME_BYTES: u32 = 160;
const RTP_HEADER_BYTES: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(heard: &[bool]) -> Listener {
        let playout = Playout::new(VoipConfig::default().jitter_buffer, Rng::new(1));
        let received = heard.iter().filter(|heard| **heard).count();
        Listener { playout, heard: heard.to_vec(), late: 0, received, delay_sum_ns: 0 }
    }

    #[test]
    fn the_burst_ratio_is_that_of_the_losses_pattern() {
        // Eight of ten heard, two losses in one burst: 2 / 1 * 0.8.
        let one = listener(&[true, true, false, false, true, true, true, true, true, true]);
        assert!((one.burst_ratio(0.2) - 1.6).abs() < 1e-12);
        let two = listener(&[false, true, true, false, true, true, true, true, true, true]);
        assert!((two.burst_ratio(0.2) - 0.8).abs() < 1e-12);
        assert!((listener(&[true; 4]).burst_ratio(0.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_silent_call_scores_one() {
        let mut metrics = Vec::new();
        let score = listener(&[false; 100]).report(Direction::Up, true, &mut metrics);
        assert_eq!(score, Some(1.0));
        assert_eq!(listener(&[]).report(Direction::Up, true, &mut metrics), None);
    }
}
