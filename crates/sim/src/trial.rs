//! A trial: its phases, its flows and its record.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

use underload_aqm::packet::Ecn;
use underload_aqm::rate::Rate;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_record::ce_excess;
use underload_record::schema::{
    BottleneckSummary, Direction, FlowRecord, LatencyMeasure, LatencySummary, Marking, Phase,
    PhaseWindow, Sample, Series, TrialRecord,
};

use crate::ce_watch::CeWatch;
use crate::flow::{Agent, FlowConfig, FlowKind, Lifetime, ProbeConfig, ProbeSchedule};
use crate::flow_curves::FlowCurves;
use crate::inside::InsideWatch;
use crate::net::{HopConfig, SharedWatcher};
use crate::shapers::Shapers;
use crate::simulation::Simulation;
use crate::sprout;
use crate::tcp::{Tcp, TcpStats};

#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Links from the client to the server, in order; if empty, only the flows' extra delays.
    pub up: Vec<HopConfig>,
    /// Links from the server to the client, in order.
    pub down: Vec<HopConfig>,
    pub flows: Vec<FlowConfig>,
    pub phases: Phases,
    /// Seed of every random number in the trial.
    pub seed: u64,
    /// Interval between the points of the recorded series; `None`: no series.
    pub sample_interval: Option<Span>,
    pub label: TrialLabel,
}

/// The identity of a trial in its run, for its record.
#[derive(Clone, Debug, Default)]
pub struct TrialLabel {
    /// Position in the run.
    pub index: u32,
    pub variant: String,
    /// Number of the repeat of the variant, from 0.
    pub repeat: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Phases {
    pub idle: Span,
    /// The load starts and settles.
    pub ramp: Span,
    /// The load is steady.
    pub load: Span,
    /// The load has stopped.
    pub drain: Span,
}

impl Phases {
    /// Returns the windows of the phases longer than 0.
    pub fn windows(&self) -> Vec<PhaseWindow> {
        let mut start = 0;
        let lengths = [
            (Phase::Idle, self.idle),
            (Phase::Ramp, self.ramp),
            (Phase::Load, self.load),
            (Phase::Drain, self.drain),
        ];
        let mut windows = Vec::new();
        for (phase, length) in lengths {
            let end = start + length.as_nanos();
            if end > start {
                windows.push(PhaseWindow { phase, start_ns: start, end_ns: end });
            }
            start = end;
        }
        windows
    }

    fn load_start(&self) -> Time {
        Time::ZERO + self.idle
    }

    fn load_end(&self) -> Time {
        self.load_start() + self.ramp + self.load
    }

    fn end(&self) -> Time {
        self.load_end() + self.drain
    }
}

/// Everything that a trial recorded.
#[derive(Clone, Debug, Default)]
pub struct TrialOutcome {
    pub record: TrialRecord,
    pub samples: Vec<Sample>,
    pub series: Vec<Series>,
    pub cost: Cost,
    /// State of each TCP flow at the end; `None` for other flows.
    pub tcp: Vec<Option<TcpStats>>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub events: u64,
    /// Packets delivered by the links.
    pub packets: u64,
}

/// Why a trial cannot be executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    #[error("the trial has no flow: give at least one")]
    NoFlow,
    #[error("the trial has {count} flows: at most {MAX_FLOWS} are supported")]
    TooManyFlows { count: usize },
    #[error("two flows are named '{name}': each needs a unique name")]
    DuplicateName { name: String },
    #[error(
        "the trial lasts {seconds} s: its phases must add up to more than 0 and at most 3600 s"
    )]
    Length { seconds: u64 },
    #[error("the trial was stopped before its end")]
    Stopped,
    #[error("flow '{flow}': {what}")]
    Flow {
        flow: String,
        /// A sentence with the accepted values.
        what: &'static str,
    },
}

impl SimConfig {
    /// Checks what [`run`] needs.
    pub fn check(&self) -> Result<(), SimError> {
        let count = self.flows.len();
        if count == 0 {
            return Err(SimError::NoFlow);
        }
        if count > MAX_FLOWS {
            return Err(SimError::TooManyFlows { count });
        }
        let mut names: Vec<_> = self.flows.iter().map(|flow| flow.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(SimError::DuplicateName { name: pair[0].to_owned() });
        }
        let end = self.phases.end();
        if end == Time::ZERO || end > MAX_LENGTH {
            return Err(SimError::Length { seconds: end.as_nanos() / 1_000_000_000 });
        }
        self.flows.iter().try_for_each(check_flow)
    }
}

