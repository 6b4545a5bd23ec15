//! `underload fleet demo`: a whole fleet on one machine, behind emulated lines.
//!
//! An orchestrator, measurement servers and agents run in one process. Packets pass the lines'
//! queues in real time, between unnamed network namespaces. All of it ends with the process:
//! threads, namespaces, and the directory, which is in memory unless `--keep` names one.

mod access;
mod collected;
mod desk;
mod homes;
mod relay;
mod servers;

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::service::{Service, Setup};
use access::{Internet, Line, ORCHESTRATOR, host_address};
use anyhow::{Context, anyhow};
use clap::Args;
use collected::{Collected, held_back};
use desk::Desk;
use homes::{Fleet, Home};
use underload_agent::Trust;
use underload_disk::{self as disk, Access};
use underload_emu::machine::privilege::{self, Privilege};
use underload_emu::machine::{Network, scratch};
use underload_fleet::device::Attributes;
use underload_fleet::outcome::Outcome;
use underload_fleet::plan::Plan;
use underload_fleet::retention::Retention;
use underload_fleet::store::CodeFor;
use underload_orchestrator::http::{Config, Limits, Running, serve};
use underload_orchestrator::store::Place;
use underload_service::Identity;
use underload_terminal::console::{note, warning};
use underload_terminal::exit::{OrBadInput, bad_input};
use underload_terminal::interrupt::Interrupt;

#[derive(Debug, Args)]
#[command(after_help = "\
Needs no root on systems where users may create namespaces. Sends nothing to other machines. Keeps
all files in memory, unless --keep names a directory.

Examples:
  underload fleet demo
  underload fleet demo --lines 12 --seconds 90
  underload fleet demo --keep fleet --exit && underload fleet study demo-aqm-study \\
    --store sqlite:fleet/store --html study.html")]
pub(super) struct Arguments {
    /// Time to measure, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 180,
        value_parser = clap::value_parser!(u64).range(20..=86_400))]
    seconds: u64,
    /// Number of lines, of three kinds.
    #[arg(long, value_name = "COUNT", default_value_t = 40,
        value_parser = clap::value_parser!(u16).range(3..=200))]
    lines: u16,
    /// Stores the results, the token and the agents' state in this new directory.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Serves the pages on this loopback address; port 0 chooses a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = default_listen())]
    listen: SocketAddr,
    /// Exits after measuring, instead of serving the pages until Ctrl-C.
    #[arg(long)]
    exit: bool,
}

fn default_listen() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 4880).into()
}

/// The AQM study and the low latency trial, with fewer lines.
const PLANS: [&str; 2] =
    [include_str!("demo-aqm-study.toml"), include_str!("demo-low-latency-trial.toml")];

/// Names and paths of the pages to look at first.
const LINKS: [(&str, &str); 2] = [
    ("the AQM study", "study?plan=demo-aqm-study&by=cohort&scale=linear"),
    ("the low latency trial", "study?plan=demo-low-latency-trial&cohort=low-latency&scale=linear"),
];

const SCRATCH_MEGABYTES: u32 = 256;
/// No run starts in this last part of the time, so that the runs under way can finish.
const LAST_RUNS: Duration = Duration::from_secs(30);
/// [`LAST_RUNS`] is at most the time divided by this.
const LAST_RUNS_PART: u32 = 3;
/// Interval at which signals, loads and progress are polled.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// How long to wait for agents to stop.
const GOODBYE_MAX: Duration = Duration::from_secs(5);
/// In one of this many homes people use the line themselves.
const HOMES_WITH_PEOPLE: usize = 10;
/// A line that sends more per [`LOOK_INTERVAL`] is under a load test.
const LOADED_BYTES_PER_LOOK: u64 = 60_000;
/// Minimum number of homes for which the demo cuts lines.
const MISHAPS_FROM: usize = 9;
/// Duration for which a line is cut.
const MENDED_AFTER: Duration = Duration::from_secs(20);
/// When the operator removes the other one.
const REMOVED_AFTER: Duration = Duration::from_secs(25);
/// Share of invalid runs above which the machine is too slow, percent.
const INVALID_MUCH_PERCENT: u64 = 10;

