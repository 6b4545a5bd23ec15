//! The running wire between two TUN devices: packets pass links and queues in real time, and each
//! packet's fate is recorded.
//!
//! [`Gateway`] starts one thread, which carries two lanes, one per direction: device, link, device. Packets come from `packet`, and devices, clock and waiting from `machine`.

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

pub use config::{GatewayConfig, LaneConfig, Offload};
pub(crate) use journal::{Event, Events, Journal};
pub use lane::IoStats;
pub use recorder::{InputDrop, Outside, Reading, Recording, Window};
pub use report::{GatewayReport, LaneReport};

pub(crate) use recorder::Live;
use thread::{LaneParts, Thread};

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
    thread: Option<JoinHandle<Result<GatewayReport, GatewayError>>>,
    phases: Sender<Phase>,
    wake: Arc<EventFd>,
    live: [Arc<Live>; 2],
    stop: Arc<AtomicBool>,
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
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let wake = EventFd::from_flags(flags).map_err(|errno| GatewayError::Start(errno.into()))?;
        let (wake, stop) = (Arc::new(wake), Arc::<AtomicBool>::default());
        let (phases, inbox) = channel();
        let thread = Thread {
            clock,
            config,
            stop: Arc::clone(&stop),
            wake: Arc::clone(&wake),
            phases: inbox,
        };
        let thread = std::thread::Builder::new()
            .name("gateway".to_owned())
            .spawn(move || thread.run(lanes))
            .map_err(GatewayError::Start)?;
        Ok(Self { thread: Some(thread), phases, wake, live, stop })
    }

    /// Counts packets from now on in `phase`.
    pub fn begin(&self, phase: Phase) {
        // `stop` reports a thread that has failed.
        let _ = self.phases.send(phase);
        self.notify();
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
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops, and returns the report. Packets in queues or on links are discarded.
    ///
    /// # Errors
    /// Returns an error if a device or the thread had failed.
    pub fn stop(mut self) -> Result<GatewayReport, GatewayError> {
        self.join().unwrap_or(Err(GatewayError::Panicked))
    }

    /// Stops the thread; `None` if it was joined before.
    fn join(&mut self) -> Option<Result<GatewayReport, GatewayError>> {
        self.stop.store(true, Relaxed);
        self.notify();
        let ended = self.thread.take()?.join();
        Some(ended.unwrap_or(Err(GatewayError::Panicked)))
    }

    fn notify(&self) {
        // An overflow means that the thread has a notification already.
        let _ = self.wake.write(1);
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.join();
    }
}
