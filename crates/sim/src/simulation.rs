//! The event loop.

use underload_aqm::packet::{Meta, Packet};
use underload_aqm::rng::Rng;
use underload_aqm::time::Time;

use crate::ce_watch::EcnArrivals;
use crate::flow::{Address, Agent, FlowConfig, Port};
use crate::net::{HopConfig, Network, Segment, Tournament};

/// A network with its flows at an instant of virtual time.
pub(crate) struct Simulation {
    pub(crate) network: Network,
    pub(crate) agents: Vec<Agent>,
    addresses: Vec<Address>,
    /// One timer per flow. A timer that moves later is left where it is and set right when it
    /// fires, so most changes cost nothing.
    timers: Tournament,
    /// What each flow's timer is really due at, kept here so that a timer that fires too early
    /// costs no look at the flow.
    deadlines: Vec<Time>,
    /// Whether each flow has yet to start.
    waiting: Vec<bool>,
    /// Per flow and direction, what arrived since somebody took it out.
    pub(crate) ecn_arrivals: Vec<[EcnArrivals; 2]>,
    pub(crate) events: u64,
}

/// When a flow is active.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    pub(crate) start: Time,
    pub(crate) stop: Time,
}

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
        let addresses = (0_u16..=u16::MAX)
            .zip(flows)
            .map(|(index, flow)| Address {
                flow: index,
                channel: 0,
                label: labels.next_u32(),
                host: flow.host,
                dscp: flow.dscp,
            })
            .collect();
        let mut timers = Tournament::new(flows.len());
        for (index, lifetime) in lifetimes.iter().enumerate() {
            timers.set(index, lifetime.start);
        }
        let flows_rng = rng.child("flows");
        Self {
            network: Network::new(up, down, &extra, rng),
            agents: flows
                .iter()
                .zip(lifetimes)
                .map(|(flow, lifetime)| Agent::new(flow, lifetime.stop, &flows_rng))
                .collect(),
            addresses,
            timers,
            deadlines: lifetimes.iter().map(|lifetime| lifetime.start).collect(),
            waiting: vec![true; flows.len()],
            ecn_arrivals: vec![<[EcnArrivals; 2]>::default(); flows.len()],
            events: 0,
        }
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
            + self.agents.len() * (size_of::<Agent>() + size_of::<Address>())
            + self.agents.iter().map(Agent::bytes_reserved).sum::<usize>()
    }

    fn fire(&mut self, now: Time, flow: usize) {
        if self.waiting[flow] || self.deadlines[flow] <= now {
            let agent = &mut self.agents[flow];
            let address = self.addresses[flow];
            let mut port = Port { now, address, network: &mut self.network };
            if std::mem::take(&mut self.waiting[flow]) {
                agent.endpoint_mut().start(&mut port);
            } else {
                agent.endpoint_mut().on_timer(&mut port);
            }
            self.deadlines[flow] = agent.deadline();
        }
        self.timers.set(flow, self.deadlines[flow]);
    }

    /// Has the flows fetched from memory whose packets come next.
    #[inline]
    fn prefetch(&self, source: usize) {
        if let Some(packet) = self.network.upcoming(source, PACKETS_AHEAD)
            && let Some(tcp) = self.agents[packet.payload.flow as usize].tcp()
        {
            tcp.prefetch(&packet.payload);
        }
        if let Some(packet) = self.network.upcoming(source, 1)
            && let Some(tcp) = self.agents[packet.payload.flow as usize].tcp()
        {
            tcp.prefetch_rest(&packet.payload);
        }
    }

    #[inline]
    fn deliver(&mut self, now: Time, source: usize, packet: &mut Packet<Segment>) {
        let Some(direction) = self.network.step(now, source, packet) else { return };
        if self.agents.len() > FLOWS_NEAR {
            self.prefetch(source);
        }
        let flow = packet.payload.flow as usize;
        self.ecn_arrivals[flow][direction as usize].count(&packet.meta);
        let agent = &mut self.agents[flow];
        let address = self.addresses[flow];
        let mut port = Port { now, address, network: &mut self.network };
        agent.receive(&mut port, direction, packet);
        let deadline = agent.deadline();
        self.deadlines[flow] = deadline;
        if deadline < self.timers.key(flow) {
            self.timers.set(flow, deadline);
        }
    }
}

/// How many packets ahead a flow is fetched: long enough for it to arrive, and no longer.
const PACKETS_AHEAD: usize = 5;
/// So many flows, at 1 to 2 KiB each, stay in the processor's nearer caches.
const FLOWS_NEAR: usize = 256;
