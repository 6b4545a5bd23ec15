//! The evidence of loaded probes: the few numbers that distinguish queues.
//!
//! Two stages, each with open-loop probes in several classes and an idle phase before it:
//!
//! 1. TCP flows fill the path, as users do. The shape of the delay shows how their congestion
//!    control and the queue interact.
//! 2. UDP at [`OVERLOAD`] times the rate that TCP reached. UDP does not react, so the queue shows
//!    its own rule: a full buffer stays at its size, PIE returns to its target within a second,
//!    CoDel is overrun and its delay keeps growing, a fair queue lets all other flows pass.
//!
//! Delays are round trips minus the shortest one of the idle phase. Only one direction is loaded at
//! a time, so the difference is time in that direction's queue.

use serde::{Deserialize, Serialize};
use underload_record::schema::{Direction, Ecn, Marking, Phase, PhaseWindow, Sample, Series};
use underload_record::stats::nearest_rank;

use crate::endpoint::Prober;

/// Rate of the second stage, as a multiple of [`Stage::busiest_bit_per_s`] of the first one.
pub const OVERLOAD: f64 = 1.4;

/// Markings of the probe classes of both stages.
pub const CLASSES: [Marking; 4] = [
    BEST_EFFORT,
    Marking { dscp: Marking::NQB, ecn: Ecn::NotEct },
    Marking { dscp: 0, ecn: Ecn::Ect0 },
    Marking { dscp: 0, ecn: Ecn::Ect1 },
];

const BEST_EFFORT: Marking = Marking { dscp: 0, ecn: Ecn::NotEct };

/// The records of one stage, measured or simulated.
#[derive(Clone, Copy, Debug)]
pub struct Stage<'a> {
    /// The samples of every probe class.
    pub samples: &'a [Sample],
    /// Time series of the load flows: `NAME.goodput`, and of TCP `NAME.rtt` and `NAME.retransmits`.
    pub series: &'a [Series],
    pub phases: &'a [PhaseWindow],
    /// Counts of the UDP load; `None` if TCP loaded the path.
    pub udp: Option<UdpLoad>,
    /// Bytes of each packet's IP header: 20, or 40 with IPv6.
    pub ip_header_bytes: u16,
}

/// The outcome of a UDP load of [`OVERLOAD_PACKET_BYTES`] packets in the load phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UdpLoad {
    /// Share of packets that arrived, 0 to 1.
    pub arrived: f64,
    pub goodput_bit_per_s: f64,
}

/// Length of the UDP load's packets, IP header included.
pub const OVERLOAD_PACKET_BYTES: u16 = 1_400;

/// The kind of congestion control that filled the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Control {
    /// CUBIC, Reno and others that fill a queue until a packet is lost.
    LossBased,
    /// BBR, which limits its share of the queue.
    Bbr,
}

impl Control {
    /// Returns the kind of the congestion control that the kernel calls `name`.
    pub fn from_name(name: &str) -> Self {
        if name.starts_with("bbr") { Self::Bbr } else { Self::LossBased }
    }
}

/// Measurements of the probes. Delays are in ms above `base_rtt_ms`; shares are 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Kind of congestion control of the load in the first stage.
    pub control: Control,
    /// Rate of the bottleneck, bit/s at the IP layer, with the probes' packets: what arrived of the
    /// overload, which leaves no gap; without an overload, the highest rate of TCP.
    pub rate_bit_per_s: f64,
    /// Shortest round trip of the idle phase, ms.
    pub base_rtt_ms: f64,
    /// Delay of best effort probes under TCP.
    pub tcp: Delay,
    /// Mean time from one rise of the delay above its median to the next, ms; `None` without
    /// swings.
    pub swing_period_ms: Option<f64>,
    /// Median of the TCP flows' own smoothed round trip.
    pub own_flow_ms: Option<f64>,
    /// Mean number of segments lost in a 100 ms interval with losses.
    pub loss_burst_segments: Option<f64>,
    /// Share of segments that were retransmitted.
    pub loss_share: Option<f64>,
    /// Median delay of DSCP 45 under TCP.
    pub nqb_ms: Option<f64>,
    /// Median delay of ECT(1) under TCP.
    pub ect1_ms: Option<f64>,
    /// Share of ECT(0) probes that arrived with CE, under either load.
    pub ce_of_ect0: Option<f64>,
    /// Share of ECT(1) probes that arrived with CE, under either load.
    pub ce_of_ect1: Option<f64>,
    /// Share of ECT probes that arrived with CE while the path was idle.
    pub ce_idle: Option<f64>,
    /// The second stage; `None` if it was skipped.
    pub overload: Option<Overload>,
}

