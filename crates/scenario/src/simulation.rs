//! From a scenario's variant to a trial in virtual time.
//!
//! The simulator does not detect when the load is steady: waiting costs nothing in virtual time, so
//! a steady ramp lasts as long as its limit, but 10 s at most.

use std::sync::Arc;

use underload_aqm::packet::Dscp;
use underload_aqm::queue::own::{MakeJudge, OwnQueue, OwnSpec};
use underload_aqm::registry::QueueSetup;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_record::schema::{Direction, Marking};
use underload_sim::congestion::{Algorithm, MakeControl, OwnControl, PragueConfig};
use underload_sim::flow::{
    FlowConfig, FlowKind, ProbeConfig, ProbeSchedule, UDP_HEADER_BYTES, UdpConfig,
};
use underload_sim::net::{ExtraDelay, HopConfig};
use underload_sim::sprout;
use underload_sim::tcp::{EcnUse, TcpConfig};
use underload_sim::trial::{Phases, SimConfig, SimError, TrialLabel};

use crate::flows;
use crate::keys::{alternatives, did_you_mean};
use crate::own::Own;
use crate::path::Path;
use crate::{
    ApplicationFlow, Flow, Lane, LaneQueue, ProbeFlow, Ramp, TcpFlow, UdpFlow, Variant,
    simulated_controls,
};

/// The result of configuring a trial.
type Result<T, E = PlanError> = std::result::Result<T, E>;

/// Why a variant cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("flow '{flow}': congestion control '{name}' is not simulated; expected {known}")]
    UnknownAlgorithm { flow: String, name: String, known: String },
    #[error(
        "flow '{flow}': kind '{kind}' is not simulated; expected any but browser, dash and \
             webrtc"
    )]
    UnknownKind { flow: String, kind: &'static str },
    #[error(
        "`{spec}` is not an algorithm of this program; expected a run by the Python code that has \
         it, or a queue or congestion control of the program"
    )]
    NotProvided { spec: String },
    #[error("flow '{flow}': host {host} is no user of `{link}`; only `udp` is sent to other hosts")]
    NoUser { flow: String, host: u32, link: String },
    #[error(transparent)]
    Trial(#[from] SimError),
}

/// Returns the seed of a repeat, a child stream of the run's. All variants share it, so that they do
/// not differ in the luck of a random link.
pub fn repeat_seed(run_seed: u64, repeat: u32) -> u64 {
    Rng::new(run_seed).child("repeat").child(&repeat.to_string()).next_u64()
}

/// Returns the trial of a variant. Its outcome depends on the variant and the seed alone.
pub fn configure(variant: &Variant, seed: u64, label: TrialLabel) -> Result<SimConfig> {
    configure_with(variant, seed, label, &Own::default())
}

/// As [`configure`], with the caller's algorithms that the variant names.
pub fn configure_with(
    variant: &Variant,
    seed: u64,
    label: TrialLabel,
    own: &Own,
) -> Result<SimConfig> {
    let hops = |lanes: &[Lane], direction| {
        lanes.iter().map(|lane| hop(lane, direction, own, &label)).collect::<Result<_, _>>()
    };
    let up = hops(&variant.path.up, Direction::Up)?;
    let down = hops(&variant.path.down, Direction::Down)?;
    let phases = phases(&variant.phases);
    let mut flows = Vec::new();
    for flow in &variant.flows {
        check_host(flow, &variant.path)?;
        let first = flows.len();
        match &flow.kind {
            crate::FlowKind::Probe(probe) => add_probes(&mut flows, &flow.name, probe),
            crate::FlowKind::Tcp(tcp) => {
                add_tcp(&mut flows, flow, tcp, (&phases, seed), (own, &label))?;
            }
            crate::FlowKind::Udp(udp) => add_udp(&mut flows, flow, udp, (&phases, seed)),
            crate::FlowKind::Application(app) => {
                flows.extend(applications(flow, app, &phases));
            }
            crate::FlowKind::Browser(_) => {
                let (flow, kind) = (flow.name.clone(), flow.kind_name);
                return Err(PlanError::UnknownKind { flow, kind });
            }
        }
        for config in &mut flows[first..] {
            config.extra = halves(flow.extra_rtt);
            config.host = flow.host;
        }
    }
    let sample_interval = Some(CURVE_INTERVAL);
    let config = SimConfig { up, down, flows, phases, seed, sample_interval, label };
    config.check()?;
    Ok(config)
}

