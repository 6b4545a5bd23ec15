//! Load flows over loopback: they carry payload, count it where it arrives, and end when asked to.

#![expect(clippy::print_stderr, reason = "tests print why they were skipped")]

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use underload_probe::RunClock;
use underload_probe::load::{
    FlowLog, LoadError, LoadFlow, LoadServer, LoadServerConfig, Token, Transport, start_flow,
};
use underload_probe::network::current_network;
use underload_probe::wire::MarkingPolicy;
use underload_record::schema::{Direction, Ecn, Marking};

const NO_TOKEN: Token = Token([0; 16]);

fn server_at(address: &str, config: LoadServerConfig) -> Option<LoadServer> {
    let listener = TcpListener::bind(address)
        .inspect_err(|error| eprintln!("SKIPPED over {address}: {error}"))
        .ok()?;
    Some(LoadServer::start(listener, current_network(), config).unwrap())
}

fn server(config: LoadServerConfig) -> LoadServer {
    server_at("127.0.0.1:0", config).unwrap()
}

fn flow(direction: Direction, transport: Transport) -> LoadFlow {
    LoadFlow {
        name: "bulk-0".to_owned(),
        direction,
        transport,
        marking: Marking::default(),
        start_after: Duration::ZERO,
    }
}

fn reno() -> Transport {
    Transport::Tcp { congestion_control: "reno".to_owned() }
}

/// Runs a flow until `bytes` have been delivered, at most ten seconds.
fn run(flow: &LoadFlow, server: SocketAddr, bytes: u64) -> Result<FlowLog, LoadError> {
    let clock = RunClock::start();
    let lease = Duration::from_secs(20);
    let handle = start_flow(flow, server, &current_network(), clock, lease, NO_TOKEN)?;
    wait_for(|| handle.delivered_bytes() >= bytes || handle.is_over());
    handle.finish()
}

/// Waits for a condition, at most ten seconds. Returns whether it was met.
fn wait_for(mut condition: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    while !condition() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

fn wait_until_idle(server: &LoadServer) {
    assert!(wait_for(|| server.flows() == 0), "{} flows still have a place", server.flows());
}

fn assert_tcp_works(address: &str, direction: Direction) {
    let Some(server) = server_at(address, LoadServerConfig::default()) else { return };
    let log = run(&flow(direction, reno()), server.address(), 10_000_000).unwrap();
    assert_eq!(log.failure, None);
    let last = log.delivered.last().unwrap();
    assert!(last.bytes >= 10_000_000, "{last:?}");
    assert!(log.delivered.is_sorted_by(|a, b| a.time_ns < b.time_ns && a.bytes <= b.bytes));
    assert!(log.tcp.iter().any(|sample| sample.info.congestion_window_segments > 1));
    assert!(log.tcp.is_sorted_by(|a, b| a.time_ns < b.time_ns));
    assert!(log.retransmits().is_some());
    let readings = &log.round_trips.readings;
    assert!(readings.is_sorted_by(|a, b| a.time_ns < b.time_ns));
    assert!(readings.iter().all(|reading| (1..5_000_000).contains(&reading.rtt_us)));
    wait_until_idle(&server);
}

#[test]
fn round_trips_are_read_100_times_a_second_whichever_end_sends() {
    let server = server(LoadServerConfig::default());
    for direction in [Direction::Up, Direction::Down] {
        let clock = RunClock::start();
        let lease = Duration::from_secs(20);
        let flow = flow(direction, reno());
        let handle =
            start_flow(&flow, server.address(), &current_network(), clock, lease, NO_TOKEN)
                .unwrap();
        std::thread::sleep(Duration::from_secs(1));
        let log = handle.finish().unwrap();
        let readings = &log.round_trips.readings;
        // A busy machine reads later.
        assert!((40..=102).contains(&readings.len()), "{direction}: {}", readings.len());
    }
    wait_until_idle(&server);
}

#[test]
fn tcp_up_over_ipv4() {
    assert_tcp_works("127.0.0.1:0", Direction::Up);
}

#[test]
fn tcp_down_over_ipv4() {
    assert_tcp_works("127.0.0.1:0", Direction::Down);
}

#[test]
fn tcp_up_over_ipv6() {
    assert_tcp_works("[::1]:0", Direction::Up);
}

#[test]
fn tcp_down_over_ipv6() {
    assert_tcp_works("[::1]:0", Direction::Down);
}

fn assert_udp_works(address: &str, direction: Direction) {
    let Some(server) = server_at(address, LoadServerConfig::default()) else { return };
    let transport =
        Transport::Udp { rate_bit_per_s: 8_000_000, packet_bytes: 1000, burst_packets: 1 };
    let marking = Marking { dscp: 45, ecn: Ecn::Ect1 };
    let load = LoadFlow { marking, ..flow(direction, transport) };
    let log = run(&load, server.address(), 400_000).unwrap();
    assert_eq!(log.failure, None);
    let last = log.delivered.last().unwrap();
    assert!(last.bytes >= 400_000, "{last:?}");
    let header = if address.starts_with('[') { 48 } else { 28 };
    assert_eq!(last.bytes, last.packets * (1000 - header));
    if direction == Direction::Up {
        assert_eq!(Some(log.bytes_sent), log.packets_sent.map(|sent| sent * (1000 - header)));
    }
    // The sender's count may be up to one report older than the receiver's.
    assert!(log.packets_sent.is_some_and(|sent| sent > 0 && sent + 200 >= last.packets));
    assert!(log.tcp.is_empty() && log.retransmits().is_none());
    wait_until_idle(&server);
}

#[test]
fn udp_up_and_down() {
    assert_udp_works("127.0.0.1:0", Direction::Up);
    assert_udp_works("127.0.0.1:0", Direction::Down);
    assert_udp_works("[::1]:0", Direction::Up);
    assert_udp_works("[::1]:0", Direction::Down);
}

#[test]
fn udp_keeps_its_rate() {
    let server = server(LoadServerConfig::default());
    let transport =
        Transport::Udp { rate_bit_per_s: 4_000_000, packet_bytes: 500, burst_packets: 1 };
    let log = run(&flow(Direction::Up, transport), server.address(), 700_000).unwrap();
    let (first, last) = (log.delivered.first().unwrap(), log.delivered.last().unwrap());
    let rate = log.goodput_bit_per_s(first.time_ns, last.time_ns).unwrap() as f64;
    // 472 of 500 bytes are payload. A stalled machine can only lower the rate.
    assert!(rate < 4_000_000.0 * 0.944 * 1.05, "{rate}");
    let sent = log.packets_sent.unwrap();
    assert!(sent >= last.packets, "{sent} sent, {} arrived", last.packets);
}

#[test]
fn an_unknown_congestion_control_names_the_known_ones() {
    let server = server(LoadServerConfig::default());
    let unknown = Transport::Tcp { congestion_control: "nonsense".to_owned() };
    let error = run(&flow(Direction::Up, unknown.clone()), server.address(), 1).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("nonsense") && text.contains("reno"), "{text}");
    let error = run(&flow(Direction::Down, unknown), server.address(), 1).unwrap_err();
    assert!(error.to_string().contains("reno"), "{error}");
}

