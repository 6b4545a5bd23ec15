//! What a step found, as numbers; [`super::verdict`] puts it into words.

use serde::Serialize;
use underload_probe::measure::MeasurementResult;
use underload_probe::preset::Step;
use underload_probe::rpm::{Responsiveness, RoundTrips};
use underload_probe::service::SessionNews;
use underload_record::schema::{
    CeAlarm, Direction, Distribution, LatencyMeasure, LatencySummary, Marking, Phase, Quantile,
    Sample, Validity,
};

use super::arguments::Tier;

/// What one step of a measurement found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// [`Step::name`].
    pub step: String,
    /// [`Step::label`].
    pub label: String,
    /// Whether the machine was punctual enough for the numbers to be the line's.
    pub valid: bool,
    /// The reasons why the step is invalid; empty if it is valid.
    pub invalid_because: Vec<String>,
    /// Latency of each class, idle and under load.
    pub latencies: Vec<Latency>,
    /// Payload in the load phase, Mbit/s, up; `None` where nothing loaded that way.
    pub goodput_up_mbit_s: Option<f64>,
    /// Goodput down, Mbit/s.
    pub goodput_down_mbit_s: Option<f64>,
    /// Goodput up as a share of the rate that the line is sold with, percent.
    pub tier_up_percent: Option<f64>,
    /// Goodput down as a share of the rate that the line is sold with, percent.
    pub tier_down_percent: Option<f64>,
    /// What a plain buffer in front of the bottleneck holds, KiB: the delay that the load added at
    /// p99, when such a buffer is full, at the rate measured. `None` where the load went both ways,
    /// added next to nothing, or there are too few samples for a p99.
    pub buffer_kib: Option<f64>,
    /// Round trips per minute under load.
    pub rpm: Option<Rpm>,
    /// What happened to the marking of each class on its way.
    pub markings: Vec<MarkingFate>,
    /// How far the server's clock was ahead, ms; one-way delays assume this.
    pub clock_offset_ms: Option<f64>,
    /// Within this of the truth, ms, as far as one can know.
    pub clock_error_ms: Option<f64>,
    /// Flows with too many congestion marks.
    pub ce_alarms: Vec<CeAlarm>,
    /// The server's rate limit, not the line, held up the load that way.
    pub throttled_up: bool,
    /// Whether the server held the flows down to their granted rate.
    pub throttled_down: bool,
}

/// Latency of one class in one phase, round trip.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Latency {
    /// Name of the probe.
    pub probe: String,
    /// Idle or load.
    pub phase: Phase,
    /// From the answer to the one before, not on a schedule: a second view, never a headline.
    pub closed_loop: bool,
    /// Length of the window, s.
    pub window_s: f64,
    /// Probes sent.
    pub sent: u64,
    /// Share of these that was lost, percent.
    pub lost_percent: f64,
    /// Median, ms; `None` when nothing came back.
    pub p50_ms: Option<f64>,
    /// 90th percentile, ms.
    pub p90_ms: Option<f64>,
    /// 99th percentile, ms; `None` below 500 samples, which could not tell it.
    pub p99_ms: Option<f64>,
    /// 99.9th percentile, ms; `None` below 5000 samples.
    pub p999_ms: Option<f64>,
    /// Largest, ms.
    pub max_ms: Option<f64>,
    /// The same for each direction: 50th and 99th percentile above the smallest, ms, which needs no
    /// common clock (packet delay variation, RFC 5481). `None` below 500 samples.
    pub up_variation_ms: Option<[f64; 2]>,
    /// One-way delay variation down, ms.
    pub down_variation_ms: Option<[f64; 2]>,
}

/// Round trips per minute, each value with its formula.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rpm {
    /// draft-ietf-ippm-responsiveness-09.
    pub draft_09: f64,
    /// As goresponsiveness prints it for 90th percentiles.
    pub goresponsiveness_p90: f64,
    /// Responsiveness as goresponsiveness prints it for trimmed means, round trips per minute.
    pub goresponsiveness_trimmed_mean: f64,
    /// From UDP probes and TCP's own round trips instead of HTTP exchanges.
    pub approximated_from_packets: bool,
}

