//! Rate control of an L4S video: [`Prague`] over datagrams, and Reno behind a classic AQM
//! ([`super::fallback`]).
//!
//! The receiver counts packets and marks; the sender converts its reports to the acknowledgements
//! that TCP's congestion controls process, with a packet as a segment. The rate is W packets per
//! smoothed round trip. As in TCP Prague, shorter round trips than 25 ms behave like 25 ms. Losses
//! are packets numbered below the newest arrival that have not arrived.
//!
//! L4STeam's `udp_prague` implements the same law. Differences: this control has slow start, so
//! that a game reaches its resolution in less than a minute, and the window does not grow while the
//! rate is at twice the encoder's maximum.

use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

use super::fallback::Fallback;
use crate::congestion::{
    Ack, Cause, CongestionControl, Loss, PacketRate, Prague, PragueConfig, Reno, Setup,
    SlowStartExit, State, Window,
};
use crate::net::Report;

pub(super) struct RateControl {
    packet_bytes: u32,
    prague: Prague,
    reno: Reno,
    window: Window,
    fallback: Fallback,
    /// Rate before the first report, and maximum rate.
    first_rate: PacketRate,
    most_rate: PacketRate,
    /// `None` before the first report.
    smoothed_rtt: Option<Span>,
    min_rtt: Span,
    report: Report,
    heard: Time,
    /// The answer to marks (losses) lasts until all packets below this number are reported on.
    answered: u32,
    repaired: u32,
    /// Largest number of packets that were missing at once.
    lost: u32,
    /// When the sender began to behave as classic, and the total time of earlier such periods.
    classic_since: Option<Time>,
    classic_for: Span,
}

impl RateControl {
    /// `packet_bytes` includes headers. The first round trip is sent at `first_rate`; `most_rate`
    /// is the maximum.
    pub(super) fn new(
        packet_bytes: u32,
        first_rate: PacketRate,
        most_rate: PacketRate,
        rng: Rng,
    ) -> Self {
        let setup = Setup {
            segment_bytes: packet_bytes,
            packet_bytes,
            initial_window: LEAST_WINDOW,
            slow_start_exit: SlowStartExit::Loss,
            prague: PragueConfig::default(),
            rng,
        };
        Self {
            packet_bytes,
            prague: Prague::new(&setup),
            reno: Reno::new(SlowStartExit::Loss),
            window: Window::new(LEAST_WINDOW),
            fallback: Fallback::new(),
            first_rate,
            most_rate,
            smoothed_rtt: None,
            min_rtt: Span::from_nanos(u64::MAX),
            report: Report::default(),
            heard: Time::ZERO,
            answered: 0,
            repaired: 0,
            lost: 0,
            classic_since: None,
            classic_for: Span::ZERO,
        }
    }

    pub(super) fn rate(&self) -> PacketRate {
        let Some(rtt) = self.smoothed_rtt else { return self.first_rate };
        let exact = if self.fallback.is_classic {
            u128::from(self.window.size) << Prague::FRACTION_BITS
        } else {
            u128::from(self.prague.exact)
        };
        let bytes = (exact * u128::from(self.packet_bytes)) >> Prague::FRACTION_BITS;
        let rate = bytes * 1_000_000_000 / u128::from(rtt.as_nanos().max(1));
        PacketRate::from_bytes_per_s(u64::try_from(rate).unwrap_or(u64::MAX)).min(self.most_rate)
    }

    /// Handles a report; `next` is the number of the next packet to send.
    pub(super) fn on_report(&mut self, now: Time, report: &Report, next: u32) {
        if report.end < self.report.end || report.received <= self.report.received {
            return;
        }
        let before = std::mem::replace(&mut self.report, *report);
        self.heard = now;
        self.measure(report.age(now));
        let marked = report.marked - before.marked;
        if marked > 0 {
            self.fallback.on_marks(now, Span::from_micros(u64::from(report.marked_depth_us)));
            self.note_fallback(now);
        }
        let missing = report.end.saturating_sub(report.received);
        let lost = missing.saturating_sub(self.lost);
        self.lost = self.lost.max(missing);
        if lost > 0 && report.end >= self.repaired {
            self.repaired = next;
            self.answered = next;
            self.reduce(now, Cause::Loss, next);
        } else if marked > 0 && report.end >= self.answered {
            self.answered = next;
            self.reduce(now, Cause::Mark, next);
        }
        let delivered = report.received - before.received;
        self.grow(&self.acknowledgement(now, delivered, marked, lost, next));
    }

    /// Returns when the sender stops waiting for a report.
    pub(super) fn deadline(&self, next: u32) -> Time {
        match self.smoothed_rtt {
            Some(rtt) if self.report.end < next => self.heard + (rtt * 4).max(LEAST_TIMEOUT),
            _ => Time::MAX,
        }
    }

