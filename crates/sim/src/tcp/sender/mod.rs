//! The sending end of a TCP connection.

mod pacer;
mod rate_sampler;
mod repair;
#[cfg(test)]
mod tests;
mod timer;
mod writer;

use underload_aqm::packet::Ecn;
use underload_aqm::time::{Span, Time};
use underload_record::schema::Direction;

use super::accurate_ecn::MarkReader;
use super::config::{SYN_BYTES, TcpConfig};
use super::rack::Rack;
use super::recovery::{Probe, Reduction, Step, Turn};
use super::rtt::{INITIAL_TIMEOUT, RttEstimator};
use super::scoreboard::{Delivery, Losses, Scoreboard};
use super::undo::{Premature, Prior, Undo};
use crate::congestion::{
    Ack, Cause, CongestionControl, Controller, Loss, PacketRate, State, Steered, Window,
};
use crate::endpoint::Port;
use crate::net::{Acknowledgement, Body, Data, Stamp};
use crate::sys::prefetch_start;
use pacer::Pacer;
use rate_sampler::RateSampler;
use timer::{Alarm, LossTimer};
use writer::Writer;

/// Counters and state of a sender.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpStats {
    pub retransmits: u64,
    pub timeouts: u64,
    /// Congestion events answered (loss, mark or timeout).
    pub reductions: u64,
    /// Reductions undone because nothing had been lost.
    pub undone: u64,
    pub window: u32,
    pub in_flight: u32,
    /// `None` if the sender does not pace.
    pub pacing: Option<PacketRate>,
    /// 0 before the first sample.
    pub smoothed_rtt_ns: u64,
    /// Smallest round trip of the last five minutes; 0 before the first sample.
    pub smallest_rtt_ns: u64,
    /// When all of a transfer was acknowledged.
    pub finished: Option<Time>,
}

// The order of the fields: those that every acknowledgement reads, then the congestion control, of
// which most algorithms use the beginning, then the rest. With thousands of flows each cache line
// comes from main memory.
#[repr(C, align(64))]
pub(super) struct Sender {
    board: Scoreboard,
    writer: Writer,
    rtt: RttEstimator,
    rack: Rack,
    rate: RateSampler,
    timer: LossTimer,
    pacer: Pacer,
    max_rate: Option<PacketRate>,
    /// Bytes not segmented yet; `u64::MAX`: unlimited.
    backlog: u64,
    peer_window: u64,
    last_sent: Time,
    window: Window,
    reduction: Reduction,
    undo: Undo,
    probe: Option<Probe>,
    /// The current episode ends when this is acknowledged.
    recover: u32,
    /// Timeouts since the last progress.
    timeouts_in_row: u32,
    peer_marks: MarkReader,
    header_bytes: u32,
    segment_bytes: u16,
    direction: Direction,
    ecn: Ecn,
    state: State,
    accurate: bool,
    connected: bool,
    /// F-RTO is testing whether a timeout was spurious.
    forward: bool,
    announce_reduction: bool,
    window_limited: bool,
    control: Controller,
    connect_started: Time,
    /// The first timeout since progress.
    premature: Option<Premature>,
    stats: TcpStats,
}

impl Sender {
    pub(super) fn new(config: &TcpConfig, direction: Direction, control: Controller) -> Self {
        Self {
            direction,
            ecn: config.ecn.codepoint(),
            accurate: config.ecn.is_accurate(),
            segment_bytes: config.segment_bytes,
            header_bytes: u32::from(config.header_bytes),
            connected: false,
            connect_started: Time::ZERO,
            control,
            window: Window::new(config.initial_window),
            board: Scoreboard::new(),
            writer: Writer::default(),
            rtt: RttEstimator::new(),
            state: State::Open,
            recover: 0,
            reduction: Reduction::default(),
            undo: Undo::default(),
            premature: None,
            rack: Rack::new(),
            forward: false,
            timeouts_in_row: 0,
            timer: LossTimer::new(),
            probe: None,
            rate: RateSampler::default(),
            backlog: config.transfer_bytes.unwrap_or(u64::MAX),
            peer_window: u64::from(config.receive_window_bytes),
            peer_marks: MarkReader::default(),
            announce_reduction: false,
            pacer: Pacer::default(),
            max_rate: config
                .max_rate
                .map(|rate| PacketRate::from_bytes_per_s(rate.bits_per_second() / 8)),
            window_limited: false,
            last_sent: Time::ZERO,
            stats: TcpStats::default(),
        }
    }

