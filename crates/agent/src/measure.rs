//! A run: a session at a server, the steps of a plan through it, and what they showed.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use underload_aqm::time::Time;
use underload_fleet::agent::{Ran, RunTask};
use underload_fleet::message::{AssignedStep, ServerAddress};
use underload_fleet::outcome::{Outcome, RunResult, StepResult};
use underload_fleet::plan::Kind;
use underload_probe::RunClock;
use underload_probe::endpoint::{ProbeClass, Prober, ProberConfig};
use underload_probe::load::{LoadFlow, Token, Transport};
use underload_probe::measure::{Measurement, MeasurementConfig, MeasurementResult, Ramp};
use underload_probe::network::SocketSource;
use underload_probe::service::{Ask, ConnectOptions, Line, Remote, Trust};
use underload_record::schema::{Direction, InvalidReason, Marking, ValidityLimits};

use crate::series::series_of;

/// Where and how a line is measured.
#[derive(Clone)]
pub struct Measurer {
    /// The line's network.
    pub network: Arc<dyn SocketSource>,
    /// Interfaces that carry what the home sends and receives.
    pub line: Line,
    /// A home that sends or receives more than this besides a run uses its line, bit/s.
    pub busy_bit_per_s: u64,
    /// What the line is sold, up and down, bit/s; 0 where nobody knows.
    pub tier_bit_per_s: (u64, u64),
    /// Above which lateness of this machine a run is invalid.
    pub limits: ValidityLimits,
    /// Raised by whoever wants a run to end.
    pub cancel: Arc<AtomicBool>,
    /// Who carries the line's packets, where it is a program on this machine: an emulated line.
    pub carrier: Option<Arc<dyn Carrier>>,
}

/// Carries a line's packets, and knows when it did not do so as a line would.
pub trait Carrier: Send + Sync {
    /// What it has carried so far.
    fn carried(&self) -> Carried;
}

/// Packets of an emulated line, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Packets.
    pub packets: u64,
    /// Of these, packets that came later than the line would have brought them, by more than
    /// [`ValidityLimits::lateness_p99_ns`] has by default.
    pub late: u64,
    /// Packets that got lost beside the line's own queues.
    pub lost: u64,
}

impl Carried {
    /// Why what was measured between two looks is not to be believed.
    fn doubt(self, later: Self) -> Option<String> {
        let between = |now: u64, before: u64| now.saturating_sub(before);
        let lost = between(later.lost, self.lost);
        if lost > 0 {
            return Some("the emulated line lost packets beside its queues".to_owned());
        }
        let (packets, late) =
            (between(later.packets, self.packets), between(later.late, self.late));
        // So many that the 99th percentile is beyond the limit.
        (late * 100 > packets)
            .then(|| format!("the emulated line was late with {late} of {packets} packets"))
    }
}

/// What a home may use and still count as quiet, if nobody says otherwise: 250 kbit/s.
pub const BUSY_DEFAULT: u64 = 250_000;
/// A probe whose answer takes longer counts as lost.
const LOSS_TIMEOUT: Duration = Duration::from_secs(3);
/// A session is asked for this much longer than each of its steps: connecting, and the last
/// answers.
const STEP_MARGIN: Duration = Duration::from_secs(4);
/// IPv4 and UDP headers of a probe, bytes.
const PROBE_HEADER_BYTES: u32 = 28;
/// What is sent in the direction of a load, in percent of what arrived: headers, what was lost
/// and what still queues.
const LOAD_PERCENT: u64 = 125;
/// What acknowledgements take in the other direction, in percent of it.
const ACK_PERCENT: u64 = 5;

impl Measurer {
    /// Makes a run. `now` tells the time on the agent's own clock.
    pub fn run(&self, task: &RunTask, now: &dyn Fn() -> Time) -> Ran {
        let mut remote = match self.connect(task) {
            Ok(remote) => remote,
            Err(reason) => return Ran::TurnedAway { reason },
        };
        let began = now();
        let (mut outcome, mut reason, mut steps) = (Outcome::Measured, String::new(), Vec::new());
        for step in &task.steps {
            let shown = self.step(step, &mut remote);
            match shown {
                Ok((result, None)) => steps.push(result),
                Ok((result, Some((worse, why)))) => {
                    steps.push(result);
                    // The first reason stands; a home that uses its line ends the run.
                    if outcome == Outcome::Measured {
                        (outcome, reason) = (worse, why);
                    }
                    if worse == Outcome::CrossTraffic {
                        (outcome, reason) = (worse, "the home used its line meanwhile".to_owned());
                        break;
                    }
                }
                Err(why) => {
                    (outcome, reason) = (Outcome::Failed, format!("{}: {why}", step.name));
                    break;
                }
            }
        }
        steps.truncate(RunResult::STEPS_MAX);
        Ran::Over { outcome, reason, began, steps }
    }

