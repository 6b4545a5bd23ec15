//! A device at work: executes the tasks of [`underload_fleet::agent`] until it is stopped.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ring::rand::{SecureRandom as _, SystemRandom};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_disk::{self as disk, Access};
use underload_fleet::agent::{
    Agent, Limits, Local, News, Ran, RemovalNotice, RunTask, Settings, Task, Trouble,
};
use underload_fleet::device::Attributes;
use underload_fleet::message::{Alone, Moved, NextAnswer, Released, Stored};
use underload_fleet::outcome::{Outcome, RunResult};
use underload_probe::network::{Reach, metered};

use crate::address::Address;
use crate::client::{ANSWER_MAX, Client, Failure, VERSION, system_ms};
use crate::identity::{Identity, IdentityError, read_json};
use crate::measure::Measurer;
use crate::spool::Spool;
use crate::tls::Trust;

pub struct Config {
    /// The list has at least one orchestrator.
    pub orchestrators: Vec<Address>,
    pub trust: Trust,
    /// Directory of the key and the spool.
    pub state: PathBuf,
    /// Code that enrols the device, if it is not enrolled yet.
    pub code: Option<String>,
    /// Attributes of the line that the user gave.
    pub attributes: Attributes,
    pub measurer: Measurer,
    /// Limit of the spool on disk.
    pub spool_bytes: u64,
    /// See [`Settings::start_within`].
    pub start_within: Span,
    /// See [`Settings::confirm_removal`].
    pub confirm_removal: Span,
    /// Limits of this home, which no orchestrator lifts.
    pub limits: Limits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Stopped,
    Removed,
}

/// Why a device cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Tls(#[from] underload_probe::control::ServiceError),
    #[error("{}", path.display())]
    Spool { path: PathBuf, source: std::io::Error },
    #[error(
        "this device is not enrolled: give a code that an operator made, by --enrol or in \
         UNDERLOAD_CODE"
    )]
    NotEnrolled,
    #[error("not enrolled: {0}")]
    Enrolment(Failure),
    #[error("the system cannot generate random numbers")]
    Randomness,
}

/// Interval at which a sleeping device checks whether it was stopped.
const STOP_INTERVAL: Duration = Duration::from_millis(200);
/// Time over which the traffic of interfaces is measured before a decision.
const BUSY_WINDOW: Duration = Duration::from_secs(1);
/// Pause before the next attempt to enrol if no orchestrator answers.
const ENROL_AGAIN: Duration = Duration::from_secs(10);
/// Longest pause that an answer may demand before the next attempt to enrol.
const ENROL_LATER_MAX: Duration = Duration::from_hours(1);
const ALONE: &str = "alone.json";
/// Shortest interval between two writes of that file, because flash wears out.
const ALONE_PAUSE: Span = Span::from_secs(3_600);

/// Runs a device until `stop` is set or it is removed. `tell` gets messages for the operator.
pub fn run(config: Config, stop: &AtomicBool, tell: &dyn Fn(&str)) -> Result<End, AgentError> {
    let mut identity = Identity::load_or_create(&config.state)?;
    let removal = identity.removal();
    if removal.is_some_and(|notice| notice.is_confirmed) {
        return Ok(End::Removed);
    }
    let directory = config.state.join("spool");
    let error = |source| AgentError::Spool { path: directory.clone(), source };
    let spool = Spool::open(&directory, config.spool_bytes, now_s(system_ms())).map_err(error)?;
    let mut client = Client::new(config.orchestrators.clone(), config.trust)?;
    if !identity.is_enrolled() && !enrol(&config, &mut identity, &mut client, stop, tell)? {
        return Ok(End::Stopped);
    }
    let mut seed = [0; 8];
    SystemRandom::new().fill(&mut seed).map_err(|_| AgentError::Randomness)?;
    let mut rng = Rng::new(u64::from_le_bytes(seed));
    let settings = Settings {
        orchestrators: client.orchestrators(),
        start_within: config.start_within,
        version: VERSION.to_owned(),
        attributes: Some(config.attributes).filter(|it| *it != Attributes::default()),
        confirm_removal: config.confirm_removal,
        limits: config.limits,
    };
    let mut memory = spool.memory();
    memory.alone = read_json(&config.state.join(ALONE), ANSWER_MAX).flatten();
    memory.removal = removal;
    let alone = memory.alone.clone();
    let agent = Agent::begin(settings, memory, Time::ZERO, client.now_ms(), &mut rng);
    let reaches = (0..client.orchestrators()).map(|it| client.reach(it));
    let is_metered = metered(&config.measurer.line).is_some();
    let mut device = Device {
        agent,
        reach: Reach::common(reaches),
        rng,
        start: Instant::now(),
        identity,
        client,
        spool,
        measurer: config.measurer,
        state: config.state,
        alone,
        removal,
        alone_at: Time::ZERO,
        is_busy: false,
        is_metered,
        stop,
        tell,
    };
    Ok(device.work())
}

