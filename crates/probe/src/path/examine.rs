//! Examines one direction of a path: loads it, probes it, and classifies the queue.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;
use underload_record::schema::{Direction, Marking, Timeliness, Validity, ValidityLimits};

use super::classify::{Classification, classify};
use super::evidence::{CLASSES, Evidence, OVERLOAD, OVERLOAD_PACKET_BYTES, Stage, UdpLoad};
use crate::clock::RunClock;
use crate::endpoint::{ProbeClass, ProberConfig};
use crate::load::{LoadFlow, Token, Transport};
use crate::measure::{
    Endpoints, MeasureError, Measurement, MeasurementConfig, MeasurementResult, Progress, Ramp,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExamineConfig {
    pub direction: Direction,
    /// Congestion control of the TCP flows, as the kernel names it.
    pub congestion_control: String,
    /// Whether UDP at [`OVERLOAD`] times the rate follows TCP. Without it the answer is less
    /// certain.
    pub overload: bool,
    /// Whether a load with DSCP 45 then competes with a load without.
    pub treatment: bool,
    pub rate_max_bit_per_s: u64,
    pub token: Token,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Tcp,
    Overload,
    Treatment,
}

/// The result of an examination: the queue, its size and its treatment of markings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Examination {
    pub direction: Direction,
    pub congestion_control: String,
    /// Whether this machine was fast enough for valid numbers.
    pub validity: Validity,
    /// Steps that failed, in words for the user.
    pub incomplete: Vec<String>,
    /// `None` if too few probes were answered.
    pub evidence: Option<Evidence>,
    /// The server's granted rate, bit/s, if that and not the line limited the load: the evidence is
    /// then of the server's limit.
    pub held_up_at_bit_per_s: Option<u64>,
    /// `None` without evidence, if this machine was too slow, or if the server's limit held up the
    /// load.
    pub queue: Option<Classification>,
    /// How packets with DSCP 45 fare beside others; `None` if that was not tested, or if the
    /// server's limit limited the load.
    pub treatment: Option<Treatment>,
}

/// A load with DSCP 45 beside a load without.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Treatment {
    /// Goodput of the flows with DSCP 0, bit/s.
    pub best_effort_bit_per_s: u64,
    /// Goodput of the same number of flows with DSCP 45, bit/s.
    pub nqb_bit_per_s: u64,
    pub verdict: TreatmentVerdict,
}

/// How a path treats a load with DSCP 45, which should gain nothing from the marking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TreatmentVerdict {
    /// About the rate of best effort.
    BestEffort,
    /// Clearly more: applications gain by marking their load.
    Priority,
    /// Clearly less: policed, or in a lower class.
    Disadvantage,
}

pub const FLOWS: usize = 4;
const TREATMENT_FLOWS: usize = 2;
/// A class with more than this share of the rate has priority. By chance, two pairs of CUBIC flows
/// differ by less.
pub const PRIORITY_SHARE: f64 = 0.68;
/// A load that reached this share of the granted rate was limited by the grant.
const GRANT_REACHED: f64 = 0.9;
const PROBE_INTERVAL: Duration = Duration::from_millis(20);
const OVERLOAD_MIN: u64 = 100_000;

impl ExamineConfig {
    /// Returns how long all parts take, for the lease of a session.
    pub fn duration(&self) -> Duration {
        let parts =
            [(Part::Tcp, true), (Part::Overload, self.overload), (Part::Treatment, self.treatment)];
        let wanted = parts.into_iter().filter(|(_, wanted)| *wanted);
        wanted.map(|(part, _)| part.duration() + Duration::from_secs(4)).sum()
    }
}

impl Part {
    fn lengths(self) -> [Duration; 3] {
        match self {
            Self::Tcp => [1_000, 3_000, 8_000],
            Self::Overload => [1_000, 1_000, 3_000],
            Self::Treatment => [200, 2_500, 5_000],
        }
        .map(Duration::from_millis)
    }

    fn duration(self) -> Duration {
        self.lengths().into_iter().sum()
    }
}

