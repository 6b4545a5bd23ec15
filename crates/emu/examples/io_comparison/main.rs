//! Compares ways into and out of the kernel by speed and delay: the same forwarder without queue
//! and link over TUN devices, packet sockets and packet rings. Prints the table of
//! `docs/contributing/emulator-io.md`.
//!
//! ```text
//! cargo run --release -p underload-emu --example io_comparison -- [--seconds N]
//! ```
#![expect(clippy::print_stdout, reason = "the table is the result")]

mod sys;

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use underload_emu::machine::{Namespace, Process, Tun};

#[derive(Parser)]
struct Options {
    /// Seconds of each measurement of throughput.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Measurements of each variant; the table shows the median.
    #[arg(long, default_value_t = 3)]
    repeat: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tun,
    PacketSocket,
    PacketRing,
}

/// A direction of the forwarder.
enum Pipe {
    Tun(Tun, Tun),
    Socket(OwnedFd, OwnedFd),
    Ring(sys::Ring, OwnedFd, OwnedFd),
}

/// Devices and namespaces that have to exist while a forwarder runs.
struct Bench {
    _anchors: Vec<Process>,
    client: Namespace,
    server: Namespace,
    _gate: Namespace,
}

fn main() -> Result<()> {
    underload_emu::machine::privilege::enter()?;
    let options = Options::parse();
    println!("{:<14} {:<9} {:>8} {:>26}", "way", "offload", "Mbit/s", "ping us p50/p99/max");
    for kind in [Kind::Tun, Kind::PacketSocket, Kind::PacketRing] {
        for offload in [true, false] {
            let mut runs = (0..options.repeat.max(1))
                .map(|_| measure(kind, offload, options.seconds))
                .collect::<Result<Vec<_>>>()?;
            runs.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (megabits, ping) = &runs[runs.len() / 2];
            let offload = if offload { "on" } else { "off" };
            println!("{:<14} {offload:<9} {megabits:>8.0} {ping:>26}", format!("{kind:?}"));
        }
    }
    Ok(())
}

fn measure(kind: Kind, offload: bool, seconds: u64) -> Result<(f64, String)> {
    let (bench, pipes) = match kind {
        Kind::Tun => tun_bench(offload)?,
        Kind::PacketSocket | Kind::PacketRing => veth_bench(kind, offload)?,
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for pipe in pipes {
            let stop = &stop;
            scope.spawn(move || forward(pipe, stop));
        }
        let outcome = run_programs(&bench, seconds);
        stop.store(true, Relaxed);
        outcome
    })
}

fn run_programs(bench: &Bench, seconds: u64) -> Result<(f64, String)> {
    let mut ping = Command::new("ping");
    ping.args(["-c", "300", "-i", "0.004", "10.9.0.2"]);
    let printed = bench.client.run(ping, "")?;
    let mut times: Vec<f64> = printed
        .lines()
        .filter_map(|line| line.split("time=").nth(1)?.split(' ').next()?.parse().ok())
        .map(|ms: f64| ms * 1000.0)
        .collect();
    times.sort_by(f64::total_cmp);
    let quantile = |q: f64| times[((times.len() as f64 * q) as usize).min(times.len() - 1)];
    let latency = format!("{:.0}/{:.0}/{:.0}", quantile(0.5), quantile(0.99), quantile(1.0));
    let mut server = Command::new("iperf3");
    server.args(["-s", "-1"]).stdout(Stdio::null());
    let _server = bench.server.spawn(server)?;
    std::thread::sleep(Duration::from_millis(300));
    let mut client = Command::new("iperf3");
    client.args(["-f", "m", "-c", "10.9.0.2", "-t", &seconds.to_string()]);
    let printed = bench.client.run(client, "")?;
    let line = printed.lines().find(|line| line.contains("receiver")).context("no receiver")?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let unit = words.iter().position(|word| word.starts_with("Mbits/sec")).context("no rate")?;
    Ok((words[unit - 1].parse()?, latency))
}

