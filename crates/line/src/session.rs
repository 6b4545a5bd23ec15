//! A measurement through a session at `underload serve`: runs the preset's steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use underload_measure::{LocalRates, payload_within};
use underload_probe::RunClock;
use underload_probe::control::{Remote, SERVER_PORT};
use underload_probe::load::Token;
use underload_probe::measure::{Measurement, MeasurementConfig};
use underload_probe::preset::{Step, session_duration};
use underload_record::schema::{Finding, VariantRecord};
use underload_store::RunDir;

use crate::connect::{FIRST_USE, connect, connect_or_wait, options};
use crate::error::LineError;
use crate::local_load;
use crate::route::{FINDING_MAX, ProbedRoute, located, peer_address};
use crate::target::resolve;
use crate::{Plan, Progress, Request, Test, store_step};

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
    /// When the session ends.
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
        stop: &Arc<AtomicBool>,
    ) -> Result<Session<'a>, LineError> {
        let target = resolve(&request.host, SERVER_PORT, request.family)?;
        // Before the session begins, so that the server does not wait for it.
        let local = local_load::measure(request, progress, stop);
        let steps = request.preset.steps(&request.knobs, Token([0; 16]));
        let peer = request.locate.as_ref().and_then(|it| it.peer.as_deref());
        let peer = peer.map(peer_address).transpose()?;
        let finding = request.locate.as_ref().map_or(Duration::ZERO, |_| FINDING_MAX);
        let (least, again) = (session_duration(&steps) + finding, repetition_time(&steps));
        let mut asked = options(request, least.saturating_add(again), stop)?;
        let asked_at = Instant::now();
        // Some servers and tokens grant less time, or have no time left; then no step is repeated.
        let remote = match connect(&target, &asked) {
            Err(error) if error.is_turned_away() => {
                asked.ask.duration = least;
                connect_or_wait(&target, &asked, request.wait, progress, stop)
            }
            connected => connected,
        }?;
        let (fingerprint, is_new) = remote.identity();
        if is_new && request.trust == FIRST_USE {
            progress.note(&format!("{}: seen for the first time, key {fingerprint}", target.name));
        }
        let mut steps = request.preset.steps(&request.knobs, remote.token());
        let mut notes = Vec::new();
        keep_to_markings(&mut steps, remote.granted.dscp_allowed, &mut notes);
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
        stop: &AtomicBool,
    ) -> Result<(), LineError> {
        let mut can_repeat = true;
        for index in 0..self.steps.len() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let step = self.steps[index].clone();
            let Some(mut found) = self.measure_step(&step, findings, stop)? else { break };
            let is_time_left = Instant::now() + session_duration(&self.steps[index..]) <= self.ends;
            if found.finding.uncertain && can_repeat && is_time_left {
                can_repeat = false;
                self.progress.note(&format!(
                    "step {}: this machine was too busy ({}); once more, with half the probes",
                    step.name,
                    found.finding.invalid_because.join("; ")
                ));
                found = self.repeat(step, found, findings, stop);
            }
            self.progress.end_step(&found.finding);
            findings.push(store_step(found, directory)?);
            if let Some(reason) = self.remote.news().ended.clone() {
                return Err(LineError::Ended { reason });
            }
        }
        Ok(())
    }

    /// Measures a step; `None` if interrupted.
    fn measure_step(
        &mut self,
        step: &Step,
        findings: &[Finding],
        stop: &AtomicBool,
    ) -> Result<Option<underload_measure::Step>, LineError> {
        self.progress.begin_step(step);
        let (config, clock) = (self.within_budget(step, findings), RunClock::start());
        let echoes = self.route.as_ref().map(|route| route.start(clock)).transpose()?;
        let measured = Measurement::run(
            &config,
            self.remote.endpoints(),
            clock,
            &mut |progress| self.progress.update(&progress),
            stop,
        );
        let news = self.remote.news().clone();
        let measured = measured.map_err(|source| LineError::Step {
            step: step.name.clone(),
            ended: news.ended.clone(),
            source,
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
        stop: &AtomicBool,
    ) -> underload_measure::Step {
        step.config.probe.interval *= 2;
        // The first attempt has used its part of the budget.
        let moved = [findings, std::slice::from_ref(&first.finding)].concat();
        match self.measure_step(&step, &moved, stop) {
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

impl Test for Session<'_> {
    fn plan(&self) -> Plan {
        let variant = |step: &Step| VariantRecord {
            name: step.name.clone(),
            label: step.label.clone(),
            ..VariantRecord::default()
        };
        Plan {
            name: self.request.preset.name().to_owned(),
            server: self.request.shown_host(),
            variants: self.steps.iter().map(variant).collect(),
            notes: self.notes.clone(),
        }
    }

    fn measure(
        &mut self,
        directory: &mut RunDir,
        findings: &mut Vec<Finding>,
        stop: &Arc<AtomicBool>,
    ) -> Result<(), LineError> {
        self.progress.start(&self.steps);
        let outcome = self.measure_steps(directory, findings, stop);
        self.progress.close();
        outcome
    }
}

/// Longer steps are not repeated on a busy machine.
const REPEATED_MAX: Duration = Duration::from_secs(30);

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