/// Executes a trial in virtual time, in the calling thread. The outcome depends on `config` alone.
pub fn run(config: SimConfig) -> Result<TrialOutcome, SimError> {
    run_attended(config, &Attendance::default())
}

/// Called with the TCP state of each flow (`None` for other flows).
pub type StateObserver<'a> = dyn FnMut(Time, &[Option<TcpStats>]) + 'a;

/// Observers of a trial, which do not change its results.
#[derive(Clone, Default)]
pub struct Attendance<'a> {
    /// Ends the trial within a tenth of a second of virtual time once it is true.
    pub stop: Option<&'a AtomicBool>,
    /// Called for every event of a packet.
    pub watcher: Option<SharedWatcher>,
    /// Called whenever the series get a point.
    pub states: Option<&'a RefCell<StateObserver<'a>>>,
}

/// Executes a trial as [`run`] does, with observers and a stop flag.
pub fn run_attended(
    config: SimConfig,
    attendance: &Attendance<'_>,
) -> Result<TrialOutcome, SimError> {
    config.check()?;
    let SimConfig { up, down, flows, phases, seed, sample_interval, label } = config;
    let lifetimes: Vec<_> = flows.iter().map(|flow| lifetime(flow, &phases)).collect();
    let rng = Rng::new(seed);
    let mut simulation = Simulation::new(up, down, &flows, &lifetimes, &rng);
    if let Some(watcher) = &attendance.watcher {
        simulation.network.watch(watcher);
    }
    let mut shapers = Shapers::new(&simulation.network.hops, &flows);
    shapers.decide(&mut simulation, Time::ZERO);
    let windows = phases.windows();
    let curves = sample_interval.map(|_| FlowCurves::new(&flows, &simulation, label.index));
    let mut trial = Trial {
        now: Time::ZERO,
        sample_interval: sample_interval.map(|span| span.max(MIN_SAMPLE_INTERVAL)),
        flow_curves: curves.unwrap_or_default(),
        inside: InsideWatch::new(&flows, &windows),
        shapers,
        ce_watch: CeWatch::new(&flows, &lifetimes, &windows, &simulation.network.hops),
        bottlenecks: Vec::new(),
        goodput: vec![None; flows.len()],
        simulation,
    };
    for window in &windows {
        trial.run_phase(window, &lifetimes, attendance)?;
        trial.end_window(window, &flows);
    }
    // Packets in flight at the end arrive, so that a probe without an answer was lost.
    trial.simulation.run_until(trial.now + GRACE);
    Ok(trial.finish(&flows, &windows, label, seed))
}

fn check_flow(flow: &FlowConfig) -> Result<(), SimError> {
    let what = match &flow.kind {
        FlowKind::Tcp(tcp) if tcp.segment_bytes == 0 => "a segment has at least 1 byte",
        FlowKind::Tcp(tcp) if tcp.initial_window == 0 => "the initial window is at least 1 segment",
        FlowKind::Tcp(tcp) if tcp.receive_window_bytes < u32::from(tcp.segment_bytes) => {
            "the receive window holds at least one segment"
        }
        FlowKind::Tcp(tcp) if tcp.max_rate.is_some_and(Rate::is_zero) => "max_rate is above 0",
        FlowKind::Udp(udp) if udp.rate.is_zero() => "the rate is above 0",
        FlowKind::Probe(ProbeConfig { schedule: ProbeSchedule::Open { interval }, .. })
            if *interval < MIN_PROBE_INTERVAL =>
        {
            "the probe interval is at least 10 us"
        }
        _ => return Ok(()),
    };
    Err(SimError::Flow { flow: flow.name.clone(), what })
}

pub(crate) fn lifetime(flow: &FlowConfig, phases: &Phases) -> Lifetime {
    let (start, stop) = match flow.kind {
        FlowKind::Probe(_) => (Time::ZERO, phases.end()),
        FlowKind::Application(_) => (phases.load_start() + phases.ramp, phases.load_end()),
        _ => (phases.load_start(), phases.load_end()),
    };
    let stop = flow.stop.unwrap_or(stop).min(phases.end());
    Lifetime { start: flow.start.unwrap_or(start), stop }
}

struct Trial {
    simulation: Simulation,
    now: Time,
    sample_interval: Option<Span>,
    flow_curves: FlowCurves,
    inside: InsideWatch,
    shapers: Shapers,
    ce_watch: CeWatch,
    bottlenecks: Vec<BottleneckSummary>,
    /// Per flow, payload delivered in the load phase.
    goodput: Vec<Option<u64>>,
}

