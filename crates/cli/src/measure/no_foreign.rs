//! Tests against servers of other projects, on systems without them: they are refused.

use std::cell::Cell;
use std::time::Duration;

use underload_line::{Request, Test};
use underload_terminal::exit::refuse;

use super::Arguments;
use super::view::View;

/// Whether HOST names a server of another project.
pub fn is_wanted(host: &str) -> bool {
    host == "ndt7" || host.contains("://")
}

/// Refuses every test of this kind, with the systems that have it.
pub fn check(_: &Arguments) -> anyhow::Result<()> {
    refused()
}

fn refused<T>() -> anyhow::Result<T> {
    refuse!(
        "HOST: tests against ndt7 and responsiveness servers need Linux or macOS; expected a host \
         with `underload serve`"
    )
}

/// Returns false: no test against M-Lab's servers begins.
pub fn is_public(_: &Arguments) -> bool {
    false
}

/// Returns `None`: M-Lab's pause concerns its servers alone.
#[expect(clippy::unnecessary_wraps, reason = "other systems can fail")]
pub fn pause_before_first(_: &Arguments) -> anyhow::Result<Option<Duration>> {
    Ok(None)
}

/// Refuses every test, as [`check`] does.
pub fn open<'a>(
    _: &'a Request,
    _: &Arguments,
    _: &'a Cell<u64>,
    _: &'a mut View,
) -> anyhow::Result<Box<dyn Test + 'a>> {
    refused()
}
