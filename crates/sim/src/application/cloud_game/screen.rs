//! The player's end: arriving frames, and the reports on their packets.

use underload_aqm::time::{Span, Time};
use underload_record::schema::Metric;

use crate::application::numbers::{metric, percent};
use crate::application::samples::Samples;
use crate::net::{Message, Report};

#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) captured: Time,
    pub(super) packets_missing: u32,
    /// The number after the newest input that the frame shows.
    pub(super) inputs: u32,
    /// Delay of that input to the server; `None` before the first input.
    pub(super) input_took: Option<Span>,
}

/// Captured frames, and the statistics of those shown.
#[derive(Debug, Default)]
pub(super) struct Screen {
    /// Processing time, and the age at which a frame has no value.
    processing: Span,
    deadline: Span,
    frames: Vec<Frame>,
    /// The number after the newest frame shown.
    end: u32,
    /// Capture to arrival of each frame shown.
    frame_delays: Samples,
    lags: Samples,
    /// Frames shown with more than [`SPIKE`] of lag.
    spikes: usize,
    /// Frames shown by the deadline, and the sum of their values.
    in_time: usize,
    value: f64,
    pub(super) received_bytes: u64,
    report: Report,
    reported: Option<Time>,
    quickest: Option<Span>,
    quickest_marked: Option<Span>,
}

impl Screen {
    pub(super) fn new(processing: Span, deadline: Span) -> Self {
        Self { processing, deadline, ..Self::default() }
    }

    pub(super) fn reserve_for(&mut self, length: Span, interval: Span) {
        let frames = length.as_nanos() / interval.as_nanos() + 1;
        self.frames.reserve_exact(frames as usize);
        self.frame_delays.reserve_for(length, interval);
        self.lags.reserve_for(length, interval);
    }

    /// Adds a frame that was sent; returns its number.
    pub(super) fn expect(&mut self, frame: Frame) -> u32 {
        self.frames.push(frame);
        self.frames.len() as u32 - 1
    }

    pub(super) fn expected(&self) -> usize {
        self.frames.len()
    }

    /// Handles a packet. Returns [`Frame::inputs`] if it completes a frame that is shown.
    pub(super) fn on_packet(&mut self, now: Time, number: u32) -> Option<u32> {
        let frame = &mut self.frames[number as usize];
        frame.packets_missing -= 1;
        if frame.packets_missing > 0 || number < self.end {
            return None;
        }
        self.end = number + 1;
        let took = now.since(frame.captured);
        self.frame_delays.push(took);
        if let Some(input_took) = frame.input_took {
            let lag = input_took + took;
            self.lags.push(lag);
            self.spikes += usize::from(lag > SPIKE);
            let left = self.deadline.saturating_sub(lag + self.processing);
            self.in_time += usize::from(left > Span::ZERO);
            self.value += left.as_nanos() as f64 / self.deadline.as_nanos().max(1) as f64;
        }
        Some(frame.inputs)
    }

    /// Counts a packet of `bytes` of payload; returns a report if one is due: at the end of a
    /// frame, and on the first packet after [`REPORT_INTERVAL`].
    pub(super) fn note(
        &mut self,
        now: Time,
        message: &Message,
        bytes: u32,
        marked: bool,
    ) -> Option<Report> {
        self.received_bytes += u64::from(bytes);
        let took = message.age(now);
        let quickest = self.quickest.map_or(took, |quickest| quickest.min(took));
        self.quickest = Some(quickest);
        if marked {
            let before = self.quickest_marked.unwrap_or(took);
            self.quickest_marked = Some(before.min(took));
        }
        self.report.received += 1;
        self.report.marked += u32::from(marked);
        self.report.end = self.report.end.max(message.sequence + 1);
        let is_due = self.reported.is_none_or(|then| now.since(then) >= REPORT_INTERVAL);
        let ends_frame = self.frames[message.part_of as usize].packets_missing == 0;
        if !is_due && !ends_frame {
            return None;
        }
        self.reported = Some(now);
        let depth = self.quickest_marked.take().unwrap_or(quickest).saturating_sub(quickest);
        let marked_depth_us = (depth.as_nanos() / 1_000).min(u64::from(u32::MAX)) as u32;
        Some(Report { sent_us: message.sent_us, marked_depth_us, ..self.report })
    }

    pub(super) fn received_and_marked(&self) -> (usize, usize) {
        (self.report.received as usize, self.report.marked as usize)
    }

    /// Returns lag, spikes and value of the frames of a session of this length.
    pub(super) fn metrics(&self, length: Span) -> Vec<Metric> {
        let minutes = length.as_nanos() as f64 / 60e9;
        let spikes = (self.spikes + self.lost()) as f64;
        let [p50, p99, max] = self.lags.report("lag");
        let per_minute = (minutes > 0.0).then(|| spikes / minutes);
        let with_input = self.frames.iter().filter(|frame| frame.input_took.is_some()).count();
        let value = (with_input > 0).then(|| 100.0 * self.value / with_input as f64);
        vec![
            p50,
            p99,
            metric("spikes", "/min", per_minute),
            max,
            metric("frames_in_time", "%", percent(self.in_time, with_input)),
            metric("frame_value", "%", value),
        ]
    }

    /// Returns the share of sent frames whose delay exceeds the shortest by more than `margin`.
    pub(super) fn late_percent(&self, margin: Span) -> Option<f64> {
        percent(self.frame_delays.beyond_shortest(margin), self.frames.len())
    }

    /// Returns the share of sent frames that were never shown.
    pub(super) fn lost_percent(&self) -> Option<f64> {
        percent(self.lost(), self.frames.len())
    }

    fn lost(&self) -> usize {
        self.frames.len() - self.frame_delays.count()
    }
}

/// Lag that a player certainly notices: six frames.
const SPIKE: Span = Span::from_millis(100);
/// Between two reports within a frame: several per round trip, as congestion control needs.
const REPORT_INTERVAL: Span = Span::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_frames_are_worth_more_and_late_or_lost_ones_nothing() {
        let ms = Span::from_millis;
        let mut screen = Screen::new(ms(4), ms(20));
        // With 4 ms of processing and an input that took 1 ms, the ages are 8, 16 and 24 ms.
        for (number, took) in [(0, Some(3)), (1, Some(11)), (2, Some(19)), (3, None)] {
            let captured = Time::ZERO + ms(100) * number;
            let input_took = Some(ms(1));
            let frame =
                screen.expect(Frame { captured, packets_missing: 1, inputs: 1, input_took });
            if let Some(took) = took {
                screen.on_packet(captured + ms(took), frame);
            }
        }
        let metrics = screen.metrics(Span::from_secs(1));
        let of = |name: &str| metrics.iter().find(|it| it.name == name).and_then(|it| it.value);
        assert_eq!(of("frames_in_time"), Some(50.0));
        // 12 and 4 ms are left of 20 in two of four frames.
        let value = of("frame_value").expect("frames with an input");
        assert!((value - 20.0).abs() < 1e-9, "{value}");
    }
}
