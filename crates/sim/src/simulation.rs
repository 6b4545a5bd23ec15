//! The event loop of a simulation.

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
    /// The timers, one per flow. A timer whose deadline moves later is corrected only when it
    /// fires, so most changes cost nothing.
    timers: Tournament,
    /// ECN-capable packets that arrived per flow and direction since `CeWatch` last read them.
    pub(crate) ecn_arrivals: Vec<[EcnArrivals; 2]>,
    pub(crate) events: u64,
}

/// The state of a flow that every packet and timer reads first, in one cache line: with thousands
/// of flows each line comes from main memory.
#[repr(align(64))]
struct Flow {
    agent: Agent,
    address: Address,
    /// When the agent's timer is due, copied so that an early timer does not read the agent.
    deadline: Time,
    /// When the timer of the flow fires: `deadline` or earlier.
    armed: Time,
    /// Whether the flow has not started.
    waiting: bool,
}

const _: () = assert!(size_of::<Flow>() == 64, "a flow fits in one cache line");

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

    pub(crate) fn agents(&self) -> impl ExactSizeIterator<Item = &Agent> + Clone {
        self.flows.iter().map(|flow| &flow.agent)
    }

    pub(crate) fn agents_mut(&mut self) -> impl Iterator<Item = &mut Agent> {
        self.flows.iter_mut().map(|flow| &mut flow.agent)
    }

    pub(crate) fn into_agents(self) -> impl Iterator<Item = Agent> {
        self.flows.into_iter().map(|flow| flow.agent)
    }

    pub(crate) fn agent(&self, position: usize) -> Option<&Agent> {
        self.flows.get(position).map(|flow| &flow.agent)
    }

    /// Executes all events before `end`.
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

    /// Prefetches the flows of the next packets, in three stages: the `Flow`, its endpoint, and the
    /// memory to which the endpoint points.
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

/// How many packets ahead a flow is prefetched.
const PACKETS_AHEAD: usize = 5;
/// This number of flows, at 1 to 2 KiB each, stays in the processor's nearer caches.
const FLOWS_NEAR: usize = 256;
