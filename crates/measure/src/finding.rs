//! The findings of a measurement step, as numbers; `underload_report` puts them into words.

use std::collections::BTreeMap;

use underload_probe::control::SessionNews;
use underload_probe::load::{FlowLog, LoadFlow, Transport};
use underload_probe::measure::{MeasurementConfig, MeasurementResult, Ramp};
use underload_probe::preset::Step as PresetStep;
use underload_probe::route::{HopProbes, PathProbe};
use underload_probe::rpm::{Responsiveness, RoundTrips};
use underload_record::judgement::ADVICE_FROM_MS;
use underload_record::schema::{
    Direction, Finding, FlowDirection, FlowRecord, LatencySummary, Marking, MarkingFate, Metric,
    Phase, PhaseWindow, Quantile, Recovery, Rpm, Sample, TrialRecord,
};

use crate::location::{PathProbes, locate};
use crate::outcome::{Outcome, goodput, trial};

/// Bytes of an IP packet per byte of TCP payload, full segments with time stamps.
const WIRE_PER_PAYLOAD: f64 = 1500.0 / 1448.0;
/// Bytes of acknowledgements per byte that they acknowledge: one for two segments.
const ACKNOWLEDGED: f64 = 0.02;
/// IPv6 and UDP headers of a probe.
const PROBE_HEADER_BYTES: u64 = 48;
/// Bytes of an ICMPv6 echo with its IP header.
const ECHO_BYTES: u64 = 104;
/// More frequent probes do not locate a delay better.
const LOCATED_NS: u64 = 5_000_000;
/// Below this added delay no buffer size is computed.
const BUFFER_DELAY_MS: f64 = 5.0;
/// A UDP load that loses at most this share did not fill the line: lines with capacity left lose
/// some packets too, above all over Wi-Fi.
const CAPPED_LOST: f64 = 0.02;
/// Why the round trips of a TCP load are unknown.
const NO_ROUND_TRIPS: &str = "the system of the sending end does not report the round trips of its \
                              connections, or the load was too short";
/// A sender's own rate is used only if the sender ran for longer than this.
const SENT_MIN_NS: u64 = 1_000_000_000;

/// The rates that a line is sold with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier {
    pub down_bit_per_s: u64,
    pub up_bit_per_s: u64,
}

/// A step of a measurement and what it found.
#[derive(Debug, Clone)]
pub struct Step {
    /// The trial of the step; its record includes the finding.
    pub outcome: Outcome,
    pub finding: Finding,
}

/// Rates of the local network loaded alone, Mbit/s; `None` for a direction without load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LocalRates {
    pub down_mbit_s: Option<f64>,
    pub up_mbit_s: Option<f64>,
}

impl LocalRates {
    /// Returns the largest share of these rates that a direction of a step used; `None` if one of
    /// its directions was not loaded alone.
    fn share_of(&self, finding: &Finding) -> Option<f64> {
        let directions = [
            (finding.goodput_down_mbit_s, self.down_mbit_s),
            (finding.goodput_up_mbit_s, self.up_mbit_s),
        ];
        let loaded = directions.into_iter().filter_map(|(rate, alone)| Some((rate?, alone)));
        let shares = loaded.map(|(rate, alone)| Some(rate / alone.filter(|it| *it > 0.0)?));
        shares.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::max)
    }
}

impl Step {
    /// Charges the step with the bytes of an earlier attempt that it replaces.
    #[must_use]
    pub fn instead_of(self, earlier: &Finding) -> Self {
        let Self { mut outcome, mut finding } = self;
        finding.moved_bytes = finding.moved_bytes.saturating_add(earlier.moved_bytes);
        outcome.trial.finding = Some(Box::new(finding.clone()));
        Self { outcome, finding }
    }

