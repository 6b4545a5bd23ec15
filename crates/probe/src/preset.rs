//! Named measurements, each a list of steps, and the user's options for them.
//!
//! | preset | steps |
//! |---|---|
//! | `quick` | 5 s of load down, then up; four flows; best effort and NQB probes |
//! | `npms-lul` | the Comcast study: one flow, 11 s down, 7 s up, with a request-response probe |
//! | `ull` | NANOG 90: idle DSCP 8, idle DSCP 45, then a full upstream with probes in both |
//! | `rrul` | four flows each way at once in four classes, probes in three classes, 60 s |
//! | `buffer-sweep` | CableLabs buffer control: one flow up for the delay, ten for the rate |
//!
//! What a source does not specify is chosen here and shown in [`Step::label`]: the Comcast study
//! states neither its number of flows nor how it detects the steady state.

use std::time::Duration;

use underload_record::schema::{Direction, Ecn, Marking};
use underload_record::text::count;

use crate::endpoint::{ProbeClass, ProberConfig};
use crate::load::{LoadFlow, Token, Transport};
use crate::measure::{MeasurementConfig, Ramp, RequestResponse};

underload_record::named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Preset {
        /// Half a minute: 2 s idle and 5 s of load each way, four flows, probes every 10 ms.
        Quick = "quick",
        /// Latency under load as in the Comcast study: one flow, 11 s down and 7 s up after the
        /// ramp, a request-response probe beside the open-loop one.
        NpmsLul = "npms-lul",
        /// The ultra low latency test of the NANOG 90 deck: idle latency in DSCP 8 and in DSCP 45,
        /// then a full upstream with probes in both and in best effort.
        Ull = "ull",
        /// Real-time response under load: four flows each way at once, in best effort, CS1, CS5 and
        /// EF.
        Rrul = "rrul",
        /// CableLabs buffer control: the delay that the modem's upstream buffer adds under one
        /// flow, and the rate of ten flows.
        BufferSweep = "buffer-sweep",
    }
}

/// A step of a preset, which is a variant of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Short name, unique in the run, for example `down`.
    pub name: String,
    /// The load, for example `4 TCP flows down, cubic`.
    pub label: String,
    /// Its trial number is the index of the step.
    pub config: MeasurementConfig,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadDirections {
    /// Loads as in the preset: most presets load down first, then up.
    AsPreset,
    Only(Direction),
    Both,
}

/// The user's changes to a preset; `None` keeps the preset's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knobs {
    pub congestion_control: String,
    pub directions: LoadDirections,
    pub flows: Option<u32>,
    pub udp: Option<UdpLoad>,
    /// Length of the load phase, and of a step that has no load.
    pub duration: Option<Duration>,
    pub idle: Option<Duration>,
    pub interval: Option<Duration>,
    /// Markings of the probes; the first is the headline. Empty keeps the preset's.
    pub classes: Vec<Marking>,
}

/// A UDP load; the flows of a direction share the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpLoad {
    /// Rate of whole IP packets of all flows of a direction.
    pub rate_bit_per_s: u64,
    pub packet_bytes: u16,
    /// Packets that are sent back to back; 1 for even spacing.
    pub burst_packets: u16,
}

impl Default for Knobs {
    /// No changes, CUBIC: on a queue without AQM it shows the delay that BBR would hide.
    fn default() -> Self {
        Self {
            congestion_control: "cubic".to_owned(),
            directions: LoadDirections::AsPreset,
            flows: None,
            udp: None,
            duration: None,
            idle: None,
            interval: None,
            classes: Vec::new(),
        }
    }
}

const BEST_EFFORT: u8 = 0;
/// CS1: the queue-building class of the ultra low latency test.
const CS1: u8 = 8;
const CS5: u8 = 40;
const EF: u8 = 46;

/// Time that the server may need after the planned end to notice that a flow has ended.
const SESSION_MARGIN: Duration = Duration::from_secs(10);

impl Preset {
    /// Returns true if the steps differ by their number of flows, which [`Knobs::flows`] does not
    /// change.
    pub fn has_fixed_flows(self) -> bool {
        self.plans(LoadDirections::AsPreset).iter().all(|plan| plan.fixed_flows)
    }

