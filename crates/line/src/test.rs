//! A measurement whose steps are stored as a run.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::Serialize;
use serde_json::Value;
use underload_disk::{self as disk, Access};
use underload_record::judgement::{Grade, judge_findings};
use underload_record::schema::{Finding, RunRecord};
use underload_report::{finding_lines, load, write_report};
use underload_store::{RunData, RunDir};

use crate::error::LineError;
use crate::record::new_record;
use crate::{Place, Plan, Request};

/// A measurement whose server has accepted it.
pub trait Test {
    /// Returns the plan of the measurement.
    fn plan(&self) -> Plan;

    /// Runs the steps. Each step that ends is stored in `directory`, its finding in `findings`.
    ///
    /// # Errors
    /// Returns an error if a step cannot begin or cannot be stored.
    fn measure(
        &mut self,
        directory: &mut RunDir,
        findings: &mut Vec<Finding>,
        stop: &Arc<AtomicBool>,
    ) -> Result<(), LineError>;

    /// Returns the raw results of a test against another project's server; `None` for
    /// `underload serve`.
    fn details(&self) -> Option<Value> {
        None
    }
}

/// A stored measurement of at least one step. It serialises to the document of
/// `underload measure --json`.
#[derive(Serialize)]
pub struct Measured {
    /// The grade of the line; `None` if no step has one.
    pub grade: Option<Grade>,
    /// The verdict, in sentences.
    pub verdict: Vec<String>,
    /// A finding per step.
    pub findings: Vec<Finding>,
    /// The raw results of another project's server; `None` for `underload serve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// The record, as in `run.json`.
    pub run: RunRecord,
    #[serde(skip)]
    pub directory: PathBuf,
    /// The error that ended the measurement before its last step.
    #[serde(skip)]
    ended_by: Option<LineError>,
}

/// The verdict of a measurement without a valid step.
pub const NO_VERDICT: &str = "no step is valid, so there is no verdict about the line";

/// Runs a test and stores it as a run. `commit` is the program's commit.
///
/// # Errors
/// Returns an error if the place is occupied, if no step was finished, and then removes the run
/// directory; also if the run cannot be stored.
pub fn measure(
    mut test: Box<dyn Test + '_>,
    request: &Request,
    place: Place<'_>,
    commit: &str,
    stop: &Arc<AtomicBool>,
) -> Result<Measured, LineError> {
    let plan = test.plan();
    let mut directory = place.create(&plan.name, new_record(request, &plan, commit))?;
    let path = directory.path().to_owned();
    let start = Instant::now();
    let mut findings = Vec::new();
    let outcome = test.measure(&mut directory, &mut findings, stop);
    let details = test.details();
    // Ends the session, so that the server is free for others while the run is written.
    drop(test);
    if findings.is_empty() {
        let removed = directory.abandon();
        outcome?;
        removed?;
        return Err(LineError::Interrupted);
    }
    let judgement = judge_findings(&findings);
    let grade = judgement.grade;
    directory.set_judgement(judgement, finding_lines(&findings));
    let run = directory.finish(start.elapsed().as_secs_f64())?;
    let verdict = run.verdict.clone();
    Ok(Measured {
        grade,
        verdict,
        findings,
        details,
        run,
        directory: path,
        ended_by: outcome.err(),
    })
}

impl Measured {
    /// Writes `findings.json` and the report into the run directory. Returns the run, and the path
    /// of the report.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written, or the run cannot be read back.
    pub fn write_files(&self) -> Result<(Vec<RunData>, PathBuf), LineError> {
        let path = self.directory.join("findings.json");
        let mut text = serde_json::json!({
            "judgement": self.run.judgement,
            "verdict": self.verdict,
            "findings": self.findings,
        });
        if let Some(details) = &self.details {
            text["details"] = details.clone();
        }
        let text = format!("{text:#}");
        disk::write_new(&path, text.as_bytes(), Access::Usual)
            .map_err(|source| LineError::File { path, source })?;
        let runs = load(&[&self.directory])?;
        let page = write_report(&self.directory, &runs)?;
        Ok((runs, page))
    }

    /// Whether at least one step is valid.
    pub fn has_verdict(&self) -> bool {
        self.findings.iter().any(|finding| finding.valid)
    }

    /// Whether no step is valid and this machine, not the line or the server, is the reason.
    pub fn is_uncertain(&self) -> bool {
        self.findings.iter().all(|finding| finding.uncertain)
    }

    /// Returns `Ok` if every step was measured.
    ///
    /// # Errors
    /// Returns what ended the measurement early.
    pub fn into_result(self, stop: &AtomicBool) -> Result<(), LineError> {
        if let Some(error) = self.ended_by {
            return Err(error);
        }
        if stop.load(Ordering::Relaxed) {
            return Err(LineError::Unfinished { directory: self.directory });
        }
        Ok(())
    }
}
