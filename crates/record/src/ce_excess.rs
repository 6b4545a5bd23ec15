//! Alarms for flows with too many congestion marks, in every world.
//!
//! A trial is divided into windows of [`WINDOW_NS`] that do not cross from idle into load. For each
//! flow and direction a [`Watch`] evaluates the arrivals of each window, and raises at most one
//! alarm per rule:
//!
//! * idle: more than [`IDLE_SHARE`] of the packets have CE in a window without load. The queue is
//!   empty then, so a device marks without congestion.
//! * loaded: more than [`LOADED_SHARE`] have CE in [`LOADED_WINDOWS`] consecutive windows, at a
//!   rate below [`FAIR`] of the flow's equal share. Prague and DCTCP receive such shares only at
//!   two segments per round trip and below, so the marks keep the flow below its share.
//!
//! The Low Latency DOCSIS trial found an application by its marks in this way. A window with fewer
//! than [`FEWEST_PACKETS`] is ignored; a load shorter than 30 s never raises the second alarm.

use crate::schema::{CeAlarm, CeRule, Direction, Ecn, FlowRecord, Phase, PhaseWindow, Sample};

/// Length of a window: many rounds of any congestion control, and a few of its slowest swings.
pub const WINDOW_NS: u64 = 10_000_000_000;
/// Maximum share of CE on an idle path without an alarm: a probe may meet another packet.
pub const IDLE_SHARE: f64 = 0.01;
/// Minimum share of CE under load for an alarm: a scalable sender is then at its minimum window, or
/// an AQM is out of its range.
pub const LOADED_SHARE: f64 = 0.5;
/// Consecutive windows under load: 30 s are longer than a start, an outage or a route change.
pub const LOADED_WINDOWS: u32 = 3;
/// Share of the equal rate that counts as fair: headers and probes use the rest.
pub const FAIR: f64 = 0.9;
/// Minimum number of packets of a window: with fewer, a single mark would exceed [`IDLE_SHARE`].
pub const FEWEST_PACKETS: u64 = 100;

/// A part of a trial: `start_ns <= t < end_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub start_ns: u64,
    pub end_ns: u64,
    /// Whether the path is without load.
    pub is_idle: bool,
}

impl Window {
    /// Returns the windows of a trial, in order: all of the idle phase, whole windows of ramp and
    /// load together, none of the drain.
    pub fn of_trial(phases: &[PhaseWindow]) -> Vec<Self> {
        let mut windows = Vec::new();
        for phase in phases.iter().filter(|window| window.phase == Phase::Idle) {
            let starts = (phase.start_ns..phase.end_ns).step_by(WINDOW_NS as usize);
            windows.extend(starts.map(|start_ns| Self {
                start_ns,
                end_ns: start_ns.saturating_add(WINDOW_NS).min(phase.end_ns),
                is_idle: true,
            }));
        }
        let is_loaded = |window: &&PhaseWindow| matches!(window.phase, Phase::Ramp | Phase::Load);
        let loaded = || phases.iter().filter(is_loaded);
        let (Some(start), Some(end)) =
            (loaded().map(|it| it.start_ns).min(), loaded().map(|it| it.end_ns).max())
        else {
            return windows;
        };
        let whole = (end.saturating_sub(start)) / WINDOW_NS;
        windows.extend((0..whole).map(|number| {
            let start_ns = start + number * WINDOW_NS;
            Self { start_ns, end_ns: start_ns + WINDOW_NS, is_idle: false }
        }));
        windows
    }

    fn contains(&self, time_ns: u64) -> bool {
        self.start_ns <= time_ns && time_ns < self.end_ns
    }

    /// Returns the rate of `bytes` in the window.
    pub fn rate_bit_per_s(&self, bytes: u64) -> u64 {
        let length = u128::from(self.end_ns.saturating_sub(self.start_ns).max(1));
        (u128::from(bytes) * 8_000_000_000 / length) as u64
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Arrived {
    /// Packets with ECT or CE.
    pub ecn_packets: u64,
    pub ce_packets: u64,
    /// Rate of the ECN packets; `None` for a probe, whose rate is negligible.
    pub rate_bit_per_s: Option<u64>,
    /// Equal share of the flow; `None` if unknown, and then only probes count as flows below it.
    pub fair_share_bit_per_s: Option<u64>,
}

impl Arrived {
    fn share(&self) -> f64 {
        self.ce_packets as f64 / self.ecn_packets.max(1) as f64
    }

    fn is_below_fair_share(&self) -> bool {
        match (self.rate_bit_per_s, self.fair_share_bit_per_s) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(rate), Some(fair)) => (rate as f64) < fair as f64 * FAIR,
        }
    }

