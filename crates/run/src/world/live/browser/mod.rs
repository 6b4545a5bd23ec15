//! Real browsers inside the lab: pages and films that one loads, and calls between two.
//!
//! Each flow has browsers of its own. They start before the trial, so that their start does not
//! disturb the measurement, and a thread controls them ([`control`]). Their profiles are in memory
//! that ends with their processes, which end with the namespaces at the latest: also a killed run
//! leaves neither.

mod caddy;
mod calls;
mod control;
mod film;
mod films;
mod loading;
mod page;
mod pages;
mod server;
mod website;

use std::time::Instant;

use underload_aqm::time::Span;
use underload_browser::{Chromium, MISSING};
use underload_emu::machine::Ends;
use underload_record::schema::{FlowDirection, FlowRecord, Metric, Phase};

use super::exec::Finished;
use super::plan::{duration, longest};
use crate::error::{Doing as _, RunError};
use crate::scenario::{FlowKind, PageProtocol, Variant};
use crate::trial::Output;
use calls::Call;
use films::Films;
use pages::Pages;

/// The browsers of a trial.
pub(super) struct Browsers<'a> {
    flows: Vec<Running<'a>>,
    ramp_start: Option<Instant>,
}

struct Running<'a> {
    name: &'a str,
    /// Since the start of the ramp; `None` to start with the load phase.
    start: Option<Span>,
    /// Since the start of the ramp; `None` to stop at the end of the load phase.
    stop: Option<Span>,
    has_begun: bool,
    task: Box<dyn Task + 'a>,
}

/// A load in one or two browsers: pages, a film, or a call.
trait Task {
    fn begin(&mut self);

    /// Ends the traffic of the flow.
    fn stop(&mut self);

    /// Ends the browsers, and returns the records of the flow.
    fn finish(&mut self) -> Outcome;
}

/// The results of a flow that has ended.
struct Outcome {
    records: Vec<FlowRecord>,
    /// Why the record is incomplete; `None` if it is complete.
    problem: Option<String>,
    /// Lines of JSON to store beside the record.
    text: String,
}

/// Returns which program this machine lacks for a variant's flows; `None` if it has all of them.
pub(super) fn problem(variant: &Variant) -> Option<String> {
    let mut flows = variant.flows.iter().filter(|flow| flow.kind.needs_browser());
    flows.find_map(|flow| Some(format!("flow.{}: {}", flow.name, missing(&flow.kind)?)))
}

/// Returns which program this machine lacks for a flow that needs a browser.
fn missing(kind: &FlowKind) -> Option<&'static str> {
    let (protocol, needs_dash_js) = match kind {
        FlowKind::Browser(page) => (Some(page.protocol), false),
        FlowKind::Dash(film) => (Some(film.protocol), true),
        _ => (None, false),
    };
    if Chromium::find().is_none() {
        return Some(MISSING);
    }
    if needs_dash_js && films::dash_js().is_none() {
        return Some(films::MISSING);
    }
    let needs_caddy = protocol == Some(PageProtocol::Http3);
    (needs_caddy && !caddy::is_installed()).then_some(caddy::MISSING)
}

impl<'a> Browsers<'a> {
    /// Starts the browsers of a variant, each with an empty page, and their servers.
    pub(super) fn start(ends: &Ends, variant: &'a Variant) -> Result<Self, RunError> {
        let mut flows = Vec::new();
        for flow in &variant.flows {
            let name = flow.name.as_str();
            let doing = || format!("flow.{name}");
            let (task, start, stop): (Box<dyn Task + 'a>, _, _) = match &flow.kind {
                FlowKind::Browser(pages) => {
                    let task = Pages::start(ends, (name, pages), longest(&variant.phases));
                    (Box::new(task.doing(doing())?), pages.start, pages.stop)
                }
                FlowKind::Dash(film) => {
                    let task = Films::start(ends, name, film);
                    (Box::new(task.doing(doing())?), film.start, film.stop)
                }
                FlowKind::WebRtc(call) => {
                    let task = Call::start(ends, name, call);
                    (Box::new(task.doing(doing())?), call.start, call.stop)
                }
                _ => continue,
            };
            flows.push(Running { name, start, stop, has_begun: false, task });
        }
        Ok(Self { flows, ramp_start: None })
    }

    /// Starts and stops what is due. Called ten times a second.
    pub(super) fn start_and_stop(&mut self, phase: Phase) {
        if matches!(phase, Phase::Ramp | Phase::Load) && self.ramp_start.is_none() {
            self.ramp_start = Some(Instant::now());
        }
        let Some(ramp_start) = self.ramp_start else { return };
        let elapsed = ramp_start.elapsed();
        for running in &mut self.flows {
            let is_begun = match running.start {
                Some(start) => elapsed >= duration(start),
                None => phase == Phase::Load,
            };
            if is_begun && !running.has_begun {
                running.has_begun = true;
                running.task.begin();
            }
            let is_due = running.stop.is_some_and(|stop| elapsed >= duration(stop));
            if is_due || phase == Phase::Drain {
                running.task.stop();
            }
        }
    }

    /// Ends all browsers, and adds their records to those of commands.
    pub(super) fn finish(mut self, (records, incomplete, outputs): &mut Finished) {
        for Running { name, has_begun, task, .. } in &mut self.flows {
            let outcome = task.finish();
            let never = (!*has_begun).then(|| "it never began".to_owned());
            let problem = outcome.problem.or(never);
            incomplete.extend(problem.map(|problem| format!("the browser of {name}: {problem}")));
            records.extend(outcome.records);
            outputs.push(Output { name: (*name).to_owned(), text: outcome.text.into_bytes() });
        }
    }
}

fn record(name: String, kind: &str, direction: FlowDirection, metrics: Vec<Metric>) -> FlowRecord {
    FlowRecord { name, kind: kind.to_owned(), direction, metrics, ..FlowRecord::default() }
}
