//! Whether a trial is valid: a starved processor looks exactly like bufferbloat.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Distribution, Quantile};

/// How well the machine kept the trial's schedule. All fields are empty in the sim world.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Timeliness {
    /// When a packet left the emulator, minus when its link scheduled it.
    pub emulator_lateness: Option<Distribution>,
    /// When a probe was sent, minus when it was scheduled.
    pub prober_lateness: Option<Distribution>,
    pub probe_slots_planned: u64,
    /// Probes that were not sent because their time had passed.
    pub probe_slots_missed: u64,
    /// Share of the trial in which a thread was runnable but waited for a processor, of the thread
    /// that waited most (`schedstat`); `None` if the kernel does not report it.
    pub cpu_pressure_percent: Option<f64>,
}

/// The limits above which a trial is invalid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValidityLimits {
    /// P99 lateness of emulator and prober.
    pub lateness_p99_ns: u64,
    /// Share of probe slots missed. At 1 % the missing slots alone could hide the true p99.
    pub slots_missed_percent: f64,
    pub cpu_pressure_percent: f64,
}

impl Default for ValidityLimits {
    fn default() -> Self {
        ValidityLimits {
            lateness_p99_ns: 1_000_000,
            slots_missed_percent: 1.0,
            cpu_pressure_percent: 25.0,
        }
    }
}

