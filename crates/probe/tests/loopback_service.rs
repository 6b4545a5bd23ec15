//! A server and its clients over loopback: who gets in, what they may do, and how it ends.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use underload_probe::load::{LoadFlow, Token, Transport, start_flow};
use underload_probe::measure::{Measurement, MeasurementConfig, Ramp};
use underload_probe::service::{
    Ask, ConnectOptions, Identity, Limits, Remote, Service, ServiceConfig, ServiceError, Trust,
};
use underload_probe::{RunClock, current_network};
use underload_report::schema::{Direction, Marking};

fn service(limits: Limits, secret: Option<&str>) -> Service {
    let any = "127.0.0.1:0".parse().unwrap();
    Service::start(ServiceConfig {
        control: any,
        load: any,
        probe: any,
        limits,
        secret: secret.map(str::to_owned),
        identity: Identity::generate().unwrap(),
    })
    .unwrap()
}

fn options(service: &Service) -> ConnectOptions {
    ConnectOptions {
        trust: Trust::Pinned(service.fingerprint()),
        secret: None,
        ask: Ask {
            up_bit_per_s: 10_000_000,
            down_bit_per_s: 10_000_000,
            duration: Duration::from_mins(1),
        },
        network: current_network(),
    }
}

fn connect(service: &Service, options: &ConnectOptions) -> Result<Remote, ServiceError> {
    Remote::connect("localhost:4862", service.address(), options)
}

/// Waits for a level, at most ten seconds.
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..200 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("not after ten seconds: {what}");
}

fn udp_flow(direction: Direction) -> LoadFlow {
    LoadFlow {
        name: format!("{direction}-0"),
        direction,
        transport: Transport::Udp {
            rate_bit_per_s: 4_000_000,
            packet_octets: 1000,
            burst_packets: 1,
        },
        marking: Marking::default(),
        start_after: Duration::ZERO,
    }
}

#[test]
fn a_measurement_works_through_a_session() {
    let service = service(Limits::default(), Some("open sesame"));
    let secret = Some("open sesame".to_owned());
    let remote = connect(&service, &ConnectOptions { secret, ..options(&service) }).unwrap();
    assert_eq!(remote.identity(), (service.fingerprint(), false));
    let config = MeasurementConfig {
        idle: Duration::from_millis(200),
        ramp: Ramp::Fixed(Duration::from_millis(300)),
        load: Duration::from_millis(400),
        drain: Duration::ZERO,
        loads: vec![udp_flow(Direction::Up), udp_flow(Direction::Down)],
        token: remote.token(),
        ..MeasurementConfig::default()
    };
    let never = AtomicBool::new(false);
    let clock = RunClock::start();
    let result = Measurement::run(&config, remote.endpoints(), clock, &mut |_| {}, &never).unwrap();
    assert_eq!(result.incomplete, Vec::<String>::new());
    assert!(result.probe_counts[0].answered > 0);
    assert!(result.clock_offset.is_some());
    drop(remote);
    eventually("sessions and flows are over", || service.sessions() == 0 && service.flows() == 0);
    assert_eq!(service.counts().granted, 1);
}

#[test]
fn without_a_session_not_one_octet_comes_back() {
    let service = service(Limits::default(), None);
    let remote = connect(&service, &options(&service)).unwrap();
    let (reflector, load_server) = (remote.endpoints().reflector, remote.endpoints().load_server);
    let stranger = UdpSocket::bind("127.0.0.2:0").unwrap();
    stranger.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    for len in [14, 44, 52, 1000] {
        stranger.send_to(&[0; 1000][..len], reflector).unwrap();
    }
    assert!(stranger.recv(&mut [0; 2000]).is_err(), "an address without a session got an answer");

    // The same datagram from the address of the session is answered, by as many octets.
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.send_to(&[0; 52], reflector).unwrap();
    assert_eq!(client.recv(&mut [0; 2000]).unwrap(), 52);

    let network = current_network();
    let clock = RunClock::start();
    let lease = Duration::from_secs(5);
    let load = udp_flow(Direction::Down);
    let wrong = Token([9; 16]);
    let handle = start_flow(&load, load_server, &network, clock, lease, wrong).unwrap();
    eventually("the flow is refused", || handle.is_over());
    assert!(handle.finish().unwrap_err().to_string().contains("token"));

    drop(remote);
    eventually("the session is over", || service.sessions() == 0);
    client.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    client.send_to(&[0; 52], reflector).unwrap();
    assert!(client.recv(&mut [0; 2000]).is_err(), "the session is over and still answered");
}

#[test]
fn a_session_that_closes_takes_its_flows_along() {
    let service = service(Limits::default(), None);
    let remote = connect(&service, &options(&service)).unwrap();
    let network = current_network();
    let clock = RunClock::start();
    let lease = Duration::from_secs(50);
    let server = remote.endpoints().load_server;
    let mut handles = Vec::new();
    for direction in [Direction::Up, Direction::Down] {
        let load = udp_flow(direction);
        let token = remote.token();
        handles.push(start_flow(&load, server, &network, clock, lease, token).unwrap());
    }
    eventually("both flows carry", || handles.iter().all(|h| h.delivered_octets() > 0));
    drop(remote);
    eventually("both flows are over", || {
        handles.iter().all(underload_probe::load::FlowHandle::is_over)
    });
    eventually("no flow holds a place", || service.flows() == 0);
}