    fn connect(&self, task: &RunTask) -> Result<Remote, String> {
        let ServerAddress { name, address, fingerprint } = &task.server;
        let in_words = |error: &dyn std::fmt::Display| format!("{name}: {error}");
        let known = fingerprint.parse().map_err(|error| in_words(&error))?;
        let addresses = address.to_socket_addrs().map_err(|error| in_words(&error))?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        let lasts = task.steps.iter().map(|step| {
            Duration::from_millis(step.warm_up_ms.saturating_add(step.duration_ms)) + STEP_MARGIN
        });
        let options = ConnectOptions {
            trust: Trust::Pinned(known),
            token: task.lease.clone(),
            // The lease says how much.
            ask: Ask { up_bit_per_s: None, down_bit_per_s: None, duration: lasts.sum() },
            network: Arc::clone(&self.network),
            cancel: Arc::clone(&self.cancel),
        };
        Remote::connect(address, &addresses, &options).map_err(|error| in_words(&error))
    }

    /// What a step showed, and why it is not to be believed.
    fn step(
        &self,
        step: &AssignedStep,
        remote: &mut Remote,
    ) -> Result<(StepResult, Option<(Outcome, String)>), String> {
        let config = config_of(step, remote.token());
        let before = self.line.bytes();
        let carried_before = self.carrier.as_ref().map(|it| it.carried());
        let measured = Measurement::run(
            &config,
            remote.endpoints(),
            RunClock::start(),
            &mut |_| {},
            &self.cancel,
        );
        let carried = before.zip(self.line.bytes());
        let emulated = carried_before.zip(self.carrier.as_ref().map(|it| it.carried()));
        let news = remote.news().clone();
        if let Some(reason) = news.ended {
            return Err(format!("the server ended the session: {reason}"));
        }
        let measured = measured.map_err(|error| error.to_string())?;
        if measured.cancelled {
            return Err("the agent was stopped".to_owned());
        }
        let result = self.result_of(step, &measured);
        let is_held_up = match step.kind {
            Kind::Latency => false,
            Kind::Upload => news.throttled_up,
            Kind::Download => news.throttled_down,
        };
        let fault = if carried.is_some_and(|it| self.is_foreign(step, &measured, it)) {
            Some((Outcome::CrossTraffic, String::new()))
        } else if let Some(why) = self.doubt(&measured, emulated) {
            Some((Outcome::Invalid, format!("{}: {why}", step.name)))
        } else if is_held_up {
            let why = "the lease's rate held the load up, not the line";
            Some((Outcome::Invalid, format!("{}: {why}", step.name)))
        } else {
            None
        };
        Ok((result, fault))
    }

    fn doubt(
        &self,
        measured: &MeasurementResult,
        emulated: Option<(Carried, Carried)>,
    ) -> Option<String> {
        let late = match measured.timeliness.judge(&self.limits) {
            underload_record::schema::Validity::Valid => None,
            underload_record::schema::Validity::Invalid { reasons } => {
                reasons.first().map(InvalidReason::to_string)
            }
        };
        late.or_else(|| emulated.and_then(|(before, after)| before.doubt(after)))
            .or_else(|| measured.incomplete.first().cloned())
    }

    fn result_of(&self, step: &AssignedStep, measured: &MeasurementResult) -> StepResult {
        let phase = phase_of(step.kind);
        let window = measured.phases.iter().find(|window| window.phase == phase);
        let goodput = window.filter(|_| step.kind != Kind::Latency).map(|window| {
            let goodput = |log: &underload_probe::load::FlowLog| {
                log.goodput_bit_per_s(window.start_ns, window.end_ns).unwrap_or(0)
            };
            measured.loads.iter().map(goodput).sum::<u64>()
        });
        let tier = match step.kind {
            Kind::Latency => 0,
            Kind::Upload => self.tier_bit_per_s.0,
            Kind::Download => self.tier_bit_per_s.1,
        };
        let percent = |goodput: u64| goodput as f64 * 100.0 / tier as f64;
        StepResult {
            step: step.name.clone(),
            kind: step.kind,
            goodput_bit_per_s: goodput,
            tier_percent: goodput.filter(|_| tier > 0).map(percent),
            series: series_of(&step.classes, phase, &measured.samples),
        }
    }

