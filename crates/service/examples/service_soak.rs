//! The server's endurance: many sessions in a row beside connections that let bytes drip,
//! clients killed in every state, a flood of forged openings. Prints what memory and descriptors
//! were before and after.
//!
//! `cargo run --release -p underload-probe --example service_soak -- [SESSIONS] [OPENINGS]`

#![expect(clippy::print_stdout, reason = "a program that prints its results")]

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use underload_probe::RunClock;
use underload_probe::control::{Ask, ConnectOptions, Remote, Trust};
use underload_probe::load::{LoadFlow, Transport, start_flow};
use underload_probe::network::current_network;
use underload_record::schema::{Direction, Marking};
use underload_service::{Identity, Service, ServiceConfig};

/// Connections that let bytes drip while the sessions go on.
const DRIPS: usize = 48;
/// In which state a client is killed.
const STATES: [&str; 6] = ["connected", "half-hello", "session", "tcp-up", "tcp-down", "udp-down"];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, state, address, fingerprint] = arguments.as_slice()
        && word == "client"
    {
        client(state, address.parse().unwrap(), fingerprint);
        return;
    }
    let number = |index: usize, default| {
        arguments.get(index).map_or(default, |text| text.parse().expect("a number"))
    };
    let (sessions, openings) = (number(0, 10_000), number(1, 100_000));
    let identity = Identity::generate().unwrap();
    let config = ServiceConfig { tcp_port: 0, udp_port: 0, ..ServiceConfig::on_loopback(identity) };
    let service = Service::start(config).unwrap();
    // Sessions before the first count, so that later counts show only growth.
    for _ in 0..100 {
        drop(Remote::connect("soak", &[service.address()], &options(&service)).unwrap());
    }
    settle(&service);
    println!("{:<28} {:>10} {:>12} {:>8}", "", "time s", "resident KiB", "fds");
    report("at the start", Instant::now());

    let start = Instant::now();
    let over = AtomicBool::new(false);
    let closed = thread::scope(|scope| {
        let drips = scope.spawn(|| drip(service.address(), &over));
        for _ in 0..sessions {
            drop(Remote::connect("soak", &[service.address()], &options(&service)).unwrap());
        }
        over.store(true, Ordering::Relaxed);
        drips.join().unwrap()
    });
    settle(&service);
    report(&format!("{sessions} sessions in a row"), start);
    println!("beside {DRIPS} connections that let bytes drip; closed by the server {closed} times");

    let start = Instant::now();
    for state in STATES {
        kill_client(&service, state);
    }
    settle(&service);
    report("clients killed in 6 states", start);

    let start = Instant::now();
    let (sent, received) = flood(&service, openings);
    report(&format!("{openings} forged openings"), start);
    println!("bytes sent to the server {sent}, from it {received}");
    println!("{:?}", service.counts());
}

/// Keeps connections from as many networks open, a third of them silent, a third in the middle of
/// a TLS hello, a third in the middle of a load request, and sends a byte on each that has begun
/// every 50 ms. What the server closes is opened again. Returns how often it closed one.
fn drip(server: SocketAddr, over: &AtomicBool) -> u64 {
    const HELLO: [u8; 8] = [0x16, 3, 1, 2, 0, 1, 0, 1];
    const BEGINNINGS: [&[u8]; 3] = [&[], &HELLO, b"ULD"];
    let begin = |index: usize| {
        let mut stream = connect_from(Ipv4Addr::new(127, 0, 3 + index as u8, 1), server);
        let _ = stream.write_all(BEGINNINGS[index % 3]);
        stream
    };
    let mut streams: Vec<TcpStream> = (0..DRIPS).map(begin).collect();
    let mut closed = 0;
    while !over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(50));
        for (index, stream) in streams.iter_mut().enumerate() {
            if !BEGINNINGS[index % 3].is_empty() {
                let _ = stream.write(&[0]);
            }
            let open = |error: std::io::Error| error.kind() == ErrorKind::WouldBlock;
            if stream.read(&mut [0; 64]).map_or_else(|error| !open(error), |bytes| bytes == 0) {
                *stream = begin(index);
                closed += 1;
            }
        }
    }
    closed
}

fn connect_from(address: Ipv4Addr, server: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
    socket.connect(&server.into()).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.into()
}

fn options(service: &Service) -> ConnectOptions {
    options_for(&service.fingerprint().to_string())
}

