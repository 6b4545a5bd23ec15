//! Runs a measurement: starts, watches and ends probes and load in order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use underload_record::schema::{Direction, Phase, PhaseWindow};

use super::full_size;
use super::pressure::{RecentPressure, Waiting};
use super::record::{Recorded, assemble};
use super::{
    Endpoints, FarClock, MeasureError, MeasurementConfig, MeasurementResult, Progress, Ramp,
    RampEnd,
};
use crate::clock::RunClock;
use crate::endpoint::{ProbeLog, Prober, Requester, RequesterConfig};
use crate::load::{FlowHandle, FlowLog, LoadError, SteadyDetector, start_flow};

#[derive(Debug)]
pub struct Measurement;

/// Interval at which the measurement checks its state. A cancelled measurement ends after one
/// interval and the time that its threads need to notice, together below 200 ms.
const STEP: Duration = Duration::from_millis(50);
/// Time from the start to the first probe, in which the threads start.
const LEAD_IN: Duration = Duration::from_millis(30);
/// Time by which the load server's lease exceeds the planned length.
const LEASE_MARGIN: Duration = Duration::from_secs(5);
const PHASE_MAX: Duration = Duration::from_hours(1);

impl Measurement {
    /// Runs one measurement in the calling thread; everything that it starts has ended when it
    /// returns.
    ///
    /// All times of the result count from the start of `clock`. `progress` is called at most ten
    /// times a second. When `cancel` becomes true the measurement ends within 200 ms and returns
    /// what it has recorded, marked as cancelled.
    ///
    /// # Errors
    /// Returns an error if a probe or a flow could not start. A flow that breaks later does not end
    /// the measurement: see [`MeasurementResult::incomplete`].
    pub fn run(
        config: &MeasurementConfig,
        endpoints: &Endpoints,
        clock: RunClock,
        progress: &mut dyn FnMut(Progress),
        cancel: &AtomicBool,
    ) -> Result<MeasurementResult, MeasureError> {
        check(config)?;
        let waiting_before = Waiting::now();
        let start_ns = clock.now_ns() + LEAD_IN.as_nanos() as u64;
        let probes = Probes::start(config, endpoints, clock, start_ns)?;
        let mut run = Run {
            config,
            endpoints,
            clock,
            progress,
            cancel,
            probes,
            flows: Vec::new(),
            phases: Vec::new(),
            pressure: RecentPressure::default(),
            load_spent: false,
        };
        let ramp_end = run.idle_ramp_load(start_ns)?;
        // Read the threads' counters before the threads of load and probes end.
        let waiting = Waiting::now().zip(waiting_before);
        let read_ns = clock.now_ns();
        let cancelled = run.is_cancelled();
        run.stop_load();
        run.drain()?;
        run.wait_for_answers();
        let logs = run.end_load()?;
        let (phases, probes, load_spent) = (run.phases, run.probes, run.load_spent);
        let is_stuck = !cancelled && logs.iter().any(FlowLog::delivered_nothing);
        let full_size_passes = if is_stuck { full_size::passes(endpoints) } else { None };
        let (open_loop, request_response) = probes.finish()?;
        let recorded = Recorded {
            config,
            phases,
            probe: open_loop,
            request_response,
            loads: logs,
            ramp_end,
            cancelled,
            load_spent,
            full_size_passes,
            clock_is_shared: endpoints.far_clock == FarClock::Shared,
            cpu_pressure_percent: waiting.map(|(now, before)| {
                now.worst_percent_since(&before, read_ns.saturating_sub(start_ns))
            }),
        };
        Ok(assemble(recorded))
    }
}

/// Returns the fixed or the longest length of the ramp.
fn ramp_max(ramp: Ramp) -> Duration {
    match ramp {
        Ramp::Fixed(length) | Ramp::Detected { at_most: length } => length,
    }
}

