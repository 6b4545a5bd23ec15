//! `underload link`: runs a command behind an emulated link, as Mahimahi's shells do.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use underload_aqm::config::{Kind, Spec, Value};
use underload_aqm::registry::LinkSetup;
use underload_aqm::time::Span;
use underload_emu::command::LinkCommand;
use underload_emu::gateway::{GatewayConfig, LaneConfig};
use underload_emu::machine::privilege;
use underload_record::schema::{BottleneckSummary, Distribution};
use underload_scenario::modem_file;
use underload_scenario::source::{Source, load_file};
use underload_scenario::{Lane, Scenario, ScenarioErrors};
use underload_terminal::console::{self, note};
use underload_terminal::exit::{OrBadInput, refuse};
use underload_terminal::quantity::from_to;

#[derive(Debug, Args)]
#[command(after_help = "\
The command has one network interface, and reaches the host and the internet through the link.
$UNDERLOAD_BASE (and $MAHIMAHI_BASE) is the outer address. Calls nest: the links add up. Without a
command, $SHELL runs. Exit status: that of the command; 128 + N if signal N ended it; 127 if it does
not exist, 126 if it cannot be executed. Signals are passed on to the command. If you are root, the
command has all of root's rights.

Examples:
  underload link --up 10mbit --up-queue docsis-pie --delay 10ms -- iperf3 -c HOST
  underload link --down trace:cell.down,profile=mahimahi --down-queue head-drop:limit=100p -- bash
  underload link --config comcast/upstream --variant docsis-pie-35
  underload link --up 10mbit --json -- ./upload.sh | jq '.links[0].sojourn.p99_ns'
  underload link --up 5mbit -- underload link --delay 20ms -- ping HOST")]
pub struct Arguments {
    /// The link from the command to the host, such as 10mbit.
    #[arg(long, value_name = "SPEC", default_value = "unlimited")]
    up: String,
    /// The link from the host to the command.
    #[arg(long, value_name = "SPEC", default_value = "unlimited")]
    down: String,
    /// The queue in front of the up link.
    #[arg(long, value_name = "SPEC", default_value = "fifo")]
    up_queue: String,
    /// The queue in front of the down link.
    #[arg(long, value_name = "SPEC", default_value = "fifo")]
    down_queue: String,
    /// Delay that is added to the links in each direction, such as 10ms.
    #[arg(long, value_name = "TIME", default_value = "0ms",
        value_parser = from_to("0ms", "60s"))]
    delay: Duration,
    /// Writes uplink.log and downlink.log, for Mahimahi's graph scripts, and samples.csv to DIR.
    #[arg(long, value_name = "DIR")]
    log: Option<PathBuf>,
    /// Takes the links from a scenario: a file, the name of a built-in one, or a file with only
    /// `[path]`.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["up", "down", "up_queue", "down_queue", "delay"]
    )]
    config: Option<String>,
    /// The variant of that scenario.
    #[arg(long = "variant", value_name = "NAME", requires = "config")]
    variant: Option<String>,
    /// Prints one JSON document at the end: the command, its exit status, and the counts of each
    /// link. The command's stdout goes to stderr.
    #[arg(long)]
    json: bool,
    /// Seed of the queues' and links' random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The command with its arguments [default: a shell].
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let [up, down] = arguments.lanes()?;
    if let Some(lane) = [&up, &down].into_iter().find(|lane| lane.link.users().is_some()) {
        refuse!("{}: only `underload run` has users of one radio", lane.link.label);
    }
    let mut gateway = GatewayConfig::new(up, down);
    gateway.seed = arguments.seed;
    // Before any thread starts: only a process with a single thread can enter a user namespace.
    let privilege = privilege::enter_with_internet()?;
    let (words, log) = (arguments.command(), arguments.log.clone());
    let command = LinkCommand { gateway, command: words, log, keeps_stdout: arguments.json };
    let mut note = |text: &str| note!("underload link: {text}");
    let outcome = match command.run(privilege, &mut note) {
        Ok(outcome) => outcome,
        Err(error) => {
            let Some(status) = error.exit_status() else { return Err(error.into()) };
            console::say_error(&error.into());
            return Ok(ExitCode::from(status));
        }
    };
    let signal = outcome.status.signal().map(|signal| 128 + signal);
    let code = u8::try_from(outcome.status.code().or(signal).unwrap_or(1)).unwrap_or(1);
    if arguments.json {
        console::print_json(&Document {
            command: command.command.iter().map(|word| word.to_string_lossy()).collect(),
            exit_status: code,
            signal: outcome.status.signal(),
            duration_s: outcome.elapsed.as_secs_f64(),
            links: outcome.report.whole(),
            lateness: outcome.report.lateness(),
        })?;
    }
    // A failure of the command is more important than a failure of its logs.
    match outcome.log_failure {
        Some(failure) if code == 0 => Err(failure.into()),
        Some(failure) => {
            console::say_error(&failure.into());
            Ok(ExitCode::from(code))
        }
        None => Ok(ExitCode::from(code)),
    }
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    command: Vec<Cow<'a, str>>,
    /// Exit status of this program: see `docs/link.md`.
    exit_status: u8,
    /// The number of the signal that ended the command.
    signal: Option<i32>,
    duration_s: f64,
    /// Both directions, up first.
    links: Vec<BottleneckSummary>,
    /// How late packets left because no processor was free.
    lateness: Option<Distribution>,
}

