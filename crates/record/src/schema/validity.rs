//! Whether a trial may be believed: a starved processor looks exactly like bufferbloat.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Distribution, Quantile};

/// How well the machine kept the trial's schedule. Everything is empty in the sim world.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Timeliness {
    /// Lateness of the emulator: when a packet left, minus when the link said it should.
    pub emulator_lateness: Option<Distribution>,
    /// Lateness of the prober: when a probe was sent, minus when it was scheduled.
    pub prober_lateness: Option<Distribution>,
    /// Probe packets that the schedule asked for.
    pub probe_slots_planned: u64,
    /// Number of probes that were never sent because their time had passed.
    pub probe_slots_missed: u64,
    /// Share of the trial in which a thread of the run, the one that waited most, was runnable but
    /// waited for a processor, percent (`schedstat`); `None` where the kernel does not tell.
    pub cpu_pressure_percent: Option<f64>,
}

/// Above which lateness a trial is invalid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValidityLimits {
    /// Largest p99 lateness of emulator and prober, ns.
    pub lateness_p99_ns: u64,
    /// Largest share of probe slots missed, percent. At 1 % the missing slots alone could hide what
    /// p99 should have shown.
    pub slots_missed_percent: f64,
    /// Largest pressure, percent.
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

/// Whether a trial's numbers may be believed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Validity {
    /// The machine kept up.
    #[default]
    Valid,
    /// The machine, not the line, may have made the latency. Kept, shown, and left out of
    /// summaries.
    Invalid {
        /// The reasons, at least one.
        reasons: Vec<InvalidReason>,
    },
}

impl Validity {
    /// The verdict on a trial: its timeliness under `limits`, then what did not go as its scenario
    /// asks, each in plain words.
    pub fn judge(
        timeliness: &Timeliness,
        limits: &ValidityLimits,
        incomplete: Vec<String>,
    ) -> Validity {
        let mut reasons = timeliness.reasons(limits);
        reasons.extend(incomplete.into_iter().map(|what| InvalidReason::Incomplete { what }));
        if reasons.is_empty() { Validity::Valid } else { Validity::Invalid { reasons } }
    }

    /// Whether the trial counts.
    pub fn is_valid(&self) -> bool {
        matches!(self, Validity::Valid)
    }

    /// Why it does not count, each reason in words; nothing if it does.
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
    /// Packets left the emulated link later than it said.
    EmulatorLate {
        /// Measured, ns.
        p99_ns: u64,
        /// Allowed, ns.
        limit_ns: u64,
        /// Packets of which this is the 99th percentile; 0 in runs that did not record it.
        #[serde(default)]
        packets: u64,
    },
    /// Probes were sent later than planned.
    ProberLate {
        /// Measured, ns.
        p99_ns: u64,
        /// Allowed, ns.
        limit_ns: u64,
        /// Packets of which this is the 99th percentile; 0 in runs that did not record it.
        #[serde(default)]
        packets: u64,
    },
    /// Probes were not sent at all.
    ProbeSlotsMissed {
        /// Number of probes that were not sent.
        missed: u64,
        /// Planned.
        planned: u64,
        /// Allowed, percent of the planned ones.
        limit_percent: f64,
    },
    /// Tasks waited for a processor.
    CpuPressure {
        /// Measured, percent of the time.
        percent: f64,
        /// Allowed, percent of the time.
        limit_percent: f64,
    },
    /// Part of the trial did not do what the scenario asked, for example a flow that sent nothing.
    Incomplete {
        /// The step that failed, in plain words.
        what: String,
    },
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

/// `4.2 ms late at p99 (limit 1.0 ms)`; of packets that are too few to tell a 99th percentile, how
/// many were that late.
fn late(p99_ns: u64, limit_ns: u64, packets: u64) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    let (late, limit) = (ms(p99_ns), ms(limit_ns));
    if packets == 0 || Quantile::P99.is_told_by(packets) {
        return format!("{late:.1} ms late at p99 (limit {limit:.1} ms)");
    }
    // From the rank of the 99th percentile on.
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
    fn a_reason_of_few_packets_has_no_99th_percentile() {
        let words = |packets| {
            let late = Distribution { count: packets, p99_ns: 4_200_000, ..Default::default() };
            let timeliness = Timeliness { prober_lateness: Some(late), ..Default::default() };
            judged(&timeliness).reasons_in_words().join("")
        };
        assert_eq!(words(500), "the prober was 4.2 ms late at p99 (limit 1.0 ms)");
        let few = "the prober was 4.2 ms late or more with 2 of 145 packets (limit 1.0 ms)";
        assert_eq!(words(145), few);
        assert!(words(99).contains("with 1 of 99 packets"), "{}", words(99));
        // An earlier run did not record how many there were.
        let old = InvalidReason::ProberLate { p99_ns: 4_200_000, limit_ns: 1_000_000, packets: 0 };
        assert_eq!(old.to_string(), words(500));
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
