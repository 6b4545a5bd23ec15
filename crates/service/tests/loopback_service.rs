//! A server and its clients over loopback: admission, limits, and the end of sessions.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use underload_probe::RunClock;
use underload_probe::control::{Ask, ConnectOptions, Remote, ServiceError, SessionNews, Trust};
use underload_probe::load::{LoadFlow, Token, Transport, start_flow};
use underload_probe::measure::{Measurement, MeasurementConfig, Ramp};
use underload_probe::network::current_network;
use underload_record::schema::{Direction, Marking};
use underload_service::{Access, Identity, Limits, Service, ServiceConfig, TokenKeys, TokenTerms};

fn config(limits: Limits) -> ServiceConfig {
    let identity = Identity::generate().unwrap();
    ServiceConfig { tcp_port: 0, udp_port: 0, limits, ..ServiceConfig::on_loopback(identity) }
}

fn service(limits: Limits) -> Service {
    Service::start(config(limits)).unwrap()
}

/// Starts a server that requires tokens, and makes the keys that sign them.
fn service_with_tokens(limits: Limits) -> (tempfile::TempDir, Service, TokenKeys) {
    let directory = underload_disk::faults::private_tempdir().unwrap();
    let path = directory.path().join("keys");
    let keys = TokenKeys::rotate(&path).unwrap();
    let service =
        Service::start(ServiceConfig { access: Access::Tokens(path), ..config(limits) }).unwrap();
    (directory, service, keys)
}

fn terms(uses: u32) -> TokenTerms {
    TokenTerms { lifetime: Duration::from_mins(5), uses, rate_bit_per_s: None, duration: None }
}

fn options(service: &Service) -> ConnectOptions {
    ConnectOptions {
        trust: Trust::Pinned(service.fingerprint()),
        token: None,
        ask: Ask {
            up_bit_per_s: Some(10_000_000),
            down_bit_per_s: Some(10_000_000),
            duration: Duration::from_mins(1),
        },
        network: current_network(),
        cancel: Arc::default(),
    }
}

fn connect(service: &Service, options: &ConnectOptions) -> Result<Remote, ServiceError> {
    Remote::connect("localhost:4862", &[service.address()], options)
}

/// Waits up to ten seconds for a condition.
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
            packet_bytes: 1000,
            burst_packets: 1,
        },
        marking: Marking::default(),
        start_after: Duration::ZERO,
    }
}

