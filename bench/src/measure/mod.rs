//! `underload measure` compared with ping, irtt and iperf3 on the same two links, at the same time
//! or one after the other.

mod lab;
mod readings;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::numbers;
use crate::process::{build_program, is_installed, target};
use lab::{BOTTLENECK, Lab, PLAIN, Started};
use readings::{Latency, Ours, iperf3_bit_s};

pub const NAME: &str = "measure";
pub const WHAT: &str = "`underload measure` beside ping, irtt and iperf3 (a minute, as root)";

/// Builds the network, runs every comparison in it and prints the table.
pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    if let Some(argument) = arguments.first() {
        bail!("`bench {NAME}` takes no argument, and got `{argument}`");
    }
    let program = std::path::absolute(build_program()?)?;
    let comparison = Comparison {
        program,
        lab: Lab::build(&std::path::absolute(target().join(NAME))?)?,
        missing: Tool::missing(),
    };
    println!("| case | tool | result | goal | met |\n|---|---|---|---|---|");
    let _servers = comparison.servers()?;
    comparison.idle()?;
    comparison.full_queue()?;
    comparison.on_and_off()?;
    comparison.tcp()?;
    comparison.udp()
}

/// A tool of another project.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tool {
    Ping,
    Irtt,
    Iperf3,
}

impl Tool {
    const fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Irtt => "irtt",
            Self::Iperf3 => "iperf3",
        }
    }

    /// Returns the tools that are not installed, and reports a skip for each.
    fn missing() -> Vec<Self> {
        let mut tools = vec![Self::Ping, Self::Irtt, Self::Iperf3];
        tools.retain(|tool| !is_installed(tool.name()));
        for tool in &tools {
            crate::process::skip(tool.name(), "it is not installed");
        }
        tools
    }
}

struct Comparison {
    program: PathBuf,
    lab: Lab,
    missing: Vec<Tool>,
}

/// Prints a line of the table.
fn row(case: &str, tool: &str, result: &str, goal: &str, met: Option<bool>) {
    let met = met.map_or("", |met| if met { "met" } else { "missed" });
    println!("{}", numbers::row([case, tool, result, goal, met]));
}

impl Comparison {
    fn has(&self, tool: Tool) -> bool {
        !self.missing.contains(&tool)
    }

    fn servers(&self) -> anyhow::Result<Vec<Started>> {
        let ours = format!(
            "serve --bind {BOTTLENECK} --bind {PLAIN} --anonymous --quota 10000GB \
             --anonymous-quota 10000GB --capacity-up 100gbit --capacity-down 100gbit"
        );
        let mut servers = vec![self.lab.at_server(&self.program, &ours)?];
        if self.has(Tool::Irtt) {
            let irtt = format!("server -i 0 -b {BOTTLENECK}:2112,{PLAIN}:2112");
            servers.push(self.lab.at_server(Path::new("irtt"), &irtt)?);
        }
        if self.has(Tool::Iperf3) {
            servers.push(self.lab.at_server(Path::new("iperf3"), "-s")?);
        }
        thread::sleep(Duration::from_secs(1));
        Ok(servers)
    }

    /// Starts underload's client and waits for the start of a phase.
    fn start_ours(&self, options: &str, phase: &str) -> anyhow::Result<Started> {
        let run = self.lab.new_path();
        let line = format!("measure {options} --up --class 0 --json --out {}", run.display());
        let mut started = self.lab.at_client(&self.program, &line)?;
        started.wait_for(&format!("  {phase}: "))?;
        Ok(started)
    }

    /// Starts probes of all given tools for `seconds`. Ping keeps no schedule: it gets a time limit
    /// and no number of probes, which would take half as long again.
    fn others(
        &self,
        tools: &[Tool],
        host: &str,
        seconds: u64,
        interval_ms: u64,
    ) -> anyhow::Result<Vec<Other>> {
        let here = tools.iter().copied().filter(|tool| self.has(*tool));
        here.map(|tool| {
            let file = self.lab.new_path().with_extension("json");
            let line = match tool {
                Tool::Ping => format!("-n -i 0.{interval_ms:03} -w {seconds} {host}"),
                Tool::Irtt | Tool::Iperf3 => format!(
                    "client -i {interval_ms}ms -d {seconds}s -l 64 -q -o {} {host}",
                    file.display()
                ),
            };
            let started = self.lab.at_client(Path::new(tool.name()), &line)?;
            Ok(Other { tool, started, file })
        })
        .collect()
    }

    /// Compares probes every millisecond on an idle link, one tool after the other.
    fn idle(&self) -> anyhow::Result<()> {
        let case = "idle, 1 ms, 10 s";
        let line = format!("{PLAIN} --flows 1 --idle 10s --duration 1s --interval 1ms");
        let ours = Ours::parse(&self.start_ours(&line, "idle")?.finish()?)?;
        let latency = ours.latency("idle")?;
        let skipped = latency.skipped_percent(10_000);
        let met = skipped <= 0.1 && latency.p50_ms <= 0.015 && latency.p99_ms <= 0.060;
        let goal = "0.1 % skipped, p50 0.015, p99 0.060";
        row(case, "underload", &format!("{skipped:.2} % skipped, {latency}"), goal, Some(met));
        for tool in [Tool::Ping, Tool::Irtt] {
            for other in self.others(&[tool], PLAIN, 10, 1)? {
                let latency = other.finish()?;
                let skipped = latency.skipped_percent(10_000);
                row(case, tool.name(), &format!("{skipped:.2} % skipped, {latency}"), "", None);
            }
        }
        Ok(())
    }

