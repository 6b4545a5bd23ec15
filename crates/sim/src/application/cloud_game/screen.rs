//! The player's end: frames as they come in, and what is reported back of their packets.

use underload_aqm::time::{Span, Time};
use underload_record::schema::Metric;

use crate::application::numbers::{metric, percent};
use crate::application::samples::Samples;
use crate::net::{Message, Report};

/// A frame under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) captured: Time,
    pub(super) packets_missing: u32,
    /// Inputs sent before the newest that it shows, that one included.
    pub(super) inputs: u32,
    /// How long that one took to the server; `None` before the first.
    pub(super) input_took: Option<Span>,
}

/// Frames that were captured, and those shown.
#[derive(Debug, Default)]
pub(super) struct Screen {
    frames: Vec<Frame>,
    /// One past the newest frame shown.
    end: u32,
    /// Capture to arrival of each frame shown.
    frame_delays: Samples,
    lags: Samples,
    /// Frames shown with more than [`SPIKE`] of lag.
    spikes: usize,
    received_bytes: u64,
    report: Report,
    reported: Option<Time>,
    quickest: Option<Span>,
    quickest_marked: Option<Span>,
}

impl Screen {
    pub(super) fn reserve_for(&mut self, length: Span, interval: Span) {
        let frames = length.as_nanos() / interval.as_nanos() + 1;
        self.frames.reserve_exact(frames as usize);
        self.frame_delays.reserve_for(length, interval);
        self.lags.reserve_for(length, interval);
    }

    /// Expects a frame; returns its number.
    pub(super) fn expect(&mut self, frame: Frame) -> u32 {
        self.frames.push(frame);
        self.frames.len() as u32 - 1
    }

    /// Frames that were sent.
    pub(super) fn expected(&self) -> usize {
        self.frames.len()
    }

    /// Takes in a packet of frame `number`. Where the frame is shown by it, returns the inputs that
    /// the frame shows.
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
        }
        Some(frame.inputs)
    }

    /// Counts a packet of `bytes` of payload for its sender; returns the report where one is due:
    /// at the end of a frame, and on the first packet after [`REPORT_INTERVAL`].
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

    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Lag and spikes of a session of that length.
    pub(super) fn metrics(&self, length: Span) -> Vec<Metric> {
        let minutes = length.as_nanos() as f64 / 60e9;
        let spikes = (self.spikes + self.lost()) as f64;
        let [p50, p99, max] = self.lags.report("lag");
        let per_minute = (minutes > 0.0).then(|| spikes / minutes);
        vec![p50, p99, metric("spikes", "/min", per_minute), max]
    }

    /// Shown later than the quickest by more than `margin`, percent of the frames sent.
    pub(super) fn late_percent(&self, margin: Span) -> Option<f64> {
        percent(self.frame_delays.beyond_shortest(margin), self.frames.len())
    }

    /// Never shown, percent of the frames sent.
    pub(super) fn lost_percent(&self) -> Option<f64> {
        percent(self.lost(), self.frames.len())
    }

    fn lost(&self) -> usize {
        self.frames.len() - self.frame_delays.count()
    }

    pub(super) fn bytes_reserved(&self) -> usize {
        self.frames.capacity() * size_of::<Frame>()
            + self.frame_delays.bytes_reserved()
            + self.lags.bytes_reserved()
    }
}

/// Lag that a player cannot miss: six frames.
const SPIKE: Span = Span::from_millis(100);
/// Between two reports inside a frame: several per round trip, as congestion control wants.
const REPORT_INTERVAL: Span = Span::from_millis(5);
