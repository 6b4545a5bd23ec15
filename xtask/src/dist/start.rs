//! Runs a real job with every built program, here or in an emulator of its machine.
//!
//! A successful link proves little: a static program may crash in its second thread, lack a system
//! call or a time zone. So the whole program simulates, serves, and measures to itself with the
//! measuring one; the fleet program runs an orchestrator, and the agent enrols there.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::{Built, Program, Target};
use crate::process::{Running, first_line, output};

/// The way in which programs of a target are run.
#[derive(Debug, Clone)]
pub enum Runner {
    Here,
    Emulator(&'static str),
    /// The program runs neither here nor in an emulator; the emulator with this name would run it.
    Nothing(&'static str),
}

impl Runner {
    pub fn find(target: Target) -> Self {
        if std::env::consts::OS == "linux" && std::env::consts::ARCH == target.machine {
            return Self::Here;
        }
        let emulator = target.emulator;
        let found = Command::new(emulator).arg("--version").stdout(Stdio::null()).status();
        if found.is_ok() { Self::Emulator(emulator) } else { Self::Nothing(emulator) }
    }

    /// Returns a command that runs a program, with its files in `folder`; `None` without a runner.
    pub fn command(&self, program: &Path, folder: &Path) -> Option<Command> {
        let program = std::path::absolute(program).ok()?;
        let mut command = match self {
            Self::Here => Command::new(program),
            Self::Emulator(emulator) => {
                let mut command = Command::new(emulator);
                command.arg(program);
                command
            }
            Self::Nothing(_) => return None,
        };
        command.current_dir(folder).env("HOME", folder);
        command.env("XDG_DATA_HOME", folder).env("XDG_CACHE_HOME", folder);
        command.stdin(Stdio::null());
        Some(command)
    }
}

/// Starts all programs of one target, and returns their jobs in words.
pub fn all(built: &[Built], runner: &Runner) -> anyhow::Result<Vec<String>> {
    if let Runner::Nothing(emulator) = runner {
        let machine = built.first().map_or("", |it| it.target.machine);
        let reason = format!("no {emulator} (Debian: qemu-user-static)");
        crate::skips::report(&format!("starting {machine}"), &reason);
        return Ok(vec!["not started".to_owned(); built.len()]);
    }
    let folder = std::env::temp_dir().join(format!("underload-dist-{}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let of = |program: Program| built.iter().find(|it| it.program == program);
    let ran = |built: &Built| {
        let whole = of(Program::Whole).context("the whole program")?;
        let fleet = of(Program::Fleet).context("the program of fleets")?;
        let job = Job { runner, folder: &folder, whole: &whole.path, fleet: &fleet.path };
        job.run(built).with_context(|| built.path.display().to_string())
    };
    let outcome = built.iter().map(ran).collect();
    let _ = fs::remove_dir_all(&folder);
    outcome
}

struct Job<'a> {
    runner: &'a Runner,
    folder: &'a Path,
    whole: &'a Path,
    fleet: &'a Path,
}

impl Job<'_> {
    fn run(&self, built: &Built) -> anyhow::Result<String> {
        let version = self.said(&built.path, &["--version"])?;
        if !version.starts_with("underload") || !version.contains(env!("CARGO_PKG_VERSION")) {
            bail!("--version says {version:?}");
        }
        let (place, is_emulated) = match self.runner {
            Runner::Emulator(emulator) => (format!("in {emulator}"), true),
            _ => ("here".to_owned(), false),
        };
        // User-mode emulators have no arrival times, which measurements need.
        let jobs = match built.program {
            Program::Whole if is_emulated => {
                self.simulates(&built.path)?;
                "run"
            }
            Program::Whole => {
                self.simulates(&built.path)?;
                self.measures(&built.path)?;
                "run, serve, measure"
            }
            Program::Fleet => {
                self.orchestrates()?;
                "orchestrator, code"
            }
            Program::Measuring if is_emulated => "--version",
            Program::Measuring => {
                self.measures(&built.path)?;
                "measure"
            }
            Program::Agent => {
                self.enrols(&built.path)?;
                "enrolled"
            }
        };
        Ok(format!("{place}: {jobs}"))
    }

    /// Simulates a run, which must leave a record and a report.
    fn simulates(&self, program: &Path) -> anyhow::Result<()> {
        let out = self.fresh("simulated");
        let mut command = self.command(program)?;
        command.args(["run", "home/cable", "--world", "sim", "--short", "--out"]);
        output(command.arg(&out))?;
        has_files(&out)
    }

    /// Measures a second of load through a server on loopback, which must leave a record.
    fn measures(&self, program: &Path) -> anyhow::Result<()> {
        let mut serve = self.command(self.whole)?;
        serve.args(["serve", "--port", "0", "--bind", "127.0.0.1"]);
        let (_server, said) = first_line(serve)?;
        let words: Vec<&str> = said.split_whitespace().collect();
        let ["listening", address, "udp", _, fingerprint] = words.as_slice() else {
            bail!("serve says {said:?}");
        };
        let out = self.fresh("measured");
        let measure = format!("measure {address} --trust {fingerprint} --up --duration 1s");
        let mut command = self.command(program)?;
        command.args(measure.split(' ')).args(["--idle", "500ms", "--out"]).arg(&out);
        let output = command.output().context("measure")?;
        // On an emulated machine steps may be too late to be valid; they are recorded anyway.
        let errors = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() && !errors.contains("no step is valid") {
            bail!("measure: {}: {errors}", output.status);
        }
        has_files(&out)
    }

    /// Starts an orchestrator, and returns its address and a code for a device.
    fn orchestrates(&self) -> anyhow::Result<(Running, String, String)> {
        let mut orchestrator = self.command(self.fleet)?;
        orchestrator.args(["orchestrator", "--listen", "127.0.0.1:0", "--store"]);
        let store = self.fresh("store");
        orchestrator.arg(format!("sqlite:{}", store.display()));
        let (orchestrator, said) = first_line(orchestrator)?;
        let url = said.strip_prefix("listening ").with_context(|| said.clone())?.to_owned();
        let token = store.join("admin.token").display().to_string();
        let code = self.said(self.fleet, &["code", "--orchestrator", &url, "--token", &token])?;
        Ok((orchestrator, url, code.trim().to_owned()))
    }

    /// Enrols the agent at an orchestrator.
    fn enrols(&self, program: &Path) -> anyhow::Result<()> {
        let (_orchestrator, url, code) = self.orchestrates()?;
        let state = self.fresh("agent");
        let mut agent = self.command(program)?;
        agent.args(["--orchestrator", &url, "--enrol", &code, "--interface", "none"]);
        agent.args(["--start-within", "0", "--state"]).arg(&state).stderr(Stdio::piped());
        let mut agent = Running(agent.spawn()?);
        let words = agent.0.stderr.take().context("what the agent says")?;
        let first = BufReader::new(words).lines().next().context("the agent said nothing")??;
        if !first.starts_with("enrolled as ") {
            bail!("the agent says {first:?}");
        }
        Ok(())
    }

    fn command(&self, program: &Path) -> anyhow::Result<Command> {
        self.runner.command(program, self.folder).context("nothing runs it")
    }

    fn fresh(&self, name: &str) -> PathBuf {
        let number = fs::read_dir(self.folder).map_or(0, Iterator::count);
        self.folder.join(format!("{name}-{number}"))
    }

    /// Runs a program, which must succeed, and returns its output.
    fn said(&self, program: &Path, words: &[&str]) -> anyhow::Result<String> {
        output(self.command(program)?.args(words))
    }
}

/// Checks that a run directory is complete.
fn has_files(directory: &Path) -> anyhow::Result<()> {
    for name in ["run.json", "samples.parquet", "report.html"] {
        let path = directory.join(name);
        let bytes = fs::metadata(&path).with_context(|| path.display().to_string())?.len();
        if bytes == 0 {
            bail!("{}: empty", path.display());
        }
    }
    Ok(())
}