/// Sends the code until an orchestrator accepts it. Returns false if the device was stopped before.
fn enrol(
    config: &Config,
    identity: &mut Identity,
    client: &mut Client,
    stop: &AtomicBool,
    tell: &dyn Fn(&str),
) -> Result<bool, AgentError> {
    let code = config.code.as_deref().ok_or(AgentError::NotEnrolled)?;
    let mut told = String::new();
    for attempt in 0.. {
        let orchestrator = attempt % client.orchestrators().max(1);
        let attributes = config.attributes.clone();
        let failure = match client.enrol(orchestrator, identity, code, attributes, None) {
            Ok(enrolled) => {
                tell(&format!("enrolled as {}", enrolled.device));
                identity.note_enrolled(enrolled)?;
                return Ok(true);
            }
            Err(failure) => failure,
        };
        let is_round_over = orchestrator + 1 >= client.orchestrators();
        let wait = match failure.trouble {
            Trouble::NoAnswer if is_round_over => ENROL_AGAIN,
            Trouble::NoAnswer => Duration::ZERO,
            Trouble::Later { after_ms } => Duration::from_millis(after_ms).min(ENROL_LATER_MAX),
            _ => return Err(AgentError::Enrolment(failure)),
        };
        if failure.words != told {
            tell(&failure.words);
            told = failure.words;
        }
        if !sleep(wait, stop) {
            return Ok(false);
        }
    }
    Ok(false)
}

struct Device<'a> {
    agent: Agent,
    rng: Rng,
    start: Instant,
    identity: Identity,
    client: Client,
    spool: Spool,
    measurer: Measurer,
    state: PathBuf,
    /// The content of [`ALONE`] on disk.
    alone: Option<Alone>,
    /// The removal on disk.
    removal: Option<RemovalNotice>,
    /// When `alone` may be stored again.
    alone_at: Time,
    /// The kind of network (global, private or loopback) of the orchestrator that answered last.
    reach: Reach,
    is_busy: bool,
    is_metered: bool,
    stop: &'a AtomicBool,
    tell: &'a dyn Fn(&str),
}