#[test]
fn a_measurement_works_through_a_session() {
    let (_directory, service, keys) = service_with_tokens(Limits::default());
    let token = Some(keys.issue(service.fingerprint(), &terms(1)).unwrap());
    let options = ConnectOptions { token, ..options(&service) };
    let mut remote = connect(&service, &options).unwrap();
    assert_eq!(remote.granted.up_bit_per_s, 10_000_000);
    assert_eq!(remote.endpoints().load_server, service.address(), "one TCP port");
    assert_eq!(remote.endpoints().reflector.port(), service.udp_port(), "one UDP port");
    let same = ServiceConfig { udp_port: service.udp_port(), ..config(Limits::default()) };
    let error = Service::start(same).map(|_| ()).expect_err("the UDP port is in use");
    assert!(error.to_string().starts_with("UDP at 127.0.0.1:"), "{error}");
    assert_eq!(remote.identity(), (service.fingerprint(), false));
    let config = MeasurementConfig {
        idle: Duration::from_millis(200),
        ramp: Ramp::Fixed(Duration::from_millis(300)),
        load: Duration::from_millis(900),
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
    // Load and probes share a port. Reports come every 100 ms, so the last one may lack some packets.
    for log in &result.loads {
        let received = log.delivered.last().map(|last| last.packets).unwrap();
        let sent = log.packets_sent.unwrap();
        assert!(received > 100 && received + 200 >= sent, "{received} of {sent}");
    }
    assert_eq!(*remote.news(), SessionNews::default());
    let Err(ServiceError::Refused { reason }) = connect(&service, &options) else {
        panic!("a token was good twice");
    };
    assert!(reason.contains("used already"), "{reason}");
    drop(remote);
    eventually("sessions and flows are over", || service.sessions() == 0 && service.flows() == 0);
    assert_eq!(service.counts().granted, 1);
}

#[test]
fn without_a_session_not_one_byte_comes_back() {
    let service = service(Limits::default());
    let remote = connect(&service, &options(&service)).unwrap();
    let (reflector, load_server) = (remote.endpoints().reflector, remote.endpoints().load_server);
    let stranger = UdpSocket::bind("127.0.0.2:0").unwrap();
    stranger.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    for len in [14, 44, 52, 1000] {
        stranger.send_to(&[0; 1000][..len], reflector).unwrap();
    }
    assert!(stranger.recv(&mut [0; 2000]).is_err(), "an address without a session got an answer");

    // A hello from the address of the session gets an answer of the same length.
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
fn a_closed_session_ends_its_flows() {
    let service = service(Limits::default());
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
    eventually("both flows carry", || handles.iter().all(|h| h.delivered_bytes() > 0));
    drop(remote);
    eventually("both flows are over", || {
        handles.iter().all(underload_probe::load::FlowHandle::is_over)
    });
    eventually("no flow holds a place", || service.flows() == 0);
}

#[test]
fn an_exhausted_volume_ends_the_flow_with_a_reason() {
    // The network's quota ends the session long before its rate does.
    let rate = Some(900_000_000);
    let limits = Limits { network_bytes_per_hour: 40 << 20, ..Limits::default() };
    let service = service(limits);
    let ask = Ask { up_bit_per_s: rate, down_bit_per_s: rate, duration: Duration::from_secs(30) };
    let mut remote = connect(&service, &ConnectOptions { ask, ..options(&service) }).unwrap();
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
    let delivered = log.delivered.last().map_or(0, |last| last.bytes);
    assert!(delivered <= (40 << 20) + (1 << 20), "{delivered} bytes");
    eventually("the client is told", || {
        std::thread::sleep(Duration::from_millis(50));
        service.sessions() == 0
    });
    assert_eq!(remote.news().ended.as_deref(), Some("its volume is used up"));
}

#[test]
fn a_refused_session_gets_a_time_or_a_reason() {
    let limits = Limits { sessions_per_network_max: 1, ..Limits::default() };
    let service = service(limits);
    let right = options(&service);
    let held = connect(&service, &right).unwrap();
    let Err(error @ ServiceError::Busy { retry_after, .. }) = connect(&service, &right) else {
        panic!("a second session of one network was granted");
    };
    assert!((50..=69).contains(&retry_after.as_secs()), "{retry_after:?}");
    let words = error.to_string();
    assert!(words.contains("your network") && words.contains("try again in"), "{words}");
    drop(held);
    eventually("the place is free", || service.sessions() == 0);
    let ask = Ask { up_bit_per_s: Some(u64::MAX), ..right.ask };
    let greedy = ConnectOptions { ask, ..right };
    let Err(ServiceError::Refused { reason }) = connect(&service, &greedy) else {
        panic!("more than there is was granted");
    };
    assert!(reason.contains("at most"));
    service.drain();
    let Err(error @ ServiceError::Busy { .. }) = connect(&service, &options(&service)) else {
        panic!("a session was granted although the server drains");
    };
    assert!(error.to_string().contains("stopped"));
    assert_eq!((service.counts().granted, service.counts().busy), (1, 2));
}

#[test]
fn without_a_good_token_there_is_no_session() {
    let (_directory, service, keys) = service_with_tokens(Limits::default());
    let expired = TokenTerms { lifetime: Duration::ZERO, ..terms(1) };
    for (token, word) in [
        (None, "needed"),
        (Some("open sesame".to_owned()), "no token"),
        (Some(keys.issue(service.fingerprint(), &expired).unwrap()), "expired"),
    ] {
        let options = ConnectOptions { token, ..options(&service) };
        let Err(ServiceError::Refused { reason }) = connect(&service, &options) else {
            panic!("no {word:?}");
        };
        assert!(reason.contains(word), "{reason}");
    }
    assert_eq!(service.counts().refused, 3);
}

#[test]
fn a_session_is_limited_to_its_rate_and_notified() {
    let service = service(Limits::default());
    let ask = Ask { down_bit_per_s: Some(80_000_000), ..options(&service).ask };
    let mut remote = connect(&service, &ConnectOptions { ask, ..options(&service) }).unwrap();
    let load = LoadFlow {
        transport: Transport::Tcp { congestion_control: "reno".to_owned() },
        ..udp_flow(Direction::Down)
    };
    let (network, clock, lease) = (current_network(), RunClock::start(), Duration::from_secs(20));
    let server = remote.endpoints().load_server;
    let handle = start_flow(&load, server, &network, clock, lease, remote.token()).unwrap();
    std::thread::sleep(Duration::from_millis(1_500));
    let log = handle.finish().unwrap();
    let delivered = log.delivered.last().map_or(0, |last| last.bytes);
    // Loopback would carry a hundred times more than the burst and 10 MB per second.
    let seconds = clock.now_ns() as f64 / 1e9;
    let most = (2_500_000.0 + 10_000_000.0 * seconds) * 1.1 + 4_500_000.0;
    assert!(delivered > 3_000_000 && (delivered as f64) < most, "{delivered} of {most}");
    assert!(remote.news().throttled_down);
    assert!(!remote.news().throttled_up);
}

#[test]
fn a_changed_certificate_is_reported() {
    let directory = underload_disk::faults::private_tempdir().unwrap();
    let known_servers = directory.path().join("known");
    let trust = Trust::FirstUse { known_servers: known_servers.clone() };
    let first = service(Limits::default());
    let new = ConnectOptions { trust: trust.clone(), ..options(&first) };
    assert!(connect(&first, &new).unwrap().identity().1, "seen for the first time");
    assert!(!connect(&first, &new).unwrap().identity().1, "known by now");
    let second = service(Limits::default());
    let error = connect(&second, &new).err().expect("another server is not believed");
    let said = error.to_string();
    let ServiceError::Imposter { seen, known, .. } = error else { panic!("{said}") };
    assert_eq!((seen, known), (second.fingerprint(), first.fingerprint()));
    // The error names the file in which the known key is stored.
    assert!(said.contains(&format!("from {}", known_servers.display())), "{said}");
    assert_eq!(fs::read_to_string(&known_servers).unwrap().lines().count(), 1);
    eventually("nothing is held", || second.sessions() == 0);
    assert_eq!(second.counts().granted, 0);
}

#[test]
fn clients_that_die_at_any_point_leave_nothing_behind() {
    let service = service(Limits::default());
    // Connections that end before the handshake, with garbage, and within the handshake.
    for bytes in [&[][..], b"GET / HTTP/1.1\r\n\r\n", &[0x16, 3, 1, 2, 0, 1, 0]] {
        let mut client = TcpStream::connect(service.address()).unwrap();
        client.write_all(bytes).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let _ = client.read(&mut [0; 100]);
    }
    let mut with_options = options(&service);
    with_options.ask.up_bit_per_s = Some(1);
    with_options.ask.down_bit_per_s = Some(1);
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    drop(connect(&service, &with_options).unwrap());
    eventually("the first sessions are over", || service.sessions() == 0);
    let before = descriptors();
    for _ in 0..100 {
        // More connections than the server allows at once, if any remained open.
        match connect(&service, &with_options) {
            Ok(remote) => drop(remote),
            Err(ServiceError::Busy { .. }) => {
                eventually("a place is free", || service.sessions() == 0);
            }
            Err(error) => panic!("{error}"),
        }
    }
    eventually("all sessions are over", || service.sessions() == 0);
    // Other tests of this process open and close descriptors, too; a leak would be a hundred.
    eventually("descriptors are back", || descriptors() < before + 60);
}

#[test]
fn a_token_goes_only_to_the_server_that_it_names() {
    let (directory, good, keys) = service_with_tokens(Limits::default());
    let (_other, evil, _) = service_with_tokens(Limits::default());
    let known_servers = directory.path().join("known");
    let trust = Trust::FirstUse { known_servers: known_servers.clone() };
    let token = Some(keys.issue(good.fingerprint(), &terms(1)).unwrap());
    let right = ConnectOptions { token, trust, ..options(&good) };
    let Err(error @ ServiceError::TokenForAnother { seen, named, .. }) = connect(&evil, &right)
    else {
        panic!("a token was sent to a server that it does not name");
    };
    assert_eq!((seen, named), (evil.fingerprint(), good.fingerprint()));
    assert!(error.to_string().contains("was not sent"), "{error}");
    assert!(!known_servers.exists(), "and that server is none that is known now");
    eventually("the connection is over", || evil.counts().dropped == 1);
    assert_eq!((evil.counts().refused, evil.counts().granted), (0, 0));

    // The token names the server's key, so no key is trusted at first sight.
    let remote = connect(&good, &right).unwrap();
    assert_eq!(remote.identity(), (good.fingerprint(), false));
    drop(remote);
    // Now the key is known: another server under the same name is rejected even with its token.
    let known = ConnectOptions { token: None, ..right.clone() };
    assert!(matches!(connect(&evil, &known), Err(ServiceError::Imposter { .. })));
    assert!(matches!(connect(&evil, &right), Err(ServiceError::Imposter { .. })));
    let trust = Trust::FirstUse { known_servers: directory.path().join("none") };
    let unnamed = ConnectOptions { token: Some("open sesame".to_owned()), trust, ..right };
    let nobody = connect(&good, &unnamed);
    assert!(matches!(nobody, Err(ServiceError::TokenForNobody { .. })));
}

#[test]
fn a_slow_handshake_does_not_block_the_client() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            std::thread::spawn(move || {
                let mut socket = socket?;
                socket.write_all(&[22, 3, 3, 0x3f, 0xf0, 2, 0, 0x3f, 0xec])?;
                // Until the client closes.
                while socket.write_all(&[3]).is_ok() {
                    std::thread::sleep(Duration::from_millis(50));
                }
                std::io::Result::Ok(())
            });
        }
    });
    let real = service(Limits::default());
    let (send, receive) = mpsc::channel();
    let attempt = |cancel: &Arc<AtomicBool>| {
        let (send, cancel) = (send.clone(), Arc::clone(cancel));
        let options = ConnectOptions { cancel, ..options(&real) };
        std::thread::spawn(move || {
            let connected = Remote::connect("localhost:4862", &[address], &options);
            send.send(connected.map(drop)).unwrap();
        });
    };
    let cancel = Arc::new(AtomicBool::new(false));
    attempt(&cancel);
    std::thread::sleep(Duration::from_millis(500));
    cancel.store(true, Ordering::Relaxed);
    let long = Duration::from_mins(1);
    let cancelled = receive.recv_timeout(long).expect("Ctrl-C ends the attempt");
    assert!(matches!(cancelled, Err(ServiceError::Cancelled)), "{cancelled:?}");
    attempt(&Arc::default());
    let late = receive.recv_timeout(long).expect("the attempt has a limit");
    let Err(ServiceError::NoAnswer { address: silent, .. }) = late else {
        panic!("{late:?}");
    };
    assert_eq!(silent, address);
}

