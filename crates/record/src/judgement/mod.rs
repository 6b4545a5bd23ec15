//! The judgement of a measured line, as data: a grade, the delay that the load adds, the uses that the
//! line suits, and a cure.
//!
//! [`judge`] is the only place that decides these. `run.json`, `findings.json`, the page for browsers
//! and every report take them from a [`Judgement`]; sentences are made of it and decide nothing.

mod grade;
mod uses;

use serde::{Deserialize, Serialize};

pub use grade::{ADVICE_FROM_MS, Grade};
pub use uses::{PAGE_ROUND_TRIPS, STREAMS, Stream, Suitability, Use, UseJudgement};

use crate::quality::{StepConditions, application_scores};
use crate::schema::{
    ClassLatency, Direction, Finding, InsideReadings, PathSegment, PerDirection, Phase,
    QualityOfOutcome, Quantile, Vantage,
};

/// Share of the line's rate at which a router should send, so that the queue is the router's.
const SHAPED: f64 = 0.9;

/// The judgement of a measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Grade of the worst step; `None` if no step has one.
    pub grade: Option<Grade>,
    /// Name of the worst step.
    pub worst_step: Option<String>,
    pub steps: Vec<StepJudgement>,
    /// The uses for which numbers exist, each by the worst step.
    pub uses: Vec<UseJudgement>,
    /// The change that shortens the queue; `None` if no load adds 30 ms ([`ADVICE_FROM_MS`]).
    pub cure: Option<Cure>,
}

/// The sentences of a judgement, which `report` writes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sentences {
    /// The grade and what it means; `None` without a grade.
    pub opening: Option<String>,
    pub uses: Vec<String>,
    pub advice: Option<String>,
}

/// The judgement of one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepJudgement {
    pub step: String,
    /// Grade of the larger of both delays; `None` if the step is not valid or has no load.
    pub grade: Option<Grade>,
    /// The packets with the larger added delay.
    pub vantage: Option<Vantage>,
    /// The packets whose delay a user notices first: those beside the load, unless the grade inside it
    /// is worse.
    pub noticed: Option<Vantage>,
    /// Delay that the load adds to packets beside it.
    pub beside: Option<AddedDelay>,
    /// Delay that the load adds to its own packets.
    pub inside: Option<AddedDelay>,
    /// Whether the step loaded the line and has no grade because its numbers cannot be believed.
    pub void: bool,
    /// Whether the load filled the line; if not, a full line may be worse.
    pub line_full: bool,
    pub lost_percent: f64,
    /// Quality of Outcome of each application whose conditions were measured.
    pub qoo: Vec<QualityOfOutcome>,
}

/// A percentile under load minus the idle median.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AddedDelay {
    pub quantile: Quantile,
    /// `None` if the percentile falls on a lost packet.
    pub added_ms: Option<f64>,
    pub grade: Grade,
}

/// The change that shortens the queue of a line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cure {
    /// A shaper with queue management in front of the line.
    pub shape: Option<Shape>,
    /// Segments other than the access line that add the delay.
    pub segments: Vec<PathSegment>,
}

/// Rates to shape to, Mbit/s; `None` in a direction without delay or of unknown rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    pub mbit_s: PerDirection<Option<f64>>,
}

/// The measured numbers of a step on which a judgement depends.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadedStep {
    pub step: String,
    /// Whether the numbers can be believed.
    pub valid: bool,
    /// Whether the step has a phase under load.
    pub loaded: bool,
    pub idle_p50_ms: Option<f64>,
    /// Highest known percentile of all probes sent under load.
    pub beside: Option<HighPercentile>,
    /// Highest known percentile of the round trips of the loading connections.
    pub inside: Option<HighPercentile>,
    pub lost_percent: f64,
    pub mbit_s: PerDirection<Option<f64>>,
    /// Whether something other than the line limited the load.
    pub held_back: PerDirection<bool>,
    /// The segment that adds the delay, if it is known.
    #[serde(default)]
    pub segment: Option<PathSegment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HighPercentile {
    pub quantile: Quantile,
    /// `None` if the percentile falls on a lost packet.
    pub ms: Option<f64>,
}

impl From<&Finding> for LoadedStep {
    fn from(finding: &Finding) -> Self {
        let load = finding.headline(Phase::Load);
        let inside = finding.worst_inside().and_then(InsideReadings::highest_ms);
        let percentile = |(quantile, ms): (Quantile, f64)| HighPercentile {
            quantile,
            ms: ms.is_finite().then_some(ms),
        };
        Self {
            step: finding.step.clone(),
            valid: finding.valid,
            loaded: load.is_some(),
            idle_p50_ms: finding.headline(Phase::Idle).and_then(|idle| idle.p50_ms),
            beside: load.and_then(ClassLatency::judged_ms).map(percentile),
            inside: inside.map(percentile),
            lost_percent: load.map_or(0.0, |load| load.lost_percent),
            mbit_s: PerDirection::new(finding.goodput_up_mbit_s, finding.goodput_down_mbit_s),
            held_back: PerDirection::new(finding.is_held_back_up(), finding.is_held_back_down()),
            segment: finding.location.as_ref().and_then(|location| location.verdict),
        }
    }
}

impl LoadedStep {
    fn is_held_back(&self) -> bool {
        self.held_back.up || self.held_back.down
    }

    /// Returns the delay of the load at `high`, ms; infinite if it is lost, `None` if it is unknown or
    /// the step is not valid.
    fn high_ms(&self, high: Option<HighPercentile>) -> Option<f64> {
        high.filter(|_| self.valid).map(|high| high.ms.unwrap_or(f64::INFINITY))
    }