    pub fn steps(self, knobs: &Knobs, token: Token) -> Vec<Step> {
        let plans = self.plans(knobs.directions).into_iter().zip(0..);
        plans.map(|(plan, trial)| plan.step(trial, knobs, token)).collect()
    }

    fn plans(self, directions: LoadDirections) -> Vec<Plan> {
        use Direction::{Down, Up};
        let seconds = Duration::from_secs;
        // Loads one after the other, the load of an upstream test, the load of a full test.
        let (serial, upstream, both) = match directions {
            LoadDirections::AsPreset => (vec![vec![Down], vec![Up]], vec![Up], vec![Down, Up]),
            LoadDirections::Only(way) => (vec![vec![way]], vec![way], vec![way]),
            LoadDirections::Both => (vec![vec![Down, Up]], vec![Down, Up], vec![Down, Up]),
        };
        let base = Plan::default();
        match self {
            Self::Quick => {
                let base = Plan { classes: vec![BEST_EFFORT, Marking::NQB], ..base };
                serial.into_iter().map(|loaded| Plan { loaded, ..base.clone() }).collect()
            }
            Self::NpmsLul => {
                let plan = |loaded: Vec<Direction>| Plan {
                    load: seconds(if loaded == [Up] { 7 } else { 11 }),
                    loaded,
                    flow_classes: vec![BEST_EFFORT],
                    request_response: true,
                    ..base.clone()
                };
                serial.into_iter().map(plan).collect()
            }
            Self::Ull => {
                let idle = |dscp: u8| Plan {
                    name: Some(format!("idle-dscp{dscp}")),
                    idle: seconds(10),
                    load: Duration::ZERO,
                    classes: vec![dscp],
                    ..base.clone()
                };
                let (name, load) = (Some("loaded".to_owned()), seconds(10));
                let classes = vec![CS1, Marking::NQB, BEST_EFFORT];
                let loaded = Plan { name, loaded: upstream, load, classes, ..base.clone() };
                vec![idle(CS1), idle(Marking::NQB), loaded]
            }
            Self::Rrul => vec![Plan {
                name: Some("rrul".to_owned()),
                loaded: both,
                idle: seconds(5),
                load: seconds(60),
                flow_classes: vec![BEST_EFFORT, CS1, CS5, EF],
                classes: vec![BEST_EFFORT, CS1, EF],
                ..base
            }],
            Self::BufferSweep => {
                let plan = |flows: usize| Plan {
                    name: Some(format!("{flows}-flow{}", if flows == 1 { "" } else { "s" })),
                    loaded: upstream.clone(),
                    load: seconds(10),
                    flow_classes: vec![BEST_EFFORT; flows],
                    fixed_flows: true,
                    ..base.clone()
                };
                vec![plan(1), plan(10)]
            }
        }
    }
}

/// Returns the longest duration of the steps together, with the margin of a session.
pub fn session_duration(steps: &[Step]) -> Duration {
    let longest = |config: &MeasurementConfig| {
        let ramp = match config.ramp {
            Ramp::Fixed(length) | Ramp::Detected { at_most: length } => length,
        };
        config.idle + ramp + config.load + config.loss_timeout + config.drain
    };
    let total: Duration = steps.iter().map(|step| longest(&step.config)).sum();
    total + SESSION_MARGIN
}

/// A step before the user's changes.
#[derive(Clone, Debug)]
struct Plan {
    /// `None` for the name of its direction.
    name: Option<String>,
    /// Directions that are loaded at once.
    loaded: Vec<Direction>,
    idle: Duration,
    load: Duration,
    /// Class of each flow of a direction.
    flow_classes: Vec<u8>,
    /// True if the number of flows distinguishes the step, so that the user must not change it.
    fixed_flows: bool,
    /// Classes of the probes, all Not-ECT.
    classes: Vec<u8>,
    request_response: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            name: None,
            loaded: Vec::new(),
            idle: Duration::from_secs(2),
            load: Duration::from_secs(5),
            flow_classes: vec![BEST_EFFORT; 4],
            fixed_flows: false,
            classes: vec![BEST_EFFORT],
            request_response: false,
        }
    }
}

