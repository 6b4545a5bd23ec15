//! The alarm for too many congestion marks in a simulated trial: which flows are named.

mod support;

use support::flow;
use underload_aqm::packet::Ecn;
use underload_aqm::time::Span;
use underload_record::schema::{CeAlarm, CeRule, Direction};
use underload_sim::congestion::Algorithm;
use underload_sim::flow::{FlowConfig, FlowKind, ProbeConfig};
use underload_sim::trial::{Phases, SimConfig, run};

/// A probe every 20 ms that L4S queues may mark.
fn probe() -> FlowConfig {
    let kind = ProbeConfig { ecn: Ecn::Ect1, ..ProbeConfig::default() };
    FlowConfig::new("l4s probe", FlowKind::Probe(kind))
}

/// Returns the alarms of these flows in a trial with `idle` and `load` seconds over an up link.
fn alarms(queue: &str, link: &str, flows: Vec<FlowConfig>, idle: u64, load: u64) -> Vec<CeAlarm> {
    let phases =
        Phases { idle: Span::from_secs(idle), load: Span::from_secs(load), ..Phases::default() };
    let config = support::config(queue, link, flows, 0);
    run(SimConfig { phases, ..config }).unwrap().record.ce_alarms
}

const DEEP: &str = "fifo:limit=10000p";

#[test]
fn marks_on_an_idle_path_raise_an_alarm_with_probe_and_direction() {
    let link = "20mbit:delay=10ms,mark=5%";
    let found = alarms(DEEP, link, vec![probe()], 5, 1);
    let [alarm] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((alarm.flow.as_str(), alarm.direction), ("l4s probe", Direction::Up));
    assert_eq!((alarm.rule, alarm.ecn_packets), (CeRule::Idle, 250));
    assert!((4..=30).contains(&alarm.ce_packets), "{alarm}");
    assert_eq!(alarms(DEEP, "20mbit:delay=10ms", vec![probe()], 5, 1), []);
    let blind = FlowConfig::new("blind", FlowKind::Probe(ProbeConfig::default()));
    assert_eq!(alarms(DEEP, link, vec![blind], 5, 1), [], "it is never marked");
}

#[test]
fn a_flow_starved_by_marks_raises_an_alarm_after_half_a_minute() {
    let link = "100mbit:delay=10ms,mark=70%";
    let flows = || vec![flow("prague", Algorithm::Prague), flow("cubic", Algorithm::Cubic)];
    let short = "fifo:limit=100p";
    let found = alarms(short, link, flows(), 0, 35);
    let [alarm] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((alarm.flow.as_str(), alarm.direction), ("prague", Direction::Up));
    assert_eq!((alarm.rule, alarm.end_ns), (CeRule::Loaded, 30_000_000_000));
    assert_eq!(alarm.fair_share_bit_per_s, Some(50_000_000));
    assert!((65.0..=75.0).contains(&alarm.ce_percent()), "{alarm}");
    assert!(alarm.rate_bit_per_s.unwrap() < 2_000_000, "two packets per round trip: {alarm}");
    assert_eq!(alarms(short, link, flows(), 0, 29), [], "two whole windows");
}

#[test]
fn ordinary_congestion_raises_no_alarm() {
    for queue in ["dualpi2", "docsis-lld", "pie:profile=rfc,ecn=on", "fq-codel"] {
        let flows = [flow("prague", Algorithm::Prague), flow("cubic", Algorithm::Cubic), probe()];
        let found = alarms(queue, "20mbit:delay=10ms", flows.into(), 10, 31);
        assert_eq!(found, [], "{queue}");
    }
}
