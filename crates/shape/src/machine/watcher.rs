//! The process that undoes an unconfirmed change.
//!
//! The watcher is a second process of this program in a separate session, so that neither a closed
//! terminal nor a killed shell ends it. Its standard input is a pipe from the process that applies
//! the change: an end of file shows that this process was killed.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command as Process, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::setsid;

use super::session::{Session, UndoError};
use super::{folder, now_ms};
use crate::record::{Action, Record, watch};

/// Interval between looks at the record.
const POLL: Duration = Duration::from_millis(100);
/// The line that the watcher prints when it is ready.
const READY: &str = "ready";
/// The longest pause before the watcher tries again to undo a change; the first one is a second.
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// Time in which the watcher has to become ready.
const START: Duration = Duration::from_secs(20);

/// A watcher that runs. Dropping it closes the pipe; the watcher continues.
#[derive(Debug)]
pub struct Watcher {
    child: Child,
    _pipe: Option<ChildStdin>,
}

impl Watcher {
    /// Starts `underload shape watch RECORD`, which calls [`follow`], and waits until it is ready.
    ///
    /// # Errors
    /// Returns an error if it ends before it is ready; then nothing may be changed.
    pub fn start(record: &Path) -> io::Result<Self> {
        // The name of this program's file may be another program's by now.
        let mut process = Process::new("/proc/self/exe");
        process.args(["shape", "watch"]).arg(record).current_dir("/");
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = process.spawn()?;
        let (sender, receiver) = mpsc::channel();
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                let mut line = String::new();
                let _ = BufReader::new(out).take(4_096).read_line(&mut line);
                let _ = sender.send(line);
            });
        }
        // A stopped process must not hold the lock for ever.
        let line = receiver.recv_timeout(START).unwrap_or_default();
        if line.trim() != READY {
            let _ = child.kill();
            let status = child.wait()?;
            return Err(io::Error::other(format!("it was not ready ({status})")));
        }
        let pipe = child.stdin.take();
        Ok(Self { child, _pipe: pipe })
    }

    /// Waits until the watcher has ended, at most for `limit`.
    pub fn wait(&mut self, limit: Duration) {
        let deadline = now_ms() + limit.as_millis() as u64;
        while matches!(self.child.try_wait(), Ok(None)) && now_ms() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

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