impl Plan {
    fn step(self, trial: u32, knobs: &Knobs, token: Token) -> Step {
        let is_idle = self.loaded.is_empty();
        let (idle, load) = if is_idle {
            (knobs.duration.unwrap_or(self.idle), Duration::ZERO)
        } else {
            (knobs.idle.unwrap_or(self.idle), knobs.duration.unwrap_or(self.load))
        };
        let classes = self.probe_classes(knobs);
        let request_response = self.request_response.then(|| RequestResponse {
            name: "request-response".to_owned(),
            marking: classes.first().map_or_else(Marking::default, |class| class.marking),
            payload_bytes: 64,
        });
        let default = ProberConfig::default();
        let interval = knobs.interval.unwrap_or(default.interval);
        let loads = self.loads(knobs);
        let config = MeasurementConfig {
            trial,
            idle,
            load,
            ramp: if is_idle {
                Ramp::Fixed(Duration::ZERO)
            } else {
                Ramp::Detected { at_most: Duration::from_secs(5) }
            },
            probe: ProberConfig { classes, interval, ..default },
            request_response,
            loads,
            token,
            ..MeasurementConfig::default()
        };
        Step { name: self.step_name(), label: self.label(knobs, &config), config }
    }

    fn step_name(&self) -> String {
        match (&self.name, self.loaded.as_slice()) {
            (Some(name), _) => name.clone(),
            (None, [only]) => only.name().to_owned(),
            (None, _) => "both".to_owned(),
        }
    }

    fn label(&self, knobs: &Knobs, config: &MeasurementConfig) -> String {
        let per_direction = config.loads.len() / self.loaded.len().max(1);
        if per_direction == 0 {
            return "no load".to_owned();
        }
        let flows = count(per_direction, "flow");
        let ways = match self.loaded.as_slice() {
            [only] => only.name(),
            _ => "each way at once",
        };
        let kind = match knobs.udp {
            None => format!("TCP {}", knobs.congestion_control),
            Some(udp) if udp.burst_packets > 1 => {
                format!("UDP {} kbit/s, bursts of {}", udp.rate_bit_per_s / 1000, udp.burst_packets)
            }
            Some(udp) => format!("UDP {} kbit/s", udp.rate_bit_per_s / 1000),
        };
        format!("{kind}, {flows} {ways}")
    }

    fn probe_classes(&self, knobs: &Knobs) -> Vec<ProbeClass> {
        let preset = || self.classes.iter().map(|dscp| Marking { dscp: *dscp, ecn: Ecn::NotEct });
        let markings: Vec<Marking> =
            if knobs.classes.is_empty() { preset().collect() } else { knobs.classes.clone() };
        let class = |marking| ProbeClass { name: class_name(marking), marking };
        markings.into_iter().map(class).collect()
    }

    fn loads(&self, knobs: &Knobs) -> Vec<LoadFlow> {
        let count = match knobs.flows {
            Some(flows) if !self.fixed_flows => flows as usize,
            _ => self.flow_classes.len(),
        };
        let mut loads = Vec::new();
        for direction in &self.loaded {
            for index in 0..count {
                let dscp = self.flow_classes.get(index % self.flow_classes.len().max(1));
                let dscp = dscp.copied().unwrap_or(BEST_EFFORT);
                loads.push(LoadFlow {
                    name: format!("{direction}-{index}"),
                    direction: *direction,
                    transport: transport(knobs, count),
                    marking: Marking { dscp, ecn: Ecn::NotEct },
                    start_after: Duration::ZERO,
                });
            }
        }
        loads
    }
}

fn transport(knobs: &Knobs, flows: usize) -> Transport {
    match knobs.udp {
        None => Transport::Tcp { congestion_control: knobs.congestion_control.clone() },
        Some(udp) => Transport::Udp {
            rate_bit_per_s: (udp.rate_bit_per_s / flows.max(1) as u64).max(1),
            packet_bytes: udp.packet_bytes,
            burst_packets: udp.burst_packets.max(1),
        },
    }
}

