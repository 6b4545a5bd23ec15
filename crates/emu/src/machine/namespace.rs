//! Network namespaces without names, which end with this process.
//!
//! Nothing is written to `/run/netns`. An open descriptor keeps a namespace alive, descriptors keep
//! its TUN devices, and the first process of its process namespace keeps its processes; that
//! process dies with the thread that created it. So when this process ends, however it does, the
//! kernel removes everything, and no start has to clean up after another.

use std::fs::File;
use std::io::{self, Write as _};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd as _};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use underload_tc::run::with_system_programs;

use super::sys;

/// Why a namespace, or something in it, could not be created.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    #[error("{step} in the {namespace} namespace")]
    Step {
        /// The step as it appears in the message: "reading its address".
        step: &'static str,
        namespace: String,
        source: io::Error,
    },
    /// A command that configures the network failed or is not installed.
    #[error("`{command}` in the {namespace} namespace: {message}")]
    Command { command: String, namespace: String, message: String },
    /// The kernel refused a parameter of the network, or to run a command that configures it.
    #[error("`{command}` in the {namespace} namespace")]
    Refused {
        /// The command, or the `sysctl` that would set the parameter.
        command: String,
        namespace: String,
        source: io::Error,
    },
}

/// A network namespace: one of ours, or the one in which this process started.
#[derive(Debug)]
pub struct Network {
    name: String,
    file: File,
}

impl Network {
    /// The network of the calling thread.
    pub fn current(name: &str) -> Result<Self, NamespaceError> {
        let name = name.to_owned();
        match File::open("/proc/thread-self/ns/net") {
            Ok(file) => Ok(Self { name, file }),
            Err(source) => {
                Err(NamespaceError::Step { step: "opening the network", namespace: name, source })
            }
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `action` in a thread inside this network and returns its result. Sockets and devices
    /// that it creates stay in the network; their descriptors work in any thread.
    ///
    /// # Panics
    /// If `action` panics.
    pub fn enter<T: Send>(&self, action: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name(self.name.clone());
            let running = thread.spawn_scoped(scope, || {
                setns(&self.file, CloneFlags::CLONE_NEWNET)?;
                Ok(action())
            });
            let outcome = match running {
                Ok(handle) => match handle.join() {
                    Ok(outcome) => outcome,
                    Err(panic) => std::panic::resume_unwind(panic),
                },
                Err(error) => Err(error),
            };
            outcome.map_err(|source: io::Error| self.failed("entering the network", source))
        })
    }

    /// Opens a socket or starts a process inside this network, see [`Self::enter`]. Fails, too, if
    /// the network cannot be entered.
    pub fn open<T: Send>(&self, open: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        self.enter(open).map_err(io::Error::other)?
    }

    /// Returns the path by which `ip` finds this network while this value exists.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Returns a number that no other network has while this one exists.
    pub fn id(&self) -> Result<u64, NamespaceError> {
        use std::os::unix::fs::MetadataExt as _;
        let metadata = self.file.metadata();
        metadata.map(|it| it.ino()).map_err(|source| self.failed("examining the network", source))
    }

    /// Runs `ip` commands, one per line, up to the first error.
    pub fn configure(&self, lines: &str) -> Result<(), NamespaceError> {
        let mut command = Command::new("ip");
        command.args(["-batch", "-"]);
        self.run(command, lines).map(drop)
    }

    /// Writes a kernel parameter of this network, by its path below `/proc/sys`.
    pub fn set_parameter(&self, path: &str, value: &str) -> Result<(), NamespaceError> {
        let written = self.enter(|| std::fs::write(format!("/proc/sys/{path}"), value))?;
        written.map_err(|source| NamespaceError::Refused {
            command: format!("sysctl {path}={value}"),
            namespace: self.name.clone(),
            source,
        })
    }

    /// Runs a short command inside with `input` on its standard input, and returns its output.
    pub fn run(&self, mut command: Command, input: &str) -> Result<String, NamespaceError> {
        let name = format!("{command:?}").replace('"', "");
        command.env("PATH", with_system_programs(std::env::var_os("PATH")));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let complain = |message: String| NamespaceError::Command {
            command: name.clone(),
            namespace: self.name.clone(),
            message,
        };
        let outcome = self.enter(|| -> io::Result<Output> {
            let mut child = command.spawn()?;
            if let Some(mut pipe) = child.stdin.take() {
                // A command that fails early closes its input; its own message is more useful.
                let _ = pipe.write_all(input.as_bytes());
            }
            child.wait_with_output()
        })?;
        match outcome {
            Ok(output) if output.status.success() => {
                Ok(String::from_utf8_lossy(&output.stdout).into_owned())
            }
            Ok(output) => Err(complain(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(complain("not installed (Debian: iproute2, nftables)".to_owned()))
            }
            Err(source) => Err(NamespaceError::Refused {
                command: name.clone(),
                namespace: self.name.clone(),
                source,
            }),
        }
    }

    /// Counts the packets that the kernel dropped at a device of this network, in both directions;
    /// `None` if the device does not exist.
    pub fn kernel_drops(&self, device: &str) -> Result<Option<u64>, NamespaceError> {
        let table = self.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"))?;
        Ok(table.ok().and_then(|table| drops_in_device_table(&table, device)))
    }

    fn failed(&self, step: &'static str, source: io::Error) -> NamespaceError {
        NamespaceError::Step { step, namespace: self.name.clone(), source }
    }
}

/// Sums up columns 4 (receive) and 12 (transmit) after the device's name in `/proc/net/dev`.
fn drops_in_device_table(table: &str, device: &str) -> Option<u64> {
    let row = table.lines().find_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        (name.trim() == device).then_some(numbers)
    })?;
    let numbers: Vec<u64> = row.split_whitespace().filter_map(|text| text.parse().ok()).collect();
    Some(numbers.get(3)? + numbers.get(11)?)
}

