//! Complete short measurements over loopback.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use underload_probe::RunClock;
use underload_probe::endpoint::{
    ProbeClass, ProberConfig, Reflector, ReflectorConfig, ThreadTiming,
};
use underload_probe::load::{FlowLog, LoadFlow, LoadServer, LoadServerConfig, Token, Transport};
use underload_probe::measure::{
    Endpoints, FarClock, MeasureError, Measurement, MeasurementConfig, MeasurementResult, Progress,
    Ramp, RampEnd, RequestResponse,
};
use underload_probe::network::current_network;
use underload_record::schema::{Direction, Ecn, Marking, Phase, PhaseWindow};

struct FarEnd {
    _reflector: Reflector,
    load_server: LoadServer,
    endpoints: Endpoints,
}

fn far_end(config: LoadServerConfig, far_clock: FarClock) -> FarEnd {
    let timing = ThreadTiming { real_time_priority: None, spin_ns: 0 };
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let reflector = socket.local_addr().unwrap();
    let reflector_config = ReflectorConfig { timing, ..ReflectorConfig::lab() };
    let running = Reflector::start(vec![socket], reflector_config).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let load_server = LoadServer::start(listener, current_network(), config).unwrap();
    let network = current_network();
    let endpoints = Endpoints { network, reflector, load_server: load_server.address(), far_clock };
    FarEnd { _reflector: running, load_server, endpoints }
}

fn flow(name: &str, direction: Direction) -> LoadFlow {
    LoadFlow {
        name: name.to_owned(),
        direction,
        // A small load, for the sake of other tests on this machine.
        transport: Transport::Udp {
            rate_bit_per_s: 8_000_000,
            packet_bytes: 1000,
            burst_packets: 1,
        },
        marking: Marking::default(),
        start_after: Duration::ZERO,
    }
}

fn config() -> MeasurementConfig {
    let class = |name: &str, dscp, ecn| ProbeClass {
        name: name.to_owned(),
        marking: Marking { dscp, ecn },
    };
    let probe = ProberConfig {
        classes: vec![class("probe", 0, Ecn::NotEct), class("probe-nqb", 45, Ecn::Ect1)],
        timing: ThreadTiming { real_time_priority: None, spin_ns: 0 },
        ..ProberConfig::default()
    };
    MeasurementConfig {
        trial: 7,
        idle: Duration::from_millis(300),
        ramp: Ramp::Fixed(Duration::from_millis(400)),
        load: Duration::from_millis(600),
        drain: Duration::from_millis(100),
        probe,
        loads: vec![flow("up-0", Direction::Up), flow("down-0", Direction::Down)],
        ..MeasurementConfig::default()
    }
}

fn run(config: &MeasurementConfig, far_end: &FarEnd) -> Result<MeasurementResult, MeasureError> {
    let never = AtomicBool::new(false);
    Measurement::run(config, &far_end.endpoints, RunClock::start(), &mut |_| {}, &never)
}

