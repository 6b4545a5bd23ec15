//! Runs a command behind an emulated link, as Mahimahi's shells do.
//!
//! ```text
//!   command's namespace                this process          the caller's network
//!   198.19.N.2, default route ── ul0 ── Gateway ── ulN ── 198.19.N.1, masqueraded
//! ```
//!
//! The command reaches the hosts that the caller's network reaches. "Up" is away from the command.
//! The environment variable `UNDERLOAD_BASE` is an address of the caller's machine: the outer
//! address, or the one that `pasta` forwards to the machine. Links nest: for a link inside another,
//! the caller's network is the namespace of the outer link.

use std::ffi::{OsStr, OsString};
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::os::unix::thread::JoinHandleExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, io};

use nix::errno::Errno;
use nix::sys::pthread::pthread_kill;
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use underload_record::schema::Direction;

use super::uplink::{Uplink, UplinkError};
use super::{firewall, log, resolver};
use crate::gateway::{Gateway, GatewayConfig, GatewayError, GatewayReport, Journal, LaneConfig};
use crate::machine::privilege::{INSIDE_PASTA, Privilege};
use crate::machine::{Clock, Namespace, NamespaceError, Tun, TunError};

/// The result of a step of the command.
type Result<T, E = LinkError> = std::result::Result<T, E>;

/// A command, and the links that it runs behind.
#[derive(Clone, Debug)]
pub struct LinkCommand {
    pub gateway: GatewayConfig,
    pub command: Vec<OsString>,
    /// Directory of `uplink.log`, `downlink.log` and `samples.csv`; `None` for no logs.
    pub log: Option<PathBuf>,
    /// Whether the command's stdout goes to this process's stderr, because the caller needs stdout.
    pub keeps_stdout: bool,
}

#[derive(Debug)]
pub struct LinkOutcome {
    pub status: ExitStatus,
    pub elapsed: Duration,
    pub report: GatewayReport,
    /// Why the logs are incomplete.
    pub log_failure: Option<LinkError>,
}