/// What happened to a class's marking.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MarkingFate {
    /// Name of the probe.
    pub probe: String,
    /// The marking as sent, for example `dscp 45 ect1`.
    pub sent: String,
    /// Answers that told.
    pub answers: u64,
    /// Arrived at the server unchanged, percent.
    pub up_kept_percent: f64,
    /// Arrived there with CE, percent.
    pub up_ce_percent: f64,
    /// The marking that arrived most often upstream, if it is another one.
    pub up_became: Option<String>,
    /// The answers came back with the same marking, percent; `None` where the server may not send
    /// it.
    pub down_kept_percent: Option<f64>,
    /// Answers came back with CE, percent.
    pub down_ce_percent: f64,
    /// What came back most often, if it is something else.
    pub down_became: Option<String>,
}

/// Bytes of an IP packet per byte of TCP payload, full segments with time stamps.
const WIRE_PER_PAYLOAD: f64 = 1500.0 / 1448.0;
/// A load that adds less than this fills no buffer worth the name.
const BUFFER_DELAY_MS: f64 = 5.0;

impl Finding {
    /// Findings of a step whose summaries are `latencies`.
    pub fn of(
        step: &Step,
        measured: &MeasurementResult,
        latencies: &[LatencySummary],
        validity: &Validity,
        tier: Option<Tier>,
        news: &SessionNews,
    ) -> Self {
        let goodput = |direction| goodput(measured, direction);
        let (up, down) = (goodput(Direction::Up), goodput(Direction::Down));
        let percent = |rate: Option<u64>, of: Option<u64>| {
            rate.zip(of).map(|(rate, of)| rate as f64 * 100.0 / of as f64)
        };
        let mbit = |rate: Option<u64>| rate.map(|rate| rate as f64 / 1e6);
        let ms = |ns: i64| ns as f64 / 1e6;
        let invalid_because = match validity {
            Validity::Valid => Vec::new(),
            Validity::Invalid { reasons } => reasons.iter().map(ToString::to_string).collect(),
        };
        let mut finding = Self {
            step: step.name.clone(),
            label: step.label.clone(),
            valid: validity.is_valid(),
            invalid_because,
            latencies: round_trips(latencies),
            goodput_up_mbit_s: mbit(up),
            goodput_down_mbit_s: mbit(down),
            tier_up_percent: percent(up, tier.map(|tier| tier.up_bit_per_s)),
            tier_down_percent: percent(down, tier.map(|tier| tier.down_bit_per_s)),
            buffer_kib: None,
            rpm: rpm(measured).map(Rpm::from),
            markings: markings(step, &measured.samples),
            clock_offset_ms: measured.clock_offset.map(|clock| ms(clock.offset_ns)),
            clock_error_ms: measured.clock_offset.map(|clock| ms(clock.error_ns as i64)),
            ce_alarms: measured.ce_alarms.clone(),
            throttled_up: news.throttled_up,
            throttled_down: news.throttled_down,
        };
        finding.buffer_kib = finding.buffer();
        finding
    }

    /// TCP fills a plain buffer until it overflows: the delay near the largest is all of it.
    fn buffer(&self) -> Option<f64> {
        let ((Some(rate), None) | (None, Some(rate))) =
            (self.goodput_up_mbit_s, self.goodput_down_mbit_s)
        else {
            return None;
        };
        let idle_ms = self.headline(Phase::Idle)?.p50_ms?;
        let added_ms = self.headline(Phase::Load)?.p99_ms? - idle_ms;
        let kib = added_ms * rate * WIRE_PER_PAYLOAD * 1e3 / 8.0 / 1024.0;
        (added_ms >= BUFFER_DELAY_MS).then_some(kib)
    }

