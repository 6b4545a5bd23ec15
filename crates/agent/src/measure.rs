//! A run: a session at a server, the steps of a plan, and their results.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use underload_aqm::time::Time;
use underload_fleet::agent::limits::LIMIT_OF_BYTES;
use underload_fleet::agent::{Ran, RunTask};
use underload_fleet::message::{AssignedStep, ServerAddress};
use underload_fleet::outcome::{Outcome, StepResult};
use underload_fleet::plan::Kind;
use underload_measure::{goodput, step as judged_step, validity};
use underload_probe::RunClock;
use underload_probe::control::{Ask, ConnectOptions, Remote, Trust};
use underload_probe::endpoint::{ProbeClass, Prober, ProberConfig};
use underload_probe::load::{LoadFlow, Token, Transport};
use underload_probe::measure::{Measurement, MeasurementConfig, MeasurementResult, Progress, Ramp};
use underload_probe::network::{Line, QUIET_BELOW_BIT_PER_S, Reach, SocketSource};
use underload_probe::preset::Step as PresetStep;
use underload_record::judgement::LoadedStep;
use underload_record::schema::{
    Direction, Finding, LatencySummary, Marking, Phase, ValidityLimits,
};

use crate::series::{inside_of, series_of};

#[derive(Clone)]
pub struct Measurer {
    pub network: Arc<dyn SocketSource>,
    /// Interfaces that carry the home's traffic.
    pub line: Line,
    /// Traffic besides that of a run, bit/s, above which the home counts as using its line.
    pub busy_bit_per_s: u64,
    /// Rates that the line is sold with, up and down, bit/s; 0 if unknown.
    pub tier_bit_per_s: (u64, u64),
    /// Limits of this machine's lateness, above which a run is invalid.
    pub limits: ValidityLimits,
    /// Ends the run when set.
    pub cancel: Arc<AtomicBool>,
    /// The emulator of the line, if it is emulated on this machine.
    pub carrier: Option<Arc<dyn Carrier>>,
}

/// The emulator of a line, which counts packets that it handled worse than a line would.
pub trait Carrier: Send + Sync {
    fn carried(&self) -> Carried;
}

/// Counters of an emulated line since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    pub packets: u64,
    /// Packets delivered later than by the line that is emulated, by more than the default of
    /// [`ValidityLimits::lateness_p99_ns`].
    pub late: u64,
    /// Packets lost outside of the line's own queues.
    pub lost: u64,
}

impl Carried {
    /// Returns why measurements between two readings are invalid.
    fn doubt(self, later: Self) -> Option<String> {
        let between = |now: u64, before: u64| now.saturating_sub(before);
        let lost = between(later.lost, self.lost);
        if lost > 0 {
            return Some("the emulated line lost packets outside of its queues".to_owned());
        }
        let (packets, late) =
            (between(later.packets, self.packets), between(later.late, self.late));
        // More than 1 % of the packets, so that the 99th percentile exceeds the limit.
        (late * 100 > packets)
            .then(|| format!("the emulated line was late with {late} of {packets} packets"))
    }
}

/// Default of the traffic below which a home counts as quiet.
pub const BUSY_DEFAULT: u64 = QUIET_BELOW_BIT_PER_S;
/// A probe without an answer after this time is lost.
const LOSS_TIMEOUT: Duration = Duration::from_secs(3);
/// Time that a session lasts longer than each of its steps, for connecting and the last answers.
const STEP_MARGIN: Duration = Duration::from_secs(4);
/// Maximum number of addresses of each family that are tried for a server.
const ADDRESSES_MAX: usize = 2;
/// IPv4 and UDP headers of a probe, bytes.
const PROBE_HEADER_BYTES: u32 = 28;
/// Traffic in the direction of a load, in percent of what arrived: headers, lost and queued data.
const LOAD_PERCENT: u64 = 125;
/// Acknowledgements in the other direction, in percent of the load.
const ACK_PERCENT: u64 = 5;

