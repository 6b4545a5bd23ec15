//! Clients of other tools with this crate's servers. If a client is not installed, its tests are
//! skipped with a message; tests without a client in their name always run.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;
use socket2::{Domain, Socket, Type};
use underload_compat::iperf3::{Iperf3Limits, Iperf3Server};
use underload_compat::irtt::{IrttLimits, IrttServer};
use underload_service::{CompatLedger, Identity, Limits, Service, ServiceConfig};

fn irtt_server(address: &str, key: Option<&str>) -> Option<IrttServer> {
    let socket = UdpSocket::bind(address).ok()?;
    let key = key.map(|key| key.as_bytes().to_vec());
    Some(IrttServer::start(socket, IrttLimits::default(), key, CompatLedger::unlimited()).unwrap())
}

fn iperf3_server(limits: Iperf3Limits) -> Iperf3Server {
    iperf3_server_within(limits, &CompatLedger::unlimited())
}

fn iperf3_server_within(limits: Iperf3Limits, ledger: &CompatLedger) -> Iperf3Server {
    // Both protocols need the same port, which another program may take in between.
    for _ in 0..20 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()) {
            return Iperf3Server::start(listener, socket, limits, ledger.clone()).unwrap();
        }
    }
    panic!("no port is free for both protocols");
}

fn unlimited() -> Iperf3Limits {
    Iperf3Limits { tests_per_network_max: 4, bit_per_s_max: None, ..Iperf3Limits::default() }
}

/// Runs a client for at most 20 s. Returns `None`, with a message, if it is not installed.
fn run(test: &str, program: &str, arguments: &[String]) -> Option<Output> {
    let output = Command::new("timeout").arg("20").arg(program).args(arguments).output().ok()?;
    // The exit code of timeout(1) if the program is missing.
    if output.status.code() == Some(127) {
        eprintln!("SKIPPED {test}: {program} is not installed");
        return None;
    }
    Some(output)
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let start = text.find('{').unwrap_or(0);
    serde_json::from_str(&text[start..]).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn irtt_measures(test: &str, address: &str, options: &str, key: Option<&str>) {
    let Some(server) = irtt_server(address, key) else {
        eprintln!("SKIPPED {test}: {address} cannot be bound here");
        return;
    };
    let target = server.address();
    let arguments = words(&format!("client -q -o - -d 1s -i 10ms {options} {target}"));
    let Some(output) = run(test, "irtt", &arguments) else { return };
    let result = json(&output);
    let stats = &result["stats"];
    let (sent, received) = (&stats["packets_sent"], &stats["packets_received"]);
    assert!(sent.as_u64().unwrap() > 50, "{stats}");
    assert_eq!((sent, &stats["duplicates"]), (received, &Value::from(0)), "{stats}");
    assert_eq!(&stats["server_packets_received"], sent);
    assert!(stats["send_delay"]["min"].as_i64().is_some_and(|ns| ns > -1_000_000), "{stats}");
    assert!(stats["server_processing_time"]["min"].as_u64().unwrap() > 0);
}

#[test]
fn irtt_client_measures_over_ipv4() {
    irtt_measures("irtt over IPv4", "127.0.0.1:0", "-l 172 --dscp=0xb5", None);
}

#[test]
fn irtt_client_measures_over_ipv6_with_a_key() {
    irtt_measures("irtt over IPv6", "[::1]:0", "-l 60 --hmac=secret", Some("secret"));
}

#[test]
fn iperf3_client_moves_tcp_both_ways_at_once() {
    let server = iperf3_server(unlimited());
    let port = server.address().port();
    let arguments = words(&format!("-J -c 127.0.0.1 -p {port} -t 1 --bidir -P 2 -C reno"));
    let Some(output) = run("iperf3 --bidir", "iperf3", &arguments) else { return };
    let result = json(&output);
    assert!(result.get("error").is_none(), "{}", result["error"]);
    let end = &result["end"];
    assert_eq!(end["streams"].as_array().map(Vec::len), Some(4));
    for sum in ["sum_sent", "sum_received", "sum_sent_bidir_reverse", "sum_received_bidir_reverse"]
    {
        assert!(end[sum]["bytes"].as_u64().unwrap() > 100_000, "{sum}: {}", end[sum]);
    }
    assert_eq!(end["receiver_tcp_congestion"], "reno", "what the server used");
    assert_eq!(server.counts().finished, 1);
}

#[test]
fn iperf3_client_moves_udp_down_at_its_rate() {
    let server = iperf3_server(unlimited());
    let port = server.address().port();
    let options = "-u -b 4M -l 1000 -t 1 -O 1 -R --get-server-output";
    let arguments = words(&format!("-J -c 127.0.0.1 -p {port} {options}"));
    let Some(output) = run("iperf3 -u -R", "iperf3", &arguments) else { return };
    let result = json(&output);
    assert!(result.get("error").is_none(), "{}", result["error"]);
    let packets = result["end"]["sum"]["packets"].as_u64().unwrap();
    assert!((400..=600).contains(&packets), "{packets} of 500 in the second that counts");
    let said = result["server_output_text"].as_str().unwrap();
    assert!(said.contains("sent"), "{said}");
}

#[test]
fn iperf3_clients_share_the_server_up_to_its_places() {
    let limits = Iperf3Limits { tests_max: 2, ..unlimited() };
    let server = iperf3_server(limits);
    let port = server.address().port();
    let up = words(&format!("-J -c 127.0.0.1 -p {port} -u -b 1M -t 2"));
    let outputs = std::thread::scope(|scope| {
        let first = scope.spawn(|| run("iperf3 shared", "iperf3", &up));
        let second = scope.spawn(|| run("iperf3 shared", "iperf3", &up));
        let until = Instant::now() + Duration::from_secs(5);
        while server.counts().running < 2 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        let third = run("iperf3 shared", "iperf3", &up);
        [first.join().unwrap(), second.join().unwrap(), third]
    });
    let [Some(first), Some(second), Some(third)] = outputs else { return };
    for output in [first, second] {
        let sum = &json(&output)["end"]["sum"];
        assert!(sum["packets"].as_u64().unwrap() > 0, "{sum}");
        assert_eq!(sum["lost_packets"], 0, "each test has its own streams");
    }
    let error = json(&third)["error"].as_str().unwrap_or_default().to_owned();
    assert!(error.contains("busy"), "{error}");
}

/// Connects as a client, sends the cookie and `steps`, and closes.
fn leave_after(address: SocketAddr, cookie: u8, steps: &[&[u8]]) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(&[cookie; 37]).unwrap();
    for step in steps {
        let mut state = [0];
        stream.read_exact(&mut state).unwrap();
        stream.write_all(step).unwrap();
    }
}