/// Refuses a flow whose host is no user of a radio on its path, and which is no multicast.
fn check_host(flow: &Flow, path: &Path) -> Result<()> {
    let is_other = |lane: &&Lane| lane.link.users().is_some_and(|it| !it.contains(&flow.host));
    let mut lanes = path.up.iter().chain(&path.down);
    match lanes.find(is_other) {
        Some(lane) if !matches!(flow.kind, crate::FlowKind::Udp(_)) => {
            let (flow, host, link) = (flow.name.clone(), flow.host, lane.link.label.to_string());
            Err(PlanError::NoUser { flow, host, link })
        }
        _ => Ok(()),
    }
}

fn halves(extra_rtt: Span) -> ExtraDelay {
    let up = Span::from_nanos(extra_rtt.as_nanos() / 2);
    ExtraDelay { up, down: extra_rtt.saturating_sub(up) }
}

fn hop(lane: &Lane, direction: Direction, own: &Own, label: &TrialLabel) -> Result<HopConfig> {
    let queue = match &lane.queue {
        LaneQueue::Known(setup) => QueueSetup::clone(setup),
        LaneQueue::Own(spec) => own_queue(spec, own, label)?,
    };
    let rule = lane.rule.map(|rule| rule.make(direction));
    Ok(HopConfig { name: lane.name.clone(), queue, link: lane.link.clone(), rule })
}

/// Returns a queue of the caller, which is created with the label of the trial.
fn own_queue(spec: &OwnSpec, own: &Own, label: &TrialLabel) -> Result<QueueSetup> {
    let OwnSpec { label: name, limit } = spec;
    let text = name.to_string();
    let Some(provided) = own.queues.get(&text) else {
        return Err(PlanError::NotProvided { spec: text });
    };
    let (provided, label) = (Arc::clone(provided), label.clone());
    let make: Arc<MakeJudge> = Arc::new(move |rng| provided(&label, rng));
    Ok(QueueSetup::own(name.clone(), OwnQueue { limit: *limit, make }))
}

fn phases(phases: &crate::Phases) -> Phases {
    let ramp = match phases.ramp {
        Ramp::Fixed(length) => length,
        Ramp::Steady { limit } => limit.min(STEADY),
    };
    Phases { idle: phases.idle, ramp, load: phases.load, drain: phases.drain }
}

/// Adds a probe of each class. They are spread over the interval, as in the live world: of packets
/// that arrive at one instant, a full buffer would always lose the last class.
fn add_probes(flows: &mut Vec<FlowConfig>, name: &str, probe: &ProbeFlow) {
    let mut add = |name: String, class: Marking, schedule, start| {
        let config = ProbeConfig { schedule, ecn: class.ecn, ..ProbeConfig::default() };
        flows.push(FlowConfig {
            dscp: Dscp::new(class.dscp).unwrap_or(Dscp::DEFAULT),
            start: Some(start),
            ..FlowConfig::new(name, FlowKind::Probe(config))
        });
    };
    let classes = probe.classes.len() as u64;
    for (position, (name, class)) in flows::probes(name, &probe.classes).enumerate() {
        let offset_ns = probe.interval.as_nanos() * position as u64 / classes;
        let schedule = ProbeSchedule::Open { interval: probe.interval };
        add(name, class, schedule, Time::from_nanos(offset_ns));
    }
    if let Some((name, class)) = probe.request_response(name) {
        add(name, class, ProbeSchedule::Closed { timeout: ANSWER_TIMEOUT }, Time::ZERO);
    }
}