impl Measurer {
    /// Makes a run at a server that `reach` includes. `now` returns the time of the agent's clock.
    pub fn run(&self, task: &RunTask, reach: Reach, now: &dyn Fn() -> Time) -> Ran {
        let mut remote = match self.connect(task, reach) {
            Ok(remote) => remote,
            Err(reason) => return Ran::TurnedAway { reason: without_addresses(&reason) },
        };
        let began = now();
        let (mut outcome, mut reason, mut steps) = (Outcome::Measured, String::new(), Vec::new());
        let mut meter = Meter { bytes: 0, bytes_max: task.bytes_max };
        let mut findings = Vec::new();
        for step in &task.steps {
            let measured = self.step(step, &mut remote, &mut meter);
            let measured = measured.map(|measured| {
                steps.push(measured.result);
                findings.push(measured.finding);
                measured.fault
            });
            match measured {
                Ok(None) => {}
                Ok(Some((worse, why))) => {
                    // The first reason counts. A home that uses its line ends the run.
                    if outcome == Outcome::Measured {
                        (outcome, reason) = (worse, why);
                    }
                    if worse == Outcome::CrossTraffic {
                        (outcome, reason) =
                            (worse, "the home used its line during the run".to_owned());
                        break;
                    }
                }
                Err(why) => {
                    (outcome, reason) = (Outcome::Failed, format!("{}: {why}", step.name));
                    break;
                }
            }
        }
        grade(&mut steps, findings);
        let (reason, bytes) = (without_addresses(&reason), meter.bytes);
        Ran::Over { outcome, reason, began, steps, bytes }
    }

    fn connect(&self, task: &RunTask, reach: Reach) -> Result<Remote, String> {
        let ServerAddress { name, address, fingerprint } = &task.server;
        let in_words = |error: &dyn std::fmt::Display| format!("{name}: {error}");
        let known = fingerprint.parse().map_err(|error| in_words(&error))?;
        let addresses = usable(address, reach);
        if addresses.is_empty() {
            return Err(in_words(&"no address that this agent measures to"));
        }
        let lasts = task.steps.iter().map(|step| {
            let measures = step.warm_up_ms.saturating_add(step.duration_ms);
            Duration::from_millis(measures).saturating_add(STEP_MARGIN)
        });
        let options = ConnectOptions {
            trust: Trust::Pinned(known),
            token: task.lease.clone(),
            // The lease contains the rates.
            ask: Ask {
                up_bit_per_s: None,
                down_bit_per_s: None,
                duration: lasts.fold(Duration::ZERO, Duration::saturating_add),
            },
            network: Arc::clone(&self.network),
            cancel: Arc::clone(&self.cancel),
        };
        Remote::connect(address, &addresses, &options).map_err(|error| in_words(&error))
    }

    fn step(
        &self,
        step: &AssignedStep,
        remote: &mut Remote,
        meter: &mut Meter,
    ) -> Result<MeasuredStep, String> {
        let config = config_of(step, remote.token());
        let before = self.line.bytes();
        let carried_before = self.carrier.as_ref().map(|it| it.carried());
        let measured = self.metered(step, &config, remote, meter);
        let carried = before.zip(self.line.bytes());
        let emulated = carried_before.zip(self.carrier.as_ref().map(|it| it.carried()));
        let news = remote.news().clone();
        if let Some(reason) = &news.ended {
            return Err(format!("the server ended the session: {reason}"));
        }
        let measured = measured?;
        let result = self.result_of(step, &measured);
        let is_held_up = match step.kind {
            Kind::Latency => false,
            Kind::Upload => news.throttled_up,
            Kind::Download => news.throttled_down,
        };
        let fault = if carried.is_some_and(|it| self.is_foreign(step, &measured, it)) {
            Some((Outcome::CrossTraffic, String::new()))
        } else if let Some(why) = self.doubt(&measured, emulated) {
            Some((Outcome::Invalid, format!("{}: {why}", step.name)))
        } else if is_held_up {
            let why = "the rate of the lease limited the load, not the line";
            Some((Outcome::Invalid, format!("{}: {why}", step.name)))
        } else {
            None
        };
        let (name, label) = (step.name.clone(), String::new());
        let preset = PresetStep { name, label, config };
        let mut finding = judged_step(&preset, measured, None, &news).finding;
        finding.valid = fault.is_none();
        Ok(MeasuredStep { result, finding, fault })
    }