    /// Whether the interfaces carried more than the step itself.
    fn is_foreign(
        &self,
        step: &AssignedStep,
        measured: &MeasurementResult,
        (before, after): ([u64; 2], [u64; 2]),
    ) -> bool {
        let span_ms = step.warm_up_ms.saturating_add(step.duration_ms);
        let probes = (span_ms / step.interval_ms.max(1) + 1)
            * step.classes.len() as u64
            * u64::from(step.probe_bytes.max(100));
        let load: u64 =
            measured.loads.iter().filter_map(|log| log.delivered.last()).map(|it| it.bytes).sum();
        // Received, and sent.
        let own = match step.kind {
            Kind::Latency => [probes; 2],
            Kind::Upload => [load * ACK_PERCENT / 100 + probes, load * LOAD_PERCENT / 100 + probes],
            Kind::Download => {
                [load * LOAD_PERCENT / 100 + probes, load * ACK_PERCENT / 100 + probes]
            }
        };
        let allowed = self.busy_bit_per_s.saturating_mul(span_ms) / 8_000;
        (0..2).any(|way| after[way].saturating_sub(before[way]) > own[way].saturating_add(allowed))
    }
}

/// The phase that counts.
fn phase_of(kind: Kind) -> underload_record::schema::Phase {
    match kind {
        Kind::Latency => underload_record::schema::Phase::Idle,
        Kind::Upload | Kind::Download => underload_record::schema::Phase::Load,
    }
}

/// A step as a measurement: one TCP flow with CUBIC loads the line, for a given time before the
/// part that counts, and probes go out on their schedule whatever comes back.
fn config_of(step: &AssignedStep, token: Token) -> MeasurementConfig {
    let duration = Duration::from_millis(step.duration_ms);
    let direction = match step.kind {
        Kind::Latency => None,
        Kind::Upload => Some(Direction::Up),
        Kind::Download => Some(Direction::Down),
    };
    let (idle, load) = match direction {
        None => (duration, Duration::ZERO),
        Some(_) => (Duration::ZERO, duration),
    };
    let payload = step.probe_bytes.saturating_sub(PROBE_HEADER_BYTES);
    let payload = payload.clamp(Prober::PAYLOAD_MIN.into(), Prober::PAYLOAD_MAX.into());
    let class = |dscp: &u8| ProbeClass {
        name: format!("dscp{dscp}"),
        marking: Marking { dscp: *dscp, ..Marking::default() },
    };
    MeasurementConfig {
        idle,
        ramp: Ramp::Fixed(Duration::from_millis(step.warm_up_ms)),
        load,
        drain: Duration::ZERO,
        loss_timeout: LOSS_TIMEOUT,
        probe: ProberConfig {
            classes: step.classes.iter().map(class).collect(),
            interval: Duration::from_millis(step.interval_ms),
            payload_bytes: payload as u16,
            ..ProberConfig::default()
        },
        request_response: None,
        loads: direction.map(flow).into_iter().collect(),
        token,
        trial: 0,
    }
}

fn flow(direction: Direction) -> LoadFlow {
    LoadFlow {
        name: "load".to_owned(),
        direction,
        transport: Transport::Tcp { congestion_control: "cubic".to_owned() },
        marking: Marking::default(),
        start_after: Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_late_with_more_than_a_hundredth_is_doubted() {
        let before = Carried { packets: 1_000, late: 500, lost: 7 };
        let after = |packets, late, lost| {
            let so_many = |of: u64, more: u64| of + more;
            let packets = so_many(before.packets, packets);
            Carried { packets, late: so_many(before.late, late), lost: so_many(before.lost, lost) }
        };
        assert_eq!(before.doubt(after(200, 2, 0)), None);
        assert_eq!(before.doubt(before), None, "nothing was carried");
        let late = before.doubt(after(200, 3, 0)).expect("3 of 200");
        assert!(late.contains("3 of 200"), "{late}");
        assert!(before.doubt(after(200, 0, 1)).is_some_and(|it| it.contains("lost")));
    }
}