/// Examines one direction. Takes 12 s, the overload 6 s more, the treatment 9 s more. Calls
/// `progress` as each part proceeds; `cancel` ends the examination soon.
///
/// # Errors
/// Returns an error if a probe or a flow could not start.
pub fn examine(
    config: &ExamineConfig,
    endpoints: &Endpoints,
    progress: &mut dyn FnMut(Part, Progress),
    cancel: &AtomicBool,
) -> Result<Examination, MeasureError> {
    let mut run = |part, loads| {
        let (measurement, clock) = (config.measurement(part, loads), RunClock::start());
        Measurement::run(&measurement, endpoints, clock, &mut |now| progress(part, now), cancel)
    };
    let tcp = run(Part::Tcp, config.bulk("bulk", 0, FLOWS))?;
    let mut timeliness = vec![tcp.timeliness.clone()];
    let mut incomplete = tcp.incomplete.clone();
    let ip = if endpoints.reflector.is_ipv4() { 20 } else { 40 };
    let tcp_stage = stage_of(&tcp, None, ip);
    let read = |overload| {
        Evidence::from_stages(config.direction, &config.congestion_control, tcp_stage, overload)
    };
    let mut evidence = read(None);
    let busiest = tcp_stage.busiest_bit_per_s();
    if let Some(rate) = busiest.filter(|_| config.overload && evidence.is_some()) {
        let load = config.overload(rate);
        let result = run(Part::Overload, vec![load.clone()])?;
        evidence = read(Some(stage_of(&result, udp_load(&load, &result, ip), ip)));
        timeliness.push(result.timeliness);
        incomplete.extend(result.incomplete);
    }
    let mut treatment = None;
    if config.treatment && !tcp.cancelled {
        let mut loads = config.bulk("best-effort", 0, TREATMENT_FLOWS);
        loads.extend(config.bulk("nqb", Marking::NQB, TREATMENT_FLOWS));
        let result = run(Part::Treatment, loads)?;
        treatment = Treatment::from_result(&result, config.direction);
        timeliness.push(result.timeliness);
        incomplete.extend(result.incomplete);
    }
    let validity = judge(&timeliness);
    let may_judge = validity.is_valid() && !tcp.cancelled;
    Ok(Examination {
        direction: config.direction,
        congestion_control: config.congestion_control.clone(),
        queue: evidence.as_ref().filter(|_| may_judge).map(classify),
        validity,
        incomplete,
        evidence,
        held_up_at_bit_per_s: None,
        treatment,
    })
}

impl Examination {
    /// Withdraws the findings about the line if the server's limit limited the load: the server
    /// reports so, or the load reached the granted rate.
    pub fn hold_against_grant(&mut self, granted_bit_per_s: u64, server_says_so: bool) {
        let reached = self.evidence.as_ref().map_or(0.0, |evidence| evidence.rate_bit_per_s);
        if server_says_so || reached >= granted_bit_per_s as f64 * GRANT_REACHED {
            self.held_up_at_bit_per_s = Some(granted_bit_per_s);
            (self.queue, self.treatment) = (None, None);
        }
    }
}

/// Returns the validity of all parts: one invalid part makes the whole invalid.
fn judge(timeliness: &[Timeliness]) -> Validity {
    let limits = ValidityLimits::default();
    let verdicts = timeliness.iter().map(|part| Validity::judge(part, &limits, Vec::new()));
    let reasons: Vec<_> = verdicts
        .filter_map(|verdict| match verdict {
            Validity::Valid => None,
            Validity::Invalid { reasons } => Some(reasons),
        })
        .flatten()
        .collect();
    if reasons.is_empty() { Validity::Valid } else { Validity::Invalid { reasons } }
}

fn stage_of(result: &MeasurementResult, udp: Option<UdpLoad>, ip_header_bytes: u16) -> Stage<'_> {
    let MeasurementResult { samples, series, phases, .. } = result;
    Stage { samples, series, phases, udp, ip_header_bytes }
}

/// Returns the outcome of a UDP load. The share that arrived is of what the sender sent at its mean
/// rate: a sender that waited for a processor sent less than planned, which is no loss.
fn udp_load(load: &LoadFlow, result: &MeasurementResult, ip_header_bytes: u16) -> Option<UdpLoad> {
    let Transport::Udp { rate_bit_per_s, packet_bytes, .. } = load.transport else { return None };
    let flow = result.flows.iter().find(|flow| flow.name == load.name)?;
    let goodput = match load.direction {
        Direction::Up => flow.goodput_up_bit_per_s,
        Direction::Down => flow.goodput_down_bit_per_s,
    }?;
    let payload_bytes = packet_bytes.saturating_sub(ip_header_bytes + UDP_HEADER_BYTES);
    let payload_bits = f64::from(payload_bytes) * 8.0;
    let planned = rate_bit_per_s as f64 / (f64::from(packet_bytes) * 8.0) * payload_bits;
    let log = result.loads.first()?;
    let life = log.delivered.first().zip(log.delivered.last());
    let life_s = life.map_or(0.0, |(first, last)| (last.time_ns - first.time_ns) as f64 / 1e9);
    let sent = log.packets_sent.filter(|_| life_s > 1.0);
    let offered = sent.map_or(planned, |packets| packets as f64 * payload_bits / life_s);
    let goodput_bit_per_s = goodput as f64;
    Some(UdpLoad {
        arrived: (goodput_bit_per_s / offered.min(planned)).min(1.0),
        goodput_bit_per_s,
    })
}