    /// Measures a step until it ends, `meter` is full or `cancel` is set.
    fn metered(
        &self,
        step: &AssignedStep,
        config: &MeasurementConfig,
        remote: &Remote,
        meter: &mut Meter,
    ) -> Result<MeasurementResult, String> {
        let (stop, before) = (AtomicBool::new(false), meter.bytes);
        let mut watch = |progress: Progress| {
            // Sent bytes count even if the server reports fewer received bytes.
            let up = progress.bytes_up.max(progress.bytes_sent);
            let load = up.saturating_add(progress.bytes_down);
            let probes = progress.probes_sent.saturating_add(progress.probes_answered) / 2;
            let [received, sent] = own_bytes(step, load, probes);
            meter.bytes = before.saturating_add(received).saturating_add(sent);
            if meter.is_full() || self.cancel.load(Ordering::Relaxed) {
                stop.store(true, Ordering::Relaxed);
            }
        };
        let clock = RunClock::start();
        let measured = Measurement::run(config, remote.endpoints(), clock, &mut watch, &stop);
        let measured = measured.map_err(|error| error.to_string())?;
        let load = load_bytes(&measured).max(measured.loads.iter().map(|log| log.bytes_sent).sum());
        let [received, sent] = own_bytes(step, load, measured.samples.len() as u64);
        meter.bytes = meter.bytes.max(before.saturating_add(received).saturating_add(sent));
        if !measured.cancelled {
            return Ok(measured);
        }
        Err(if meter.is_full() { LIMIT_OF_BYTES } else { "the agent was stopped" }.to_owned())
    }

    fn doubt(
        &self,
        measured: &MeasurementResult,
        emulated: Option<(Carried, Carried)>,
    ) -> Option<String> {
        validity(measured, &self.limits)
            .reasons_in_words()
            .into_iter()
            .next()
            .or_else(|| emulated.and_then(|(before, after)| before.doubt(after)))
    }

    fn result_of(&self, step: &AssignedStep, measured: &MeasurementResult) -> StepResult {
        let direction = direction_of(step.kind);
        let goodput = direction.map(|it| goodput(measured, it).unwrap_or(0));
        let phase = if direction.is_some() { Phase::Load } else { Phase::Idle };
        let tier = match step.kind {
            Kind::Latency => 0,
            Kind::Upload => self.tier_bit_per_s.0,
            Kind::Download => self.tier_bit_per_s.1,
        };
        let percent = |goodput: u64| goodput as f64 * 100.0 / tier as f64;
        StepResult {
            step: step.name.clone(),
            kind: step.kind,
            goodput_bit_per_s: goodput,
            tier_percent: goodput.filter(|_| tier > 0).map(percent),
            grade: None,
            series: series_of(&step.classes, phase, &measured.samples),
            inside: direction.and_then(|_| inside_of(measured)),
        }
    }

    /// Whether the interfaces carried more than the step itself and the allowed traffic.
    fn is_foreign(
        &self,
        step: &AssignedStep,
        measured: &MeasurementResult,
        (before, after): ([u64; 2], [u64; 2]),
    ) -> bool {
        let span_ms = step.warm_up_ms.saturating_add(step.duration_ms);
        let slots = (span_ms / step.interval_ms.max(1)).saturating_add(1);
        let probes = slots.saturating_mul(step.classes.len() as u64);
        let own = own_bytes(step, load_bytes(measured), probes);
        let allowed = self.busy_bit_per_s.saturating_mul(span_ms) / 8_000;
        (0..2).any(|way| after[way].saturating_sub(before[way]) > own[way].saturating_add(allowed))
    }
}

struct MeasuredStep {
    /// The result without its grade.
    result: StepResult,
    finding: Finding,
    /// Outcome and reason if the step is not valid.
    fault: Option<(Outcome, String)>,
}

/// Grades the steps of a run as `underload measure` does: a step under load has no idle probes, so
/// those of the run's other steps count.
fn grade(steps: &mut [StepResult], mut findings: Vec<Finding>) {
    let is_idle = |it: &&LatencySummary| it.window.phase == Phase::Idle;
    let valid = findings.iter().filter(|finding| finding.valid);
    let latencies = valid.flat_map(|finding| &finding.latencies);
    let idle: Vec<LatencySummary> = latencies.filter(is_idle).cloned().collect();
    for (step, finding) in steps.iter_mut().zip(&mut findings) {
        finding.latencies.extend_from_slice(&idle);
        step.grade = LoadedStep::from(&*finding).judge().grade;
    }
}

/// Counts the traffic of a run against the home's limit.
struct Meter {
    bytes: u64,
    bytes_max: u64,
}

impl Meter {
    fn is_full(&self) -> bool {
        self.bytes >= self.bytes_max
    }
}

/// Payload that the load delivered, bytes.
fn load_bytes(measured: &MeasurementResult) -> u64 {
    measured.loads.iter().filter_map(|log| log.delivered.last()).map(|it| it.bytes).sum()
}

