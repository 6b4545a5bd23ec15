//! What loaded probes showed, as the few numbers that tell queues apart.
//!
//! Two stages, each with open-loop probes in several classes and an idle phase in front:
//!
//! 1. TCP flows fill the path, as users do. What the bulk flows' congestion control makes of the
//!    queue, and what the queue makes of it, is the shape of the delay.
//! 2. UDP at [`OVERLOAD`] times the rate that TCP reached. It does not react, so the queue shows
//!    its own rule: a full buffer stands at its size, PIE comes back to its target within a
//!    second, CoDel is overrun and its delay grows on, a fair queue lets everybody else pass.
//!
//! Delays are round trips above the shortest one of the idle phase; with one direction loaded at a
//! time, what is above it waited in that direction.

use serde::{Deserialize, Serialize};
use underload_report::schema::{Direction, Ecn, Marking, Phase, PhaseWindow, Sample, Series};
use underload_report::stats::nearest_rank;

/// By how much the second stage exceeds the rate that the first one found.
pub const OVERLOAD: f64 = 1.4;

/// The classes that both stages probe.
pub const CLASSES: [Marking; 4] = [
    BEST_EFFORT,
    Marking { dscp: NQB, ecn: Ecn::NotEct },
    Marking { dscp: 0, ecn: Ecn::Ect0 },
    Marking { dscp: 0, ecn: Ecn::Ect1 },
];

/// The codepoint of non-queue-building traffic (RFC 9956).
pub const NQB: u8 = 45;
const BEST_EFFORT: Marking = Marking { dscp: 0, ecn: Ecn::NotEct };

/// One stage as it was recorded, measured or simulated.
#[derive(Clone, Copy, Debug)]
pub struct Stage<'a> {
    /// Every probe of every class.
    pub samples: &'a [Sample],
    /// Curves of the load flows: `NAME.goodput`, and of TCP `NAME.rtt` and `NAME.retransmits`.
    pub series: &'a [Series],
    /// When each phase ran.
    pub phases: &'a [PhaseWindow],
    /// Share of the UDP load that arrived during the load phase; `None` for TCP.
    pub udp_arrived: Option<f64>,
}

/// Which kind of congestion control filled the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Control {
    /// CUBIC, Reno and what else fills a queue until it loses something.
    LossBased,
    /// BBR: limits what it keeps in the queue.
    Bbr,
}

impl Control {
    /// Of the congestion control that the kernel calls `name`.
    pub fn from_name(name: &str) -> Self {
        if name.starts_with("bbr") { Self::Bbr } else { Self::LossBased }
    }
}

/// What the probes showed. Delays are in ms above the idle round trip; shares are 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Of the load in the first stage.
    pub control: Control,
    /// Rate of the bottleneck as far as TCP found it, bit/s at the IP layer.
    pub rate_bit_per_s: f64,
    /// Shortest round trip of the idle phase, ms.
    pub base_rtt_ms: f64,
    /// Best effort probes under TCP.
    pub tcp: Delay,
    /// From one rise of the delay over its middle to the next, ms; `None` if it does not swing.
    pub swing_period_ms: Option<f64>,
    /// Median of the TCP flows' own smoothed round trip, above the shortest one of the probes.
    pub own_flow_ms: Option<f64>,
    /// Segments that one loss episode costs, the mean over 100 ms intervals with any.
    pub loss_burst_segments: Option<f64>,
    /// Segments sent again, of all.
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
    /// The second stage; `None` if it was left out.
    pub overload: Option<Overload>,
}

/// A distribution of delays, ms above the idle round trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    /// 5th percentile.
    pub p5_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Share of the probes within a tenth of `p99_ms`: how long the delay stands at its top.
    pub at_top: f64,
}

/// What UDP above the bottleneck's rate did.
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
    /// Share of the load itself that did not arrive.
    pub load_lost: Option<f64>,
    /// Median delay of DSCP 45 in the second half.
    pub nqb_ms: Option<f64>,
    /// Median delay of ECT(1) in the second half.
    pub ect1_ms: Option<f64>,
}

