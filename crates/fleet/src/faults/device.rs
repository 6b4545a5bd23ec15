//! A device: the agent's decisions, a disk, and a wire.

use std::collections::VecDeque;

use underload_aqm::time::{Span, Time};

use super::hostile::honest_steps;
use super::world::{
    Caller, Event, Held, Reply, Request, START_MS, TIMEOUT_MS, World, id_of, line_in,
};
use crate::agent::{
    Agent, Began, Limits, Local, Memory, News, Ran, RemovalNotice, RunTask, Settings, Task,
    Trouble, Usage,
};
use crate::device::{Attributes, DeviceId};
use crate::message::{Numbered, Results};
use crate::outcome::{Outcome, RunResult};
use crate::store;

/// What is there after a power cut.
#[derive(Debug, Default)]
struct Disk {
    epoch: u32,
    sequence: u64,
    spool: VecDeque<(u32, Numbered)>,
    request: u64,
    began: Option<Began>,
    is_running: bool,
    dropped: u64,
    removal: Option<RemovalNotice>,
    usage: Usage,
}

/// Shorter than in life, so that the end of a removal is in the time that is played.
const CONFIRM_REMOVAL: Span = Span::from_secs(600);

/// A request that was made, or a run that is under way.
#[derive(Debug)]
enum Doing {
    Nothing,
    Asks { batch: Option<(u32, u64)> },
    Connects(Box<RunTask>),
    Runs { began: Time, has_load: bool },
}

pub(super) struct Device {
    pub id: DeviceId,
    pub segment: u32,
    pub is_removed: bool,
    /// Nobody hears of it again.
    pub is_gone: bool,
    /// Its disk was lost at least once.
    pub has_forgotten: bool,
    pub life: u64,
    /// `None` while it is off.
    agent: Option<Agent>,
    started_ms: u64,
    disk: Disk,
    doing: Doing,
    call: u64,
}

impl Device {
    pub fn new(place: usize, segment: u32) -> Self {
        Self {
            id: id_of(1, place),
            segment,
            is_removed: false,
            is_gone: false,
            has_forgotten: false,
            life: 0,
            agent: None,
            started_ms: START_MS,
            disk: Disk::default(),
            doing: Doing::Nothing,
            call: 0,
        }
    }

    pub fn row(&self) -> store::Device {
        store::Device::enrolled(self.id, self.attributes())
    }

    pub fn attributes(&self) -> Attributes {
        line_in(self.segment)
    }

    /// What its disk holds and nobody has acknowledged.
    pub fn waiting(&self) -> usize {
        self.disk.spool.len()
    }

    fn now(&self, now_ms: u64) -> Time {
        Time::from_millis(now_ms - self.started_ms)
    }
}

impl World {
    pub fn device_starts(&mut self, place: usize) -> Held {
        let loses_disk = self.mishap(50);
        // Its clock stands anywhere within a day.
        let wall_ms = self.now_ms - 43_200_000 + u64::from(self.rng.below(86_400_000));
        let now_s = (self.now_ms / 1_000) as u32;
        let start_within_s = [0, 5, 60][self.rng.below(3) as usize];
        if self.devices[place].is_gone {
            return Ok(());
        }
        let device = &mut self.devices[place];
        if loses_disk || device.disk.epoch == 0 {
            device.has_forgotten |= device.disk.epoch > 0;
            device.disk = Disk { epoch: now_s.max(device.disk.epoch + 1), ..Disk::default() };
        }
        device.started_ms = self.now_ms;
        device.doing = Doing::Nothing;
        let disk = &device.disk;
        let memory = Memory {
            request: disk.request,
            began: disk.began.clone(),
            interrupted: disk.began.clone().filter(|_| disk.is_running),
            alone: None,
            removal: disk.removal,
            usage: disk.usage.clone(),
        };
        let settings = Settings {
            orchestrators: 2,
            start_within: Span::from_secs(start_within_s),
            version: "simulated".to_owned(),
            attributes: None,
            confirm_removal: CONFIRM_REMOVAL,
            limits: Limits { runs_per_day: 10_000, ..Limits::default() },
        };
        let agent = Agent::begin(settings, memory, Time::ZERO, wall_ms, &mut self.rng);
        self.devices[place].agent = Some(agent);
        self.device_wakes(place, self.devices[place].life)
    }

    pub fn device_dies(&mut self, place: usize) {
        if self.devices[place].agent.take().is_none() {
            return;
        }
        self.report.deaths += 1;
        self.devices[place].life += 1;
        self.devices[place].call += 1;
        self.session_breaks(place);
        // A program that is started again at once, or a home that is without power for a while.
        let most = [1_000, 10_000, 900_000][self.rng.below(3) as usize];
        let long = 500 + u64::from(self.rng.below(most));
        self.after(long, Event::DeviceStarts { place });
    }