/// A distribution of delays, ms above the shortest idle round trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    pub p5_ms: f64,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    /// Share of the probes with at least 90 % of `p99_ms`: how long the delay stays at its maximum.
    pub at_top: f64,
}

/// Measurements of the probes under a UDP load above the bottleneck's rate. Delays in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overload {
    /// Median delay of best effort probes in the first half.
    pub early_ms: f64,
    /// 10th percentile in the second half.
    pub late_p10_ms: f64,
    /// Median in the second half.
    pub late_p50_ms: f64,
    /// 90th percentile in the second half.
    pub late_p90_ms: f64,
    /// Share of best effort probes lost, both halves.
    pub lost: f64,
    /// Share of the load's packets that were lost; `None` if the load was not counted.
    pub load_lost: Option<f64>,
    /// Median delay of DSCP 45 in the second half.
    pub nqb_ms: Option<f64>,
    /// Median delay of ECT(1) in the second half.
    pub ect1_ms: Option<f64>,
}

/// Fewest answered probes from which a class is judged.
const ANSWERS_MIN: usize = 20;
/// IP length of a full TCP packet.
const TCP_PACKET_BYTES: f64 = 1_500.0;
/// TCP header with time stamps.
const TCP_HEADER_BYTES: f64 = 32.0;
const UDP_HEADER_BYTES: f64 = 8.0;
/// UDP payload of a probe.
const PROBE_PAYLOAD_BYTES: f64 = Prober::PAYLOAD_MIN as f64;
/// Interval at which TCP's delivered bits are sampled, ns.
const STEP_NS: u64 = 50_000_000;
/// Half a second, in steps of [`STEP_NS`].
const BUSIEST_STEPS: usize = 10;
/// 4 s: the highest mean rate of TCP over this time counts as the rate of the path.
const RATE_STEPS: usize = 80;
/// 1 s: the longest time for which a receiver holds back data behind a lost segment.
const HELD_BACK_STEPS: usize = 20;
/// An overload that lost at least this share of its packets overran the bottleneck.
const OVERRUN_LOST_MIN: f64 = 0.1;
/// If TCP reached more than this multiple of UDP's rate, the path limits UDP.
const UDP_HELD_BACK: f64 = 1.05;

impl Evidence {
    /// Reads the stages of one direction. Returns `None` if an idle or loaded round trip or the
    /// goodput is missing.
    pub fn from_stages(
        direction: Direction,
        congestion_control: &str,
        tcp: Stage<'_>,
        overload: Option<Stage<'_>>,
    ) -> Option<Self> {
        let base_ms = tcp.base_ms()?;
        let best_effort = tcp.delays(BEST_EFFORT, base_ms);
        let window = tcp.window(Phase::Load)?;
        let stages = [Some(tcp), overload];
        let ce = |ecn, phase| ce_share(direction, &stages, ecn, phase);
        Some(Self {
            control: Control::from_name(congestion_control),
            rate_bit_per_s: rate_bit_per_s(&tcp, overload.as_ref())?,
            base_rtt_ms: base_ms,
            tcp: Delay::from_delays(&best_effort)?,
            swing_period_ms: swing_period_ms(&best_effort, window),
            own_flow_ms: own_flow_ms(&tcp, window, base_ms),
            loss_burst_segments: loss_burst(&tcp, window),
            loss_share: loss_share(&tcp, window),
            nqb_ms: median(tcp.delays(CLASSES[1], base_ms)),
            ect1_ms: median(tcp.delays(CLASSES[3], base_ms)),
            ce_of_ect0: ce(Ecn::Ect0, Phase::Load),
            ce_of_ect1: ce(Ecn::Ect1, Phase::Load),
            ce_idle: [Ecn::Ect0, Ecn::Ect1]
                .into_iter()
                .filter_map(|ecn| ce(ecn, Phase::Idle))
                .reduce(f64::max),
            overload: overload.and_then(|stage| Overload::from_stage(&stage)),
        })
    }

