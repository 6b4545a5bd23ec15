//! The effects of a path on packets: the tests of `underload_probe::path`, in sessions at a server,
//! and their results in words.

mod text;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use underload_probe::control::{Ask, ConnectOptions, Remote, in_full};
use underload_probe::load::Token;
use underload_probe::measure::Progress;
use underload_probe::network::current_network;
use underload_probe::path::{
    Examination, ExamineConfig, HopChange, HopTrace, MarkSurvey, Part, PolicyFinding, TRACED_MAX,
    advice, examine, policies, survey_marks, trace_hops,
};
use underload_record::schema::{Direction, Ecn, Marking};

use crate::connect::{connect, read_token, trust};
use crate::error::LineError;
use crate::target::Target;

/// The results of a test; its text is a table and sentences.
#[derive(Debug, Default, Serialize)]
pub struct Findings {
    pub host: String,
    pub marks: Vec<FamilyMarks>,
    pub directions: Vec<Examination>,
    pub advice: Vec<String>,
    pub interrupted: bool,
    /// Addresses to which the markings could not be tested.
    #[serde(skip)]
    pub failed: Vec<(SocketAddr, LineError)>,
}

/// Markings over one address family.
#[derive(Debug, Serialize)]
pub struct FamilyMarks {
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

/// Requested rate of a session for markings alone, bit/s.
const MARKS_RATE: u64 = 1_000_000;
/// Longest time that markings and hops of an address family take.
const MARKS_DURATION: Duration = Duration::from_secs(15);

/// What to test, and how to reach the server.
#[derive(Debug)]
pub struct PathTest {
    /// `first-use`, a fingerprint, or the path of a certificate.
    pub trust: String,
    pub token_file: Option<PathBuf>,
    /// Whether the target is a STAMP reflector, which has no sessions.
    pub is_stamp: bool,
    /// The directions to load; empty to test only markings and hops.
    pub directions: Vec<Direction>,
    pub congestion_control: String,
    /// Whether UDP exceeds the path's rate.
    pub overload: bool,
    /// Whether loads with DSCP 45 and DSCP 0 compete.
    pub treatment: bool,
}

impl PathTest {
    /// Requests a session with `rate`, or with all that the server grants.
    fn connect(
        &self,
        target: &Target,
        rate: Option<u64>,
        duration: Duration,
        stop: &Arc<AtomicBool>,
    ) -> Result<Remote, LineError> {
        let token = self.token_file.as_deref().map(read_token).transpose()?;
        let ask = Ask { up_bit_per_s: rate, down_bit_per_s: rate, duration };
        let (trust, network) = (trust(&self.trust)?, current_network());
        let options = ConnectOptions { trust, token, ask, network, cancel: Arc::clone(stop) };
        connect(target, &options)
    }

    /// Tests the path to every address family of a target, until `stop` is set.
    ///
    /// # Errors
    /// Returns an error if the path cannot be loaded, or if there is no result.
    pub fn run(
        &self,
        target: &Target,
        report: &mut dyn FnMut(&str),
        stop: &Arc<AtomicBool>,
    ) -> Result<Findings, LineError> {
        let is_stopped = || stop.load(Ordering::Relaxed);
        let mut findings = Findings { host: target.name.clone(), ..Findings::default() };
        for family in target.families() {
            if is_stopped() {
                break;
            }
            match self.marks(&family, report, stop) {
                Ok(marks) => findings.marks.push(marks),
                Err(error) => findings.failed.push((family.addresses[0], error)),
            }
        }
        if !self.directions.is_empty() && !is_stopped() {
            self.load(target, &mut findings, report, stop)?;
        }
        if findings.marks.is_empty() && findings.directions.is_empty() {
            let first = findings.failed.into_iter().next();
            return Err(first.map_or(LineError::Interrupted, |(_, error)| error));
        }
        let surveys: Vec<&MarkSurvey> = findings.marks.iter().map(|marks| &marks.survey).collect();
        findings.advice = advice(&surveys, &findings.directions);
        findings.interrupted = is_stopped();
        Ok(findings)
    }

    /// Tests markings and hops over one address family.
    fn marks(
        &self,
        target: &Target,
        report: &mut dyn FnMut(&str),
        stop: &Arc<AtomicBool>,
    ) -> Result<FamilyMarks, LineError> {
        // The reflector answers only during a session.
        let connect = || self.connect(target, Some(MARKS_RATE), MARKS_DURATION, stop);
        let session = (!self.is_stamp).then(connect).transpose()?;
        let reflector = session.as_ref().map_or(target.addresses[0], |it| it.endpoints().reflector);
        report(&format!("markings to {reflector}"));
        let survey = survey_marks(socket_towards(reflector)?, reflector)?;
        report(&format!("hops to {reflector}"));
        let (hops, hops_missing) = match trace_hops(reflector, &worth_tracing(&survey)) {
            Ok(hops) => (Some(hops), None),
            Err(error) => (None, Some(in_full(&error))),
        };
        let changes = hops.as_ref().map_or_else(Vec::new, |trace| {
            (0..trace.markings.len()).map(|index| trace.first_change(index)).collect()
        });
        let policies = policies(&survey, &changes);
        Ok(FamilyMarks { target: reflector, survey, hops, hops_missing, changes, policies })
    }

    /// Loads each direction and adds what the probes show to `findings`.
    fn load(
        &self,
        target: &Target,
        findings: &mut Findings,
        report: &mut dyn FnMut(&str),
        stop: &Arc<AtomicBool>,
    ) -> Result<(), LineError> {
        let mut config = ExamineConfig {
            direction: Direction::Up,
            congestion_control: self.congestion_control.clone(),
            overload: self.overload,
            treatment: self.treatment,
            rate_max_bit_per_s: 0,
            token: Token([0; 16]),
        };
        let duration = config.duration() * self.directions.len() as u32;
        let mut remote = self.connect(target, None, duration, stop)?;
        let granted = remote.granted;
        config.token = remote.token();
        for direction in self.directions.iter().copied() {
            config.direction = direction;
            config.rate_max_bit_per_s = match direction {
                Direction::Up => granted.up_bit_per_s,
                Direction::Down => granted.down_bit_per_s,
            };
            let mut last = None;
            let progress = &mut |part: Part, progress: Progress| {
                if last.replace((part, progress.phase)) != Some((part, progress.phase)) {
                    let (part, phase) = (text::part_name(part), progress.phase);
                    report(&format!("{direction}: {part}, {phase}"));
                }
            };
            let mut examined = examine(&config, remote.endpoints(), progress, stop)
                .map_err(|source| LineError::Loading { direction, source })?;
            let news = remote.news();
            let is_throttled = match direction {
                Direction::Up => news.throttled_up,
                Direction::Down => news.throttled_down,
            };
            examined.hold_against_grant(config.rate_max_bit_per_s, is_throttled);
            findings.directions.push(examined);
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }
}

/// Binds a socket of the target's address family.
fn socket_towards(target: SocketAddr) -> Result<UdpSocket, LineError> {
    let bound = match target {
        SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)),
    };
    bound.map_err(LineError::Socket)
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