fn check(config: &MeasurementConfig) -> Result<(), MeasureError> {
    let lengths = [
        ("idle phase", config.idle),
        ("ramp", ramp_max(config.ramp)),
        ("load phase", config.load),
        ("drain phase", config.drain),
        ("loss timeout", config.loss_timeout),
    ];
    for (name, length) in lengths {
        if length > PHASE_MAX {
            let (value, accepted) = (format!("{} s", length.as_secs()), "at most 3600 s");
            return Err(MeasureError::Parameter { name, value, accepted });
        }
    }
    if config.idle + config.load == Duration::ZERO {
        let (name, value) = ("idle and load phase", "0 s".to_owned());
        return Err(MeasureError::Parameter { name, value, accepted: "one of them above 0 s" });
    }
    Ok(())
}

struct Probes {
    open_loop: Prober,
    request_response: Option<Requester>,
}

impl Probes {
    fn start(
        config: &MeasurementConfig,
        endpoints: &Endpoints,
        clock: RunClock,
        start_ns: u64,
    ) -> Result<Self, MeasureError> {
        let target = endpoints.reflector;
        let mut prober = config.probe.clone();
        prober.start_ns = start_ns;
        let first_free_session = prober.first_session.wrapping_add(prober.classes.len() as u16);
        let timing = prober.timing;
        let socket = endpoints.udp_socket("probe")?;
        let open_loop = Prober::start(socket, target, prober, clock)?;
        let request_response = match &config.request_response {
            None => None,
            Some(request) => {
                let requester = RequesterConfig {
                    marking: request.marking,
                    payload_bytes: request.payload_bytes,
                    start_ns,
                    timeout: config.loss_timeout,
                    timing,
                    session: first_free_session,
                };
                let socket = endpoints.udp_socket("request-response")?;
                Some(Requester::start(socket, target, requester, clock)?)
            }
        };
        Ok(Self { open_loop, request_response })
    }

    fn end_at(&self, end_ns: u64) {
        self.open_loop.end_at(end_ns);
        if let Some(requester) = &self.request_response {
            requester.end_at(end_ns);
        }
    }

    fn finish(self) -> Result<(ProbeLog, Option<ProbeLog>), MeasureError> {
        let request_response = self.request_response.map(Requester::finish).transpose()?;
        Ok((self.open_loop.finish()?, request_response))
    }
}

struct Flow {
    direction: Direction,
    handle: Option<FlowHandle>,
    log: FlowLog,
}

struct Run<'a> {
    config: &'a MeasurementConfig,
    endpoints: &'a Endpoints,
    clock: RunClock,
    progress: &'a mut dyn FnMut(Progress),
    cancel: &'a AtomicBool,
    probes: Probes,
    flows: Vec<Flow>,
    phases: Vec<PhaseWindow>,
    pressure: RecentPressure,
    /// Whether the load has moved all that it may.
    load_spent: bool,
}