fn options_for(fingerprint: &str) -> ConnectOptions {
    let rate = Some(1_000_000_000);
    ConnectOptions {
        trust: Trust::Pinned(fingerprint.parse().unwrap()),
        token: None,
        ask: Ask { up_bit_per_s: rate, down_bit_per_s: rate, duration: Duration::from_mins(1) },
        network: current_network(),
        cancel: Arc::default(),
    }
}

/// Connects as far as `state`, prints that on stdout, and waits to be killed.
fn client(state: &str, server: SocketAddr, fingerprint: &str) {
    let mut raw = None;
    let (mut remote, mut flow) = (None, None);
    match state {
        "connected" => raw = Some(TcpStream::connect(server).unwrap()),
        "half-hello" => {
            let mut stream = TcpStream::connect(server).unwrap();
            stream.write_all(&[0x16, 3, 1, 2, 0, 1, 0]).unwrap();
            raw = Some(stream);
        }
        _ => {
            let session = Remote::connect("soak", &[server], &options_for(fingerprint)).unwrap();
            if state != "session" {
                flow = Some(running_flow(state, &session));
            }
            remote = Some(session);
        }
    }
    println!("ready");
    std::io::stdout().flush().unwrap();
    std::thread::sleep(Duration::from_mins(1));
    drop((raw, remote, flow));
}

fn running_flow(state: &str, session: &Remote) -> underload_probe::load::FlowHandle {
    let direction = if state.ends_with("up") { Direction::Up } else { Direction::Down };
    let transport = if state.starts_with("tcp") {
        Transport::Tcp { congestion_control: "cubic".to_owned() }
    } else {
        Transport::Udp { rate_bit_per_s: 10_000_000, packet_bytes: 1000, burst_packets: 1 }
    };
    let load = LoadFlow {
        name: state.to_owned(),
        direction,
        transport,
        marking: Marking::default(),
        start_after: Duration::ZERO,
    };
    let (server, network) = (session.endpoints().load_server, current_network());
    let (clock, lease) = (RunClock::start(), Duration::from_mins(1));
    let flow = start_flow(&load, server, &network, clock, lease, session.token()).unwrap();
    while flow.delivered_bytes() == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    flow
}

fn kill_client(service: &Service, state: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["client", state, &service.address().to_string()])
        .arg(service.fingerprint().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "{state}");
    // SIGKILL: no destructor of the client runs.
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Waits until no session and no flow of the clients is left.
fn settle(service: &Service) {
    for _ in 0..200 {
        if service.sessions() == 0 && service.flows() == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!((service.sessions(), service.flows()), (0, 0));
    // A connection that never said what it is has five seconds to do so.
    std::thread::sleep(Duration::from_secs(6));
}

/// Hellos from many addresses; bytes sent to the server and from it.
fn flood(service: &Service, openings: u64) -> (u64, u64) {
    let target = SocketAddr::from((Ipv4Addr::LOCALHOST, service.udp_port()));
    let bind = |i: u64| {
        let address = Ipv4Addr::new(127, 0, 1 + (i / 200) as u8, (i % 200) as u8 + 1);
        let socket = UdpSocket::bind((address, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    let senders: Vec<UdpSocket> = (0..200).map(bind).collect();
    let mut hello = [0; 52];
    hello[..5].copy_from_slice(b"JUL1\x01");
    let (mut sent, mut received) = (0, 0);
    for index in 0..openings {
        let sender = &senders[(index % 200) as usize];
        sent += sender.send_to(&hello, target).unwrap_or(0) as u64;
        if index % 200 == 199 {
            std::thread::sleep(Duration::from_millis(2));
            received += drain(&senders);
        }
    }
    std::thread::sleep(Duration::from_millis(200));
    (sent, received + drain(&senders))
}

fn drain(senders: &[UdpSocket]) -> u64 {
    let mut bytes = 0;
    for sender in senders {
        while let Ok(len) = sender.recv(&mut [0; 2048]) {
            bytes += len as u64;
        }
    }
    bytes
}

fn report(what: &str, start: Instant) {
    let mut text = String::new();
    std::fs::File::open("/proc/self/statm").unwrap().read_to_string(&mut text).unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let seconds = start.elapsed().as_secs_f64();
    println!("{what:<28} {seconds:>10.1} {:>12} {descriptors:>8}", pages * 4);
}
