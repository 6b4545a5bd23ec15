//! The event loop.

use underload_aqm::packet::{Meta, Packet};
use underload_aqm::rng::Rng;
use underload_aqm::time::Time;

use crate::ce_watch::EcnArrivals;
use crate::endpoint::{Address, Port};
use crate::flow::{Agent, FlowConfig, Lifetime};
use crate::net::{HopConfig, Network, Segment, Tournament};
use crate::sys::prefetch;

/// A network with its flows at an instant of virtual time.
pub(crate) struct Simulation {
    pub(crate) network: Network,
    flows: Vec<Flow>,
    /// One timer per flow. A timer that moves later is left where it is and set right when it
    /// fires, so most changes cost nothing.
    timers: Tournament,
    /// Per flow and direction, what arrived since somebody took it out.
    pub(crate) ecn_arrivals: Vec<[EcnArrivals; 2]>,
    pub(crate) events: u64,
}

/// What every packet and timer of a flow looks at first, in one cache line: with thousands of
/// flows each line is fetched from far away.
#[repr(align(64))]
struct Flow {
    agent: Agent,
    address: Address,
    /// What its timer is really due at, kept here so that a timer that fires too early costs no
    /// look at the agent.
    deadline: Time,
    /// What its timer is set to, that time or an earlier one.
    armed: Time,
    /// Whether it has yet to start.
    waiting: bool,
}

const _: () = assert!(size_of::<Flow>() == 64, "a flow is found in one cache line");

impl Simulation {
    pub(crate) fn new(
        up: Vec<HopConfig>,
        down: Vec<HopConfig>,
        flows: &[FlowConfig],
        lifetimes: &[Lifetime],
        rng: &Rng,
    ) -> Self {
        let extra: Vec<_> = flows.iter().map(|flow| flow.extra).collect();
        let mut labels = rng.child("flow labels");
        let mut timers = Tournament::new(flows.len());
        for (index, lifetime) in lifetimes.iter().enumerate() {
            timers.set(index, lifetime.start);
        }
        let flows_rng = rng.child("flows");
        Self {
            network: Network::new(up, down, &extra, rng),
            flows: (0_u16..=u16::MAX)
                .zip(flows.iter().zip(lifetimes))
                .map(|(index, (flow, lifetime))| Flow {
                    agent: Agent::new(flow, lifetime.stop, &flows_rng),
                    address: Address {
                        flow: index,
                        channel: 0,
                        label: labels.next_u32(),
                        host: flow.host,
                        dscp: flow.dscp,
                    },
                    deadline: lifetime.start,
                    armed: lifetime.start,
                    waiting: true,
                })
                .collect(),
            timers,
            ecn_arrivals: vec![<[EcnArrivals; 2]>::default(); flows.len()],
            events: 0,
        }
    }

    /// What sends and receives the packets of each flow.
    pub(crate) fn agents(&self) -> impl ExactSizeIterator<Item = &Agent> + Clone {
        self.flows.iter().map(|flow| &flow.agent)
    }

    /// The same, to be changed.
    pub(crate) fn agents_mut(&mut self) -> impl Iterator<Item = &mut Agent> {
        self.flows.iter_mut().map(|flow| &mut flow.agent)
    }

    /// The agents after the end.
    pub(crate) fn into_agents(self) -> impl Iterator<Item = Agent> {
        self.flows.into_iter().map(|flow| flow.agent)
    }

    /// The agent of the flow at `position`.
    pub(crate) fn agent(&self, position: usize) -> Option<&Agent> {
        self.flows.get(position).map(|flow| &flow.agent)
    }

    /// Executes everything that happens before `end`.
    pub(crate) fn run_until(&mut self, end: Time) {
        let mut arrived = Packet { meta: Meta::new(0, 0), payload: Segment::NONE };
        loop {
            let (timer_at, flow) = self.timers.first();
            let (packet_at, source) = self.network.next_event();
            if timer_at <= packet_at {
                if timer_at >= end {
                    return;
                }
                self.fire(timer_at, flow);
            } else {
                if packet_at >= end {
                    return;
                }
                self.deliver(packet_at, source, &mut arrived);
            }
            self.events += 1;
        }
    }

    /// Bytes of memory that this trial may use for packets and flows, as reserved now.
    pub(crate) fn bytes_reserved(&self) -> usize {
        self.network.bytes_reserved()
            + self.flows.len() * size_of::<Flow>()
            + self.agents().map(Agent::bytes_reserved).sum::<usize>()
    }

    fn fire(&mut self, now: Time, index: usize) {
        let flow = &mut self.flows[index];
        if flow.waiting || flow.deadline <= now {
            let mut port = Port { now, address: flow.address, network: &mut self.network };
            if std::mem::take(&mut flow.waiting) {
                flow.agent.endpoint_mut().start(&mut port);
            } else {
                flow.agent.on_timer(&mut port);
            }
            flow.deadline = flow.agent.deadline();
        }
        flow.armed = flow.deadline;
        self.timers.set(index, flow.deadline);
    }

    /// Has the flows fetched from memory whose packets come next: first the place where each is
    /// found, then its end of the connection, then what that end points to.
    #[inline]
    fn prefetch(&self, source: usize) {
        if let Some(packet) = self.network.upcoming(source, 2 * PACKETS_AHEAD) {
            prefetch(&self.flows[packet.payload.flow as usize]);
        }
        if let Some(packet) = self.network.upcoming(source, PACKETS_AHEAD)
            && let Some(tcp) = self.flows[packet.payload.flow as usize].agent.tcp()
        {
            tcp.prefetch(&packet.payload);
        }
        if let Some(packet) = self.network.upcoming(source, 1)
            && let Some(tcp) = self.flows[packet.payload.flow as usize].agent.tcp()
        {
            tcp.prefetch_rest(&packet.payload);
        }
    }

    #[inline]
    fn deliver(&mut self, now: Time, source: usize, packet: &mut Packet<Segment>) {
        let Some(direction) = self.network.step(now, source, packet) else { return };
        if self.flows.len() > FLOWS_NEAR {
            self.prefetch(source);
        }
        let index = packet.payload.flow as usize;
        self.ecn_arrivals[index][direction as usize].count(&packet.meta);
        let flow = &mut self.flows[index];
        let mut port = Port { now, address: flow.address, network: &mut self.network };
        flow.agent.receive(&mut port, direction, packet);
        flow.deadline = flow.agent.deadline();
        if flow.deadline < flow.armed {
            flow.armed = flow.deadline;
            self.timers.set(index, flow.deadline);
        }
    }
}

/// How many packets ahead a flow is fetched: long enough for it to arrive, and no longer.
const PACKETS_AHEAD: usize = 5;
/// So many flows, at 1 to 2 KiB each, stay in the processor's nearer caches.
const FLOWS_NEAR: usize = 256;