    fn is_excess(&self, window: &Window) -> bool {
        let share = self.share();
        let is_too_much = if window.is_idle {
            share > IDLE_SHARE
        } else {
            share > LOADED_SHARE && self.is_below_fair_share()
        };
        self.ecn_packets >= FEWEST_PACKETS && is_too_much
    }
}

/// Consecutive windows with too many marks.
#[derive(Debug, Clone, Copy)]
struct Streak {
    first: Window,
    last: Window,
    windows: u32,
    ecn_packets: u64,
    ce_packets: u64,
    /// Bits of all windows, and the bits that equal shares would have been.
    bits: Option<u128>,
    fair_bits: Option<u128>,
}

impl Streak {
    fn new(window: Window, arrived: &Arrived) -> Self {
        let length = u128::from(window.end_ns.saturating_sub(window.start_ns));
        let bits = |rate: Option<u64>| rate.map(|rate| u128::from(rate) * length);
        Self {
            first: window,
            last: window,
            windows: 1,
            ecn_packets: arrived.ecn_packets,
            ce_packets: arrived.ce_packets,
            bits: bits(arrived.rate_bit_per_s),
            fair_bits: bits(arrived.fair_share_bit_per_s),
        }
    }

    fn followed_by(self, next: Self) -> Self {
        let sum = |one: Option<u128>, other: Option<u128>| Some(one? + other?);
        Self {
            first: self.first,
            last: next.last,
            windows: self.windows + next.windows,
            ecn_packets: self.ecn_packets + next.ecn_packets,
            ce_packets: self.ce_packets + next.ce_packets,
            bits: sum(self.bits, next.bits),
            fair_bits: sum(self.fair_bits, next.fair_bits),
        }
    }

    /// Returns whether the streak is long enough for an alarm.
    fn is_alarm(&self) -> bool {
        self.first.is_idle || self.windows >= LOADED_WINDOWS
    }

    fn alarm(&self, flow: &str, direction: Direction) -> CeAlarm {
        let length = u128::from(self.last.end_ns.saturating_sub(self.first.start_ns).max(1));
        let rate = |bits: Option<u128>| bits.map(|bits| (bits / length) as u64);
        let is_idle = self.first.is_idle;
        CeAlarm {
            flow: flow.to_owned(),
            direction,
            rule: if is_idle { CeRule::Idle } else { CeRule::Loaded },
            start_ns: self.first.start_ns,
            end_ns: self.last.end_ns,
            ecn_packets: self.ecn_packets,
            ce_packets: self.ce_packets,
            rate_bit_per_s: rate(self.bits),
            fair_share_bit_per_s: if is_idle { None } else { rate(self.fair_bits) },
        }
    }
}

/// The arrivals of one flow in one direction, window by window.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    streak: Option<Streak>,
    /// The first streak that raised an alarm, by rule.
    idle: Option<Streak>,
    loaded: Option<Streak>,
}

impl Watch {
    pub fn add(&mut self, window: Window, arrived: &Arrived) {
        if !arrived.is_excess(&window) {
            self.end_streak();
            return;
        }
        let now = Streak::new(window, arrived);
        let continues = |streak: &Streak| {
            streak.last.is_idle == window.is_idle && streak.last.end_ns == window.start_ns
        };
        if let Some(streak) = self.streak.filter(continues) {
            self.streak = Some(streak.followed_by(now));
        } else {
            self.end_streak();
            self.streak = Some(now);
        }
    }

    /// Returns the alarms of all windows.
    pub fn alarms(mut self, flow: &str, direction: Direction) -> Vec<CeAlarm> {
        self.end_streak();
        let streaks = self.idle.iter().chain(&self.loaded);
        streaks.map(|streak| streak.alarm(flow, direction)).collect()
    }

