//! `underload measure`: latency under load between here and a server.
//!
//! - [`arguments`]: the command line, and what of a preset it changes.
//! - [`target`]: from HOST to addresses.
//! - [`session`]: one measurement through a session at the server, step by step.
//! - [`view`]: what the user sees meanwhile.
//! - [`record`], [`findings`]: the run's record and its numbers; `underload_report` has the words.
//! - [`responsiveness`]: a test against a server of Apple's kind.
//! - [`ndt7`]: a test against M-Lab's servers, or others that speak as they do.
//! - [`history`]: the same again and again.

mod arguments;
mod findings;
mod history;
mod ndt7;
mod record;
mod responsiveness;
pub mod session;
pub mod target;
mod view;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail};
use serde::Serialize;
use underload_disk::{self as disk, Access};
use underload_record::schema::{Finding, RunRecord};
use underload_report::{finding_lines, load, table, write_report};
use underload_store::RunDir;

pub use arguments::Arguments;

use crate::exit::{OrBadInput, refuse_occupied};
use crate::interrupt::Interrupt;
use crate::present::{self, Show};

/// Measures once, or again and again.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if ndt7::is_wanted(&arguments.host) {
        return ndt7::run(arguments);
    }
    if responsiveness::is_wanted(&arguments.host) {
        return responsiveness::run(arguments);
    }
    // What no measurement could be made with is refused before the first one.
    arguments.check().or_bad_input()?;
    let interrupt = Interrupt::watch()?;
    match arguments.every {
        Some(every) => history::run(arguments, every, &interrupt),
        None => {
            let out = arguments.out.as_deref();
            interrupt.explain(once(arguments, Place::of(out), &interrupt))
        }
    }
}

/// Where the run directory of a measurement goes.
#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    /// Into this directory and no other.
    Here(&'a Path),
    /// Into one of this directory, called after the time.
    Below(&'a Path),
    /// Into one below `runs`, called after preset and time.
    Default,
}

impl<'a> Place<'a> {
    fn of(out: Option<&'a Path>) -> Self {
        out.map_or(Self::Default, Self::Here)
    }
}

/// Measures once into `place`.
fn once(arguments: &Arguments, place: Place<'_>, interrupt: &Interrupt) -> anyhow::Result<()> {
    // Before anything goes over the network.
    if let Place::Here(out) = place {
        refuse_occupied(RunDir::check_vacant(out))?;
    }
    let knobs = arguments.knobs().or_bad_input()?;
    let target = target::resolve(&arguments.host, arguments.family()).or_bad_input()?;
    let mut session = session::Session::open(arguments, &target, &knobs, interrupt)?;
    let record = record::new(arguments, &session);
    let mut directory = refuse_occupied(match place {
        Place::Here(out) => RunDir::create(out, record),
        Place::Below(all) => {
            RunDir::create_unused(&all.join(compact(&record.host.started)), &record)
        }
        Place::Default => RunDir::create_unused(&default_directory(arguments, &record), &record),
    })?;
    let path = directory.path().to_owned();
    let start = Instant::now();
    let mut findings = Vec::new();
    let measured = session.measure(&mut directory, &mut findings, interrupt);
    drop(session);
    if findings.is_empty() {
        let gone = directory.abandon();
        measured?;
        gone.context("removing the files of a run without a step")?;
        bail!("interrupted before anything was measured");
    }
    directory.set_verdict(finding_lines(&findings));
    let record = directory.finish(start.elapsed().as_secs_f64()).context("finishing the run")?;
    tell(&path, &record, &findings, Show { json: arguments.json, open: arguments.open })?;
    measured?;
    if interrupt.is_requested() {
        bail!("interrupted; what was measured until then is in {}", path.display());
    }
    if findings.iter().all(|finding| !finding.valid) {
        bail!("no step is valid, so there is no verdict about the line");
    }
    Ok(())
}

/// The result as one document.
#[derive(Serialize)]
struct Document<'a> {
    /// The verdict, in plain words.
    verdict: &'a [String],
    /// Per step.
    findings: &'a [Finding],
    /// The record, as `run.json` has it.
    run: &'a RunRecord,
}

/// Writes `findings.json` and the report, prints table and verdict or one JSON document.
fn tell(path: &Path, record: &RunRecord, findings: &[Finding], show: Show) -> anyhow::Result<()> {
    let verdict = &record.verdict;
    let kept = path.join("findings.json");
    let text = serde_json::to_vec_pretty(&serde_json::json!({
        "verdict": verdict,
        "findings": findings,
    }))?;
    disk::write_new(&kept, &text, Access::Usual).with_context(|| kept.display().to_string())?;
    let runs = load(&[path])?;
    let page = write_report(path, &runs).context("writing the report")?;
    let mut out = std::io::stdout().lock();
    if show.json {
        serde_json::to_writer_pretty(&mut out, &Document { verdict, findings, run: record })
            .context("writing JSON")?;
        writeln!(out)?;
    } else {
        writeln!(out, "{}", table(&runs))?;
        for line in verdict {
            writeln!(out, "{line}")?;
        }
    }
    out.flush().context("writing the result")?;
    crate::console::note!("report: {}", page.display());
    if show.open {
        present::open(&page);
    }
    Ok(())
}

/// `runs/measure-quick-20261121T013500Z`; the time makes it new.
fn default_directory(arguments: &Arguments, record: &RunRecord) -> PathBuf {
    let name = format!("measure-{}-{}", arguments.preset(), compact(&record.host.started));
    PathBuf::from("runs").join(name)
}

/// A time without the marks that file names had better not have.
fn compact(time: &str) -> String {
    time.chars().filter(|c| !"-:".contains(*c)).collect()
}
