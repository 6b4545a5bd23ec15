//! The settings of the page, as a trial and as an equivalent scenario file.

use std::fmt::Write as _;

use serde::Deserialize;
use underload_aqm::config::{ConfigError, LinkFacts, Spec};
use underload_aqm::packet::Ecn;
use underload_aqm::rate::Rate;
use underload_aqm::registry::{LinkSetup, QueueSetup, deployed};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_sim::congestion::Algorithm;
use underload_sim::flow::UDP_HEADER_BYTES;
use underload_sim::flow::{FlowConfig, FlowKind, ProbeConfig, ProbeSchedule, UdpConfig};
use underload_sim::net::HopConfig;
use underload_sim::tcp::{EcnUse, TcpConfig};
use underload_sim::trial::{Phases, SimConfig, TrialLabel};

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Rate of the line upstream.
    pub rate_kbit_per_s: u32,
    /// Round trip without load.
    pub rtt_ms: u32,
    /// SPEC of the queue in front of the line.
    pub queue: String,
    pub uploads: u32,
    pub congestion_control: String,
    /// Whether the uploads use ECN.
    pub ecn: bool,
    /// Rate of an additional constant UDP stream; 0 for none.
    pub stream_kbit_per_s: u32,
    pub seed: u64,
}

/// Limits of the settings, so that a trial takes only moments.
const RATE_KBIT_MOST: u32 = 200_000;
const RTT_MS_MOST: u32 = 1_000;
const UPLOADS_MOST: u32 = 16;
const PHASES_S: [u64; 4] = [2, 3, 14, 1];
const PROBE_INTERVAL: Span = Span::from_millis(10);
const STREAM_PACKET_BYTES: u32 = 1_200;
/// Interval between the points of the series, as in the program.
const CURVE_INTERVAL: Span = Span::from_millis(100);
/// The name of the only variant of a scenario without variants.
const VARIANT: &str = "default";

impl Settings {
    /// Parses the settings from JSON.
    ///
    /// # Errors
    /// Describes what is missing, unknown or out of range.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        let settings: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let bounds = [
            ("rate", settings.rate_kbit_per_s, 1, RATE_KBIT_MOST),
            ("round trip", settings.rtt_ms, 0, RTT_MS_MOST),
            ("uploads", settings.uploads, 0, UPLOADS_MOST),
            ("stream", settings.stream_kbit_per_s, 0, RATE_KBIT_MOST),
        ];
        match bounds.into_iter().find(|(_, value, low, high)| !(low..=high).contains(&value)) {
            Some((what, value, low, high)) => {
                Err(format!("{what}: {value} is not from {low} to {high}"))
            }
            None => Ok(settings),
        }
    }

    /// Returns the scenario file of the same trial.
    pub fn scenario(&self) -> String {
        let Self { rate_kbit_per_s, rtt_ms, uploads, congestion_control, ecn, seed, .. } = self;
        let queue = self.queue();
        let [idle, ramp, load, drain] = PHASES_S;
        let mut text = format!(
            "title = \"From the playground\"\nseed = {seed}\n\n\
             [path]\nup = \"{rate_kbit_per_s}kbit\"\nup_queue = \"{queue}\"\n\
             rtt = \"{rtt_ms}ms\"\n\n\
             [phases]\nidle = \"{idle}s\"\nramp = \"{ramp}s\"\nload = \"{load}s\"\n\
             drain = \"{drain}s\"\n\n\
             [[flow]]\nname = \"upload\"\nkind = \"tcp\"\ndirection = \"up\"\ncount = {uploads}\n\
             congestion_control = \"{congestion_control}\"\necn = {ecn}\n\n"
        );
        if self.stream_kbit_per_s > 0 {
            let _ = write!(
                text,
                "[[flow]]\nname = \"stream\"\nkind = \"udp\"\ndirection = \"up\"\n\
                 rate = \"{}kbit\"\npacket = \"{STREAM_PACKET_BYTES}B\"\n\n",
                self.stream_kbit_per_s
            );
        }
        text + "[[flow]]\nkind = \"probe\"\ninterval = \"10ms\"\n"
    }

    /// Returns the configuration of the trial.
    ///
    /// # Errors
    /// Returns what the registry rejects of the queue, or an unknown congestion control.
    pub fn trial(&self) -> Result<SimConfig, ConfigError> {
        let [idle, ramp, load, drain] = PHASES_S.map(Span::from_secs);
        let (up, down) = self.halves();
        let line = format!("{}kbit", self.rate_kbit_per_s);
        Ok(SimConfig {
            up: vec![hop(&self.queue(), &line, up)?],
            down: vec![hop("fifo:limit=1000p", "1gbit", down)?],
            flows: self.flows(Time::ZERO + idle)?,
            phases: Phases { idle, ramp, load, drain },
            // The first repeat of a run with this seed.
            seed: Rng::new(self.seed).child("repeat").child("0").next_u64(),
            sample_interval: Some(CURVE_INTERVAL),
            label: TrialLabel { variant: VARIANT.to_owned(), ..TrialLabel::default() },
        })
    }

    /// Returns the queue as it is set up before the line.
    fn queue(&self) -> String {
        let rate = Rate::from_bits_per_second(u64::from(self.rate_kbit_per_s) * 1_000);
        deployed(&self.queue, &LinkFacts::of_rate(rate))
    }

    /// Returns the delay up and down.
    fn halves(&self) -> (Span, Span) {
        let rtt = Span::from_millis(u64::from(self.rtt_ms));
        let up = Span::from_nanos(rtt.as_nanos() / 2);
        (up, rtt.saturating_sub(up))
    }

    fn flows(&self, ramp: Time) -> Result<Vec<FlowConfig>, ConfigError> {
        let name = &self.congestion_control;
        let algorithm = Algorithm::from_name(name).ok_or_else(|| ConfigError::UnknownName {
            what: "congestion control",
            name: name.clone(),
            known: Algorithm::names(),
            suggestion: None,
        })?;
        let ecn = algorithm.ecn(if self.ecn { EcnUse::Classic } else { EcnUse::Off });
        let tcp = TcpConfig { ecn, ..TcpConfig::of(algorithm) };
        let name = |number: u32| match self.uploads {
            1 => "upload".to_owned(),
            _ => format!("upload-{number}"),
        };
        let load = |name, kind| FlowConfig { start: Some(ramp), ..FlowConfig::new(name, kind) };
        let upload = |number| load(name(number), FlowKind::Tcp(tcp.clone()));
        let mut flows: Vec<FlowConfig> = (0..self.uploads).map(upload).collect();
        if self.stream_kbit_per_s > 0 {
            let udp = UdpConfig {
                rate: Rate::from_bits_per_second(u64::from(self.stream_kbit_per_s) * 1_000),
                payload_bytes: (STREAM_PACKET_BYTES - UDP_HEADER_BYTES) as u16,
                ecn: Ecn::NotEct,
            };
            flows.push(load("stream".to_owned(), FlowKind::Udp(udp)));
        }
        let schedule = ProbeSchedule::Open { interval: PROBE_INTERVAL };
        let probe = ProbeConfig { schedule, ..ProbeConfig::default() };
        flows.push(FlowConfig::new("probe", FlowKind::Probe(probe)));
        Ok(flows)
    }
}

fn hop(queue: &str, link: &str, delay: Span) -> Result<HopConfig, ConfigError> {
    let link = LinkSetup::from_spec(&Spec::parse(link)?.with("delay", &delay.to_string()))?;
    let queue = QueueSetup::parse(queue, &link.facts())?;
    Ok(HopConfig { name: String::new(), queue, link, rule: None })
}
