//! An address opens as many connections as it can; other networks still get a session and a flow.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};
use underload_probe::RunClock;
use underload_probe::control::{Ask, ConnectOptions, Remote, ServiceError, Trust};
use underload_probe::load::{LoadFlow, Transport, start_flow};
use underload_probe::network::SocketSource;
use underload_record::schema::{Direction, Marking};
use underload_service::{Identity, Limits, Service, ServiceConfig};

fn socket_from(address: Ipv4Addr, domain: Domain, kind: Type) -> std::io::Result<Socket> {
    let socket = Socket::new(domain, kind, None)?;
    socket.bind(&SocketAddr::from((address, 0)).into())?;
    Ok(socket)
}

fn network_of(address: Ipv4Addr) -> Arc<dyn SocketSource> {
    Arc::new(move |domain, kind| socket_from(address, domain, kind))
}

fn connect(
    service: &Service,
    address: Ipv4Addr,
    bit_per_s: Option<u64>,
) -> Result<Remote, ServiceError> {
    let duration = Duration::from_mins(1);
    let ask = Ask { up_bit_per_s: bit_per_s, down_bit_per_s: bit_per_s, duration };
    let trust = Trust::Pinned(service.fingerprint());
    let (network, cancel) = (network_of(address), Arc::default());
    let options = ConnectOptions { trust, token: None, ask, network, cancel };
    Remote::connect("localhost:4862", &[service.address()], &options)
}

/// Opens connections from one address that send `bytes` and nothing more.
fn crowd(service: &Service, address: Ipv4Addr, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let one = |_| {
        let socket = socket_from(address, Domain::IPV4, Type::STREAM).ok()?;
        socket.connect(&service.address().into()).ok()?;
        let mut stream = TcpStream::from(socket);
        stream.write_all(bytes).ok()?;
        Some(stream)
    };
    (0..count).filter_map(one).collect()
}

/// Asserts that a client gets a session and a flow that carries payload.
fn measures(service: &Service, address: Ipv4Addr) {
    let remote = connect(service, address, Some(1_000_000)).unwrap();
    let flow = LoadFlow {
        name: "bulk-0".to_owned(),
        direction: Direction::Down,
        transport: Transport::Tcp { congestion_control: "reno".to_owned() },
        marking: Marking::default(),
        start_after: Duration::ZERO,
    };
    let (network, clock) = (network_of(address), RunClock::start());
    let (server, lease) = (remote.endpoints().load_server, Duration::from_secs(50));
    let handle = start_flow(&flow, server, &network, clock, lease, remote.token()).unwrap();
    for _ in 0..400 {
        if handle.delivered_bytes() > 0 || handle.is_over() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let delivered = handle.delivered_bytes();
    let log = handle.finish().unwrap();
    assert!(delivered > 0, "{address}: {:?}", log.failure);
}

/// Enough for both ends of all connections, which are in this process.
const DESCRIPTORS: u64 = 4_000;

#[test]
fn one_hostile_address_does_not_block_others() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    if soft < DESCRIPTORS && setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS, hard).is_err() {
        eprintln!("SKIPPED one_hostile_address_does_not_block_others: {hard} descriptors");
        return;
    }
    let identity = Identity::generate().unwrap();
    let limits = Limits::default();
    let config = ServiceConfig::on_loopback(identity);
    let service =
        Service::start(ServiceConfig { tcp_port: 0, udp_port: 0, limits, ..config }).unwrap();
    let attacker = Ipv4Addr::new(127, 0, 9, 1);
    // Flows without a session, more than there are places for flows.
    let _flows = crowd(&service, attacker, 600, b"ULD1");
    measures(&service, Ipv4Addr::new(127, 1, 0, 1));
    // All the sessions and the whole rate that a network can have.
    let held: Vec<Remote> = (0..6).filter_map(|_| connect(&service, attacker, None).ok()).collect();
    // Silent connections in addition.
    let _silent = crowd(&service, attacker, 600, b"");
    for network in 2..8 {
        measures(&service, Ipv4Addr::new(127, network, 0, 1));
    }
    // Silent connections from thirty networks at once.
    let _silent: Vec<_> =
        (0..30).map(|net| crowd(&service, Ipv4Addr::new(127, 100, net, 1), 20, b"")).collect();
    for network in 10..14 {
        measures(&service, Ipv4Addr::new(127, network, 0, 1));
    }
    assert!(service.counts().crowded > 100, "nobody was turned away: the test shows nothing");
    drop(held);
}