impl Run<'_> {
    fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// Runs the phases up to the end of the load.
    fn idle_ramp_load(&mut self, start_ns: u64) -> Result<RampEnd, MeasureError> {
        let config = self.config;
        let idle_end_ns = start_ns + config.idle.as_nanos() as u64;
        self.stay(Phase::Idle, start_ns, idle_end_ns, |_, _| false)?;
        if self.is_cancelled() {
            return Ok(RampEnd::Fixed);
        }
        self.start_load()?;
        let ramp_end = self.ramp(idle_end_ns)?;
        let load_start_ns = self.phases.last().map_or(idle_end_ns, |window| window.end_ns);
        let load_end_ns = load_start_ns + config.load.as_nanos() as u64;
        let drain_ns = config.drain.as_nanos() as u64;
        self.probes.end_at(load_end_ns + drain_ns);
        if !self.load_spent {
            self.stay(Phase::Load, load_start_ns, load_end_ns, |_, _| false)?;
        }
        if self.load_spent {
            let end_ns = self.phases.last().map_or(load_start_ns, |window| window.end_ns);
            self.probes.end_at(end_ns + drain_ns);
        }
        Ok(ramp_end)
    }

    fn start_load(&mut self) -> Result<(), MeasureError> {
        let config = self.config;
        for flow in &config.loads {
            // All flows end together, so a later start needs no longer lease.
            let lease = ramp_max(config.ramp) + config.load + config.loss_timeout + LEASE_MARGIN;
            let (server, network) = (self.endpoints.load_server, &self.endpoints.network);
            let handle = start_flow(flow, server, network, self.clock, lease, config.token)?;
            let direction = flow.direction;
            self.flows.push(Flow { direction, handle: Some(handle), log: FlowLog::default() });
        }
        Ok(())
    }

    fn ramp(&mut self, start_ns: u64) -> Result<RampEnd, MeasureError> {
        if self.flows.is_empty() {
            return Ok(RampEnd::Fixed);
        }
        let after = |length: Duration| start_ns + length.as_nanos() as u64;
        match self.config.ramp {
            Ramp::Fixed(length) => {
                self.stay(Phase::Ramp, start_ns, after(length), |_, _| false)?;
                Ok(RampEnd::Fixed)
            }
            Ramp::Detected { at_most } => {
                let mut steady = Steady::new(start_ns, &self.flows);
                let watch = |flows: &[Flow], now_ns| steady.watch(flows, now_ns);
                self.stay(Phase::Ramp, start_ns, after(at_most), watch)?;
                Ok(if steady.is_reached() { RampEnd::Steady } else { RampEnd::NotSteady })
            }
        }
    }

    /// Waits in a phase until `end_ns`, until `is_over` returns true, or until cancelled, and
    /// records the phase.
    fn stay(
        &mut self,
        phase: Phase,
        start_ns: u64,
        end_ns: u64,
        mut is_over: impl FnMut(&[Flow], u64) -> bool,
    ) -> Result<(), MeasureError> {
        if self.is_cancelled() || end_ns <= start_ns {
            return Ok(());
        }
        let mut now_ns = self.clock.now_ns();
        let mut steps = 0_u32;
        while now_ns < end_ns && !is_over(&self.flows, now_ns) && !self.is_cancelled() {
            self.collect_broken_flows()?;
            if matches!(phase, Phase::Ramp | Phase::Load) && self.has_spent_load() {
                self.load_spent = true;
                break;
            }
            if steps.is_multiple_of(2) {
                self.report(phase, now_ns.saturating_sub(start_ns), end_ns - start_ns);
            }
            steps += 1;
            self.clock.sleep_until(end_ns.min(now_ns + STEP.as_nanos() as u64));
            now_ns = self.clock.now_ns();
        }
        let end_ns = now_ns.min(end_ns);
        self.phases.push(PhaseWindow { phase, start_ns, end_ns: end_ns.max(start_ns) });
        Ok(())
    }

    fn has_spent_load(&self) -> bool {
        let moved = |flow: &Flow| flow.delivered_bytes().max(flow.sent_bytes());
        let all: u64 = self.flows.iter().map(moved).sum();
        self.config.load_bytes_max.is_some_and(|max| all >= max)
    }

    fn report(&mut self, phase: Phase, in_phase_ns: u64, phase_max_ns: u64) {
        let bytes = |wanted| {
            let flows = self.flows.iter().filter(|flow| flow.direction == wanted);
            flows.map(Flow::delivered_bytes).sum()
        };
        let (probes_sent, probes_answered) = self.probes.open_loop.progress();
        let now = Progress {
            phase,
            in_phase: Duration::from_nanos(in_phase_ns),
            phase_max: Duration::from_nanos(phase_max_ns),
            bytes_up: bytes(Direction::Up),
            bytes_sent: self.flows.iter().map(Flow::sent_bytes).sum(),
            bytes_down: bytes(Direction::Down),
            probes_sent,
            probes_answered,
            recent_medians_ns: self.probes.open_loop.recent_medians_ns(),
            lateness_ns: self.probes.open_loop.recent_lateness_ns(),
            cpu_pressure_percent: self.pressure.percent(self.clock.now_ns()),
        };
        (self.progress)(now);
    }

    /// Returns an error for a flow that never began; stores the log of one that broke.
    fn collect_broken_flows(&mut self) -> Result<(), LoadError> {
        for flow in &mut self.flows {
            if flow.handle.as_ref().is_some_and(FlowHandle::is_over)
                && let Some(handle) = flow.handle.take()
            {
                flow.log = handle.finish()?;
            }
        }
        Ok(())
    }

    /// Waits until every probe is answered or lost.
    fn wait_for_answers(&self) {
        if self.is_cancelled() {
            self.probes.end_at(self.clock.now_ns());
        }
        let until_ns = self.clock.now_ns() + self.config.loss_timeout.as_nanos() as u64;
        while self.clock.now_ns() < until_ns && !self.is_cancelled() {
            let (sent, answered) = self.probes.open_loop.progress();
            if answered >= sent {
                break;
            }
            let next_look_ns = self.clock.now_ns() + STEP.as_nanos() as u64;
            self.clock.sleep_until(until_ns.min(next_look_ns));
        }
    }

    /// Stops the flows without waiting for data in flight.
    fn stop_load(&self) {
        for handle in self.flows.iter().filter_map(|flow| flow.handle.as_ref()) {
            handle.stop();
        }
    }

    fn end_load(&mut self) -> Result<Vec<FlowLog>, MeasureError> {
        let mut logs = Vec::new();
        for flow in self.flows.drain(..) {
            logs.push(match flow.handle {
                Some(handle) => handle.finish()?,
                None => flow.log,
            });
        }
        Ok(logs)
    }

    fn drain(&mut self) -> Result<(), MeasureError> {
        let Some(start_ns) = self.phases.last().map(|window| window.end_ns) else { return Ok(()) };
        let end_ns = start_ns + self.config.drain.as_nanos() as u64;
        self.stay(Phase::Drain, start_ns, end_ns, |_, _| false)
    }
}