/// Starts a server that requires tokens and stores its state in `home`.
fn lasting_service(home: &Path) -> Service {
    let identity = Identity::load_or_create(&home.join("server")).unwrap();
    let access = Access::Tokens(home.join("keys"));
    let state = Some(home.join("server"));
    let base = ServiceConfig::on_loopback(identity);
    Service::start(ServiceConfig { tcp_port: 0, udp_port: 0, access, state, ..base }).unwrap()
}

#[test]
fn a_used_token_stays_used_and_without_keys_no_client_is_admitted() {
    let home = underload_disk::faults::private_tempdir().unwrap();
    let path = home.path().join("keys");
    let keys = TokenKeys::rotate(&path).unwrap();
    let mut service = lasting_service(home.path());
    let token = Some(keys.issue(service.fingerprint(), &terms(2)).unwrap());
    let right = |service: &Service| ConnectOptions { token: token.clone(), ..options(service) };
    for _ in 0..2 {
        drop(connect(&service, &right(&service)).unwrap());
        // As after a crash: nothing is written at the end.
        drop(service);
        service = lasting_service(home.path());
    }
    let Err(ServiceError::Refused { reason }) = connect(&service, &right(&service)) else {
        panic!("a restart made a token good again");
    };
    assert!(reason.contains("used already"), "{reason}");

    let token = Some(keys.issue(service.fingerprint(), &terms(9)).unwrap());
    let right = ConnectOptions { token, ..options(&service) };
    drop(connect(&service, &right).unwrap());
    let kept = home.path().join("kept");
    fs::rename(&path, &kept).unwrap();
    let Err(ServiceError::Refused { reason }) = connect(&service, &right) else {
        panic!("a key that was taken away is still good");
    };
    assert!(reason.contains("cannot read the keys"), "{reason}");
    let news = service.reload_files();
    assert!(news.iter().any(|words| words.contains("no token is accepted")), "{news:?}");
    fs::rename(&kept, &path).unwrap();
    drop(connect(&service, &right).unwrap());
}