    /// Adds where on the path the load adds delay; nothing for a step without a load. `near` are
    /// the hops before the far end and `far` is the far end, as echoes probed them.
    ///
    /// `alone` is what the local network carried when it was loaded alone.
    #[must_use]
    pub fn with_location(self, near: &[HopProbes], far: &HopProbes, alone: &LocalRates) -> Self {
        let Self { mut outcome, mut finding } = self;
        let window = |phase| outcome.trial.phases.iter().find(|it| it.phase == phase).copied();
        if let (Some(idle), Some(load)) = (window(Phase::Idle), window(Phase::Load)) {
            let far_end = HopProbes { probes: thinned(&outcome.samples), ..far.clone() };
            let far_echoes = &far.probes;
            let local_share = alone.share_of(&finding);
            let probes = PathProbes { near, far: &far_end, far_echoes, idle, load, local_share };
            let mut location = locate(&probes);
            if !finding.valid {
                location.verdict = None;
                location.not_known_because = Some("the step is not valid".to_owned());
            }
            finding.location = Some(Box::new(location));
            let echoes = near.iter().chain([far]).flat_map(|hop| &hop.probes);
            let packets = echoes.map(|it| 1 + u64::from(it.round_trip_ns.is_some()));
            finding.moved_bytes += packets.sum::<u64>() * ECHO_BYTES;
            outcome.trial.finding = Some(Box::new(finding.clone()));
        }
        Self { outcome, finding }
    }

    /// Adds the finding to the trial's record.
    pub fn new(mut outcome: Outcome, finding: Finding) -> Self {
        outcome.trial.flows.push(line_record(&finding));
        outcome.trial.finding = Some(Box::new(finding.clone()));
        Self { outcome, finding }
    }
}

/// Returns the probes of the first class, at most one in each [`LOCATED_NS`].
fn thinned(samples: &[Sample]) -> Vec<PathProbe> {
    let mut next_ns = 0;
    let beside_load = samples.iter().filter(|it| it.flow == 0 && !it.closed_loop);
    let kept = beside_load.filter(|it| {
        let is_due = it.sent_ns >= next_ns;
        next_ns = if is_due { it.sent_ns.saturating_add(LOCATED_NS) } else { next_ns };
        is_due
    });
    kept.map(|it| PathProbe { sent_ns: it.sent_ns, round_trip_ns: it.rtt_ns }).collect()
}

/// Returns the trial and the finding of a step of a preset.
pub fn step(
    step: &PresetStep,
    mut measured: MeasurementResult,
    tier: Option<Tier>,
    news: &SessionNews,
) -> Step {
    if let Some(reason) = &news.ended {
        measured.incomplete.push(format!("the server ended the session: {reason}"));
    }
    let mut finding = finding(step, &measured, tier, news);
    let (index, variant) = (step.config.trial, step.name.clone());
    let outcome = trial(TrialRecord { index, variant, ..TrialRecord::default() }, measured);
    finding.valid = outcome.trial.validity.is_valid();
    finding.invalid_because = outcome.trial.validity.reasons_in_words();
    finding.uncertain = outcome.trial.validity.is_busy_machine();
    let is_compared = |it: &&LatencySummary| matches!(it.window.phase, Phase::Idle | Phase::Load);
    finding.latencies = outcome.trial.latencies.iter().filter(is_compared).cloned().collect();
    finding.inside.clone_from(&outcome.trial.inside);
    if finding.inside.is_empty() && outcome.trial.flows.iter().any(|flow| flow.kind == "tcp") {
        finding.inside_unknown = Some(NO_ROUND_TRIPS.to_owned());
    }
    finding.buffer_kib = buffer_kib(&finding);
    finding.recovery = recovery(&finding, &outcome);
    Step::new(outcome, finding)
}