#[test]
fn phases_flows_and_samples_fit_together() {
    let far_end = far_end(LoadServerConfig::default(), FarClock::Shared);
    let request_response = Some(RequestResponse {
        name: "request-response".to_owned(),
        marking: Marking::default(),
        payload_bytes: 64,
    });
    let config = MeasurementConfig { request_response, ..config() };
    let mut seen = Vec::new();
    let mut progress = |now: Progress| seen.push(now);
    let never = AtomicBool::new(false);
    let clock = RunClock::start();
    let result =
        Measurement::run(&config, &far_end.endpoints, clock, &mut progress, &never).unwrap();
    assert!(!result.cancelled);
    assert_eq!(result.incomplete, Vec::<String>::new());
    assert_eq!(result.ramp_end, RampEnd::Fixed);
    let phases: Vec<_> = result.phases.iter().map(|window| window.phase).collect();
    assert_eq!(phases, [Phase::Idle, Phase::Ramp, Phase::Load, Phase::Drain]);
    for pair in result.phases.windows(2) {
        assert_eq!(pair[0].end_ns, pair[1].start_ns);
    }
    let (load, drain) = (result.phases[2], result.phases[3]);
    assert_eq!(load.end_ns - load.start_ns, 600_000_000);
    assert_eq!(drain.end_ns - drain.start_ns, 100_000_000);

    let names: Vec<_> = result.flows.iter().map(|flow| flow.name.as_str()).collect();
    assert_eq!(names, ["probe", "probe-nqb", "request-response", "up-0", "down-0"]);
    assert_eq!(result.flows[1].class, "dscp 45 ect1");
    assert!(result.flows[3].goodput_up_bit_per_s.is_some_and(|rate| rate > 1_000_000));
    assert!(result.flows[4].goodput_down_bit_per_s.is_some_and(|rate| rate > 1_000_000));
    assert!(result.series.iter().any(|series| series.name == "up-0.goodput"));

    for sample in &result.samples {
        assert_eq!((sample.trial, sample.closed_loop), (7, sample.flow == 2));
        assert!(sample.flow <= 2 && sample.scheduled_ns < drain.end_ns);
        let window = result.phases.iter().find(|window| window.phase == sample.phase).unwrap();
        assert!(window.contains(sample.scheduled_ns), "{sample:?}");
    }
    let answered = |phase: Phase, flow| {
        let of = |s: &&underload_record::schema::Sample| s.phase == phase && s.flow == flow;
        result.samples.iter().filter(of).filter(|sample| sample.rtt_ns.is_some()).count()
    };
    for flow in 0..3 {
        for phase in [Phase::Idle, Phase::Ramp, Phase::Load, Phase::Drain] {
            assert!(answered(phase, flow) > 0, "flow {flow} in {phase}");
        }
    }
    let planned = result.timeliness.probe_slots_planned;
    let sent = result.samples.iter().filter(|sample| !sample.closed_loop).count() as u64;
    assert_eq!(sent + result.timeliness.probe_slots_missed, planned);
    assert_eq!(planned, 2 * 140, "1.4 s at 10 ms in two classes");
    result.loads.iter().for_each(|log| assert_load_ends(log, load));
    assert!(seen.iter().any(|now| now.phase == Phase::Load && now.bytes_up > 0));
}

/// Asserts that nothing is sent after the load phase; later bytes were in flight.
fn assert_load_ends(log: &FlowLog, load: PhaseWindow) {
    let by = |time_ns| log.delivered.iter().rfind(|it| it.time_ns <= time_ns);
    let bytes = |time_ns| by(time_ns).map_or(0, |record| record.bytes);
    let of_load = bytes(load.end_ns) - bytes(load.start_ns);
    let after = bytes(u64::MAX) - bytes(load.end_ns);
    assert!(after < of_load / 2, "{after} bytes after {of_load}");
}

#[test]
fn a_steady_load_ends_the_ramp_and_an_unsteady_one_does_not() {
    let far_end = far_end(LoadServerConfig::default(), FarClock::Separate);
    let at_most = Duration::from_secs(10);
    let load = Duration::from_millis(200);
    let base = MeasurementConfig { idle: Duration::ZERO, load, ..config() };
    let detected = MeasurementConfig { ramp: Ramp::Detected { at_most }, ..base.clone() };
    let result = run(&detected, &far_end).unwrap();
    assert_eq!(result.ramp_end, RampEnd::Steady);
    let ramp = result.phases[0];
    // At least four windows of half a second; a busy machine may need more.
    assert!((2_000_000_000..10_000_000_000).contains(&(ramp.end_ns - ramp.start_ns)), "{ramp:?}");
    let offset = result.clock_offset.unwrap();
    assert!(offset.offset_ns.unsigned_abs() <= offset.error_ns + 50_000, "{offset:?}");

    let at_most = Duration::from_millis(800);
    let short = MeasurementConfig { ramp: Ramp::Detected { at_most }, ..base };
    assert_eq!(run(&short, &far_end).unwrap().ramp_end, RampEnd::NotSteady);
}