const UDP_HEADER_BYTES: u16 = 8;

impl ExamineConfig {
    fn measurement(&self, part: Part, loads: Vec<LoadFlow>) -> MeasurementConfig {
        let [idle, ramp, load] = part.lengths();
        let class = |marking: &Marking| ProbeClass {
            name: format!("probe-{}-{}", marking.dscp, marking.ecn.name()),
            marking: *marking,
        };
        MeasurementConfig {
            idle,
            ramp: Ramp::Fixed(ramp),
            load,
            drain: Duration::from_millis(700),
            probe: ProberConfig {
                classes: CLASSES.iter().map(class).collect(),
                interval: PROBE_INTERVAL,
                ..ProberConfig::default()
            },
            loads,
            token: self.token,
            ..MeasurementConfig::default()
        }
    }

    fn bulk(&self, name: &str, dscp: u8, flows: usize) -> Vec<LoadFlow> {
        let flow = |index| LoadFlow {
            name: format!("{name}-{index}"),
            direction: self.direction,
            transport: Transport::Tcp { congestion_control: self.congestion_control.clone() },
            marking: Marking { dscp, ..Marking::default() },
            start_after: Duration::ZERO,
        };
        (0..flows).map(flow).collect()
    }

    fn overload(&self, rate_bit_per_s: f64) -> LoadFlow {
        let rate = (rate_bit_per_s * OVERLOAD) as u64;
        let rate_bit_per_s = rate.min(self.rate_max_bit_per_s).max(OVERLOAD_MIN);
        LoadFlow {
            name: "overload".to_owned(),
            direction: self.direction,
            transport: Transport::Udp {
                rate_bit_per_s,
                packet_bytes: OVERLOAD_PACKET_BYTES,
                burst_packets: 1,
            },
            marking: Marking::default(),
            start_after: Duration::ZERO,
        }
    }
}

impl Treatment {
    fn from_result(result: &MeasurementResult, direction: Direction) -> Option<Self> {
        let goodput = |prefix: &str| {
            let flows = result.flows.iter().filter(|flow| flow.name.starts_with(prefix));
            let rates = flows.map(|flow| match direction {
                Direction::Up => flow.goodput_up_bit_per_s,
                Direction::Down => flow.goodput_down_bit_per_s,
            });
            rates.sum::<Option<u64>>()
        };
        Self::judge(goodput("best-effort-")?, goodput("nqb-")?)
    }

    /// Returns `None` if no flow delivered any byte.
    fn judge(best_effort_bit_per_s: u64, nqb_bit_per_s: u64) -> Option<Self> {
        let total = best_effort_bit_per_s + nqb_bit_per_s;
        if total == 0 {
            return None;
        }
        let share = nqb_bit_per_s as f64 / total as f64;
        let verdict = if share > PRIORITY_SHARE {
            TreatmentVerdict::Priority
        } else if share < 1.0 - PRIORITY_SHARE {
            TreatmentVerdict::Disadvantage
        } else {
            TreatmentVerdict::BestEffort
        };
        Some(Self { best_effort_bit_per_s, nqb_bit_per_s, verdict })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_goodput_decides_whether_marking_helps() {
        let verdict = |best_effort, nqb| Treatment::judge(best_effort, nqb).map(|t| t.verdict);
        assert_eq!(verdict(10, 9), Some(TreatmentVerdict::BestEffort));
        assert_eq!(verdict(3, 17), Some(TreatmentVerdict::Priority));
        assert_eq!(verdict(17, 3), Some(TreatmentVerdict::Disadvantage));
        assert_eq!(verdict(0, 0), None);
    }

    #[test]
    fn the_overload_exceeds_the_rate_but_not_the_limit() {
        let config = ExamineConfig {
            direction: Direction::Up,
            congestion_control: "cubic".to_owned(),
            overload: true,
            treatment: false,
            rate_max_bit_per_s: 20_000_000,
            token: Token([0; 16]),
        };
        let rate = |rate| match config.overload(rate).transport {
            Transport::Udp { rate_bit_per_s, .. } => rate_bit_per_s,
            Transport::Tcp { .. } => 0,
        };
        assert_eq!(rate(10e6), 14_000_000);
        assert_eq!(rate(18e6), 20_000_000);
        assert_eq!(rate(0.0), OVERLOAD_MIN);
        assert!(config.duration() > Duration::from_secs(17));
    }
}