impl Device<'_> {
    fn work(&mut self) -> End {
        let mut told = String::new();
        loop {
            let now = self.now();
            let local = self.local();
            let task = self.agent.next(now, &local, &mut self.rng);
            self.spool.set_usage(&self.agent.usage);
            // A stopped device still stores its result and releases its lease.
            let is_final = match &task {
                Task::Keep(_) => true,
                Task::Release { .. } => !self.agent.is_away(),
                _ => false,
            };
            if self.stop.load(Ordering::Relaxed) && !is_final {
                return End::Stopped;
            }
            let news = match task {
                Task::Wait { until } => {
                    self.wait(until);
                    continue;
                }
                Task::Stop => return End::Removed,
                task => self.execute(task),
            };
            let news = news.unwrap_or_else(|failure| {
                if failure.words != told {
                    (self.tell)(&failure.words);
                    told.clone_from(&failure.words);
                }
                News::Trouble(failure.trouble)
            });
            if matches!(news, News::Next(_)) {
                told.clear();
            }
            let now = self.now();
            self.agent.set_clock(now, self.client.now_ms());
            let has_run = matches!(news, News::Ran(_));
            self.agent.hear(now, news, &mut self.rng);
            if has_run {
                // If the disk is full, storing the result fails, too, and is reported.
                let _ = self.spool.note_usage(&self.agent.usage);
            }
            self.remember();
        }
    }

    fn execute(&mut self, task: Task) -> Result<News, Failure> {
        Ok(match task {
            Task::Ask { orchestrator, request } => {
                // If this fails, the request is repeated after a restart, which is harmless.
                let _ = self.spool.note_request(request.request);
                let answer: NextAnswer = self.ask(orchestrator, "/v1/next", &request)?;
                News::Next(Box::new(answer))
            }
            Task::Move { orchestrator, request } => {
                let moved: Moved = self.ask(orchestrator, "/v1/move", &request)?;
                News::Moved(moved)
            }
            Task::Release { orchestrator, request } => {
                let _: Released = self.ask(orchestrator, "/v1/release", &request)?;
                News::Released
            }
            Task::HandIn { orchestrator, most } => {
                let Some(batch) = self.spool.oldest(most) else { return Ok(News::Stored) };
                let (client, identity) = (&mut self.client, &self.identity);
                let stored: Stored =
                    client.ask_text(orchestrator, identity, "/v1/results", &batch.body)?;
                if stored.refused > 0 {
                    let refused = stored.refused;
                    (self.tell)(&format!(
                        "{refused} results were refused: this device was not assigned their runs, \
                         or made more runs without an assignment than its plan allows"
                    ));
                }
                self.spool.note_stored(batch.epoch, batch.through);
                News::Stored
            }
            Task::Run(task) => News::Ran(Box::new(self.run(&task))),
            Task::Keep(result) => self.keep(&result),
            Task::Discard => {
                (self.tell)("a result that orchestrators reject is dropped");
                self.spool.discard();
                News::Discarded
            }
            Task::Renew => match self.spool.renew(now_s(self.client.now_ms())) {
                Ok(()) => News::Renewed,
                Err(_) => News::Trouble(Trouble::Later { after_ms: DISK_AGAIN_MS }),
            },
            Task::Wait { .. } | Task::Stop => News::Discarded,
        })
    }

    fn ask<M, A>(&mut self, orchestrator: usize, path: &str, message: &M) -> Result<A, Failure>
    where
        M: serde::Serialize,
        A: serde::de::DeserializeOwned,
    {
        let answer = self.client.ask(orchestrator, &self.identity, path, message)?;
        self.reach = self.client.reach(orchestrator);
        Ok(answer)
    }

    fn run(&mut self, task: &RunTask) -> Ran {
        // If the start is not stored, the run could be repeated after a restart.
        if let Err(error) = self.spool.note_began(&task.began) {
            return Ran::Over {
                outcome: Outcome::Failed,
                reason: format!("the beginning of the run cannot be stored: {error}"),
                began: self.now(),
                steps: Vec::new(),
                bytes: 0,
            };
        }
        let start = self.start;
        self.measurer.run(task, self.reach, &|| since(start))
    }

    fn keep(&mut self, result: &RunResult) -> News {
        let (run, plan) = (result.run, &result.plan);
        let what = match result.outcome {
            Outcome::Measured => "measured".to_owned(),
            outcome => format!("{}: {}", outcome.name(), result.reason),
        };
        match self.spool.keep(result) {
            Ok(()) => {
                (self.tell)(&format!("run {run} of {plan}: {what}"));
                News::Kept
            }
            Err(error) => {
                (self.tell)(&format!("run {run} of {plan} cannot be stored: {error}"));
                News::NotKept
            }
        }
    }

    fn local(&self) -> Local {
        Local {
            epoch: self.spool.epoch(),
            waiting: self.spool.waiting(),
            dropped: self.spool.dropped(),
            is_busy: self.is_busy,
            is_metered: self.is_metered,
        }
    }

    /// Sleeps until `until` or until the device is stopped; then checks whether the home uses its
    /// line, and whether it is metered.
    fn wait(&mut self, until: Time) {
        let left = Duration::from_nanos(until.since(self.now()).as_nanos());
        if !sleep(left, self.stop) {
            return;
        }
        let line = &self.measurer.line;
        self.is_metered = metered(line).is_some();
        let Some(before) = line.bytes() else { return };
        let start = Instant::now();
        if !sleep(BUSY_WINDOW, self.stop) {
            return;
        }
        let after = line.bytes().unwrap_or(before);
        let elapsed_ms = (start.elapsed().as_millis() as u64).max(1);
        let rate = |way: usize| after[way].saturating_sub(before[way]) * 8_000 / elapsed_ms;
        self.is_busy = rate(0).max(rate(1)) > self.measurer.busy_bit_per_s;
    }

    /// Stores state for a restart. Errors are ignored: orchestrators repeat what is not stored.
    fn remember(&mut self) {
        let now = self.now();
        if self.agent.alone() != self.alone.as_ref() && now >= self.alone_at {
            self.alone_at = now + ALONE_PAUSE;
            self.alone = self.agent.alone().cloned();
            let text = serde_json::to_vec(&self.alone).unwrap_or_default();
            let _ = disk::write_whole(&self.state.join(ALONE), &text, Access::Owner);
        }
        if self.agent.removal() != self.removal {
            self.removal = self.agent.removal();
            let _ = self.identity.note_removal(self.removal);
        }
    }

    fn now(&self) -> Time {
        since(self.start)
    }
}

/// Pause before the next attempt if the disk is full.
const DISK_AGAIN_MS: u64 = 60_000;

fn since(start: Instant) -> Time {
    Time::from_nanos(start.elapsed().as_nanos() as u64)
}

fn now_s(now_ms: u64) -> u32 {
    u32::try_from(now_ms / 1_000).unwrap_or(u32::MAX)
}

/// Sleeps for `time`. Returns false if the device was stopped meanwhile.
pub fn sleep(time: Duration, stop: &AtomicBool) -> bool {
    let until = Instant::now().checked_add(time);
    loop {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        let left = until.map_or(STOP_INTERVAL, |it| it.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(STOP_INTERVAL));
    }
}
