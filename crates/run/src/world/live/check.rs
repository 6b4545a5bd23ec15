//! Checks whether the live world and this machine can run a scenario, before anything starts.

use underload_probe::load::available_congestion_controls;

use crate::error::RunError;
use crate::scenario::{Arm, FlowKind, Scenario};

/// Rejects a scenario that the live world can run on no machine.
pub(in crate::world) fn model(scenario: &Scenario) -> Result<(), RunError> {
    let refused = |problem| RunError::Refused(format!("{}: {problem}", scenario.name));
    scenario.live_problem().map_or(Ok(()), |problem| Err(refused(problem)))
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
    for flow in &arm.flows {
        let FlowKind::Tcp(tcp) = &flow.kind else { continue };
        let name = &tcp.congestion_control;
        if !available.split([' ', '(', ')', ':']).any(|known| known == name) {
            return Err(format!(
                "flow.{}: congestion_control: this kernel does not offer `{name}`: available are \
                 {available}; as root, `modprobe tcp_{name}` may add it",
                flow.name
            ));
        }
    }
    Ok(())
}