/// Returns `probe` for best effort, else a name with the class: `probe-dscp45`,
/// `probe-dscp45-ect1`.
pub fn class_name(marking: Marking) -> String {
    let mut name = "probe".to_owned();
    if marking != Marking::default() {
        name = format!("{name}-dscp{}", marking.dscp);
    }
    if marking.ecn != Ecn::NotEct {
        name = format!("{name}-{}", marking.ecn.name());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_TOKEN: Token = Token([0; 16]);

    fn shape(preset: Preset, knobs: &Knobs) -> Vec<(String, u64, usize, Vec<u8>)> {
        let steps = preset.steps(knobs, NO_TOKEN).into_iter();
        let shape_of = |step: Step| {
            let classes = step.config.probe.classes.iter().map(|c| c.marking.dscp).collect();
            (step.name, step.config.load.as_secs(), step.config.loads.len(), classes)
        };
        steps.map(shape_of).collect()
    }

    #[test]
    fn a_preset_says_whether_flows_change_it() {
        for preset in Preset::ALL {
            let loads = |flows| shape(preset, &Knobs { flows: Some(flows), ..Knobs::default() });
            assert_eq!(loads(2) == loads(3), preset.has_fixed_flows(), "{}", preset.name());
        }
    }

    #[test]
    fn presets_have_the_flows_and_probes_of_the_studies() {
        let knobs = Knobs::default();
        assert_eq!(
            shape(Preset::NpmsLul, &knobs),
            [("down".to_owned(), 11, 1, vec![0]), ("up".to_owned(), 7, 1, vec![0])]
        );
        assert_eq!(
            shape(Preset::Ull, &knobs),
            [
                ("idle-dscp8".to_owned(), 0, 0, vec![8]),
                ("idle-dscp45".to_owned(), 0, 0, vec![45]),
                ("loaded".to_owned(), 10, 4, vec![8, 45, 0]),
            ]
        );
        assert_eq!(shape(Preset::Rrul, &knobs), [("rrul".to_owned(), 60, 8, vec![0, 8, 46])]);
        let sweep: Vec<_> = shape(Preset::BufferSweep, &knobs).into_iter().map(|s| s.2).collect();
        assert_eq!(sweep, [1, 10]);
        let rrul = Preset::Rrul.steps(&knobs, NO_TOKEN);
        let dscps: Vec<u8> =
            rrul[0].config.loads.iter().take(4).map(|flow| flow.marking.dscp).collect();
        assert_eq!(dscps, [0, 8, 40, 46]);
    }

    #[test]
    fn every_option_applies_to_every_preset() {
        let udp = UdpLoad { rate_bit_per_s: 9_000_000, packet_bytes: 1200, burst_packets: 5 };
        let class = Marking { dscp: 45, ecn: Ecn::Ect1 };
        let knobs = Knobs {
            directions: LoadDirections::Both,
            flows: Some(3),
            udp: Some(udp),
            duration: Some(Duration::from_secs(3)),
            interval: Some(Duration::from_millis(5)),
            classes: vec![class],
            ..Knobs::default()
        };
        for preset in Preset::ALL {
            assert_eq!(Preset::from_name(preset.name()), Some(preset));
            for (index, step) in preset.steps(&knobs, NO_TOKEN).into_iter().enumerate() {
                let config = &step.config;
                assert_eq!(config.trial as usize, index);
                assert_eq!(config.probe.interval, Duration::from_millis(5));
                assert_eq!(config.probe.classes[0].name, "probe-dscp45-ect1");
                let asked = if config.loads.is_empty() { config.idle } else { config.load };
                assert_eq!(asked, Duration::from_secs(3));
                let down = config.loads.iter().filter(|f| f.direction == Direction::Down).count();
                assert_eq!(down * 2, config.loads.len(), "{}", step.name);
                for flow in &config.loads {
                    let Transport::Udp { rate_bit_per_s, burst_packets, .. } = flow.transport
                    else {
                        panic!("{}: {:?}", step.name, flow.transport);
                    };
                    assert_eq!((rate_bit_per_s * down as u64, burst_packets), (9_000_000, 5));
                }
            }
        }
        assert_eq!(Preset::from_name("fast"), None);
    }

    #[test]
    fn a_session_lasts_as_long_as_its_steps_may() {
        let steps = Preset::NpmsLul.steps(&Knobs::default(), NO_TOKEN);
        assert_eq!(session_duration(&steps).as_secs(), 18 + 2 * 9 + 1 + 10);
    }
}
