//! Checks whether the live world and this machine can run a scenario, before anything starts.

use underload_probe::load::available_congestion_controls;

use crate::error::RunError;
use crate::scenario::{Arm, Flow, FlowKind, Scenario};

/// Rejects a scenario with features that only the simulator has.
pub(in crate::world) fn model(scenario: &Scenario) -> Result<(), RunError> {
    let arms = &scenario.arms;
    let sim_only = |flow: &Flow| Some(format!("flow.{}.{}", flow.name, flow.sim_only_key()?));
    let problem = if let Some(hop) = arms.iter().find_map(|arm| arm.path.first_hop()) {
        format!(
            "path.hop.{hop}: only the simulator has chains of links (see docs/scenario-format.md); \
             expected path.up and path.down, or --world sim"
        )
    } else if let Some(own) = scenario.own() {
        format!("{own}: only the simulator runs algorithms of Python; expected --world sim")
    } else if let Some(arm) = arms.iter().find(|arm| arm.ecn().is_none()) {
        format!(
            "variant {}: in the live world ECN is a setting of a whole host; expected `ecn` of all \
             tcp flows or of none, apart from dctcp, or --world sim",
            arm.name
        )
    } else if let Some(key) = arms.iter().flat_map(|arm| &arm.flows).find_map(sim_only) {
        format!("{key}: only the simulator supports it; expected --world sim")
    } else {
        return Ok(());
    };
    Err(RunError::Refused(format!("{}: {problem}", scenario.name)))
}

/// Rejects a scenario that this machine cannot run.
pub(in crate::world) fn machine(scenario: &Scenario) -> Result<(), RunError> {
    let available = available_congestion_controls();
    for arm in &scenario.arms {
        check_arm(arm, &available).map_err(|problem| {
            RunError::Refused(format!("{}: variant {}: {problem}", scenario.name, arm.name))
        })?;
    }
    Ok(())
}

fn check_arm(arm: &Arm, available: &str) -> Result<(), String> {
    let is_probe = |flow: &&Flow| matches!(flow.kind, FlowKind::Probe(_));
    let problem = match arm.flows.iter().filter(is_probe).count() {
        1 => None,
        0 => Some("the live world needs a flow with kind = \"probe\""),
        _ => Some("the live world has one probe flow; give it several `classes` instead"),
    };
    if let Some(problem) = problem {
        return Err(problem.to_owned());
    }
    for flow in &arm.flows {
        let checked = check_flow(flow, available);
        checked.map_err(|problem| format!("flow.{}: {problem}", flow.name))?;
    }
    Ok(())
}

fn check_flow(flow: &Flow, available: &str) -> Result<(), String> {
    match &flow.kind {
        FlowKind::Tcp(tcp) => {
            let name = &tcp.congestion_control;
            if !available.split([' ', '(', ')', ':']).any(|known| known == name) {
                return Err(format!(
                    "congestion_control: this kernel does not offer `{name}`: available are \
                     {available}; as root, `modprobe tcp_{name}` may add it"
                ));
            }
            if tcp.activity.stop.is_some() {
                return Err("stop: tcp flows end with the load phase in the live world".to_owned());
            }
        }
        FlowKind::Udp(udp) => {
            if udp.activity.stop.is_some() {
                return Err("stop: udp flows end with the load phase in the live world".to_owned());
            }
            if !(64..=1500).contains(&udp.packet_bytes.0) {
                let bytes = udp.packet_bytes;
                return Err(format!("packet: {bytes}: the live world sends 64B to 1500B"));
            }
        }
        FlowKind::Probe(_) | FlowKind::Exec(_) => {}
        FlowKind::Application(application) => {
            let name = application.config.name();
            return Err(format!("kind: `{name}` runs in the sim world only"));
        }
    }
    Ok(())
}
