//! The host's side: starting a guest, waiting for it, and ending it.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::Image;
use crate::machine::sys::{die_with_parent, run_on_one_core};

/// Name of the guest's first program in the shared directory; usually a symbolic link.
pub const PROGRAM: &str = "init";
/// Memory of a guest. The host allocates what the guest uses.
const MEMORY: &str = "mem=1024M";
const MEMORY_BYTES: u64 = 1 << 30;
/// Instant at which the guest's wall clock starts, nanoseconds since 1970.
const START: &str = "time-travel-start=1700000000000000000";
/// Interval between looks at a guest that runs.
const POLL: Duration = Duration::from_millis(5);
/// Lines of a guest's console that an error repeats, and bytes of a line.
const CONSOLE_LINES: usize = 6;
const LINE_BYTES: usize = 300;

/// Why a guest failed or was ended early.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    #[error("starting the kernel {}", path.display())]
    Start { path: PathBuf, source: io::Error },
    #[error("waiting for the guest")]
    Wait(#[source] io::Error),
    #[error(
        "the guest did not end within {} s; its console's last lines: {console}", limit.as_secs()
    )]
    Hangs { limit: Duration, console: String },
    #[error("the guest failed ({status}); its console's last lines: {console}")]
    Failed { status: ExitStatus, console: String },
}

/// A kernel that runs. Dropping it kills the kernel and all of the guest's processes.
#[derive(Debug)]
pub struct Guest {
    kernel: Child,
    console: Option<JoinHandle<String>>,
}

impl Guest {
    /// Starts `image` with [`PROGRAM`] of the directory `shared` as the guest's first process,
    /// which gets `arguments`. All randomness in the guest follows from `seed`, the arguments and
    /// the image: nothing else of the host has an influence, not even the directory's path.
    ///
    /// The kernel dies with the calling thread. It runs on one core, which `place` selects: kernel
    /// and processes of a guest never run at the same time, and changes of cores would take most
    /// of the time.
    pub fn start(
        image: &Image,
        shared: &Path,
        arguments: &[&str],
        seed: u64,
        place: usize,
    ) -> Result<Self, GuestError> {
        let error = |source| GuestError::Start { path: image.path().to_owned(), source };
        // The command line feeds the kernel's random numbers, so it names no path that varies:
        // `/proc/self/cwd` is the shared directory.
        let mut command = Command::new(image.path());
        command
            .args([MEMORY, START, "time-travel=inf-cpu", "norandmaps", "quiet"])
            .args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"])
            .args(["console=tty0", "con=null", "con0=null,fd:1", "seccomp=auto"])
            .args(["umid=guest", "uml_dir=/proc/self/cwd/"])
            .args([&format!("init=/proc/self/cwd/{PROGRAM}"), "TMPDIR=/run", "NO_COLOR=1"])
            .arg("--")
            .args(arguments)
            .env_clear()
            .env("UML_SEED", (seed & 0x7fff_ffff).to_string())
            .env("TMPDIR", memory_directory(shared))
            .current_dir(shared)
            .process_group(0);
        // The kernel's early errors go to stderr, and those of the guest to its console.
        let (lines, write) = io::pipe().map_err(error)?;
        command.stdin(Stdio::null()).stderr(write.try_clone().map_err(error)?).stdout(write);
        die_with_parent(&mut command);
        run_on_one_core(&mut command, place).map_err(error)?;
        let kernel = command.spawn().map_err(error)?;
        let console = Some(thread::spawn(move || last_lines(lines)));
        Ok(Self { kernel, console })
    }

    /// Waits for the guest's end. `Ok(false)`: `stop` was raised and the guest was killed.
    ///
    /// # Errors
    /// Returns [`GuestError`] if the guest takes longer than `limit` or ends with an error.
    pub fn wait(mut self, limit: Duration, stop: &AtomicBool) -> Result<bool, GuestError> {
        let start = Instant::now();
        loop {
            if self.has_ended().map_err(GuestError::Wait)? {
                let console = self.end();
                let status = self.kernel.wait().map_err(GuestError::Wait)?;
                let failed = GuestError::Failed { status, console };
                return if status.success() { Ok(true) } else { Err(failed) };
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if start.elapsed() > limit {
                return Err(GuestError::Hangs { limit, console: self.end() });
            }
            thread::sleep(POLL);
        }
    }

    /// Returns whether the kernel has ended. Leaves it as a zombie, so that the number of its
    /// process group is not yet another program's.
    fn has_ended(&self) -> io::Result<bool> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        Ok(waitid(Id::Pid(self.pid()), flags)? != WaitStatus::StillAlive)
    }

    /// Kills the remaining processes of the guest. Returns the last lines of its console.
    fn end(&mut self) -> String {
        let Some(console) = self.console.take() else { return String::new() };
        // The processes of a guest are processes of the host, in the kernel's group.
        let _ = killpg(self.pid(), Signal::SIGKILL);
        let _ = self.kernel.wait();
        console.join().unwrap_or_default()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.kernel.id() as i32)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

/// The directory for the file that is the guest's memory; the kernel unlinks it at once. Containers
/// often have a `/dev/shm` that is too small, or from which nothing can be executed.
fn memory_directory(shared: &Path) -> &Path {
    let memory = Path::new("/dev/shm");
    let is_fit = statvfs(memory).is_ok_and(|system| {
        let bytes = system.blocks_available().saturating_mul(system.fragment_size());
        bytes >= MEMORY_BYTES && !system.flags().contains(FsFlags::ST_NOEXEC)
    });
    if is_fit { memory } else { shared }
}

fn last_lines(console: impl io::Read) -> String {
    let mut last = VecDeque::new();
    let mut console = BufReader::new(console);
    let mut line = Vec::new();
    while console.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        let text = String::from_utf8_lossy(&line);
        let text: String = text.trim().chars().filter(|it| !it.is_control()).collect();
        if !text.is_empty() {
            last.push_back(text.chars().take(LINE_BYTES).collect::<String>());
        }
        while last.len() > CONSOLE_LINES {
            last.pop_front();
        }
        line.clear();
    }
    Vec::from(last).join(" | ")
}
