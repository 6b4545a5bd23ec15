//! `underload path`: which markings survive, where they change, and which queue the path has.
//!
//! - [`mod@print`]: the result as a table and in plain words.

mod print;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use serde::Serialize;
use underload_line::connect::{connect, trust};
use underload_line::target::{Target, resolve};
use underload_probe::control::{Ask, ConnectOptions, Remote};
use underload_probe::measure::Progress;
use underload_probe::network::current_network;
use underload_probe::path::{
    Examination, ExamineConfig, HopChange, HopTrace, HopsError, MarkSurvey, Part, PolicyFinding,
    TRACED_MAX, advice, examine, policies, survey_marks, trace_hops,
};
use underload_record::schema::{Direction, Ecn, Marking};
use underload_terminal::console::{self, note, warning};
use underload_terminal::exit::OrBadInput;
use underload_terminal::home;
use underload_terminal::interrupt::Interrupt;
use underload_terminal::quantity::rate;

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
    /// Tests only queue and treatment, without markings and hops.
    #[arg(long, conflicts_with_all = ["no_load", "stamp"], hide_short_help = true)]
    no_marks: bool,
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
    /// Highest rate of the UDP load, which is also requested from the server [default: the granted
    /// rate].
    #[arg(long, value_name = "RATE", value_parser = rate, hide_short_help = true)]
    rate_max: Option<u64>,
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

#[derive(Debug, Default, Serialize)]
struct Findings {
    host: String,
    marks: Vec<FamilyMarks>,
    directions: Vec<Examination>,
    advice: Vec<String>,
    interrupted: bool,
}

/// Markings over one address family.
#[derive(Debug, Serialize)]
struct FamilyMarks {
    target: SocketAddr,
    survey: MarkSurvey,
    hops: Option<HopTrace>,
    /// Why `hops` is `None`.
    hops_missing: Option<String>,
    /// The hop that changes each traced marking.
    changes: Vec<Option<HopChange>>,
    /// The treatment of markings in each direction.
    policies: Vec<PolicyFinding>,
}

