//! `underload path`: which markings survive, where they change, and which queue the path has.
//!
//! `underload_line::path` tests the path and words the result.

use anyhow::bail;
use clap::Args;
use underload_compat::stamp::STAMP_PORT;
use underload_line::path::PathTest;
use underload_line::target::{Target, resolve};
use underload_probe::control::{SERVER_PORT, in_full};
use underload_record::schema::Direction;
use underload_terminal::console::{self, note, warning};
use underload_terminal::exit::OrBadInput;
use underload_terminal::interrupt::Interrupt;

use crate::measure::{ServerOptions, worded};

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "command-line switches")]
#[command(after_help = "\
Markings: packets with every ECN codepoint and DSCP 45, 40, 46, 56, 8 and 0 go to the server and
back, over IPv4 and IPv6; the answers report what arrived. Hops: routers quote such packets (needs
root or CAP_NET_RAW). Queue: TCP loads the path, then UDP at 1.4 times its rate, while probes of
four classes measure; the result is the likeliest kind of queue, or that it is unknown. Treatment:
loads with DSCP 45 and DSCP 0 compete. Takes about 40 s per direction.

Examples:
  underload path example.net --token-file token
  underload path example.net --no-load
  underload path 192.0.2.1:862 --stamp
  underload path example.net --up --congestion-control bbr --json")]
pub struct Arguments {
    /// The server: a name or an address, with :PORT unless it is 4862 (862 with --stamp).
    host: String,
    /// HOST is a STAMP reflector with Class of Service: tests only markings and hops.
    #[arg(long)]
    stamp: bool,
    /// Tests only markings and hops.
    #[arg(long)]
    no_load: bool,
    /// Loads only the upstream.
    #[arg(long, conflicts_with = "down")]
    up: bool,
    /// Loads only the downstream.
    #[arg(long)]
    down: bool,
    /// Skips UDP above the path's rate; the kind of queue is then less certain.
    #[arg(long, hide_short_help = true)]
    no_overload: bool,
    /// Skips the comparison of loads with DSCP 45 and DSCP 0.
    #[arg(long, hide_short_help = true)]
    no_treatment: bool,
    /// Congestion control of the TCP flows, at both ends.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion_control: String,
    #[command(flatten)]
    server: ServerOptions,
    /// Prints the result as one JSON document.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let port = if arguments.stamp { STAMP_PORT } else { SERVER_PORT };
    let target = resolve(&arguments.host, port, arguments.server.family.family()).or_bad_input()?;
    let interrupt = Interrupt::watch()?;
    interrupt.explain(test(arguments, &target, &interrupt))
}

fn test(arguments: &Arguments, target: &Target, interrupt: &Interrupt) -> anyhow::Result<()> {
    let report = &mut |text: &str| note!("{text}");
    let findings = arguments.test().run(target, report, &interrupt.shared()).map_err(worded)?;
    for (address, error) in &findings.failed {
        warning!("markings to {address}: {}", in_full(error));
    }
    console::print_as(arguments.json, &findings, || findings.to_string())?;
    if findings.interrupted {
        bail!("interrupted; the results until then are above");
    }
    Ok(())
}

impl Arguments {
    fn test(&self) -> PathTest {
        PathTest {
            trust: self.server.trust.clone(),
            token_file: self.server.token_file.clone(),
            is_stamp: self.stamp,
            directions: match (self.up, self.down) {
                _ if self.stamp || self.no_load => Vec::new(),
                (true, _) => vec![Direction::Up],
                (_, true) => vec![Direction::Down],
                _ => Direction::ALL.to_vec(),
            },
            congestion_control: self.congestion_control.clone(),
            overload: !self.no_overload,
            treatment: !self.no_treatment,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn up_and_down_exclude_each_other() {
        assert!(CommandLine::try_parse_from(["path", "a", "--up", "--down"]).is_err());
        assert!(CommandLine::try_parse_from(["path"]).is_err());
    }
}