    /// Returns whether packets waited or were lost under load. If not, this was not the bottleneck,
    /// or the load was too weak for it.
    pub fn shows_a_queue(&self) -> bool {
        let overload = self.overload.unwrap_or_default();
        let delays = [self.tcp.p95_ms, self.own_flow_ms.unwrap_or(0.0), overload.late_p50_ms];
        let lost = overload.lost.max(overload.load_lost.unwrap_or(0.0));
        delays.iter().any(|delay| *delay > QUEUE_MIN_MS) || lost > LOST_MIN
    }

    /// Returns the size of a buffer without AQM, bytes: its highest delay times the rate.
    pub fn buffer_bytes(&self) -> u64 {
        let plateau_ms = self.overload.map_or(0.0, |overload| overload.late_p90_ms);
        (plateau_ms.max(self.tcp.p99_ms) / 1e3 * self.rate_bit_per_s / 8.0) as u64
    }
}

/// Shorter delays are noise of the hosts.
const QUEUE_MIN_MS: f64 = 1.0;
const LOST_MIN: f64 = 0.03;

impl Stage<'_> {
    fn window(&self, phase: Phase) -> Option<PhaseWindow> {
        self.phases.iter().find(|window| window.phase == phase).copied()
    }

    fn of_class(&self, class: Marking, phase: Phase) -> impl Iterator<Item = &Sample> {
        let wanted = move |sample: &&Sample| {
            sample.marking_sent == class && sample.phase == phase && !sample.closed_loop
        };
        self.samples.iter().filter(wanted)
    }

    fn base_ms(&self) -> Option<f64> {
        let idle = self.samples.iter().filter(|sample| sample.phase == Phase::Idle);
        idle.filter_map(|sample| sample.rtt_ns).min().map(|ns| ns as f64 / 1e6)
    }

    /// Returns when each answered probe of the load phase was sent, ns, and its delay, ms.
    fn delays(&self, class: Marking, base_ms: f64) -> Vec<(u64, f64)> {
        let delay = |sample: &Sample| {
            let rtt_ms = sample.rtt_ns? as f64 / 1e6;
            Some((sample.scheduled_ns, (rtt_ms - base_ms).max(0.0)))
        };
        self.of_class(class, Phase::Load).filter_map(delay).collect()
    }

    /// Returns the series of this kind, one per load flow.
    fn series_of(&self, kind: &str) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(move |series| {
            series.name.rsplit_once('.').is_some_and(|(_, suffix)| suffix == kind)
                && !series.name.starts_with("up.")
                && !series.name.starts_with("down.")
        })
    }
}

impl Delay {
    fn from_delays(delays: &[(u64, f64)]) -> Option<Self> {
        if delays.len() < ANSWERS_MIN {
            return None;
        }
        let sorted = sorted(delays.iter().map(|(_, delay)| *delay));
        let at = |q| nearest_rank(&sorted, q).unwrap_or_default();
        let p99_ms = at(0.99);
        let high = sorted.iter().filter(|delay| **delay >= 0.9 * p99_ms).count();
        Some(Self {
            p5_ms: at(0.05),
            p50_ms: at(0.5),
            p95_ms: at(0.95),
            p99_ms,
            at_top: high as f64 / sorted.len() as f64,
        })
    }
}

