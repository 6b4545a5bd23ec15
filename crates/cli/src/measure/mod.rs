//! `underload measure`: latency under load between here and a server.
//!
//! - [`arguments`]: the command line, and what of a preset it changes.
//! - [`target`]: from HOST to addresses.
//! - [`session`]: one measurement through a session at the server, step by step.
//! - [`view`]: what the user sees meanwhile.
//! - [`record`]: the record of the run, with its numbers from `underload_measure`.
//! - [`responsiveness`]: a test against a server of Apple's kind.
//! - [`ndt7`]: a test against M-Lab's servers, or others that speak as they do.
//! - [`foreign`]: what such tests told, as steps of a run like ours.
//! - [`history`]: the same again and again, in a [`rhythm`]; [`keep`] what of it stays.

mod arguments;
mod foreign;
mod history;
mod keep;
mod ndt7;
mod record;
mod responsiveness;
mod rhythm;
pub mod session;
pub mod target;
mod view;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail};
use serde::Serialize;
use serde_json::Value;
use underload_disk::{self as disk, Access};
use underload_record::schema::{Finding, RunRecord};
use underload_report::{finding_lines, load, plain_text, table, write_report};
use underload_store::RunDir;
use underload_terminal::exit::OrBadInput;
use underload_terminal::interrupt::Interrupt;

pub use arguments::Arguments;

use keep::Keeper;

use crate::present::{self, Show, refuse_occupied};

/// Measures once, or again and again.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    // What no measurement could be made with is refused before the first one.
    match Kind::of(&arguments.host) {
        Kind::Session => arguments.check().or_bad_input()?,
        Kind::Ndt7 => ndt7::check(arguments)?,
        Kind::Responsiveness => responsiveness::check(arguments)?,
    }
    let interrupt = Interrupt::watch()?;
    match arguments.every {
        Some(every) => history::run(arguments, every, &interrupt),
        None => {
            let out = arguments.out.as_deref();
            interrupt.explain(once(arguments, Place::of(out), &interrupt))
        }
    }
}

/// The kinds of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `underload serve`.
    Session,
    /// M-Lab's, or of that kind.
    Ndt7,
    /// Of Apple's kind.
    Responsiveness,
}

impl Kind {
    fn of(host: &str) -> Self {
        if ndt7::is_wanted(host) {
            Self::Ndt7
        } else if responsiveness::is_wanted(host) {
            Self::Responsiveness
        } else {
            Self::Session
        }
    }
}

/// A measurement whose server is found and has let it in.
trait Test {
    /// What is going to be measured.
    fn plan(&self) -> record::Plan;

    /// Runs the steps; each that ends is kept in `directory`, and what it found in `findings`.
    ///
    /// # Errors
    /// Why a step could not even begin.
    fn measure(
        &mut self,
        directory: &mut RunDir,
        findings: &mut Vec<Finding>,
        interrupt: &Interrupt,
    ) -> anyhow::Result<()>;

    /// All that a server of another kind told, as it comes.
    fn details(&self) -> Option<Value> {
        None
    }
}

fn open<'a>(arguments: &'a Arguments, interrupt: &Interrupt) -> anyhow::Result<Box<dyn Test + 'a>> {
    Ok(match Kind::of(&arguments.host) {
        Kind::Session => {
            let knobs = arguments.knobs().or_bad_input()?;
            let target = target::resolve(&arguments.host, arguments.family()).or_bad_input()?;
            Box::new(session::Session::open(arguments, &target, &knobs, interrupt)?)
        }
        Kind::Ndt7 => Box::new(ndt7::Ndt7::open(arguments)?),
        Kind::Responsiveness => Box::new(responsiveness::Nq::open(arguments)?),
    })
}

/// Where the run directory of a measurement goes.
#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    /// Into this directory and no other.
    Here(&'a Path),
    /// Into one of this series, called after the time.
    Below(&'a Keeper),
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
    let mut test = open(arguments, interrupt)?;
    let plan = test.plan();
    let record = record::new(arguments, &plan);
    let mut directory = refuse_occupied(match place {
        Place::Here(out) => RunDir::create(out, record),
        Place::Below(all) => {
            RunDir::create_unused(&all.path().join(compact(&record.host.started)), &record)
        }
        Place::Default => RunDir::create_unused(&default_directory(&plan.name, &record), &record),
    })?;
    let path = directory.path().to_owned();
    let start = Instant::now();
    let mut findings = Vec::new();
    let measured = test.measure(&mut directory, &mut findings, interrupt);
    let details = test.details();
    // The server is free for others while the run is put together.
    drop(test);
    if findings.is_empty() {
        let gone = directory.abandon();
        measured?;
        gone.context("removing the files of a run without a step")?;
        bail!("interrupted before anything was measured");
    }
    directory.set_verdict(finding_lines(&findings));
    let record = directory.finish(start.elapsed().as_secs_f64()).context("finishing the run")?;
    let verdict = &record.verdict;
    let document = Document { verdict, findings: &findings, details, run: &record };
    let told = tell(&path, &document, Show { json: arguments.json, open: arguments.open });
    if let Place::Below(series) = place {
        series.adopt(&path, &record.host.started);
    }
    told?;
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
    /// What a server of another kind told; left out of `underload serve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Value>,
    /// The record, as `run.json` has it.
    run: &'a RunRecord,
}

/// Writes `findings.json` and the report, prints table and verdict or one JSON document.
fn tell(path: &Path, document: &Document<'_>, show: Show) -> anyhow::Result<()> {
    let kept = path.join("findings.json");
    let mut text = serde_json::json!({
        "verdict": document.verdict,
        "findings": document.findings,
    });
    if let Some(details) = &document.details {
        text["details"] = details.clone();
    }
    let text = serde_json::to_vec_pretty(&text)?;
    disk::write_new(&kept, &text, Access::Usual).with_context(|| kept.display().to_string())?;
    let runs = load(&[path])?;
    let page = write_report(path, &runs).context("writing the report")?;
    let mut out = std::io::stdout().lock();
    if show.json {
        serde_json::to_writer_pretty(&mut out, document).context("writing JSON")?;
        writeln!(out)?;
    } else {
        writeln!(out, "{}", table(&runs))?;
        for line in document.verdict {
            writeln!(out, "{}", plain_text(line))?;
        }
    }
    out.flush().context("writing the result")?;
    underload_terminal::console::note!("report: {}", page.display());
    if show.open {
        present::open(&page);
    }
    Ok(())
}

/// `runs/measure-quick-20261121T013500Z`; the time makes it new.
fn default_directory(name: &str, record: &RunRecord) -> PathBuf {
    let name = format!("measure-{name}-{}", compact(&record.host.started));
    PathBuf::from("runs").join(name)
}

/// A time without the marks that file names had better not have.
fn compact(time: &str) -> String {
    time.chars().filter(|c| !"-:".contains(*c)).collect()
}
