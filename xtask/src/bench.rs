//! The benchmarks behind the numbers in the docs, by name.

use std::process::Command;

use anyhow::bail;

use crate::cargo::succeed;
use crate::{agent_size, measure, python, simulator, sweep, varying_links, web};

struct Bench {
    name: &'static str,
    what: &'static str,
    task: Task,
}

enum Task {
    /// Package, example, and the example's arguments.
    Example(&'static str, &'static str, &'static [&'static str]),
    /// Arguments of Cargo, separated by spaces.
    Cargo(&'static str),
    Ours(fn(&[&str]) -> anyhow::Result<()>),
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "queues",
        what: "nanoseconds per packet of every discipline beside a plain ring buffer",
        task: Task::Cargo("bench --package underload-aqm --bench queues -- --table"),
    },
    Bench {
        name: "emulator",
        what: "TCP through the emulator as fast as it goes, with its lateness",
        task: Task::Example("underload-emu", "throughput", &[]),
    },
    Bench {
        name: "punctuality",
        what: "added delay and lateness of the emulator, idle and with every core busy",
        task: Task::Example("underload-emu", "punctuality", &[]),
    },
    Bench {
        name: "emulator-io",
        what: "TUN, packet socket and packet ring as ways into the kernel",
        task: Task::Example("underload-emu", "io_comparison", &[]),
    },
    Bench {
        name: "service",
        what: "memory and descriptors of the server over 10^4 sessions, kills and 10^5 forgeries",
        task: Task::Example("underload-service", "service_soak", &[]),
    },
    Bench {
        name: "coupling",
        what: "Prague beside CUBIC through Low Latency DOCSIS, DOCSIS-PIE awake and asleep",
        task: Task::Example("underload-sim", "coupling", &[]),
    },
    Bench {
        name: "followed-lines",
        what: "`shape auto` on ten simulated lines that vary, beside an oracle and a fixed rate",
        task: Task::Example("underload-shape", "followed_lines", &[]),
    },
    Bench {
        name: "followed-live",
        what: "followed lines that have steps, in a guest kernel with CAKE, beside the simulator",
        task: Task::Cargo(
            "test --package underload --test shape -- --nocapture --ignored courses_in_a_guest",
        ),
    },
    Bench {
        name: "shape-auto",
        what: "processor time of `shape auto` on a line of 100 Mbit/s, in namespaces (as root)",
        task: Task::Cargo(
            "test --release --package underload --test shape -- --nocapture --ignored following_a",
        ),
    },
    Bench {
        name: "shape-kills",
        what: "what kills, a full disk and lost devices leave of commands that shape (root)",
        task: Task::Cargo(
            "test --package underload --test shape -- --nocapture --ignored ten_kills other_f",
        ),
    },
    Bench {
        name: "shape-own",
        what: "what `shape apply --engine own` carries, and its processor time (root)",
        task: Task::Cargo(
            "test --release --package underload --test shape -- --nocapture --ignored as_fast",
        ),
    },
    Bench {
        name: "where",
        what: "in which segment of a path 500 simulated queues are, by `measure --where`",
        task: Task::Cargo(
            "test --package underload-measure --lib -- --nocapture --ignored five_hundred_places",
        ),
    },
    Bench {
        name: "kernel",
        what: "the simulator beside the Linux kernel's own queue disciplines",
        task: Task::Example("underload-sim", "kernel_20mbit", &[]),
    },
    Bench {
        name: "fleet-coverage",
        what: "how often the intervals of 500 studies of cohorts hold what was planted",
        task: Task::Example("underload-record", "coverage", &[]),
    },
    Bench {
        name: "fleet-kill",
        what: "kill -9 of every part of a fleet for two minutes, and the account of its runs",
        task: Task::Cargo(
            "test --package underload-fleet-cli --test kill -- --nocapture --test-threads=1 \
             --ignored two_minutes",
        ),
    },
    Bench {
        name: "fleet-papers",
        what: "both papers' plans with simulated lines, through orchestrator and SQLite, into DIR",
        task: Task::Example("underload-fleet-cli", "papers_fleet", &[]),
    },
    Bench {
        name: "fleet-admission",
        what: "runs that PostgreSQL admits and takes back, beside two plain statements",
        task: Task::Example("underload-orchestrator", "fleet_admission", &[]),
    },
    Bench {
        name: "fleet-study-size",
        what: "a study's questions over many millions of stored series",
        task: Task::Example("underload-orchestrator", "fleet_study_size", &[]),
    },
    Bench {
        name: "fleet-uploads",
        what: "durable uploads over 256 TLS connections, beside bare axum and SQLite",
        task: Task::Example("underload-orchestrator", "fleet_load", &["uploads"]),
    },
    Bench {
        name: "fleet-steady",
        what: "what ten million devices ask of an orchestrator: processor and memory",
        task: Task::Example("underload-orchestrator", "fleet_load", &["steady"]),
    },
    Bench {
        name: "fleet-return",
        what: "100,000 agents that come back after an outage, and what was stored",
        task: Task::Example("underload-orchestrator", "fleet_load", &["return"]),
    },
    Bench { name: simulator::NAME, what: simulator::WHAT, task: Task::Ours(simulator::run) },
    Bench { name: sweep::NAME, what: sweep::WHAT, task: Task::Ours(sweep::run) },
    Bench { name: measure::NAME, what: measure::WHAT, task: Task::Ours(measure::run) },
    Bench {
        name: varying_links::NAME,
        what: varying_links::WHAT,
        task: Task::Ours(varying_links::run),
    },
    Bench { name: web::NAME, what: web::WHAT, task: Task::Ours(web::run) },
    Bench { name: agent_size::NAME, what: agent_size::WHAT, task: Task::Ours(agent_size::run) },
    Bench { name: python::NAME, what: python::WHAT, task: Task::Ours(python::compare) },
];

/// Runs the named benchmark with the other arguments.
pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let Some((name, rest)) = arguments.split_first() else {
        for bench in BENCHES {
            println!("{:<18}{}", bench.name, bench.what);
        }
        return Ok(());
    };
    let Some(bench) = BENCHES.iter().find(|bench| bench.name == *name) else {
        let known: Vec<_> = BENCHES.iter().map(|bench| bench.name).collect();
        bail!("there is no benchmark `{name}`; known: {}", known.join(", "));
    };
    let mut command = Command::new("cargo");
    match bench.task {
        Task::Ours(run) => return run(rest),
        Task::Cargo(arguments) => command.args(arguments.split(' ')),
        Task::Example(package, example, arguments) => command
            .args(["run", "--profile=bench", "-p", package, "--example", example, "--"])
            .args(arguments),
    };
    succeed(command.args(rest))
}