    /// Halves the window if no report arrived until the deadline.
    pub(super) fn on_timer(&mut self, now: Time, next: u32) {
        if now >= self.deadline(next) {
            self.heard = now;
            self.reduce(now, Cause::Timeout, next);
        }
    }

    /// Returns for how long the sender has behaved as classic until `end`.
    pub(super) fn classic_for(&self, end: Time) -> Span {
        self.classic_for + self.classic_since.map_or(Span::ZERO, |since| end.since(since))
    }

    /// Updates the smoothed round trip; the first one converts the first rate to a window.
    fn measure(&mut self, rtt: Span) {
        self.min_rtt = self.min_rtt.min(rtt);
        let rtt_ns = rtt.as_nanos().max(1);
        let smoothed = match self.smoothed_rtt.map(Span::as_nanos) {
            Some(smoothed) => smoothed - smoothed / 8 + rtt_ns / 8,
            None => {
                let bytes =
                    u128::from(self.first_rate.bytes_per_s()) * u128::from(rtt_ns) / 1_000_000_000;
                let packets = bytes / u128::from(self.packet_bytes);
                self.window.size = (packets as u32).max(LEAST_WINDOW);
                rtt_ns
            }
        };
        self.smoothed_rtt = Some(Span::from_nanos(smoothed));
    }

    /// Passes the window from one congestion control to the other if the vote has changed.
    fn note_fallback(&mut self, now: Time) {
        match (self.fallback.is_classic, self.classic_since) {
            (true, None) => {
                let whole = self.prague.exact >> Prague::FRACTION_BITS;
                self.window.size = (whole as u32).max(LEAST_WINDOW);
                self.window.threshold = self.window.size;
                self.classic_since = Some(now);
            }
            (false, Some(since)) => {
                self.classic_for = self.classic_for + now.since(since);
                self.classic_since = None;
            }
            _ => {}
        }
    }

    fn reduce(&mut self, now: Time, cause: Cause, next: u32) {
        let in_flight = next.saturating_sub(self.report.end);
        let loss = Loss { now, cause, in_flight, min_rtt: self.min_rtt };
        if self.fallback.is_classic {
            self.reno.on_loss(&loss, &mut self.window);
            self.window.size = self.window.threshold;
        } else {
            self.prague.on_loss(&loss, &mut self.window);
        }
    }

    fn grow(&mut self, ack: &Ack) {
        if self.fallback.is_classic {
            self.reno.on_ack(ack, &mut self.window);
        } else {
            self.prague.on_ack(ack, &mut self.window);
        }
    }

    fn acknowledgement(&self, now: Time, delivered: u32, marked: u32, lost: u32, next: u32) -> Ack {
        let in_flight = next.saturating_sub(self.report.end);
        let smoothed_rtt = self.smoothed_rtt.unwrap_or(Span::ZERO);
        Ack {
            now,
            acknowledged: delivered,
            delivered,
            lost,
            marked,
            rtt: Some(smoothed_rtt),
            min_rtt: self.min_rtt,
            smoothed_rtt,
            prior_in_flight: in_flight + delivered,
            in_flight,
            pacing_wait: Span::ZERO,
            total_delivered: self.report.received,
            total_lost: 0,
            first_outstanding: self.report.end,
            next_sequence: next,
            state: if self.report.end < self.repaired { State::Recovery } else { State::Open },
            window_limited: self.rate() < self.most_rate,
            rate: None,
        }
    }
}

