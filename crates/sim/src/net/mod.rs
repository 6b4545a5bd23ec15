//! The network: chains of links, constant delays, and the order of their events.

mod pipe;
mod recorder;
mod rule;
mod segment;
mod tournament;
mod watch;

use underload_aqm::config::ConfigError;
use underload_aqm::link::{Link, RateProcess, hop_stream};
use underload_aqm::packet::Packet;
use underload_aqm::rate::Rate;
use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_record::link::LinkName;
use underload_record::schema::{BottleneckSummary, Direction, PhaseWindow, Series};

pub(crate) use recorder::Recorder;
pub use rule::{MakeRule, RateRule, Seen};
pub use segment::{
    Acknowledgement, Body, Data, Datagram, Flight, Forecast, Message, Report, SackBlock, Segment,
    Stamp,
};
pub(crate) use tournament::Tournament;
pub use watch::{Event, SharedWatcher, Sighting, Watcher};

use pipe::Pipe;
use watch::Post;

/// A link to simulate.
#[derive(Clone, Debug)]
pub struct HopConfig {
    /// Empty if the path has only one hop.
    pub name: String,
    pub queue: QueueSetup,
    pub link: LinkSetup,
    /// Changes the rate of the link, which is constant without it.
    pub rule: Option<MakeRule>,
}

impl HopConfig {
    /// Parses a hop without a name from SPEC strings such as `codel:profile=linux` and
    /// `20mbit:delay=20ms`.
    pub fn parse(queue: &str, link: &str) -> Result<Self, ConfigError> {
        let link = LinkSetup::parse(link)?;
        let queue = QueueSetup::parse(queue, &link.facts())?;
        Ok(Self { name: String::new(), queue, link, rule: None })
    }
}

/// A link with its recorder and the next hop of its packets.
pub(crate) struct Hop {
    pub(crate) config: HopConfig,
    pub(crate) direction: Direction,
    pub(crate) link: Link<Segment>,
    pub(crate) recorder: Recorder,
    /// The capacity of the link over time.
    pub(crate) offer: RateProcess,
    next: Option<usize>,
}

/// Delays of one flow in addition to those of the links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtraDelay {
    /// Delay from the last up link to the server.
    pub up: Span,
    /// Delay from the last down link to the client.
    pub down: Span,
}

impl Hop {
    /// Ends a window and returns its record. `flow_name` returns the name of a flow by its number.
    pub(crate) fn end_window(
        &mut self,
        window: &PhaseWindow,
        flow_name: &dyn Fn(u32) -> String,
    ) -> BottleneckSummary {
        let [start, end] = [window.start_ns, window.end_ns].map(Time::from_nanos);
        let ended = self.recorder.tally.end_window(end, self.link.queue().stats());
        let capacity_bytes = self.offer.offered_bytes(start, end);
        self.name().summarise(window.phase, &ended, capacity_bytes, flow_name)
    }

    /// Appends a point to every series.
    pub(crate) fn sample(&mut self, now: Time) {
        let Recorder { tally, curves, .. } = &mut self.recorder;
        curves.push(tally.end_row(now, self.link.queue().backlog()), &self.link);
    }

    pub(crate) fn series(&self, trial: u32) -> Vec<Series> {
        self.name().series(&self.recorder.curves, Time::ZERO, trial)
    }

    fn name(&self) -> LinkName {
        LinkName {
            hop: self.config.name.clone(),
            direction: self.direction,
            queue: self.config.queue.label.to_string(),
            link: self.config.link.label.to_string(),
            rules: self.config.link.rule_names(),
            bins: self.config.queue.latency_bins(),
        }
    }
}