    fn added(&self, high: Option<HighPercentile>) -> Option<AddedDelay> {
        let quantile = high?.quantile;
        let added_ms = self.high_ms(high)? - self.idle_p50_ms?;
        let grade = Grade::of(added_ms);
        Some(AddedDelay { quantile, added_ms: added_ms.is_finite().then_some(added_ms), grade })
    }

    fn quality(&self) -> Vec<QualityOfOutcome> {
        let p99 = |high: Option<HighPercentile>| {
            let is_p99 = |high: &HighPercentile| high.quantile == Quantile::P99;
            high.filter(is_p99).map(|high| high.ms.unwrap_or(f64::INFINITY))
        };
        let rate = |direction| Some((self.mbit_s[direction]?, self.held_back[direction]));
        if self.beside.is_none() && self.inside.is_none() {
            return Vec::new();
        }
        application_scores(&StepConditions {
            beside_p99_ms: p99(self.beside),
            inside_p99_ms: p99(self.inside),
            loss_percent: self.lost_percent,
            mbit_s: [rate(Direction::Down), rate(Direction::Up)],
        })
    }

    /// Judges the step by itself.
    pub fn judge(&self) -> StepJudgement {
        let (beside, inside) = (self.added(self.beside), self.added(self.inside));
        let is_inside = match (&beside, &inside) {
            (Some(beside), Some(inside)) => inside.ms() > beside.ms(),
            (beside, _) => beside.is_none(),
        };
        let worst = if is_inside { inside } else { beside };
        let vantage = worst.map(|_| if is_inside { Vantage::Inside } else { Vantage::Beside });
        let is_beside_as_bad =
            beside.is_some() && beside.map(|it| it.grade) == worst.map(|it| it.grade);
        StepJudgement {
            step: self.step.clone(),
            grade: worst.map(|worst| worst.grade),
            vantage,
            noticed: if is_beside_as_bad { Some(Vantage::Beside) } else { vantage },
            beside,
            inside,
            void: !self.valid && self.loaded,
            line_full: !self.is_held_back(),
            lost_percent: self.lost_percent,
            qoo: self.quality(),
        }
    }
}

impl AddedDelay {
    /// Returns the added delay, ms; infinite if the percentile falls on a lost packet.
    pub fn ms(&self) -> f64 {
        self.added_ms.unwrap_or(f64::INFINITY)
    }
}

impl StepJudgement {
    /// Returns the larger of both added delays.
    pub fn worst(&self) -> Option<&AddedDelay> {
        match self.vantage? {
            Vantage::Beside => self.beside.as_ref(),
            Vantage::Inside => self.inside.as_ref(),
        }
    }

    /// Returns the larger added delay, ms: infinite if its percentile is lost, `None` if unknown.
    pub fn worst_ms(&self) -> Option<f64> {
        self.worst().map(AddedDelay::ms)
    }

    /// Returns the lowest Quality of Outcome of all applications, percent.
    pub fn lowest_qoo(&self) -> Option<f64> {
        self.qoo.iter().map(|it| it.score).reduce(f64::min)
    }
}

impl Judgement {
    /// Returns the step whose load adds most.
    pub fn worst(&self) -> Option<&StepJudgement> {
        worst_of(&self.steps)
    }
}

fn worst_of(steps: &[StepJudgement]) -> Option<&StepJudgement> {
    let graded = steps.iter().filter_map(|step| Some((step, step.worst_ms()?)));
    graded.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(step, _)| step)
}

/// Judges the steps of a measurement.
pub fn judge(steps: &[LoadedStep]) -> Judgement {
    let judged: Vec<StepJudgement> = steps.iter().map(LoadedStep::judge).collect();
    let worst = worst_of(&judged);
    Judgement {
        grade: worst.and_then(|step| step.grade),
        worst_step: worst.map(|step| step.step.clone()),
        uses: uses::judge(steps, &judged),
        cure: cure(steps, &judged),
        steps: judged,
    }
}

/// Judges the findings of a measurement.
pub fn judge_findings(findings: &[Finding]) -> Judgement {
    judge(&findings.iter().map(LoadedStep::from).collect::<Vec<_>>())
}

fn cure(steps: &[LoadedStep], judged: &[StepJudgement]) -> Option<Cure> {
    let is_bloated = |(_, judged): &(&LoadedStep, &StepJudgement)| {
        judged.worst_ms().is_some_and(|ms| ms >= ADVICE_FROM_MS)
    };
    let bloated: Vec<&LoadedStep> =
        steps.iter().zip(judged).filter(is_bloated).map(|(step, _)| step).collect();
    let elsewhere = |step: &LoadedStep| step.segment.filter(|it| *it != PathSegment::Access);
    let mut segments: Vec<PathSegment> = bloated.iter().filter_map(|it| elsewhere(it)).collect();
    segments.sort_unstable();
    segments.dedup();
    let here: Vec<&LoadedStep> = bloated.into_iter().filter(|it| elsewhere(it).is_none()).collect();
    // The rate of a line is unknown if the load did not fill it.
    let rate = |direction: Direction| {
        let known =
            |step: &&LoadedStep| step.mbit_s[direction].filter(|_| !step.held_back[direction]);
        here.iter().find_map(known).map(|rate| rate * SHAPED)
    };
    let shape = (!here.is_empty()).then(|| Shape { mbit_s: PerDirection::from_fn(rate) });
    (shape.is_some() || !segments.is_empty()).then_some(Cure { shape, segments })
}

#[cfg(test)]
mod tests;
