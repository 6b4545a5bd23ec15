//! `underload measure`: latency under load between here and a server.
//!
//! `underload_line` has the request, the session and the stored run.
//!
//! - [`arguments`]: the command line.
//! - [`view`]: what the user sees while a session measures.
//! - [`responsiveness`]: a test against a server of Apple's kind.
//! - [`ndt7`]: a test against M-Lab's servers, or others that speak as they do.
//! - [`foreign`]: what such tests told, as steps of a run like ours.
//! - [`history`]: the same again and again, in a [`rhythm`]; [`keep`] what of it stays.

mod arguments;
mod foreign;
mod history;
mod keep;
mod ndt7;
mod responsiveness;
mod rhythm;
mod view;

use std::io::Write as _;

use anyhow::{Context, anyhow};
use underload_line::{Measured, NO_VERDICT, Place, Session, Test, measure, new_record};
use underload_report::{plain_text, table};
use underload_terminal::exit::OrBadInput;
use underload_terminal::interrupt::Interrupt;

pub use arguments::Arguments;

use keep::Keeper;

use crate::present::{self, Show, refuse_occupied};
use view::View;

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
        None => interrupt.explain(once(arguments, None, &interrupt)),
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

/// Measures once: into a new directory of `series`, else into the directory that the command line
/// names, else into a new one in `runs`.
fn once(
    arguments: &Arguments,
    series: Option<&Keeper>,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    let place = match (series, &arguments.out) {
        (Some(series), _) => Place::In(series.path()),
        (None, Some(out)) => Place::Directory(out),
        (None, None) => Place::Default,
    };
    // Before anything is sent.
    refuse_occupied(place.check_vacant())?;
    let (request, mut view) = (arguments.request(), View::new());
    let test: Box<dyn Test + '_> = match Kind::of(&arguments.host) {
        Kind::Session => Box::new(Session::open(&request, &mut view, interrupt)?),
        Kind::Ndt7 => Box::new(ndt7::Ndt7::open(arguments)?),
        Kind::Responsiveness => Box::new(responsiveness::Nq::open(arguments)?),
    };
    let plan = test.plan();
    let directory = refuse_occupied(place.create(&plan.name, new_record(&request, &plan)))?;
    let measured = measure(test, directory, interrupt)?;
    let shown = show(&measured, Show { json: arguments.json, open: arguments.open });
    if let Some(series) = series {
        series.adopt(&measured.directory, &measured.run.host.started);
    }
    shown?;
    let has_verdict = measured.has_verdict();
    measured.into_result(interrupt)?;
    if has_verdict { Ok(()) } else { Err(anyhow!(NO_VERDICT)) }
}

/// Writes `findings.json` and the report, prints table and verdict or one JSON document.
fn show(measured: &Measured, show: Show) -> anyhow::Result<()> {
    let (runs, page) = measured.write_files()?;
    let mut out = std::io::stdout().lock();
    if show.json {
        serde_json::to_writer_pretty(&mut out, measured).context("writing JSON")?;
        writeln!(out)?;
    } else {
        writeln!(out, "{}", table(&runs))?;
        for line in &measured.verdict {
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
