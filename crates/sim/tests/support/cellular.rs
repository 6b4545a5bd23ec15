//! Delay and throughput on cellular links.
//!
//! *Self-inflicted delay* is the delay that a transport's packets add: the delay of each packet
//! minus that of a small probe sent at the same time over the same link, with the same seed,
//! without the flow. A cellular link's rate is a function of seed and time, so outages and low
//! rates cancel out, as in the Sprout paper, which subtracts the delay of an omniscient sender.
//! *Over time* is the self-inflicted delay of probes beside the flow, one each 50 ms, which gives
//! outages more weight, since few packets are sent in them.

use std::cell::RefCell;
use std::rc::Rc;

use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_aqm::time::Span;
use underload_record::schema::{Direction, Phase, Sample};
use underload_sim::congestion::Algorithm;
use underload_sim::flow::{FlowConfig, FlowKind, ProbeConfig, ProbeSchedule};
use underload_sim::net::{Event, HopConfig, SharedWatcher, Sighting, Watcher};
use underload_sim::tcp::TcpConfig;
use underload_sim::trial::{Attendance, Phases, SimConfig, TrialLabel, TrialOutcome, run_attended};

/// The presets within Sprout's model: LTE.
pub const LTE: [&str; 3] =
    ["cellular:preset=lte-driving", "cellular:preset=lte-stationary", "cellular:preset=subway"];

/// The end of the trial, with the 10 s in which answers may still arrive.
const END_NS: u64 = 130_000_000_000;

/// Base round trip of [`simulate`]'s path, ms.
pub const BASE_RTT_MS: f64 = 40.0;

/// Delays in the up link of the packets of the second flow.
#[derive(Default)]
struct Delays {
    /// When each packet was sent, and when it arrived, ns.
    packets: Vec<(u64, u64)>,
}

impl Watcher for Delays {
    fn see(&mut self, sighting: &Sighting<'_>) {
        let of_flow = sighting.packet.payload.flow == 1 && sighting.direction == Direction::Up;
        if of_flow && sighting.event == Event::Received {
            let sent = sighting.packet.meta.arrived.as_nanos();
            self.packets.push((sent, sighting.time.as_nanos()));
        }
    }
}

/// A probe, alone or beside one flow, over a link with a queue that never drops, as in the
/// emulator of the Sprout paper: two minutes, without the first ten seconds.
fn simulate(link: &str, kind: Option<FlowKind>, seed: u64) -> (TrialOutcome, Delays) {
    // 6 kbit/s: a faster probe would fill a very slow link.
    let schedule = ProbeSchedule::Open { interval: Span::from_millis(50) };
    let probe = ProbeConfig { schedule, payload_bytes: 8, ..ProbeConfig::default() };
    let mut flows = vec![FlowConfig::new("probe", FlowKind::Probe(probe))];
    flows.extend(kind.map(|kind| FlowConfig::new("flow", kind)));
    let link = format!("{link},delay=20ms");
    // A recorded link is a file.
    #[expect(clippy::disallowed_methods, reason = "no other test reads one")]
    let mut load = |path: &str| std::fs::read(path).map_err(|error| error.to_string());
    let link = LinkSetup::parse_with(&link, &mut load).unwrap();
    let queue = QueueSetup::parse("fifo:limit=100000p", &link.facts()).unwrap();
    let config = SimConfig {
        up: vec![HopConfig { name: String::new(), queue, link, rule: None }],
        down: vec![HopConfig::parse("fifo:limit=1000p", "100mbit:delay=20ms").unwrap()],
        flows,
        phases: Phases {
            ramp: Span::from_secs(10),
            load: Span::from_secs(110),
            ..Phases::default()
        },
        seed,
        sample_interval: Some(Span::from_millis(500)),
        label: TrialLabel::default(),
    };
    let delays = Rc::new(RefCell::new(Delays::default()));
    let outcome = {
        let watcher: SharedWatcher = delays.clone();
        let attendance = Attendance { watcher: Some(watcher), ..Attendance::default() };
        run_attended(config, &attendance).unwrap()
    };
    (outcome, Rc::into_inner(delays).unwrap().into_inner())
}

/// TCP with a window wide enough to fill the deep queues of these links.
pub fn tcp(algorithm: Algorithm) -> FlowKind {
    let receive_window_bytes = 64 << 20;
    FlowKind::Tcp(TcpConfig { receive_window_bytes, ..TcpConfig::of(algorithm) })
}

pub struct Outcome {
    /// Self-inflicted delay of each probe of the load phase: when it was sent, in seconds, and the
    /// delay in ms, or its age at the end of the trial.
    pub added: Vec<(f64, f64)>,
    /// Self-inflicted delay of each packet of the flow, ms, ascending.
    pub packets: Vec<f64>,
    /// Throughput of the flow, bit/s.
    pub rate: f64,
    pub busy: TrialOutcome,
}

impl Outcome {
    /// The delays in ms, ascending.
    pub fn sorted(&self) -> Vec<f64> {
        in_order(self.added.iter().map(|(_, added)| *added))
    }

    /// The 95th percentile over packets, ms.
    pub fn p95(&self) -> f64 {
        self.packets[self.packets.len() * 95 / 100]
    }

    /// The 95th percentile over time, ms.
    pub fn p95_over_time(&self) -> f64 {
        let sorted = self.sorted();
        sorted[sorted.len() * 95 / 100]
    }

    pub fn mean(&self) -> f64 {
        self.added.iter().map(|(_, added)| added).sum::<f64>() / self.added.len() as f64
    }
}

pub fn outcome(link: &str, kind: FlowKind, seed: u64) -> Outcome {
    let (alone, _) = simulate(link, None, seed);
    let (busy, delays) = simulate(link, Some(kind), seed);
    let of_load = |sample: &&Sample| sample.phase == Phase::Load;
    // The queue never drops, so a probe without an answer is still in flight.
    let ms = |sample: &Sample| sample.rtt_ns.unwrap_or(END_NS - sample.sent_ns) as f64 / 1e6;
    let pairs = alone.samples.iter().filter(of_load).zip(busy.samples.iter().filter(of_load));
    let added: Vec<(f64, f64)> = pairs
        .map(|(alone, busy)| {
            assert_eq!(alone.sequence, busy.sequence);
            (busy.sent_ns as f64 / 1e9, ms(busy) - ms(alone))
        })
        .collect();
    assert!(added.len() > 2_000, "of 2,200 probes: {}", added.len());
    let samples: Vec<&Sample> = alone.samples.iter().collect();
    let packets = in_order(delays.packets.into_iter().filter_map(|(sent, received)| {
        let next = samples.partition_point(|sample| sample.sent_ns < sent);
        let probe = samples.get(next).filter(|probe| of_load(probe))?;
        Some((received - sent) as f64 / 1e6 - probe.one_way_up_ns? as f64 / 1e6)
    }));
    let rate = super::up_link(&busy).throughput_bit_per_s as f64;
    Outcome { added, packets, rate, busy }
}

fn in_order(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}