impl Overload {
    fn from_stage(stage: &Stage<'_>) -> Option<Self> {
        let base_ms = stage.base_ms()?;
        let window = stage.window(Phase::Load)?;
        let middle_ns = window.start_ns + window.length_ns() / 2;
        let half = |class, late: bool| {
            let of_half = stage.delays(class, base_ms).into_iter();
            sorted(of_half.filter(|(at, _)| (*at >= middle_ns) == late).map(|(_, delay)| delay))
        };
        let (early, late) = (half(BEST_EFFORT, false), half(BEST_EFFORT, true));
        let sent = stage.of_class(BEST_EFFORT, Phase::Load).count();
        if late.len() < ANSWERS_MIN / 2 || early.is_empty() {
            return None;
        }
        let late_at = |q| nearest_rank(&late, q).unwrap_or_default();
        let class_median = |class| {
            let delays = half(class, true);
            nearest_rank(&delays, 0.5).filter(|_| delays.len() >= ANSWERS_MIN / 2)
        };
        Some(Self {
            early_ms: nearest_rank(&early, 0.5).unwrap_or_default(),
            late_p10_ms: late_at(0.1),
            late_p50_ms: late_at(0.5),
            late_p90_ms: late_at(0.9),
            lost: 1.0 - (early.len() + late.len()) as f64 / sent.max(1) as f64,
            load_lost: stage.udp.map(|load| (1.0 - load.arrived).clamp(0.0, 1.0)),
            nqb_ms: class_median(CLASSES[1]),
            ect1_ms: class_median(CLASSES[3]),
        })
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(delays: Vec<(u64, f64)>) -> Option<f64> {
    let enough = delays.len() >= ANSWERS_MIN;
    nearest_rank(&sorted(delays.into_iter().map(|(_, delay)| delay)), 0.5).filter(|_| enough)
}

/// Returns the bottleneck's rate with all headers: from the overload if it overran the bottleneck
/// and the path did not limit UDP, else from TCP.
fn rate_bit_per_s(tcp: &Stage<'_>, overload: Option<&Stage<'_>>) -> Option<f64> {
    let by_tcp = tcp.tcp_rate().filter(|rate| *rate > 0.0)?;
    let by_udp = overload.and_then(Stage::overrun_rate);
    Some(by_udp.filter(|rate| by_tcp <= rate * UDP_HELD_BACK).unwrap_or(by_tcp))
}

impl Stage<'_> {
    /// Returns the highest rate of all TCP flows together. Their mean may be lower: they may leave
    /// a short buffer half empty.
    fn tcp_rate(&self) -> Option<f64> {
        let best = best_rate(&self.delivered_bits()?)?;
        Some(best * self.packet_per_payload() + self.probe_rate(self.window(Phase::Load)?))
    }

    fn packet_per_payload(&self) -> f64 {
        TCP_PACKET_BYTES / (TCP_PACKET_BYTES - f64::from(self.ip_header_bytes) - TCP_HEADER_BYTES)
    }

    /// Returns the 90th percentile of TCP's rate over half seconds, with headers. If receivers wait
    /// for lost segments, this is up to a tenth above the line's rate: too inexact to report as the
    /// rate, but enough to overrun the line, and the base of the model's overloads.
    pub fn busiest_bit_per_s(&self) -> Option<f64> {
        let delivered = self.delivered_bits()?;
        let halves: Vec<f64> = delivered.iter().copied().step_by(BUSIEST_STEPS).collect();
        let rates = halves.windows(2).map(|pair| pair[1] - pair[0]);
        let best = nearest_rank(&sorted(rates), 0.9).filter(|bits| *bits > 0.0)?;
        let header = f64::from(self.ip_header_bytes) + TCP_HEADER_BYTES;
        let seconds = (BUSIEST_STEPS as u64 * STEP_NS) as f64 / 1e9;
        Some(best / seconds * TCP_PACKET_BYTES / (TCP_PACKET_BYTES - header))
    }

    /// Returns the bits that all TCP flows together have delivered since the start of the ramp,
    /// every [`STEP_NS`].
    fn delivered_bits(&self) -> Option<Vec<f64>> {
        let last = self.window(Phase::Load)?;
        let start_ns = self.window(Phase::Ramp).unwrap_or(last).start_ns;
        let until = |time_ns| -> f64 {
            self.series_of("goodput").map(|series| bits_between(series, start_ns, time_ns)).sum()
        };
        Some((start_ns..=last.end_ns).step_by(STEP_NS as usize).map(until).collect())
    }

    /// Returns the rate of the UDP load and its probes that arrived; `None` unless a part was lost.
    fn overrun_rate(&self) -> Option<f64> {
        let load = self.udp.filter(|load| load.arrived < 1.0 - OVERRUN_LOST_MIN)?;
        let packet = f64::from(OVERLOAD_PACKET_BYTES);
        let header = f64::from(self.ip_header_bytes) + UDP_HEADER_BYTES;
        let probes = self.probe_rate(self.window(Phase::Load)?);
        Some(load.goodput_bit_per_s * packet / (packet - header) + probes)
    }

    /// Returns the rate of the answered probes of a phase, bit/s.
    fn probe_rate(&self, window: PhaseWindow) -> f64 {
        let of_phase = self.samples.iter().filter(|sample| sample.phase == window.phase);
        let answered = of_phase.filter(|sample| sample.rtt_ns.is_some()).count();
        let header = f64::from(self.ip_header_bytes) + UDP_HEADER_BYTES;
        let bits = answered as f64 * (PROBE_PAYLOAD_BYTES + header) * 8.0;
        bits * 1e9 / window.length_ns().max(1) as f64
    }
}

/// Returns the bits of a series in which each point has the mean rate since the point before.
fn bits_between(series: &Series, start_ns: u64, end_ns: u64) -> f64 {
    let mut bits = 0.0;
    for pair in series.points.windows(2) {
        let (from_ns, to_ns) = (pair[0].time_ns.max(start_ns), pair[1].time_ns.min(end_ns));
        bits += pair[1].value * to_ns.saturating_sub(from_ns) as f64 / 1e9;
    }
    bits
}

/// Returns the highest rate over [`RATE_STEPS`], bit/s.
///
/// A receiver that waits for a lost segment delivers nothing, and then at once all data behind that
/// segment. If a window begins during such a wait, some of its bits crossed the line before the
/// window. They are subtracted: the bits that a line of the rate found so far must have carried
/// before the window to allow the deliveries of the next [`HELD_BACK_STEPS`].
fn best_rate(delivered: &[f64]) -> Option<f64> {
    let steps = RATE_STEPS.min(delivered.len().checked_sub(1)?);
    let mut rate = f64::INFINITY;
    // The first round subtracts nothing; the error shrinks with each round.
    for _ in 0..4 {
        let step_bits = rate * STEP_NS as f64 / 1e9;
        let carried_by = |start: usize| {
            let later = delivered.iter().skip(start).take(HELD_BACK_STEPS + 1).enumerate();
            let behind = |(step, bits): (usize, &f64)| match step {
                0 => *bits,
                _ => bits - step as f64 * step_bits,
            };
            later.map(behind).fold(0.0, f64::max)
        };
        let ends = delivered.iter().skip(steps).enumerate();
        let best = ends.map(|(start, end)| end - carried_by(start)).fold(0.0, f64::max);
        rate = best * 1e9 / (steps.max(1) as u64 * STEP_NS) as f64;
    }
    Some(rate)
}

/// Returns the mean time between rises through the median, with a dead band of a quarter of the
/// spread.
fn swing_period_ms(delays: &[(u64, f64)], window: PhaseWindow) -> Option<f64> {
    let values = sorted(delays.iter().map(|(_, delay)| *delay));
    let at = |q| nearest_rank(&values, q);
    let (middle, spread) = (at(0.5)?, at(0.9)? - at(0.1)?);
    if spread < QUEUE_MIN_MS {
        return None;
    }
    let (low, high) = (middle - spread / 8.0, middle + spread / 8.0);
    let (mut is_below, mut rises) = (false, 0_u32);
    for (_, delay) in delays {
        if is_below && *delay > high {
            rises += 1;
            is_below = false;
        }
        is_below |= *delay < low;
    }
    (rises > 0).then(|| window.length_ns() as f64 / 1e6 / f64::from(rises))
}

fn own_flow_ms(stage: &Stage<'_>, window: PhaseWindow, base_ms: f64) -> Option<f64> {
    let points = stage.series_of("rtt").flat_map(|series| &series.points);
    let inside = points.filter(|point| window.contains(point.time_ns) && point.value > 0.0);
    let rtts = sorted(inside.map(|point| point.value / 1e6));
    nearest_rank(&rtts, 0.5).map(|rtt| (rtt - base_ms).max(0.0))
}

/// Returns the increments of the retransmission counters inside the window; `None` without
/// counters.
fn retransmissions(stage: &Stage<'_>, window: PhaseWindow) -> Option<Vec<f64>> {
    let mut bursts = None;
    for series in stage.series_of("retransmits") {
        let bursts: &mut Vec<f64> = bursts.get_or_insert_default();
        for pair in series.points.windows(2) {
            if window.contains(pair[1].time_ns) && pair[1].value > pair[0].value {
                bursts.push(pair[1].value - pair[0].value);
            }
        }
    }
    bursts
}

fn loss_burst(stage: &Stage<'_>, window: PhaseWindow) -> Option<f64> {
    let bursts = retransmissions(stage, window)?;
    (!bursts.is_empty()).then(|| bursts.iter().sum::<f64>() / bursts.len() as f64)
}

fn loss_share(stage: &Stage<'_>, window: PhaseWindow) -> Option<f64> {
    // The sum of an empty list is -0.0.
    let lost = retransmissions(stage, window)?.iter().sum::<f64>() + 0.0;
    let bytes: f64 = stage
        .series_of("goodput")
        .map(|series| {
            let inside = series.points.iter().filter(|point| window.contains(point.time_ns));
            let (sum, count) = inside.fold((0.0, 0_u32), |(sum, n), p| (sum + p.value, n + 1));
            sum / f64::from(count.max(1)) * window.length_ns() as f64 / 8e9
        })
        .sum();
    let segments = bytes / 1448.0 + lost;
    (segments > 0.0).then(|| lost / segments)
}

/// Returns the share of the phase's probes with `ecn` that arrived with CE in the loaded direction.
fn ce_share(
    direction: Direction,
    stages: &[Option<Stage<'_>>],
    ecn: Ecn,
    phase: Phase,
) -> Option<f64> {
    let (mut arrived, mut marked) = (0_u32, 0_u32);
    for sample in stages.iter().flatten().flat_map(|stage| stage.samples) {
        if sample.marking_sent.ecn != ecn || sample.phase != phase {
            continue;
        }
        let seen = match direction {
            Direction::Up => sample.marking_far,
            Direction::Down => sample.marking_near,
        };
        if let Some(seen) = seen {
            arrived += 1;
            marked += u32::from(seen.ecn == Ecn::Ce);
        }
    }
    (arrived as usize >= ANSWERS_MIN).then(|| f64::from(marked) / f64::from(arrived))
}

#[cfg(test)]
mod tests {
    use super::*;
    use underload_record::schema::SeriesPoint;

    const SECOND_NS: u64 = 1_000_000_000;

    fn phases(ramp_s: u64, load_s: u64) -> Vec<PhaseWindow> {
        let window = |phase, from_s: u64, to_s: u64| PhaseWindow {
            phase,
            start_ns: from_s * SECOND_NS,
            end_ns: to_s * SECOND_NS,
        };
        vec![
            window(Phase::Idle, 0, 1),
            window(Phase::Ramp, 1, 1 + ramp_s),
            window(Phase::Load, 1 + ramp_s, 1 + ramp_s + load_s),
        ]
    }

    /// Returns a goodput series with a point per 100 ms.
    fn goodput(name: &str, seconds: u64, value: impl Fn(u64) -> f64) -> Series {
        let point =
            |tenth: u64| SeriesPoint { time_ns: tenth * SECOND_NS / 10, value: value(tenth) };
        Series {
            trial: 0,
            name: format!("{name}.goodput"),
            unit: "bit/s".to_owned(),
            points: (0..=seconds * 10).map(point).collect(),
        }
    }

    fn stage<'a>(series: &'a [Series], phases: &'a [PhaseWindow]) -> Stage<'a> {
        Stage { samples: &[], series, phases, udp: None, ip_header_bytes: 20 }
    }

    /// Goodput of full TCP packets on a link of 10 Mbit/s.
    const GOODPUT: f64 = 10e6 * 1_448.0 / 1_500.0;

    #[test]
    fn a_receiver_that_waits_for_a_lost_segment_does_not_make_the_line_faster() {
        // Every 1.6 s the receiver waits for 200 ms, and then delivers three times as much at once.
        let held_back = |tenth: u64| match tenth % 16 {
            4 | 5 => 0.0,
            6 => 3.0 * GOODPUT,
            _ => GOODPUT,
        };
        let (phases, series) = (phases(3, 8), [goodput("bulk-0", 12, held_back)]);
        let tcp = stage(&series, &phases);
        let rate = rate_bit_per_s(&tcp, None).expect("a rate");
        assert!((rate / 10e6 - 1.0).abs() < 0.02, "{rate}");
    }

    #[test]
    fn the_overload_is_counted_from_the_best_half_seconds() {
        // Every other half second carries a fifth more than the mean, as traffic does after a wait.
        let uneven =
            |tenth: u64| if (tenth / 5).is_multiple_of(2) { 0.8 * GOODPUT } else { 1.2 * GOODPUT };
        // A point has the rate of the time before it.
        let (phases, series) = (phases(3, 8), [goodput("bulk-0", 12, |n| uneven(n.max(1) - 1))]);
        let busiest = stage(&series, &phases).busiest_bit_per_s().expect("a rate");
        assert!((busiest / 12e6 - 1.0).abs() < 1e-9, "{busiest}");
    }

    #[test]
    fn flows_with_a_low_mean_show_the_rate_in_their_best_second() {
        let slow =
            |tenth: u64| if (40..90).contains(&tenth) { GOODPUT / 2.0 } else { GOODPUT / 4.0 };
        let series = [goodput("bulk-0", 12, slow), goodput("bulk-1", 12, slow)];
        let phases = phases(3, 8);
        let rate = rate_bit_per_s(&stage(&series, &phases), None).expect("a rate");
        assert!((rate / 10e6 - 1.0).abs() < 1e-9, "{rate}");
    }

    #[test]
    fn the_bytes_received_under_overload_give_the_rate() {
        let series = [goodput("bulk-0", 12, |_| GOODPUT * 0.97)];
        let (tcp_phases, udp_phases) = (phases(3, 8), phases(1, 3));
        let tcp = stage(&series, &tcp_phases);
        let rate = |arrived, goodput_bit_per_s, ip_header_bytes| {
            let udp = Some(UdpLoad { arrived, goodput_bit_per_s });
            let overload = Stage { udp, ip_header_bytes, ..stage(&[], &udp_phases) };
            rate_bit_per_s(&tcp, Some(&overload)).expect("a rate")
        };
        let near = |rate: f64, expected: f64| (rate / expected - 1.0).abs() < 1e-9;
        assert!(near(rate(0.71, 10e6 * 1_372.0 / 1_400.0, 20), 10e6));
        assert!(near(rate(0.71, 10e6 * 1_352.0 / 1_400.0, 40), 10e6));
        // The load did not overrun the line, or the path limits UDP: TCP's rate is used.
        assert!(near(rate(0.95, 9e6, 20), 9.7e6));
        assert!(near(rate(0.3, 4e6, 20), 9.7e6));
    }

    #[test]
    fn probes_count_towards_the_rate() {
        let phases = phases(1, 4);
        // 200 probes of 80 bytes per second.
        let samples: Vec<Sample> = (0..800_u64)
            .map(|n| Sample {
                scheduled_ns: 2 * SECOND_NS + n * 5_000_000,
                phase: Phase::Load,
                rtt_ns: Some(1_000_000),
                ..Sample::default()
            })
            .collect();
        let udp = Some(UdpLoad { arrived: 0.7, goodput_bit_per_s: 0.0 });
        let overload = Stage { samples: &samples, udp, ..stage(&[], &phases) };
        assert_eq!(overload.overrun_rate(), Some(128_000.0));
    }
}
