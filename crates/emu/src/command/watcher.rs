//! A child that outlives this process, however it ends, to undo what the kernel does not.
//!
//! It is forked before the first thread starts, holds the reading end of a pipe, and sleeps. The
//! end of file without a word means that this process was killed.

use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, getpid, getppid, setsid};

use crate::machine::{privilege, sys};

/// The end of the pipe that this process holds, and the child.
#[derive(Debug)]
pub struct Watcher {
    pipe: Option<PipeWriter>,
    child: Pid,
}

impl Watcher {
    /// Starts a child that runs `clean_up` once this process has been killed. It has no open files
    /// of ours, and no terminal.
    ///
    /// # Errors
    /// Where this process has other threads (a child of them could not do much), or may not fork.
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
                    if wait_for_the_end(reader) {
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
        // A byte says that everything is undone. A child that is gone has nothing to read it.
        if let Some(mut pipe) = self.pipe.take() {
            let _ = pipe.write_all(&[1]);
        }
        let _ = waitpid(self.child, None);
    }
}

/// Whether the other end was closed without a word.
fn wait_for_the_end(reader: PipeReader) -> bool {
    // Without a session of its own it would get the terminal's signals.
    let _ = setsid();
    let _ = std::env::set_current_dir("/");
    if sys::keep_only(reader.as_raw_fd()).is_err() {
        return false;
    }
    // SIGPIPE is ignored, other signals are blocked by whoever started us, or end us as they may.
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

/// A process that ends closes its files one after the other, the pipe before the locks that it
/// took later, and has closed all of them when its children get another parent. Until then what it
/// held looks as if somebody lived who needs it.
fn wait_until_dead(parent: Pid) {
    let start = Instant::now();
    while getppid() == parent && start.elapsed() < DEATH_LASTS_MAX {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A process that takes longer to end is left to the next start.
const DEATH_LASTS_MAX: Duration = Duration::from_secs(30);
