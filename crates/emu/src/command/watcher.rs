//! A child process that survives this process and undoes the changes that the kernel does not undo.
//!
//! The child is forked before the first thread starts, and reads from a pipe. An end of file
//! without a byte means that this process was killed.

use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, getpid, getppid, setsid};

use crate::machine::{privilege, sys};

/// The write end of the pipe, and the child.
#[derive(Debug)]
pub struct Watcher {
    pipe: Option<PipeWriter>,
    child: Pid,
}

impl Watcher {
    /// Starts a child that runs `clean_up` once this process has been killed. The child has no
    /// terminal and none of our open files.
    ///
    /// # Errors
    /// Returns an error if this process has other threads, because a forked child may then not
    /// allocate.
    pub fn start(clean_up: impl FnOnce()) -> io::Result<Self> {
        let threads = privilege::threads();
        if threads > 1 {
            return Err(io::Error::other(format!("{threads} threads are running")));
        }
        let parent = getpid();
        let (reader, writer) = io::pipe()?;
        match sys::fork_process()? {
            ForkResult::Parent { child } => Ok(Self { pipe: Some(writer), child }),
            ForkResult::Child => {
                drop(writer);
                let was_killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    if was_parent_killed(reader) {
                        wait_until_dead(parent);
                        clean_up();
                    }
                }));
                sys::exit_now(i32::from(was_killed.is_err()))
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // A byte means that everything is undone. Errors are ignored: the child may be dead.
        if let Some(mut pipe) = self.pipe.take() {
            let _ = pipe.write_all(&[1]);
        }
        let _ = waitpid(self.child, None);
    }
}

/// Waits for the other end of the pipe to close. Returns whether it did so without a byte.
fn was_parent_killed(reader: PipeReader) -> bool {
    // A separate session, which does not receive the terminal's signals.
    let _ = setsid();
    let _ = std::env::set_current_dir("/");
    if sys::keep_only(reader.as_raw_fd()).is_err() {
        return false;
    }
    // SIGPIPE is ignored; other signals are blocked or end the child.
    let mut reader = reader;
    let mut byte = [0];
    loop {
        match reader.read(&mut byte) {
            Ok(count) => return count == 0,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return true,
        }
    }
}

/// Waits until the parent has released its locks. A dying process closes its files one after the
/// other, the pipe before the locks that it took later, and has closed all of them when its
/// children get another parent.
fn wait_until_dead(parent: Pid) {
    let start = Instant::now();
    while getppid() == parent && start.elapsed() < DEATH_LASTS_MAX {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Longest wait for a process to exit. If it takes longer, the next start cleans up.
const DEATH_LASTS_MAX: Duration = Duration::from_secs(30);