    /// The headline: the first open-loop probe in this phase.
    pub fn headline(&self, phase: Phase) -> Option<&Latency> {
        self.latencies.iter().find(|latency| !latency.closed_loop && latency.phase == phase)
    }
}

impl From<Responsiveness> for Rpm {
    fn from(value: Responsiveness) -> Self {
        Self {
            draft_09: value.draft_09.round(),
            goresponsiveness_p90: value.goresponsiveness_p90.round(),
            goresponsiveness_trimmed_mean: value.goresponsiveness_trimmed_mean.round(),
            approximated_from_packets: true,
        }
    }
}

fn goodput(measured: &MeasurementResult, direction: Direction) -> Option<u64> {
    let rates = measured.flows.iter().filter_map(|flow| match direction {
        Direction::Up => flow.goodput_up_bit_per_s,
        Direction::Down => flow.goodput_down_bit_per_s,
    });
    rates.reduce(|sum, rate| sum + rate)
}

fn round_trips(latencies: &[LatencySummary]) -> Vec<Latency> {
    let wanted = |it: &&LatencySummary| {
        it.measure == LatencyMeasure::RoundTrip
            && matches!(it.window.phase, Phase::Idle | Phase::Load)
    };
    let variation = |of: &LatencySummary, measure| {
        let same = |it: &&LatencySummary| {
            it.probe == of.probe && it.window == of.window && it.measure == measure
        };
        let found = latencies.iter().find(same)?.distribution?;
        if found.count < Quantile::P99.fewest_samples() {
            return None;
        }
        let above = |ns: u64| ns.saturating_sub(found.min_ns) as f64 / 1e6;
        Some([above(found.p50_ns), above(found.p99_ns)])
    };
    let latency = |it: &LatencySummary| {
        let value = |of: fn(&Distribution) -> u64, least: u64| {
            let enough = it.distribution.as_ref().filter(|found| found.count >= least)?;
            Some(of(enough) as f64 / 1e6)
        };
        Latency {
            probe: it.probe.clone(),
            phase: it.window.phase,
            closed_loop: it.closed_loop,
            window_s: it.window.length_ns() as f64 / 1e9,
            sent: it.sent,
            lost_percent: it.lost as f64 * 100.0 / it.sent.max(1) as f64,
            p50_ms: value(|found| found.p50_ns, 1),
            p90_ms: value(|found| found.p90_ns, 1),
            p99_ms: value(|found| found.p99_ns, Quantile::P99.fewest_samples()),
            p999_ms: value(|found| found.p999_ns, Quantile::P999.fewest_samples()),
            max_ms: value(|found| found.max_ns, 1),
            up_variation_ms: variation(it, LatencyMeasure::OneWayUp),
            down_variation_ms: variation(it, LatencyMeasure::OneWayDown),
        }
    };
    latencies.iter().filter(wanted).map(latency).collect()
}

/// From the probes of the first class, which are on flows of their own, and from what the kernel
/// measured on the loaded connections.
fn rpm(measured: &MeasurementResult) -> Option<Responsiveness> {
    let load = measured.phases.iter().find(|window| window.phase == Phase::Load)?;
    let first = |sample: &&Sample| {
        sample.flow == 0 && !sample.closed_loop && load.contains(sample.scheduled_ns)
    };
    let foreign: Vec<u64> =
        measured.samples.iter().filter(first).filter_map(|sample| sample.rtt_ns).collect();
    let loaded: Vec<u64> = measured
        .loads
        .iter()
        .flat_map(|flow| &flow.tcp)
        .filter(|sample| load.contains(sample.time_ns) && sample.info.rtt_us > 0)
        .map(|sample| u64::from(sample.info.rtt_us) * 1_000)
        .collect();
    RoundTrips::of_packets(&foreign, &loaded).responsiveness()
}

