//! A thread of the gateway: builds its lanes, carries their packets, and reports at the end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Receiver;

use nix::poll::{PollFd, PollFlags};
use nix::sys::eventfd::EventFd;
use underload_aqm::link::{Link, RateProcess};
use underload_aqm::time::{Span, Time};
use underload_record::link::LinkName;
use underload_record::schema::{Direction, Phase};

use super::GatewayError;
use super::config::{GatewayConfig, LaneConfig};
use super::journal::Journal;
use super::lane::Lane;
use super::recorder::{Live, Recorder};
use super::report::{GatewayReport, LaneReport};
use crate::machine::{Clock, Tun, Waiter, schedule};
use crate::packet::{FlowKey, Handle, Pool};

/// The state of a thread besides its lanes.
pub(super) struct Thread {
    pub(super) clock: Clock,
    pub(super) config: GatewayConfig,
    /// Set by another thread to stop this one.
    pub(super) stop: Arc<AtomicBool>,
    /// Written by another thread to end a sleep.
    pub(super) wake: Arc<EventFd>,
    pub(super) phases: Receiver<Phase>,
}

/// The parts of a lane. Its link is built in the thread that runs it.
pub(super) struct LaneParts {
    pub(super) direction: Direction,
    pub(super) source: Tun,
    pub(super) sink: Tun,
    pub(super) config: LaneConfig,
    pub(super) live: Arc<Live>,
    pub(super) journal: Option<Journal>,
}

impl Thread {
    /// Carries packets until `stop` is set.
    pub(super) fn run(self, lanes: Vec<LaneParts>) -> Result<GatewayReport, GatewayError> {
        schedule(self.config.realtime);
        let sources: io::Result<Vec<OwnedFd>> =
            lanes.iter().map(|parts| parts.source.as_fd().try_clone_to_owned()).collect();
        let sources = sources.map_err(GatewayError::Start)?;
        let mut inputs: Vec<PollFd<'_>> = sources
            .iter()
            .map(AsFd::as_fd)
            .chain([self.wake.as_fd()])
            .map(|input| PollFd::new(input, PollFlags::POLLIN))
            .collect();
        let mut lanes: Vec<(LaneLabels, Lane)> =
            lanes.into_iter().map(|parts| self.build(parts)).collect();
        let spin = if self.config.time_is_virtual { Span::ZERO } else { self.config.spin };
        let mut waiter = Waiter::new(spin, self.clock.now());
        self.carry(&mut lanes, &mut waiter, &mut inputs)?;
        let now = self.clock.now();
        let lanes = lanes.into_iter().map(|(labels, lane)| labels.report(lane, now)).collect();
        Ok(GatewayReport { lanes, spun: waiter.spun })
    }

    fn carry(
        &self,
        lanes: &mut [(LaneLabels, Lane)],
        waiter: &mut Waiter,
        inputs: &mut [PollFd<'_>],
    ) -> Result<(), GatewayError> {
        let is_virtual = self.config.time_is_virtual;
        let mut next_sample = self.clock.now() + self.config.sample_interval;
        let mut may_have_frames = vec![true; lanes.len()];
        while !self.stop.load(Relaxed) {
            let clock = if is_virtual { self.clock.stopped() } else { self.clock };
            for phase in self.phases.try_iter() {
                self.begin(phase, lanes);
            }
            let mut work = 0;
            for ((labels, lane), may_have_frame) in lanes.iter_mut().zip(&mut may_have_frames) {
                if *may_have_frame {
                    let error = |source| labels.error(source);
                    let frames = lane.receive(&clock).map_err(error)?;
                    *may_have_frame = !is_virtual || frames > 0;
                    work += frames;
                }
                work += lane.deliver(&clock);
            }
            let now = clock.now();
            if now >= next_sample {
                for (_, lane) in lanes.iter_mut() {
                    lane.sample(now);
                    lane.publish();
                }
                // Missed slots are skipped: a row contains its duration.
                while next_sample <= now {
                    next_sample += self.config.sample_interval;
                }
            }
            if work == 0 {
                let events = lanes.iter().filter_map(|(_, lane)| lane.next_event());
                let due = events.min();
                // Samples are not urgent enough for spinning.
                waiter.wait(&clock, due, Some(next_sample), inputs);
                let is_ready = |input: &PollFd<'_>| !is_virtual || input.any().unwrap_or(true);
                if inputs.last().is_some_and(is_ready) {
                    let _ = self.wake.read();
                }
                for (may_have_frame, input) in may_have_frames.iter_mut().zip(inputs.iter()) {
                    *may_have_frame = is_ready(input);
                }
            }
        }
        Ok(())
    }

    /// Begins a phase. Packets that are due by now belong to the previous phase. Packets read from
    /// now on belong to the new one: they were sent after [`super::Gateway::begin`] or just before.
    fn begin(&self, phase: Phase, lanes: &mut [(LaneLabels, Lane)]) {
        for (_, lane) in lanes.iter_mut() {
            lane.deliver(&self.clock);
        }
        let now = self.clock.now();
        for (_, lane) in lanes {
            lane.begin(phase, now);
        }
    }

    fn build(&self, parts: LaneParts) -> (LaneLabels, Lane) {
        let config = parts.config;
        let rng = self.config.stream(parts.direction);
        let link: Link<Handle> = config.link.build(config.queue.build(&rng), &rng);
        let frame_max = if self.config.offload.is_on(&config.link) { 65_600 } else { 9_100 };
        let pool = Pool::new(self.config.buffer_limit_bytes, frame_max);
        let varying = config.link.rate.varies();
        let now = self.clock.now();
        let recorder = Recorder::new(pool, parts.live, parts.journal, now, varying);
        let labels = LaneLabels {
            device: parts.source.name().to_owned(),
            name: LinkName {
                hop: String::new(),
                direction: parts.direction,
                queue: config.queue.label.to_string(),
                link: config.link.label.to_string(),
                rules: config.link.rule_names(),
                bins: config.queue.latency_bins(),
            },
            offer: config.link.rate.started(&rng),
        };
        let key = FlowKey(self.config.seed);
        (labels, Lane::new(parts.source, parts.sink, link, key, recorder))
    }
}

struct LaneLabels {
    name: LinkName,
    device: String,
    offer: RateProcess,
}

impl LaneLabels {
    fn error(&self, source: io::Error) -> GatewayError {
        GatewayError::Device { device: self.device.clone(), source }
    }

    fn report(self, mut lane: Lane, now: Time) -> (Direction, LaneReport) {
        lane.sample(now);
        let direction = self.name.direction;
        let report = LaneReport {
            name: self.name,
            offer: self.offer,
            left_in_queue: lane.link().queue().backlog(),
            io: lane.io,
            recording: lane.finish(now),
        };
        (direction, report)
    }
}