/// Computes the finding from the flows and samples of a step. [`step`] adds what comes from the
/// trial's record: latencies, validity and buffer size.
fn finding(
    step: &PresetStep,
    measured: &MeasurementResult,
    tier: Option<Tier>,
    news: &SessionNews,
) -> Finding {
    let goodput = |direction| goodput(measured, direction);
    let (up, down) = (goodput(Direction::Up), goodput(Direction::Down));
    let percent = |rate: Option<u64>, of: Option<u64>| {
        rate.zip(of).map(|(rate, of)| rate as f64 * 100.0 / of as f64)
    };
    let mbit = |rate: Option<u64>| rate.map(|rate| rate as f64 / 1e6);
    let load = measured.phases.iter().find(|window| window.phase == Phase::Load);
    let flows = &step.config.loads;
    let capped =
        |direction| load.is_some_and(|it| is_capped(flows, &measured.loads, it, direction));
    Finding {
        step: step.name.clone(),
        label: step.label.clone(),
        goodput_up_mbit_s: mbit(up),
        goodput_down_mbit_s: mbit(down),
        tier_up_percent: percent(up, tier.map(|tier| tier.up_bit_per_s)),
        tier_down_percent: percent(down, tier.map(|tier| tier.down_bit_per_s)),
        rpm: rpm(measured).as_ref().map(rpm_values),
        markings: markings(step, &measured.samples),
        moved_bytes: moved_bytes(step, measured),
        budget_spent: measured.load_spent,
        clock_offset_ns: measured.clock_offset.map(|clock| clock.offset_ns),
        clock_error_ns: measured.clock_offset.map(|clock| clock.error_ns),
        ce_alarms: measured.ce_alarms.clone(),
        server_ns: measured.probe_counts.iter().filter_map(|it| it.residence_p99_ns).max(),
        // The news cover the whole session: another step may have been throttled in the other
        // direction.
        throttled_up: news.throttled_up && up.is_some(),
        throttled_down: news.throttled_down && down.is_some(),
        capped_up: capped(Direction::Up),
        capped_down: capped(Direction::Down),
        ..Finding::default()
    }
}

/// Returns a flow record named `line` with the values that describe the whole line: responsiveness,
/// share of the tier, clock offset and its error.
pub(crate) fn line_record(finding: &Finding) -> FlowRecord {
    let rpm = finding.rpm;
    let values = [
        ("rpm_draft_09", "RPM", rpm.map(|rpm| rpm.draft_09)),
        ("rpm_goresponsiveness_p90", "RPM", rpm.map(|rpm| rpm.goresponsiveness_p90)),
        (
            "rpm_goresponsiveness_trimmed_mean",
            "RPM",
            rpm.map(|rpm| rpm.goresponsiveness_trimmed_mean),
        ),
        ("of_tier_down", "%", finding.tier_down_percent),
        ("of_tier_up", "%", finding.tier_up_percent),
        ("clock_offset", "ms", finding.clock_offset_ns.map(|ns| ns as f64 / 1e6)),
        ("clock_error", "ms", finding.clock_error_ns.map(|ns| ns as f64 / 1e6)),
    ];
    let metric = |(name, unit, value): (&str, &str, Option<f64>)| {
        let value = Some(value?);
        Some(Metric { name: name.to_owned(), unit: unit.to_owned(), value })
    };
    FlowRecord {
        name: "line".to_owned(),
        kind: "line".to_owned(),
        direction: FlowDirection::Both,
        metrics: values.into_iter().filter_map(metric).collect(),
        ..FlowRecord::default()
    }
}

/// TCP fills a plain buffer until it overflows: the p99 under load is a full buffer's.
fn buffer_kib(finding: &Finding) -> Option<f64> {
    let ((Some(rate), None) | (None, Some(rate))) =
        (finding.goodput_up_mbit_s, finding.goodput_down_mbit_s)
    else {
        return None;
    };
    if finding.is_held_back() {
        return None;
    }
    let added_ns = finding.headline(Phase::Load)?.told_ns(Quantile::P99)? - idle_ns(finding)?;
    let added_ms = added_ns as f64 / 1e6;
    let kib = added_ms * rate * WIRE_PER_PAYLOAD * 1e3 / 8.0 / 1024.0;
    (added_ms >= BUFFER_DELAY_MS).then_some(kib)
}

