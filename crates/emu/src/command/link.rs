//! A command behind an emulated link, as Mahimahi's shells do it.
//!
//! ```text
//!   command's namespace                this process          the caller's network
//!   100.126.N.2, default route ── ul0 ── Gateway ── ulN ── 100.126.N.1, masqueraded
//! ```
//!
//! The command reaches what the caller's network reaches. "Up" is from the command outwards. The
//! environment has an address of the caller's machine, `UNDERLOAD_BASE`: the outer one, or where
//! `pasta` stands between, the one that it hands on to the machine. A command that itself puts a
//! command behind a link nests: the inner link's caller's network is the outer link's namespace.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::os::unix::thread::JoinHandleExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::pthread::pthread_kill;
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use underload_aqm::registry::LinkSetup;
use underload_aqm::rng::Rng;
use underload_record::schema::Direction;

use super::uplink::{Uplink, UplinkError};
use super::{log, resolver};
use crate::gateway::{
    Events, Gateway, GatewayConfig, GatewayError, GatewayReport, Journal, LaneConfig, Live, Reading,
};
use crate::machine::privilege::{INSIDE_PASTA, Privilege};
use crate::machine::{Clock, Namespace, NamespaceError, Tun, TunError};

/// What to run, and behind what.
#[derive(Clone, Debug)]
pub struct LinkCommand {
    /// The links, seen from the command.
    pub gateway: GatewayConfig,
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// Where `uplink.log`, `downlink.log` and `samples.csv` go, if anywhere.
    pub log: Option<PathBuf>,
    /// Gives the command this process's stderr as its stdout: that of this process is for others.
    pub keeps_stdout: bool,
}

/// How it ended.
#[derive(Debug)]
pub struct LinkOutcome {
    /// That of the command.
    pub status: ExitStatus,
    /// From the command's start to its end.
    pub elapsed: Duration,
    /// What the links did.
    pub report: GatewayReport,
    /// Why the logs are not whole.
    pub log_failure: Option<LinkError>,
}

