//! The running wire between two TUN devices: packets pass links and queues in real time, and each
//! packet's fate is recorded.
//!
//! [`Gateway`] starts one thread, or one per direction. A thread carries lanes, one per direction:
//! device, link, device. Packets come from `packet`, and devices, clock and waiting from `machine`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use nix::sys::eventfd::{EfdFlags, EventFd};
use underload_record::schema::{Direction, Phase};

use crate::machine::{Clock, Tun};

mod config;
mod journal;
mod lane;
mod recorder;
mod report;
mod thread;

pub use config::{GatewayConfig, LaneConfig, Offload, Threads};
pub(crate) use journal::{Event, Events, Journal};
pub use lane::IoStats;
pub use recorder::{InputDrop, Outside, Reading, Recording, Window};
pub use report::{GatewayReport, LaneReport};

pub(crate) use recorder::Live;
use thread::{LaneParts, Outcome, Thread};

/// Why a gateway could not start, or why it failed.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The system refused a descriptor, a thread or an offload.
    #[error("starting the gateway")]
    Start(#[source] io::Error),
    /// A device failed while packets were carried.
    #[error("the gateway stopped: device {device}")]
    Device {
        /// Name of the device in its namespace.
        device: String,
        source: io::Error,
    },
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

impl Gateway {
    /// Starts to carry packets between the client's and the server's device. All times are of
    /// `clock`.
    pub fn start(
        config: GatewayConfig,
        devices: (&Tun, &Tun),
        clock: Clock,
    ) -> Result<Self, GatewayError> {
        Self::start_with_journals(config, devices, clock, [None, None])
    }

    /// Like [`Gateway::start`], with a journal of each direction's events.
    pub(crate) fn start_with_journals(
        config: GatewayConfig,
        (client, server): (&Tun, &Tun),
        clock: Clock,
        [up_journal, down_journal]: [Option<Journal>; 2],
    ) -> Result<Self, GatewayError> {
        let live = [Arc::<Live>::default(), Arc::<Live>::default()];
        let parts = |direction, source: &Tun, sink: &Tun, config: &LaneConfig, live, journal| {
            io::Result::Ok(LaneParts {
                direction,
                source: source.try_clone()?,
                sink: sink.try_clone()?,
                config: config.clone(),
                live,
                journal,
            })
        };
        let lanes: io::Result<_> = (|| {
            client.set_offload(config.offload.is_on(&config.up.link))?;
            server.set_offload(config.offload.is_on(&config.down.link))?;
            let [up, down] = live.clone();
            Ok(vec![
                parts(Direction::Up, client, server, &config.up, up, up_journal)?,
                parts(Direction::Down, server, client, &config.down, down, down_journal)?,
            ])
        })();
        let lanes = lanes.map_err(GatewayError::Start)?;
        let mut gateway = Self { workers: Vec::new(), live, stop: Arc::default(), clock, config };
        match gateway.config.threads {
            Threads::One => gateway.start_thread(lanes)?,
            Threads::Two => {
                for lane in lanes {
                    gateway.start_thread(vec![lane])?;
                }
            }
        }
        Ok(gateway)
    }

    fn start_thread(&mut self, lanes: Vec<LaneParts>) -> Result<(), GatewayError> {
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
            .spawn(move || thread.run(lanes))
            .map_err(GatewayError::Start)?;
        self.workers.push(Worker { thread: Some(thread), phases, wake });
        Ok(())
    }

    /// Counts packets from now on in `phase`.
    pub fn begin(&self, phase: Phase) {
        for worker in &self.workers {
            // `stop` reports a thread that has failed.
            let _ = worker.phases.send(phase);
            worker.notify();
        }
    }

    /// Returns the present counters of a direction.
    pub fn read(&self, direction: Direction) -> Reading {
        match direction {
            Direction::Up => self.live[0].read(),
            Direction::Down => self.live[1].read(),
        }
    }

    /// Whether packets are carried; if not, [`Gateway::stop`] reports why.
    pub fn is_running(&self) -> bool {
        let is_alive =
            |worker: &Worker| worker.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        self.workers.iter().all(is_alive)
    }

    /// Stops, and returns the report. Packets in queues or on links are discarded.
    ///
    /// # Errors
    /// Returns an error if a device or a thread had failed.
    pub fn stop(mut self) -> Result<GatewayReport, GatewayError> {
        let outcomes = self.join()?;
        let threads = self.config.threads;
        let mut report = GatewayReport { threads, ..GatewayReport::default() };
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
        // An overflow means that the thread has a notification already.
        let _ = self.wake.write(1);
    }
}
