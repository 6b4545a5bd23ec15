//! The benchmarks behind the numbers in the docs, by name.

use std::process::Command;

use anyhow::bail;

use crate::checks::succeed;
use crate::{agent_size, measure, python, sim_live, simulator, sweep, varying_links, web};

struct Bench {
    name: &'static str,
    what: &'static str,
    command: &'static [&'static str],
}

const FLEET_UPLOADS: &[&str] = &fleet_load("uploads");
const FLEET_STEADY: &[&str] = &fleet_load("steady");
const FLEET_RETURN: &[&str] = &fleet_load("return");

const fn fleet_load(what: &'static str) -> [&'static str; 8] {
    [
        "run",
        "--profile=bench",
        "-p",
        "underload-orchestrator",
        "--example",
        "fleet_load",
        "--",
        what,
    ]
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "queues",
        what: "nanoseconds per packet of every discipline beside a plain ring buffer",
        command: &["bench", "--package", "underload-aqm", "--bench", "queues", "--", "--table"],
    },
    Bench {
        name: "emulator",
        what: "TCP through the emulator as fast as it goes, with its lateness",
        command: &[
            "run",
            "--profile=bench",
            "-p",
            "underload-emu",
            "--example",
            "throughput",
            "--",
        ],
    },
    Bench {
        name: "punctuality",
        what: "added delay and lateness of the emulator, idle and with every core busy",
        command: &[
            "run",
            "--profile=bench",
            "-p",
            "underload-emu",
            "--example",
            "punctuality",
            "--",
        ],
    },
    Bench {
        name: "emulator-io",
        what: "TUN, packet socket and packet ring as ways into the kernel",
        command: &[
            "run",
            "--profile=bench",
            "-p",
            "underload-emu",
            "--example",
            "io_comparison",
            "--",
        ],
    },
    Bench {
        name: "service",
        what: "memory and descriptors of the server over 10^4 sessions, kills and 10^5 forgeries",
        command: &[
            "run",
            "--profile=bench",
            "-p",
            "underload-service",
            "--example",
            "service_soak",
            "--",
        ],
    },
    Bench {
        name: "coupling",
        what: "Prague beside CUBIC through Low Latency DOCSIS, DOCSIS-PIE awake and asleep",
        command: &["run", "--profile=bench", "-p", "underload-sim", "--example", "coupling", "--"],
    },
    Bench {
        name: "kernel",
        what: "the simulator beside the Linux kernel's own queue disciplines",
        command: &[
            "run",
            "--profile=bench",
            "-p",
            "underload-sim",
            "--example",
            "kernel_20mbit",
            "--",
        ],
    },
    Bench {
        name: "fleet-coverage",
        what: "how often the intervals of 500 studies of cohorts hold what was planted",
        command: &[
            "run",
            "--profile=bench",
            "-p",
            "underload-record",
            "--example",
            "coverage",
            "--",
        ],
    },
    Bench {
        name: "fleet-kill",
        what: "kill -9 of every part of a fleet for two minutes, and the account of its runs",
        command: &[
            "test",
            "--package",
            "underload-fleet-cli",
            "--test",
            "kill",
            "--",
            "--nocapture",
            "--test-threads=1",
            "--ignored",
            "two_minutes",
        ],
    },
    Bench {
        name: "fleet-papers",
        what: "both papers' plans with simulated lines, through orchestrator and SQLite, into DIR",
        command: &[
            "run",
            "--profile=bench",
            "-p",
            "underload-fleet-cli",
            "--example",
            "papers_fleet",
            "--",
        ],
    },
    Bench {
        name: "fleet-admission",
        what: "runs that PostgreSQL admits and takes back, beside two plain statements",
        command: &[
            "run",
            "--profile=bench",
            "-p",
            "underload-orchestrator",
            "--example",
            "fleet_admission",
            "--",
        ],
    },
    Bench {
        name: "fleet-study-size",
        what: "a study's questions over many millions of stored series",
        command: &[
            "run",
            "--profile=bench",
            "-p",
            "underload-orchestrator",
            "--example",
            "fleet_study_size",
            "--",
        ],
    },
    Bench {
        name: "fleet-uploads",
        what: "durable uploads over 256 TLS connections, beside bare axum and SQLite",
        command: FLEET_UPLOADS,
    },
    Bench {
        name: "fleet-steady",
        what: "what ten million devices ask of an orchestrator: processor and memory",
        command: FLEET_STEADY,
    },
    Bench {
        name: "fleet-return",
        what: "100,000 agents that come back after an outage, and what was stored",
        command: FLEET_RETURN,
    },
];

/// Runs the benchmark that is named first, with the other arguments for it.
pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let Some((name, rest)) = arguments.split_first() else {
        for bench in BENCHES {
            println!("{:<18}{}", bench.name, bench.what);
        }
        println!("{:<18}{}", simulator::NAME, simulator::WHAT);
        println!("{:<18}{}", sweep::NAME, sweep::WHAT);
        println!("{:<18}{}", measure::NAME, measure::WHAT);
        println!("{:<18}{}", sim_live::NAME, sim_live::WHAT);
        println!("{:<18}{}", varying_links::NAME, varying_links::WHAT);
        println!("{:<18}{}", web::NAME, web::WHAT);
        println!("{:<18}{}", agent_size::NAME, agent_size::WHAT);
        println!("{:<18}{}", python::NAME, python::WHAT);
        return Ok(());
    };
    match *name {
        simulator::NAME => return simulator::run(rest),
        sweep::NAME => return sweep::run(rest),
        measure::NAME => return measure::run(rest),
        sim_live::NAME => return sim_live::run(rest),
        varying_links::NAME => return varying_links::run(rest),
        web::NAME => return web::run(rest),
        agent_size::NAME => return agent_size::run(rest),
        python::NAME => return python::compare(rest),
        _ => {}
    }
    let Some(bench) = BENCHES.iter().find(|bench| bench.name == *name) else {
        let known: Vec<_> = BENCHES.iter().map(|bench| bench.name).collect();
        let known = known.join(", ");
        let more = [
            simulator::NAME,
            sweep::NAME,
            measure::NAME,
            sim_live::NAME,
            varying_links::NAME,
            web::NAME,
            agent_size::NAME,
            python::NAME,
        ];
        bail!("there is no benchmark `{name}`; known: {known}, {}", more.join(", "));
    };
    succeed(Command::new("cargo").args(bench.command).args(rest))
}
