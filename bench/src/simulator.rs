//! The simulator's speed compared with ns-3's, and its cost per packet and flow by number of flows.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::numbers::median;
use crate::process::{output, succeed, target};

pub const NAME: &str = "simulator";
pub const WHAT: &str = "delivered packets per CPU second beside ns-3, cost by number of flows";

/// A dumbbell of long CUBIC flows; round trip 40 ms.
struct Dumbbell {
    mbit: u32,
    flows: u32,
    seconds: u32,
    /// Time that ns-3 simulates: its rate per CPU second needs no longer runs.
    peer_seconds: u32,
}

const DUMBBELLS: [Dumbbell; 3] = [
    Dumbbell { mbit: 100, flows: 10, seconds: 60, peer_seconds: 10 },
    Dumbbell { mbit: 1_000, flows: 50, seconds: 10, peer_seconds: 2 },
    Dumbbell { mbit: 1_000, flows: 200, seconds: 10, peer_seconds: 2 },
];
const RTT_MS: u32 = 40;
/// underload's name of each discipline, and ns-3's if ns-3 has it.
const QUEUES: [(&str, Option<&str>); 8] = [
    ("fifo", Some("fifo")),
    ("codel:profile=linux", Some("codel")),
    ("pie:profile=linux", Some("pie")),
    ("bode", None),
    ("fq-codel", Some("fq-codel")),
    ("dualpi2", None),
    ("docsis-lld", None),
    ("cake", None),
];
const FLOW_COUNTS: [u32; 5] = [1, 10, 100, 1_000, 10_000];
/// Interleaved runs of underload, of which the median is shown.
const ROUNDS: usize = 5;

/// Without arguments, prints all tables; with arguments, makes the one run that they describe.
pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let target = &target();
    let build =
        ["build", "--quiet", "--profile=bench", "-p", "underload-sim", "--example", "dumbbell"];
    succeed(Command::new("cargo").args(build))?;
    let program = target.join("release/examples/dumbbell");
    if !arguments.is_empty() {
        return succeed(Command::new(program).args(arguments));
    }
    let peer = match build_peer(target) {
        Ok(peer) => Some(peer),
        Err(reason) => {
            crate::process::skip("ns-3", &format!("{reason:#}"));
            None
        }
    };
    beside_peer(&program, peer.as_deref())?;
    by_algorithm(&program)?;
    by_flows(&program)
}

/// Compiles the program for ns-3, if its headers and libraries are installed.
fn build_peer(target: &Path) -> anyhow::Result<PathBuf> {
    const MODULES: [&str; 6] = [
        "ns3-core", "ns3-network", "ns3-internet", "ns3-point-to-point", "ns3-applications",
        "ns3-traffic-control",
    ];
    let folder = target.join("peers");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let program = folder.join("ns3_dumbbell");
    let mut compile = Command::new("g++");
    compile.args(["-O2", "-std=c++17", "bench/peers/ns3_dumbbell.cc", "-o"]).arg(&program);
    // Without the libraries that ns-3 itself needs: their headers may be missing.
    for question in ["--cflags", "--libs-only-L", "--libs-only-l"] {
        let mut ask = Command::new("pkg-config");
        let answer = ask.arg(question).args(MODULES).output().context("pkg-config")?;
        if !answer.status.success() {
            bail!("not installed (on Debian: libns3-dev)");
        }
        compile.args(String::from_utf8_lossy(&answer.stdout).split_whitespace());
    }
    succeed(&mut compile).context("compiling bench/peers/ns3_dumbbell.cc")?;
    Ok(program)
}

fn beside_peer(program: &Path, peer: Option<&Path>) -> anyhow::Result<()> {
    println!("delivered packets per CPU second, long CUBIC flows, {RTT_MS} ms");
    println!("{:<24}{:<22}{:>12}{:>12}{:>9}", "path", "queue", "underload", "ns-3", "ratio");
    for dumbbell in &DUMBBELLS {
        let Dumbbell { mbit, flows, seconds, peer_seconds } = *dumbbell;
        let mut ours = vec![Vec::new(); QUEUES.len()];
        for _ in 0..ROUNDS {
            for (rates, (queue, _)) in ours.iter_mut().zip(QUEUES) {
                rates.push(measure(program, queue, mbit, flows, seconds)?.per_cpu_second());
            }
        }
        for (rates, (queue, peer_queue)) in ours.into_iter().zip(QUEUES) {
            let ours = median(rates).context("no run")?;
            let (theirs, ratio) = match peer.zip(peer_queue) {
                Some((peer, peer_queue)) => {
                    let run = measure(peer, peer_queue, mbit, flows, peer_seconds)?;
                    let theirs = run.per_cpu_second();
                    (format!("{theirs:.0}"), format!("{:.0}x", ours / theirs))
                }
                None => ("-".to_owned(), "-".to_owned()),
            };
            let path = format!("{mbit} Mbit/s, {flows} flows");
            println!("{path:<24}{queue:<22}{ours:>12.0}{theirs:>12}{ratio:>9}");
        }
    }
    println!("median of {ROUNDS} interleaved runs; ns-3 once\n");
    Ok(())
}