impl Timeliness {
    fn reasons(&self, limits: &ValidityLimits) -> Vec<InvalidReason> {
        let limit_ns = limits.lateness_p99_ns;
        let mut reasons = Vec::new();
        let late = |lateness: Option<Distribution>| {
            let lateness = lateness?;
            let p99_ns = u64::try_from(lateness.p99_ns).ok()?;
            (p99_ns > limit_ns).then_some((p99_ns, lateness.count))
        };
        if let Some((p99_ns, packets)) = late(self.emulator_lateness) {
            reasons.push(InvalidReason::EmulatorLate { p99_ns, limit_ns, packets });
        }
        if let Some((p99_ns, packets)) = late(self.prober_lateness) {
            reasons.push(InvalidReason::ProberLate { p99_ns, limit_ns, packets });
        }
        let (missed, planned) = (self.probe_slots_missed, self.probe_slots_planned);
        if missed as f64 * 100.0 > planned as f64 * limits.slots_missed_percent {
            let limit_percent = limits.slots_missed_percent;
            reasons.push(InvalidReason::ProbeSlotsMissed { missed, planned, limit_percent });
        }
        let limit_percent = limits.cpu_pressure_percent;
        if let Some(percent) = self.cpu_pressure_percent.filter(|percent| *percent > limit_percent)
        {
            reasons.push(InvalidReason::CpuPressure { percent, limit_percent });
        }
        reasons
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Validity {
    #[default]
    Valid,
    /// The machine, not the line, may have caused the latency. The trial is stored and shown, but
    /// excluded from summaries.
    Invalid { reasons: Vec<InvalidReason> },
}

impl Validity {
    /// Judges a trial by its timeliness under `limits`, and by what deviated from its scenario.
    pub fn judge(
        timeliness: &Timeliness,
        limits: &ValidityLimits,
        incomplete: Vec<String>,
    ) -> Validity {
        let mut reasons = timeliness.reasons(limits);
        reasons.extend(incomplete.into_iter().map(|what| InvalidReason::Incomplete { what }));
        if reasons.is_empty() { Validity::Valid } else { Validity::Invalid { reasons } }
    }

    pub fn is_valid(&self) -> bool {
        matches!(self, Validity::Valid)
    }

    /// Returns whether the trial is invalid only because the measuring machine was too busy.
    pub fn is_busy_machine(&self) -> bool {
        let is_of_machine = |it: &InvalidReason| !matches!(it, InvalidReason::Incomplete { .. });
        matches!(self, Validity::Invalid { reasons } if reasons.iter().all(is_of_machine))
    }

    /// Returns the reasons why the trial is invalid; empty if it is valid.
    pub fn reasons_in_words(&self) -> Vec<String> {
        match self {
            Validity::Valid => Vec::new(),
            Validity::Invalid { reasons } => reasons.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Why a trial is invalid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum InvalidReason {
    /// Packets left the emulator too late.
    EmulatorLate {
        p99_ns: u64,
        limit_ns: u64,
        /// Packets in the distribution of the p99.
        packets: u64,
    },
    /// Probes were sent too late.
    ProberLate {
        p99_ns: u64,
        limit_ns: u64,
        /// Packets in the distribution of the p99.
        packets: u64,
    },
    /// Probes were not sent at all.
    ProbeSlotsMissed { missed: u64, planned: u64, limit_percent: f64 },
    /// Threads of the run waited too long for a processor.
    CpuPressure { percent: f64, limit_percent: f64 },
    /// Part of the trial deviated from the scenario, for example a flow that sent nothing.
    Incomplete { what: String },
}

impl fmt::Display for InvalidReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidReason::EmulatorLate { p99_ns, limit_ns, packets } => {
                write!(f, "the emulator was {}", late(*p99_ns, *limit_ns, *packets))
            }
            InvalidReason::ProberLate { p99_ns, limit_ns, packets } => {
                write!(f, "the prober was {}", late(*p99_ns, *limit_ns, *packets))
            }
            InvalidReason::ProbeSlotsMissed { missed, planned, limit_percent } => {
                write!(f, "{missed} of {planned} probe slots missed (limit {limit_percent} %)")
            }
            InvalidReason::CpuPressure { percent, limit_percent } => {
                write!(f, "a thread of the run waited for a CPU {percent:.0} % of the time")?;
                write!(f, " (limit {limit_percent} %)")
            }
            InvalidReason::Incomplete { what } => f.write_str(what),
        }
    }
}

/// Formats `4.2 ms late at p99 (limit 1.0 ms)`, or the number of packets that were that late if
/// there are too few for a p99.
fn late(p99_ns: u64, limit_ns: u64, packets: u64) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    let (late, limit) = (ms(p99_ns), ms(limit_ns));
    if Quantile::P99.is_told_by(packets) {
        return format!("{late:.1} ms late at p99 (limit {limit:.1} ms)");
    }
    // Packets from the rank of the 99th percentile to the last.
    let as_late = packets - (packets * 99).div_ceil(100) + 1;
    format!("{late:.1} ms late or more with {as_late} of {packets} packets (limit {limit:.1} ms)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(timeliness: &Timeliness) -> Validity {
        Validity::judge(timeliness, &ValidityLimits::default(), Vec::new())
    }

    fn lateness(p99_ns: i64) -> Distribution {
        Distribution { count: 1000, p99_ns, ..Distribution::default() }
    }

    #[test]
    fn a_trial_at_every_limit_is_valid() {
        let timeliness = Timeliness {
            emulator_lateness: Some(lateness(1_000_000)),
            prober_lateness: Some(lateness(1_000_000)),
            probe_slots_planned: 1000,
            probe_slots_missed: 10,
            cpu_pressure_percent: Some(25.0),
        };
        assert_eq!(judged(&timeliness), Validity::Valid);
        assert_eq!(judged(&Timeliness::default()), Validity::Valid);
    }

    #[test]
    fn a_lateness_of_few_packets_names_their_number() {
        let words = |packets| {
            let late = Distribution { count: packets, p99_ns: 4_200_000, ..Default::default() };
            let timeliness = Timeliness { prober_lateness: Some(late), ..Default::default() };
            judged(&timeliness).reasons_in_words().join("")
        };
        assert_eq!(words(500), "the prober was 4.2 ms late at p99 (limit 1.0 ms)");
        let few = "the prober was 4.2 ms late or more with 2 of 145 packets (limit 1.0 ms)";
        assert_eq!(words(145), few);
        assert!(words(99).contains("with 1 of 99 packets"), "{}", words(99));
    }

    #[test]
    fn each_cause_alone_makes_a_trial_invalid() {
        let cases = [
            (
                Timeliness { emulator_lateness: Some(lateness(1_000_001)), ..Default::default() },
                "emulator",
            ),
            (
                Timeliness { prober_lateness: Some(lateness(2_500_000)), ..Default::default() },
                "prober",
            ),
            (
                Timeliness {
                    probe_slots_planned: 1000,
                    probe_slots_missed: 11,
                    ..Default::default()
                },
                "11 of 1000 probe slots",
            ),
            (Timeliness { cpu_pressure_percent: Some(60.0), ..Default::default() }, "60 %"),
        ];
        for (timeliness, words) in cases {
            let Validity::Invalid { reasons } = judged(&timeliness) else {
                panic!("{words}: judged valid");
            };
            assert_eq!(reasons.len(), 1, "{words}");
            assert!(reasons[0].to_string().contains(words), "{}", reasons[0]);
        }
    }
}
