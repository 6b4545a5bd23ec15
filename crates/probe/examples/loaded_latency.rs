//! Is the latency under load that we print the one that `ping` sees, and our throughput iperf3's?
//!
//! `cargo run --release -p underload-probe --example loaded_latency [CONGESTION_CONTROL] [SECONDS]`
//!
//! Three network namespaces, the bottleneck (20 Mbit/s, 250 kB) in the middle one, offloads off.
//! Needs root, `ip`, `tc` and `ethtool`; the namespaces are deleted afterwards.

mod support;

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use socket2::{Domain, Type};
use support::{Failure, Namespace, Stopped, ip, text_of};
use underload_probe::endpoint::{ProbeClass, ProberConfig, Reflector, ReflectorConfig};
use underload_probe::load::{LoadFlow, LoadServer, LoadServerConfig, Transport};
use underload_probe::measure::{
    Endpoints, FarClock, Measurement, MeasurementConfig, Ramp, RequestResponse,
};
use underload_probe::{RunClock, SocketSource};
use underload_report::schema::{Direction, LatencyMeasure, Marking, Phase, Sample};
use underload_report::stats::distribution;

#[expect(clippy::print_stdout, reason = "printing is this program's purpose")]
fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let congestion_control = arguments.next().unwrap_or_else(|| "cubic".to_owned());
    let seconds: u64 = arguments.next().map_or(Ok(7), |text| text.parse())?;
    let path = Path::new()?;
    println!("20 Mbit/s, 250 kB, {congestion_control}, {seconds} s of load; milliseconds");
    println!("{:<28} {:>6}     p50     p90     p99     max", "", "n");
    ours(&path, &congestion_control, seconds)?;
    iperf3(&path, &congestion_control, seconds);
    Ok(())
}

#[expect(clippy::print_stdout, reason = "printing is this program's purpose")]
fn ours(path: &Path, congestion_control: &str, seconds: u64) -> Result<(), Failure> {
    let _reflector =
        Reflector::start(vec![path.server.udp("10.98.2.2:8620")?], ReflectorConfig::lab())?;
    let listener = path.server.enter(|| TcpListener::bind("10.98.2.2:8621"))?;
    let (client, server) = (Arc::clone(&path.client), Arc::clone(&path.server));
    let far: Arc<dyn SocketSource> = Arc::new(move |domain, kind| server.socket(domain, kind));
    let load_server = LoadServer::start(listener, far, LoadServerConfig::lab())?;
    let endpoints = Endpoints {
        network: Arc::new(move |domain: Domain, kind: Type| client.socket(domain, kind)),
        reflector: "10.98.2.2:8620".parse()?,
        load_server: load_server.address(),
        far_clock: FarClock::Shared,
    };
    let loads = vec![LoadFlow {
        name: "bulk".to_owned(),
        direction: Direction::Up,
        transport: Transport::Tcp { congestion_control: congestion_control.to_owned() },
        marking: Marking::default(),
        start_after: Duration::ZERO,
    }];
    let marking = Marking::default();
    let classes = vec![ProbeClass { name: "probe".to_owned(), marking }];
    let name = "request-response".to_owned();
    let config = MeasurementConfig {
        ramp: Ramp::Detected { at_most: Duration::from_secs(8) },
        load: Duration::from_secs(seconds),
        probe: ProberConfig { classes, ..ProberConfig::default() },
        request_response: Some(RequestResponse { name, marking, payload_octets: 64 }),
        loads,
        ..MeasurementConfig::default()
    };
    // Started with the load phase, ended with it.
    let mut ping = None;
    let mut progress = |now: underload_probe::measure::Progress| {
        if now.phase == Phase::Load && ping.is_none() {
            let count = (seconds * 100 - 20).to_string();
            let arguments = ["-i", "0.01", "-c", &count, "10.98.2.2"];
            ping = Some(path.client.command("ping").args(arguments).spawn());
        }
    };
    let never = AtomicBool::new(false);
    let clock = RunClock::start();
    let result = Measurement::run(&config, &endpoints, clock, &mut progress, &never)?;
    for (phase, name) in [(Phase::Idle, "idle"), (Phase::Load, "load")] {
        for (flow, probe) in [(0, "probe"), (1, "request-response")] {
            let of = |s: &&Sample| s.phase == phase && s.flow == flow;
            let samples = || result.samples.iter().filter(of);
            let lost = samples().filter(|sample| sample.rtt_ns.is_none()).count();
            print_row(&format!("{name} {probe}"), samples().filter_map(|s| s.rtt_ns).collect());
            if phase == Phase::Load && flow == 0 {
                let up = samples().filter_map(|s| LatencyMeasure::OneWayUp.of(s));
                print_row("load one way up", up.collect());
                println!("  lost {lost} of {}", samples().count());
            }
        }
    }
    let ping =
        ping.ok_or("the load phase never came")?.and_then(std::process::Child::wait_with_output);
    if let Some(text) = text_of("ping", ping) {
        let times = text.lines().filter_map(|line| line.split("time=").nth(1)?.split(' ').next());
        let millis: Result<Vec<f64>, _> = times.map(str::parse).collect();
        print_row("load ping 10 ms", millis?.iter().map(|ms| (ms * 1e6) as u64).collect());
    }
    let goodput = result.flows[2].goodput_up_bit_per_s.unwrap_or(0) as f64 / 1e6;
    println!("ramp {:?}, {:?}", result.phases.get(1), result.ramp_end);
    println!(
        "goodput {goodput:.2} Mbit/s, {} retransmits",
        result.flows[2].retransmits.unwrap_or(0)
    );
    println!("{:?}, incomplete {:?}", result.timeliness, result.incomplete);
    Ok(())
}