impl Arguments {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        if !self.listen.ip().is_loopback() {
            let what = "expected a loopback address; from another machine, use ssh -L";
            return Err(bad_input(anyhow!("--listen {}: {what}", self.listen)));
        }
        // The port belongs to the network of the caller, and namespaces are created before threads.
        let listener = TcpListener::bind(self.listen)
            .with_context(|| format!("--listen {} (port 0 takes any)", self.listen))
            .or_bad_input()?;
        let pages = listener.local_addr()?;
        let privilege = privilege::enter().context("the demo's lines need network namespaces")?;
        let folder = self.folder()?;
        let interrupt = Interrupt::watch()?;
        if privilege == Privilege::UserNamespace {
            Network::current("demo")?.configure("link set lo up")?;
        }
        note!("building {} lines ...", self.lines);
        let built = Demo::build(&folder, usize::from(self.lines), &interrupt);
        // Ctrl-C also ends the commands that configure networks.
        let mut demo = interrupt.explain(built)?;
        relay::start(listener, demo.service.address())?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "pages: http://{pages}/ (for {} s; Ctrl-C ends the demo)", self.seconds)?;
        writeln!(out, "token: {}", demo.desk.token())?;
        for (what, address) in LINKS {
            writeln!(out, "{what}: http://{pages}/{address}")?;
        }
        out.flush()?;
        drop(out);
        demo.measure(Duration::from_secs(self.seconds), &interrupt)?;
        if !interrupt.is_requested() {
            demo.print_results()?;
        }
        if !self.exit && !interrupt.is_requested() {
            note!("the pages stay at http://{pages}/ until Ctrl-C");
            while !interrupt.is_requested() {
                std::thread::sleep(LOOK_INTERVAL);
            }
        }
        demo.end();
        Ok(())
    }

    fn folder(&self) -> anyhow::Result<PathBuf> {
        let Some(folder) = &self.keep else { return Ok(scratch(SCRATCH_MEGABYTES)?) };
        if folder.exists() {
            let error = anyhow!("--keep {}: exists; expected a new directory", folder.display());
            return Err(bad_input(error));
        }
        disk::create_directory(folder, Access::Owner)
            .with_context(|| format!("--keep {}", folder.display()))?;
        Ok(folder.clone())
    }
}

struct Demo {
    desk: Desk,
    homes: Vec<Home>,
    collected: Collected,
    plans: Vec<Plan>,
    mishaps: Vec<Mishap>,
    // Dropped in this order after an error: homes, servers, orchestrator.
    servers: Vec<servers::Server>,
    for_homes: Running,
    service: Service,
}

/// A line that was cut during a run.
struct Mishap {
    home: usize,
    at: Instant,
    /// Whether the line is mended; if not, the operator removes it.
    is_mended: bool,
    is_over: bool,
}

