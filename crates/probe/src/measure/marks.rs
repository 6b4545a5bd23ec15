//! Alarms of flows with too many congestion marks, by the rules of [`underload_record::ce_excess`].
//! Probes are counted exactly, by the marking on arrival at each end; TCP flows by the sender's
//! kernel, if their receivers report every mark.
//!
//! Other flows are not judged: a classic receiver repeats a mark until the sender reacts (RFC
//! 3168), so that the kernel's counter overstates the marks of a CUBIC flow, and nothing reports
//! the marks of UDP load. The kernel counts marked segments and bytes; bytes are converted to full
//! segments. The fair share is the mean rate of the direction's flows.

use underload_record::ce_excess::{Arrived, Watch, Window, of_probes};
use underload_record::schema::{CeAlarm, Direction, FlowRecord, PhaseWindow, Sample};

use crate::load::{FlowLog, LoadFlow, Transport};

/// Congestion controls whose receivers report every mark (RFC 8257, RFC 9768).
const ACCURATE: [&str; 2] = ["dctcp", "prague"];
/// Payload of a full segment with time stamps over Ethernet, bytes.
const SEGMENT_BYTES: u64 = 1_448;

/// Returns the alarms of a measurement. `loads` and `logs` are in the order of the configuration.
pub(super) fn alarms(
    samples: &[Sample],
    flows: &[FlowRecord],
    phases: &[PhaseWindow],
    loads: &[LoadFlow],
    logs: &[FlowLog],
) -> Vec<CeAlarm> {
    let mut alarms = of_probes(samples, flows, phases);
    let windows = Window::of_trial(phases);
    let loads: Vec<_> = loads.iter().zip(logs).collect();
    for (flow, log) in loads.iter().filter(|(flow, log)| is_accurate(flow, log)) {
        let mut watch = Watch::default();
        for window in &windows {
            let share = equal_share(&loads, flow.direction, window);
            watch.add(*window, &arrived(log, window, share));
        }
        alarms.extend(watch.alarms(&flow.name, flow.direction));
    }
    alarms
}

pub(super) fn is_accurate(flow: &LoadFlow, log: &FlowLog) -> bool {
    let Transport::Tcp { congestion_control } = &flow.transport else { return false };
    let used = log.congestion_control.as_ref().unwrap_or(congestion_control);
    ACCURATE.contains(&used.as_str())
}

fn equal_share(
    loads: &[(&LoadFlow, &FlowLog)],
    direction: Direction,
    window: &Window,
) -> Option<u64> {
    let same_way = loads.iter().filter(|(flow, _)| flow.direction == direction);
    let rates: Vec<u64> = same_way.filter_map(|(_, log)| goodput(log, window)).collect();
    rates.iter().sum::<u64>().checked_div(rates.len() as u64)
}

fn arrived(log: &FlowLog, window: &Window, share: Option<u64>) -> Arrived {
    let rate = goodput(log, window);
    let seconds = window.end_ns.saturating_sub(window.start_ns) as f64 / 1e9;
    let bytes = rate.unwrap_or_default() as f64 / 8.0 * seconds;
    let ecn_packets = bytes as u64 / SEGMENT_BYTES;
    let marked = marked_by(log, window.end_ns).saturating_sub(marked_by(log, window.start_ns));
    Arrived {
        ecn_packets,
        ce_packets: marked.min(ecn_packets),
        rate_bit_per_s: Some(rate.unwrap_or_default()),
        fair_share_bit_per_s: share,
    }
}

fn goodput(log: &FlowLog, window: &Window) -> Option<u64> {
    log.goodput_bit_per_s(window.start_ns, window.end_ns)
}

/// Returns the segments reported as marked by `time_ns`.
fn marked_by(log: &FlowLog, time_ns: u64) -> u64 {
    let known = log.tcp.partition_point(|sample| sample.time_ns <= time_ns);
    let last = known.checked_sub(1).and_then(|index| log.tcp.get(index));
    last.map_or(0, |sample| u64::from(sample.info.delivered_ce))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use underload_record::schema::{CeRule, Marking, Phase};

    use super::*;
    use crate::load::{Delivered, TcpInfo, TcpSample};

    const SECOND_NS: u64 = 1_000_000_000;

    fn flow(name: &str, control: &str) -> LoadFlow {
        LoadFlow {
            name: name.to_owned(),
            direction: Direction::Up,
            transport: Transport::Tcp { congestion_control: control.to_owned() },
            marking: Marking::default(),
            start_after: Duration::ZERO,
        }
    }

    /// Forty seconds at `segments` per second, of which `marked` are marked.
    fn log(segments: u64, marked: u64) -> FlowLog {
        let seconds = 0..=40;
        let delivered = |second| Delivered {
            time_ns: second * SECOND_NS,
            bytes: second * segments * SEGMENT_BYTES,
            packets: 0,
        };
        let info =
            |second| TcpInfo { delivered_ce: (second * marked) as u32, ..TcpInfo::default() };
        FlowLog {
            delivered: seconds.clone().map(delivered).collect(),
            tcp: seconds
                .map(|second| TcpSample { time_ns: second * SECOND_NS, info: info(second) })
                .collect(),
            ..FlowLog::default()
        }
    }

    fn alarms_of(loads: &[LoadFlow], logs: &[FlowLog]) -> Vec<CeAlarm> {
        let window = PhaseWindow { phase: Phase::Load, start_ns: 0, end_ns: 40 * SECOND_NS };
        alarms(&[], &[], &[window], loads, logs)
    }

    #[test]
    fn a_flow_held_below_its_share_by_marks_is_named() {
        let loads = [flow("slow", "dctcp"), flow("fast", "cubic")];
        let found = alarms_of(&loads, &[log(100, 60), log(900, 0)]);
        let [alarm] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((alarm.flow.as_str(), alarm.rule), ("slow", CeRule::Loaded));
        assert_eq!((alarm.ecn_packets, alarm.ce_packets), (4_000, 2_400));
        assert_eq!(alarm.rate_bit_per_s, Some(100 * SEGMENT_BYTES * 8));
        assert_eq!(alarm.fair_share_bit_per_s, Some(500 * SEGMENT_BYTES * 8));
    }

    #[test]
    fn classic_feedback_and_equal_flows_raise_no_alarm() {
        let marked = [log(100, 60), log(900, 540)];
        assert_eq!(alarms_of(&[flow("slow", "cubic"), flow("fast", "cubic")], &marked), []);
        let equal = [log(100, 60), log(100, 60)];
        assert_eq!(alarms_of(&[flow("one", "dctcp"), flow("other", "dctcp")], &equal), []);
        assert_eq!(alarms_of(&[flow("broken", "dctcp")], &[FlowLog::default()]), []);
    }
}
