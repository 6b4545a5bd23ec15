//! A measurement through a session at `underload serve`: runs the preset's steps.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use underload_measure::{LocalRates, payload_within};
use underload_probe::RunClock;
use underload_probe::control::{
    Ask, ConnectOptions, Fingerprint, Remote, ServiceError, SessionNews, Trust,
};
use underload_probe::load::Token;
use underload_probe::measure::{self, Measurement, MeasurementConfig};
use underload_probe::network::{current_network, network_through};
use underload_probe::preset::{Step, session_duration};
use underload_record::schema::{ArmRecord, Finding};
use underload_store::RunDir;
use underload_terminal::exit::OrBadInput;
use underload_terminal::home;
use underload_terminal::interrupt::Interrupt;

use crate::local_load;
use crate::route::{FINDING_MAX, ProbedRoute, located, peer_address};
use crate::target::{Target, resolve};
use crate::{Plan, Request, Test, store_step};

pub trait Progress {
    /// Reports a sentence about the session, such as a server seen for the first time.
    fn note(&mut self, text: &str);
    fn start(&mut self, _steps: &[Step]) {}
    fn begin_step(&mut self, _step: &Step) {}
    /// Called several times per second while a step runs.
    fn update(&mut self, _progress: &measure::Progress) {}
    fn end_step(&mut self, _finding: &Finding) {}
    /// Called once, after the last step or an error.
    fn close(&mut self) {}
}

/// A granted session and the steps to measure in it.
pub struct Session<'a> {
    request: &'a Request,
    remote: Remote,
    steps: Vec<Step>,
    /// Hops to probe beside the load; `None` without `--where`.
    route: Option<ProbedRoute>,
    /// Rates of the local network when it alone was loaded; empty without a peer that runs a
    /// server.
    local: LocalRates,
    /// When the session's time is over.
    ends: Instant,
    /// Sentences about what differs from the request.
    notes: Vec<String>,
    progress: &'a mut dyn Progress,
}