    fn end_streak(&mut self) {
        let Some(streak) = self.streak.take().filter(Streak::is_alarm) else { return };
        let alarm = if streak.first.is_idle { &mut self.idle } else { &mut self.loaded };
        alarm.get_or_insert(streak);
    }
}

/// Returns the alarms of every probe among `flows`, in both directions, from its samples.
pub fn of_probes(samples: &[Sample], flows: &[FlowRecord], phases: &[PhaseWindow]) -> Vec<CeAlarm> {
    let windows = Window::of_trial(phases);
    let mut alarms = Vec::new();
    for (position, flow) in flows.iter().enumerate().filter(|(_, flow)| flow.kind == "probe") {
        let own: Vec<&Sample> =
            samples.iter().filter(|sample| usize::from(sample.flow) == position).collect();
        if !own.iter().any(|sample| is_ect(sample.marking_sent.ecn)) {
            continue;
        }
        for direction in [Direction::Up, Direction::Down] {
            let mut watch = Watch::default();
            for window in &windows {
                watch.add(*window, &probes_in(window, &own, direction));
            }
            alarms.extend(watch.alarms(&flow.name, direction));
        }
    }
    alarms
}

fn probes_in(window: &Window, samples: &[&Sample], direction: Direction) -> Arrived {
    let mut arrived = Arrived::default();
    let inside = samples.iter().filter(|sample| window.contains(sample.sent_ns));
    for sample in inside.filter(|sample| is_ect(sample.marking_sent.ecn)) {
        let marking = match direction {
            Direction::Up => sample.marking_far,
            Direction::Down => sample.marking_near,
        };
        // A probe that was lost, or whose ECN field was cleared, could not have been marked.
        let ecn = marking.map_or(Ecn::NotEct, |marking| marking.ecn);
        arrived.ecn_packets += u64::from(ecn != Ecn::NotEct);
        arrived.ce_packets += u64::from(ecn == Ecn::Ce);
    }
    arrived
}