/// Fewer answered probes than this say nothing about a class.
const ANSWERS_MIN: usize = 20;
/// IP packet over TCP payload of a full segment.
const TCP_OVERHEAD: f64 = 1500.0 / 1448.0;
/// Over which goodput is averaged to find the bottleneck's rate, ns.
const RATE_WINDOW_NS: u64 = 500_000_000;

impl Evidence {
    /// Reads the stages of one direction. `None` if there is too little to read: no answers in the
    /// idle phase or under load, or no goodput.
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
        let ce = |ecn, phases: &[Phase]| ce_share(direction, &stages, ecn, phases);
        Some(Self {
            control: Control::from_name(congestion_control),
            rate_bit_per_s: rate_bit_per_s(&tcp)?,
            base_rtt_ms: base_ms,
            tcp: Delay::of(&best_effort)?,
            swing_period_ms: swing_period_ms(&best_effort, window),
            own_flow_ms: own_flow_ms(&tcp, window, base_ms),
            loss_burst_segments: loss_burst(&tcp, window),
            loss_share: loss_share(&tcp, window),
            nqb_ms: median(tcp.delays(CLASSES[1], base_ms)),
            ect1_ms: median(tcp.delays(CLASSES[3], base_ms)),
            ce_of_ect0: ce(Ecn::Ect0, &[Phase::Load]),
            ce_of_ect1: ce(Ecn::Ect1, &[Phase::Load]),
            ce_idle: ce_idle(direction, &stages),
            overload: overload.and_then(|stage| Overload::of(&stage)),
        })
    }

    /// Whether the load made anything wait or disappear: if not, this was not the bottleneck, or
    /// the load was too weak for it.
    pub fn shows_a_queue(&self) -> bool {
        let overload = self.overload.unwrap_or_default();
        let delays = [self.tcp.p95_ms, self.own_flow_ms.unwrap_or(0.0), overload.late_p50_ms];
        let lost = overload.lost.max(overload.load_lost.unwrap_or(0.0));
        delays.iter().any(|delay| *delay > QUEUE_MIN_MS) || lost > LOST_MIN
    }

    /// The buffer's size if it is a plain one, octets: where the delay stands times the rate.
    pub fn buffer_octets(&self) -> u64 {
        let plateau_ms = self.overload.map_or(0.0, |overload| overload.late_p90_ms);
        (plateau_ms.max(self.tcp.p99_ms) / 1e3 * self.rate_bit_per_s / 8.0) as u64
    }
}

/// Less delay than this is the noise of hosts.
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

    /// When each answered probe of the load phase was sent, ns, and its delay, ms.
    fn delays(&self, class: Marking, base_ms: f64) -> Vec<(u64, f64)> {
        let delay = |sample: &Sample| {
            let rtt_ms = sample.rtt_ns? as f64 / 1e6;
            Some((sample.scheduled_ns, (rtt_ms - base_ms).max(0.0)))
        };
        self.of_class(class, Phase::Load).filter_map(delay).collect()
    }

    /// The curves of this kind, one per load flow.
    fn curves(&self, kind: &str) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(move |series| {
            series.name.rsplit_once('.').is_some_and(|(_, suffix)| suffix == kind)
                && !series.name.starts_with("up.")
                && !series.name.starts_with("down.")
        })
    }
}