    pub(super) fn connect(&mut self, port: &mut Port<'_>) {
        self.connect_started = port.now;
        port.send(self.direction, SYN_BYTES, Ecn::NotEct, Body::Syn);
        self.timer.set_timeout(port.now, INITIAL_TIMEOUT);
    }

    pub(super) fn on_connected(&mut self, port: &mut Port<'_>) {
        if self.connected {
            return;
        }
        let repeated = self.timer.has_backed_off();
        let rtt = (!repeated).then(|| port.now.since(self.connect_started));
        self.accept(port.now, rtt);
        self.transmit(port, Turn::All);
    }

    /// Marks the connection as established, with the round trip of the handshake if it is known.
    pub(super) fn accept(&mut self, now: Time, rtt: Option<Span>) {
        self.connected = true;
        if let Some(rtt) = rtt {
            self.rtt.on_sample(rtt, 0, 0);
            self.rtt.on_min_sample(now, rtt);
        }
        self.timer.forget_backoff();
        self.timer.stop();
        self.rate.restart(now);
        self.last_sent = now;
    }

    /// Appends `bytes` to the data to send, now or once connected.
    pub(super) fn write(&mut self, port: &mut Port<'_>, bytes: u64) {
        self.backlog = self.backlog.saturating_add(bytes);
        if self.connected {
            self.transmit(port, Turn::All);
        }
    }

    pub(super) fn stop(&mut self) {
        self.backlog = 0;
    }

    /// Fixes the window at `segments`, effective from the next acknowledgement.
    pub(super) fn steer(&mut self, segments: u32) {
        self.control = Controller::Steered(Steered { segments });
        self.window = Window::new(segments);
    }

    #[inline]
    pub(super) fn stats(&self) -> TcpStats {
        TcpStats {
            window: self.window.size,
            in_flight: self.board.in_flight(),
            pacing: self.pacing(),
            smoothed_rtt_ns: self.rtt.smoothed.map_or(0, Span::as_nanos),
            smallest_rtt_ns: self.rtt.smoothed.map_or(0, |_| self.rtt.min.as_nanos()),
            ..self.stats
        }
    }

    /// Returns the retransmission timeout without backoff.
    pub(super) fn timeout(&self) -> Span {
        self.rtt.timeout()
    }

    /// The first segment that has not been sent.
    pub(super) fn next_sequence(&self) -> u32 {
        self.board.next
    }

    #[inline]
    pub(super) fn deadline(&self) -> Time {
        self.timer.deadline.min(self.pacer.deadline())
    }