/// Why a command could not be run behind a link.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Nothing to run.
    #[error("no command given: expected one after `--`")]
    NoCommand,
    /// The command could not be started.
    #[error("{command} cannot be run")]
    Start {
        /// The program, without its arguments.
        command: String,
        /// What failed on the way into its namespace.
        source: NamespaceError,
    },
    /// The command's output could not be sent elsewhere.
    #[error("sending the command's output to stderr")]
    Stdout(#[source] io::Error),
    /// The command could not be waited for.
    #[error("waiting for the command")]
    Wait(#[source] io::Error),
    /// A signal ended the writing of the logs.
    #[error("the logs in {} were cut short by a signal", directory.display())]
    LogsCutShort {
        /// Where they are.
        directory: PathBuf,
    },
    /// A log could not be written.
    #[error("{} cannot be written", path.display())]
    Log {
        /// The file, by the path that was opened.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The address range or the way out failed.
    #[error(transparent)]
    Uplink(#[from] UplinkError),
    /// The namespace failed.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A device failed.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// The gateway failed.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
}

impl LinkError {
    /// The exit status that shells and `env` have for this: 127 for a command that does not exist,
    /// 126 for one that cannot be run.
    pub fn exit_status(&self) -> Option<u8> {
        match self {
            Self::Start { source: NamespaceError::Step { source, .. }, .. } => {
                Some(if source.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
            }
            _ => None,
        }
    }
}

/// Name of the command's device.
const DEVICE: &str = "ul0";
/// The only end of the wire that is Ethernet-like is the host's.
const MTU: u16 = 1500;

impl LinkCommand {
    /// Runs the command to its end. `note` is told what will not work, in words for the user.
    ///
    /// Meanwhile Ctrl-C is the command's affair, and other signals that would end this process
    /// are passed on to it. After the command's end the first such signal ends the writing of the
    /// logs, a second one this process. Call it from the main thread, before starting others.
    ///
    /// # Errors
    /// Where a step is refused; the system is then as it was before.
    pub fn run(
        &self,
        privilege: Privilege,
        note: &mut dyn FnMut(&str),
    ) -> Result<LinkOutcome, LinkError> {
        self.run_watched(privilege, note, None)
    }

    /// The same, while somebody is shown what the links do.
    ///
    /// # Errors
    /// As [`LinkCommand::run`].
    pub fn run_watched(
        &self,
        privilege: Privilege,
        note: &mut dyn FnMut(&str),
        watcher: Option<Box<dyn Watch>>,
    ) -> Result<LinkOutcome, LinkError> {
        let signals = forwarded_signals();
        // Threads inherit the mask: only this one is to take the signals.
        let _ = signals.thread_block();
        let outcome = self.run_with_signals_blocked(privilege, note, signals, watcher);
        let _ = signals.thread_unblock();
        outcome
    }

    fn run_with_signals_blocked(
        &self,
        privilege: Privilege,
        note: &mut dyn FnMut(&str),
        signals: SigSet,
        watcher: Option<Box<dyn Watch>>,
    ) -> Result<LinkOutcome, LinkError> {
        let (program, arguments) = self.command.split_first().ok_or(LinkError::NoCommand)?;
        let uplink = Uplink::create()?;
        uplink.notes.iter().for_each(|text| note(text));
        if privilege == Privilege::UserNamespace {
            uplink.host().configure("link set lo up")?;
            note(
                "without root, neither this machine nor anything beyond can be reached: be root, \
                 install `pasta` (Debian: passt), or start server and link in one shell of \
                 `unshare --map-root-user --net`",
            );
        }
        let outer = || uplink.range().outer_v4().to_string();
        let base = if privilege == Privilege::Pasta {
            note(
                "without root, by way of `pasta`: it sends TCP without congestion control, so \
                 downloads are not worth measuring",
            );
            uplink.gateway_v4().unwrap_or_else(outer)
        } else {
            outer()
        };
        let (inside, devices) = connect(&uplink, note)?;
        let is_abandoned = Arc::new(AtomicBool::new(false));
        let (journals, logs) = self.open_logs(&is_abandoned)?;
        let clock = Clock::start();
        let devices = (&devices.0, &devices.1);
        let gateway = Gateway::start_with_journals(self.gateway.clone(), devices, clock, journals)?;
        let command = self.command_at(program, arguments, &base)?;
        let begin = Instant::now();
        let started = inside.spawn_in_our_group(command);
        let child = started.map_err(|source| LinkError::Start {
            command: program.to_string_lossy().into_owned(),
            source,
        })?;
        let watching = watcher.map(|watcher| Watching::start(watcher, gateway.counters()));
        let ended = attend(child, signals, &is_abandoned);
        let elapsed = begin.elapsed();
        watching.into_iter().for_each(Watching::end);
        let (status, attendant) = ended.map_err(LinkError::Wait)?;
        let report = gateway.stop()?;
        let finish = |directory: &PathBuf| {
            finish_logs(directory, logs, &report)?;
            let directory = directory.clone();
            if is_abandoned.load(Relaxed) {
                return Err(LinkError::LogsCutShort { directory });
            }
            Ok(())
        };
        let log_failure = self.log.as_ref().and_then(|directory| finish(directory).err());
        attendant.dismiss();
        Ok(LinkOutcome { status, elapsed, report, log_failure })
    }

    /// The command, with the address of this machine in its environment.
    fn command_at(
        &self,
        program: &OsStr,
        arguments: &[OsString],
        base: &str,
    ) -> Result<Command, LinkError> {
        let mut command = Command::new(program);
        command.args(arguments).env("UNDERLOAD_BASE", base).env("MAHIMAHI_BASE", base);
        command.env_remove(INSIDE_PASTA);
        if self.keeps_stdout {
            let stderr = io::stderr().as_fd().try_clone_to_owned();
            command.stdout(stderr.map_err(LinkError::Stdout)?);
        }
        Ok(command)
    }

    fn open_logs(
        &self,
        is_abandoned: &Arc<AtomicBool>,
    ) -> Result<([Option<Journal>; 2], Vec<LogWriter>), LinkError> {
        let Some(directory) = &self.log else { return Ok(([None, None], Vec::new())) };
        fs::create_dir_all(directory)
            .map_err(|source| LinkError::Log { path: directory.clone(), source })?;
        check_new(directory)?;
        let words: Vec<_> = self.command.iter().map(|word| word.to_string_lossy()).collect();
        let words = words.join(" ");
        let mut writers = Vec::new();
        let mut open = |direction: Direction, lane: &LaneConfig| {
            let name = direction.name();
            let path = directory.join(format!("{name}link.log"));
            let (link, queue) = (lane.link.label.to_string(), lane.queue.label.to_string());
            let header = log::header(&format!("{name}link"), &link, &queue, &path, &words);
            let (journal, events) = Journal::new();
            let rng = self.gateway.stream(direction);
            let (link, abandoned) = (lane.link.clone(), Arc::clone(is_abandoned));
            writers.push(LogWriter::start(path, header, link, rng, events, abandoned));
            journal
        };
        let journals =
            [open(Direction::Up, &self.gateway.up), open(Direction::Down, &self.gateway.down)]
                .map(Some);
        Ok((journals, writers))
    }
}

/// Is shown what the links do while the command runs, by a thread of its own.
pub trait Watch: Send {
    /// What both directions, up first, have counted so far.
    fn look(&mut self, readings: [Reading; 2]);
    /// The command has ended.
    fn end(&mut self);
}

/// The thread that shows.
struct Watching {
    thread: JoinHandle<()>,
    is_over: Arc<AtomicBool>,
}

impl Watching {
    fn start(mut watcher: Box<dyn Watch>, counters: [Arc<Live>; 2]) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            while !stop.load(Relaxed) {
                watcher.look([counters[0].read(), counters[1].read()]);
                std::thread::park_timeout(LOOK_INTERVAL);
            }
            watcher.end();
        });
        Self { thread, is_over }
    }

    fn end(self) {
        self.is_over.store(true, Relaxed);
        self.thread.thread().unpark();
        // A panic in it has no bearing on the command's end.
        let _ = self.thread.join();
    }
}

/// From one look to the next.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Refuses a directory that holds files of the logs' names, before the command starts. A pipe may
/// be there: nothing in it is lost.
fn check_new(directory: &Path) -> Result<(), LinkError> {
    for name in ["uplink.log", "downlink.log", SAMPLES] {
        let path = directory.join(name);
        if path.is_file() {
            let words = "it is there already: name another directory";
            let source = io::Error::new(io::ErrorKind::AlreadyExists, words);
            return Err(LinkError::Log { path, source });
        }
    }
    Ok(())
}

/// The log of both directions over time.
const SAMPLES: &str = "samples.csv";

/// A thread that writes one direction's log.
struct LogWriter {
    path: PathBuf,
    thread: JoinHandle<io::Result<u64>>,
}

impl LogWriter {
    fn start(
        path: PathBuf,
        header: String,
        link: LinkSetup,
        rng: Rng,
        events: Receiver<Events>,
        is_abandoned: Arc<AtomicBool>,
    ) -> Self {
        let target = path.clone();
        let thread = std::thread::spawn(move || {
            log::write_events(&target, &header, &link, &rng, &events, &is_abandoned)
        });
        Self { path, thread }
    }
}

fn finish_logs(
    directory: &Path,
    logs: Vec<LogWriter>,
    report: &GatewayReport,
) -> Result<(), LinkError> {
    for log in logs {
        let outcome = log.thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        outcome.map_err(|source| LinkError::Log { path: log.path, source })?;
    }
    let path = directory.join(SAMPLES);
    log::write_samples(&path, report).map_err(|source| LinkError::Log { path, source })
}

/// Makes the command's namespace and both devices, and connects it to the host's network.
fn connect(
    uplink: &Uplink,
    note: &mut dyn FnMut(&str),
) -> Result<(Namespace, (Tun, Tun)), LinkError> {
    let range = uplink.range();
    let (outer_v4, inner_v4) = (range.outer_v4(), range.inner_v4());
    let (outer_v6, inner_v6) = (range.outer_v6(), range.inner_v6());
    let outer_name = range.device();
    let outer = Tun::create(uplink.host(), &outer_name)?;
    let v6_works = Path::new("/proc/sys/net/ipv6").exists();
    uplink.host().configure(&format!(
        "link set {outer_name} mtu {MTU} txqueuelen 10000 up\n\
         addr add {outer_v4}/30 dev {outer_name}\n"
    ))?;
    if v6_works {
        let line = format!("addr add {outer_v6}/64 dev {outer_name} nodad\n");
        uplink.host().configure(&line)?;
    }
    let inside = Namespace::create_with("link", name_service(outer_v4, inner_v4, note).as_deref())?;
    let inner = Tun::create(&inside, DEVICE)?;
    inside.configure(&format!(
        "link set {DEVICE} mtu {MTU} txqueuelen 10000 addrgenmode none\n\
         link set {DEVICE} up\n\
         addr add {inner_v4}/30 dev {DEVICE}\n\
         route add default via {outer_v4} dev {DEVICE}\n"
    ))?;
    if v6_works {
        inside.configure(&format!("addr add {inner_v6}/64 dev {DEVICE} nodad\n"))?;
        if uplink.has_v6 {
            inside.configure(&format!("route add default via {outer_v6} dev {DEVICE}\n"))?;
        }
    }
    Ok((inside, (inner, outer)))
}

/// The `resolv.conf` that the command must see instead of the machine's, if it must.
fn name_service(outer: Ipv4Addr, inner: Ipv4Addr, note: &mut dyn FnMut(&str)) -> Option<String> {
    let present = fs::read_to_string("/etc/resolv.conf").ok()?;
    let resolver = resolver::loopback_resolver(&present)?;
    match resolver::relay(outer, inner, resolver) {
        Ok(()) => Some(resolver::with_name_server(&present, outer)),
        Err(error) => {
            note(&format!("names cannot be resolved: the relay at {outer}:53 failed: {error}"));
            None
        }
    }
}

/// What would end this process, and is the command's affair.
fn forwarded_signals() -> SigSet {
    use Signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    SigSet::from_iter([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2])
}

/// The thread that takes signals while the command runs, and after its end.
struct Attendant {
    stage: Arc<Mutex<Stage>>,
    thread: JoinHandle<()>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The command runs: signals are passed on to it.
    Running,
    /// It has ended: a signal means that the rest is not wanted.
    Ending,
    /// Nothing is left to do.
    Over,
}

/// Waits for the command, while a thread passes on what is sent to this process. Ctrl-C and Ctrl-\
/// reach the command by themselves where it shares our terminal. Once the command has ended, the
/// first signal sets `is_abandoned`, and the second one ends this process.
fn attend(
    mut child: Child,
    signals: SigSet,
    is_abandoned: &Arc<AtomicBool>,
) -> io::Result<(ExitStatus, Attendant)> {
    use std::io::IsTerminal as _;
    let id = Pid::from_raw(child.id() as i32);
    let stage = Arc::new(Mutex::new(Stage::Running));
    let shares_terminal = io::stdin().is_terminal();
    let (present, is_abandoned) = (Arc::clone(&stage), Arc::clone(is_abandoned));
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while let Ok(signal) = signals.wait() {
            // Held until the signal is passed on: the command is not reaped before.
            let stage = locked(&present);
            match *stage {
                Stage::Running => {
                    let is_key = matches!(signal, Signal::SIGINT | Signal::SIGQUIT);
                    if !(is_key && shares_terminal) {
                        let _ = kill(id, signal);
                    }
                }
                Stage::Ending if matches!(signal, Signal::SIGUSR1 | Signal::SIGUSR2) => {}
                Stage::Ending => {
                    if is_abandoned.swap(true, Relaxed) {
                        let _ = SigSet::from(signal).thread_unblock();
                        let _ = raise(signal);
                    }
                }
                Stage::Over => return,
            }
        }
    })?;
    // Not reaped yet, its number cannot become another process's while signals are passed on.
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    while waitid(Id::Pid(id), flags) == Err(Errno::EINTR) {}
    *locked(&stage) = Stage::Ending;
    Ok((child.wait()?, Attendant { stage, thread }))
}

impl Attendant {
    fn dismiss(self) {
        *locked(&self.stage) = Stage::Over;
        // A panic in it has no bearing on the command's end.
        // A number to Rust, and to musl a pointer.
        let thread = self.thread.as_pthread_t() as libc::pthread_t;
        if pthread_kill(thread, Signal::SIGUSR1).is_ok() {
            let _ = self.thread.join();
        }
    }
}

fn locked(stage: &Mutex<Stage>) -> MutexGuard<'_, Stage> {
    stage.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_never_replace_a_file() {
        for name in ["uplink.log", "downlink.log", SAMPLES] {
            let directory = tempfile::tempdir().expect("a directory");
            check_new(directory.path()).expect("nothing is there");
            fs::write(directory.path().join(name), "mine").expect("written");
            let error = check_new(directory.path()).expect_err("it is refused");
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
