//! Starting the process that undoes an unconfirmed change ([`follow`](super::follow())).
//!
//! The watcher is a second process of this program in a separate session, so that neither a closed
//! terminal nor a killed shell ends it. Its standard input is a pipe from the process that applies
//! the change: an end of file shows that this process was killed.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command as Process, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::now_ms;

/// The line that the watcher prints when it is ready.
pub(super) const READY: &str = "ready";
/// Time in which the watcher has to become ready.
const START: Duration = Duration::from_secs(20);

/// A watcher that runs. Dropping it closes the pipe; the watcher continues.
#[derive(Debug)]
pub struct Watcher {
    child: Child,
    _pipe: Option<ChildStdin>,
}

impl Watcher {
    /// Starts `underload shape watch RECORD`, which calls [`follow`](super::follow()), and waits until it is ready.
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