    /// Compares probes through a buffer that one CUBIC flow fills, all tools at once.
    fn full_queue(&self) -> anyhow::Result<()> {
        let case = "CUBIC, 20 Mbit/s, 250 kB";
        let line = format!("{BOTTLENECK} --flows 1 --idle 1s --duration 7s --interval 10ms");
        let ours = self.start_ours(&line, "load")?;
        let others = self.others(&[Tool::Ping, Tool::Irtt], BOTTLENECK, 7, 10)?;
        let near = |ours: &Latency, ping: &Latency| (ping.p50_ms - ours.p50_ms).abs() <= 2.0;
        compare(case, (ours, "load"), others, ("p50 2 ms from ping's", near))
    }

    /// Compares percentiles over ten seconds of probes, of which iperf3 loads five.
    fn on_and_off(&self) -> anyhow::Result<()> {
        let case = "CUBIC for 5 s of 10 s";
        if !self.has(Tool::Iperf3) {
            crate::process::skip(case, "the load is iperf3's");
            return Ok(());
        }
        let line = format!("{BOTTLENECK} --flows 1 --idle 10s --duration 1s --interval 10ms");
        let ours = self.start_ours(&line, "idle")?;
        let others = self.others(&[Tool::Ping, Tool::Irtt], BOTTLENECK, 10, 10)?;
        thread::sleep(Duration::from_secs(2));
        let load = format!("-c {BOTTLENECK} -t 5 -C cubic");
        self.lab.at_client(Path::new("iperf3"), &load)?.finish()?;
        let near = |ours: &Latency, ping: &Latency| (ping.p90_ms - ours.p90_ms).abs() <= 5.0;
        compare(case, (ours, "idle"), others, ("p90 5 ms from ping's", near))
    }

    /// Compares the rate of one TCP flow.
    fn tcp(&self) -> anyhow::Result<()> {
        let speed = Speed {
            case: "TCP, 1 CUBIC flow, plain veth",
            ours: "--flows 1",
            iperf3: "-C cubic",
            goal: "95 % of iperf3's",
            ratio: 0.95,
            unit: "Gbit/s",
            bits: 1e9,
        };
        self.speed(&speed)
    }

    /// Compares the rate of arriving UDP packets of 1200 bytes (IP).
    fn udp(&self) -> anyhow::Result<()> {
        let speed = Speed {
            case: "UDP, 1200 bytes, plain veth",
            ours: "--flows 1 --udp 20gbit --burst 32",
            iperf3: "-u -b 0 -l 1172",
            goal: "as many as iperf3",
            ratio: 1.0,
            unit: "thousand packets/s",
            bits: 1e3 * 1172.0 * 8.0,
        };
        self.speed(&speed)
    }

    /// Runs underload and iperf3 in turn, three times, because the rate depends on the cores that
    /// the kernel chooses; prints medians.
    fn speed(&self, speed: &Speed) -> anyhow::Result<()> {
        let line = format!("{PLAIN} {} --idle 200ms --duration 3s --interval 100ms", speed.ours);
        let other = format!("-c {PLAIN} -t 3 -J {}", speed.iperf3);
        let (mut ours, mut others) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let run = Ours::parse(&self.start_ours(&line, "idle")?.finish()?)?;
            ours.push(run.goodput_bit_s()? / speed.bits);
            if self.has(Tool::Iperf3) {
                let run = self.lab.at_client(Path::new("iperf3"), &other)?.finish()?;
                others.push(iperf3_bit_s(&run)? / speed.bits);
            }
        }
        let show = |speeds: &mut Vec<f64>| {
            speeds.sort_by(f64::total_cmp);
            let list: Vec<_> = speeds.iter().map(|one| format!("{one:.1}")).collect();
            format!("{} {}", list.join(", "), speed.unit)
        };
        let (our_text, other_text) = (show(&mut ours), show(&mut others));
        let met = others.get(1).map(|other| ours[1] >= other * speed.ratio);
        row(speed.case, "underload", &our_text, speed.goal, met);
        if met.is_some() {
            row(speed.case, "iperf3", &other_text, "", None);
        }
        Ok(())
    }
}

struct Speed {
    case: &'static str,
    ours: &'static str,
    iperf3: &'static str,
    goal: &'static str,
    ratio: f64,
    unit: &'static str,
    /// Payload bits per second in one unit.
    bits: f64,
}

/// Running probes of another tool.
struct Other {
    tool: Tool,
    started: Started,
    file: PathBuf,
}

impl Other {
    fn finish(self) -> anyhow::Result<Latency> {
        let printed = self.started.finish()?;
        if self.tool == Tool::Ping {
            return Latency::of_ping(&printed);
        }
        let written = fs::read_to_string(&self.file);
        Latency::of_irtt(&written.with_context(|| self.file.display().to_string())?)
    }
}

/// Prints the latency in `phase` that underload and other programs measured, and whether
/// underload's is `near` ping's.
fn compare(
    case: &str,
    (ours, phase): (Started, &str),
    others: Vec<Other>,
    (goal, near): (&str, impl Fn(&Latency, &Latency) -> bool),
) -> anyhow::Result<()> {
    let others = others.into_iter().map(|other| Ok((other.tool, other.finish()?)));
    let others: Vec<(Tool, Latency)> = others.collect::<anyhow::Result<_>>()?;
    let ours = Ours::parse(&ours.finish()?)?;
    let latency = ours.latency(phase)?;
    let ping = others.iter().find(|(tool, _)| *tool == Tool::Ping);
    let met = ping.map(|(_, ping)| near(&latency, ping));
    row(case, "underload", &format!("{latency}{}", ours.doubt), goal, met);
    for (tool, latency) in &others {
        row(case, tool.name(), &latency.to_string(), "", None);
    }
    Ok(())
}
