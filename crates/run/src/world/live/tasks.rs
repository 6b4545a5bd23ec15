//! The browsers that run beside probes and transfers.

use std::time::Instant;

use underload_emu::machine::Ends;
use underload_record::schema::{FlowRecord, Phase};
use underload_scenario::{Activity, FlowKind, Variant};

use super::browser;
use super::plan::duration;
use super::task::{Outcome, Task};
use crate::error::{Doing as _, Result};
use crate::trial::Output;

/// The browsers of a trial.
pub(super) struct Tasks<'a> {
    flows: Vec<Running<'a>>,
    ramp_start: Option<Instant>,
}

struct Running<'a> {
    name: &'a str,
    activity: Activity,
    has_begun: bool,
    task: Box<dyn Task + 'a>,
}

/// The records of all flows, why some are incomplete, and their outputs.
#[derive(Default)]
pub(super) struct Finished {
    pub records: Vec<FlowRecord>,
    pub incomplete: Vec<String>,
    pub outputs: Vec<Output>,
}

impl<'a> Tasks<'a> {
    /// Starts the servers of a variant's flows, and browsers, each with an empty page.
    pub(super) fn start(ends: &'a Ends, variant: &'a Variant) -> Result<Self> {
        let mut flows = Vec::new();
        for flow in &variant.flows {
            let FlowKind::Browser(traffic) = &flow.kind else { continue };
            let (name, activity) = (flow.name.as_str(), flow.activity);
            let task = browser::start(ends, flow, traffic, &variant.phases);
            let task = task.doing(format!("flow.{name}"))?;
            flows.push(Running { name, activity, has_begun: false, task });
        }
        Ok(Self { flows, ramp_start: None })
    }

    /// Starts and stops what is due. Called ten times a second.
    pub(super) fn start_and_stop(&mut self, phase: Phase) -> Result<()> {
        if matches!(phase, Phase::Ramp | Phase::Load) && self.ramp_start.is_none() {
            self.ramp_start = Some(Instant::now());
        }
        let Some(ramp_start) = self.ramp_start else { return Ok(()) };
        let elapsed = ramp_start.elapsed();
        for Running { activity, has_begun, task, .. } in &mut self.flows {
            let is_due = match activity.start {
                Some(start) => elapsed >= duration(start),
                None => phase == Phase::Load,
            };
            if is_due && !*has_begun {
                *has_begun = true;
                task.begin()?;
            }
            let is_over = activity.stop.is_some_and(|stop| elapsed >= duration(stop));
            if is_over || phase == Phase::Drain {
                task.stop();
            }
        }
        Ok(())
    }

    /// Ends all programs, and collects their records.
    pub(super) fn finish(mut self) -> Result<Finished> {
        let mut finished = Finished::default();
        for Running { name, has_begun, task, .. } in &mut self.flows {
            let Outcome { records, problem, text } = task.finish()?;
            let never = (!*has_begun).then(|| "it never began".to_owned());
            let problem = problem.or(never).map(|problem| format!("flow {name}: {problem}"));
            finished.incomplete.extend(problem);
            finished.records.extend(records);
            finished.outputs.push(Output { name: (*name).to_owned(), text });
        }
        Ok(finished)
    }
}
