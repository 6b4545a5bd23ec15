//! A test against a server of another kind, as a step of a run: what it told is recorded, what it
//! cannot tell is absent.

use std::time::Duration;

use anyhow::bail;
use underload_compat::nq::LoadDirection;
use underload_record::schema::{
    ArmRecord, Direction, Finding, FlowDirection, FlowRecord, ForeignTest, Metric, Phase,
    PhaseWindow, Rpm, Series, SeriesPoint, Timeliness, TrialRecord, Validity,
};

use super::arguments::Arguments;
use super::record::{Kept, line_record};

/// What one direction of a test told.
pub struct Told {
    /// The direction that was loaded.
    pub direction: LoadDirection,
    /// Payload per second after the ramp, bit/s.
    pub goodput_bit_per_s: f64,
    /// What of the test counts for nothing.
    pub ramp: Duration,
    /// How long the load lasted, ramp and all.
    pub elapsed: Duration,
    /// The congestion control of the sender, where it is known.
    pub congestion_control: Option<String>,
    /// Round trips per minute.
    pub rpm: Option<Rpm>,
    /// Payload moved since the load began.
    pub moved: Vec<(Duration, u64)>,
    /// The loading connection's own round trips since the load began, us.
    pub readings: Vec<(Duration, f64)>,
    /// Numbers of the load, for the record.
    pub metrics: Vec<Metric>,
    /// What went wrong, so that the step counts for nothing; empty if all went well.
    pub incomplete: Vec<String>,
    /// What there is instead of probes.
    pub foreign: ForeignTest,
}

impl Told {
    /// The step as a run keeps it.
    pub fn kept(self, index: u32) -> Kept {
        let validity = Validity::judge(&Timeliness::default(), self.incomplete.clone());
        let name = name(self.direction);
        let phases =
            [(Phase::Ramp, Duration::ZERO, self.ramp), (Phase::Load, self.ramp, self.elapsed)];
        let phases = phases.into_iter().filter(|(_, start, end)| end > start);
        let phases: Vec<PhaseWindow> = phases
            .map(|(phase, start, end)| PhaseWindow { phase, start_ns: ns(start), end_ns: ns(end) })
            .collect();
        let series = self.series(index);
        let rate = Some(self.goodput_bit_per_s.max(0.0));
        let is_up = self.direction == LoadDirection::Up;
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
            foreign: Some(Box::new(self.foreign)),
            ..Finding::default()
        };
        let trial = TrialRecord {
            index,
            arm: name.to_owned(),
            validity,
            phases,
            flows: vec![flow, line_record(&finding)],
            finding: Some(Box::new(finding.clone())),
            ..TrialRecord::default()
        };
        Kept { trial, samples: Vec::new(), series, finding }
    }

    /// The same curves, of the same names and units, as those of a load flow of ours.
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

/// The directions that are asked for, in this order.
pub fn directions(arguments: &Arguments) -> Vec<LoadDirection> {
    match (arguments.up, arguments.down) {
        (true, _) => vec![LoadDirection::Up],
        (_, true) => vec![LoadDirection::Down],
        _ => vec![LoadDirection::Down, LoadDirection::Up],
    }
}

/// An arm per direction.
pub fn arms(test: &str, directions: &[LoadDirection]) -> Vec<ArmRecord> {
    let arm = |direction: &LoadDirection| ArmRecord {
        name: name(*direction).to_owned(),
        label: test.to_owned(),
        ..ArmRecord::default()
    };
    directions.iter().map(arm).collect()
}

/// The direction's name.
pub fn name(direction: LoadDirection) -> &'static str {
    match direction {
        LoadDirection::Up => Direction::Up.name(),
        LoadDirection::Down => Direction::Down.name(),
    }
}

/// Refuses what such a test could not be repeated with.
pub fn check_every(arguments: &Arguments, least: Duration, who: &str) -> anyhow::Result<()> {
    match arguments.every {
        Some(every) if every < least => {
            bail!("--every: {who}; at least {} h is accepted", least.as_secs() / 3_600)
        }
        _ => Ok(()),
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use underload_record::schema::Readings;

    use super::*;

    #[test]
    fn a_step_has_what_was_told_and_nothing_that_was_not() {
        let foreign = ForeignTest {
            test: "ndt7".to_owned(),
            smallest_ms: Some(20.0),
            loaded: Readings::of("readings", [40.0]).into_iter().collect(),
            told: Vec::new(),
            cannot_tell: "much".to_owned(),
        };
        let at = Duration::from_millis;
        let told = Told {
            direction: LoadDirection::Down,
            goodput_bit_per_s: 8e6,
            ramp: at(2_000),
            elapsed: at(10_000),
            congestion_control: None,
            rpm: None,
            // The same instant twice, and a count that went back, are a stranger's.
            moved: vec![(at(0), 0), (at(100), 100_000), (at(100), 100_000), (at(200), 90_000)],
            readings: vec![(at(100), 40_000.0)],
            metrics: Vec::new(),
            incomplete: Vec::new(),
            foreign,
        };
        let kept = told.kept(0);
        assert!(kept.samples.is_empty() && kept.trial.latencies.is_empty());
        assert!(kept.finding.markings.is_empty() && kept.finding.clock_offset_ms.is_none());
        assert_eq!(kept.finding.added_ms(), None);
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
