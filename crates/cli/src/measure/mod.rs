//! `underload measure`: latency under load between this machine and a server.
//!
//! `underload_line` has the request, the session and the stored run.
//!
//! - [`arguments`]: the command line.
//! - [`consent`]: the question before a metered connection is used.
//! - [`view`]: the progress of a session on the terminal.
//! - [`foreign`]: what tests at servers of other projects accept, and M-Lab's terms.
//! - [`history`]: a series of measurements.

mod arguments;
mod consent;
#[cfg(sockets)]
mod foreign;
#[cfg(not(sockets))]
#[path = "no_foreign.rs"]
mod foreign;
mod history;
pub mod view;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use jiff::tz::TimeZone;
use underload_line::series::{Keeper, Notice, local_zone as zone};
use underload_line::{
    BadSetting, LineError, Measured, NO_VERDICT, Place, Request, RouterTest, Session, Test, measure,
};
use underload_record::judgement::{Limit, judge_findings};
use underload_report::{plain_text, table};
use underload_store::StoreError;
use underload_terminal::COMMIT;
use underload_terminal::console::{self, note, warning};
use underload_terminal::exit::{OrBadInput, WORSE, bad_input};
use underload_terminal::interrupt::Interrupt;

pub use arguments::Arguments;
#[cfg(shaping)]
pub use arguments::CourtesyOptions;
#[cfg(sockets)]
pub use arguments::{FamilyOptions, ServerOptions};
#[cfg(shaping)]
pub use history::seed;

use crate::present::{Show, open_in_desktop};
use view::View;

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if foreign::is_wanted(&arguments.host) {
        foreign::check(arguments)?;
    } else if RouterTest::is_wanted(&arguments.host) {
        arguments.check_foreign().or_bad_input()?;
        arguments.request().check().map_err(|error| worded(error.into()))?;
    } else {
        arguments.check().or_bad_input()?;
    }
    // Asks before signals are watched, so that Ctrl-C ends the question.
    let unless_metered = consent::ask(arguments)?;
    let interrupt = Interrupt::watch()?;
    match arguments.every {
        Some(every) => {
            history::run(arguments, every, unless_metered, &interrupt).map(|()| ExitCode::SUCCESS)
        }
        None => interrupt.explain(once(arguments, None, None, &interrupt)),
    }
}

/// Names the conditions that the line meets. Returns the exit status, or an error for a number that
/// was not measured.
fn judge(limits: &[Limit], measured: &Measured) -> anyhow::Result<ExitCode> {
    let judgement = judge_findings(&measured.findings);
    let mut code = ExitCode::SUCCESS;
    for limit in limits {
        let (limited, name) = (limit.limited, limit.limited.name());
        let value = limited.of(&judgement, &measured.findings);
        let value = value.with_context(|| format!("--fail-if: {name} was not measured"))?;
        if limit.applies_to(value) {
            warning!("--fail-if: {name} is {}", limited.shown(value));
            code = ExitCode::from(WORSE);
        }
    }
    Ok(code)
}

/// Measures each line once, one after another: at the same time they would share the server's
/// capacity and this machine's processor. The load to `underload serve` ends when `bytes_max` are
/// moved. Returns the exit status that `--fail-if` sets.
fn once(
    arguments: &Arguments,
    series: Option<&Keeper>,
    bytes_max: Option<u64>,
    interrupt: &Interrupt,
) -> anyhow::Result<ExitCode> {
    let requests = arguments.requests();
    let is_several = requests.len() > 1;
    let folder = |request: &Request| match (&arguments.out, &request.interface) {
        (Some(out), Some(name)) if is_several => Some(out.join(name)),
        (out, _) => out.clone(),
    };
    let folders: Vec<Option<PathBuf>> = requests.iter().map(folder).collect();
    // Before anything is sent.
    for folder in &folders {
        place(series, folder.as_deref()).check_vacant().bad_input_if(StoreError::is_occupied)?;
    }
    let (mut lines, mut failed) = (Vec::new(), 0);
    for (request, folder) in requests.into_iter().zip(&folders) {
        let name = request.interface.clone().unwrap_or_default();
        if is_several {
            note!("line {name}");
        }
        let request = Request { bytes_max, ..request };
        match line_once(arguments, &request, (series, folder.as_deref()), interrupt) {
            Ok(measured) => lines.push(measured),
            Err(error) if is_several && !interrupt.is_requested() => {
                warning!("{name}: {error:#}");
                failed += 1;
            }
            Err(error) => return Err(error),
        }
    }
    // A series opens its own page.
    let wanted = Show { open: arguments.show.open && series.is_none(), ..arguments.show };
    let shown = if lines.is_empty() { Ok(()) } else { show(&lines, is_several, wanted) };
    for measured in &lines {
        if let Some(series) = series {
            series.adopt(&measured.directory, &measured.run.host.started);
        }
    }
    shown?;
    let mut code = ExitCode::SUCCESS;
    for measured in lines {
        // An uncertain result is an answer, too: its verdict says that this machine was too busy.
        let is_answered = measured.has_verdict() || measured.is_uncertain();
        let judged = judge(&arguments.fail_if, &measured);
        measured.into_result(interrupt.flag())?;
        match if is_answered { judged? } else { bail!(NO_VERDICT) } {
            ExitCode::SUCCESS => {}
            worse => code = worse,
        }
    }
    ensure!(failed == 0, "{failed} of {} lines were not measured", folders.len());
    Ok(code)
}