impl<'a> Session<'a> {
    /// Requests a session at the server that is long enough for the preset.
    ///
    /// # Errors
    /// Returns an error if the host has no address, nothing answers there, the server is not
    /// trusted, or it grants no session.
    pub fn open(
        request: &'a Request,
        progress: &'a mut dyn Progress,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Session<'a>> {
        let target = resolve(&request.host, request.family).or_bad_input()?;
        // Before the session begins, so that the server does not wait for it.
        let local = local_load::measure(request, progress, interrupt);
        let steps = request.preset.steps(&request.knobs, Token([0; 16]));
        let peer = request.locate.as_ref().and_then(|it| it.peer.as_deref());
        let peer = peer.map(peer_address).transpose()?;
        let finding = request.locate.as_ref().map_or(Duration::ZERO, |_| FINDING_MAX);
        let (least, again) = (session_duration(&steps) + finding, repetition_time(&steps));
        let mut asked = options(request, least.saturating_add(again), interrupt)?;
        let asked_at = Instant::now();
        // Some servers and tokens give less time, or have none left; then no step is repeated.
        let remote = match connect(&target, &asked) {
            Err(error) if is_turned_away(&error) => {
                asked.ask.duration = least;
                connect_or_wait(&target, &asked, request.wait, progress, interrupt)
            }
            connected => connected,
        }?;
        let (fingerprint, is_new) = remote.identity();
        if is_new && request.trust == FIRST_USE {
            progress.note(&format!("{}: seen for the first time, key {fingerprint}", target.name));
        }
        let mut steps = request.preset.steps(&request.knobs, remote.token());
        let mut notes = Vec::new();
        keep_to_markings(&mut steps, remote.granted().dscp_allowed, &mut notes);
        for note in &notes {
            progress.note(note);
        }
        let route = match &request.locate {
            Some(_) => {
                progress.note("finding the hops on the path");
                let reflector = remote.endpoints().reflector;
                Some(ProbedRoute::find(request, peer, reflector)?)
            }
            None => None,
        };
        let ends = asked_at + asked.ask.duration;
        Ok(Self { request, remote, steps, route, local, ends, notes, progress })
    }

    /// Returns the configuration of a step whose load ends with the bytes that earlier steps left.
    fn within_budget(&self, step: &Step, findings: &[Finding]) -> MeasurementConfig {
        let moved: u64 = findings.iter().map(|finding| finding.moved_bytes).sum();
        let left = self.request.bytes_max.map(|max| max.saturating_sub(moved));
        let load_bytes_max = left.map(|bytes| payload_within(bytes, &step.config));
        MeasurementConfig { load_bytes_max, ..step.config.clone() }
    }

    fn measure_steps(
        &mut self,
        directory: &mut RunDir,
        findings: &mut Vec<Finding>,
        interrupt: &Interrupt,
    ) -> anyhow::Result<()> {
        let mut can_repeat = true;
        for index in 0..self.steps.len() {
            if interrupt.is_requested() {
                break;
            }
            let step = self.steps[index].clone();
            let Some(mut found) = self.measure_step(&step, findings, interrupt)? else { break };
            let is_time_left = Instant::now() + session_duration(&self.steps[index..]) <= self.ends;
            if found.finding.uncertain && can_repeat && is_time_left {
                can_repeat = false;
                self.progress.note(&format!(
                    "step {}: this machine was too busy ({}); once more, with half the probes",
                    step.name,
                    found.finding.invalid_because.join("; ")
                ));
                found = self.repeat(step, found, findings, interrupt);
            }
            self.progress.end_step(&found.finding);
            findings.push(store_step(found, directory)?);
            if let Some(reason) = &self.remote.news().ended {
                bail!("the server ended the session: {reason}");
            }
        }
        Ok(())
    }

    /// Measures a step; `None` if interrupted.
    fn measure_step(
        &mut self,
        step: &Step,
        findings: &[Finding],
        interrupt: &Interrupt,
    ) -> anyhow::Result<Option<underload_measure::Step>> {
        self.progress.begin_step(step);
        let (config, clock) = (self.within_budget(step, findings), RunClock::start());
        let echoes = self.route.as_ref().map(|route| route.start(clock)).transpose()?;
        let measured = Measurement::run(
            &config,
            self.remote.endpoints(),
            clock,
            &mut |progress| self.progress.update(&progress),
            interrupt.flag(),
        );
        let news = self.remote.news().clone();
        let measured = measured.map_err(|error| {
            with_reason(&news, error.into()).context(format!("step {}", step.name))
        })?;
        if measured.cancelled {
            return Ok(None);
        }
        let found = underload_measure::step(step, measured, self.request.tier, &news);
        Ok(Some(match echoes {
            Some(echoes) => located(found, &echoes.finish(), &self.local),
            None => found,
        }))
    }

    /// Measures a step once more, with half the probes. Returns `first` if that fails.
    fn repeat(
        &mut self,
        mut step: Step,
        first: underload_measure::Step,
        findings: &[Finding],
        interrupt: &Interrupt,
    ) -> underload_measure::Step {
        step.config.probe.interval *= 2;
        // The first attempt has used its part of the budget.
        let moved = [findings, std::slice::from_ref(&first.finding)].concat();
        match self.measure_step(&step, &moved, interrupt) {
            Ok(Some(second)) => second.instead_of(&first.finding),
            Ok(None) | Err(_) => first,
        }
    }
}

/// Returns the time of the longest step, for one repetition; zero if the step is longer than
/// [`REPEATED_MAX`].
fn repetition_time(steps: &[Step]) -> Duration {
    let longest = steps.iter().map(|step| session_duration(std::slice::from_ref(step))).max();
    longest.filter(|it| *it <= REPEATED_MAX).unwrap_or(Duration::ZERO)
}

/// Whether a server has no session of the length that was asked for.
fn is_turned_away(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ServiceError::Busy { .. } | ServiceError::Refused { .. }))
}

impl Test for Session<'_> {
    fn plan(&self) -> Plan {
        let arm = |step: &Step| ArmRecord {
            name: step.name.clone(),
            label: step.label.clone(),
            ..ArmRecord::default()
        };
        Plan {
            name: self.request.preset.name().to_owned(),
            server: self.request.shown_host(),
            arms: self.steps.iter().map(arm).collect(),
            notes: self.notes.clone(),
        }
    }

    fn measure(
        &mut self,
        directory: &mut RunDir,
        findings: &mut Vec<Finding>,
        interrupt: &Interrupt,
    ) -> anyhow::Result<()> {
        self.progress.start(&self.steps);
        let outcome = self.measure_steps(directory, findings, interrupt);
        self.progress.close();
        outcome
    }
}

/// Adds the server's reason to an error if the server ended the session.
fn with_reason(news: &SessionNews, error: anyhow::Error) -> anyhow::Error {
    match &news.ended {
        Some(reason) => error.context(format!("the server ended the session: {reason}")),
        None => error,
    }
}

/// Longer steps are not repeated on a busy machine.
const REPEATED_MAX: Duration = Duration::from_secs(30);

pub(crate) const FIRST_USE: &str = "first-use";