fn add_tcp(
    flows: &mut Vec<FlowConfig>,
    flow: &Flow,
    tcp: &TcpFlow,
    ramp: (&Phases, u64),
    (own, label): (&Own, &TrialLabel),
) -> Result<()> {
    let kind = if tcp.congestion_control == sprout::NAME {
        FlowKind::Sprout
    } else {
        FlowKind::Tcp(tcp_config(&flow.name, tcp, own, label)?)
    };
    let dscp = Dscp::new(tcp.dscp).unwrap_or(Dscp::DEFAULT);
    add_group(flows, flow, &kind, dscp, ramp);
    Ok(())
}

fn tcp_config(flow: &str, tcp: &TcpFlow, own: &Own, label: &TrialLabel) -> Result<TcpConfig> {
    let wish = if tcp.ecn { EcnUse::Classic } else { EcnUse::Off };
    let default = TcpConfig::default();
    let receive_window_bytes =
        tcp.receive_window_bytes.map_or(default.receive_window_bytes, |window| window.0 as u32);
    let (notes_delivery, max_rate) = (tcp.delivery, tcp.max_rate);
    if tcp.is_own() {
        let name = tcp.congestion_control.clone();
        let Some(provided) = own.controls.get(&name).cloned() else {
            return Err(PlanError::NotProvided { spec: name });
        };
        let (ecn, label) = (provided.ecn.unwrap_or(wish), label.clone());
        let make: Arc<MakeControl> = Arc::new(move |setup| (provided.make)(&label, setup));
        let own = Some(OwnControl { name, make });
        return Ok(TcpConfig {
            own,
            ecn,
            receive_window_bytes,
            max_rate,
            notes_delivery,
            ..default
        });
    }
    let algorithm = Algorithm::from_name(&tcp.congestion_control).ok_or_else(|| {
        let name = tcp.congestion_control.clone();
        let names = simulated_controls();
        let question = did_you_mean(&name, names.iter().map(String::as_str));
        let known = alternatives(names.iter().map(String::as_str)) + &question;
        PlanError::UnknownAlgorithm { flow: flow.to_owned(), name, known }
    })?;
    let ecn = algorithm.ecn(wish);
    let linux = PragueConfig::default();
    let prague = PragueConfig {
        rtt_target: tcp.rtt_target.unwrap_or(linux.rtt_target),
        rtt_transition: tcp.rtt_transition.unwrap_or(linux.rtt_transition),
    };
    let of_algorithm = TcpConfig::of(algorithm);
    Ok(TcpConfig { ecn, receive_window_bytes, max_rate, notes_delivery, prague, ..of_algorithm })
}

fn add_udp(flows: &mut Vec<FlowConfig>, flow: &Flow, udp: &UdpFlow, ramp: (&Phases, u64)) {
    let config = UdpConfig {
        rate: udp.rate,
        payload_bytes: (udp.packet_bytes.0 as u32).saturating_sub(UDP_HEADER_BYTES) as u16,
        ecn: udp.marking.ecn,
    };
    let dscp = Dscp::new(udp.marking.dscp).unwrap_or(Dscp::DEFAULT);
    add_group(flows, flow, &FlowKind::Udp(config), dscp, ramp);
}

fn applications(flow: &Flow, application: &ApplicationFlow, phases: &Phases) -> Vec<FlowConfig> {
    let since_ramp = |span| Time::ZERO + phases.idle + span;
    let one = |(name, config)| FlowConfig {
        dscp: Dscp::new(application.dscp).unwrap_or(Dscp::DEFAULT),
        start: flow.activity.start.map(since_ramp),
        stop: flow.activity.stop.map(since_ramp),
        ..FlowConfig::new(name, FlowKind::Application(config))
    };
    application.flows(&flow.name).into_iter().map(one).collect()
}