impl Demo {
    fn build(folder: &Path, count: usize, interrupt: &Interrupt) -> anyhow::Result<Self> {
        let internet = Arc::new(Internet::create()?);
        let (place, state) = (Place::Sqlite(folder.join("store")), folder.join("orchestrator"));
        let service = Service::start(Setup {
            store: place.clone(),
            archive: None,
            retention: Retention::default(),
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            tls: None,
            is_public_tls: false,
            limits: Limits::default(),
            state: state.clone(),
            tell: Arc::new(|_| {}),
        })
        .context("the orchestrator")?;
        let (for_homes, fleet) = open_to_homes(&service, &internet)?;
        let mut desk = Desk::open(service.address(), &state)?;
        for plan in PLANS {
            desk.apply(plan)?;
        }
        let plans = PLANS.map(Plan::parse).into_iter().collect::<Result<Vec<_>, _>>()?;
        let codes = desk.codes(CodeFor::Server, &vec![Attributes::default(); servers::COUNT])?;
        let servers = servers::start(&internet, &fleet, codes, &folder.join("servers"))?;
        let mut lines = Vec::new();
        for number in 0..count {
            if interrupt.is_requested() {
                return Err(anyhow!("the lines were not all built"));
            }
            lines.push(Arc::new(Line::build(&internet, number)?));
        }
        let attributes: Vec<_> = lines.iter().map(|line| line.attributes()).collect();
        let codes = desk.codes(CodeFor::Device, &attributes)?;
        let agents = folder.join("agents");
        let mut homes = Vec::new();
        for (line, code) in lines.into_iter().zip(codes) {
            homes.push(Home::start(line, &fleet, code, &agents)?);
        }
        for home in homes.iter_mut().skip(HOMES_WITH_PEOPLE / 2).step_by(HOMES_WITH_PEOPLE) {
            home.move_in()?;
        }
        let collected = Collected::new(&place)?;
        let mishaps = Vec::new();
        Ok(Self { desk, homes, collected, plans, mishaps, servers, for_homes, service })
    }

    /// Measures until `time` has passed, all runs have ended, or a signal arrives.
    fn measure(&mut self, time: Duration, interrupt: &Interrupt) -> anyhow::Result<()> {
        let start = Instant::now();
        let last_run = time.saturating_sub(LAST_RUNS.min(time / LAST_RUNS_PART));
        let mut sent: Vec<u64> = self.homes.iter().map(|home| home.line.sent_bytes()).collect();
        let (mut progress, mut is_last, mut has_warned) = (PROGRESS_INTERVAL, false, false);
        while start.elapsed() < time && !interrupt.is_requested() {
            std::thread::sleep(LOOK_INTERVAL);
            let elapsed = start.elapsed();
            let loaded = self.loaded(&mut sent);
            self.have_mishaps(elapsed, last_run, &loaded)?;
            if elapsed >= last_run && !is_last {
                is_last = true;
                for plan in &self.plans {
                    self.desk.stop(&plan.name)?;
                }
            }
            if elapsed >= progress {
                progress += PROGRESS_INTERVAL;
                has_warned |= self.print_progress(elapsed, has_warned)?;
            }
            if is_last && self.collected.account()?.owed == 0 {
                break;
            }
        }
        for home in &self.homes {
            home.stop();
        }
        let until = Instant::now() + GOODBYE_MAX;
        while Instant::now() < until && !self.homes.iter().all(Home::is_over) {
            std::thread::sleep(LOOK_INTERVAL / 4);
        }
        Ok(())
    }

    /// Returns the homes whose upstream was loaded since the last call.
    fn loaded(&self, sent: &mut [u64]) -> Vec<usize> {
        let mut loaded = Vec::new();
        for (place, (home, before)) in self.homes.iter().zip(sent).enumerate() {
            let now = home.line.sent_bytes();
            if now.saturating_sub(*before) > LOADED_BYTES_PER_LOOK {
                loaded.push(place);
            }
            *before = now;
        }
        loaded
    }

    /// Cuts one line during a run and mends it later, and cuts another one for good.
    fn have_mishaps(
        &mut self,
        elapsed: Duration,
        last_run: Duration,
        loaded: &[usize],
    ) -> anyhow::Result<()> {
        for mishap in self.mishaps.iter_mut().filter(|mishap| !mishap.is_over) {
            let home = &self.homes[mishap.home];
            if mishap.is_mended && mishap.at.elapsed() > MENDED_AFTER {
                home.line.mend()?;
                note!("line {} is back", home.line.number);
                mishap.is_over = true;
            } else if !mishap.is_mended && mishap.at.elapsed() > REMOVED_AFTER {
                self.desk.remove(home.device)?;
                note!("the operator removed line {}", home.line.number);
                mishap.is_over = true;
            }
        }
        let count = self.mishaps.len() as u32;
        let limit = if self.homes.len() < MISHAPS_FROM { 0 } else { 2 };
        let is_time = count < limit && elapsed > last_run / 5 * (1 + count);
        let known = |place: &&usize| self.mishaps.iter().all(|mishap| mishap.home != **place);
        let Some(place) = loaded.iter().find(known).filter(|_| is_time) else { return Ok(()) };
        let (home, is_mended) = (&self.homes[*place], count == 0);
        home.line.cut();
        let what = if is_mended { "for 20 s" } else { "for good" };
        note!("line {} is disconnected during a run, {what}", home.line.number);
        if !is_mended {
            home.stop();
        }
        self.mishaps.push(Mishap { home: *place, at: Instant::now(), is_mended, is_over: false });
        Ok(())
    }