#[test]
fn a_volume_that_is_used_up_ends_the_flow() {
    let service = service(Limits::default(), None);
    // 1 bit/s: what remains is the margin of 16 MiB, which loopback carries in no time.
    let ask = Ask { up_bit_per_s: 1, down_bit_per_s: 1, duration: Duration::from_mins(1) };
    let remote = connect(&service, &ConnectOptions { ask, ..options(&service) }).unwrap();
    let load = LoadFlow {
        transport: Transport::Tcp { congestion_control: "reno".to_owned() },
        ..udp_flow(Direction::Down)
    };
    let (network, clock) = (current_network(), RunClock::start());
    let server = remote.endpoints().load_server;
    let lease = Duration::from_secs(50);
    let handle = start_flow(&load, server, &network, clock, lease, remote.token()).unwrap();
    eventually("the flow is over", || handle.is_over());
    let log = handle.finish().unwrap();
    assert!(log.failure.is_some());
    let delivered = log.delivered.last().map_or(0, |last| last.octets);
    assert!(delivered <= (16 << 20) + (1 << 20), "{delivered} octets");
}

#[test]
fn who_does_not_fit_is_told_when_or_why() {
    let limits = Limits { sessions_per_address_max: 1, ..Limits::default() };
    let service = service(limits, Some("secret"));
    let secret = Some("secret".to_owned());
    let right = ConnectOptions { secret, ..options(&service) };
    let held = connect(&service, &right).unwrap();
    let Err(ServiceError::Busy { retry_after }) = connect(&service, &right) else {
        panic!("a second session at one address was granted");
    };
    assert!((50..=61).contains(&retry_after.as_secs()), "{retry_after:?}");
    drop(held);
    eventually("the place is free", || service.sessions() == 0);
    for secret in [None, Some("Secret".to_owned()), Some(String::new())] {
        let wrong = ConnectOptions { secret, ..options(&service) };
        let Err(ServiceError::Refused { reason }) = connect(&service, &wrong) else {
            panic!("a wrong secret was taken");
        };
        assert!(reason.contains("secret"));
    }
    let ask = Ask { up_bit_per_s: u64::MAX, ..right.ask };
    let greedy = ConnectOptions { ask, ..right };
    let Err(ServiceError::Refused { reason }) = connect(&service, &greedy) else {
        panic!("more than there is was granted");
    };
    assert!(reason.contains("at most"));
    assert_eq!((service.counts().granted, service.counts().busy), (1, 1));
}

#[test]
fn another_certificate_than_the_first_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let known_servers = directory.path().join("known");
    let trust = Trust::FirstUse { known_servers: known_servers.clone() };
    let first = service(Limits::default(), None);
    let new = ConnectOptions { trust: trust.clone(), ..options(&first) };
    assert!(connect(&first, &new).unwrap().identity().1, "seen for the first time");
    assert!(!connect(&first, &new).unwrap().identity().1, "known by now");
    let second = service(Limits::default(), None);
    let Err(ServiceError::Imposter { seen, known, .. }) = connect(&second, &new) else {
        panic!("another server was believed");
    };
    assert_eq!((seen, known), (second.fingerprint(), first.fingerprint()));
    assert_eq!(fs::read_to_string(&known_servers).unwrap().lines().count(), 1);
    eventually("nothing is held", || second.sessions() == 0);
    assert_eq!(second.counts().granted, 0);
}

#[test]
fn clients_that_die_at_any_point_leave_nothing_behind() {
    let service = service(Limits::default(), None);
    // Before the handshake, with nonsense, and in the middle of it.
    for octets in [&[][..], b"GET / HTTP/1.1\r\n\r\n", &[0x16, 3, 1, 2, 0, 1, 0]] {
        let mut client = TcpStream::connect(service.address()).unwrap();
        client.write_all(octets).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let _ = client.read(&mut [0; 100]);
    }
    let mut with_options = options(&service);
    with_options.ask.up_bit_per_s = 1;
    with_options.ask.down_bit_per_s = 1;
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    drop(connect(&service, &with_options).unwrap());
    eventually("the first sessions are over", || service.sessions() == 0);
    let before = descriptors();
    for _ in 0..100 {
        // More than the server holds at once, if any stayed.
        match connect(&service, &with_options) {
            Ok(remote) => drop(remote),
            Err(ServiceError::Busy { .. }) => {
                eventually("a place is free", || service.sessions() == 0);
            }
            Err(error) => panic!("{error}"),
        }
    }
    eventually("all sessions are over", || service.sessions() == 0);
    // Other tests of this process open and close descriptors too: a leak would be a hundred.
    eventually("descriptors are back", || descriptors() < before + 60);
}
