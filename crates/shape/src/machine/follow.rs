//! What the watcher does: it undoes an unconfirmed change.

use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::setsid;

use super::error::UndoError;
use super::session::Session;
use super::watcher::READY;
use super::{folder, now_ms};
use crate::record::{Action, Record, watch};

/// Interval between looks at the record.
const POLL: Duration = Duration::from_millis(100);
/// The longest pause before the watcher tries again to undo a change; the first one is a second.
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// Watches the change of a record: undoes it at its deadline, or at once if the applying process is
/// killed before all commands ran.
///
/// # Errors
/// Returns [`UndoError`] if the change could not be undone.
pub fn follow(path: &Path) -> Result<(), UndoError> {
    // Fails if this process leads its session already.
    let _ = setsid();
    let Some(mut last) = folder::read(path)? else { return Ok(()) };
    let blocked = [Signal::SIGHUP, Signal::SIGPIPE, Signal::SIGINT, Signal::SIGTERM];
    let _ = blocked.into_iter().collect::<SigSet>().thread_block();
    let session = Session::open()?;
    let is_alive = watch_applier();
    let mut out = io::stdout();
    let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
    loop {
        let phase = match folder::read(path) {
            Ok(Some(record)) => {
                last = record;
                Some(last.phase)
            }
            Ok(None) => None,
            // The record cannot be read now: its last readable state counts.
            Err(_) => Some(last.phase),
        };
        match watch(phase, is_alive.load(Ordering::Relaxed), now_ms()) {
            Action::Leave => return Ok(()),
            Action::Undo => {
                undo(&session, &last);
                return Ok(());
            }
            Action::Wait => std::thread::sleep(POLL),
        }
    }
}

/// Undoes the change unless it was confirmed while this process waited for the lock. Tries until
/// it succeeds, because a program that hangs may end.
fn undo(session: &Session, last: &Record) {
    let mut pause = Duration::from_secs(1);
    while session.undo_unless_changed(last).is_err() {
        std::thread::sleep(pause);
        pause = PAUSE_MAX.min(2 * pause);
    }
}

/// Returns a flag that is true until the other end of the standard input is closed.
fn watch_applier() -> Arc<AtomicBool> {
    let is_alive = Arc::new(AtomicBool::new(true));
    let flag = Arc::clone(&is_alive);
    std::thread::spawn(move || {
        let mut bytes = [0; 64];
        let mut pipe = io::stdin().lock();
        while pipe.read(&mut bytes).is_ok_and(|count| count > 0) {}
        flag.store(false, Ordering::Relaxed);
    });
    is_alive
}