/// Everything between the endpoints.
///
/// A packet enters the first link of its direction, passes the chain, then waits in a pipe for the
/// extra delay of its flow. Flows with equal delays share a pipe.
pub(crate) struct Network {
    pub(crate) hops: Vec<Hop>,
    /// First hop of each direction.
    entries: [Option<usize>; 2],
    pipes: Vec<Pipe>,
    /// Pipe of each flow and direction.
    routes: Vec<[Option<u32>; 2]>,
    /// Next events: pipes first, then hops, so that at one instant all packets are sent before a
    /// link advances.
    heads: Tournament,
    /// The watcher of packets at the endpoints.
    watcher: Option<SharedWatcher>,
    next_id: u32,
}

impl Network {
    pub(crate) fn new(
        up: Vec<HopConfig>,
        down: Vec<HopConfig>,
        extra: &[ExtraDelay],
        rng: &Rng,
    ) -> Self {
        let mut hops = Vec::with_capacity(up.len() + down.len());
        let entries = [
            chain(&mut hops, up, Direction::Up, rng),
            chain(&mut hops, down, Direction::Down, rng),
        ];
        let mut pipes = Vec::new();
        let routes = extra
            .iter()
            .map(|delay| {
                [(Direction::Up, delay.up), (Direction::Down, delay.down)].map(|(to, delay)| {
                    let needed = delay > Span::ZERO || entries[to as usize].is_none();
                    needed.then(|| pipe_for(&mut pipes, to, delay))
                })
            })
            .collect();
        let heads = Tournament::new(pipes.len() + hops.len());
        Self { hops, entries, pipes, routes, heads, watcher: None, next_id: 0 }
    }

    /// Reports every packet to `watcher` from now on.
    pub(crate) fn watch(&mut self, watcher: &SharedWatcher) {
        let mut positions = [0; 2];
        for hop in &mut self.hops {
            let position = &mut positions[hop.direction as usize];
            let overhead = hop.config.link.overhead_bytes;
            hop.recorder.post = Some(Post::new(watcher, hop.direction, *position, overhead));
            *position += 1;
        }
        self.watcher = Some(SharedWatcher::clone(watcher));
    }

    #[inline]
    pub(crate) fn number(&mut self) -> u32 {
        self.next_id = self.next_id.wrapping_add(1);
        self.next_id
    }

    /// Returns the instant of the next event and the number of its source.
    #[inline]
    pub(crate) fn next_event(&self) -> (Time, usize) {
        self.heads.first()
    }

    /// Sends a packet from an endpoint.
    // Out of line, so that the packet is passed by reference to where it was built.
    #[inline(never)]
    pub(crate) fn send(&mut self, now: Time, direction: Direction, packet: &Packet<Segment>) {
        match self.entries[direction as usize] {
            Some(hop) => self.enter(now, hop, packet),
            None => {
                if let Some(watcher) = &self.watcher {
                    watch::report(watcher, now, direction, Event::Sent, packet);
                }
                if let Some(pipe) = self.pipe_of(direction, packet) {
                    self.delay(now, pipe, packet.clone());
                }
            }
        }
    }

    /// Changes the rate of a hop whose rate is constant.
    pub(crate) fn set_rate(&mut self, now: Time, hop: usize, rate: Rate) {
        let Hop { link, recorder, .. } = &mut self.hops[hop];
        link.set_rate(now, rate, recorder);
        let next = link.next_event().unwrap_or(Time::MAX);
        self.heads.set(self.pipes.len() + hop, next);
    }

    /// Handles the next event, that of `source` at `now`. Writes a packet at its endpoint to
    /// `arrived` and returns its direction: returned by value, it would be moved three times.
    #[inline]
    pub(crate) fn step(
        &mut self,
        now: Time,
        source: usize,
        arrived: &mut Packet<Segment>,
    ) -> Option<Direction> {
        let direction = self.handle(now, source, arrived)?;
        if let Some(watcher) = &self.watcher {
            watch::report(watcher, now, direction, Event::Received, arrived);
        }
        Some(direction)
    }

