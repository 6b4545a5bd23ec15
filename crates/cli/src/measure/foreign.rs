//! Tests at servers of other projects: M-Lab's and other ndt7 servers, and responsiveness servers.

use std::cell::Cell;
use std::time::Duration;

use anyhow::bail;
use underload_line::foreign::{ForeignSession, Ndt7, Responsiveness, Server as _, m_lab};
use underload_line::series::PUBLIC_MEAN_LEAST;
use underload_line::{Request, Test};
use underload_terminal::console::{note, warning};
use underload_terminal::exit::{OrBadInput, refuse};

use super::view::View;
use super::{Arguments, worded};

/// Whether HOST names a server of another project.
pub fn is_wanted(host: &str) -> bool {
    Ndt7::is_wanted(host) || Responsiveness::is_wanted(host)
}

/// Refuses arguments that the test does not support, and M-Lab's servers without accepted terms.
pub fn check(arguments: &Arguments) -> anyhow::Result<()> {
    if Responsiveness::is_wanted(&arguments.host) {
        Responsiveness::check(&arguments.host).or_bad_input()?;
        arguments.check_foreign().or_bad_input()?;
        return arguments.request().check().map_err(|error| worded(error.into()));
    }
    arguments.check_foreign().or_bad_input()?;
    let is_accepted = |it: &Duration| *it <= Ndt7::DURATION_MAX && it.as_secs() > 0;
    if let Some(duration) = arguments.duration.filter(|it| !is_accepted(it)) {
        refuse!("--duration: {duration:?}: ndt7 accepts 1s to 10s");
    }
    if arguments.locate.is_some() && arguments.host != Ndt7::TEST {
        refuse!("--locate: only accepted with `ndt7` as HOST, which locates a server");
    }
    Ndt7::check(&arguments.host).or_bad_input()?;
    if is_public(arguments) {
        check_every(arguments).or_bad_input()?;
        agree(arguments.accept_terms)?;
    }
    Ok(())
}

/// Refuses pauses that are shorter than M-Lab allows.
fn check_every(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.every.is_some_and(|every| every < PUBLIC_MEAN_LEAST) {
        bail!(
            "--every: M-Lab requires six hours on average between repeated tests; expected at \
             least {} h",
            PUBLIC_MEAN_LEAST.as_secs() / 3_600
        );
    }
    Ok(())
}

/// Refuses a test, with the terms, until the user accepts them once.
fn agree(accepts: bool) -> anyhow::Result<()> {
    let terms = m_lab::TERMS;
    if m_lab::has_accepted()? {
        return Ok(());
    }
    if !accepts {
        warning!("{terms}");
        refuse!("the terms are not accepted yet: accept them with --accept-terms");
    }
    let file = m_lab::accept()?;
    note!("{terms}\naccepted; stored in {}", file.display());
    Ok(())
}

/// Whether the test uses M-Lab's servers, whose rules then apply.
pub fn is_public(arguments: &Arguments) -> bool {
    Ndt7::is_public(&arguments.host, arguments.locate.as_deref())
}

/// Returns how long M-Lab's rules delay the first test of a series.
pub fn pause_before_first(arguments: &Arguments) -> anyhow::Result<Option<Duration>> {
    if is_public(arguments) { Ok(m_lab::pause_before_first()?) } else { Ok(None) }
}

/// Locates the server, or requests its configuration. `moved` counts the bytes of the test, which
/// `--per-day` limits.
pub fn open<'a>(
    request: &'a Request,
    arguments: &Arguments,
    moved: &'a Cell<u64>,
    view: &'a mut View,
) -> anyhow::Result<Box<dyn Test + 'a>> {
    if Responsiveness::is_wanted(&request.host) {
        let server = Responsiveness::open(request).map_err(worded)?;
        return Ok(Box::new(ForeignSession::new(request, server, moved, view)));
    }
    let server = Ndt7::open(request, arguments.locate.as_deref()).map_err(worded)?;
    Ok(Box::new(ForeignSession::new(request, server, moved, view)))
}