/// Returns the idle median of the first probe, ns.
fn idle_ns(finding: &Finding) -> Option<i64> {
    finding.headline(Phase::Idle)?.told_ns(Quantile::P50)
}

/// Returns how long probes beside the load are late after its end, by [`ADVICE_FROM_MS`] or more. The
/// first probe that is not late ends it: a late one after that has another cause.
fn recovery(finding: &Finding, outcome: &Outcome) -> Option<Recovery> {
    let late_ms = idle_ns(finding)? as f64 / 1e6 + ADVICE_FROM_MS;
    let drain = outcome.trial.phases.iter().find(|window| window.phase == Phase::Drain)?;
    let is_after = |it: &&Sample| it.flow == 0 && drain.contains(it.scheduled_ns);
    let mut after: Vec<(u64, u64)> = outcome
        .samples
        .iter()
        .filter(is_after)
        .filter_map(|it| Some((it.scheduled_ns - drain.start_ns, it.rtt_ns?)))
        .collect();
    after.sort_unstable();
    let in_time = after.iter().position(|(_, rtt_ns)| (*rtt_ns as f64 / 1e6) < late_ms);
    let length_ns = in_time.map_or(drain.length_ns(), |place| after[place].0);
    let is_late = !after.is_empty() && in_time != Some(0);
    is_late.then_some(Recovery { length_ns, is_cut: in_time.is_none() })
}

/// Returns the bytes of IP packets of load and probes in both directions.
fn moved_bytes(step: &PresetStep, measured: &MeasurementResult) -> u64 {
    let arrived = |log: &FlowLog| log.delivered.last().map_or(0, |last| last.bytes);
    // Bytes that were sent and did not arrive have used the line, too.
    let payload = measured.loads.iter().map(|log| arrived(log).max(log.bytes_sent)).sum();
    let probe_bytes = u64::from(step.config.probe.payload_bytes) + PROBE_HEADER_BYTES;
    let probes = 2 * probe_bytes * measured.samples.len() as u64;
    wire_bytes(payload).saturating_add(probes)
}

/// Returns the payload that the load of a step may move, so that with its probes it moves at most
/// `bytes` of IP packets.
pub fn payload_within(bytes: u64, config: &MeasurementConfig) -> u64 {
    let (Ramp::Fixed(ramp) | Ramp::Detected { at_most: ramp }) = config.ramp;
    let length = config.idle + ramp + config.load + config.drain;
    let slots = length.as_nanos() / config.probe.interval.as_nanos().max(1) + 1;
    let probes = slots as u64 * config.probe.classes.len() as u64;
    let probe_bytes = u64::from(config.probe.payload_bytes) + PROBE_HEADER_BYTES;
    let left = bytes.saturating_sub(2 * probe_bytes * probes);
    (left as f64 / (WIRE_PER_PAYLOAD * (1.0 + ACKNOWLEDGED))) as u64
}

/// Returns the bytes of IP packets that carry a TCP payload, with their acknowledgements.
pub(crate) fn wire_bytes(payload: u64) -> u64 {
    (payload as f64 * WIRE_PER_PAYLOAD * (1.0 + ACKNOWLEDGED)) as u64
}