    /// Returns the packet that `source` will deliver after `position` others, if it is known.
    #[inline]
    pub(crate) fn upcoming(&self, source: usize, position: usize) -> Option<&Packet<Segment>> {
        let hop = self.hops.get(source.checked_sub(self.pipes.len())?)?;
        hop.link.in_flight_at(position)
    }

    #[inline]
    fn handle(
        &mut self,
        now: Time,
        source: usize,
        arrived: &mut Packet<Segment>,
    ) -> Option<Direction> {
        let Some(hop) = source.checked_sub(self.pipes.len()) else {
            return self.step_pipe(source, arrived);
        };
        let Hop { link, recorder, next, direction, .. } = &mut self.hops[hop];
        let polled = link.peek(now, recorder).map(|(_, packet)| *arrived = packet.clone());
        if polled.is_some() {
            link.discard();
        }
        let (next, direction) = (*next, *direction);
        self.heads.set(source, link.next_event().unwrap_or(Time::MAX));
        polled?;
        if let Some(post) = &recorder.post {
            post.see(now, Event::Delivery, arrived);
        }
        if let Some(next) = next {
            self.enter(now, next, arrived);
            return None;
        }
        if let Some(pipe) = self.pipe_of(direction, arrived) {
            self.delay(now, pipe, arrived.clone());
            return None;
        }
        Some(direction)
    }

    #[inline(never)]
    fn step_pipe(&mut self, index: usize, arrived: &mut Packet<Segment>) -> Option<Direction> {
        let pipe = &mut self.pipes[index];
        *arrived = pipe.pop()?;
        self.heads.set(index, pipe.next_event());
        Some(pipe.direction)
    }

    #[inline]
    fn enter(&mut self, now: Time, hop: usize, packet: &Packet<Segment>) {
        let Hop { link, recorder, .. } = &mut self.hops[hop];
        // Earlier departures come first. This also separates the copy of the packet below from the
        // field-by-field writes before: an immediate wider read would stall the processor.
        link.advance_before(now, recorder);
        if let Some(post) = &recorder.post {
            post.arrived(now, packet);
        }
        link.send(now, packet.clone(), recorder);
        let next = link.next_event().unwrap_or(Time::MAX);
        self.heads.set(self.pipes.len() + hop, next);
    }

    /// Returns the pipe between the last link and the packet's endpoint; `None` without a delay.
    #[inline]
    fn pipe_of(&self, direction: Direction, packet: &Packet<Segment>) -> Option<usize> {
        if self.pipes.is_empty() {
            return None;
        }
        let route = self.routes[packet.payload.flow as usize][direction as usize];
        route.map(|pipe| pipe as usize)
    }

    #[inline(never)]
    fn delay(&mut self, now: Time, pipe: usize, packet: Packet<Segment>) {
        self.pipes[pipe].push(now, packet);
        self.heads.set(pipe, self.pipes[pipe].next_event());
    }
}

fn chain(
    hops: &mut Vec<Hop>,
    configs: Vec<HopConfig>,
    direction: Direction,
    rng: &Rng,
) -> Option<usize> {
    let first = hops.len();
    let last = first + configs.len();
    for config in configs {
        let next = hops.len() + 1;
        let rng = hop_stream(rng, direction.name(), hops.len() - first);
        hops.push(Hop {
            direction,
            link: config.link.build_behind(&config.queue, &rng),
            recorder: Recorder::new(config.link.rate.varies()),
            offer: config.link.rate.started(&rng),
            next: (next < last).then_some(next),
            config,
        });
    }
    (last > first).then_some(first)
}

fn pipe_for(pipes: &mut Vec<Pipe>, direction: Direction, delay: Span) -> u32 {
    let known = pipes.iter().position(|pipe| pipe.direction == direction && pipe.delay == delay);
    let index = known.unwrap_or_else(|| {
        pipes.push(Pipe::new(direction, delay));
        pipes.len() - 1
    });
    index as u32
}