impl Arguments {
    /// Returns the command, or else a shell.
    fn command(&self) -> Vec<OsString> {
        if !self.command.is_empty() {
            return self.command.clone();
        }
        let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
        let shell = shell.unwrap_or_else(|| "/bin/sh".into());
        note!("underload link: {} behind the link; `exit` ends both", shell.display());
        vec![shell]
    }

    /// Returns the links, up and down.
    fn lanes(&self) -> anyhow::Result<[LaneConfig; 2]> {
        let Some(config) = &self.config else {
            let delay = Span::from_nanos(self.delay.as_nanos() as u64);
            return Ok([
                lane("up", &self.up, &self.up_queue, delay)?,
                lane("down", &self.down, &self.down_queue, delay)?,
            ]);
        };
        let source = Source::find(config).or_bad_input()?;
        let load = &mut |file: &str| load_file(&source.name, file);
        let path = Scenario::read_path(&source.text, &source.name, self.variant.as_deref(), load);
        let path = path.map_err(|error| ScenarioErrors(vec![error])).or_bad_input()?;
        let lane = |direction: &str, lanes: Vec<Lane>| {
            let Ok([lane]) = <[Lane; 1]>::try_from(lanes) else {
                refuse!(
                    "{config}: {direction}: has several links in a row; nest calls of \
                     `underload link` instead"
                )
            };
            let Some(queue) = lane.queue.known().cloned() else {
                refuse!("{config}: {}: only Python runs this queue", lane.queue.label())
            };
            let link = if lane.is_wide {
                delayed("unlimited", lane.link.delay).or_bad_input()?
            } else {
                lane.link
            };
            Ok(LaneConfig { link, queue })
        };
        Ok([lane("up", path.up)?, lane("down", path.down)?])
    }
}

fn lane(direction: &str, link: &str, queue: &str, delay: Span) -> anyhow::Result<LaneConfig> {
    let link = delayed(link, delay).with_context(|| format!("--{direction}")).or_bad_input()?;
    let queue = modem_file::queue_of(queue, &link.facts());
    let queue = queue.with_context(|| format!("--{direction}-queue")).or_bad_input()?;
    Ok(LaneConfig { link, queue })
}

/// Returns the link with `more` delay, which its SPEC includes.
fn delayed(text: &str, more: Span) -> anyhow::Result<LinkSetup> {
    let mut spec = Spec::parse(text)?;
    if more > Span::ZERO {
        match spec.items.iter_mut().find(|item| item.key.as_deref() == Some("delay")) {
            None => spec = spec.with("delay", &more.to_string()),
            // A delay that cannot be parsed is refused below.
            Some(own) => {
                if let Some(Value::Span(span)) = Kind::Span.read(&own.value) {
                    own.value = (span + more).to_string();
                }
            }
        }
    }
    Ok(modem_file::link_of(&spec.to_string())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_named_with_all_of_its_delay() {
        let ten = Span::from_millis(10);
        for (text, label) in [
            ("20mbit", "20mbit:delay=10ms"),
            ("20mbit:delay=5ms,loss=1%", "20mbit:delay=15ms,loss=1%"),
            ("unlimited", "unlimited:delay=10ms"),
        ] {
            let link = delayed(text, ten).expect(text);
            assert_eq!(link.label.to_string(), label);
            let again = LinkSetup::parse(label).expect(label);
            assert_eq!((link.delay, link.meaning()), (again.delay, again.meaning()));
        }
        assert_eq!(delayed("20mbit", Span::ZERO).expect("plain").label.to_string(), "20mbit");
        let error = delayed("20mbit:delay=5", ten).expect_err("no unit").to_string();
        assert!(error.contains("delay=5`"), "{error}");
    }
}
