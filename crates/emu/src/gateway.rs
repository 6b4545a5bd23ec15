//! The wire between two devices: a thread (or one for each direction) that moves packets through
//! the links at their instants.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};

use underload_aqm::link::{Link, RateProcess};
use underload_aqm::rate::Rate;
use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_report::schema::{Direction, Phase};

use crate::classify::FlowKey;
use crate::clock::Clock;
use crate::journal::Journal;
use crate::lane::{IoStats, Lane};
use crate::pool::{Handle, Pool};
use crate::realtime::{Realtime, Waiter};
use crate::recorder::{Live, Reading, Recorder};
use crate::report::{GatewayReport, LaneReport};
use crate::tun::Tun;

/// One direction: a queue and the link behind it.
#[derive(Clone, Debug)]
pub struct LaneConfig {
    /// Rate, delay, loss, overhead.
    pub link: LinkSetup,
    /// What waits in front of it.
    pub queue: QueueSetup,
}

/// Whether the kernel may hand over super-packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// Where the link's peak rate is above [`Offload::AUTO_RATE`]. Below it, segmentation is left
    /// to the kernel, so that senders behave as on a wire without offload.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl Offload {
    /// Where `Auto` switches over: at 200 Mbit/s a super-packet of 64 KiB takes 2.6 ms.
    pub const AUTO_RATE: Rate = Rate::from_megabits_per_second(200);

    fn is_on(self, link: &LinkSetup) -> bool {
        let facts = link.facts();
        match self {
            Self::On => true,
            Self::Off => false,
            Self::Auto => facts
                .peak
                .max(facts.rate)
                .is_none_or(|rate| rate.bits_per_second() > Self::AUTO_RATE.bits_per_second()),
        }
    }
}

/// How many threads carry the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// One for both directions.
    #[default]
    One,
    /// One for each direction.
    Two,
}

/// What a gateway is to do.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// From the client to the server.
    pub up: LaneConfig,
    /// From the server to the client.
    pub down: LaneConfig,
    /// Seed of everything random, and key of the flow hash.
    pub seed: u64,
    /// Whether the kernel may hand over super-packets.
    pub offload: Offload,
    /// How many threads.
    pub threads: Threads,
    /// Whether to ask for real-time priority and resident memory.
    pub realtime: bool,
    /// How long before a deadline a thread stops sleeping.
    pub spin: Span,
    /// Interval of the time series.
    pub sample_interval: Span,
    /// Bytes of buffers for each direction, at most.
    pub buffer_limit_bytes: usize,
}

impl GatewayConfig {
    /// The defaults for two directions.
    pub fn new(up: LaneConfig, down: LaneConfig) -> Self {
        Self {
            up,
            down,
            seed: 1,
            offload: Offload::Auto,
            threads: Threads::One,
            realtime: true,
            spin: Span::from_micros(150),
            sample_interval: Span::from_millis(10),
            buffer_limit_bytes: 256 << 20,
        }
    }

    /// Where one direction's link and queue draw their random numbers from.
    pub(crate) fn stream(&self, direction: Direction) -> Rng {
        Rng::new(self.seed).child(direction.name())
    }
}

