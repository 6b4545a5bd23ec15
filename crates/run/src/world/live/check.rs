//! Checks whether the live world and this machine can run a scenario, before anything starts.

use underload_probe::load::available_congestion_controls;
use underload_scenario::{FlowKind, Scenario, Variant};

use super::browser;
use crate::error::RunError;

/// Rejects a scenario that the live world cannot run on any machine.
pub(in crate::world) fn model(scenario: &Scenario) -> Result<(), RunError> {
    let Some(problem) = scenario.live_problem() else { return Ok(()) };
    let other = if scenario.sim_problem().is_none() { "; --world sim runs it" } else { "" };
    Err(RunError::Refused(format!("{}: {problem}{other}", scenario.name)))
}

/// Rejects a scenario that this machine cannot run.
pub(in crate::world) fn machine(scenario: &Scenario) -> Result<(), RunError> {
    let available = available_congestion_controls();
    for variant in &scenario.variants {
        check_variant(variant, &available).map_err(|problem| {
            RunError::Refused(format!("{}: variant {}: {problem}", scenario.name, variant.name))
        })?;
    }
    Ok(())
}

/// Rejects a scenario that needs real time.
pub(in crate::world) fn virtual_time(scenario: &Scenario) -> Result<(), RunError> {
    let mut flows = scenario.variants.iter().flat_map(|variant| &variant.flows);
    let browser = flows.find(|flow| matches!(flow.kind, FlowKind::Browser(_)));
    browser.map_or(Ok(()), |flow| {
        Err(RunError::Refused(format!(
            "{}: flow.{}.kind: a browser runs in real time only; expected --world live",
            scenario.name, flow.name
        )))
    })
}

fn check_variant(variant: &Variant, available: &str) -> Result<(), String> {
    if let Some(problem) = browser::problem(variant) {
        return Err(problem);
    }
    for flow in &variant.flows {
        let Some(name) = flow.kind.properties().congestion_control() else { continue };
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