impl Trial {
    fn run_phase(
        &mut self,
        window: &PhaseWindow,
        lifetimes: &[Lifetime],
        attendance: &Attendance<'_>,
    ) -> Result<(), SimError> {
        let agents = self.simulation.agents();
        let received: Vec<_> = agents.map(|agent| agent.endpoint().received_bytes()).collect();
        self.advance(Time::from_nanos(window.end_ns), lifetimes, attendance)?;
        if window.phase == Phase::Load {
            for ((goodput, agent), before) in
                self.goodput.iter_mut().zip(self.simulation.agents()).zip(received)
            {
                *goodput = Some(rate(agent.endpoint().received_bytes() - before, window));
            }
        }
        Ok(())
    }

    /// Records the counters of every link since the previous window.
    fn end_window(&mut self, window: &PhaseWindow, flows: &[FlowConfig]) {
        let name = |flow: u32| {
            let known = flows.get(flow as usize);
            known.map_or_else(|| format!("flow {flow}"), |flow| flow.name.clone())
        };
        let hops = self.simulation.network.hops.iter_mut();
        self.bottlenecks.extend(hops.map(|hop| hop.end_window(window, &name)));
    }

    /// Runs to `end`; stops flows and samples the series on the way.
    fn advance(
        &mut self,
        end: Time,
        lifetimes: &[Lifetime],
        attendance: &Attendance<'_>,
    ) -> Result<(), SimError> {
        while self.now < end {
            if attendance.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(SimError::Stopped);
            }
            let next_stop = lifetimes
                .iter()
                .map(|lifetime| lifetime.stop)
                .filter(|&stop| stop > self.now)
                .min()
                .unwrap_or(Time::MAX);
            let next_sample = self.sample_interval.map_or(Time::MAX, |interval| {
                let passed = self.now.as_nanos() / interval.as_nanos();
                Time::from_nanos((passed + 1) * interval.as_nanos())
            });
            let next_window = self.ce_watch.next_end();
            let next_reading = self.inside.next(self.now);
            let until = end.min(next_stop).min(next_sample).min(next_window).min(next_reading);
            let until = until.min(self.now + BETWEEN_CHECKS).min(self.shapers.next());
            self.simulation.run_until(until);
            self.now = until;
            self.shapers.decide(&mut self.simulation, until);
            if until == next_stop {
                for (agent, lifetime) in self.simulation.agents_mut().zip(lifetimes) {
                    if lifetime.stop == until {
                        agent.stop();
                    }
                }
            }
            if until == next_window {
                self.ce_watch.end_window(&mut self.simulation.ecn_arrivals);
            }
            if until == next_reading {
                self.inside.read(&self.simulation);
            }
            if until == next_sample {
                self.sample();
                if let Some(observer) = attendance.states {
                    let states: Vec<_> = self.simulation.agents().map(tcp_stats).collect();
                    (observer.borrow_mut())(self.now, &states);
                }
            }
        }
        Ok(())
    }

    fn sample(&mut self) {
        let Some(interval) = self.sample_interval else { return };
        let time_ns = self.now.as_nanos();
        self.flow_curves.sample(&self.simulation, time_ns, interval.as_nanos());
        for hop in &mut self.simulation.network.hops {
            hop.sample(self.now);
        }
    }

    fn finish(
        self,
        flows: &[FlowConfig],
        windows: &[PhaseWindow],
        label: TrialLabel,
        seed: u64,
    ) -> TrialOutcome {
        let hops = &self.simulation.network.hops;
        let of_hops = || hops.iter().flat_map(|hop| hop.series(label.index));
        let series = self.sample_interval.map(|_| of_hops().collect()).unwrap_or_default();
        let mut outcome = TrialOutcome {
            record: TrialRecord {
                index: label.index,
                variant: label.variant,
                repeat: label.repeat,
                seed,
                phases: windows.to_vec(),
                bottlenecks: self.bottlenecks,
                ..TrialRecord::default()
            },
            series,
            cost: Cost {
                events: self.simulation.events,
                packets: hops.iter().map(|hop| hop.recorder.tally.total().sent.packets).sum(),
            },
            ..TrialOutcome::default()
        };
        outcome.series.extend(self.flow_curves.into_series());
        outcome.series.extend(self.shapers.into_series(hops, label.index));
        let agents = self.simulation.into_agents().zip(self.goodput);
        for (position, (flow, (mut agent, goodput))) in flows.iter().zip(agents).enumerate() {
            let stats = tcp_stats(&agent);
            let mut record = flow_record(flow, goodput, stats);
            record.metrics = agent.endpoint().metrics();
            outcome.record.flows.push(record);
            outcome.tcp.push(stats);
            let samples = agent.endpoint_mut().take_samples();
            let samples = label_samples(samples, windows, label.index, position);
            outcome.record.latencies.extend(latencies(&flow.name, &samples, windows));
            outcome.samples.extend(samples);
        }
        let record = &mut outcome.record;
        record.inside = self.inside.conclude(|position| {
            let stats = outcome.tcp.get(position)?.as_ref()?;
            Some(stats.smallest_rtt_ns).filter(|ns| *ns > 0)
        });
        record.ce_alarms = ce_excess::of_probes(&outcome.samples, &record.flows, windows);
        record.ce_alarms.extend(self.ce_watch.alarms(flows));
        outcome
    }
}

