//! `underload measure`: latency under load between this machine and a server.
//!
//! `underload_line` has the request, the session and the stored run.
//!
//! - [`arguments`]: the command line.
//! - [`consent`]: the question before a metered connection is used.
//! - [`view`]: the progress of a session on the terminal.
//! - [`responsiveness`]: a test to a responsiveness server, as Apple's networkQuality does.
//! - [`ndt7`]: a test to M-Lab's servers, or other ndt7 servers.
//! - [`foreign`]: shared by both tests.
//! - [`history`]: a series of measurements, with pauses from [`rhythm`], within the limits of
//!   [`courtesy`] and its [`account`] of bytes; [`keep`] removes old runs.

mod account;
mod arguments;
mod consent;
mod courtesy;
#[cfg(sockets)]
mod foreign;
mod history;
mod keep;
#[cfg(sockets)]
mod ndt7;
#[cfg(not(sockets))]
mod no_ndt7;
#[cfg(sockets)]
mod responsiveness;
mod rhythm;
pub mod view;

use std::cell::Cell;

use anyhow::anyhow;
use underload_line::{Measured, NO_VERDICT, Place, Request, Session, Test, measure, new_record};
use underload_report::{plain_text, table};
use underload_terminal::console;
use underload_terminal::exit::OrBadInput;
use underload_terminal::interrupt::Interrupt;

pub use arguments::Arguments;
#[cfg(sockets)]
pub use arguments::{FamilyOptions, ServerOptions};
pub use courtesy::local_zone;
#[cfg(shaping)]
pub use courtesy::{Courtesy, CourtesyOptions};
#[cfg(shaping)]
pub use history::seed;

use keep::Keeper;
#[cfg(not(sockets))]
use no_ndt7 as ndt7;

use crate::present::{Show, open_in_desktop, refuse_occupied};
use view::View;

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match Kind::from_host(&arguments.host) {
        Kind::Session => arguments.check().or_bad_input()?,
        #[cfg(sockets)]
        Kind::Responsiveness => responsiveness::check(arguments)?,
        Kind::Ndt7 => ndt7::check(arguments)?,
    }
    // Before signals are watched, so that Ctrl-C ends the question.
    let unless_metered = consent::ask(arguments)?;
    let interrupt = Interrupt::watch()?;
    match arguments.every {
        Some(every) => history::run(arguments, every, unless_metered, &interrupt),
        None => interrupt.explain(once(arguments, None, None, &interrupt)),
    }
}

/// The kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `underload serve`.
    Session,
    Ndt7,
    #[cfg(sockets)]
    Responsiveness,
}

impl Kind {
    fn from_host(host: &str) -> Self {
        #[cfg(sockets)]
        if responsiveness::is_wanted(host) {
            return Self::Responsiveness;
        }
        if ndt7::is_wanted(host) { Self::Ndt7 } else { Self::Session }
    }
}

/// Measures once: into a new directory of `series`, else into the directory that the command line
/// names, else into a new one in `runs`. The load to `underload serve` ends when `bytes_max` are
/// moved.
fn once(
    arguments: &Arguments,
    series: Option<&Keeper>,
    bytes_max: Option<u64>,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    let place = match (series, &arguments.out) {
        (Some(series), _) => Place::In(series.path()),
        (None, Some(out)) => Place::Directory(out),
        (None, None) => Place::Default,
    };
    // Before anything is sent.
    refuse_occupied(place.check_vacant())?;
    let request = Request { bytes_max, ..arguments.request() };
    let (mut view, moved) = (View::new(), Cell::new(0));
    let test: Box<dyn Test + '_> = match Kind::from_host(&arguments.host) {
        Kind::Session => Box::new(Session::open(&request, &mut view, interrupt)?),
        #[cfg(sockets)]
        Kind::Ndt7 => Box::new(ndt7::Ndt7::open(arguments, &moved)?),
        #[cfg(not(sockets))]
        Kind::Ndt7 => return ndt7::check(arguments),
        #[cfg(sockets)]
        Kind::Responsiveness => Box::new(responsiveness::Nq::open(arguments, &moved)?),
    };
    let measured = stored(test, &request, place, interrupt);
    if let Some(series) = series {
        let findings = measured.iter().flat_map(|it| &it.findings);
        let in_steps: u64 = findings.map(|finding| finding.moved_bytes).sum();
        // A step that failed has no finding, and may have loaded the line.
        series.add_moved(in_steps.max(moved.get()));
    }
    let measured = measured?;
    let shown = show(&measured, Show { json: arguments.json, open: arguments.open });
    if let Some(series) = series {
        series.adopt(&measured.directory, &measured.run.host.started);
    }
    shown?;
    // An answer too: the verdict says that this machine was too busy.
    let is_answered = measured.has_verdict() || measured.is_uncertain();
    measured.into_result(interrupt)?;
    if is_answered { Ok(()) } else { Err(anyhow!(NO_VERDICT)) }
}

/// Measures a line through a session at `underload serve`, and stores the run.
#[cfg(shaping)]
pub fn line(
    request: &Request,
    place: Place<'_>,
    interrupt: &Interrupt,
) -> anyhow::Result<Measured> {
    let mut view = View::new();
    let session = Session::open(request, &mut view, interrupt)?;
    stored(Box::new(session), request, place, interrupt)
}

/// Runs a test in a new run directory.
fn stored(
    test: Box<dyn Test + '_>,
    request: &Request,
    place: Place<'_>,
    interrupt: &Interrupt,
) -> anyhow::Result<Measured> {
    let plan = test.plan();
    let directory = refuse_occupied(place.create(&plan.name, new_record(request, &plan)))?;
    measure(test, directory, interrupt)
}

/// Writes `findings.json` and the report; prints table and verdict, or one JSON document.
fn show(measured: &Measured, show: Show) -> anyhow::Result<()> {
    let (runs, page) = measured.write_files()?;
    if show.json {
        console::print_json(measured)?;
    } else {
        let verdict: String = measured.verdict.iter().map(|line| plain_text(line) + "\n").collect();
        console::print(&format!("{}\n{verdict}", table(&runs)))?;
    }
    console::note!("report: {}", page.display());
    if show.open {
        open_in_desktop(&page);
    }
    Ok(())
}
