//! The shares of a Prague flow and another flow at one bottleneck.

use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_sim::congestion::{Algorithm, PragueConfig};
use underload_sim::flow::{FlowConfig, FlowKind, ProbeConfig};
use underload_sim::net::{ExtraDelay, HopConfig};
use underload_sim::tcp::{EcnUse, TcpConfig};
use underload_sim::trial::{Phases, SimConfig, TrialLabel, TrialOutcome, run};

/// A bottleneck and the two flows through it.
#[derive(Clone, Copy, Debug)]
pub struct Contest {
    pub queue: &'static str,
    pub mbit: u64,
    pub rtt_ms: u64,
    /// How much longer Prague's round trip is than the other's.
    pub longer_ms: u64,
    /// The congestion control of the other flow.
    pub rival: Algorithm,
    pub prague: PragueConfig,
}

/// Without reduced dependence on the round trip.
pub const DEPENDENT: PragueConfig = PragueConfig { rtt_target: Span::ZERO, rtt_transition: 4 };

impl Contest {
    pub fn new(queue: &'static str, mbit: u64, rtt_ms: u64) -> Self {
        let (rival, prague) = (Algorithm::Cubic, PragueConfig::default());
        Self { queue, mbit, rtt_ms, longer_ms: 0, rival, prague }
    }

    /// Prague of 2020, without reduced dependence on the round trip.
    pub fn dependent(self) -> Self {
        Self { prague: DEPENDENT, ..self }
    }

    fn flow(&self, name: &str, algorithm: Algorithm, start: Time) -> FlowConfig {
        let (ecn, prague) = (algorithm.ecn(EcnUse::Off), self.prague);
        let receive_window_bytes = 64 << 20;
        let tcp = TcpConfig { ecn, prague, receive_window_bytes, ..TcpConfig::of(algorithm) };
        FlowConfig { start: Some(start), ..FlowConfig::new(name, FlowKind::Tcp(tcp)) }
    }

    /// The load of 60 s follows 30 s of ramp. Prague is the first flow, the other the second. The
    /// seed moves their starts within the first second, so that trials differ even where nothing
    /// else is random.
    pub fn outcome(&self, seed: u64) -> TrialOutcome {
        let mut rng = Rng::new(seed).child("starts");
        let mut start = || Time::from_micros(u64::from(rng.below(1_000_000)));
        let mut prague = self.flow("prague", Algorithm::Prague, start());
        let half = Span::from_micros(self.longer_ms * 500);
        prague.extra = ExtraDelay { up: half, down: half };
        let rival = self.flow("rival", self.rival, start());
        // The probe's packets have a different length, so that the flows' packets arrive at varying
        // phases of a transmission.
        let probe = FlowConfig::new("probe", FlowKind::Probe(ProbeConfig::default()));
        let delay = format!("delay={}us", self.rtt_ms * 500);
        let back = format!("10gbit:{delay}");
        run(SimConfig {
            up: vec![HopConfig::parse(self.queue, &format!("{}mbit:{delay}", self.mbit)).unwrap()],
            down: vec![HopConfig::parse("fifo:limit=100000p", &back).unwrap()],
            flows: vec![prague, rival, probe],
            phases: Phases {
                ramp: Span::from_secs(30),
                load: Span::from_secs(60),
                ..Phases::default()
            },
            seed,
            sample_interval: None,
            label: TrialLabel::default(),
        })
        .unwrap()
    }

    /// Goodput of Prague and of the other flow in Mbit/s under load.
    pub fn rates(&self, seed: u64) -> (f64, f64) {
        let outcome = self.outcome(seed);
        (super::goodput(&outcome, 0), super::goodput(&outcome, 1))
    }

    /// Prague's goodput over the other's, both summed over seeds 1 to `seeds`.
    pub fn ratio(&self, seeds: u64) -> f64 {
        let (mut prague, mut rival) = (0.0, 0.0);
        for seed in 1..=seeds {
            let rates = self.rates(seed);
            prague += rates.0;
            rival += rates.1;
        }
        prague / rival
    }
}
