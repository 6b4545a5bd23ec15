//! The clients that people run, against our servers. Where a client is not installed its tests are
//! skipped by name; the tests without a client in their name always run.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;
use underload_probe::compat::iperf3::{Iperf3Limits, Iperf3Server};
use underload_probe::compat::irtt::{IrttLimits, IrttServer};

fn irtt_server(address: &str, key: Option<&str>) -> Option<IrttServer> {
    let socket = UdpSocket::bind(address).ok()?;
    let key = key.map(|key| key.as_bytes().to_vec());
    Some(IrttServer::start(socket, IrttLimits::default(), key).unwrap())
}

fn iperf3_server(limits: Iperf3Limits) -> Iperf3Server {
    // Both protocols need the same port; another program may take it in between.
    for _ in 0..20 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()) {
            return Iperf3Server::start(listener, socket, limits).unwrap();
        }
    }
    panic!("no port is free for both protocols");
}

fn unlimited() -> Iperf3Limits {
    Iperf3Limits { tests_per_address_max: 4, bit_per_s_max: None, ..Iperf3Limits::default() }
}

/// Runs a client for at most 20 s; `None`, said aloud, if it is not installed.
fn run(test: &str, program: &str, arguments: &[String]) -> Option<Output> {
    let output = Command::new("timeout").arg("20").arg(program).args(arguments).output().ok()?;
    // What timeout(1) says when there is no such program.
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

/// A client by hand: cookie, then whatever `steps` say, then gone.
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
    let server = iperf3_server(Iperf3Limits { tests_per_address_max: 4, ..unlimited() });
    let address = server.address();
    let parameters = framed(r#"{"tcp":true,"time":1,"parallel":1}"#);
    leave_after(address, b'a', &[]);
    leave_after(address, b'b', &[&parameters[..7]]);
    leave_after(address, b'c', &[&parameters]);
    leave_after(address, b'd', &[&u32::MAX.to_be_bytes()]);
    {
        // With its stream open and running.
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