/// Parses `first-use`, a fingerprint, or the path of a certificate in PEM, whose key is trusted.
///
/// # Errors
/// Returns an error if the fingerprint or the file is malformed, or if `first-use` finds no home
/// directory for the file of known servers.
pub fn trust(text: &str) -> anyhow::Result<Trust> {
    Ok(match text {
        FIRST_USE => Trust::FirstUse { known_servers: home::data()?.join("known-servers") },
        fingerprint if fingerprint.starts_with("sha256:") => {
            Trust::Pinned(fingerprint.parse().context("--trust").or_bad_input()?)
        }
        path => {
            let pinned = Fingerprint::of_pem(Path::new(path));
            Trust::Pinned(pinned.context("--trust").or_bad_input()?)
        }
    })
}

pub(crate) fn options(
    request: &Request,
    duration: Duration,
    interrupt: &Interrupt,
) -> anyhow::Result<ConnectOptions> {
    let trust = trust(&request.trust)?;
    let token = request.token_file.as_deref().map(home::secret_line).transpose().or_bad_input()?;
    // Twice the rate that is sold: many lines carry a little more, and bursts. UDP load also
    // carries the control traffic of the measurement.
    let udp = request.knobs.udp.map(|udp| udp.rate_bit_per_s);
    let declared = |sold: Option<u64>| sold.or(udp).map(|rate| rate.saturating_mul(2));
    let ask = Ask {
        up_bit_per_s: declared(request.tier.map(|tier| tier.up_bit_per_s)),
        down_bit_per_s: declared(request.tier.map(|tier| tier.down_bit_per_s)),
        duration,
    };
    let network = request.interface.as_deref().map_or_else(current_network, network_through);
    let cancel = interrupt.shared();
    Ok(ConnectOptions { trust, token, ask, network, cancel })
}

/// Marks those load flows as best effort whose DSCP the server does not send. Probes retain their
/// class, because the server answers each in the class in which it arrived.
fn keep_to_markings(steps: &mut [Step], dscp_allowed: u64, notes: &mut Vec<String>) {
    let allows = |dscp: u8| dscp_allowed >> (dscp & 63) & 1 == 1;
    let mut refused = Vec::new();
    for flow in steps.iter_mut().flat_map(|step| &mut step.config.loads) {
        if !allows(flow.marking.dscp) {
            refused.push(flow.marking.dscp);
            flow.marking.dscp = 0;
        }
    }
    refused.sort_unstable();
    refused.dedup();
    if !refused.is_empty() {
        let list: Vec<String> = refused.iter().map(u8::to_string).collect();
        let list = list.join(", ");
        notes.push(format!(
            "the server does not send DSCP {list}: load in these classes is best effort instead"
        ));
    }
}

fn connect_or_wait(
    target: &Target,
    options: &ConnectOptions,
    patience: Option<Duration>,
    progress: &mut dyn Progress,
    interrupt: &Interrupt,
) -> anyhow::Result<Remote> {
    let until = Instant::now() + patience.unwrap_or(Duration::ZERO);
    loop {
        let error = match connect(target, options) {
            Ok(remote) => return Ok(remote),
            Err(error) => error,
        };
        let Some(ServiceError::Busy { retry_after, .. }) = error.downcast_ref() else {
            return Err(error);
        };
        let again = Instant::now() + *retry_after;
        if again > until {
            return Err(error);
        }
        progress.note(&format!("{error:#}; waiting"));
        while Instant::now() < again {
            if interrupt.is_requested() {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Connects to the address of the target that answers first.
///
/// # Errors
/// Returns an error if no address answers, or the server is not trusted or grants no session.
pub fn connect(target: &Target, options: &ConnectOptions) -> anyhow::Result<Remote> {
    match Remote::connect(&target.name, &target.addresses, options) {
        Err(error @ ServiceError::NoAnswer { .. }) => Err(with_hint(error.into())),
        other => other.with_context(|| target.name.clone()),
    }
}

/// Adds what a user can do about a refused connection, or an answer that is not TLS.
fn with_hint(error: anyhow::Error) -> anyhow::Error {
    let io_error = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    let hint = match io_error.map(std::io::Error::kind) {
        Some(std::io::ErrorKind::ConnectionRefused) => {
            "nothing listens there: is `underload serve` running, and on this port?"
        }
        // The bytes are not TLS.
        Some(std::io::ErrorKind::InvalidData) => {
            "what answers there is no underload server: is it the port of something else?"
        }
        _ => return error,
    };
    anyhow::anyhow!("{error:#}; {hint}")
}
