//! Client, router and server as network namespaces, and processes in them.
//!
//! ```text
//! client -- 10.98.1.0/24 -- router -- 10.98.2.0/24 -- server     20 Mbit/s, 250 kB before the last
//!      \---------------- 10.98.3.0/24 ---------------/           nothing in between
//! ```
//!
//! The rate is that of `tbf`, which forwards a packet as soon as it has tokens: a delay behind it
//! lacks the 0.6 ms that 1500 bytes take at 20 Mbit/s, for every tool.

use std::cell::Cell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::process::{Running, fresh_folder, succeed};

/// The server's address behind the bottleneck.
pub const BOTTLENECK: &str = "10.98.2.2";
/// The server's address behind a plain veth.
pub const PLAIN: &str = "10.98.3.2";

/// Time limit of a client.
const LONGEST: Duration = Duration::from_mins(1);

const BUILD: &str = include_str!("build.sh");

const REMOVE: &str = include_str!("remove.sh");

/// The namespaces. They are removed when this is dropped, or when the process ends otherwise.
pub struct Lab {
    name: String,
    folder: PathBuf,
    remover: Child,
    paths: Cell<u32>,
}

impl Lab {
    /// Builds the namespaces. Output of programs goes to `folder`, which is emptied.
    pub fn build(folder: &Path) -> anyhow::Result<Self> {
        fresh_folder(folder)?;
        let name = format!("underload-{}", std::process::id());
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            for part in ["c", "r", "s"] {
                command.env(part, format!("{name}-{part}"));
            }
            command
        };
        let remover = shell(REMOVE).stdin(Stdio::piped()).spawn().context("sh")?;
        let lab =
            Self { folder: folder.to_path_buf(), remover, paths: Cell::new(0), name: name.clone() };
        succeed(shell(BUILD).stdin(Stdio::null()))
            .context("building the network namespaces; this needs root, ip, tc and ethtool")?;
        Ok(lab)
    }

    pub fn new_path(&self) -> PathBuf {
        self.paths.set(self.paths.get() + 1);
        self.folder.join(self.paths.get().to_string())
    }

    pub fn at_client(&self, program: &Path, line: &str) -> anyhow::Result<Started> {
        self.start("c", program, line)
    }

    pub fn at_server(&self, program: &Path, line: &str) -> anyhow::Result<Started> {
        self.start("s", program, line)
    }

    fn start(&self, part: &str, program: &Path, line: &str) -> anyhow::Result<Started> {
        let output = self.new_path().with_extension("out");
        let file = File::create(&output).with_context(|| output.display().to_string())?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{}-{part}", self.name)]);
        command.arg(program).args(line.split_whitespace());
        // A separate home, so that fingerprints and certificates do not mix with others.
        command.env("HOME", &self.folder).env_remove("XDG_DATA_HOME");
        let errors = output.with_extension("err");
        let errors_to = File::create(&errors).with_context(|| errors.display().to_string())?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors_to);
        let child = Running(command.spawn().with_context(|| format!("{command:?}"))?);
        Ok(Started { line: format!("{} {line}", program.display()), child, output, errors })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        drop(self.remover.stdin.take());
        if let Err(error) = self.remover.wait() {
            eprintln!("removing the namespaces {}-*: {error}", self.name);
        }
    }
}

pub struct Started {
    line: String,
    child: Running,
    output: PathBuf,
    errors: PathBuf,
}

impl Started {
    /// Waits until the program writes `words` to standard error.
    pub fn wait_for(&mut self, words: &str) -> anyhow::Result<()> {
        let start = Instant::now();
        while !fs::read_to_string(&self.errors)?.contains(words) {
            if self.child.0.try_wait()?.is_some() || start.elapsed() > LONGEST {
                bail!("`{}` never printed `{words}`: {}", self.line, self.complaint());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Waits for the end of the program and returns its output.
    pub fn finish(mut self) -> anyhow::Result<String> {
        let start = Instant::now();
        while self.child.0.try_wait()?.is_none() {
            if start.elapsed() > LONGEST {
                bail!("`{}` took longer than {} s", self.line, LONGEST.as_secs());
            }
            thread::sleep(Duration::from_millis(10));
        }
        let output = fs::read_to_string(&self.output)?;
        if output.is_empty() {
            bail!("`{}` printed nothing: {}", self.line, self.complaint());
        }
        Ok(output)
    }

    fn complaint(&self) -> String {
        fs::read_to_string(&self.errors).unwrap_or_default()
    }
}
