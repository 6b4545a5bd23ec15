//! A test against a server of another kind, such as ndt7, as a step of a run. Fields that the test
//! does not report stay empty.

use std::time::Duration;

use underload_record::schema::{
    Direction, Finding, FlowDirection, FlowRecord, ForeignTest, InsideLatency, Metric, Phase,
    PhaseWindow, Rpm, Series, SeriesPoint, Timeliness, TrialRecord, Unmeasured, Validity,
    ValidityLimits,
};

use crate::finding::{Step, wire_bytes};
use crate::outcome::Outcome;

/// The results that a test reported for one direction.
#[derive(Debug, Clone)]
pub struct ForeignLoad {
    pub direction: Direction,
    /// Payload per second after the ramp, bit/s.
    pub goodput_bit_per_s: f64,
    /// Time from the start of the load that is excluded from the results.
    pub ramp: Duration,
    /// Duration of the load with its ramp.
    pub elapsed: Duration,
    /// Congestion control of the sender; `None` if unknown.
    pub congestion_control: Option<String>,
    pub rpm: Option<Rpm>,
    /// Payload moved since the load began.
    pub moved: Vec<(Duration, u64)>,
    /// Round trips of the loading connection since the load began, us.
    pub readings: Vec<(Duration, f64)>,
    pub metrics: Vec<Metric>,
    /// Round trips on the loading connections under load; `None` if the test reports none.
    pub inside: Option<InsideLatency>,
    /// Reasons why the step is invalid; empty if it is valid.
    pub incomplete: Vec<String>,
    /// The quantities that the test does not measure.
    pub cannot_tell: &'static [Unmeasured],
    /// Name and latency readings of the test, recorded instead of probe results.
    pub foreign: ForeignTest,
}

impl ForeignLoad {
    /// Converts the test to the step at position `index` of its run.
    pub fn step(self, index: u32) -> Step {
        let (timeliness, limits) = (Timeliness::default(), ValidityLimits::default());
        let validity = Validity::judge(&timeliness, &limits, self.incomplete.clone());
        let name = self.direction.name();
        let phases =
            [(Phase::Ramp, Duration::ZERO, self.ramp), (Phase::Load, self.ramp, self.elapsed)];
        let phases = phases.into_iter().filter(|(_, start, end)| end > start);
        let phases: Vec<PhaseWindow> = phases
            .map(|(phase, start, end)| PhaseWindow { phase, start_ns: ns(start), end_ns: ns(end) })
            .collect();
        let series = self.series(index);
        let moved_bytes = wire_bytes(self.payload_bytes());
        let rate = Some(self.goodput_bit_per_s.max(0.0));
        let is_up = self.direction == Direction::Up;
        let (up, down) = if is_up { (rate, None) } else { (None, rate) };
        let whole = |rate: Option<f64>| rate.map(|rate| rate.round() as u64);
        let flow = FlowRecord {
            name: self.foreign.test.clone(),
            kind: "tcp".to_owned(),
            direction: if is_up { FlowDirection::Up } else { FlowDirection::Down },
            congestion_control: self.congestion_control,
            goodput_up_bit_per_s: whole(up),
            goodput_down_bit_per_s: whole(down),
            metrics: self.metrics,
            ..FlowRecord::default()
        };
        let finding = Finding {
            step: name.to_owned(),
            label: self.foreign.test.clone(),
            valid: validity.is_valid(),
            invalid_because: validity.reasons_in_words(),
            goodput_up_mbit_s: up.map(|rate| rate / 1e6),
            goodput_down_mbit_s: down.map(|rate| rate / 1e6),
            rpm: self.rpm,
            moved_bytes,
            inside: self.inside.into_iter().collect(),
            foreign: Some(Box::new(self.foreign)),
            cannot_tell: self.cannot_tell.to_vec(),
            ..Finding::default()
        };
        let trial = TrialRecord {
            index,
            variant: name.to_owned(),
            validity,
            phases,
            flows: vec![flow],
            ..TrialRecord::default()
        };
        Step::new(Outcome { trial, samples: Vec::new(), series }, finding)
    }