/// Returns whether the load is UDP and almost all that was sent in the load phase arrived.
fn is_capped(
    flows: &[LoadFlow],
    logs: &[FlowLog],
    window: &PhaseWindow,
    direction: Direction,
) -> bool {
    let seconds = window.length_ns() as f64 / 1e9;
    let (mut sent, mut arrived, mut uncertain) = (0.0, 0.0, 0.0);
    for (flow, log) in flows.iter().zip(logs).filter(|(flow, _)| flow.direction == direction) {
        let Transport::Udp { rate_bit_per_s, packet_bytes, burst_packets } = flow.transport else {
            return false;
        };
        let Some(last) = log.delivered.last().filter(|last| last.packets > 0) else { return false };
        let goodput = log.goodput_bit_per_s(window.start_ns, window.end_ns).unwrap_or(0);
        let payload_bits = last.bytes as f64 * 8.0 / last.packets as f64;
        let planned = rate_bit_per_s as f64 / (f64::from(packet_bytes) * 8.0);
        // A sender that waited for a processor sent less than planned; that is not loss.
        let life_ns = log.delivered.first().map_or(0, |first| last.time_ns - first.time_ns);
        let by_count = log.packets_sent.filter(|_| life_ns > SENT_MIN_NS);
        let left = by_count.map_or(planned, |packets| packets as f64 * 1e9 / life_ns as f64);
        sent += planned.min(left) * seconds;
        arrived += goodput as f64 / payload_bits * seconds;
        // Packets in flight at the edges of the window.
        uncertain += f64::from(burst_packets);
    }
    sent > 0.0 && arrived + uncertain >= sent * (1.0 - CAPPED_LOST)
}

fn rpm_values(value: &Responsiveness) -> Rpm {
    Rpm {
        draft_09: value.draft_09.round(),
        goresponsiveness_p90: value.goresponsiveness_p90.round(),
        goresponsiveness_trimmed_mean: value.goresponsiveness_trimmed_mean.round(),
        approximated_from_packets: true,
    }
}

/// Computed from the probes of the first class, which use separate flows, and from the round trips
/// that the kernel measured on the loaded connections: the readings that [`Finding::inside`]
/// summarises by direction.
fn rpm(measured: &MeasurementResult) -> Option<Responsiveness> {
    let load = measured.phases.iter().find(|window| window.phase == Phase::Load)?;
    let first = |sample: &&Sample| {
        sample.flow == 0 && !sample.closed_loop && load.contains(sample.scheduled_ns)
    };
    let foreign: Vec<u64> =
        measured.samples.iter().filter(first).filter_map(|sample| sample.rtt_ns).collect();
    let loaded: Vec<u64> =
        measured.loads.iter().flat_map(|flow| flow.round_trips_ns(*load)).collect();
    RoundTrips::of_packets(&foreign, &loaded).responsiveness()
}