/// Why a command could not run behind a link.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("no command given: expected one after `--`")]
    NoCommand,
    #[error("{command} cannot be run")]
    Start {
        /// The program without its arguments.
        command: String,
        source: NamespaceError,
    },
    #[error("sending the command's output to stderr")]
    Stdout(#[source] io::Error),
    #[error("waiting for the command")]
    Wait(#[source] io::Error),
    #[error("the logs in {} were cut short by a signal", directory.display())]
    LogsCutShort { directory: PathBuf },
    #[error("{} cannot be written", path.display())]
    Log { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Uplink(#[from] UplinkError),
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    #[error(transparent)]
    Tun(#[from] TunError),
    #[error(transparent)]
    Gateway(#[from] GatewayError),
}

impl LinkError {
    /// Returns the exit status of shells and `env` for this error: 127 for a command that does not
    /// exist, 126 for one that cannot be run.
    pub fn exit_status(&self) -> Option<u8> {
        match self {
            Self::Start { source: NamespaceError::Step { source, .. }, .. } => {
                Some(if source.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
            }
            _ => None,
        }
    }
}

const DEVICE: &str = "ul0";
/// The host's end is the only Ethernet-like end of the wire.
const MTU: u16 = 1500;

impl LinkCommand {
    /// Runs the command to its end. `note` receives messages about functions that will be missing.
    ///
    /// Ctrl-C goes to the command, and other signals that would end this process are forwarded to
    /// it. After the command's end the first such signal ends the writing of the logs, and a second
    /// one ends this process. If the link fails, the command is ended. Call this function from the
    /// main thread, before other threads start.
    ///
    /// # Errors
    /// After an error the system has its former state.
    pub fn run(&self, privilege: Privilege, note: &mut dyn FnMut(&str)) -> Result<LinkOutcome> {
        let signals = forwarded_signals();
        // Threads inherit the mask, so that only this one receives the signals.
        let _ = signals.thread_block();
        let outcome = self.run_with_signals_blocked(privilege, note, signals);
        let _ = signals.thread_unblock();
        outcome
    }
    fn run_with_signals_blocked(
        &self,
        privilege: Privilege,
        note: &mut dyn FnMut(&str),
        signals: SigSet,
    ) -> Result<LinkOutcome> {
        let (program, arguments) = self.command.split_first().ok_or(LinkError::NoCommand)?;
        if let Some(text) = small_buffers(&self.gateway) {
            note(&text);
        }
        let uplink = Uplink::create()?;
        for text in &uplink.notes {
            note(text);
        }
        let base = base_address(&uplink, privilege, note)?;
        let (inside, devices) = connect(&uplink, note)?;
        for text in firewall::blocked(&uplink, &devices.1) {
            note(&text);
        }
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
        let target = Target {
            id: Pid::from_raw(child.id() as i32),
            stage: Arc::new(Mutex::new(Stage::Running)),
        };
        let (ended, elapsed) = std::thread::scope(|scope| {
            let watching = scope.spawn(|| end_with(&gateway, &target));
            let ended = wait_and_forward_signals(child, signals, &target, &is_abandoned)
                .inspect_err(|_| *locked(&target.stage) = Stage::Over);
            let elapsed = begin.elapsed();
            watching.thread().unpark();
            let _ = watching.join();
            (ended, elapsed)
        });
        let (status, signal_thread) = ended.map_err(LinkError::Wait)?;
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
        signal_thread.stop();
        Ok(LinkOutcome { status, elapsed, report, log_failure })
    }

    /// Returns the command, with an address of this machine in its environment.
    fn command_at(&self, program: &OsStr, arguments: &[OsString], base: &str) -> Result<Command> {
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
    ) -> Result<([Option<Journal>; 2], Vec<LogWriter>)> {
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
            let target = path.clone();
            let thread = std::thread::spawn(move || {
                log::write_events(&target, &header, &link, &rng, &events, &abandoned)
            });
            writers.push(LogWriter { path, thread });
            journal
        };
        let journals =
            [open(Direction::Up, &self.gateway.up), open(Direction::Down, &self.gateway.down)]
                .map(Some);
        Ok((journals, writers))
    }
}

/// Interval at which the link is checked and its counters are shown.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// A command that runs for longer than this after its link failed is killed.
const TERMINATION_MAX: Duration = Duration::from_secs(5);

/// Refuses a directory with earlier logs before the command starts. A pipe is accepted, because
/// writing to it destroys nothing.
fn check_new(directory: &Path) -> Result<()> {
    for name in ["uplink.log", "downlink.log", SAMPLES] {
        let path = directory.join(name);
        if path.is_file() {
            let words = "it exists already: name another directory";
            let source = io::Error::new(io::ErrorKind::AlreadyExists, words);
            return Err(LinkError::Log { path, source });
        }
    }
    Ok(())
}

/// Name of the log of both directions over time.
const SAMPLES: &str = "samples.csv";

/// The thread that writes one direction's log.
struct LogWriter {
    path: PathBuf,
    thread: JoinHandle<io::Result<u64>>,
}

fn finish_logs(directory: &Path, logs: Vec<LogWriter>, report: &GatewayReport) -> Result<()> {
    for log in logs {
        let outcome = log.thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        outcome.map_err(|source| LinkError::Log { path: log.path, source })?;
    }
    let lost: u64 = report.lanes.iter().map(|(_, lane)| lane.recording.lost_events).sum();
    if lost > 0 {
        let words = format!("the logs lack {lost} packets: the disk was too slow");
        let (path, source) = (directory.to_owned(), io::Error::other(words));
        return Err(LinkError::Log { path, source });
    }
    let path = directory.join(SAMPLES);
    log::write_samples(&path, report).map_err(|source| LinkError::Log { path, source })
}

/// Returns a message if the buffers of this machine's TCP are too small to fill a direction.
fn small_buffers(gateway: &GatewayConfig) -> Option<String> {
    let links = [&gateway.up.link, &gateway.down.link];
    let round_trip = links[0].delay + links[1].delay;
    let rate = links.iter().filter_map(|link| link.facts().rate).max()?;
    let needed = FLIGHTS_PER_BUFFER * rate.bytes_in(round_trip);
    let largest = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
        text.split_whitespace().nth(2)?.parse::<u64>().ok()
    };
    let allowed = largest("tcp_wmem")?.min(largest("tcp_rmem")?);
    (needed > allowed).then(|| {
        format!(
            "one TCP connection stays below {rate} over {round_trip}: it has {:.1} MB in flight, \
             which need buffers of {:.1} MB, and this machine allows {:.1} MB; to allow more: \
             sysctl -w net.ipv4.tcp_wmem='4096 16384 {needed}' net.ipv4.tcp_rmem='4096 131072 \
             {needed}'",
            (needed / FLIGHTS_PER_BUFFER) as f64 / 1e6,
            needed as f64 / 1e6,
            allowed as f64 / 1e6
        )
    })
}

/// The kernel counts its own bytes of a packet beside the data: about half of a buffer is data.
const FLIGHTS_PER_BUFFER: u64 = 2;

/// Returns the address under which the command reaches this machine. Adds a note about destinations
/// that it cannot reach.
fn base_address(uplink: &Uplink, rights: Privilege, note: &mut dyn FnMut(&str)) -> Result<String> {
    let outer = uplink.range().outer_v4().to_string();
    match rights {
        Privilege::Root => Ok(outer),
        Privilege::UserNamespace => {
            uplink.host().configure("link set lo up")?;
            note(
                "without root, neither this machine nor anything beyond can be reached: run as \
                 root, install `pasta` (Debian: passt), or start server and link in one shell of \
                 `unshare --map-root-user --net`",
            );
            Ok(outer)
        }
        Privilege::Pasta => {
            note(
                "without root, the link goes through `pasta`, which sends TCP without congestion \
                 control: downloads are not worth measuring",
            );
            Ok(uplink.gateway_v4().unwrap_or(outer))
        }
    }
}
/// Creates the command's namespace and both devices, and connects it to the host's network.
fn connect(uplink: &Uplink, note: &mut dyn FnMut(&str)) -> Result<(Namespace, (Tun, Tun))> {
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

/// Returns the `resolv.conf` for the command if the machine's would not work.
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

/// Signals that would end this process and are meant for the command.
fn forwarded_signals() -> SigSet {
    use Signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    SigSet::from_iter([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2])
}

/// The running command, to which signals are sent.
struct Target {
    id: Pid,
    /// Locked while a signal is sent, so that the command is not reaped meanwhile and its number is
    /// not reused.
    stage: Arc<Mutex<Stage>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The command runs, and signals are forwarded to it.
    Running,
    /// The command has ended; a signal means that its logs are not wanted.
    Ending,
    Over,
}

/// Ends the command if the gateway fails while the command runs.
fn end_with(gateway: &Gateway, target: &Target) {
    let mut failed: Option<Instant> = None;
    let is_running = || *locked(&target.stage) == Stage::Running;
    while is_running() {
        if !gateway.is_running() {
            let since = *failed.get_or_insert_with(Instant::now);
            let is_overdue = since.elapsed() > TERMINATION_MAX;
            let stage = locked(&target.stage);
            if *stage == Stage::Running {
                let signal = if is_overdue { Signal::SIGKILL } else { Signal::SIGTERM };
                let _ = kill(target.id, signal);
            }
        }
        std::thread::park_timeout(LOOK_INTERVAL);
    }
}

/// The thread that receives signals while the command runs and until its logs are written.
struct SignalThread {
    stage: Arc<Mutex<Stage>>,
    thread: JoinHandle<()>,
}

/// Waits for the command, while a thread forwards signals of this process. Ctrl-C and Ctrl-\\ reach
/// a command in the same terminal directly. Once the command has ended, the first signal sets
/// `is_abandoned`, and the second one ends this process.
fn wait_and_forward_signals(
    mut child: Child,
    signals: SigSet,
    target: &Target,
    is_abandoned: &Arc<AtomicBool>,
) -> io::Result<(ExitStatus, SignalThread)> {
    use std::io::IsTerminal as _;
    let (id, stage) = (target.id, &target.stage);
    let shares_terminal = io::stdin().is_terminal();
    let (present, is_abandoned) = (Arc::clone(stage), Arc::clone(is_abandoned));
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while let Ok(signal) = signals.wait() {
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
    // Not reaped yet: its number cannot be reused while signals are forwarded.
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    while waitid(Id::Pid(id), flags) == Err(Errno::EINTR) {}
    *locked(stage) = Stage::Ending;
    Ok((child.wait()?, SignalThread { stage: Arc::clone(stage), thread }))
}

impl SignalThread {
    fn stop(self) {
        *locked(&self.stage) = Stage::Over;
        // A panic of the thread does not change the command's outcome.
        // The type is an integer in Rust and a pointer in musl.
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
    fn buffers_below_the_bandwidth_delay_product_are_reported() {
        use underload_aqm::registry::{LinkSetup, QueueSetup};
        let said = |link: &str| {
            let link = LinkSetup::parse(link).expect(link);
            let queue = QueueSetup::parse("fifo", &link.facts()).expect("a queue");
            let lane = LaneConfig { link, queue };
            small_buffers(&GatewayConfig::new(lane.clone(), lane))
        };
        let said_of_fast = said("100gbit:delay=1s").expect("no machine has 50 GB");
        assert!(
            said_of_fast.contains("below 100gbit over 2s: it has 25000.0 MB"),
            "{said_of_fast}"
        );
        assert_eq!(said("1mbit:delay=1ms"), None);
        assert_eq!(said("unlimited:delay=1s"), None);
    }

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