impl Delay {
    fn of(delays: &[(u64, f64)]) -> Option<Self> {
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
    fn of(stage: &Stage<'_>) -> Option<Self> {
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
            load_lost: stage.udp_arrived.map(|share| (1.0 - share).clamp(0.0, 1.0)),
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

/// The highest goodput over [`RATE_WINDOW_NS`] that all flows reached together, with headers: TCP
/// may leave a short buffer half empty on the mean, but not at its best.
fn rate_bit_per_s(stage: &Stage<'_>) -> Option<f64> {
    let (first, last) = (stage.window(Phase::Ramp), stage.window(Phase::Load)?);
    let start_ns = first.unwrap_or(last).start_ns;
    let windows = (last.end_ns - start_ns) / RATE_WINDOW_NS;
    let mut sums = vec![0.0; usize::try_from(windows).ok()?];
    for curve in stage.curves("goodput") {
        let mut means = vec![(0.0, 0_u32); sums.len()];
        for point in &curve.points {
            let Some(since_ns) = point.time_ns.checked_sub(start_ns) else { continue };
            if let Some((sum, count)) = means.get_mut((since_ns / RATE_WINDOW_NS) as usize) {
                *sum += point.value;
                *count += 1;
            }
        }
        for (sum, (total, count)) in sums.iter_mut().zip(means) {
            *sum += total / f64::from(count.max(1));
        }
    }
    let sums = sorted(sums.into_iter());
    // The very best window may hold what an idle sender's queue gave away at once.
    nearest_rank(&sums, 0.9).filter(|rate| *rate > 0.0).map(|rate| rate * TCP_OVERHEAD)
}

/// Mean time between rises through the median, with a dead band of a quarter of the spread.
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
    let points = stage.curves("rtt").flat_map(|curve| &curve.points);
    let inside = points.filter(|point| window.contains(point.time_ns) && point.value > 0.0);
    let rtts = sorted(inside.map(|point| point.value / 1e6));
    nearest_rank(&rtts, 0.5).map(|rtt| (rtt - base_ms).max(0.0))
}

/// Increments of the retransmission counters inside the window, one per record that has any.
fn retransmissions(stage: &Stage<'_>, window: PhaseWindow) -> Option<Vec<f64>> {
    let mut bursts = Vec::new();
    let mut any = false;
    for curve in stage.curves("retransmits") {
        any = true;
        for pair in curve.points.windows(2) {
            if window.contains(pair[1].time_ns) && pair[1].value > pair[0].value {
                bursts.push(pair[1].value - pair[0].value);
            }
        }
    }
    any.then_some(bursts)
}

fn loss_burst(stage: &Stage<'_>, window: PhaseWindow) -> Option<f64> {
    let bursts = retransmissions(stage, window)?;
    (!bursts.is_empty()).then(|| bursts.iter().sum::<f64>() / bursts.len() as f64)
}

fn loss_share(stage: &Stage<'_>, window: PhaseWindow) -> Option<f64> {
    let lost: f64 = retransmissions(stage, window)?.iter().sum();
    let octets: f64 = stage
        .curves("goodput")
        .map(|curve| {
            let inside = curve.points.iter().filter(|point| window.contains(point.time_ns));
            let (sum, count) = inside.fold((0.0, 0_u32), |(sum, n), p| (sum + p.value, n + 1));
            sum / f64::from(count.max(1)) * window.length_ns() as f64 / 8e9
        })
        .sum();
    let segments = octets / 1448.0 + lost;
    (segments > 0.0).then(|| lost / segments)
}

/// Share of the probes sent with `ecn` that arrived with CE in the loaded direction.
fn ce_share(
    direction: Direction,
    stages: &[Option<Stage<'_>>],
    ecn: Ecn,
    phases: &[Phase],
) -> Option<f64> {
    let (mut arrived, mut marked) = (0_u32, 0_u32);
    for sample in stages.iter().flatten().flat_map(|stage| stage.samples) {
        if sample.marking_sent.ecn != ecn || !phases.contains(&sample.phase) {
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

fn ce_idle(direction: Direction, stages: &[Option<Stage<'_>>]) -> Option<f64> {
    let of = |ecn| ce_share(direction, stages, ecn, &[Phase::Idle]);
    match (of(Ecn::Ect0), of(Ecn::Ect1)) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0.0).max(b.unwrap_or(0.0))),
    }
}