    /// Returns whether it printed that the machine is too slow.
    fn print_progress(&mut self, elapsed: Duration, has_warned: bool) -> anyhow::Result<bool> {
        let account = self.collected.account()?;
        let seconds = elapsed.as_secs();
        note!("{:2}:{:02} {}", seconds / 60, seconds % 60, account.words());
        note!("      held back: {}", held_back(&self.service.core().rules.held_back()));
        for plan in &self.plans {
            let p99 = self.collected.p99(&plan.name)?;
            if !p99.is_empty() {
                note!("      p99 beside an upload, {}: {p99}", plan.name);
            }
        }
        let (invalid, measured) =
            (account.count(Outcome::Invalid), account.count(Outcome::Measured));
        let is_slow = invalid * 100 > (invalid + measured) * INVALID_MUCH_PERCENT;
        let warns = is_slow && !has_warned && invalid >= 3;
        if warns {
            warning!(
                "      this machine is too slow or too busy for this many lines: runs in which it \
                 was late are stored as invalid and not counted; use fewer with --lines"
            );
        }
        Ok(warns)
    }

    fn print_results(&mut self) -> anyhow::Result<()> {
        let account = self.collected.account()?;
        let mut out = std::io::stdout().lock();
        for plan in &self.plans {
            writeln!(out, "\n{}", plan.title)?;
            for sentence in self.collected.sentences(&plan.name)? {
                writeln!(out, "  {sentence}")?;
            }
        }
        writeln!(out, "\n{} runs have ended: {}", account.stored(), account.words())?;
        if account.owed > 0 {
            writeln!(out, "without an outcome yet: {}", account.owed)?;
        }
        let (missing, double) = self.collected.missing_and_double()?;
        if missing <= account.owed && double == 0 {
            writeln!(out, "each ended run has exactly one outcome")?;
        } else {
            let what = "which is a defect of this program";
            writeln!(out, "{missing} ended runs have no outcome and {double} have two, {what}")?;
        }
        for home in &self.homes {
            if let Some(failure) = home.failure() {
                writeln!(out, "the agent of line {} ended: {failure}", home.line.number)?;
            }
        }
        out.flush()?;
        Ok(())
    }

    /// Ends homes, then servers, then the orchestrator.
    fn end(self) {
        let Self { homes, servers, for_homes, service, .. } = self;
        drop(homes);
        drop(servers);
        for_homes.stop();
        service.stop();
    }
}

/// Serves the orchestrator also at an address that the lines lead to, with its own certificate.
fn open_to_homes(service: &Service, internet: &Internet) -> anyhow::Result<(Running, Fleet)> {
    let identity = Identity::generate()?;
    let trust = Trust::Pinned(identity.fingerprint());
    let ip = host_address(ORCHESTRATOR);
    let config = Config {
        listen: SocketAddr::new(ip.parse()?, 443),
        tls: Some(identity.server_config()?),
        limits: Limits::default(),
        pages: None,
    };
    let core = Arc::clone(service.core());
    let running = internet.inside(|| serve(core, config))?.context("the orchestrator")?;
    Ok((running, Fleet { orchestrator: format!("https://{ip}").parse()?, trust }))
}