impl Flow {
    fn delivered_bytes(&self) -> u64 {
        let logged = || self.log.delivered.last().map_or(0, |record| record.bytes);
        self.handle.as_ref().map_or_else(logged, FlowHandle::delivered_bytes)
    }

    fn sent_bytes(&self) -> u64 {
        self.handle.as_ref().map_or(self.log.bytes_sent, FlowHandle::sent_bytes)
    }

    /// Returns the bytes by `time_ns`; `None` while a running flow has not reported them.
    fn bytes_at(&self, time_ns: u64) -> Option<u64> {
        match &self.handle {
            Some(handle) => handle.bytes_at(time_ns),
            None => Some(self.delivered_bytes()),
        }
    }
}

/// Detects when the load is steady in all loaded directions.
struct Steady {
    /// A detector per loaded direction, and whether it has been steady.
    directions: Vec<(Direction, SteadyDetector, bool)>,
    next_window_end_ns: u64,
}

impl Steady {
    fn new(start_ns: u64, flows: &[Flow]) -> Self {
        let is_loaded = |wanted: &Direction| flows.iter().any(|flow| flow.direction == *wanted);
        let loaded = [Direction::Up, Direction::Down].into_iter().filter(is_loaded);
        let directions = loaded.map(|way| (way, SteadyDetector::new(start_ns), false)).collect();
        Self { directions, next_window_end_ns: start_ns + SteadyDetector::WINDOW_NS }
    }

    /// Returns true once every direction has been steady. Judges each window when all flows have
    /// reported their bytes of the window, at latest half a second after its end.
    fn watch(&mut self, flows: &[Flow], now_ns: u64) -> bool {
        let end_ns = self.next_window_end_ns;
        let is_complete = flows.iter().all(|flow| flow.bytes_at(end_ns).is_some());
        if now_ns < end_ns || !is_complete && now_ns < end_ns + SteadyDetector::WINDOW_NS {
            return self.is_reached();
        }
        self.next_window_end_ns += SteadyDetector::WINDOW_NS;
        for (direction, detector, steady) in &mut self.directions {
            let in_direction = flows.iter().filter(|flow| flow.direction == *direction);
            let bytes_of =
                |flow: &Flow| flow.bytes_at(end_ns).unwrap_or_else(|| flow.delivered_bytes());
            *steady |= detector.observe(end_ns, in_direction.map(bytes_of).sum());
        }
        self.is_reached()
    }

    fn is_reached(&self) -> bool {
        self.directions.iter().all(|(_, _, steady)| *steady)
    }
}