fn markings(step: &PresetStep, samples: &[Sample]) -> Vec<MarkingFate> {
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
    let became = |most: Marking| (most != sent).then(|| most.to_string());
    Some(MarkingFate {
        probe: probe.to_owned(),
        sent: sent.to_string(),
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
    let mut counts = BTreeMap::new();
    for marking in seen {
        *counts.entry(*marking).or_insert(0_usize) += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map_or(Marking::default(), |(it, _)| it)
}

#[cfg(test)]
mod tests {
    use underload_probe::load::{Delivered, TcpInfo, TcpSample};
    use underload_probe::measure::RampEnd;
    use underload_record::history::Followed;
    use underload_record::judgement::{Grade, LoadedStep};
    use underload_record::schema::{
        Distribution, InsideLatency, Judged, PathHop, PathSegment, Timeliness,
    };
    use underload_record::stats::distribution;

    use super::*;
    use crate::followed;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_delay_after_the_load_is_reported_or_bounded() {
        let recovery = |late: &[u64]| {
            let mut measured =
                measured(|number| Some(if late.contains(&number) { 80 } else { 13 }));
            let end_ns = measured.phases[1].end_ns;
            let (phase, start_ns) = (Phase::Drain, end_ns - 500 * MS);
            measured.phases[1].end_ns = start_ns;
            measured.phases.push(PhaseWindow { phase, start_ns, end_ns });
            found(measured).finding.recovery.map(|it| (it.length_ns / MS, it.is_cut))
        };
        assert_eq!(recovery(&[]), None);
        // Samples 1,100 to 1,199 are after the load.
        assert_eq!(recovery(&[1_000, 1_099]), None);
        assert_eq!(recovery(&[1_100, 1_101]), Some((10, false)));
        assert_eq!(recovery(&[1_150]), None, "another cause");
        assert_eq!(recovery(&[1_100, 1_150]), Some((5, false)));
        assert_eq!(recovery(&(1_100..1_200).collect::<Vec<_>>()), Some((500, true)));
    }

    /// A second of idle probes and five of loaded ones, a probe every 5 ms.
    fn measured(loaded: impl Fn(u64) -> Option<u64>) -> MeasurementResult {
        let window = |phase, from_s: u64, to_s: u64| PhaseWindow {
            phase,
            start_ns: from_s * 1_000 * MS,
            end_ns: to_s * 1_000 * MS,
        };
        let sample = |number: u64| {
            let scheduled_ns = number * 5 * MS;
            let is_idle = scheduled_ns < 1_000 * MS;
            let phase = if is_idle { Phase::Idle } else { Phase::Load };
            let rtt_ms = if is_idle { Some(12) } else { loaded(number) };
            let rtt_ns = rtt_ms.map(|ms| ms * MS);
            Sample { phase, scheduled_ns, sent_ns: scheduled_ns, rtt_ns, ..Sample::default() }
        };
        MeasurementResult {
            samples: (0..1_200).map(sample).collect(),
            phases: vec![window(Phase::Idle, 0, 1), window(Phase::Load, 1, 6)],
            flows: vec![FlowRecord { name: "probe".to_owned(), ..FlowRecord::default() }],
            series: Vec::new(),
            timeliness: Timeliness::default(),
            ramp_end: RampEnd::Fixed,
            incomplete: Vec::new(),
            cancelled: false,
            load_spent: false,
            ce_alarms: Vec::new(),
            probe_counts: Vec::new(),
            inside: Vec::new(),
            loads: Vec::new(),
            clock_offset: None,
        }
    }

    fn found(measured: MeasurementResult) -> Step {
        let preset = PresetStep {
            name: "down".to_owned(),
            label: String::new(),
            config: MeasurementConfig::default(),
        };
        step(&preset, measured, None, &SessionNews::default())
    }

    #[test]
    fn a_queue_that_drops_has_no_better_grade_than_one_that_delays() {
        let drops = found(measured(|number| (number % 33 > 0).then_some(12)));
        let delays = found(measured(|_| Some(22)));
        let grade = |step: &Step| LoadedStep::from(&step.finding).judge().grade;
        assert_eq!((grade(&delays), grade(&drops)), (Some(Grade::A), Some(Grade::C)));
        // The quantiles of the answered probes do not show the drops; only the loss does.
        let load = drops.finding.headline(Phase::Load).unwrap();
        let answered = Judged::Answered(12 * MS as i64);
        assert_eq!(load.told_ns(Quantile::P99), answered.answered_ns());
        let quantiles = [Quantile::P99, Quantile::P95, Quantile::P999];
        let judged = quantiles.map(|it| load.judged(it));
        assert_eq!(judged, [Some(Judged::Lost), Some(answered), None], "p99.9 of 970 samples");
        assert!(delays.finding.headline(Phase::Load).unwrap().of_sent_ns.is_empty());
        let p99 = |step: &Step| {
            let all = followed(&step.outcome.trial).into_iter();
            all.filter(|(it, _)| *it == Followed::LoadP99).map(|(_, ms)| ms).collect::<Vec<_>>()
        };
        assert_eq!((p99(&drops), p99(&delays)), (vec![2_000.0], vec![22.0]), "in a history");
    }

    #[test]
    fn a_load_that_answers_few_probes_or_none_is_judged_by_those_that_it_lost() {
        for answered in [0, 1, 49, 499] {
            let mut result = measured(|number| (number < 200 + answered).then_some(12));
            let distribution = Distribution { count: 900, p99_ns: 13_000_000, ..<_>::default() };
            result.inside = vec![InsideLatency { distribution, ..InsideLatency::default() }];
            result.flows[0].goodput_down_bit_per_s = Some(40_000_000);
            let step = found(result);
            let judged = LoadedStep::from(&step.finding).judge();
            assert_eq!(judged.grade, Some(Grade::F), "{answered}");
            let scores = judged.qoo.iter().map(|it| (it.application.as_str(), it.score));
            assert_eq!(scores.take(2).collect::<Vec<_>>(), [("call", 0.0), ("game", 0.0)]);
            let p99 = followed(&step.outcome.trial).remove(0);
            assert_eq!(p99, (Followed::LoadP99, 2_000.0), "{answered} in a history");
        }
        let few = found(measured(|number| (number < 699).then_some(12)));
        let load = few.finding.headline(Phase::Load).unwrap();
        let told = [Quantile::P99, Quantile::P95].map(|it| load.told_ns(it));
        assert_eq!(told, [None, Some(12 * MS as i64)], "499 answers tell no p99");
    }

    #[test]
    fn rpm_and_the_round_trips_inside_the_load_follow_from_the_same_readings() {
        let mut result = measured(|_| Some(12));
        let mut log = FlowLog::default();
        for number in 0..501 {
            log.round_trips.note(number * 10 * MS, 20_000 + number as u32);
            // The rows of the sender's whole state, ten times as rare.
            let info = TcpInfo { rtt_us: 90_000, ..TcpInfo::default() };
            log.tcp.push(TcpSample { time_ns: number * 100 * MS, info });
        }
        let load = result.phases[1];
        let mut readings: Vec<u64> = log.round_trips_ns(load).collect();
        assert_eq!(readings.len(), 401);
        let distribution = distribution(&mut readings).unwrap();
        result.inside = vec![InsideLatency { distribution, ..InsideLatency::default() }];
        result.loads = vec![log];
        let finding = found(result).finding;
        let (inside, beside) = (finding.inside[0].distribution.p90_ns, 12 * MS as i64);
        let rpm = finding.rpm.unwrap().goresponsiveness_p90;
        assert_eq!(rpm as i64, (120e9 / (inside + beside) as f64).round() as i64);
    }

    #[test]
    fn a_load_within_a_budget_leaves_room_for_its_probes() {
        let config = MeasurementConfig::default();
        assert_eq!(payload_within(0, &config), 0);
        let probes_bytes = 2 * 1_000 * 1_000;
        let payload = payload_within(100_000_000, &config);
        assert!((90_000_000..95_000_000).contains(&payload), "{payload}");
        assert!(wire_bytes(payload) + probes_bytes > 100_000_000 - probes_bytes);
        assert!(wire_bytes(payload) < 100_000_000);
    }

    #[test]
    fn a_busy_machine_alone_makes_a_step_uncertain_and_both_attempts_are_charged() {
        let found_with = |percent| {
            let mut late = measured(|_| Some(12));
            late.timeliness.cpu_pressure_percent = percent;
            found(late)
        };
        let (busy, idle) = (found_with(Some(60.0)), found_with(None));
        assert!(busy.finding.uncertain && !busy.finding.valid);
        assert!(!idle.finding.uncertain && idle.finding.valid);
        let moved = idle.finding.moved_bytes;
        let second = idle.instead_of(&busy.finding);
        assert_eq!(second.finding.moved_bytes, 2 * moved);
        assert_eq!(second.outcome.trial.finding.as_deref(), Some(&second.finding));
    }

    #[test]
    fn a_location_uses_valid_steps_and_its_echoes_are_charged() {
        let hop = |hop, idle_ms: u64, loaded_ms: u64| {
            let probe = |slot: u64| PathProbe {
                sent_ns: slot * 20 * MS,
                round_trip_ns: Some(MS * if slot < 50 { idle_ms } else { loaded_ms }),
            };
            let probes = (0..300).map(probe).collect();
            HopProbes { hop, address: String::new(), distance: None, probes }
        };
        let near = [hop(PathHop::Router, 1, 1), hop(PathHop::Provider, 5, 105)];
        let far = hop(PathHop::FarEnd, 12, 112);
        let step = found(measured(|_| Some(112)));
        let before_bytes = step.finding.moved_bytes;
        let step = step.with_location(&near, &far, &LocalRates::default());
        let location = step.finding.location.as_deref().unwrap();
        assert_eq!(location.verdict, Some(PathSegment::Access), "{location:?}");
        assert_eq!(step.outcome.trial.finding.as_deref(), Some(&step.finding));
        assert_eq!(step.finding.moved_bytes, before_bytes + 3 * 300 * 2 * ECHO_BYTES);
        let mut late = measured(|_| Some(112));
        late.timeliness.cpu_pressure_percent = Some(60.0);
        let located = found(late).with_location(&near, &far, &LocalRates::default());
        let location = located.finding.location.unwrap();
        assert_eq!(location.verdict, None);
        assert_eq!(location.not_known_because.as_deref(), Some("the step is not valid"));
    }

    #[test]
    fn validity_is_judged_in_one_order() {
        let mut late = measured(|_| Some(12));
        late.timeliness.cpu_pressure_percent = Some(60.0);
        late.incomplete.push("a flow sent nothing".to_owned());
        let news = SessionNews { ended: Some("its time is up".to_owned()), ..Default::default() };
        let preset = PresetStep {
            name: "down".to_owned(),
            label: String::new(),
            config: MeasurementConfig::default(),
        };
        let found = step(&preset, late, None, &news).finding;
        assert!(!found.uncertain, "more than a busy machine");
        let reasons: Vec<&str> = found.invalid_because.iter().map(String::as_str).collect();
        let [cpu, flow, ended] = reasons[..] else { panic!("{reasons:?}") };
        assert!(!found.valid && cpu.contains("60 %"), "{cpu}");
        assert_eq!(flow, "a flow sent nothing");
        assert_eq!(ended, "the server ended the session: its time is up");
    }

    #[test]
    fn bleaching_is_reported_per_direction() {
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
    fn udp_that_arrives_did_not_fill_the_line() {
        let flow = |transport| LoadFlow {
            name: "up-0".to_owned(),
            direction: Direction::Up,
            transport,
            marking: Marking::default(),
            start_after: std::time::Duration::ZERO,
        };
        let udp =
            Transport::Udp { rate_bit_per_s: 9_600_000, packet_bytes: 1200, burst_packets: 1 };
        let (window, second) = (
            PhaseWindow { phase: Phase::Load, start_ns: 1_000_000_000, end_ns: 6_000_000_000 },
            1_000_000_000,
        );
        // 1,000 packets per second are planned, of 1,172 bytes of payload.
        let log = |sent: u64, arrived: u64| FlowLog {
            delivered: (0..=7)
                .map(|at| Delivered {
                    time_ns: at * second,
                    bytes: at * arrived * 1_172,
                    packets: at * arrived,
                })
                .collect(),
            packets_sent: Some(sent * 7),
            ..FlowLog::default()
        };
        let is = |transport: &Transport, sent, arrived, direction| {
            is_capped(&[flow(transport.clone())], &[log(sent, arrived)], &window, direction)
        };
        assert!(is(&udp, 1_000, 1_000, Direction::Up) && is(&udp, 1_000, 985, Direction::Up));
        assert!(!is(&udp, 1_000, 970, Direction::Up) && !is(&udp, 1_000, 0, Direction::Up));
        // The sender was slower than its planned rate.
        assert!(is(&udp, 700, 700, Direction::Up) && !is(&udp, 700, 600, Direction::Up));
        assert!(!is(&udp, 1_000, 1_000, Direction::Down), "nothing loaded that way");
        let tcp = Transport::Tcp { congestion_control: "cubic".to_owned() };
        assert!(!is(&tcp, 1_000, 1_000, Direction::Up));
    }
}
