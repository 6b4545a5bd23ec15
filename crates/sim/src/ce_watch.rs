//! Counts the arriving packets of each flow to find more congestion marks than congestion explains,
//! by the rules of [`underload_record::ce_excess`].
//!
//! A flow's equal share in a window is the capacity of the slowest link of its direction divided by
//! the number of flows active in the window, probes excluded. An application counts as one flow in
//! both directions, which makes shares smaller and alarms rarer.

use std::collections::BTreeMap;

use underload_aqm::link::RateProcess;
use underload_aqm::packet::{Ecn, Meta};
use underload_aqm::time::Time;
use underload_record::ce_excess::{Arrived, Watch, Window};
use underload_record::schema::{CeAlarm, Direction, PhaseWindow};

use crate::flow::{FlowConfig, FlowKind, Lifetime};
use crate::net::Hop;

/// ECN-capable packets of one flow in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EcnArrivals {
    packets: u64,
    ce_packets: u64,
    bytes: u64,
}

impl EcnArrivals {
    /// Counts a packet if it is ECN-capable.
    #[inline]
    pub(crate) fn count(&mut self, meta: &Meta) {
        if meta.ecn.is_capable() {
            self.packets += 1;
            self.ce_packets += u64::from(meta.ecn == Ecn::Ce);
            self.bytes += u64::from(meta.len);
        }
    }
}

/// The facts of a flow that its share depends on.
#[derive(Clone, Copy, Debug)]
struct Sender {
    ways: &'static [Direction],
    lifetime: Lifetime,
    /// Whether its marks are counted here. Probes have samples instead, and packets that were sent
    /// with CE show nothing about the path.
    is_watched: bool,
}

impl Sender {
    fn new(flow: &FlowConfig, lifetime: Lifetime) -> Self {
        let is_watched = match &flow.kind {
            FlowKind::Probe(_) => false,
            FlowKind::Udp(udp) => udp.ecn != Ecn::Ce,
            FlowKind::Tcp(_) | FlowKind::Sprout | FlowKind::Application(_) => true,
        };
        let is_probe = matches!(flow.kind, FlowKind::Probe(_));
        let ways = if is_probe { &[] } else { flow.recorded_direction().ways() };
        Self { ways, lifetime, is_watched }
    }

    fn is_active(&self, direction: Direction, window: &Window) -> bool {
        self.ways.contains(&direction)
            && self.lifetime.start < Time::from_nanos(window.end_ns)
            && self.lifetime.stop > Time::from_nanos(window.start_ns)
    }
}

#[derive(Default)]
pub(crate) struct CeWatch {
    windows: Vec<Window>,
    /// Position of the current window.
    current: usize,
    senders: Vec<Sender>,
    offers: Vec<(Direction, RateProcess)>,
    watches: BTreeMap<(usize, Direction), Watch>,
}

impl CeWatch {
    pub(crate) fn new(
        flows: &[FlowConfig],
        lifetimes: &[Lifetime],
        phases: &[PhaseWindow],
        hops: &[Hop],
    ) -> Self {
        let senders = flows.iter().zip(lifetimes);
        Self {
            windows: Window::of_trial(phases),
            senders: senders.map(|(flow, lifetime)| Sender::new(flow, *lifetime)).collect(),
            offers: hops.iter().map(|hop| (hop.direction, hop.offer.clone())).collect(),
            ..Self::default()
        }
    }

    /// Returns the end of the current window; [`Time::MAX`] after the last.
    pub(crate) fn next_end(&self) -> Time {
        self.windows.get(self.current).map_or(Time::MAX, |it| Time::from_nanos(it.end_ns))
    }

    /// Evaluates and resets the counts of the window that ends now.
    pub(crate) fn end_window(&mut self, arrivals: &mut [[EcnArrivals; 2]]) {
        let Some(&window) = self.windows.get(self.current) else { return };
        self.current += 1;
        for direction in [Direction::Up, Direction::Down] {
            let fair_share_bit_per_s = self.fair_share(direction, &window);
            for (flow, counts) in arrivals.iter_mut().enumerate() {
                let counted = std::mem::take(&mut counts[direction as usize]);
                let key = (flow, direction);
                let is_known = self.watches.contains_key(&key);
                if !self.senders[flow].is_watched || (counted.packets == 0 && !is_known) {
                    continue;
                }
                let arrived = Arrived {
                    ecn_packets: counted.packets,
                    ce_packets: counted.ce_packets,
                    rate_bit_per_s: Some(window.rate_bit_per_s(counted.bytes)),
                    fair_share_bit_per_s,
                };
                self.watches.entry(key).or_default().add(window, &arrived);
            }
        }
    }

    pub(crate) fn alarms(self, flows: &[FlowConfig]) -> Vec<CeAlarm> {
        let of_flow = |((flow, direction), watch): ((usize, Direction), Watch)| {
            watch.alarms(&flows[flow].name, direction)
        };
        self.watches.into_iter().flat_map(of_flow).collect()
    }

    fn fair_share(&mut self, direction: Direction, window: &Window) -> Option<u64> {
        let [start, end] = [window.start_ns, window.end_ns].map(Time::from_nanos);
        let hops = self.offers.iter_mut().filter(|(of, _)| *of == direction);
        let offered = hops.filter_map(|(_, offer)| offer.offered_bytes(start, end)).min()?;
        let active = self.senders.iter().filter(|sender| sender.is_active(direction, window));
        Some(window.rate_bit_per_s(offered) / (active.count() as u64).max(1))
    }
}
