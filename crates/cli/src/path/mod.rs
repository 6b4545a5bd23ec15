//! `underload path`: which markings survive, where they change, and which queue is in the way.
//!
//! - [`mod@print`]: the result as a table and in plain words.

mod print;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use serde::Serialize;
use underload_probe::control::{Ask, ConnectOptions, Remote};
use underload_probe::network::current_network;
use underload_probe::path::{
    Examination, ExamineConfig, HopChange, HopTrace, HopsError, MarkSurvey, Part, PolicyFinding,
    TRACED_MAX, advice, examine, policies, survey_marks, trace_hops,
};
use underload_record::schema::{Direction, Ecn, Marking, Phase};
use underload_terminal::console::{note, warning};
use underload_terminal::exit::OrBadInput;
use underload_terminal::home;
use underload_terminal::interrupt::Interrupt;

use crate::quantity::rate;
use underload_line::session::{connect, trust};
use underload_line::target::{Family, Target, resolve};

/// The command line of `underload path`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[command(after_help = "\
Marks: packets with every ECN codepoint and DSCP 45, 40, 46, 56, 8 and 0 go there and back, over
IPv4 and IPv6; the answers tell what arrived. Hops: what routers quote of such packets (root or
CAP_NET_RAW). Queue: TCP, then UDP at 1.4 times its rate, while probes of four classes measure; the
kind of queue is decided by likelihood, or said not to be known. Treatment: loads with DSCP 45 and
DSCP 0 compete. About 40 s per direction.

Examples:
  underload path example.net --token-file token
  underload path example.net --no-load
  underload path 192.0.2.1:862 --stamp
  underload path example.net --up --congestion-control bbr --json")]
pub struct Arguments {
    /// The server: a name or an address, with its port if it is another than 4862 (862 for STAMP).
    host: String,
    /// HOST is any STAMP reflector that knows Class of Service: only markings and hops.
    #[arg(long)]
    stamp: bool,
    /// Only markings and hops.
    #[arg(long)]
    no_load: bool,
    /// Only the loads: no markings and hops.
    #[arg(long, conflicts_with_all = ["no_load", "stamp"])]
    no_marks: bool,
    /// Loads only the way up.
    #[arg(long, conflicts_with = "down")]
    up: bool,
    /// Loads only the way down.
    #[arg(long)]
    down: bool,
    /// Leaves out UDP above the line's rate; the queue is then known less surely.
    #[arg(long)]
    no_overload: bool,
    /// Leaves out the comparison of loads with DSCP 45 and DSCP 0.
    #[arg(long)]
    no_treatment: bool,
    /// Congestion control of the TCP flows, at both ends.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion_control: String,
    /// No UDP load exceeds this; also what is declared to the server [default: what it grants].
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate_max: Option<u64>,
    /// Whom to believe: first-use, or the server's fingerprint (sha256:...).
    #[arg(long, value_name = "TRUST", default_value = "first-use")]
    trust: String,
    /// A file whose first line is the token that the server asks for.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Only over IPv4.
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Only over IPv6.
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Prints the result as one JSON document.
    #[arg(long)]
    json: bool,
}

/// Everything that was found.
#[derive(Debug, Default, Serialize)]
struct Findings {
    host: String,
    marks: Vec<FamilyMarks>,
    directions: Vec<Examination>,
    advice: Vec<String>,
    /// The user ended it early.
    interrupted: bool,
}

/// Markings over one address family.
#[derive(Debug, Serialize)]
struct FamilyMarks {
    target: SocketAddr,
    survey: MarkSurvey,
    hops: Option<HopTrace>,
    /// The reason why there are no hops.
    hops_missing: Option<String>,
    /// For each traced marking, the hop that changes it.
    changes: Vec<Option<HopChange>>,
    /// What each direction does to markings as a whole.
    policies: Vec<PolicyFinding>,
}

/// STAMP's UDP port (RFC 8762 section 4.1).
const STAMP_PORT: u16 = 862;
/// What a session for markings alone declares, bit/s.
const MARKS_RATE: u64 = 1_000_000;
/// Longest time that markings and hops of an address family take.
const MARKS_DURATION: Duration = Duration::from_secs(15);

/// Examines the path.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let host = with_stamp_port(arguments);
    let target = resolve(&host, arguments.family()).or_bad_input()?;
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
    let mut failed = None;
    for family in target.families() {
        if arguments.no_marks || interrupt.is_requested() {
            break;
        }
        match arguments.marks(&family, interrupt) {
            Ok(marks) => findings.marks.push(marks),
            Err(error) => {
                warning!("markings to {}: {error:#}", family.addresses[0]);
                failed.get_or_insert(error);
            }
        }
    }
    if loads && !interrupt.is_requested() {
        arguments.load(target, interrupt, &mut findings)?;
    }
    let surveys: Vec<&MarkSurvey> = findings.marks.iter().map(|marks| &marks.survey).collect();
    findings.advice = advice(&surveys, &findings.directions);
    findings.interrupted = interrupt.is_requested();
    if findings.marks.is_empty() && findings.directions.is_empty() {
        return Err(failed.unwrap_or_else(|| anyhow!("interrupted before anything was found")));
    }
    if arguments.json {
        print::json(&findings)?;
    } else {
        print::text(&findings)?;
    }
    if findings.interrupted {
        bail!("interrupted; what was found until then is above");
    }
    Ok(())
}

/// A plain name or address of a STAMP reflector means its own port, not that of `serve`.
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
    fn family(&self) -> Family {
        match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        }
    }

    /// Asks for a session; without a rate for as much as there is.
    fn connect(
        &self,
        target: &Target,
        rate: Option<u64>,
        duration: Duration,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Remote> {
        let token = self.token_file.as_deref().map(home::secret_line).transpose()?;
        let ask = Ask { up_bit_per_s: rate, down_bit_per_s: rate, duration };
        let trust = trust(&self.trust)?;
        let (network, cancel) = (current_network(), interrupt.shared());
        let options = ConnectOptions { trust, token, ask, network, cancel };
        connect(target, &options)
    }

    /// Markings and hops over one family.
    fn marks(&self, target: &Target, interrupt: &Interrupt) -> anyhow::Result<FamilyMarks> {
        // Held while the reflector is asked: it answers those who have a session.
        let session = if self.stamp {
            None
        } else {
            Some(self.connect(target, Some(MARKS_RATE), MARKS_DURATION, interrupt)?)
        };
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
        let granted = remote.granted();
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
            let mut tell = |part: Part, phase: Phase| {
                if last != Some((part, phase)) {
                    last = Some((part, phase));
                    note!("{direction}: {}, {phase}", print::part_name(part));
                }
            };
            let examined = examine(
                &config,
                remote.endpoints(),
                &mut |part, progress| tell(part, progress.phase),
                interrupt.flag(),
            );
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

/// Any port, in the family of the target.
fn socket_towards(target: SocketAddr) -> anyhow::Result<UdpSocket> {
    let bound = match target {
        SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)),
    };
    bound.context("opening a UDP socket")
}

/// What changed on the way up, and always what L4S and NQB depend on.
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