/// A new network namespace, with a process namespace for its commands.
#[derive(Debug)]
pub struct Namespace {
    network: Network,
    jobs: Option<Sender<Job>>,
    holder: Option<JoinHandle<()>>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Namespace {
    /// Creates a namespace with only a loopback device. `name` appears in messages.
    pub fn create(name: &str) -> Result<Self, NamespaceError> {
        Self::create_with(name, None)
    }

    /// Like [`Namespace::create`], with another content of `/etc/resolv.conf` for its processes.
    pub fn create_with(name: &str, resolv_conf: Option<&str>) -> Result<Self, NamespaceError> {
        let (jobs, inbox) = channel::<Job>();
        let (ready, outcome) = channel();
        let failed =
            |(step, source)| NamespaceError::Step { step, namespace: name.to_owned(), source };
        let resolv_conf = resolv_conf.map(str::to_owned);
        let holder = std::thread::Builder::new()
            .name(format!("hold-{name}"))
            .spawn(move || {
                let (file, init) = match unshare_all(resolv_conf.as_deref()) {
                    Ok(made) => made,
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        return;
                    }
                };
                let _ = ready.send(Ok(file));
                for job in inbox {
                    job();
                }
                end_process_namespace(init);
            })
            .map_err(|error| failed(("starting a thread", error)))?;
        let gone = || ("starting a thread", io::ErrorKind::BrokenPipe.into());
        let file = outcome.recv().map_err(|_| failed(gone()))?.map_err(failed)?;
        let network = Network { name: name.to_owned(), file };
        network.configure("link set lo up")?;
        Ok(Self { network, jobs: Some(jobs), holder: Some(holder) })
    }

    /// Starts `command` inside, as the leader of a new process group. All of its processes end at
    /// the latest with this namespace.
    pub fn spawn(&self, mut command: Command) -> Result<Process, NamespaceError> {
        use std::os::unix::process::CommandExt as _;
        command.process_group(0);
        self.spawn_in_our_group(command).map(|child| Process { child })
    }

    /// Like [`Namespace::spawn`], in this process's own group, so that it shares the terminal.
    pub(crate) fn spawn_in_our_group(&self, mut command: Command) -> Result<Child, NamespaceError> {
        let (reply, outcome) = channel();
        let job: Job = Box::new(move || {
            sys::block_no_signal_in(&mut command);
            let _ = reply.send(command.spawn());
        });
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        let spawned = if sent { outcome.recv().ok() } else { None };
        spawned
            .unwrap_or_else(|| Err(io::ErrorKind::BrokenPipe.into()))
            .map_err(|source| self.network.failed("starting a command", source))
    }
}

impl Deref for Namespace {
    type Target = Network;
    fn deref(&self) -> &Network {
        &self.network
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(holder) = self.holder.take() {
            let _ = holder.join();
        }
    }
}

/// Kills the first process of a process namespace, and with it all others. That process ends when
/// all others have been reaped. A [`Process`] that still exists is reaped only later, so the wait
/// is bounded.
fn end_process_namespace(init: Pid) {
    const LOOKS: u32 = 100;
    let _ = kill(init, Signal::SIGKILL);
    for _ in 0..LOOKS {
        if waitpid(init, Some(WaitPidFlag::WNOHANG)) != Ok(WaitStatus::StillAlive) {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Moves the calling thread into new namespaces, and starts the first process of the process
/// namespace.
fn unshare_all(resolv_conf: Option<&str>) -> Result<(File, Pid), (&'static str, io::Error)> {
    let step = |step: &'static str| move |errno: nix::Error| (step, io::Error::from(errno));
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
        .map_err(step("creating a network namespace"))?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)
        .map_err(step("separating mounts"))?;
    if let Some(text) = resolv_conf {
        cover_resolv_conf(text).map_err(|error| ("replacing /etc/resolv.conf", error))?;
    }
    let file = File::open("/proc/thread-self/ns/net")
        .map_err(|error| ("opening the network namespace", error))?;
    unshare(CloneFlags::CLONE_NEWPID).map_err(step("creating a process namespace"))?;
    let init = sys::fork_namespace_init().map_err(|error| ("starting its first process", error))?;
    Ok((file, init))
}

/// Mounts a file over `/etc/resolv.conf` in this mount namespace. The file's name is removed at
/// once; the mount keeps the file.
fn cover_resolv_conf(text: &str) -> io::Result<()> {
    if !std::path::Path::new("/etc/resolv.conf").exists() {
        return Ok(());
    }
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(text.as_bytes())?;
    nix::sys::stat::fchmod(file.as_fd(), nix::sys::stat::Mode::from_bits_truncate(0o644))?;
    let none = None::<&str>;
    mount(Some(file.path()), "/etc/resolv.conf", none, MsFlags::MS_BIND, none)?;
    Ok(())
}

/// A command running inside a namespace. Dropping it kills it and its process group.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// The command's process, with its standard handles.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Waits for at most `limit`; `None` if the command still runs.
    pub fn wait_for(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            // The process may have just ended by itself.
            let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::drops_in_device_table;

    #[test]
    fn kernel_drops_are_read_from_both_directions() {
        let table = "Inter-|   Receive |  Transmit\n face |bytes ...\n\
                     \x20   lo: 0 0 0 9 0 0 0 0 0 0 0 0 0 0 0 0\n\
                     \x20  ul0: 5 1 0 3 0 0 0 0 7 2 0 4 0 0 0 0\n";
        assert_eq!(drops_in_device_table(table, "ul0"), Some(7));
        assert_eq!(drops_in_device_table(table, "ul1"), None);
    }
}
