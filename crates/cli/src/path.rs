//! `underload path`: which markings survive, where they change, and which queue the path has.
//!
//! `underload_line::path` tests the path and words the result.

use std::net::Ipv6Addr;
use std::path::PathBuf;

use anyhow::{anyhow, bail};
use clap::Args;
use underload_line::path::{Findings, PathTest};
use underload_line::target::{Target, resolve};
use underload_record::schema::Direction;
use underload_terminal::console::{self, note, warning};
use underload_terminal::exit::OrBadInput;
use underload_terminal::interrupt::Interrupt;

use crate::measure::{FamilyOptions, worded};

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
    /// How to verify the server: first-use, its fingerprint (sha256:...), or a PEM file with its
    /// certificate.
    #[arg(long, value_name = "TRUST", default_value = "first-use", hide_short_help = true)]
    trust: String,
    /// A file whose first line is a token for the server.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    family: FamilyOptions,
    /// Prints the result as one JSON document.
    #[arg(long)]
    json: bool,
}

/// STAMP's UDP port (RFC 8762 section 4.1).
const STAMP_PORT: u16 = 862;
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let host = with_stamp_port(arguments);
    let target = resolve(&host, arguments.family.family()).or_bad_input()?;
    let interrupt = Interrupt::watch()?;
    interrupt.explain(examine_target(arguments, &target, &interrupt))
}

fn examine_target(
    arguments: &Arguments,
    target: &Target,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    let mut findings = Findings { host: target.name.clone(), ..Findings::default() };
    let test = arguments.test();
    let (stop, report) = (interrupt.shared(), &mut |text: &str| note!("{text}"));
    let mut failed = Vec::new();
    for family in target.families() {
        if interrupt.is_requested() {
            break;
        }
        match test.marks(&family, report, &stop).map_err(worded) {
            Ok(marks) => findings.marks.push(marks),
            Err(error) => failed.push((family.addresses[0], error)),
        }
    }
    let mut end = None;
    if !arguments.stamp && !arguments.no_load && !interrupt.is_requested() {
        end = test.load(target, &mut findings, report, &stop).map_err(worded).err();
    }
    if end.is_none() && findings.marks.is_empty() && findings.directions.is_empty() {
        let first = (!failed.is_empty()).then(|| failed.remove(0).1);
        end = Some(first.unwrap_or_else(|| anyhow!("interrupted before any result")));
    }
    // The caller prints the error that ends the command.
    let last = end.as_ref().map(|error| format!("{error:#}"));
    for (address, error) in failed.iter().filter(|it| Some(format!("{:#}", it.1)) != last) {
        warning!("markings to {address}: {error:#}");
    }
    if let Some(error) = end {
        return Err(error);
    }
    findings.conclude(interrupt.is_requested());
    console::print_as(arguments.json, &findings, || findings.to_string())?;
    if findings.interrupted {
        bail!("interrupted; the results until then are above");
    }
    Ok(())
}

/// Returns HOST with STAMP's port if HOST has no port and is a STAMP reflector.
fn with_stamp_port(arguments: &Arguments) -> String {
    let host = &arguments.host;
    let is_v6 = host.parse::<Ipv6Addr>().is_ok();
    let has_port = !is_v6 && host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    match (arguments.stamp && !has_port, is_v6) {
        (false, _) => host.clone(),
        (true, true) => format!("[{host}]:{STAMP_PORT}"),
        (true, false) => format!("{host}:{STAMP_PORT}"),
    }
}

impl Arguments {
    fn test(&self) -> PathTest {
        PathTest {
            trust: self.trust.clone(),
            token_file: self.token_file.clone(),
            is_stamp: self.stamp,
            directions: match (self.up, self.down) {
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

    fn parsed(words: &[&str]) -> Arguments {
        CommandLine::try_parse_from([&["path"], words].concat()).unwrap().arguments
    }

    #[test]
    fn a_stamp_reflector_has_its_own_port() {
        let host = |words: &[&str]| with_stamp_port(&parsed(words));
        assert_eq!(host(&["a.example", "--stamp"]), "a.example:862");
        assert_eq!(host(&["a.example:99", "--stamp"]), "a.example:99");
        assert_eq!(host(&["2001:db8::1", "--stamp"]), "[2001:db8::1]:862");
        assert_eq!(host(&["[2001:db8::1]:99", "--stamp"]), "[2001:db8::1]:99");
        assert_eq!(host(&["192.0.2.1"]), "192.0.2.1");
    }

    #[test]
    fn directions_exclude_each_other() {
        assert!(CommandLine::try_parse_from(["path", "a", "--up", "--down"]).is_err());
        assert!(CommandLine::try_parse_from(["path"]).is_err());
    }
}
