//! Delay and throughput on cellular links.
//!
//! *Self-inflicted delay* is what a transport's own packets add: the round trip of a probe beside
//! the flow minus that of the same probe, with the same seed, alone on the link. A cellular link's
//! rate is a function of seed and time, so outages and low rates cancel out of the difference, as
//! they do where the Sprout paper subtracts the delay of an omniscient sender.

use underload_aqm::time::Span;
use underload_report::schema::{Phase, Sample};
use underload_sim::congestion::Algorithm;
use underload_sim::flow::{FlowConfig, FlowKind, ProbeConfig};
use underload_sim::net::HopConfig;
use underload_sim::tcp::TcpConfig;
use underload_sim::trial::{Phases, SimConfig, TrialLabel, TrialOutcome, run};

/// The presets within Sprout's model: LTE.
pub const LTE: [&str; 3] =
    ["cellular:preset=lte-driving", "cellular:preset=lte-stationary", "cellular:preset=subway"];

/// Base round trip of [`simulate`]'s path, ms.
pub const BASE_RTT_MS: f64 = 40.0;

/// A probe, alone or beside one flow, over a link with a queue that never drops, as in the
/// emulator of the Sprout paper. Two minutes, of which the first ten seconds do not count.
pub fn simulate(link: &str, kind: Option<FlowKind>, seed: u64) -> TrialOutcome {
    let mut flows = vec![FlowConfig::new("probe", FlowKind::Probe(ProbeConfig::default()))];
    flows.extend(kind.map(|kind| FlowConfig::new("flow", kind)));
    let separator = if link.contains('=') || link.starts_with("trace:") { ',' } else { ':' };
    let link = format!("{link}{separator}delay=20ms");
    run(SimConfig {
        up: vec![HopConfig::parse("fifo:limit=100000p", &link).unwrap()],
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
    })
    .unwrap()
}

/// TCP with a window wide enough to fill the deep queues of these links.
pub fn tcp(algorithm: Algorithm) -> FlowKind {
    let receive_window_bytes = 64 << 20;
    FlowKind::Tcp(TcpConfig { algorithm, receive_window_bytes, ..TcpConfig::default() })
}

pub struct Outcome {
    /// Self-inflicted delay of each probe of the load phase that came back: when it was sent, in
    /// seconds, and the delay in ms.
    pub added: Vec<(f64, f64)>,
    /// Throughput, bit/s.
    pub rate: f64,
    pub busy: TrialOutcome,
}

impl Outcome {
    /// The delays in order of size, ms.
    pub fn sorted(&self) -> Vec<f64> {
        let mut sorted: Vec<f64> = self.added.iter().map(|(_, added)| *added).collect();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    pub fn quantile(&self, share: f64) -> f64 {
        let sorted = self.sorted();
        sorted[(sorted.len() as f64 * share) as usize]
    }

    pub fn mean(&self) -> f64 {
        self.added.iter().map(|(_, added)| added).sum::<f64>() / self.added.len() as f64
    }
}

pub fn outcome(link: &str, kind: FlowKind, seed: u64) -> Outcome {
    let alone = simulate(link, None, seed);
    let busy = simulate(link, Some(kind), seed);
    let of_load = |sample: &&Sample| sample.phase == Phase::Load;
    let pairs = alone.samples.iter().filter(of_load).zip(busy.samples.iter().filter(of_load));
    let added: Vec<(f64, f64)> = pairs
        .filter_map(|(alone, busy)| {
            assert_eq!(alone.sequence, busy.sequence);
            let added = busy.rtt_ns? as f64 - alone.rtt_ns? as f64;
            Some((busy.sent_ns as f64 / 1e9, added / 1e6))
        })
        .collect();
    assert!(added.len() > 4_000, "most of 5,500 probes come back: {}", added.len());
    let rate = super::up_link(&busy).throughput_bit_per_s as f64;
    Outcome { added, rate, busy }
}
