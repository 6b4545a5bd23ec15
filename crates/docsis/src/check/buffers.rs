//! Rules about queue sizes and queue management.

use super::{Checker, FlowNode, Rule};
use crate::code::{buffer, flow, top};
use crate::encode::Node;
use crate::modem::{FRAME_BYTES, GUARANTEED_BYTES, MAP_INTERVAL_US, drain_time_us};
use crate::qos::{AqmAlgorithm, BufferControl, Direction, Rates, ServiceFlow};

/// Longest drain time of a full buffer without AQM: the DOCSIS default.
const LONG_DRAIN_US: u64 = 100_000;
/// Scheduling types with unsolicited grants.
const UNSOLICITED: [u8; 2] = [5, 6];

pub(super) fn check(checker: &mut Checker<'_>) {
    let all_aqm_off =
        checker.config.settings_of_type(top::AQM_DISABLE).any(|tlv| tlv.as_number() == Some(1));
    for FlowNode { node, flow } in checker.flows() {
        let buffer = checker.inside(&node, &[flow::BUFFER_CONTROL]);
        if let (Some(buffer), Some(control)) = (buffer, flow.buffer) {
            range(checker, &buffer, control);
            placement(checker, &buffer, &flow, control);
            bloat(checker, &buffer, &flow, control, all_aqm_off);
        }
        if let Some(node) = checker.inside(&node, &[flow::AQM]) {
            aqm(checker, &node, &flow, all_aqm_off);
        }
        rates(checker, &node, flow.rates);
        if flow.direction == Direction::Upstream {
            burst(checker, &node, flow.rates);
        }
    }
}

fn range(checker: &mut Checker<'_>, node: &Node<'_>, control: BufferControl) {
    let minimum = control.minimum.unwrap_or(0);
    let maximum = control.maximum.unwrap_or(u32::MAX);
    if minimum > maximum {
        let message = format!("minimum {minimum} is above maximum {maximum}: every modem refuses");
        checker.report(Rule::D301, node, message, "swap the two, or leave both out");
    } else if let Some(target) = control.target.filter(|t| !(minimum..=maximum).contains(t)) {
        let message = format!("target {target} is outside {minimum} to {maximum} bytes");
        checker.report(Rule::D302, node, message, "move the target into the range");
    }
    if u64::from(minimum) > GUARANTEED_BYTES {
        let place = checker.inside(node, &[buffer::MINIMUM]).unwrap_or_else(|| node.clone());
        let message = format!("a minimum of {minimum} bytes: some modems refuse the flow");
        let fix = "try it on every model, or set TargetBuffer alone";
        checker.report(Rule::D303, &place, message, fix);
    }
    if control.minimum.is_some() || control.maximum.is_some() {
        let message = "a modem that cannot keep the limits refuses the whole file";
        let fix = "set TargetBuffer alone, unless modems shall refuse other sizes";
        checker.report(Rule::D304, node, message, fix);
    }
}

fn placement(
    checker: &mut Checker<'_>,
    node: &Node<'_>,
    flow: &ServiceFlow,
    control: BufferControl,
) {
    if flow.scheduling.is_some_and(|kind| UNSOLICITED.contains(&kind)) {
        let message = "a flow with unsolicited grants hardly queues";
        checker.report(Rule::D305, node, message, "delete BufferControl");
    }
    if flow.direction == Direction::Downstream {
        let message = "downstream the CMTS sizes the queue, and support is optional";
        checker.report(Rule::D308, node, message, "make sure that the CMTS supports it");
    }
    if control == BufferControl::default() {
        let message = "neither minimum, target nor maximum: no effect";
        checker.report(Rule::D309, node, message, "set TargetBuffer, or delete BufferControl");
    }
}

fn bloat(
    checker: &mut Checker<'_>,
    node: &Node<'_>,
    flow: &ServiceFlow,
    control: BufferControl,
    all_aqm_off: bool,
) {
    let up = flow.direction == Direction::Upstream;
    let aqm_off =
        (up && all_aqm_off) || flow.aqm.as_ref().is_some_and(|aqm| aqm.disable == Some(true));
    let size = control.target.or(control.minimum);
    let drain = size
        .zip(flow.rates.drain_bit_per_s())
        .and_then(|(bytes, bit_per_s)| drain_time_us(u64::from(bytes), bit_per_s));
    if let Some(us) = drain.filter(|us| aqm_off && *us > LONG_DRAIN_US) {
        let message = format!("a full buffer adds {} ms of latency, and AQM is off", us / 1000);
        let fix = "turn AQM on, or lower TargetBuffer to 100 ms of the sustained rate";
        checker.report(Rule::D307, node, message, fix);
    }
}

fn aqm(checker: &mut Checker<'_>, node: &Node<'_>, flow: &ServiceFlow, all_aqm_off: bool) {
    let Some(aqm) = flow.aqm.as_ref() else { return };
    let has_ramp =
        aqm.immediate_max_threshold_us.is_some() || aqm.immediate_range_exponent.is_some();
    let has_more = aqm.latency_target_ms.is_some() || aqm.algorithm.is_some() || has_ramp;
    if aqm.disable == Some(true) && has_more {
        let fix = "set SfAqmDisable = 0, or delete the other settings";
        checker.report(Rule::D306, node, "AQM has settings, but is turned off", fix);
    } else if all_aqm_off && flow.direction == Direction::Upstream && has_more {
        let message = "CmUpstreamAqmDisable (76) turns this off";
        checker.report(Rule::D312, node, message, "set CmUpstreamAqmDisable = 0, or delete it");
    }
    if !aqm.histogram_edges.is_sorted_by(|a, b| a < b) {
        let message = format!("histogram edges {:?} do not rise", aqm.histogram_edges);
        checker.report(Rule::D310, node, message, "sort them and delete duplicates");
    }
    if has_ramp && aqm.algorithm.is_some_and(|algorithm| algorithm != AqmAlgorithm::Immediate) {
        let message = "ImmediateAqm settings without the immediate algorithm";
        checker.report(Rule::D311, node, message, "set AqmAlgorithm = 2, or delete them");
    }
}

fn burst(checker: &mut Checker<'_>, flow: &Node<'_>, rates: Rates) {
    let sustained = rates.sustained_bit_per_s.unwrap_or(0);
    let bytes = rates.burst_bytes.map_or(2 * FRAME_BYTES, u64::from);
    let wanted = (u128::from(sustained) * u128::from(MAP_INTERVAL_US)).div_ceil(8_000_000);
    if u128::from(bytes) < wanted {
        let node = checker.inside(flow, &[flow::BURST]).unwrap_or_else(|| flow.clone());
        let most = bytes as f64 * 8.0 / MAP_INTERVAL_US as f64;
        let message = format!(
            "with a MAP every {} ms a burst of {bytes} bytes carries at most {most:.1} of {} Mbit/s",
            MAP_INTERVAL_US / 1_000,
            sustained as f64 / 1e6
        );
        let fix = format!("set the maximum traffic burst to at least {wanted} bytes");
        checker.report(Rule::D314, &node, message, &fix);
    }
}

fn rates(checker: &mut Checker<'_>, flow: &Node<'_>, rates: Rates) {
    let Some((peak, sustained)) = rates.peak_bit_per_s.zip(rates.sustained_bit_per_s) else {
        return;
    };
    if peak > 0 && peak < sustained {
        let node = checker.inside(flow, &[flow::PEAK_RATE]).unwrap_or_else(|| flow.clone());
        let message = format!("peak rate {peak} is below the sustained rate {sustained} bit/s");
        checker.report(Rule::D313, &node, message, "raise the peak rate, or delete it");
    }
}