fn is_ect(ecn: Ecn) -> bool {
    matches!(ecn, Ecn::Ect0 | Ecn::Ect1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Marking;

    const SECOND_NS: u64 = 1_000_000_000;

    fn phases(idle_s: u64, ramp_s: u64, load_s: u64) -> Vec<PhaseWindow> {
        let mut start = 0;
        let lengths = [
            (Phase::Idle, idle_s),
            (Phase::Ramp, ramp_s),
            (Phase::Load, load_s),
            (Phase::Drain, 2),
        ];
        let window = |(phase, length): (Phase, u64)| {
            let end = start + length * SECOND_NS;
            let window = PhaseWindow { phase, start_ns: start, end_ns: end };
            start = end;
            window
        };
        lengths.map(window).to_vec()
    }

    /// Returns the alarms of windows of 1000 packets with these numbers of marks, at `rate` and a
    /// share of 10 Mbit/s; the first window is idle.
    fn alarms(marked: &[u64], rate: Option<u64>) -> Vec<CeAlarm> {
        let windows = Window::of_trial(&phases(10, 5, 1_000));
        let mut watch = Watch::default();
        for (window, ce_packets) in windows.iter().zip(marked) {
            let arrived = Arrived {
                ecn_packets: 1_000,
                ce_packets: *ce_packets,
                rate_bit_per_s: rate,
                fair_share_bit_per_s: Some(10_000_000),
            };
            watch.add(*window, &arrived);
        }
        watch.alarms("game", Direction::Down)
    }

    const LOW: Option<u64> = Some(1_000_000);

    #[test]
    fn alarm_windows_are_whole_and_of_idle_or_of_ramp_and_load() {
        let windows = Window::of_trial(&phases(12, 5, 26));
        let seconds: Vec<_> = windows
            .iter()
            .map(|it| (it.start_ns / SECOND_NS, it.end_ns / SECOND_NS, it.is_idle))
            .collect();
        assert_eq!(
            seconds,
            [(0, 10, true), (10, 12, true), (12, 22, false), (22, 32, false), (32, 42, false)]
        );
        assert_eq!(Window::of_trial(&[]), []);
        assert_eq!(Window::of_trial(&phases(0, 0, 9)), []);
    }

    #[test]
    fn on_an_idle_path_one_window_raises_an_alarm() {
        let found = alarms(&[11], LOW);
        let [alarm] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((alarm.rule, alarm.ce_packets), (CeRule::Idle, 11));
        assert_eq!((alarm.start_ns, alarm.end_ns), (0, 10 * SECOND_NS));
        assert!(alarm.to_string().starts_with(
            "CE alarm: 1.1 % of 1000 ECN packets of game down arrived marked in 10 s while nothing"
        ));
        assert_eq!(alarms(&[10], LOW), [], "1 % does not exceed the limit of 1 %");
    }

    #[test]
    fn an_alarm_under_load_needs_three_windows_in_a_row() {
        assert_eq!(alarms(&[0, 501, 501, 500, 501, 501], LOW), []);
        let found = alarms(&[0, 0, 501, 601, 701, 501, 0, 999, 999, 999], LOW);
        let [alarm] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(alarm.rule, CeRule::Loaded);
        assert_eq!((alarm.start_ns, alarm.end_ns), (20 * SECOND_NS, 60 * SECOND_NS));
        assert_eq!((alarm.ecn_packets, alarm.ce_packets), (4_000, 2_304));
        assert_eq!((alarm.rate_bit_per_s, alarm.fair_share_bit_per_s), (LOW, Some(10_000_000)));
        assert!(alarm.to_string().contains("at 1.00 Mbit/s, below the flow's share of 10.00"));
    }

    #[test]
    fn flows_with_a_fair_or_unknown_share_raise_no_alarm() {
        let all = [0, 900, 900, 900];
        assert_eq!(alarms(&all, Some(9_000_000)), []);
        assert_eq!(alarms(&all, Some(8_999_999)).len(), 1);
        assert_eq!(alarms(&all, None).len(), 1, "a probe takes next to nothing");
        let unknown = Arrived {
            ecn_packets: 1_000,
            ce_packets: 999,
            rate_bit_per_s: LOW,
            fair_share_bit_per_s: None,
        };
        let mut watch = Watch::default();
        for window in Window::of_trial(&phases(0, 0, 60)) {
            watch.add(window, &unknown);
        }
        assert_eq!(watch.alarms("game", Direction::Up), []);
    }

    #[test]
    fn windows_of_few_packets_interrupt_a_streak() {
        let windows = Window::of_trial(&phases(10, 0, 50));
        let count =
            |ecn_packets| Arrived { ecn_packets, ce_packets: ecn_packets, ..Arrived::default() };
        let mut watch = Watch::default();
        watch.add(windows[0], &count(99));
        for (window, packets) in windows[1..].iter().zip([100, 100, 99, 100, 100]) {
            watch.add(*window, &count(packets));
        }
        assert_eq!(watch.alarms("game", Direction::Up), []);
    }

    #[test]
    fn ce_marks_are_counted_at_each_end() {
        let flows = ["l4s", "plain"].map(|name| FlowRecord {
            name: name.to_owned(),
            kind: "probe".to_owned(),
            ..FlowRecord::default()
        });
        let marking = |ecn| Marking { dscp: 0, ecn };
        let sample = |number: u64| Sample {
            flow: (number % 2) as u16,
            sent_ns: number * SECOND_NS / 200,
            marking_sent: marking(if number.is_multiple_of(2) { Ecn::Ect1 } else { Ecn::NotEct }),
            marking_far: Some(marking(if number.is_multiple_of(4) { Ecn::Ce } else { Ecn::Ect1 })),
            marking_near: Some(marking(Ecn::Ect1)),
            ..Sample::default()
        };
        let samples: Vec<Sample> = (0..1_000).map(sample).collect();
        let found = of_probes(&samples, &flows, &phases(5, 0, 0));
        let [alarm] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((alarm.flow.as_str(), alarm.direction), ("l4s", Direction::Up));
        assert_eq!((alarm.ecn_packets, alarm.ce_packets), (500, 250));
        assert_eq!(alarm.rate_bit_per_s, None);
    }
}