fn markings(step: &Step, samples: &[Sample]) -> Vec<MarkingFate> {
    let classes = step.config.probe.classes.iter().enumerate();
    classes
        .filter_map(|(flow, class)| {
            let of_class: Vec<&Sample> =
                samples.iter().filter(|sample| usize::from(sample.flow) == flow).collect();
            fate(&class.name, class.marking, &of_class)
        })
        .collect()
}

fn fate(probe: &str, sent: Marking, samples: &[&Sample]) -> Option<MarkingFate> {
    let pairs: Vec<(Marking, Marking)> =
        samples.iter().filter_map(|sample| sample.marking_far.zip(sample.marking_near)).collect();
    if pairs.is_empty() {
        return None;
    }
    let percent = |count: usize| count as f64 * 100.0 / pairs.len() as f64;
    let of = |pick: fn(&(Marking, Marking)) -> Marking| -> Vec<Marking> {
        pairs.iter().map(pick).collect()
    };
    let (far, near) = (of(|pair| pair.0), of(|pair| pair.1));
    let kept = |seen: &[Marking]| percent(seen.iter().filter(|it| **it == sent).count());
    let ce = |seen: &[Marking]| percent(seen.iter().filter(|it| it.ecn.bits() == 3).count());
    let (far_most, near_most) = (commonest(&far), commonest(&near));
    let became = |most: Marking| (most != sent).then(|| describe(most));
    Some(MarkingFate {
        probe: probe.to_owned(),
        sent: describe(sent),
        answers: pairs.len() as u64,
        up_kept_percent: kept(&far),
        up_ce_percent: ce(&far),
        up_became: became(far_most),
        down_kept_percent: Some(kept(&near)),
        down_ce_percent: ce(&near),
        down_became: became(near_most),
    })
}

fn commonest(seen: &[Marking]) -> Marking {
    let mut counts = std::collections::BTreeMap::new();
    for marking in seen {
        *counts.entry(*marking).or_insert(0_usize) += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map_or(Marking::default(), |(it, _)| it)
}

/// `dscp 45 ect1`.
fn describe(marking: Marking) -> String {
    format!("dscp {} {}", marking.dscp, marking.ecn.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bleaching_is_told_per_direction() {
        let sent = Marking::from_byte(0xb5);
        let sample = |far: u8, near: u8| Sample {
            marking_far: Some(Marking::from_byte(far)),
            marking_near: Some(Marking::from_byte(near)),
            ..Sample::default()
        };
        let mut samples = vec![sample(0xb5, 0x01); 8];
        samples.extend([sample(0xb7, 0x01), sample(0xb7, 0xb5)]);
        samples.push(Sample::default());
        let references: Vec<&Sample> = samples.iter().collect();
        let fate = fate("probe", sent, &references).unwrap();
        assert_eq!(fate.answers, 10);
        assert!((fate.up_kept_percent - 80.0).abs() < 1e-9);
        assert!((fate.up_ce_percent - 20.0).abs() < 1e-9);
        assert_eq!(fate.up_became, None);
        assert_eq!(fate.down_became.as_deref(), Some("dscp 0 ect1"));
        assert!((fate.down_kept_percent.unwrap() - 10.0).abs() < 1e-9);
    }

    #[test]
    fn high_quantiles_need_many_samples() {
        let of = |count| {
            let distribution = Distribution { count, p99_ns: 7_000_000, ..Default::default() };
            let window = underload_record::schema::PhaseWindow {
                phase: Phase::Load,
                start_ns: 0,
                end_ns: 5_000_000_000,
            };
            let summary = LatencySummary {
                probe: "probe".to_owned(),
                window,
                sent: count,
                distribution: Some(distribution),
                ..LatencySummary::default()
            };
            round_trips(&[summary]).remove(0)
        };
        assert_eq!((of(499).p99_ms, of(500).p99_ms), (None, Some(7.0)));
        assert_eq!((of(4_999).p999_ms, of(5_000).p999_ms.is_some()), (None, true));
    }
}