/// Returns a new directory of `series`, else the directory that the command line names, else a new one
/// in `runs`.
fn place<'a>(series: Option<&'a Keeper>, folder: Option<&'a Path>) -> Place<'a> {
    match (series, folder) {
        (Some(series), _) => Place::In(series.path()),
        (None, Some(folder)) => Place::Directory(folder),
        (None, None) => Place::Default,
    }
}

/// Measures a line, and stores the run.
fn line_once(
    arguments: &Arguments,
    request: &Request,
    (series, folder): (Option<&Keeper>, Option<&Path>),
    interrupt: &Interrupt,
) -> anyhow::Result<Measured> {
    let (mut view, moved, stop) = (View::new(), Cell::new(0), interrupt.shared());
    let test: Box<dyn Test + '_> = if foreign::is_wanted(&arguments.host) {
        foreign::open(request, arguments, &moved, &mut view)?
    } else if RouterTest::is_wanted(&arguments.host) {
        Box::new(RouterTest::open(request, &mut view).map_err(worded)?)
    } else {
        Box::new(Session::open(request, &mut view, &stop).map_err(worded)?)
    };
    let measured = measure(test, request, place(series, folder), COMMIT, &stop);
    if let Some(series) = series {
        let findings = measured.iter().flat_map(|it| &it.findings);
        let in_steps: u64 = findings.map(|finding| finding.moved_bytes).sum();
        // A step that failed has no finding, and may have loaded the line.
        series.add_moved(in_steps.max(moved.get()));
    }
    measured.map_err(worded)
}

/// Measures a line through a session at `underload serve`, and stores the run.
#[cfg(shaping)]
pub fn line(
    request: &Request,
    place: Place<'_>,
    interrupt: &Interrupt,
) -> Result<Measured, LineError> {
    let (mut view, stop) = (View::new(), interrupt.shared());
    let session = Session::open(request, &mut view, &stop)?;
    measure(Box::new(session), request, place, COMMIT, &stop)
}

/// Converts an error: a faulty setting gets the name of its option, and the error of a faulty input the
/// exit status of one.
pub fn worded(error: LineError) -> anyhow::Error {
    match error {
        LineError::Setting(BadSetting { setting, source }) => {
            bad_input(anyhow::Error::new(source).context(format!("--{}", setting.name())))
        }
        error if error.is_bad_input() => bad_input(error),
        error => error.into(),
    }
}

/// Prints a notice about a series.
fn show_notice(notice: Notice) {
    match notice {
        Notice::Note(text) => note!("{text}"),
        Notice::Warning(text) => warning!("{text}"),
    }
}

/// Returns the time zone of this machine.
pub fn local_zone() -> TimeZone {
    zone(show_notice)
}

/// Writes `findings.json` and the report of each line; prints one table and the verdicts, or one JSON
/// document, which is a list for several lines.
fn show(lines: &[Measured], is_several: bool, show: Show) -> anyhow::Result<()> {
    let (mut runs, mut pages, mut verdicts) = (Vec::new(), Vec::new(), String::new());
    for measured in lines {
        let (own, page) = measured.write_files()?;
        let device = &measured.run.host.device;
        let name = if is_several { format!("{device}: ") } else { String::new() };
        let worded =
            measured.verdict.iter().map(|line| plain_text(&format!("{name}{line}")) + "\n");
        verdicts.extend(worded);
        runs.extend(own);
        pages.push(page);
    }
    let text = || format!("{}\n{verdicts}", table(&runs));
    match lines {
        [one] if !is_several => console::print_as(show.json, one, text)?,
        all => console::print_as(show.json, all, text)?,
    }
    for page in pages {
        note!("report: {}", page.display());
        if show.open {
            open_in_desktop(&page);
        }
    }
    Ok(())
}