fn tcp_stats(agent: &Agent) -> Option<TcpStats> {
    agent.tcp().map(Tcp::stats)
}

fn rate(bytes: u64, window: &PhaseWindow) -> u64 {
    let bits = u128::from(bytes) * 8_000_000_000;
    (bits / u128::from(window.length_ns().max(1))) as u64
}

fn flow_record(flow: &FlowConfig, goodput: Option<u64>, stats: Option<TcpStats>) -> FlowRecord {
    let (kind, congestion_control) = match &flow.kind {
        FlowKind::Tcp(tcp) => {
            let own = tcp.own.as_ref().map(|own| own.name.clone());
            ("tcp", Some(own.unwrap_or_else(|| tcp.algorithm.name().to_owned())))
        }
        FlowKind::Sprout => ("sprout", Some(sprout::NAME.to_owned())),
        FlowKind::Udp(_) => ("udp", None),
        FlowKind::Probe(_) => ("probe", None),
        FlowKind::Application(application) => {
            (application.name(), application.congestion_control().map(str::to_owned))
        }
    };
    let is_bulk = matches!(flow.kind, FlowKind::Tcp(_) | FlowKind::Sprout | FlowKind::Udp(_));
    let goodput = goodput.filter(|_| is_bulk);
    let towards = |direction| goodput.filter(|_| flow.direction == direction);
    let ecn = match &flow.kind {
        FlowKind::Application(application) => application.ecn(),
        _ => Ecn::NotEct,
    };
    FlowRecord {
        name: flow.name.clone(),
        kind: kind.to_owned(),
        class: Marking { dscp: flow.dscp.value(), ecn }.class(),
        direction: flow.recorded_direction(),
        congestion_control,
        goodput_up_bit_per_s: towards(Direction::Up),
        goodput_down_bit_per_s: towards(Direction::Down),
        retransmits: stats.map(|stats| stats.retransmits),
        least_bit_per_s: match &flow.kind {
            FlowKind::Application(application) => Some(application.least_bit_per_s()),
            _ => None,
        },
        metrics: Vec::new(),
    }
}

fn label_samples(
    mut samples: Vec<Sample>,
    windows: &[PhaseWindow],
    trial: u32,
    flow: usize,
) -> Vec<Sample> {
    for sample in &mut samples {
        sample.trial = trial;
        sample.flow = flow as u16;
        let window = windows.iter().find(|window| window.contains(sample.scheduled_ns));
        sample.phase = window.or(windows.last()).map_or(Phase::Idle, |window| window.phase);
    }
    samples
}

fn latencies(
    probe: &str,
    samples: &[Sample],
    windows: &[PhaseWindow],
) -> impl Iterator<Item = LatencySummary> {
    let of_window = |window: &PhaseWindow| {
        LatencyMeasure::ALL
            .map(|measure| underload_record::summarise(samples, probe, *window, measure))
    };
    windows.iter().flat_map(of_window).filter(|summary| summary.sent > 0)
}

/// Flows per trial: a sample numbers its flow in 16 bits.
const MAX_FLOWS: usize = 1 << 16;
const MAX_LENGTH: Time = Time::from_secs(3_600);
/// Virtual time between two checks of the stop flag.
const BETWEEN_CHECKS: Span = Span::from_millis(100);
/// Time after the last phase for answers to arrive, which is enough for an overloaded slow line.
/// Without packets on their way it takes no time.
const GRACE: Span = Span::from_secs(600);
const MIN_SAMPLE_INTERVAL: Span = Span::from_micros(100);
const MIN_PROBE_INTERVAL: Span = Span::from_micros(10);