fn framed(json: &str) -> Vec<u8> {
    [&(json.len() as u32).to_be_bytes(), json.as_bytes()].concat()
}

#[test]
fn an_iperf3_client_may_die_in_every_state_and_its_place_comes_back() {
    let server = iperf3_server(Iperf3Limits { tests_per_network_max: 4, ..unlimited() });
    let address = server.address();
    let parameters = framed(r#"{"tcp":true,"time":1,"parallel":1}"#);
    leave_after(address, b'a', &[]);
    leave_after(address, b'b', &[&parameters[..7]]);
    leave_after(address, b'c', &[&parameters]);
    leave_after(address, b'd', &[&u32::MAX.to_be_bytes()]);
    {
        // With an open stream and a running test.
        let mut control = TcpStream::connect(address).unwrap();
        control.write_all(&[b'e'; 37]).unwrap();
        control.read_exact(&mut [0]).unwrap();
        control.write_all(&parameters).unwrap();
        control.read_exact(&mut [0]).unwrap();
        let mut data = TcpStream::connect(address).unwrap();
        data.write_all(&[b'e'; 37]).unwrap();
        let mut states = [0; 2];
        control.read_exact(&mut states).unwrap();
        assert_eq!(states, [1, 2], "the test runs");
        data.write_all(&[0; 1000]).unwrap();
    }
    TcpStream::connect(address).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let counts = server.counts();
        if counts.running == 0 && counts.abandoned + counts.refused == 6 {
            assert_eq!(counts.refused, 1, "the length that nobody may ask for");
            break;
        }
        assert!(Instant::now() < until, "{counts:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A client implemented here, with open streams and a running test.
struct Iperf3Client {
    control: TcpStream,
    streams: Vec<TcpStream>,
}

/// Longer than any step on a busy machine.
const STEP_MAX: Duration = Duration::from_secs(30);

impl Iperf3Client {
    fn open(address: SocketAddr, parameters: &str, streams: usize) -> Self {
        let connect = || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(STEP_MAX)).unwrap();
            stream.write_all(&[b'x'; 37]).unwrap();
            stream
        };
        let mut client = Self { control: connect(), streams: Vec::new() };
        assert_eq!(client.state(), 9, "parameters, please");
        client.control.write_all(&framed(parameters)).unwrap();
        assert_eq!(client.state(), 10, "streams, please");
        client.streams = (0..streams).map(|_| connect()).collect();
        assert_eq!([client.state(), client.state()], [1, 2], "it runs");
        client
    }

    fn state(&mut self) -> u8 {
        let mut state = [0];
        self.control.read_exact(&mut state).unwrap();
        state[0]
    }

    /// Ends the test. Returns the bytes left in the streams, and the server's results.
    fn finish(mut self) -> (usize, Value) {
        self.control.write_all(&[4]).unwrap();
        // Like iperf3, which first waits for the rest of a block.
        let rest = self.streams.iter_mut().map(|stream| {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).expect("the end of the stream within 30 s");
            rest.len()
        });
        let rest = rest.sum();
        assert_eq!(self.state(), 13, "results, please");
        self.control.write_all(&framed(r#"{"streams":[]}"#)).unwrap();
        let mut len = [0; 4];
        self.control.read_exact(&mut len).unwrap();
        let mut json = vec![0; u32::from_be_bytes(len) as usize];
        self.control.read_exact(&mut json).unwrap();
        assert_eq!(self.state(), 14);
        self.control.write_all(&[16]).unwrap();
        (rest, serde_json::from_slice(&json).unwrap())
    }
}

#[test]
fn an_iperf3_client_in_the_middle_of_a_block_reads_the_end_and_gets_its_results() {
    let server = iperf3_server(unlimited());
    let parameters = r#"{"tcp":true,"time":60,"parallel":2,"reverse":true,"len":1048576}"#;
    let mut client = Iperf3Client::open(server.address(), parameters, 2);
    for stream in &mut client.streams {
        stream.read_exact(&mut [0; 5000]).unwrap();
    }
    let (_, results) = client.finish();
    assert_eq!(results["streams"].as_array().map(Vec::len), Some(2));
}

#[test]
fn an_iperf3_server_sends_the_amount_that_was_asked_for_and_no_more() {
    let server = iperf3_server(unlimited());
    let parameters = r#"{"tcp":true,"num":1000000,"parallel":2,"reverse":true,"len":131072}"#;
    let mut client = Iperf3Client::open(server.address(), parameters, 2);
    let expected = 8 * 131_072;
    let mut received = 0;
    let mut buffer = vec![0; 1 << 16];
    for stream in &client.streams {
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    }
    let until = Instant::now() + STEP_MAX;
    while received < expected {
        assert!(Instant::now() < until, "{received} of {expected} bytes");
        for stream in &mut client.streams {
            received += stream.read(&mut buffer).unwrap_or(0);
        }
    }
    for stream in &client.streams {
        stream.set_read_timeout(Some(STEP_MAX)).unwrap();
    }
    let (rest, results) = client.finish();
    assert_eq!(received + rest, expected, "a million bytes, in whole blocks");
    let sent = |place: usize| results["streams"][place]["bytes"].as_u64().unwrap();
    assert_eq!(sent(0) + sent(1), expected as u64);
}

/// Connects from an address of loopback.
fn connect_from(host: [u8; 4], to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((host, 0)).into())?;
    socket.connect(&to.into())?;
    socket.set_read_timeout(Some(STEP_MAX))?;
    Ok(socket.into())
}

#[test]
fn silent_iperf3_connections_of_one_network_leave_places_to_others() {
    let limits = Iperf3Limits { tests_max: 2, streams_max: 2, ..unlimited() };
    let server = iperf3_server(limits);
    // Two hosts of a /24, with as many connections as all networks together may have.
    let mut silent: Vec<_> = (0..15)
        .map(|number| connect_from([127, 0, 5, 1 + number % 2], server.address()).unwrap())
        .collect();
    let until = Instant::now() + STEP_MAX;
    while server.counts().busy < 10 {
        assert!(Instant::now() < until, "{:?}", server.counts());
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut others = Vec::new();
    let mut begin = |network: u8| {
        let mut other = connect_from([127, 0, network, 1], server.address()).unwrap();
        other.write_all(&[network; 37]).unwrap();
        let mut state = [0];
        other.read_exact(&mut state).unwrap();
        others.push(other);
        assert_eq!(state, [9], "parameters, please");
    };
    begin(6);
    // Clients of three more networks occupy the remaining places.
    silent.extend(
        (0..15).map(|number| connect_from([127, 0, 7 + number % 3, 1], server.address()).unwrap()),
    );
    begin(10);
}

#[test]
fn bytes_that_trickle_in_keep_no_iperf3_connection_open_and_do_not_hold_up_the_end() {
    let server = iperf3_server(unlimited());
    let address = server.address();
    let mut in_parameters = TcpStream::connect(address).unwrap();
    in_parameters.write_all(&[b'p'; 37]).unwrap();
    in_parameters.read_exact(&mut [0]).unwrap();
    let connections = [TcpStream::connect(address).unwrap(), in_parameters];
    let trickle = |mut stream: &TcpStream, bytes: &[u8]| {
        // The server's limits are 5 s and 10 s; 37 and 8,192 bytes would take longer.
        let until = Instant::now() + 2 * STEP_MAX;
        for byte in bytes.iter().cycle() {
            assert!(Instant::now() < until, "still open after a minute");
            if stream.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    std::thread::scope(|scope| {
        // A cookie of 37 bytes would be complete too soon at one byte per 100 ms.
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(3));
            trickle(&connections[0], b"c");
        });
        scope.spawn(|| trickle(&connections[1], &[0, 0, 0x10, 0]));
    });
    let mut held = TcpStream::connect(address).unwrap();
    held.write_all(&[b'h'; 37]).unwrap();
    held.read_exact(&mut [0]).unwrap();
    held.write_all(&[0, 0]).unwrap();
    let start = Instant::now();
    std::thread::scope(|scope| {
        let end = scope.spawn(move || drop(server));
        while !end.is_finished() {
            std::thread::sleep(Duration::from_millis(10));
            let _ = held.write_all(&[0]);
        }
    });
    assert!(start.elapsed() < Duration::from_secs(8), "it did not wait for the limit of the step");
}

#[test]
fn iperf3_tests_stay_within_the_rate_and_the_quota_of_the_server() {
    let limits = Limits {
        compat_bit_per_s: 8_000_000,
        anonymous_bytes_per_hour: 3 << 20,
        ..Limits::generous()
    };
    let config = ServiceConfig::on_loopback(Identity::generate().unwrap());
    let config = ServiceConfig { tcp_port: 0, udp_port: 0, limits, ..config };
    let service = Service::start(config).unwrap();
    let server = iperf3_server_within(unlimited(), &service.compat());
    let start = Instant::now();
    let parameters = r#"{"tcp":true,"time":60,"parallel":2,"reverse":true}"#;
    let mut client = Iperf3Client::open(server.address(), parameters, 2);
    let received: usize = std::thread::scope(|scope| {
        let read = |mut stream: TcpStream| {
            let mut buffer = vec![0; 1 << 16];
            let read = std::iter::from_fn(|| stream.read(&mut buffer).ok().filter(|len| *len > 0));
            read.sum::<usize>()
        };
        let threads = client.streams.drain(..).map(|stream| scope.spawn(move || read(stream)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(client.state(), 11, "the server ends the test");
    assert!(received <= (3 << 20) + (256 << 10), "{received} bytes of a quota of 3 MiB");
    // At 1 MB/s after a burst.
    let least = Duration::from_secs_f64(received.saturating_sub(1 << 20) as f64 / 1e6);
    assert!(start.elapsed() > least, "{received} bytes in {:?}", start.elapsed());
    let mut again = TcpStream::connect(server.address()).unwrap();
    again.write_all(&[b'y'; 37]).unwrap();
    let mut state = [0];
    again.read_exact(&mut state).unwrap();
    assert_eq!(state, [0xff], "busy: the quota of this hour is used up");
}