/// Adds the equal flows of one entry.
fn add_group(
    flows: &mut Vec<FlowConfig>,
    flow: &Flow,
    kind: &FlowKind,
    dscp: Dscp,
    (phases, seed): (&Phases, u64),
) {
    let ramp_start = Time::ZERO + phases.idle;
    let (directions, count) = flow.kind.properties().group();
    for (direction, name) in flows::loads(&flow.name, directions, count) {
        flows.push(FlowConfig {
            direction,
            dscp,
            start: Some(ramp_start + flow.activity.start_of(&name, seed)),
            stop: flow.activity.stop.map(|stop| ramp_start + stop),
            ..FlowConfig::new(name, kind.clone())
        });
    }
}

/// Interval between the points of the recorded time series.
const CURVE_INTERVAL: Span = Span::from_millis(100);
/// The longest steady ramp.
const STEADY: Span = Span::from_secs(10);
/// How long a request-response probe waits for an answer, as in the live world.
const ANSWER_TIMEOUT: Span = Span::from_secs(5);

#[cfg(test)]
mod tests {
    use underload_record::schema::{LatencyMeasure, Phase};
    use underload_sim::trial::run;

    use super::*;
    use crate::{Options, Scenario, builtin};

    const SCENARIO: &str = r#"
        [path]
        up = "20mbit"
        down = "20mbit"
        down_queue = "fifo:limit=100p"
        rtt = "20ms"

        [phases]
        idle = "1s"
        ramp = "2s"
        load = "3s"
        drain = "1s"

        [[flow]]
        name = "ping"
        kind = "probe"
        interval = "10ms"
        closed_loop = true
        classes = [{ dscp = 0 }, { dscp = 45, ecn = "ect1" }]

        [[flow]]
        name = "bulk"
        kind = "tcp"
        direction = "both"
        count = 2
        congestion_control = "cubic"

        [[variant]]
        name = "codel"
        path.up_queue = "codel:profile=linux"

        [[variant]]
        name = "fifo"
        path.up_queue = "fifo:limit=100p"
    "#;

    fn variants(text: &str) -> Vec<Variant> {
        Scenario::parse(text, "test").expect("a valid scenario").variants
    }