#[expect(clippy::print_stdout, reason = "printing is this program's purpose")]
fn iperf3(path: &Path, congestion_control: &str, seconds: u64) {
    let server = path.server.command("iperf3").args(["-s", "-1", "-B", "10.98.2.2"]).spawn();
    let Ok(server) = server else {
        eprintln!("SKIPPED iperf3: not installed");
        return;
    };
    let _server = Stopped(server);
    std::thread::sleep(Duration::from_millis(500));
    let seconds = seconds.to_string();
    let arguments =
        ["-c", "10.98.2.2", "-t", &seconds, "-O", "3", "-C", congestion_control, "-f", "m"];
    let output = path.client.command("iperf3").args(arguments).output();
    if let Some(text) = text_of("iperf3", output) {
        for line in text.lines().filter(|line| line.contains("receiver")) {
            println!("iperf3: {}", line.trim());
        }
    }
}

#[expect(clippy::print_stdout, reason = "printing is this program's purpose")]
fn print_row(name: &str, mut nanos: Vec<u64>) {
    let Some(values) = distribution(&mut nanos) else { return println!("{name:<28} nothing") };
    let columns = [values.p50_ns, values.p90_ns, values.p99_ns, values.max_ns];
    let columns = columns.map(|ns| format!("{:>7.2}", ns as f64 / 1e6));
    println!("{name:<28} {:>6} {}", values.count, columns.join(" "));
}

/// Client, router with the bottleneck, server.
struct Path {
    client: Arc<Namespace>,
    _router: Namespace,
    server: Arc<Namespace>,
}

impl Path {
    fn new() -> Result<Self, Failure> {
        let process = std::process::id();
        let name = |role: &str| format!("ulload{process}{role}");
        let (client, router, server) =
            (Namespace::new(name("c"))?, Namespace::new(name("r"))?, Namespace::new(name("s"))?);
        let (c, r, s) = (&client.name, &router.name, &server.name);
        ip(&["link", "add", "c0", "netns", c, "type", "veth", "peer", "name", "r0", "netns", r])?;
        ip(&["link", "add", "s0", "netns", s, "type", "veth", "peer", "name", "r1", "netns", r])?;
        for (namespace, device, address) in [
            (&client, "c0", "10.98.1.1/24"),
            (&router, "r0", "10.98.1.2/24"),
            (&router, "r1", "10.98.2.1/24"),
            (&server, "s0", "10.98.2.2/24"),
        ] {
            ip(&["-n", &namespace.name, "addr", "add", address, "dev", device])?;
            ip(&["-n", &namespace.name, "link", "set", device, "up"])?;
            let off = ["-K", device, "tso", "off", "gso", "off", "gro", "off"];
            text_of("ethtool", namespace.command("ethtool").args(off).output())
                .ok_or("offloads cannot be switched off")?;
        }
        ip(&["-n", c, "route", "add", "default", "via", "10.98.1.2"])?;
        ip(&["-n", s, "route", "add", "default", "via", "10.98.2.1"])?;
        let forward = ["-w", "net.ipv4.ip_forward=1"];
        text_of("sysctl", router.command("sysctl").args(forward).output())
            .ok_or("forwarding cannot be switched on")?;
        let shape = "qdisc add dev r1 root tbf rate 20mbit burst 5kb limit 250000";
        text_of("tc", router.command("tc").args(shape.split(' ')).output())
            .ok_or("the bottleneck cannot be made")?;
        Ok(Self { client: Arc::new(client), _router: router, server: Arc::new(server) })
    }
}
