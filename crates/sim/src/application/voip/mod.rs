//! A telephone call: G.711 in both directions, 160 bytes every 20 ms, with de-jitter buffers and a
//! quality score.
//!
//! A frame is **lost** if it never arrives and **late** if it arrives after the de-jitter buffer
//! should have played it; neither is heard. Mouth-to-ear delay is the 20 ms of speech in a frame
//! plus the time from sending to playing. Both ends send all the time, without silence suppression.
//!
//! The time to set up the call follows from the delays of its frames: no further packets are sent.

mod playout;
pub mod quality;

use underload_aqm::packet::Packet;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_record::schema::{Direction, Metric};

pub use playout::JitterBuffer;

use super::numbers::{metric, percent};
use crate::endpoint::{Endpoint, Port, UDP_HEADER_BYTES};
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
pub(super) struct Voip {
    stop: Time,
    started: Time,
    next: Time,
    sent: u32,
    concealment: bool,
    /// The receivers, up and down.
    listeners: [Listener; 2],
}

struct Listener {
    playout: Playout,
    /// Per frame, whether it was played.
    heard: Vec<bool>,
    /// Per frame, its delay. `None` until it arrives.
    delays: Vec<Option<Span>>,
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
            delays: Vec::new(),
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
            listener.delays.push(None);
        }
        self.sent += 1;
        self.next = self.started + FRAME * u64::from(self.sent);
    }
}

impl Voip {
    /// Returns the time from dialling until the phone rings, if the caller dials when the call
    /// starts; `None` if it does not ring before the end. A message takes as long as the frame that
    /// is sent at its time. The caller repeats a message without an answer (RFC 3261, 17.1.1.2).
    fn set_up_seconds(&self) -> Option<f64> {
        let [up, down] = &self.listeners;
        let end = FRAME * up.delays.len() as u64;
        let mut at = Span::ZERO;
        for _ in 0..EXCHANGES {
            let mut timer = FIRST_REPETITION;
            at = loop {
                let arrived = up.delay_at(at).map(|way| at + way);
                let answered = arrived.and_then(|at| Some(at + down.delay_at(at)?));
                match answered {
                    Some(answered) => break answered,
                    None if at >= end => return None,
                    None => (at, timer) = (at + timer, timer * 2),
                }
            };
        }
        Some(at.as_secs_f64())
    }
}

impl Endpoint for Voip {
    fn start(&mut self, port: &mut Port<'_>) {
        self.started = port.now;
        self.next = port.now;
        let frames = self.stop.since(port.now).as_nanos() / FRAME.as_nanos() + 1;
        for listener in &mut self.listeners {
            listener.heard.reserve_exact(frames as usize);
            listener.delays.reserve_exact(frames as usize);
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
        let set_up = metric("set_up", "s", self.set_up_seconds());
        std::iter::once(metric("mos", "MOS", worse)).chain(both).chain([set_up]).collect()
    }
}

impl Listener {
    fn arrive(&mut self, frame: u32, delay: Span) {
        self.received += 1;
        self.delays[frame as usize] = Some(delay);
        match self.playout.arrive(frame, delay) {
            Some(offset) => {
                self.delay_sum_ns += offset.as_nanos();
                self.heard[frame as usize] = true;
            }
            None => self.late += 1,
        }
    }

    /// Returns the delay of the frame sent at this time of the call; `None` if it was lost.
    fn delay_at(&self, at: Span) -> Option<Span> {
        *self.delays.get((at.as_nanos() / FRAME.as_nanos()) as usize)?
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
/// Rate of a direction at the IP layer: 50 frames a second.
pub(super) const BIT_PER_S: u32 = 50 * 8 * (FRAME_BYTES + RTP_HEADER_BYTES + UDP_HEADER_BYTES);
/// Requests and answers until the phone rings: the lookup of the provider's address, an INVITE that
/// is answered by a request for credentials, and an INVITE with them (RFC 3261, 22.3).
const EXCHANGES: u32 = 3;
/// T1 of RFC 3261. Each further repetition waits twice as long.
const FIRST_REPETITION: Span = Span::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(heard: &[bool]) -> Listener {
        let playout = Playout::new(VoipConfig::default().jitter_buffer, Rng::new(1));
        let received = heard.iter().filter(|heard| **heard).count();
        let delays = heard.iter().map(|heard| heard.then_some(Span::from_millis(100))).collect();
        Listener { playout, heard: heard.to_vec(), delays, late: 0, received, delay_sum_ns: 0 }
    }

    #[test]
    fn a_call_is_set_up_after_three_round_trips_and_repeats_lost_messages() {
        let call = |up: &[bool]| {
            let mut call = Voip::new(&VoipConfig::default(), Time::MAX, &Rng::new(1));
            call.listeners = [listener(up), listener(&[true; 200])];
            call.set_up_seconds()
        };
        let mut frames = [true; 200];
        assert_eq!(call(&frames), Some(0.6));
        // The first INVITE, after 0.2 s, and its repetition after 0.5 s more; the next comes 1 s later.
        (frames[10], frames[35]) = (false, false);
        assert_eq!(call(&frames), Some(2.1));
        assert_eq!(call(&[false; 200]), None, "no answer before the end");
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