#[test]
fn limits_are_refused_with_a_reason() {
    let config = LoadServerConfig {
        duration_max: Duration::from_secs(30),
        udp_rate_max_bit_per_s: 1_000_000,
        ..LoadServerConfig::default()
    };
    let guarded = server(LoadServerConfig { token: Some(Token([9; 16])), ..config });
    let reason =
        |flow: &LoadFlow, server: &LoadServer| match run(flow, server.address(), 1).unwrap_err() {
            LoadError::Refused { reason, .. } => reason,
            other => panic!("{other}"),
        };
    assert!(reason(&flow(Direction::Up, reno()), &guarded).contains("token"));

    let short = server(LoadServerConfig { duration_max: Duration::from_secs(1), ..config });
    assert!(reason(&flow(Direction::Up, reno()), &short).contains("too long"));

    let limited = server(config);
    let fast = Transport::Udp { rate_bit_per_s: 1_000_001, packet_bytes: 1000, burst_packets: 1 };
    assert!(reason(&flow(Direction::Down, fast), &limited).contains("at most 1000000"));
    let expedited = LoadFlow {
        marking: Marking { dscp: 46, ecn: Ecn::NotEct },
        ..flow(Direction::Down, reno())
    };
    assert!(reason(&expedited, &limited).contains("DSCP 46"));
    let lab = server(LoadServerConfig { policy: MarkingPolicy::LAB, ..config });
    assert!(run(&expedited, lab.address(), 1).unwrap().failure.is_none());

    let full = server(LoadServerConfig { flows_max: 0, ..config });
    assert!(reason(&flow(Direction::Up, reno()), &full).contains("busy"));
    for server in [&guarded, &short, &limited, &lab, &full] {
        wait_until_idle(server);
    }
}

#[test]
fn a_lease_ends_on_the_servers_clock() {
    let server = server(LoadServerConfig::default());
    let clock = RunClock::start();
    let lease = Duration::from_millis(300);
    let network = current_network();
    let load = flow(Direction::Down, reno());
    let handle = start_flow(&load, server.address(), &network, clock, lease, NO_TOKEN).unwrap();
    assert!(wait_for(|| handle.is_over()), "the server did not end the flow");
    assert!(handle.finish().unwrap().failure.is_some());
    wait_until_idle(&server);
}

#[test]
fn silent_and_invalid_connections_are_closed() {
    use std::io::{Read, Write};
    let server = server(LoadServerConfig::default());
    let mut nonsense = std::net::TcpStream::connect(server.address()).unwrap();
    nonsense.write_all(&[0xff; 64]).unwrap();
    nonsense.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // Closed by the server, with or without a reset.
    assert!(!matches!(nonsense.read(&mut [0; 10]), Ok(1..)));
    drop(std::net::TcpStream::connect(server.address()).unwrap());
    wait_until_idle(&server);
}

#[test]
fn dropping_a_server_ends_its_flows() {
    let server = server(LoadServerConfig::default());
    let clock = RunClock::start();
    let network: Arc<_> = current_network();
    let lease = Duration::from_mins(1);
    let load = flow(Direction::Up, reno());
    let handle = start_flow(&load, server.address(), &network, clock, lease, NO_TOKEN).unwrap();
    wait_for(|| handle.delivered_bytes() > 0 || handle.is_over());
    let begun = Instant::now();
    drop(server);
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(handle.finish().unwrap().failure.is_some());
}
