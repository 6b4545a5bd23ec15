//! The devices: the agent's decisions, a disk, and a connection.

use underload_aqm::time::{Span, Time};
use underload_fleet::agent::{
    Agent, Began, Limits, Local, Memory, News, Ran, Settings, Task, Trouble,
};
use underload_fleet::bins::{Bins, bin_of};
use underload_fleet::message::{Numbered, Results};
use underload_fleet::outcome::{Outcome, RunResult, SeriesResult, StepResult};
use underload_fleet::plan::Kind;

use super::world::{Caller, Checked, Disk, Doing, Event, Reply, Request, TIMEOUT_MS, World};

/// Shorter than in production, so that the simulated time includes the end of a removal.
const CONFIRM_REMOVAL: Span = Span::from_secs(600);
/// Probes of a run in the two series of the plan, as honest devices send them.
pub const PROBES: [u64; 2] = [250, 600];
const HONEST_US: u64 = 20_000;

/// A series of `sent` probes that all took `us`.
pub fn series(dscp: u8, us: u64, sent: u64) -> SeriesResult {
    let mut bins = Bins::default();
    bins.add_to(bin_of(us as f64), sent);
    let us = Some(us);
    let (p50_us, p99_us, mean_us, max_us) = (us, us, us, us);
    SeriesResult { dscp, sent, lost: 0, bins, p50_us, p99_us, mean_us, max_us }
}

pub fn step(name: &str, kind: Kind, series: Vec<SeriesResult>) -> StepResult {
    let (goodput_bit_per_s, tier_percent) = (None, None);
    StepResult {
        step: name.to_owned(),
        kind,
        goodput_bit_per_s,
        tier_percent,
        grade: None,
        series,
        inside: None,
    }
}

/// The steps of an honest device's run, with the loaded one if the run had a lease.
pub fn honest_steps(has_load: bool) -> Vec<StepResult> {
    let [idle, loaded] = PROBES.map(|sent| vec![series(0, HONEST_US, sent)]);
    let loaded = step("loaded", Kind::Upload, loaded);
    let steps = std::iter::once(step("idle", Kind::Latency, idle));
    steps.chain(has_load.then_some(loaded)).collect()
}

impl World {
    pub fn device_starts(&mut self, place: usize) -> Checked {
        let loses_disk = self.mishap(50);
        // The device's clock is wrong by up to half a day.
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
        // The program restarts at once, or the home has no power for some time.
        let most = [1_000, 10_000, 900_000][self.rng.below(3) as usize];
        let long = 500 + u64::from(self.rng.below(most));
        self.after(long, Event::DeviceStarts { place });
    }

    /// Ends a device for good.
    pub fn device_goes(&mut self, place: usize) {
        let device = &mut self.devices[place];
        device.agent = None;
        device.is_gone = true;
        device.life += 1;
        device.call += 1;
        self.session_breaks(place);
    }

    /// Lets the device die with a small probability. Returns whether it died.
    fn dies(&mut self, place: usize) -> bool {
        let dies = self.mishap(4);
        if dies {
            self.device_dies(place);
        }
        dies
    }

    pub fn device_wakes(&mut self, place: usize, life: u64) -> Checked {
        // Several wake-ups may be scheduled; those that are early or late are ignored.
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
                is_metered: false,
            };
            let Some(agent) = &mut device.agent else { return Ok(()) };
            let task = agent.next(now, &local, &mut self.rng);
            if self.dies(place) {
                return Ok(());
            }
            let news = match task {
                Task::Wait { until } => {
                    let wait = until.since(now).as_nanos().div_ceil(1_000_000);
                    self.after(wait.max(1), Event::Wake { place, life });
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
            device.disk.usage = agent.usage.clone();
        }
    }

    /// Executes a task at once, or begins a task that takes time.
    fn device_does(&mut self, place: usize, task: Task) -> Result<Option<News>, String> {
        match task {
            Task::Ask { orchestrator, request } => {
                self.devices[place].disk.request = request.request;
                self.device_requests(place, orchestrator, Request::Next(request), None);
            }
            Task::Move { orchestrator, request } => {
                self.device_requests(place, orchestrator, Request::Move(request), None);
            }
            Task::Release { orchestrator, request } => {
                self.device_requests(place, orchestrator, Request::Release(request), None);
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
                self.device_requests(place, orchestrator, request, Some((epoch, through)));
            }
            Task::Run(task) => {
                let device = &mut self.devices[place];
                device.disk.is_running = true;
                device.disk.began = Some(task.began.clone());
                device.doing = Doing::Connects(task);
                let life = device.life;
                // The name takes long to resolve, or the connection succeeds at the third attempt.
                let most = if self.mishap(100) { 30_000 } else { 2_000 };
                let wait = 20 + u64::from(self.rng.below(most));
                self.after(wait, Event::Connect { place, life });
            }
            Task::Keep(result) => return Ok(Some(self.device_stores(place, *result))),
            Task::Discard => return Err("an orchestrator rejected a result".to_owned()),
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

    fn device_stores(&mut self, place: usize, result: RunResult) -> News {
        let is_full = self.mishap(5);
        let disk = &mut self.devices[place].disk;
        disk.sequence += 1;
        if is_full {
            return News::NotKept;
        }
        let is_of_run = |began: &Began| began.plan == result.plan && began.run == result.run;
        if disk.began.as_ref().is_some_and(is_of_run) {
            disk.is_running = false;
        }
        let numbered = Numbered { sequence: disk.sequence, result };
        disk.spool.push_back((disk.epoch, numbered));
        News::Kept
    }

    fn device_requests(
        &mut self,
        place: usize,
        orchestrator: usize,
        request: Request,
        batch: Option<(u32, u64)>,
    ) {
        let device = &mut self.devices[place];
        device.call += 1;
        device.doing = Doing::Requests { batch };
        let from = Caller { is_server: false, place, life: device.life, call: device.call };
        let sent_ms = self.now_ms;
        self.send(Event::Request { orchestrator, from, sent_ms, request });
        self.after(TIMEOUT_MS, Event::Reply { to: from, reply: Err(Trouble::NoAnswer) });
    }

    pub fn device_hears(&mut self, caller: Caller, reply: Result<Reply, Trouble>) -> Checked {
        let Caller { place, life, call, .. } = caller;
        let device = &mut self.devices[place];
        if (device.life, device.call) != (life, call) {
            return Ok(());
        }
        let Doing::Requests { batch } = std::mem::replace(&mut device.doing, Doing::Nothing) else {
            return Ok(());
        };
        device.call += 1;
        // The device may die after it received the answer and before it acts on it.
        if self.dies(place) {
            return Ok(());
        }
        let news = match reply {
            Ok(Reply::Next(answer)) => {
                if let Some(run) = &answer.run {
                    self.ledger.assigned.insert((place, run.run));
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
            Ok(Reply::Heartbeat(_)) => return Err("a device received a server's answer".to_owned()),
            Err(trouble) => News::Trouble(trouble),
        };
        self.device_hears_news(place, news);
        self.device_wakes(place, life)
    }

    fn device_forgets(&mut self, place: usize, through: (u32, u64)) {
        let spool = &mut self.devices[place].disk.spool;
        while let Some((epoch, numbered)) = spool.front() {
            if (*epoch, numbered.sequence) > through {
                break;
            }
            let (sequence, run) = (numbered.sequence, numbered.result.run);
            self.ledger.acknowledged.push((place, *epoch, sequence, run));
            spool.pop_front();
        }
    }

    pub fn device_connects(&mut self, place: usize, life: u64) -> Checked {
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

    pub fn run_ends(&mut self, place: usize, life: u64) -> Checked {
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