    /// Prefetches the fields that every acknowledgement reads.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch_start(self, std::mem::offset_of!(Self, control) + USUAL_CONTROL_BYTES);
    }

    /// Prefetches the record of the oldest segment in flight.
    #[inline]
    pub(super) fn prefetch_oldest(&self) {
        self.board.prefetch_oldest();
    }

    pub(super) fn on_timer(&mut self, port: &mut Port<'_>) {
        if self.timer.deadline <= port.now {
            self.timer.stop();
            if self.connected {
                self.on_alarm(port);
            } else {
                self.timer.back_off();
                port.send(self.direction, SYN_BYTES, Ecn::NotEct, Body::Syn);
                self.timer.set_timeout(port.now, INITIAL_TIMEOUT);
            }
        }
        if self.pacer.deadline() <= port.now {
            self.transmit(port, Turn::All);
        }
    }

    #[inline]
    pub(super) fn on_ack(&mut self, port: &mut Port<'_>, ack: &Acknowledgement) {
        let now = port.now;
        if ack.cumulative < self.board.first || ack.cumulative > self.board.next {
            return;
        }
        let prior_in_flight = self.board.in_flight();
        let min_rtt = self.rtt.min;
        let mut delivery = Delivery { now, echoed: ack.echoed, min_rtt, ..Delivery::default() };
        self.board.acknowledge(ack.cumulative, &mut delivery);
        let blocks = ack.block_count();
        if blocks > 0 {
            self.board.sack(ack.cumulative, &ack.blocks[..blocks], &mut delivery);
        }
        self.rate.on_delivered(now, delivery.delivered);
        let rtt = self.update_rtt(now, &delivery);
        let marked = self.peer_marks.read(ack.ce_count, delivery.delivered);
        self.rack.on_delivery(now, &delivery);
        if let Some(sample) = delivery.sample {
            let duplicate = ack.duplicate.is_some();
            self.rack.adapt(duplicate, sample.prior_delivered, self.rate.delivered);
        }
        let turn = self.change_state(now, ack, &delivery);
        let losses = if turn == Turn::All { self.find_losses(now) } else { Losses::default() };
        let lost = losses.lost;
        if lost > 0 {
            self.recover_losses(now, losses.lost_again > 0);
        }
        if ack.echo || (self.accurate && marked > 0) {
            self.on_mark(now);
        }
        let seen = Ack { lost, marked, rtt, prior_in_flight, ..self.seen(now, &delivery) };
        self.change_window(&seen, delivery.acknowledged > 0);
        if delivery.acknowledged > 0 {
            self.timer.forget_backoff();
            self.arm(now);
        } else if self.is_older_than_oldest(&delivery) {
            self.arm(now);
        }
        self.transmit(port, turn);
        if self.backlog == u64::MAX {
            self.writer.write(&self.board, &self.window);
        }
        if self.backlog == 0 && self.board.outstanding() == 0 && self.stats.finished.is_none() {
            self.stats.finished = Some(now);
        }
    }

    /// Returns `delivery` as the input of the congestion control, without losses and marks.
    #[inline]
    fn seen(&mut self, now: Time, delivery: &Delivery) -> Ack {
        Ack {
            now,
            // An acknowledgement that fills a gap advances far, but only newly delivered segments
            // count as growth (Linux `tcp_cong_control`): the others were counted when they were
            // selectively acknowledged, in a recovery that allows no growth.
            acknowledged: if delivery.acknowledged > 0 { delivery.delivered } else { 0 },
            delivered: delivery.delivered,
            lost: 0,
            marked: 0,
            rtt: None,
            min_rtt: self.rtt.min,
            smoothed_rtt: self.rtt.smoothed.unwrap_or(Span::ZERO),
            prior_in_flight: 0,
            in_flight: self.board.in_flight(),
            pacing_wait: self.pacer.wait(now),
            total_delivered: self.rate.delivered,
            total_lost: self.board.total_lost,
            first_outstanding: self.board.first,
            next_sequence: self.board.next,
            state: self.state,
            window_limited: self.window_limited,
            rate: self.rate.sample(now, delivery, self.rtt.min),
        }
    }

    /// Passes an acknowledgement to the congestion control. `advanced`: it moved the left edge.
    #[inline]
    fn change_window(&mut self, ack: &Ack, advanced: bool) {
        self.control.on_ack(ack, &mut self.window);
        if self.control.holds_back() {
            self.rate.limit_by_application(ack.in_flight);
        }
        if matches!(self.state, State::Recovery | State::Reducing) && !self.control.owns_window() {
            let Ack { in_flight, delivered, lost, .. } = *ack;
            let step = Step { in_flight, delivered, lost, advanced };
            self.reduction.on_ack(step, &mut self.window);
        }
    }

    /// Measures the round trip of segments that were sent once (Karn's rule), otherwise by the time
    /// stamp of the segment that moved the left edge (RFC 7323 section 4.1).
    fn update_rtt(&mut self, now: Time, delivery: &Delivery) -> Option<Span> {
        let by_stamp = || (delivery.acknowledged > 0).then(|| delivery.echoed.age(now));
        let first = delivery.first_sent.or(delivery.sacked_sent);
        let last = delivery.last_sent.or(delivery.sacked_sent);
        let last = last.map(|sent| now.since(sent)).or_else(by_stamp)?;
        let first = first.map_or(last, |sent| now.since(sent));
        self.rtt.on_sample(first, self.board.first, self.board.next);
        self.rtt.on_min_sample(now, last);
        Some(last)
    }

    /// Returns whether the selectively acknowledged segments were sent before the latest
    /// transmission of the oldest segment. Its acknowledgement cannot have arrived yet, so its
    /// timeout is restarted (Linux `tcp_clean_rtx_queue`).
    fn is_older_than_oldest(&self, delivery: &Delivery) -> bool {
        let oldest = self.board.oldest_sent();
        delivery.sacked_sent.is_some_and(|sent| oldest.is_some_and(|oldest| sent < oldest))
    }

    fn find_losses(&mut self, now: Time) -> Losses {
        if self.board.is_clean() {
            return Losses::default();
        }
        let view = self.rack.view(now, self.state, &self.board, &self.rtt);
        let losses = self.board.find_losses(&view);
        if let Some(check) = losses.next_check {
            self.timer.set(Alarm::Reordering, check + TIMEOUT_MIN);
        }
        losses
    }

    fn on_alarm(&mut self, port: &mut Port<'_>) {
        if self.board.outstanding() == 0 {
            return;
        }
        match self.timer.alarm {
            Alarm::Reordering => self.on_reordering_timeout(port),
            Alarm::Probe => self.send_probe(port),
            Alarm::Timeout => self.on_timeout(port),
        }
    }

    /// Marks segments as lost that did not arrive within the reordering window. A recovery that
    /// starts here sends what one delivered segment allows (Linux `tcp_rack_reo_timeout`).
    fn on_reordering_timeout(&mut self, port: &mut Port<'_>) {
        let was_recovering = self.state == State::Recovery;
        let losses = self.find_losses(port.now);
        if losses.lost > 0 {
            self.recover_losses(port.now, losses.lost_again > 0);
        }
        if self.state == State::Recovery && !was_recovering && !self.control.owns_window() {
            let (in_flight, lost) = (self.board.in_flight(), losses.lost);
            let step = Step { in_flight, delivered: 1, lost, advanced: false };
            self.reduction.on_ack(step, &mut self.window);
        }
        if !self.timer.is_running() {
            self.arm_timeout(port.now);
        }
        self.transmit(port, Turn::All);
    }

    /// Sends a new segment if there is one, otherwise retransmits the last segment not known to
    /// have arrived: selective acknowledgements may have arrived since the probe was scheduled.
    fn send_probe(&mut self, port: &mut Port<'_>) {
        let new = self.has_new() && self.fits_peer();
        if new {
            self.send_new(port);
        } else if let Some(last) = self.board.last_unsacked() {
            self.send_again(port, last);
        }
        self.probe = Some(Probe { high: self.board.next, again: !new });
        self.arm_timeout(port.now);
    }

    /// Restarts the loss timer after progress.
    fn arm(&mut self, now: Time) {
        if self.board.outstanding() == 0 {
            self.timer.stop();
            return;
        }
        if self.timer.awaits_reordered(now) {
            return;
        }
        let probing = self.state == State::Open
            && self.probe.is_none()
            && self.board.sacked == 0
            && self.rtt.smoothed.is_some();
        if !probing {
            self.arm_timeout(now);
            return;
        }
        let smoothed = self.rtt.smoothed.unwrap_or(INITIAL_TIMEOUT);
        let margin = if self.board.outstanding() == 1 { PROBE_MARGIN_LAST } else { TIMEOUT_MIN };
        self.timer.set(Alarm::Probe, now + (smoothed * 2 + margin).min(self.rtt.timeout()));
    }

    fn arm_timeout(&mut self, now: Time) {
        self.timer.set_timeout(now, self.rtt.timeout());
    }

    fn has_new(&self) -> bool {
        self.backlog > 0
    }

    /// Returns the rate of the congestion control or the highest one, whichever is lower.
    #[inline]
    fn pacing(&self) -> Option<PacketRate> {
        match (self.control.pacing(), self.max_rate) {
            (Some(rate), Some(max)) => Some(rate.min(max)),
            (rate, max) => rate.or(max),
        }
    }

    fn fits_peer(&self) -> bool {
        self.board.bytes + u64::from(self.segment_bytes) <= self.peer_window
    }

    fn transmit(&mut self, port: &mut Port<'_>, turn: Turn) {
        self.pacer.stop_waiting();
        let was_idle = self.board.outstanding() == 0;
        if was_idle && self.has_new() {
            self.restart_after_idle(port.now);
        }
        let mut in_flight = self.board.in_flight();
        while in_flight < self.window.size {
            let lost = if turn == Turn::All { self.board.next_lost() } else { None };
            if lost.is_none() && !(self.has_new() && self.fits_peer()) {
                break;
            }
            if self.pacer.holds_back(port.now, self.pacing()) {
                break;
            }
            match lost {
                Some(sequence) => self.send_again(port, sequence),
                None => self.send_new(port),
            }
            in_flight += 1;
        }
        let used_up = in_flight >= self.window.size;
        // Slow start continues while more than half the window is used (Linux
        // `tcp_is_cwnd_limited`).
        self.window_limited = used_up
            || self.pacer.waiting
            || (self.window.in_slow_start() && self.window.size < 2 * in_flight);
        if !used_up && !self.pacer.waiting && !self.has_new() {
            self.rate.limit_by_application(in_flight);
        }
        if !self.timer.is_running() {
            self.arm(port.now);
        }
    }

    fn restart_after_idle(&mut self, now: Time) {
        let idle = now.since(self.last_sent);
        self.rate.restart(now);
        if idle > self.rtt.timeout() {
            self.control.on_restart(now, idle, &mut self.window);
        }
    }

    fn send_new(&mut self, port: &mut Port<'_>) {
        let len = self.backlog.min(u64::from(self.segment_bytes)) as u16;
        if self.backlog != u64::MAX {
            self.backlog -= u64::from(len);
        }
        let sequence = self.board.send_new(len, &self.rate.departure(port.now));
        let window_reduced = std::mem::take(&mut self.announce_reduction);
        let sent = Stamp::of(port.now);
        let push = self.writer.sends();
        let data = Data { sequence, len, retransmission: false, window_reduced, push, sent };
        self.send_data(port, data);
    }

    fn send_again(&mut self, port: &mut Port<'_>, sequence: u32) {
        let len = self.board.send_again(sequence, &self.rate.departure(port.now));
        self.undo.on_retransmission(port.now);
        self.stats.retransmits += 1;
        // The oldest segment has a full timeout from its latest transmission (RFC 6675 section 6;
        // Linux `tcp_xmit_retransmit_queue`); otherwise the timeout of the first retransmission
        // would expire although a second one was just sent.
        if sequence == self.board.first && self.timer.alarm != Alarm::Reordering {
            self.arm_timeout(port.now);
        }
        let sent = Stamp::of(port.now);
        let (window_reduced, push) = (false, false);
        let data = Data { sequence, len, retransmission: true, window_reduced, push, sent };
        self.send_data(port, data);
    }

    fn send_data(&mut self, port: &mut Port<'_>, data: Data) {
        let bytes = u32::from(data.len) + self.header_bytes;
        // RFC 3168 section 6.1.5: retransmissions are Not-ECT; accurate senders may mark them.
        let ecn = if data.retransmission && !self.accurate { Ecn::NotEct } else { self.ecn };
        self.reduction.on_sent();
        self.last_sent = port.now;
        self.pacer.on_sent(port.now, bytes, self.pacing());
        port.send(self.direction, bytes, ecn, Body::Data(data));
    }
}

/// Size of the state of CUBIC and of most other algorithms.
const USUAL_CONTROL_BYTES: usize = 128;

/// Margin of the tail loss probe and of the reordering timer (Linux `TCP_TIMEOUT_MIN_US`). An
/// acknowledgement that is due arrives first: its packet has left the queue, and without that free
/// space a full queue would drop the retransmission.
const TIMEOUT_MIN: Span = Span::from_millis(2);
/// Margin of the probe for a single segment, whose acknowledgement may be delayed (Linux
/// `TCP_RTO_MIN`).
const PROBE_MARGIN_LAST: Span = Span::from_millis(200);
