//! The size of the agent's program, and its memory while it measures.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::process::{Running, output, peak_kib, succeed, target};

pub const NAME: &str = "fleet-agent-size";
pub const WHAT: &str = "bytes of underload-agent, stripped, and its memory while it measures";

const PLAN: &str = include_str!("agent_size.toml");
/// Runs after which the peak memory is read.
const RUNS: usize = 3;

/// Builds the agent as it is installed, and prints its size.
fn build() -> anyhow::Result<PathBuf> {
    let build = ["build", "--locked", "--profile", "dist", "--package", "underload-agent"];
    succeed(Command::new("cargo").args(build))?;
    let agent = target().join("dist/underload-agent");
    let bytes = fs::metadata(&agent).with_context(|| agent.display().to_string())?.len();
    println!("program, stripped: {:.1} MiB", bytes as f64 / f64::from(1 << 20));
    Ok(agent)
}

/// Prints the size of the agent, and its memory while it measures.
pub fn run(_: &[&str]) -> anyhow::Result<()> {
    let agent = fs::canonicalize(build()?)?;
    let programs = ["--package", "underload", "--package", "underload-fleet-cli"];
    succeed(Command::new("cargo").arg("build").args(programs))?;
    let folder = std::env::temp_dir().join(format!("underload-size-{}", std::process::id()));
    fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
    let measured = measure(&agent, &folder);
    let _ = fs::remove_dir_all(&folder);
    measured
}

fn measure(agent: &Path, folder: &Path) -> anyhow::Result<()> {
    let program = fs::canonicalize("target/debug/underload")?;
    let underload = |arguments: &str| -> Command {
        let mut command = Command::new(&program);
        command.current_dir(folder).env("XDG_DATA_HOME", folder);
        command.args(arguments.split_whitespace()).stderr(Stdio::null());
        command
    };
    let (_orchestrator, said) = Running::with_first_line(underload(
        "fleet orchestrator --store sqlite:store --listen 127.0.0.1:0",
    ))?;
    let url = said.strip_prefix("listening ").context("the orchestrator's address")?.to_owned();
    let reach = format!("--orchestrator {url} --token store/admin.token");
    fs::write(folder.join("plan.toml"), PLAN)?;
    succeed(underload(&format!("fleet plan apply plan.toml {reach}")).stdout(Stdio::null()))?;
    let code = |what: &str| -> anyhow::Result<String> {
        let code = output(&mut underload(&format!("fleet code {what} {reach}")))?;
        Ok(code.trim().to_owned())
    };
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let at = format!("--bind 127.0.0.1 --port {port} --public 127.0.0.1:{port} --name east");
    let capacity = "--capacity-up 1gbit --capacity-down 1gbit";
    let server = format!("serve {at} {capacity} --fleet {url} --enrol {}", code("--server")?);
    let _server = Running::with_first_line(underload(&server))?;
    let mut command = Command::new(agent);
    command.args(["--orchestrator", &url, "--enrol", &code("")?, "--interface", "none"]);
    command.args(["--start-within", "0", "--tier-up", "35", "--tier-down", "800", "--state"]);
    command.arg(folder.join("agent-state")).stderr(Stdio::piped());
    let mut agent = Running(command.spawn()?);
    let words = agent.0.stderr.take().context("what the agent says")?;
    let runs = BufReader::new(words).lines().map_while(Result::ok);
    let runs: Vec<String> = runs.filter(|line| line.starts_with("run ")).take(RUNS).collect();
    let most = peak_kib(&agent.0).context("the agent's memory")?;
    if runs.len() < RUNS {
        bail!("the agent ended: {runs:?}");
    }
    for run in &runs {
        println!("{run}");
    }
    println!("memory, the most over {RUNS} runs: {:.1} MiB", most as f64 / 1024.0);
    Ok(())
}
