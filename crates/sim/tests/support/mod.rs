//! The validation of the transports, shared by tests and by the documentation's figures.

#![allow(dead_code, reason = "each of its users needs a part")]

pub mod cellular;
pub mod response;
pub mod shares;

use std::cell::RefCell;

use underload_aqm::time::{Span, Time};
use underload_record::schema::{BottleneckSummary, Direction, Phase};
use underload_sim::congestion::Algorithm;
use underload_sim::flow::{FlowConfig, FlowKind};
use underload_sim::net::HopConfig;
use underload_sim::tcp::{EcnUse, TcpConfig, TcpStats};
use underload_sim::trial::{Attendance, Phases, SimConfig, TrialLabel, TrialOutcome, run_attended};

/// A TCP flow with the ECN mode that its congestion control requires.
pub fn flow(name: &str, algorithm: Algorithm) -> FlowConfig {
    let ecn = algorithm.ecn(EcnUse::Off);
    FlowConfig::new(name, FlowKind::Tcp(TcpConfig { ecn, ..TcpConfig::of(algorithm) }))
}

/// A trial with `seconds` of load and without ramp, through one queue; the reverse path has 1
/// Gbit/s and 20 ms.
pub fn config(queue: &str, link: &str, flows: Vec<FlowConfig>, seconds: u64) -> SimConfig {
    SimConfig {
        up: vec![HopConfig::parse(queue, link).unwrap()],
        down: vec![HopConfig::parse("fifo:limit=10000p", "1gbit:delay=20ms").unwrap()],
        flows,
        phases: Phases { load: Span::from_secs(seconds), ..Phases::default() },
        seed: 1,
        sample_interval: None,
        label: TrialLabel::default(),
    }
}

/// The state of a flow at an instant.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// Since the start of the trial.
    pub seconds: f64,
    /// Congestion window and segments in flight.
    pub window: f64,
    pub in_flight: f64,
    /// Mbit/s of packets with headers; 0 if the flow is not paced.
    pub pacing: f64,
}

/// Executes a trial and returns the states of its first flow every `interval`.
pub fn watch(mut config: SimConfig, interval: Span) -> (TrialOutcome, Vec<State>) {
    config.sample_interval = Some(interval);
    let mut states = Vec::new();
    let outcome = {
        let note = RefCell::new(|now: Time, flows: &[Option<TcpStats>]| {
            let stats = flows[0].unwrap();
            states.push(State {
                seconds: now.as_secs_f64(),
                window: f64::from(stats.window),
                in_flight: f64::from(stats.in_flight),
                pacing: stats.pacing.unwrap_or_default().bytes_per_s() as f64 * 8.0 / 1e6,
            });
        });
        let attendance = Attendance { states: Some(&note), ..Attendance::default() };
        run_attended(config, &attendance)
    };
    (outcome.unwrap(), states)
}

/// The counters of the up link in the load phase.
pub fn up_link(outcome: &TrialOutcome) -> &BottleneckSummary {
    let of_load = |bottleneck: &&BottleneckSummary| {
        bottleneck.direction == Direction::Up && bottleneck.window.phase == Phase::Load
    };
    outcome.record.bottlenecks.iter().find(of_load).unwrap()
}

/// Goodput of the flow at `position`, Mbit/s.
pub fn goodput(outcome: &TrialOutcome, position: usize) -> f64 {
    outcome.record.flows[position].goodput_up_bit_per_s.unwrap() as f64 / 1e6
}

/// BBR alone at 20 Mbit/s and 40 ms with a deep queue: its states every millisecond.
pub fn bbr_alone(seconds: u64) -> Vec<State> {
    let flows = vec![flow("bbr", Algorithm::Bbr)];
    let config = config("fifo:limit=1000000B", "20mbit:delay=20ms", flows, seconds);
    watch(config, Span::from_millis(1)).1
}

/// The pacing gains of `states` as multiples of the median pacing rate, with the length of each
/// phase in ms.
pub fn gain_phases(states: &[State]) -> Vec<(f64, usize)> {
    let mut rates: Vec<f64> = states.iter().map(|state| state.pacing).collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[rates.len() / 2];
    let eighths = |state: &State| (state.pacing / median * 8.0).round() as u32;
    let phases = states.chunk_by(|a, b| eighths(a) == eighths(b));
    phases.map(|phase| (f64::from(eighths(&phase[0])) / 8.0, phase.len())).collect()
}