/// STAMP's UDP port (RFC 8762 section 4.1).
const STAMP_PORT: u16 = 862;
/// Requested rate of a session for markings alone, bit/s.
const MARKS_RATE: u64 = 1_000_000;
/// Longest time that markings and hops of an address family take.
const MARKS_DURATION: Duration = Duration::from_secs(15);

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
    let loads = !arguments.stamp && !arguments.no_load;
    let mut failed = Vec::new();
    for family in target.families() {
        if arguments.no_marks || interrupt.is_requested() {
            break;
        }
        match arguments.marks(&family, interrupt) {
            Ok(marks) => findings.marks.push(marks),
            Err(error) => failed.push((family.addresses[0], error)),
        }
    }
    let mut end = None;
    if loads && !interrupt.is_requested() {
        end = arguments.load(target, interrupt, &mut findings).err();
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
    let surveys: Vec<&MarkSurvey> = findings.marks.iter().map(|marks| &marks.survey).collect();
    findings.advice = advice(&surveys, &findings.directions);
    findings.interrupted = interrupt.is_requested();
    if arguments.json {
        console::print_json(&findings)?;
    } else {
        console::print(&print::text(&findings)?)?;
    }
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
    /// Requests a session with `rate`, or with all that the server grants.
    fn connect(
        &self,
        target: &Target,
        rate: Option<u64>,
        duration: Duration,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Remote> {
        let token = self.token_file.as_deref().map(home::secret_line).transpose()?;
        let ask = Ask { up_bit_per_s: rate, down_bit_per_s: rate, duration };
        let trust = trust(&self.trust).map_err(worded)?;
        let (network, cancel) = (current_network(), interrupt.shared());
        let options = ConnectOptions { trust, token, ask, network, cancel };
        connect(target, &options).map_err(worded)
    }

    /// Tests markings and hops over one address family.
    fn marks(&self, target: &Target, interrupt: &Interrupt) -> anyhow::Result<FamilyMarks> {
        // The reflector answers only during a session.
        let connect = || self.connect(target, Some(MARKS_RATE), MARKS_DURATION, interrupt);
        let session = (!self.stamp).then(connect).transpose()?;
        let reflector = session.as_ref().map_or(target.addresses[0], |it| it.endpoints().reflector);
        note!("markings to {reflector}");
        let survey = survey_marks(socket_towards(reflector)?, reflector)?;
        note!("hops to {reflector}");
        let (hops, hops_missing) = match trace_hops(reflector, &worth_tracing(&survey)) {
            Ok(hops) => (Some(hops), None),
            Err(error @ HopsError::Privilege) => (None, Some(error.to_string())),
            Err(error) => (None, Some(format!("{:#}", anyhow::Error::from(error)))),
        };
        let changes = hops.as_ref().map_or_else(Vec::new, |trace| {
            (0..trace.markings.len()).map(|index| trace.first_change(index)).collect()
        });
        let policies = policies(&survey, &changes);
        Ok(FamilyMarks { target: reflector, survey, hops, hops_missing, changes, policies })
    }

    fn load(
        &self,
        target: &Target,
        interrupt: &Interrupt,
        findings: &mut Findings,
    ) -> anyhow::Result<()> {
        let directions: &[Direction] = match (self.up, self.down) {
            (true, _) => &[Direction::Up],
            (_, true) => &[Direction::Down],
            _ => &[Direction::Up, Direction::Down],
        };
        let mut config = ExamineConfig {
            direction: Direction::Up,
            congestion_control: self.congestion_control.clone(),
            overload: !self.no_overload,
            treatment: !self.no_treatment,
            rate_max_bit_per_s: 0,
            token: underload_probe::load::Token([0; 16]),
        };
        let duration = config.duration() * directions.len() as u32;
        let mut remote = self.connect(target, self.rate_max, duration, interrupt)?;
        let granted = remote.granted;
        config.token = remote.token();
        for direction in directions {
            config.direction = *direction;
            let granted_bit_per_s = match direction {
                Direction::Up => granted.up_bit_per_s,
                Direction::Down => granted.down_bit_per_s,
            };
            let wanted = self.rate_max.unwrap_or(granted_bit_per_s);
            config.rate_max_bit_per_s = wanted.min(granted_bit_per_s);
            let mut last = None;
            let report = &mut |part: Part, progress: Progress| {
                if last.replace((part, progress.phase)) != Some((part, progress.phase)) {
                    note!("{direction}: {}, {}", print::part_name(part), progress.phase);
                }
            };
            let examined = examine(&config, remote.endpoints(), report, interrupt.flag());
            let mut examined = examined.with_context(|| format!("loading {direction}"))?;
            let news = remote.news();
            let is_throttled = match direction {
                Direction::Up => news.throttled_up,
                Direction::Down => news.throttled_down,
            };
            examined.hold_against_grant(granted_bit_per_s, is_throttled);
            findings.directions.push(examined);
            if interrupt.is_requested() {
                break;
            }
        }
        Ok(())
    }
}

/// Binds a socket of the target's address family.
fn socket_towards(target: SocketAddr) -> anyhow::Result<UdpSocket> {
    let bound = match target {
        SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)),
    };
    bound.context("opening a UDP socket")
}

/// Returns the markings to trace: the one of L4S and NQB, and those that changed on the way up.
fn worth_tracing(survey: &MarkSurvey) -> Vec<Marking> {
    let mut markings = vec![Marking { dscp: 45, ecn: Ecn::Ect1 }];
    let damaged = survey.rows.iter().filter(|row| row.answered > 0 && row.up.is_damage());
    for row in damaged {
        if markings.len() < TRACED_MAX && !markings.contains(&row.sent) {
            markings.push(row.sent);
        }
    }
    markings
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