    #[test]
    fn starts_are_delayed_by_the_seed_and_the_flows_name() {
        let text = SCENARIO.replace(
            "congestion_control = \"cubic\"",
            "congestion_control = \"cubic\"\nstart = \"500ms\"\nstart_jitter = \"1s\"",
        );
        let starts = |variant: usize, seed: u64| -> Vec<u64> {
            let config = configure(&variants(&text)[variant], seed, TrialLabel::default()).unwrap();
            let bulk = config.flows.iter().filter(|flow| flow.name.starts_with("bulk"));
            bulk.filter_map(|flow| flow.start).map(Time::as_nanos).collect()
        };
        let (one, other) = (starts(0, 1), starts(0, 2));
        assert_eq!(one.len(), 4);
        // From the start of the ramp at 1 s plus 0.5 s, within 1 s, no two alike.
        let in_range = |start: &u64| (1_500_000_000..2_500_000_000).contains(start);
        assert!(one.iter().chain(&other).all(in_range), "{one:?} {other:?}");
        let mut all = [one.clone(), other].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 8);
        assert_eq!(starts(1, 1), one, "variants of a repeat have the same starts");
        let plain = configure(&variants(SCENARIO)[0], 1, TrialLabel::default()).unwrap();
        let start = |name: &str| plain.flows.iter().find(|flow| flow.name == name).unwrap().start;
        assert_eq!(start("bulk-up-0"), Some(Time::from_secs(1)));
    }

    #[test]
    fn a_variant_becomes_a_trial_with_the_names_of_the_live_world() {
        let variants = variants(SCENARIO);
        let label = TrialLabel { variant: variants[0].name.clone(), ..TrialLabel::default() };
        let outcome = run(configure(&variants[0], 1, label).unwrap()).unwrap();
        let names: Vec<_> = outcome.record.flows.iter().map(|flow| flow.name.as_str()).collect();
        let expected = [
            "ping", "ping-dscp-45-ect1", "ping-request-response", "bulk-up-0", "bulk-up-1",
            "bulk-down-0", "bulk-down-1",
        ];
        assert_eq!(names, expected);
        assert_eq!(outcome.record.phases.len(), 4);
        let up: u64 = outcome.record.flows.iter().filter_map(|f| f.goodput_up_bit_per_s).sum();
        assert!((12_000_000..=19_400_000).contains(&up), "{up}");
        assert!(outcome.record.bottlenecks[0].queue.contains("codel"));
    }

    #[test]
    fn a_full_buffer_loses_as_many_probes_of_each_class() {
        let classes = "classes = [{ dscp = 0 }, { dscp = 1 }, { dscp = 2 }, { dscp = 3 }]";
        let text =
            SCENARIO.replace("classes = [{ dscp = 0 }, { dscp = 45, ecn = \"ect1\" }]", classes);
        let text =
            text.replace("count = 2", "count = 10").replace("load = \"3s\"", "load = \"60s\"");
        let config = configure(&variants(&text)[1], 1, TrialLabel::default()).unwrap();
        let starts: Vec<_> = config.flows.iter().take(4).filter_map(|flow| flow.start).collect();
        assert_eq!(starts, [0, 2_500, 5_000, 7_500].map(Time::from_micros));
        let latencies = run(config).unwrap().record.latencies.into_iter();
        let of_class = latencies.filter(|it| {
            it.window.phase == Phase::Load
                && it.measure == LatencyMeasure::RoundTrip
                && !it.closed_loop
        });
        let lost: Vec<u64> = of_class.map(|latency| latency.lost).collect();
        assert_eq!(lost.len(), 4);
        let (least, most) = (lost.iter().min().unwrap(), lost.iter().max().unwrap());
        assert!(*least > 20 && *most < 2 * least, "{lost:?}");
    }

    #[test]
    fn a_far_end_lengthens_its_own_flows_round_trip_alone() {
        let text = SCENARIO.replace("name = \"ping\"", "name = \"ping\"\nextra_rtt = \"60ms\"");
        let text = text.replace("count = 2", "count = 0");
        let text =
            format!("{text}\n[[flow]]\nname = \"near\"\nkind = \"probe\"\ninterval = \"10ms\"");
        let scenario = Scenario::parse(&text, "test").expect("a valid scenario");
        assert_eq!(scenario.worlds(), [underload_record::schema::World::Sim]);
        let config = configure(&scenario.variants[0], 1, TrialLabel::default()).unwrap();
        let outcome = run(config).unwrap();
        let idle = |probe: &str| {
            let found = outcome.record.latencies.iter().find(|latency| latency.probe == probe);
            let median = found.and_then(|latency| latency.distribution).expect("answers").p50_ns;
            median / 1_000_000
        };
        assert_eq!((idle("near"), idle("ping"), idle("ping-dscp-45-ect1")), (20, 80, 80));
    }

    #[test]
    fn a_receive_window_limits_the_rate_to_itself_per_round_trip() {
        let window = "count = 1\nreceive_window = \"20kB\"";
        let text = SCENARIO.replace("count = 2", window).replace("\"both\"", "\"up\"");
        let config = configure(&variants(&text)[0], 1, TrialLabel::default()).unwrap();
        let outcome = run(config).unwrap();
        let up: u64 = outcome.record.flows.iter().filter_map(|f| f.goodput_up_bit_per_s).sum();
        // The window allows 20 kB per round trip: 20 ms, and the time to send a few packets.
        assert!((6_500_000..8_000_000).contains(&up), "{up}");
    }

    #[test]
    fn loads_report_how_long_their_packets_take() {
        let delivery = "count = 1\ndelivery = true";
        let text = SCENARIO.replace("count = 2", delivery).replace("\"both\"", "\"down\"");
        let loss = text.replace("rtt =", "down_loss = \"2%\"\nrtt =");
        let udp = "[[flow]]\nname = \"tick\"\nkind = \"udp\"\ndirection = \"up\"\n\
                   rate = \"100kbit\"\n";
        let outcome = run(configure(
            &variants(&format!("{loss}{udp}"))[0],
            1,
            TrialLabel::default(),
        )
        .unwrap());
        let record = outcome.unwrap().record;
        let metric = |flow: &str, name: &str| {
            let flow = record.flows.iter().find(|known| known.name == flow).expect("the flow");
            let metric = flow.metrics.iter().find(|metric| metric.name == name);
            metric.and_then(|metric| metric.value).expect(name)
        };
        // 10 ms one way and 0.6 ms of transmission; a loss costs at least one more round trip.
        assert!((10.0..16.0).contains(&metric("bulk", "delivery_p50")));
        assert!(metric("bulk", "delivery_p99") > 30.0);
        assert!((0.5..5.0).contains(&metric("bulk", "retransmitted")));
        assert!((10.0..10.8).contains(&metric("tick", "delay_p50")));
        assert!(metric("tick", "lost") < f64::EPSILON);
    }

    #[test]
    fn sprout_takes_the_place_of_tcp() {
        let sprout = SCENARIO.replace("\"cubic\"", "\"sprout\"");
        let outcome =
            run(configure(&variants(&sprout)[1], 1, TrialLabel::default()).unwrap()).unwrap();
        let flow = outcome.record.flows.iter().find(|flow| flow.name == "bulk-up-0").unwrap();
        assert_eq!(
            (flow.kind.as_str(), flow.congestion_control.as_deref()),
            ("sprout", Some("sprout"))
        );
        assert!(flow.goodput_up_bit_per_s > Some(1_000_000), "{flow:?}");
        assert_eq!(flow.retransmits, None);
    }

    /// Scenarios with flows of real browsers.
    const LIVE_ONLY: [&str; 5] =
        ["call/browser", "call/cellular", "film/browser", "page/browser", "page/guideline"];

    #[test]
    fn every_variant_of_every_built_in_scenario_can_be_simulated() {
        let mut planned = 0;
        for builtin in builtin::scenarios() {
            for short in [false, true] {
                let options = Options { short, ..Options::default() };
                let (text, name) = (builtin.text, builtin.name);
                let parsed = Scenario::parse_with(text, name, &options, &mut builtin::load_file);
                let scenario = parsed.unwrap_or_else(|error| panic!("{error}"));
                // Ordinary homes, and comparisons of worlds and models, have no published numbers.
                let has_none = ["call/", "film/", "home/", "kernel/", "page/"];
                let has_none = has_none.iter().any(|it| name.starts_with(it));
                let shown = has_none || !scenario.published.is_empty();
                assert!(short || shown, "{name} has nothing to meet");
                if LIVE_ONLY.contains(&name) {
                    assert_eq!(scenario.worlds(), [underload_record::schema::World::Live]);
                    continue;
                }
                for variant in &scenario.variants {
                    let config = configure(variant, 1, TrialLabel::default());
                    config.unwrap_or_else(|error| {
                        panic!("{name}, variant {}: {error}", variant.name)
                    });
                    planned += 1;
                }
            }
        }
        assert!(planned > 100, "only {planned} variants are built in");
    }

    #[test]
    fn congestion_controls_without_a_model_are_refused_by_name() {
        let exotic = SCENARIO.replace("\"cubic\"", "\"illinois\"");
        let error = configure(&variants(&exotic)[0], 1, TrialLabel::default()).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("'bulk'") && message.contains("'illinois'"), "{message}");
        assert!(message.contains("reno, cubic, bbr"), "{message}");
    }
}
