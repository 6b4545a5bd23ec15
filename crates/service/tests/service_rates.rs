//! Compares the traffic of sessions with the counters of a network interface: flows of all four
//! kinds, one and eight of them, under three grants, each in a network namespace without other
//! traffic.

#![expect(clippy::print_stderr, reason = "prints the rates, and why it was skipped")]

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use underload_probe::RunClock;
use underload_probe::control::{Ask, ConnectOptions, Remote, Trust};
use underload_probe::load::{LoadFlow, Transport, start_flow};
use underload_probe::network::current_network;
use underload_record::schema::{Direction, Marking};
use underload_service::{Identity, Limits, Service, ServiceConfig};

/// Duration of the load.
const LENGTH: Duration = Duration::from_millis(800);
/// The burst of every granted rate; see `docs/contributing/measure.md`.
const BURST_BYTES: f64 = 256.0 * 1024.0;
/// Bytes per flow that the kernel receives from a TCP sender before the server reads them.
const WINDOW_BYTES: f64 = 1_000_000.0;

/// Runs `body` in a thread with a separate network namespace, if it may create one.
fn in_a_network_of_its_own(name: &str, body: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            return Err(error.to_string());
        }
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        if !up.is_ok_and(|status| status.success()) {
            return Err("no `ip`".to_owned());
        }
        body();
        Ok(())
    });
    match thread.join() {
        Ok(Ok(())) => {}
        Ok(Err(reason)) => eprintln!("SKIPPED {name}: {reason}"),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Returns the bytes carried by the loopback interface of this thread's network namespace.
fn carried_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("lo:")).unwrap();
    line.split_ascii_whitespace().next().unwrap().parse().unwrap()
}

fn service() -> Service {
    let identity = Identity::generate().unwrap();
    let limits = Limits::default();
    let config = ServiceConfig::on_loopback(identity);
    Service::start(ServiceConfig { tcp_port: 0, udp_port: 0, limits, ..config }).unwrap()
}

/// The bytes carried, and the time.
struct Outcome {
    bytes: f64,
    counted_bytes: f64,
    seconds: f64,
    ended: Option<String>,
}

fn run(direction: Direction, transport: &Transport, flows: usize, bit_per_s: u64) -> Outcome {
    let service = service();
    let rate = |of: Direction| Some(if of == direction { bit_per_s } else { 0 });
    let ask = Ask {
        up_bit_per_s: rate(Direction::Up),
        down_bit_per_s: rate(Direction::Down),
        duration: Duration::from_mins(1),
    };
    let trust = Trust::Pinned(service.fingerprint());
    let (network, cancel) = (current_network(), Arc::default());
    let options = ConnectOptions { trust, token: None, ask, network, cancel };
    let (before, begun) = (carried_bytes(), Instant::now());
    let mut remote = Remote::connect("localhost:4862", &[service.address()], &options).unwrap();
    let (server, clock) = (remote.endpoints().load_server, RunClock::start());
    let start = |index: usize| {
        let load = LoadFlow {
            name: format!("bulk-{index}"),
            direction,
            transport: transport.clone(),
            marking: Marking::default(),
            start_after: Duration::ZERO,
        };
        let lease = Duration::from_secs(50);
        start_flow(&load, server, &current_network(), clock, lease, remote.token()).unwrap()
    };
    let handles: Vec<_> = (0..flows).map(start).collect();
    std::thread::sleep(LENGTH);
    let ended = remote.news().ended.clone();
    drop(remote);
    for handle in handles {
        let _ = handle.finish();
    }
    let seconds = begun.elapsed().as_secs_f64();
    let bytes = (carried_bytes() - before) as f64;
    let moved = service.state().moved_bytes;
    Outcome { bytes, counted_bytes: (moved.0 + moved.1) as f64, seconds, ended }
}

const GRANTS: [u64; 3] = [8_000, 1_000_000, 50_000_000];

fn held_to_its_grant(direction: Direction, over_tcp: bool) {
    for bit_per_s in GRANTS {
        for flows in [1, 8] {
            let transport = if over_tcp {
                Transport::Tcp { congestion_control: "reno".to_owned() }
            } else {
                // Twice the granted rate, or much more.
                let rate_bit_per_s = (2 * bit_per_s / flows as u64).max(4_000_000);
                Transport::Udp { rate_bit_per_s, packet_bytes: 1_200, burst_packets: 1 }
            };
            let outcome = run(direction, &transport, flows, bit_per_s);
            let Outcome { bytes, counted_bytes, seconds, ended } = outcome;
            let granted = bit_per_s as f64 / 8.0;
            let mut most = granted * (seconds + 0.1) + BURST_BYTES;
            if over_tcp && direction == Direction::Up {
                most += WINDOW_BYTES * flows as f64;
            }
            // Headers, acknowledgements, reports every 100 ms, and the session's handshake.
            most = most * 1.1 + 2_000.0 * flows as f64 * (seconds * 10.0 + 1.0) + 20_000.0;
            let what = format!("{direction} {transport:?}, {flows} flows, {bit_per_s} bit/s");
            if !over_tcp && direction == Direction::Up {
                // A UDP sender cannot be paced: its flow is ended, and the bytes that it sends
                // until then are charged. The sender may be ahead of the granted rate by a second.
                most += granted + 2.0 * seconds * granted.max(500_000.0 * flows as f64);
                let reason = ended.unwrap_or_default();
                // A busy machine may send too little for that.
                let is_ahead = bytes > granted * (seconds + 1.0) + BURST_BYTES;
                let is_told = bit_per_s > 1_000_000 || !is_ahead || reason.contains("faster");
                assert!(is_told, "{what}: ended {reason:?}");
            } else {
                assert_eq!(ended, None, "{what}");
            }
            assert!(bytes <= most, "{what}: {bytes} bytes in {seconds} s, at most {most}");
            let least = (granted * LENGTH.as_secs_f64()).min(BURST_BYTES / 4.0) / 4.0;
            assert!(bytes >= least, "{what}: {bytes} bytes carried, the test shows nothing");
            assert!(counted_bytes <= bytes * 1.1 + 20_000.0, "{what}: {counted_bytes} counted");
            assert!(counted_bytes >= least, "{what}: {counted_bytes} of {bytes} bytes counted");
            eprintln!("{what}: {bytes:.0} bytes in {seconds:.2} s, {counted_bytes:.0} counted");
        }
    }
}

#[test]
fn tcp_up_is_limited_to_its_grant() {
    let body = || held_to_its_grant(Direction::Up, true);
    in_a_network_of_its_own("tcp_up_is_limited_to_its_grant", body);
}

#[test]
fn tcp_down_is_limited_to_its_grant() {
    let body = || held_to_its_grant(Direction::Down, true);
    in_a_network_of_its_own("tcp_down_is_limited_to_its_grant", body);
}

#[test]
fn udp_up_is_limited_to_its_grant() {
    let body = || held_to_its_grant(Direction::Up, false);
    in_a_network_of_its_own("udp_up_is_limited_to_its_grant", body);
}

#[test]
fn udp_down_is_limited_to_its_grant() {
    let body = || held_to_its_grant(Direction::Down, false);
    in_a_network_of_its_own("udp_down_is_limited_to_its_grant", body);
}