fn tun_bench(offload: bool) -> Result<(Bench, Vec<Pipe>)> {
    let (client, server) = (Namespace::create("client")?, Namespace::create("server")?);
    let gate = Namespace::create("gate")?;
    let (a, b) = (Tun::create(&client, "ul0")?, Tun::create(&server, "ul0")?);
    for (namespace, device, host) in [(&client, &a, 1), (&server, &b, 2)] {
        device.set_offload(offload)?;
        namespace.configure(&format!(
            "link set ul0 mtu 1500 txqueuelen 10000 up\naddr add 10.9.0.{host}/24 dev ul0\n"
        ))?;
    }
    let pipes =
        vec![Pipe::Tun(a.try_clone()?, b.try_clone()?), Pipe::Tun(b.try_clone()?, a.try_clone()?)];
    Ok((Bench { _anchors: Vec::new(), client, server, _gate: gate }, pipes))
}

fn veth_bench(kind: Kind, offload: bool) -> Result<(Bench, Vec<Pipe>)> {
    let (client, server) = (Namespace::create("client")?, Namespace::create("server")?);
    let gate = Namespace::create("gate")?;
    let mut anchors = Vec::new();
    for (namespace, device, host) in [(&client, "gc", 1), (&server, "gs", 2)] {
        // `ip` finds a namespace without a name by a process in it.
        let mut sleep = Command::new("sleep");
        sleep.arg("600");
        let mut anchor = namespace.spawn(sleep)?;
        let id = anchor.child().id();
        anchors.push(anchor);
        gate.configure(&format!(
            "link add {device} type veth peer name ul0 netns {id}\nlink set {device} up\n"
        ))?;
        let limit = if offload { "" } else { "gso_max_segs 1" };
        namespace.configure(&format!(
            "link set ul0 mtu 1500 {limit} up\naddr add 10.9.0.{host}/24 dev ul0\n"
        ))?;
    }
    let pipes = gate.enter(|| -> std::io::Result<Vec<Pipe>> {
        let (a, b) = (sys::packet_socket("gc")?, sys::packet_socket("gs")?);
        let pipe = |from: &OwnedFd, to: &OwnedFd| {
            let (from, to) = (from.try_clone()?, to.try_clone()?);
            std::io::Result::Ok(match kind {
                Kind::PacketRing => Pipe::Ring(sys::Ring::new(&from)?, from, to),
                _ => Pipe::Socket(from, to),
            })
        };
        Ok(vec![pipe(&a, &b)?, pipe(&b, &a)?])
    })??;
    Ok((Bench { _anchors: anchors, client, server, _gate: gate }, pipes))
}

/// Forwards frames until it is stopped. A frame that the far end refuses is lost, as on a wire.
fn forward(mut pipe: Pipe, stop: &AtomicBool) {
    let mut buffer = vec![0; 1 << 17];
    while !stop.load(Relaxed) {
        let moved = match &mut pipe {
            Pipe::Tun(from, to) => match from.read(&mut buffer) {
                Ok(Some(length)) => to.write(&buffer[..length], &[]).is_ok(),
                _ => false,
            },
            Pipe::Socket(from, to) => match sys::receive(from, &mut buffer) {
                Ok(Some(length)) => sys::send(to, &buffer[..length]).is_ok(),
                _ => false,
            },
            Pipe::Ring(ring, _, to) => ring.take_block(|frame| drop(sys::send(to, frame))),
        };
        if !moved {
            let input = match &pipe {
                Pipe::Tun(from, _) => from.as_fd(),
                Pipe::Socket(from, _) | Pipe::Ring(_, from, _) => from.as_fd(),
            };
            let limit = PollTimeout::from(20u8);
            let _ = poll(&mut [PollFd::new(input, PollFlags::POLLIN)], limit);
        }
    }
}