#[test]
fn a_cancelled_measurement_returns_its_results() {
    let far_end = far_end(LoadServerConfig::default(), FarClock::Shared);
    let config = MeasurementConfig { load: Duration::from_mins(1), ..config() };
    let cancel = AtomicBool::new(false);
    let mut cancelled_at = None;
    let mut progress = |now: Progress| {
        if now.phase == Phase::Load && now.bytes_up > 0 && cancelled_at.is_none() {
            cancel.store(true, Ordering::Relaxed);
            cancelled_at = Some(Instant::now());
        }
    };
    let clock = RunClock::start();
    let result =
        Measurement::run(&config, &far_end.endpoints, clock, &mut progress, &cancel).unwrap();
    let took = cancelled_at.unwrap().elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(result.cancelled);
    assert_eq!(result.phases.last().unwrap().phase, Phase::Load);
    assert!(result.samples.iter().any(|sample| sample.phase == Phase::Load));
    assert_eq!(result.loads.len(), 2);
}

#[test]
fn a_load_ends_at_its_byte_limit() {
    let far_end = far_end(LoadServerConfig::default(), FarClock::Shared);
    let long = Duration::from_secs(40);
    let base = MeasurementConfig { load: long, ..config() };
    // Two flows of 1 MB per second each; the ramp of 0.4 s moves less than 1 MB.
    let limited = MeasurementConfig { load_bytes_max: Some(2_000_000), ..base.clone() };
    let result = run(&limited, &far_end).unwrap();
    assert!(result.load_spent && !result.cancelled && result.incomplete.is_empty());
    let of_phase = |phase| result.phases.iter().find(|window| window.phase == phase).unwrap();
    let load = of_phase(Phase::Load);
    assert!(load.length_ns() < long.as_nanos() as u64 / 2, "{load:?}");
    assert_eq!(of_phase(Phase::Drain).start_ns, load.end_ns);
    // The last packets that a flow sent may not be reported as delivered; they are spent.
    let spent = |log: &FlowLog| log.delivered.last().unwrap().bytes.max(log.bytes_sent);
    let spent: u64 = result.loads.iter().map(spent).sum();
    assert!(spent >= 2_000_000, "{spent}");
    let ramp = Ramp::Fixed(long);
    let in_ramp = MeasurementConfig { load_bytes_max: Some(200_000), ramp, ..base };
    let result = run(&in_ramp, &far_end).unwrap();
    assert!(!result.load_spent && result.phases.iter().all(|it| it.phase != Phase::Load));
    assert!(
        result.incomplete.iter().any(|it| it.contains("were spent")),
        "{:?}",
        result.incomplete
    );
}

#[test]
fn a_refused_flow_ends_the_measurement_with_the_reason() {
    let guarded = LoadServerConfig { token: Some(Token([1; 16])), ..LoadServerConfig::default() };
    let far_end = far_end(guarded, FarClock::Shared);
    let begun = Instant::now();
    let config = MeasurementConfig { load: Duration::from_mins(1), ..config() };
    let error = run(&config, &far_end).unwrap_err();
    assert!(error.to_string().contains("token"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_broken_flow_is_named_and_the_others_continue() {
    let FarEnd { _reflector, load_server, endpoints } =
        far_end(LoadServerConfig::default(), FarClock::Shared);
    let mut load_server = Some(load_server);
    let mut progress = |now: Progress| {
        if now.phase == Phase::Load {
            load_server = None;
        }
    };
    let never = AtomicBool::new(false);
    let clock = RunClock::start();
    let result = Measurement::run(&config(), &endpoints, clock, &mut progress, &never).unwrap();
    assert_eq!(result.incomplete.len(), 2, "{:?}", result.incomplete);
    assert!(result.incomplete[0].contains("up-0"));
    assert_eq!(result.phases.last().unwrap().phase, Phase::Drain);
}

#[test]
fn an_unreachable_load_server_is_an_error() {
    let mut far_end = far_end(LoadServerConfig::default(), FarClock::Shared);
    // A port that was free a moment ago.
    let unused: SocketAddr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    far_end.endpoints.load_server = unused;
    let error = run(&config(), &far_end).unwrap_err();
    assert!(error.to_string().contains("connecting to the load server"), "{error}");
}