    /// Returns the payload of the whole load; by the settled rate if the test has no counts.
    fn payload_bytes(&self) -> u64 {
        let counted = self.moved.iter().map(|(_, bytes)| *bytes).max();
        let by_rate = self.goodput_bit_per_s.max(0.0) / 8.0 * self.elapsed.as_secs_f64();
        counted.unwrap_or(by_rate as u64)
    }

    /// Returns the goodput and RTT series, with the same names and units as the series of our own
    /// load flows. Omits a series without points.
    fn series(&self, trial: u32) -> Vec<Series> {
        let named = |name: &str, unit: &str, points: Vec<SeriesPoint>| Series {
            trial,
            name: format!("{}.{name}", self.foreign.test),
            unit: unit.to_owned(),
            points,
        };
        let goodput = self.moved.windows(2).filter(|pair| pair[1].0 > pair[0].0).map(|pair| {
            let bytes = pair[1].1.saturating_sub(pair[0].1) as f64;
            let seconds = pair[1].0.saturating_sub(pair[0].0).as_secs_f64();
            SeriesPoint { time_ns: ns(pair[1].0), value: bytes * 8.0 / seconds }
        });
        let rtt = self
            .readings
            .iter()
            .map(|(at, rtt_us)| SeriesPoint { time_ns: ns(*at), value: rtt_us * 1e3 });
        let all = [named("goodput", "bit/s", goodput.collect()), named("rtt", "ns", rtt.collect())];
        all.into_iter().filter(|series| !series.points.is_empty()).collect()
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use underload_record::judgement::LoadedStep;
    use underload_record::schema::{Distribution, Readings, Vantage};

    use super::*;

    #[test]
    fn a_step_has_only_reported_numbers() {
        let foreign = ForeignTest {
            test: "ndt7".to_owned(),
            smallest_ns: Some(20_000_000),
            loaded: vec![Readings {
                of: "readings".to_owned(),
                vantage: Vantage::Inside,
                distribution: Distribution { count: 1, p50_ns: 40_000_000, ..<_>::default() },
            }],
            told: Vec::new(),
        };
        let at = Duration::from_millis;
        let told = ForeignLoad {
            direction: Direction::Down,
            goodput_bit_per_s: 8e6,
            ramp: at(2_000),
            elapsed: at(10_000),
            congestion_control: None,
            rpm: None,
            // A server of another kind may report an instant twice, or a count that decreases.
            moved: vec![(at(0), 0), (at(100), 100_000), (at(100), 100_000), (at(200), 90_000)],
            readings: vec![(at(100), 40_000.0)],
            metrics: Vec::new(),
            inside: None,
            incomplete: Vec::new(),
            cannot_tell: &[Unmeasured::Losses],
            foreign,
        };
        let Step { outcome: kept, finding } = told.step(0);
        assert!(kept.samples.is_empty() && kept.trial.latencies.is_empty());
        assert!(finding.markings.is_empty() && finding.clock_offset_ns.is_none());
        assert_eq!(LoadedStep::from(&finding).judge().worst(), None);
        assert_eq!(kept.trial.flows[0].goodput_down_bit_per_s, Some(8_000_000));
        assert_eq!(kept.trial.flows[0].goodput_up_bit_per_s, None);
        let phases: Vec<Phase> = kept.trial.phases.iter().map(|it| it.phase).collect();
        assert_eq!(phases, [Phase::Ramp, Phase::Load]);
        let values = |name: &str| -> Vec<f64> {
            let series = kept.series.iter().find(|it| it.name == name).unwrap();
            series.points.iter().map(|point| point.value).collect()
        };
        assert_eq!(values("ndt7.goodput"), [8e6, 0.0]);
        assert_eq!(values("ndt7.rtt"), [40e6]);
    }
}