#[test]
fn a_certificate_is_replaced_while_the_server_runs() {
    let home = underload_disk::faults::private_tempdir().unwrap();
    let (pem, key) = (home.path().join("cert.pem"), home.path().join("key.pem"));
    let names = || vec!["a.example".to_owned()];
    let first = rcgen::generate_simple_self_signed(names()).unwrap();
    let write = |path: &Path, text: &str| {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    };
    write(&pem, &first.cert.pem());
    write(&key, &first.signing_key.serialize_pem());
    let identity = Identity::from_pem(&pem, &key).unwrap();
    let base = ServiceConfig::on_loopback(identity);
    let service = Service::start(ServiceConfig { tcp_port: 0, udp_port: 0, ..base }).unwrap();
    let pinned = options(&service);
    assert_eq!(service.reload_files(), Vec::<String>::new());

    write(&pem, "not yet written");
    assert!(service.reload_files()[0].contains("the old certificate stays"));
    drop(connect(&service, &pinned).unwrap());
    let renewed = rcgen::CertificateParams::new(names()).unwrap();
    write(&pem, &renewed.self_signed(&first.signing_key).unwrap().pem());
    assert!(service.reload_files()[0].contains("its key is the same"));
    drop(connect(&service, &pinned).unwrap());

    let second = rcgen::generate_simple_self_signed(names()).unwrap();
    write(&pem, &second.cert.pem());
    assert!(service.reload_files()[0].contains("the old certificate stays"), "half of a pair");
    write(&key, &second.signing_key.serialize_pem());
    assert!(service.reload_files()[0].contains("another key"));
    assert!(matches!(connect(&service, &pinned), Err(ServiceError::Imposter { .. })));
    drop(connect(&service, &options(&service)).unwrap());
}