/// Compares paced senders with one that is not paced.
fn by_algorithm(program: &Path) -> anyhow::Result<()> {
    const ALGORITHMS: [&str; 3] = ["cubic", "prague", "bbr"];
    println!("delivered packets per CPU second by congestion control, {RTT_MS} ms");
    println!(
        "{:<24}{:<12}{:>12}{:>12}{:>8}{:>12}{:>8}",
        "path", "queue", "CUBIC", "Prague", "ratio", "BBR", "ratio"
    );
    for Dumbbell { mbit, flows, seconds, .. } in DUMBBELLS {
        for queue in ["fifo", "dualpi2"] {
            let mut rates = [const { Vec::new() }; ALGORITHMS.len()];
            for _ in 0..ROUNDS {
                for (rates, algorithm) in rates.iter_mut().zip(ALGORITHMS) {
                    let mut command = dumbbell(program, queue, mbit, flows, seconds);
                    rates.push(measured(command.arg(algorithm))?.per_cpu_second());
                }
            }
            let [cubic, prague, bbr] = rates.map(|rates| median(rates).unwrap_or(f64::NAN));
            let path = format!("{mbit} Mbit/s, {flows} flows");
            println!(
                "{path:<24}{queue:<12}{cubic:>12.0}{prague:>12.0}{:>7.2}x{bbr:>12.0}{:>7.2}x",
                prague / cubic,
                bbr / cubic,
            );
        }
    }
    println!("median of {ROUNDS} interleaved runs\n");
    Ok(())
}

fn by_flows(program: &Path) -> anyhow::Result<()> {
    const MBIT: u32 = 1_000;
    const SECONDS: u32 = 10;
    println!("cost by number of flows, {MBIT} Mbit/s, {RTT_MS} ms, {SECONDS} s");
    println!(
        "{:<12}{:>8}{:>12}{:>10}{:>14}{:>8}{:>14}",
        "queue", "flows", "ns/packet", "dropped", "ns/offered", "x", "KiB per flow"
    );
    for queue in ["fifo", "fq-codel"] {
        let mut costs = vec![Vec::new(); FLOW_COUNTS.len()];
        for _ in 0..ROUNDS {
            for (costs, flows) in costs.iter_mut().zip(FLOW_COUNTS) {
                costs.push(measure(program, queue, MBIT, flows, SECONDS)?);
            }
        }
        let (mut single, mut single_kib) = (f64::NAN, f64::NAN);
        for (runs, flows) in costs.into_iter().zip(FLOW_COUNTS) {
            let per_packet =
                median(runs.iter().map(|run| 1e9 / run.per_cpu_second())).context("no run")?;
            let last = runs.last().context("no run")?;
            let offered_share = last.delivered / (last.delivered + last.drops);
            let per_offered = per_packet * offered_share;
            let memory_kib = last.memory_kib;
            if flows == 1 {
                (single, single_kib) = (per_offered, memory_kib);
            }
            let added = f64::from(flows - 1).max(1.0);
            println!(
                "{queue:<12}{flows:>8}{per_packet:>12.0}{:>9.0}%{per_offered:>14.0}{:>7.1}x\
                 {:>14.1}",
                100.0 * (1.0 - offered_share),
                per_offered / single,
                (memory_kib - single_kib) / added,
            );
        }
    }
    println!(
        "median of {ROUNDS} interleaved runs; x: cost per packet offered to the queue, against one \
         flow; memory: peak of the process beyond that with one flow"
    );
    Ok(())
}

#[derive(Clone, Copy)]
struct Measured {
    delivered: f64,
    drops: f64,
    cpu_seconds: f64,
    /// Peak of the whole process; 0 if the program does not print it.
    memory_kib: f64,
}

impl Measured {
    fn per_cpu_second(&self) -> f64 {
        self.delivered / self.cpu_seconds
    }
}

fn dumbbell(program: &Path, queue: &str, mbit: u32, flows: u32, seconds: u32) -> Command {
    let mut command = Command::new(program);
    command.arg(queue).args([mbit, RTT_MS, flows, seconds].map(|number| number.to_string()));
    command
}

fn measure(
    program: &Path,
    queue: &str,
    mbit: u32,
    flows: u32,
    seconds: u32,
) -> anyhow::Result<Measured> {
    measured(&mut dumbbell(program, queue, mbit, flows, seconds))
}

fn measured(command: &mut Command) -> anyhow::Result<Measured> {
    let text = output(command)?;
    let fields: BTreeMap<_, _> =
        text.split_whitespace().filter_map(|word| word.split_once('=')).collect();
    let number = |name: &str| -> anyhow::Result<f64> {
        let value = fields.get(name).with_context(|| format!("{command:?}: no `{name}`"))?;
        value.parse().with_context(|| format!("{command:?}: {name}={value}"))
    };
    Ok(Measured {
        delivered: number("delivered")?,
        drops: number("drops")?,
        cpu_seconds: number("cpu")?,
        memory_kib: number("rss_mib").map_or(0.0, |mib| mib * 1_024.0),
    })
}
