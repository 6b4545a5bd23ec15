//! Configures the lab, the gateway and the measurement of a trial.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use underload_aqm::time::Span;
use underload_emu::gateway::{GatewayConfig, LaneConfig};
use underload_emu::machine::LabConfig;
use underload_probe::endpoint::{ProbeClass, ProberConfig};
use underload_probe::load::{LoadFlow, Transport};
use underload_probe::measure::{MeasurementConfig, Ramp, RequestResponse};
use underload_record::schema::{self, Marking};
use underload_scenario::flows;
use underload_scenario::{
    self as scenario, Flow, FlowKind, Lane, Path, Phases, ProbeFlow, TcpFlow, Variant,
};

use crate::trial::Trial;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::world) enum Clockwork {
    /// Threads wake up late, and spin before a deadline.
    Real,
    /// Threads wake up in time; a thread that spins would wait for a clock that does not advance.
    Virtual,
}

/// Whether a trial has the queues of this program or those of Linux.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::world) enum Queues {
    /// This program's queues, in a gateway between the ends.
    Ours,
    /// Linux's queues, in routers between the ends, configured with this `tc`.
    Linux { tc: PathBuf },
}

pub(super) fn lab(variant: &Variant) -> LabConfig {
    let default = LabConfig::default();
    // A route's congestion control replaces a socket's before the SYN, which would then not request
    // ECN for DCTCP. Flows name theirs; commands get the machine's in such a variant.
    let has_dctcp = variant.tcp_flows().any(TcpFlow::always_uses_ecn);
    let congestion_control = default.congestion_control.filter(|_| !has_dctcp);
    LabConfig { ecn: variant.ecn().unwrap_or_default(), congestion_control, ..default }
}

/// Configures the gateway of a trial. `None` for a queue of the caller, which [`super::check`]
/// rejects, as it rejects hops: here a path has one link in each direction.
pub(super) fn gateway(path: &Path, seed: u64, time: Clockwork) -> Option<GatewayConfig> {
    let lane = |lane: &Lane| {
        Some(LaneConfig { link: lane.link.clone(), queue: lane.queue.known()?.clone() })
    };
    let (up, down) = (lane(&path.up[0])?, lane(&path.down[0])?);
    let time_is_virtual = time == Clockwork::Virtual;
    Some(GatewayConfig { seed, time_is_virtual, ..GatewayConfig::new(up, down) })
}

/// Configures probes, load and phases of a trial.
pub(super) fn measurement(trial: &Trial<'_>, time: Clockwork) -> MeasurementConfig {
    let Variant { phases, flows, .. } = trial.variant;
    let mut config = MeasurementConfig {
        trial: trial.index,
        idle: duration(phases.idle),
        ramp: ramp(phases),
        load: duration(phases.load),
        drain: duration(phases.drain),
        loads: flows.iter().flat_map(|flow| loads(flow, trial.seed)).collect(),
        ..MeasurementConfig::default()
    };
    for flow in flows {
        if let FlowKind::Probe(probe) = &flow.kind {
            config.loss_timeout = duration(probe.timeout);
            config.probe = prober(&flow.name, probe);
            if time == Clockwork::Virtual {
                config.probe.timing.spin_ns = 0;
            }
            config.request_response = request_response(&flow.name, probe);
        }
    }
    config
}

/// Returns how long the load server accepts flows: the longest phases with a margin.
pub(super) fn longest(phases: &Phases) -> Duration {
    duration(phases.longest()) + Duration::from_mins(2)
}

pub(super) fn flow_count(variant: &Variant) -> usize {
    variant.flows.iter().map(|flow| loads(flow, 0).len()).sum()
}

pub(in crate::world) fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_nanos())
}

fn ramp(phases: &Phases) -> Ramp {
    match phases.ramp {
        scenario::Ramp::Fixed(length) => Ramp::Fixed(duration(length)),
        scenario::Ramp::Steady { limit } => Ramp::Detected { at_most: duration(limit) },
    }
}

fn prober(name: &str, probe: &ProbeFlow) -> ProberConfig {
    let class = |(name, marking)| ProbeClass { name, marking };
    ProberConfig {
        classes: flows::probes(name, &probe.classes).map(class).collect(),
        interval: duration(probe.interval),
        ..ProberConfig::default()
    }
}

fn request_response(name: &str, probe: &ProbeFlow) -> Option<RequestResponse> {
    let (name, marking) = probe.request_response(name)?;
    let payload_bytes = ProberConfig::default().payload_bytes;
    Some(RequestResponse { name, marking, payload_bytes })
}

/// Returns the load flows of one entry. `seed` is the trial's.
fn loads(flow: &Flow, seed: u64) -> Vec<LoadFlow> {
    let (transport, marking) = match &flow.kind {
        FlowKind::Tcp(tcp) => (
            Transport::Tcp { congestion_control: tcp.congestion_control.clone() },
            Marking { dscp: tcp.dscp, ecn: schema::Ecn::NotEct },
        ),
        FlowKind::Udp(udp) => (
            Transport::Udp {
                rate_bit_per_s: udp.rate.bits_per_second(),
                packet_bytes: udp.packet_bytes.0 as u16,
                burst_packets: 1,
            },
            udp.marking,
        ),
        _ => return Vec::new(),
    };
    let load = |(direction, name): (_, String)| LoadFlow {
        start_after: duration(flow.activity.start_of(&name, seed)),
        name,
        direction,
        transport: transport.clone(),
        marking,
    };
    let (directions, count) = flow.kind.properties().group();
    flows::loads(&flow.name, directions, count).map(load).collect()
}

#[cfg(test)]
mod tests {
    use underload_aqm::time::Time;
    use underload_record::schema::World;
    use underload_scenario::Scenario;
    use underload_scenario::simulation::configure;
    use underload_sim::trial::TrialLabel;

    use super::*;

    #[test]
    fn jittered_flows_start_when_those_of_the_simulator_do() {
        let text = "[path]\nup = \"10mbit\"\nup_queue = \"codel\"\n[phases]\nidle = \"0s\"\n\
                    load = \"7s\"\n[[flow]]\nkind = \"probe\"\ninterval = \"10ms\"\n\
                    [[flow]]\nname = \"bulk\"\nkind = \"tcp\"\ndirection = \"both\"\ncount = 2\n\
                    congestion_control = \"cubic\"\nstart = \"1s\"\nstart_jitter = \"2s\"\n";
        let scenario = Scenario::parse(text, "test").expect("a valid scenario");
        assert_eq!(scenario.worlds(), [World::Sim, World::Live]);
        let [variant] = scenario.variants.as_slice() else { panic!("one variant") };
        for seed in [1, 2] {
            let simulated = configure(variant, seed, TrialLabel::default()).expect("a trial").flows;
            let simulated = simulated.into_iter().filter(|flow| flow.name.starts_with("bulk"));
            let simulated: Vec<_> = simulated.map(|flow| (flow.name, flow.start)).collect();
            let live = variant.flows.iter().flat_map(|flow| loads(flow, seed));
            let start = |load: LoadFlow| {
                let after = Span::from_nanos(load.start_after.as_nanos() as u64);
                (load.name, Some(Time::ZERO + after))
            };
            assert_eq!(live.map(start).collect::<Vec<_>>(), simulated);
            let in_range = |start: &Time| (1..3).contains(&(start.as_nanos() / 1_000_000_000));
            assert!(simulated.iter().all(|(_, start)| start.as_ref().is_some_and(in_range)));
        }
    }
}