/// Minimum window in packets, as in TCP Prague.
const LEAST_WINDOW: u32 = 2;
/// The timeout must exceed the pauses between frames.
const LEAST_TIMEOUT: Span = Span::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    /// One report per virtual round trip, so that nothing is rounded.
    const RTT: Span = Span::from_millis(25);

    /// A sender, and the report that its receiver would send.
    struct Session {
        control: RateControl,
        now: Time,
        next: u32,
        report: Report,
        /// Part of a mark that is carried into the next round trip.
        due_marks: f64,
    }

    impl Session {
        fn new() -> Self {
            let [first, most] = [250_000, 5_000_000].map(PacketRate::from_bytes_per_s);
            let control = RateControl::new(1_228, first, most, Rng::new(1));
            let report = Report::default();
            let now = Time::from_secs(1);
            let mut session = Self { control, now, next: 0, report, due_marks: 0.0 };
            session.next = session.per_round();
            session
        }

        /// Sends at the rate for `rounds` round trips. In each, the given shares of the packets are
        /// marked and lost, and marked packets waited for `depth`.
        fn send(&mut self, rounds: u32, marked: f64, lost: f64, depth: Span) {
            for _ in 0..rounds {
                let packets = self.next - self.report.end;
                let lost = (lost * f64::from(packets)).round() as u32;
                self.due_marks += marked * f64::from(packets);
                let newly_marked = self.due_marks as u32;
                self.due_marks -= f64::from(newly_marked);
                self.now += RTT;
                self.report = Report {
                    received: self.report.received + packets - lost,
                    marked: self.report.marked + newly_marked,
                    end: self.next,
                    sent_us: ((self.now - RTT).as_nanos() / 1_000) as u32,
                    marked_depth_us: (depth.as_nanos() / 1_000) as u32,
                };
                // The packets of the next round trip are sent while this report is in flight.
                self.next += self.per_round();
                self.control.on_report(self.now, &self.report, self.next);
            }
        }

        fn per_round(&self) -> u32 {
            let bytes = self.control.rate().bytes_per_s() * RTT.as_nanos() / 1_000_000_000;
            (bytes / 1_228).max(1) as u32
        }

        fn megabits(&self) -> f64 {
            self.control.rate().bytes_per_s() as f64 * 8.0 / 1e6
        }
    }

    const SHALLOW: Span = Span::from_millis(1);
    const DEEP: Span = Span::from_millis(15);

    #[test]
    fn without_marks_the_rate_doubles_up_to_the_maximum() {
        let mut session = Session::new();
        assert!((session.megabits() - 2.0).abs() < 1e-9);
        session.send(3, 0.0, 0.0, SHALLOW);
        assert!((8.0..=20.0).contains(&session.megabits()), "{}", session.megabits());
        session.send(20, 0.0, 0.0, SHALLOW);
        assert!((session.megabits() - 40.0).abs() < 1e-9, "{}", session.megabits());
    }

    /// The reference's law is r = 1/p - 1 Mbit/s for 1500 bytes and a virtual round trip of 25 ms;
    /// with packets of 1228 bytes the rate is 0.82 of that.
    #[test]
    fn marks_of_a_shallow_queue_hold_the_rate_of_pragues_law() {
        for (share, law) in [(0.25, 3.0), (0.1, 9.0)] {
            let mut session = Session::new();
            session.send(3_000, share, 0.0, SHALLOW);
            let ratio = session.megabits() / (law * 0.82);
            assert!((0.85..=1.3).contains(&ratio), "{share}: {} Mbit/s", session.megabits());
            assert_eq!(session.control.classic_for(session.now), Span::ZERO);
        }
    }

    #[test]
    fn deep_queue_marks_switch_to_reno_and_shallow_ones_back_to_prague() {
        let mut session = Session::new();
        session.send(1_000, 0.1, 0.0, SHALLOW);
        let scalable = session.megabits();
        session.send(1_000, 0.1, 0.0, DEEP);
        assert!(session.control.classic_for(session.now) > Span::from_secs(24));
        // Every round trip has a mark, and each halves the window.
        assert!(session.megabits() < scalable / 3.0, "{scalable}, {}", session.megabits());
        session.send(1_000, 0.1, 0.0, SHALLOW);
        let ratio = session.megabits() / scalable;
        assert!((0.8..=1.25).contains(&ratio), "{scalable}, {}", session.megabits());
    }

    #[test]
    fn a_loss_halves_the_window_once_per_round_trip() {
        let mut session = Session::new();
        session.send(3_000, 0.1, 0.0, SHALLOW);
        let before = session.megabits();
        session.send(1, 0.0, 0.3, SHALLOW);
        let ratio = session.megabits() / before;
        assert!((0.45..=0.55).contains(&ratio), "{ratio}");
    }

    #[test]
    fn the_window_halves_at_every_timeout_without_reports() {
        let mut session = Session::new();
        session.send(3_000, 0.1, 0.0, SHALLOW);
        let before = session.megabits();
        let next = session.next;
        let mut deadline = session.control.deadline(next);
        assert_eq!(deadline, session.now + Span::from_millis(200));
        session.control.on_timer(session.now, next);
        assert!((session.megabits() - before).abs() < 1e-9, "not yet");
        for _ in 0..8 {
            session.control.on_timer(deadline, next);
            deadline = session.control.deadline(next);
        }
        let least = 2.0 * 1_228.0 * 8.0 / 0.025 / 1e6;
        assert!((session.megabits() - least).abs() < 0.01, "{}", session.megabits());
    }

    #[test]
    fn reordered_and_repeated_reports_are_ignored() {
        let mut session = Session::new();
        session.send(50, 0.1, 0.0, SHALLOW);
        let before = session.megabits();
        let old = Report { received: 1, marked: 0, end: 2, ..session.report };
        let next = session.next;
        let same = session.report;
        session.control.on_report(session.now, &old, next);
        session.control.on_report(session.now, &same, next);
        assert!((session.megabits() - before).abs() < 1e-9);
    }
}