    /// A device that nobody hears of again.
    pub fn device_goes(&mut self, place: usize) {
        let device = &mut self.devices[place];
        device.agent = None;
        device.is_gone = true;
        device.life += 1;
        device.call += 1;
        self.session_breaks(place);
    }

    /// Whether it dies here.
    fn dies(&mut self, place: usize) -> bool {
        let dies = self.mishap(4);
        if dies {
            self.device_dies(place);
        }
        dies
    }

    pub fn device_wakes(&mut self, place: usize, life: u64) -> Held {
        // One of the times at which it was to look has come; others may have passed since.
        if self.devices[place].life != life || !matches!(self.devices[place].doing, Doing::Nothing)
        {
            return Ok(());
        }
        loop {
            let is_busy = self.chance(8);
            let device = &mut self.devices[place];
            let now = device.now(self.now_ms);
            let local = Local {
                epoch: device.disk.epoch,
                waiting: device.disk.spool.len() as u64,
                dropped: device.disk.dropped,
                is_busy,
            };
            let Some(agent) = &mut device.agent else { return Ok(()) };
            let task = agent.next(now, &local, &mut self.rng);
            if self.dies(place) {
                return Ok(());
            }
            let news = match task {
                Task::Wait { until } => {
                    let wait = until.since(now).as_nanos().div_ceil(1_000_000);
                    self.after(wait.max(1), Event::Wakes { place, life });
                    return Ok(());
                }
                Task::Stop => {
                    self.devices[place].agent = None;
                    return if self.devices[place].is_removed {
                        Ok(())
                    } else {
                        Err("a device stopped that was not removed".to_owned())
                    };
                }
                task => match self.device_does(place, task)? {
                    Some(news) => news,
                    None => return Ok(()),
                },
            };
            if self.dies(place) {
                return Ok(());
            }
            self.device_hears_news(place, news);
        }
    }

    fn device_hears_news(&mut self, place: usize, news: News) {
        let device = &mut self.devices[place];
        let now = device.now(self.now_ms);
        if let Some(agent) = &mut device.agent {
            agent.hear(now, news, &mut self.rng);
            device.disk.removal = agent.removal();
            device.disk.usage = agent.usage().clone();
        }
    }

    /// Does what can be done at once, or begins what takes time.
    fn device_does(&mut self, place: usize, task: Task) -> Result<Option<News>, String> {
        match task {
            Task::Ask { orchestrator, request } => {
                self.devices[place].disk.request = request.request;
                self.device_asks(place, orchestrator, Request::Next(request), None);
            }
            Task::Move { orchestrator, request } => {
                self.device_asks(place, orchestrator, Request::Move(request), None);
            }
            Task::Release { orchestrator, request } => {
                self.device_asks(place, orchestrator, Request::Release(request), None);
            }
            Task::HandIn { orchestrator, most } => {
                let spool = &self.devices[place].disk.spool;
                let Some(epoch) = spool.front().map(|(epoch, _)| *epoch) else {
                    return Ok(Some(News::Stored));
                };
                let batch = spool.iter().filter(|(of, _)| *of == epoch).take(most);
                let results: Vec<_> = batch.map(|(_, numbered)| numbered.clone()).collect();
                let through = results.last().map_or(0, |numbered| numbered.sequence);
                let request = Request::Results(Results { epoch, results });
                self.device_asks(place, orchestrator, request, Some((epoch, through)));
            }
            Task::Run(task) => {
                let device = &mut self.devices[place];
                device.disk.is_running = true;
                device.disk.began = Some(task.began.clone());
                device.doing = Doing::Connects(task);
                let life = device.life;
                // Its name is looked up for long, or its connection is made at the third attempt.
                let most = if self.mishap(100) { 30_000 } else { 2_000 };
                let wait = 20 + u64::from(self.rng.below(most));
                self.after(wait, Event::Connects { place, life });
            }
            Task::Keep(result) => return Ok(Some(self.device_keeps(place, *result))),
            Task::Discard => return Err("a result was taken by nobody".to_owned()),
            Task::Renew => {
                let device = &mut self.devices[place];
                device.disk.epoch = (device.disk.epoch + 1).max((self.now_ms / 1_000) as u32);
                (device.disk.sequence, device.disk.request) = (0, 0);
                return Ok(Some(News::Renewed));
            }
            Task::Wait { .. } | Task::Stop => {}
        }
        Ok(None)
    }

