//! The connector of a rollout: a command or a web address that gives a line its file.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use underload_agent::Trust;
use underload_agent::client::Client;
use underload_fleet::rollout::RolloutPlan;
use underload_terminal::console::warning;
use underload_terminal::exit::OrBadInput;

/// Tries for a line, with a pause before the second one that is doubled before the third.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);
/// Longest time of a command, and interval at which its end is polled.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);

pub(super) enum Connector {
    Command(Vec<String>),
    /// A client of the host, and the path.
    Web(Box<Client>, String),
}

impl Connector {
    /// # Errors
    /// If the URL is plain HTTP to another machine, or no URL.
    pub(super) fn new(plan: &RolloutPlan) -> anyhow::Result<Self> {
        let url = &plan.url;
        if url.is_empty() {
            return Ok(Self::Command(plan.command.clone()));
        }
        let host = url.find("://").map_or(0, |at| at + 3);
        let (host, path) = url.split_at(url[host..].find('/').map_or(url.len(), |at| at + host));
        let address = host.parse().with_context(|| format!("url: `{url}`")).or_bad_input()?;
        Ok(Self::Web(Box::new(Client::new(vec![address], Trust::Authorities)?), path.to_owned()))
    }

    /// Returns whether the connector confirmed a line, at one of its tries.
    pub(super) fn send(&mut self, line: &str, document: &str) -> bool {
        (0..TRIES).any(|number| {
            sleep(PAUSE * number);
            let sent = match self {
                Self::Command(command) => run(command, document),
                Self::Web(client, path) => client.post(path, document).map_err(Into::into),
            };
            sent.inspect_err(|error| warning!("{line}: {error:#}")).is_ok()
        })
    }
}

/// Runs a command with the document on its stdin.
fn run(command: &[String], document: &str) -> anyhow::Result<()> {
    let (program, arguments) = command.split_first().context("no command")?;
    let mut process = Command::new(program);
    process.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = process.spawn().with_context(|| program.clone())?;
    if let Some(mut pipe) = child.stdin.take() {
        let document = document.to_owned();
        // A command that does not read blocks only this thread, which ends with the command. The exit
        // status decides, also of a command that closes its input.
        thread::spawn(move || {
            let _ = pipe.write_all(document.as_bytes());
        });
    }
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => bail!("{program}: {status}"),
            None if Instant::now() < deadline => sleep(POLL),
            None => {
                let _ = child.kill();
                child.wait()?;
                bail!("{program}: no end after {} s", TIMEOUT.as_secs());
            }
        }
    }
}