/// Estimated bytes that a step receives and sends: load, acknowledgements and probes.
fn own_bytes(step: &AssignedStep, load: u64, probes: u64) -> [u64; 2] {
    let probes = probes.saturating_mul(u64::from(step.probe_bytes.max(100)));
    let percent = |percent: u64| load.saturating_mul(percent) / 100;
    let [with, against] = [LOAD_PERCENT, ACK_PERCENT].map(|of| percent(of).saturating_add(probes));
    match step.kind {
        Kind::Latency => [probes; 2],
        Kind::Upload => [against, with],
        Kind::Download => [with, against],
    }
}

/// Returns the addresses of a server that an agent with this reach may measure to. The name is
/// resolved once, so that exactly the checked addresses are connected to.
fn usable(address: &str, reach: Reach) -> Vec<SocketAddr> {
    let found = address.to_socket_addrs().map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    let of_family = |is_v4: bool| {
        let judged = found.iter().filter(move |it| it.ip().is_ipv4() == is_v4);
        judged.filter(|it| reach.includes(it.ip())).take(ADDRESSES_MAX).copied()
    };
    of_family(false).chain(of_family(true)).collect()
}

/// Replaces IP addresses: an orchestrator must not learn which addresses a home's names have.
fn without_addresses(reason: &str) -> String {
    let is_edge = |letter: char| !letter.is_ascii_alphanumeric();
    let is_address = |word: &str| {
        let bare = word.trim_matches(|letter| "()<>\"'`,;.!?".contains(letter));
        let inner = word.trim_matches(is_edge);
        let is_ip = |text: &str| text.parse::<IpAddr>().is_ok();
        [bare, inner, bare.trim_end_matches(':')].iter().any(|text| {
            is_ip(text)
                || text.parse::<SocketAddr>().is_ok()
                || is_ip(text.split(['%', '/']).next().unwrap_or_default())
        })
    };
    let words = reason.split(' ').map(|word| if is_address(word) { "ADDRESS" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

fn direction_of(kind: Kind) -> Option<Direction> {
    match kind {
        Kind::Latency => None,
        Kind::Upload => Some(Direction::Up),
        Kind::Download => Some(Direction::Down),
    }
}

/// Converts a step: one TCP flow with CUBIC loads the line, from a fixed time before the measured
/// part on, and probes are sent on a fixed schedule.
fn config_of(step: &AssignedStep, token: Token) -> MeasurementConfig {
    let duration = Duration::from_millis(step.duration_ms);
    let direction = direction_of(step.kind);
    let (idle, load) = match direction {
        None => (duration, Duration::ZERO),
        Some(_) => (Duration::ZERO, duration),
    };
    let payload = step.probe_bytes.saturating_sub(PROBE_HEADER_BYTES);
    let payload = payload.clamp(Prober::PAYLOAD_MIN.into(), Prober::PAYLOAD_MAX.into());
    let class = |dscp: &u8| ProbeClass {
        name: format!("dscp{dscp}"),
        marking: Marking { dscp: *dscp, ..Marking::default() },
    };
    MeasurementConfig {
        idle,
        ramp: Ramp::Fixed(Duration::from_millis(step.warm_up_ms)),
        load,
        drain: Duration::ZERO,
        loss_timeout: LOSS_TIMEOUT,
        probe: ProberConfig {
            classes: step.classes.iter().map(class).collect(),
            interval: Duration::from_millis(step.interval_ms),
            payload_bytes: payload as u16,
            ..ProberConfig::default()
        },
        request_response: None,
        loads: direction.map(flow).into_iter().collect(),
        load_bytes_max: None,
        token,
        trial: 0,
    }
}

fn flow(direction: Direction) -> LoadFlow {
    LoadFlow {
        name: "load".to_owned(),
        direction,
        transport: Transport::Tcp { congestion_control: "cubic".to_owned() },
        marking: Marking::default(),
        start_after: Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use underload_probe::control::SessionNews;
    use underload_probe::measure::RampEnd;
    use underload_record::judgement::Grade;
    use underload_record::schema::{FlowRecord, PhaseWindow, Sample, Timeliness};

    use super::*;

    /// A measurement with a probe every 5 ms: a second without load, then three with a load that adds
    /// 80 ms and loses one of 200 probes.
    fn measured() -> MeasurementResult {
        const MS: u64 = 1_000_000;
        let sample = |number: u64| {
            let (is_idle, sent_ns) = (number < 200, number * 5 * MS);
            let (phase, rtt_ms) = if is_idle { (Phase::Idle, 12) } else { (Phase::Load, 92) };
            let rtt_ns = (is_idle || !number.is_multiple_of(200)).then_some(rtt_ms * MS);
            Sample { phase, scheduled_ns: sent_ns, sent_ns, rtt_ns, ..Sample::default() }
        };
        let window = |phase, start_ns, end_ns| PhaseWindow { phase, start_ns, end_ns };
        MeasurementResult {
            samples: (0..800).map(sample).collect(),
            phases: vec![
                window(Phase::Idle, 0, 1_000 * MS),
                window(Phase::Load, 1_000 * MS, 4_000 * MS),
            ],
            flows: vec![FlowRecord { name: "dscp0".to_owned(), ..FlowRecord::default() }],
            loads: Vec::new(),
            series: Vec::new(),
            timeliness: Timeliness::default(),
            ramp_end: RampEnd::Fixed,
            incomplete: Vec::new(),
            cancelled: false,
            load_spent: false,
            ce_alarms: Vec::new(),
            probe_counts: Vec::new(),
            inside: Vec::new(),
            clock_offset: None,
        }
    }

    fn finding(measured: MeasurementResult) -> Finding {
        let (name, label, config) = (String::new(), String::new(), MeasurementConfig::default());
        let preset = PresetStep { name, label, config };
        judged_step(&preset, measured, None, &SessionNews::default()).finding
    }

    #[test]
    fn a_run_of_a_fleet_has_the_grade_that_measure_gives_to_the_same_probes() {
        let whole = LoadedStep::from(&finding(measured())).judge().grade;
        assert_eq!(whole, Some(Grade::C));
        // A fleet's steps have one phase each.
        let part = |phase: Phase| {
            let mut all = measured();
            all.samples.retain(|it| it.phase == phase);
            all.phases.retain(|it| it.phase == phase);
            finding(all)
        };
        let steps = || {
            let of = |kind| StepResult {
                step: String::new(),
                kind,
                goodput_bit_per_s: None,
                tier_percent: None,
                grade: None,
                series: Vec::new(),
                inside: None,
            };
            [Kind::Upload, Kind::Latency].map(of)
        };
        let grades = |idle: Finding, load: Finding| {
            let mut steps = steps();
            grade(&mut steps, vec![load, idle]);
            steps.map(|step| step.grade)
        };
        assert_eq!(grades(part(Phase::Idle), part(Phase::Load)), [whole, None]);
        let void = |phase| Finding { valid: false, ..part(phase) };
        assert_eq!(grades(void(Phase::Idle), part(Phase::Load)), [None; 2], "no idle median");
        assert_eq!(grades(part(Phase::Idle), void(Phase::Load)), [None; 2]);
    }

    #[test]
    fn a_reason_names_no_address() {
        for (reason, told) in [
            ("no answer from victim:80 at 192.168.1.1:80", "no answer from victim:80 at ADDRESS"),
            ("east: [fd00::1]:443: refused", "east: ADDRESS refused"),
            ("at fe80::1%eth0, (10.0.0.1) and \"::1\".", "at ADDRESS ADDRESS and ADDRESS"),
            ("2 of 3 probes; 12:30 and 1.5 s late", "2 of 3 probes; 12:30 and 1.5 s late"),
        ] {
            assert_eq!(without_addresses(reason), told, "{reason}");
        }
    }

    #[test]
    fn addresses_are_judged_after_the_name_was_looked_up() {
        let found = |address, reach| usable(address, reach).len();
        assert_eq!(found("127.0.0.1:80", Reach::Global), 0);
        assert_eq!(found("[::1]:80", Reach::Private), 0);
        assert_eq!(found("[::ffff:127.0.0.1]:80", Reach::Global), 0);
        assert_eq!(found("127.0.0.1:80", Reach::Loopback), 1);
        assert_eq!(found("localhost:80", Reach::Global), 0, "whatever its name is");
        assert_eq!(found("1.1.1.1:80", Reach::Loopback), 1);
        assert_eq!(found("no host", Reach::Global), 0);
    }

    #[test]
    fn a_run_with_more_than_one_percent_late_packets_is_doubtful() {
        let before = Carried { packets: 1_000, late: 500, lost: 7 };
        let after = |packets, late, lost| {
            let so_many = |of: u64, more: u64| of + more;
            let packets = so_many(before.packets, packets);
            Carried { packets, late: so_many(before.late, late), lost: so_many(before.lost, lost) }
        };
        assert_eq!(before.doubt(after(200, 2, 0)), None);
        assert_eq!(before.doubt(before), None, "nothing was carried");
        let late = before.doubt(after(200, 3, 0)).expect("3 of 200");
        assert!(late.contains("3 of 200"), "{late}");
        assert!(before.doubt(after(200, 0, 1)).is_some_and(|it| it.contains("lost")));
    }
}
