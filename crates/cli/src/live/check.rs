//! Whether this machine and this world can run a scenario, said before anything starts.

use anyhow::{Context, bail};
use underload_probe::load::available_congestion_controls;
use underload_run::scenario::{Arm, Flow, FlowKind, Scenario};

/// Refuses what the live world cannot run.
///
/// # Errors
/// Names the arm, the flow and what would be accepted.
pub fn check(scenario: &Scenario) -> anyhow::Result<()> {
    let available = available_congestion_controls();
    for arm in &scenario.arms {
        check_arm(arm, &available)
            .with_context(|| format!("{}: arm {}", scenario.name, arm.name))?;
    }
    Ok(())
}

fn check_arm(arm: &Arm, available: &str) -> anyhow::Result<()> {
    let is_probe = |flow: &&Flow| matches!(flow.kind, FlowKind::Probe(_));
    match arm.flows.iter().filter(is_probe).count() {
        1 => {}
        0 => bail!("the live world needs a flow with kind = \"probe\""),
        _ => bail!("the live world has one probe flow; give it several `classes` instead"),
    }
    let mut ecn = Vec::new();
    for flow in &arm.flows {
        check_flow(flow, available).with_context(|| format!("flow.{}", flow.name))?;
        if let FlowKind::Tcp(tcp) = &flow.kind {
            ecn.push(tcp.ecn);
        }
    }
    if ecn.iter().any(|ecn| *ecn != ecn_of(arm)) {
        bail!("ECN is a setting of a whole host here: all tcp flows use it, or none");
    }
    Ok(())
}

/// Whether the TCP flows of an arm use ECN.
pub fn ecn_of(arm: &Arm) -> bool {
    arm.flows.iter().any(|flow| matches!(&flow.kind, FlowKind::Tcp(tcp) if tcp.ecn))
}

fn check_flow(flow: &Flow, available: &str) -> anyhow::Result<()> {
    match &flow.kind {
        FlowKind::Tcp(tcp) => {
            let name = &tcp.congestion_control;
            if !available.split([' ', '(', ')', ':']).any(|known| known == name) {
                bail!(
                    "congestion_control: this kernel does not offer `{name}`: available are \
                     {available}; as root, `modprobe tcp_{name}` may add it"
                );
            }
            if tcp.activity.stop.is_some() {
                bail!("stop: tcp flows end with the load phase in the live world");
            }
        }
        FlowKind::Udp(udp) => {
            if udp.activity.stop.is_some() {
                bail!("stop: udp flows end with the load phase in the live world");
            }
            if !(64..=1500).contains(&udp.packet_bytes) {
                bail!("packet: {}B: the live world sends 64B to 1500B", udp.packet_bytes);
            }
        }
        FlowKind::Probe(_) | FlowKind::Exec(_) => {}
        FlowKind::Application(application) => {
            bail!("kind: `{}` runs in the sim world only", application.config.name())
        }
    }
    Ok(())
}
