//! TCP over links with varying rates, simulated and live: goodput and retransmissions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::process::{build_program, target};

pub const NAME: &str = "varying-links";
pub const WHAT: &str =
    "goodput and retransmissions over varying links, simulated against live (an hour)";

/// Links by name; for recorded ones the file name in the folder of traces.
const LINKS: [(&str, &str); 6] = [
    ("steps", "steps:0s=12mbit,20s=3mbit,22s=12mbit,26s=2mbit,28s=12mbit,repeat=30s"),
    ("lte-driving", "cellular:preset=lte-driving"),
    ("lte-stationary", "cellular:preset=lte-stationary"),
    ("subway", "cellular:preset=subway"),
    ("verizon-lte", "Verizon-LTE-short.down"),
    ("att-driving", "ATT-LTE-driving.down"),
];
const LIMITS: [&str; 3] = ["150kB", "750kB", "3000kB"];
const CONTROLS: [&str; 3] = ["cubic", "reno", "bbr"];

const SCENARIO: &str = include_str!("varying_links.toml");

/// Runs every cell whose name (`steps/3000kB/cubic`) contains one of the arguments, or all cells.
/// `--traces DIR` names the folder of unpacked Mahimahi recordings; without it their cells are
/// skipped.
pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let (traces, wanted) = match arguments {
        ["--traces", folder, rest @ ..] => (Some(Path::new(folder)), rest),
        rest => (None, rest),
    };
    if let Some(unknown) = wanted.iter().find(|wanted| wanted.starts_with('-')) {
        bail!("`bench {NAME}` takes `--traces DIR` first and parts of names, not `{unknown}`");
    }
    let bench = Bench { program: build_program()?, folder: target().join(NAME) };
    fs::create_dir_all(&bench.folder)?;
    fs::write(bench.scenario(), SCENARIO)?;
    println!("| cell | goodput sim | live | ratio | sent again sim | live | ratio | live trial |");
    println!("|---|---:|---:|---:|---:|---:|---:|---|");
    for (name, link) in LINKS {
        let Some(link) = link_spec(link, traces) else {
            let reason = format!("no recording {link}; name its folder with --traces");
            crate::process::skip(name, &reason);
            continue;
        };
        for limit in LIMITS {
            for control in CONTROLS {
                let cell = format!("{name}/{limit}/{control}");
                if wanted.is_empty() || wanted.iter().any(|wanted| cell.contains(wanted)) {
                    bench.compare(&cell, &link, limit, control)?;
                }
            }
        }
    }
    Ok(())
}

fn link_spec(link: &str, traces: Option<&Path>) -> Option<String> {
    if link.contains(':') {
        return Some(link.to_owned());
    }
    let file = std::path::absolute(traces?.join(link)).ok()?;
    file.is_file().then(|| format!("trace:{},profile=mahimahi", file.display()))
}

struct Bench {
    program: PathBuf,
    folder: PathBuf,
}

/// The results of a run's only flow.
struct Outcome {
    goodput: f64,
    again: f64,
    verdict: String,
}

impl Bench {
    fn scenario(&self) -> PathBuf {
        self.folder.join("scenario.toml")
    }

    fn compare(&self, cell: &str, link: &str, limit: &str, control: &str) -> anyhow::Result<()> {
        let outcome = |world| self.outcome(world, cell, link, limit, control);
        let (sim, live) = (outcome("sim")?, outcome("live")?);
        println!(
            "| {cell} | {:.2} | {:.2} | {:.3} | {} | {} | {:.2} | {} |",
            sim.goodput,
            live.goodput,
            sim.goodput / live.goodput,
            sim.again,
            live.again,
            sim.again / live.again,
            live.verdict
        );
        Ok(())
    }

    fn outcome(
        &self,
        world: &str,
        cell: &str,
        link: &str,
        limit: &str,
        control: &str,
    ) -> anyhow::Result<Outcome> {
        let out = self.folder.join(format!("{world}-{}", cell.replace('/', "-")));
        if out.exists() {
            fs::remove_dir_all(&out).with_context(|| format!("removing {}", out.display()))?;
        }
        let mut command = Command::new(&self.program);
        command.arg("run").arg(self.scenario()).args(["--world", world]);
        command.args(["--set", &format!("path.down={link}")]);
        command.args(["--set", &format!("path.down_queue=fifo:limit={limit}")]);
        command.args(["--set", &format!("flow.download.congestion_control={control}")]);
        command.arg("--out").arg(&out).stdout(Stdio::null()).stderr(Stdio::null());
        // A live trial on a busy machine is recorded as invalid, which the table shows.
        command.status().with_context(|| format!("{command:?}"))?;
        read(&out.join("run.json"))
    }
}

fn read(file: &Path) -> anyhow::Result<Outcome> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let record: Value = serde_json::from_str(&text)?;
    let trial = &record["trials"][0];
    let flows = trial["flows"].as_array().context("no flows in the record")?;
    let flow = flows.iter().find(|flow| flow["kind"] == "tcp").context("no TCP flow")?;
    let number = |key: &str| flow[key].as_f64().with_context(|| format!("the flow has no {key}"));
    Ok(Outcome {
        goodput: number("goodput_down_bit_per_s")? / 1e6,
        again: number("retransmits")?,
        verdict: trial["validity"]["verdict"].as_str().unwrap_or("?").to_owned(),
    })
}