/// Why a gateway could not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The system refused a descriptor, a thread or an offload.
    #[error("starting the gateway")]
    Start(#[source] io::Error),
    /// A device failed while packets were carried.
    #[error("the gateway stopped: device {device}")]
    Device {
        /// Which one.
        device: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A thread of the gateway panicked.
    #[error("the gateway failed (a bug): its thread panicked")]
    Panicked,
}

/// A running gateway. Dropping it stops it.
#[derive(Debug)]
pub struct Gateway {
    workers: Vec<Worker>,
    live: [Arc<Live>; 2],
    stop: Arc<AtomicBool>,
    clock: Clock,
    config: GatewayConfig,
}

#[derive(Debug)]
struct Worker {
    thread: Option<JoinHandle<Result<Outcome, GatewayError>>>,
    phases: Sender<Phase>,
    wake: Arc<EventFd>,
}

/// What a thread hands back.
struct Outcome {
    lanes: Vec<(Direction, LaneReport)>,
    realtime: Realtime,
    sleeps: u64,
    spun: Span,
}

/// What a thread needs to build a lane: links are built where they run.
struct LaneSeed {
    direction: Direction,
    source: Tun,
    sink: Tun,
    config: LaneConfig,
    live: Arc<Live>,
    journal: Option<Journal>,
}

impl Gateway {
    /// Starts to carry packets between the client's and the server's device. Times count on
    /// `clock`.
    ///
    /// # Errors
    /// Where the system refuses a descriptor, an offload or a thread.
    pub fn start(
        config: GatewayConfig,
        devices: (&Tun, &Tun),
        clock: Clock,
    ) -> Result<Self, GatewayError> {
        Self::start_with_journals(config, devices, clock, [None, None])
    }

    /// The same, with every packet's events also going to a journal for each direction.
    ///
    /// # Errors
    /// As [`Gateway::start`].
    pub fn start_with_journals(
        config: GatewayConfig,
        (client, server): (&Tun, &Tun),
        clock: Clock,
        [up_journal, down_journal]: [Option<Journal>; 2],
    ) -> Result<Self, GatewayError> {
        let live = [Arc::<Live>::default(), Arc::<Live>::default()];
        let seed = |direction, source: &Tun, sink: &Tun, config: &LaneConfig, live, journal| {
            io::Result::Ok(LaneSeed {
                direction,
                source: source.try_clone()?,
                sink: sink.try_clone()?,
                config: config.clone(),
                live,
                journal,
            })
        };
        let seeds: io::Result<_> = (|| {
            client.set_offload(config.offload.is_on(&config.up.link))?;
            server.set_offload(config.offload.is_on(&config.down.link))?;
            let [up, down] = live.clone();
            Ok(vec![
                seed(Direction::Up, client, server, &config.up, up, up_journal)?,
                seed(Direction::Down, server, client, &config.down, down, down_journal)?,
            ])
        })();
        let seeds = seeds.map_err(GatewayError::Start)?;
        let mut gateway = Self { workers: Vec::new(), live, stop: Arc::default(), clock, config };
        match gateway.config.threads {
            Threads::One => gateway.employ(seeds)?,
            Threads::Two => {
                for seed in seeds {
                    gateway.employ(vec![seed])?;
                }
            }
        }
        Ok(gateway)
    }

    /// Starts a thread for these lanes.
    fn employ(&mut self, seeds: Vec<LaneSeed>) -> Result<(), GatewayError> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let wake = EventFd::from_flags(flags).map_err(|errno| GatewayError::Start(errno.into()))?;
        let wake = Arc::new(wake);
        let (phases, inbox) = channel();
        let thread = Thread {
            clock: self.clock,
            config: self.config.clone(),
            stop: Arc::clone(&self.stop),
            wake: Arc::clone(&wake),
            phases: inbox,
        };
        let thread = std::thread::Builder::new()
            .name("gateway".to_owned())
            .spawn(move || thread.run(seeds))
            .map_err(GatewayError::Start)?;
        self.workers.push(Worker { thread: Some(thread), phases, wake });
        Ok(())
    }

    /// The clock of all times in the report.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// From now on packets count as of `phase`.
    pub fn begin(&self, phase: Phase) {
        for worker in &self.workers {
            // A thread that has failed tells so in `stop`.
            let _ = worker.phases.send(phase);
            worker.notify();
        }
    }

    /// What a direction has done so far.
    pub fn read(&self, direction: Direction) -> Reading {
        match direction {
            Direction::Up => self.live[0].read(),
            Direction::Down => self.live[1].read(),
        }
    }

    /// Whether packets are still carried; if not, [`Gateway::stop`] tells why.
    pub fn is_running(&self) -> bool {
        let is_alive =
            |worker: &Worker| worker.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        self.workers.iter().all(is_alive)
    }

    /// Stops, and reports. Packets still in queues or on their way are discarded.
    ///
    /// # Errors
    /// Where a device had failed.
    pub fn stop(mut self) -> Result<GatewayReport, GatewayError> {
        let outcomes = self.join()?;
        let mut report = GatewayReport {
            lanes: Vec::new(),
            realtime: Realtime::default(),
            sleeps: 0,
            spun: Span::ZERO,
            threads: self.config.threads,
        };
        for outcome in outcomes {
            report.lanes.extend(outcome.lanes);
            report.realtime = outcome.realtime;
            report.sleeps += outcome.sleeps;
            report.spun = report.spun + outcome.spun;
        }
        Ok(report)
    }

    fn join(&mut self) -> Result<Vec<Outcome>, GatewayError> {
        self.stop.store(true, Relaxed);
        let mut outcomes = Vec::new();
        let mut failure = None;
        for worker in &mut self.workers {
            worker.notify();
            match worker.thread.take().map(JoinHandle::join) {
                Some(Ok(Ok(outcome))) => outcomes.push(outcome),
                Some(Ok(Err(error))) => failure = Some(error),
                Some(Err(_)) => failure = Some(GatewayError::Panicked),
                None => {}
            }
        }
        failure.map_or(Ok(outcomes), Err)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

impl Worker {
    fn notify(&self) {
        // Full means that it has been told already.
        let _ = self.wake.write(1);
    }
}

/// A thread of the gateway.
struct Thread {
    clock: Clock,
    config: GatewayConfig,
    stop: Arc<AtomicBool>,
    wake: Arc<EventFd>,
    phases: Receiver<Phase>,
}

impl Thread {
    fn run(self, seeds: Vec<LaneSeed>) -> Result<Outcome, GatewayError> {
        let realtime = Realtime::request(self.config.realtime);
        let sources: io::Result<Vec<OwnedFd>> =
            seeds.iter().map(|seed| seed.source.as_fd().try_clone_to_owned()).collect();
        let sources = sources.map_err(GatewayError::Start)?;
        let mut inputs: Vec<PollFd<'_>> = sources
            .iter()
            .map(AsFd::as_fd)
            .chain([self.wake.as_fd()])
            .map(|input| PollFd::new(input, PollFlags::POLLIN))
            .collect();
        let mut lanes: Vec<(Named, Lane)> =
            seeds.into_iter().map(|seed| self.build(seed)).collect();
        let mut waiter = Waiter::new(self.config.spin, self.clock.now());
        self.carry(&mut lanes, &mut waiter, &mut inputs)?;
        let now = self.clock.now();
        let lanes = lanes.into_iter().map(|(named, lane)| named.report(lane, now)).collect();
        Ok(Outcome { lanes, realtime, sleeps: waiter.sleeps(), spun: waiter.spun() })
    }

    fn carry(
        &self,
        lanes: &mut [(Named, Lane)],
        waiter: &mut Waiter,
        inputs: &mut [PollFd<'_>],
    ) -> Result<(), GatewayError> {
        let mut next_sample = self.clock.now() + self.config.sample_interval;
        while !self.stop.load(Relaxed) {
            let mut work = 0;
            for (named, lane) in lanes.iter_mut() {
                let frames = lane.receive(&self.clock).map_err(|source| GatewayError::Device {
                    device: named.device.clone(),
                    source,
                })?;
                work += frames + lane.deliver(&self.clock);
            }
            let now = self.clock.now();
            if now >= next_sample {
                for (_, lane) in lanes.iter_mut() {
                    lane.sample(now);
                    lane.publish();
                }
                // Slots that were missed stay missed: a row says how long it covers.
                while next_sample <= now {
                    next_sample += self.config.sample_interval;
                }
            }
            for phase in self.phases.try_iter() {
                for (_, lane) in lanes.iter_mut() {
                    lane.recorder.begin(phase, now);
                }
            }
            if work == 0 {
                let events = lanes.iter().filter_map(|(_, lane)| lane.next_event());
                let due = events.min();
                // Nobody waits for a sample: it does not deserve to be spun for.
                waiter.wait(&self.clock, due, Some(next_sample), inputs);
                let _ = self.wake.read();
            }
        }
        Ok(())
    }

    fn build(&self, seed: LaneSeed) -> (Named, Lane) {
        let config = seed.config;
        let rng = self.config.stream(seed.direction);
        let link: Link<Handle> = config.link.build(config.queue.build(&rng), &rng);
        let frame_max = if self.config.offload.is_on(&config.link) { 65_600 } else { 9_100 };
        let pool = Pool::new(self.config.buffer_limit_bytes, frame_max);
        let recorder = Recorder::new(pool, seed.live, seed.journal, self.clock.now());
        let named = Named {
            direction: seed.direction,
            device: seed.source.name().to_owned(),
            queue: config.queue.label.to_string(),
            link: config.link.label.to_string(),
            offer: config.link.rate.started(&rng),
        };
        let key = FlowKey(self.config.seed);
        (named, Lane::new(seed.source, seed.sink, link, key, recorder))
    }
}

/// A lane's place in the report.
struct Named {
    direction: Direction,
    device: String,
    queue: String,
    link: String,
    offer: RateProcess,
}

impl Named {
    fn report(self, mut lane: Lane, now: Time) -> (Direction, LaneReport) {
        lane.sample(now);
        let report = LaneReport {
            queue: self.queue,
            link: self.link,
            offer: self.offer,
            left_in_queue: lane.link().queue().backlog(),
            io: lane.io,
            recording: lane.recorder.finish(now),
        };
        (self.direction, report)
    }
}

/// How the data path worked, both directions together.
impl std::ops::Add for IoStats {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            frames_read: self.frames_read + other.frames_read,
            super_packets_read: self.super_packets_read + other.super_packets_read,
            packets: self.packets + other.packets,
            frames_written: self.frames_written + other.frames_written,
            batch_max: self.batch_max.max(other.batch_max),
            batches: self.batches + other.batches,
        }
    }
}