    fn device_keeps(&mut self, place: usize, result: RunResult) -> News {
        let is_full = self.mishap(5);
        let disk = &mut self.devices[place].disk;
        disk.sequence += 1;
        if is_full {
            return News::NotKept;
        }
        let is_its = |began: &Began| began.plan == result.plan && began.run == result.run;
        if disk.began.as_ref().is_some_and(is_its) {
            disk.is_running = false;
        }
        let numbered = Numbered { sequence: disk.sequence, result };
        disk.spool.push_back((disk.epoch, numbered));
        News::Kept
    }

    fn device_asks(
        &mut self,
        place: usize,
        orchestrator: usize,
        request: Request,
        batch: Option<(u32, u64)>,
    ) {
        let device = &mut self.devices[place];
        device.call += 1;
        device.doing = Doing::Asks { batch };
        let by = Caller::Device { place, life: device.life, call: device.call };
        let sent_ms = self.now_ms;
        self.send(Event::Asked { orchestrator, by, sent_ms, request });
        self.after(TIMEOUT_MS, Event::Answered { to: by, reply: Err(Trouble::NoAnswer) });
    }

    pub fn device_hears(
        &mut self,
        place: usize,
        life: u64,
        call: u64,
        reply: Result<Reply, Trouble>,
    ) -> Held {
        let device = &mut self.devices[place];
        if (device.life, device.call) != (life, call) {
            return Ok(());
        }
        let Doing::Asks { batch } = std::mem::replace(&mut device.doing, Doing::Nothing) else {
            return Ok(());
        };
        device.call += 1;
        // It has heard and not acted on it yet.
        if self.dies(place) {
            return Ok(());
        }
        let news = match reply {
            Ok(Reply::Next(answer)) => {
                if let Some(run) = &answer.run {
                    self.ledger.given(place, run.run);
                }
                News::Next(answer)
            }
            Ok(Reply::Moved(moved)) => News::Moved(moved),
            Ok(Reply::Released) => News::Released,
            Ok(Reply::Stored(stored)) => {
                if stored.refused > 0 && !self.is_stopped {
                    return Err(format!("device {place}: {stored:?}"));
                }
                self.device_forgets(place, batch.unwrap_or_default());
                News::Stored
            }
            Ok(Reply::Heartbeat(_)) => return Err("a device got a server's answer".to_owned()),
            Err(trouble) => News::Trouble(trouble),
        };
        self.device_hears_news(place, news);
        self.device_wakes(place, life)
    }

    /// What was acknowledged need not be kept.
    fn device_forgets(&mut self, place: usize, through: (u32, u64)) {
        let spool = &mut self.devices[place].disk.spool;
        while let Some((epoch, numbered)) = spool.front() {
            if (*epoch, numbered.sequence) > through {
                break;
            }
            self.ledger.acknowledged(place, *epoch, numbered);
            spool.pop_front();
        }
    }

    pub fn device_connects(&mut self, place: usize, life: u64) -> Held {
        let device = &mut self.devices[place];
        if device.life != life {
            return Ok(());
        }
        let Doing::Connects(task) = std::mem::replace(&mut device.doing, Doing::Nothing) else {
            return Ok(());
        };
        let began = device.now(self.now_ms);
        match self.session_begins(place, &task)? {
            Ok(lasts_ms) => {
                let has_load = task.lease.is_some();
                self.devices[place].doing = Doing::Runs { began, has_load };
                self.after(lasts_ms, Event::RunEnds { place, life });
                Ok(())
            }
            Err(reason) => {
                let ran = Ran::TurnedAway { reason: reason.to_owned() };
                self.device_hears_news(place, News::Ran(Box::new(ran)));
                self.device_wakes(place, life)
            }
        }
    }

    pub fn run_ends(&mut self, place: usize, life: u64) -> Held {
        let device = &mut self.devices[place];
        if device.life != life {
            return Ok(());
        }
        let Doing::Runs { began, has_load } = device.doing else { return Ok(()) };
        device.doing = Doing::Nothing;
        let is_whole = self.session_ends(place)?;
        let outcome = if is_whole { Outcome::Measured } else { Outcome::Failed };
        let reason = if is_whole { "" } else { "the connection broke" }.to_owned();
        let steps = if is_whole { honest_steps(has_load) } else { Vec::new() };
        let ran = Ran::Over { outcome, reason, began, steps, bytes: 3_000_000 };
        if self.dies(place) {
            return Ok(());
        }
        self.device_hears_news(place, News::Ran(Box::new(ran)));
        self.device_wakes(place, life)
    }
}
