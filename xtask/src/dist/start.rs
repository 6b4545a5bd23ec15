//! Every program that was built does a real job once, here or in an emulator of its machine.
//!
//! That a program links says little: a static one may crash in its second thread, lack a system
//! call or a time zone. So the whole program simulates, serves, and measures to itself with the
//! measuring one, the program of fleets is an orchestrator, and the agent enrols there.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};

use super::{Built, Program, Target};

/// What programs of a target run in.
#[derive(Debug, Clone)]
pub enum Runner {
    /// This machine.
    Here,
    /// An emulator of that name.
    Emulator(&'static str),
    /// Nothing; the emulator of that name would do.
    Nothing(&'static str),
}

impl Runner {
    /// What there is for a target.
    pub fn of(target: Target) -> Self {
        if std::env::consts::OS == "linux" && std::env::consts::ARCH == target.machine {
            return Self::Here;
        }
        let emulator = target.emulator;
        let found = Command::new(emulator).arg("--version").stdout(Stdio::null()).status();
        if found.is_ok() { Self::Emulator(emulator) } else { Self::Nothing(emulator) }
    }

    /// A command that runs a program, with its files in `folder`; `None` where nothing does.
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

/// A program that ends with this one.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts all programs of one target; what each did, in words, in their order.
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
        job.of(built).with_context(|| built.path.display().to_string())
    };
    let outcome = built.iter().map(ran).collect();
    let _ = fs::remove_dir_all(&folder);
    outcome
}

/// Something to do for a program.
struct Job<'a> {
    runner: &'a Runner,
    folder: &'a Path,
    whole: &'a Path,
    fleet: &'a Path,
}

impl Job<'_> {
    fn of(&self, built: &Built) -> anyhow::Result<String> {
        let version = self.said(&built.path, &["--version"])?;
        if !version.starts_with("underload") || !version.contains(env!("CARGO_PKG_VERSION")) {
            bail!("--version says {version:?}");
        }
        let (place, is_emulated) = match self.runner {
            Runner::Emulator(emulator) => (format!("in {emulator}"), true),
            _ => ("here".to_owned(), false),
        };
        // An emulator of programs has no times of arrival, without which nothing is measured.
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

    /// A simulated run leaves a record and a report.
    fn simulates(&self, program: &Path) -> anyhow::Result<()> {
        let out = self.fresh("simulated");
        let run = ["run", "home/cable", "--world", "sim", "--short", "--out"];
        let mut words: Vec<OsString> = run.iter().map(Into::into).collect();
        words.push(out.clone().into());
        self.said(program, &words)?;
        has_files(&out)
    }

    /// A second of load through a server on loopback leaves a record and a report.
    fn measures(&self, program: &Path) -> anyhow::Result<()> {
        let mut serve = self.command(self.whole)?;
        serve.args(["serve", "--port", "0", "--bind", "127.0.0.1"]);
        let (_server, said) = started(serve)?;
        let words: Vec<&str> = said.split_whitespace().collect();
        let ["listening", address, "udp", _, fingerprint] = words.as_slice() else {
            bail!("serve says {said:?}");
        };
        let out = self.fresh("measured");
        let measure = [
            "measure",
            address,
            "--trust",
            fingerprint,
            "--up",
            "--duration",
            "1s",
            "--idle",
            "500ms",
            "--out",
        ];
        let mut words: Vec<OsString> = measure.iter().map(Into::into).collect();
        words.push(out.clone().into());
        let mut command = self.command(program)?;
        let output = command.args(&words).output().context("measure")?;
        // On a machine that emulates another a step may be too late to be valid; it was measured.
        let told = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() && !told.contains("no step is valid") {
            bail!("measure: {}: {told}", output.status);
        }
        has_files(&out)
    }

    /// An orchestrator that runs, its address, and a code that it made for a device.
    fn orchestrates(&self) -> anyhow::Result<(Running, String, String)> {
        let mut orchestrator = self.command(self.fleet)?;
        orchestrator.args(["orchestrator", "--listen", "127.0.0.1:0", "--store"]);
        let store = self.fresh("store");
        orchestrator.arg(format!("sqlite:{}", store.display()));
        let (orchestrator, said) = started(orchestrator)?;
        let url = said.strip_prefix("listening ").with_context(|| said.clone())?.to_owned();
        let token = store.join("admin.token").display().to_string();
        let code = self.said(self.fleet, &["code", "--orchestrator", &url, "--token", &token])?;
        Ok((orchestrator, url, code.trim().to_owned()))
    }

    /// A code of an orchestrator makes it a device, which asks for its plan.
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

    /// A name that nothing has yet.
    fn fresh(&self, name: &str) -> PathBuf {
        let number = fs::read_dir(self.folder).map_or(0, Iterator::count);
        self.folder.join(format!("{name}-{number}"))
    }

    /// What it prints, once it has ended well.
    fn said<S: AsRef<std::ffi::OsStr>>(
        &self,
        program: &Path,
        words: &[S],
    ) -> anyhow::Result<String> {
        let mut command = self.command(program)?;
        let output = command.args(words).output().with_context(|| format!("{command:?}"))?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            bail!("{command:?}: {}: {told}", output.status);
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A run directory that is complete.
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

/// Starts it and waits for the first line that it prints.
fn started(mut command: Command) -> anyhow::Result<(Running, String)> {
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = Running(command.spawn().with_context(|| format!("{command:?}"))?);
    let mut line = String::new();
    let out = child.0.stdout.take().context("its output")?;
    BufReader::new(out).read_line(&mut line)?;
    Ok((child, line.trim().to_owned()))
}
