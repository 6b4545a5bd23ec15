//! The judgement of a measured line, as data: a grade, the delay that the load adds, the uses that the
//! line suits, and a cure.
//!
//! [`judge`] is the only place that decides these. `run.json`, `findings.json`, the page for browsers
//! and every report take them from a [`Judgement`]; sentences are made of it and decide nothing.

mod grade;
mod limit;
mod uses;

use serde::{Deserialize, Serialize};

pub use grade::{ADVICE_FROM_MS, Band, Grade, SCALE, SHORT_MS};
pub use limit::{Limit, Limited};
pub use uses::{Stream, Suitability, Use, UseJudgement, suitability};

use crate::quality::{StepConditions, application_scores};
use crate::schema::{
    Direction, Distribution, Finding, Judged, LatencySummary, PathSegment, PerDirection, Phase,
    QualityOfOutcome, Quantile, Recovery, Vantage,
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
    /// What to change; `None` if no load adds 30 ms ([`ADVICE_FROM_MS`]) or loses more than 1 %.
    pub cure: Option<Cure>,
}

/// The sentences of a judgement, which `report` writes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sentences {
    /// The grade and what it means; `None` without a grade.
    pub opening: Option<String>,
    pub uses: Vec<String>,
    pub advice: Option<String>,
    /// The sentence on a load whose sender did not fill the line's buffer.
    pub sender: Option<String>,
}

/// The judgement of one step.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact that reports name")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepJudgement {
    pub step: String,
    /// The worse of the grades of the larger delay and of the lost packets; `None` if the step is not
    /// valid or has no load.
    pub grade: Option<Grade>,
    /// Whether lost packets, not their delay, decide the grade.
    pub by_loss: bool,
    /// The packets with the larger added delay.
    pub vantage: Option<Vantage>,
    /// The packets whose delay a user notices first: those beside the load, unless the grade inside it
    /// is worse.
    pub noticed: Option<Vantage>,
    pub idle_ns: Option<i64>,
    /// Delay that the load adds to packets beside it, of the answered ones if the percentile of all is
    /// lost.
    pub beside: Option<AddedDelay>,
    /// Delay that the load adds to its own packets.
    pub inside: Option<AddedDelay>,
    /// Whether the step loaded the line and has no grade because its numbers cannot be believed.
    pub void: bool,
    /// Whether the load filled the line; if not, a full line may be worse.
    pub line_full: bool,
    /// Whether the sender of the load did not fill the line's buffer: nothing was lost, and neither
    /// the probes nor the load itself waited. Another sender may fill it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub buffer_unfilled: bool,
    /// The directions that were loaded.
    pub loaded: PerDirection<bool>,
    pub lost_percent: f64,
    /// How long the delay outlasts the load; `None` if the first probe after the load is not late.
    #[serde(default)]
    pub recovery: Option<Recovery>,
    /// Quality of Outcome of each application whose conditions were measured.
    pub qoo: Vec<QualityOfOutcome>,
}

/// A percentile under load minus the idle median.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AddedDelay {
    pub quantile: Quantile,
    /// `None` if next to no packet came back.
    pub added_ns: Option<i64>,
    pub grade: Grade,
}

/// The change that helps a line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cure {
    /// A shaper with queue management in front of the line.
    pub shape: Option<Shape>,
    /// Segments other than the access line that add the delay.
    pub segments: Vec<PathSegment>,
    /// Lost packets, percent, if a short queue drops them: a shaper would drop as many.
    pub lost_percent: Option<f64>,
}

/// Rates to shape to, Mbit/s; `None` in a direction without delay or of unknown rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    pub mbit_s: PerDirection<Option<f64>>,
    /// Whether the line has a queue per flow already: only the load's own packets wait.
    pub per_flow: bool,
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
    pub idle_p50_ns: Option<i64>,
    /// Highest known percentile of all probes sent under load.
    pub beside: Option<HighPercentile>,
    /// Highest known percentile of the answered probes, which counts if that of all is lost.
    #[serde(default)]
    pub answered: Option<HighPercentile>,
    /// Highest known percentile of the round trips of the loading connections.
    pub inside: Option<HighPercentile>,
    pub lost_percent: f64,
    pub mbit_s: PerDirection<Option<f64>>,
    /// Whether something other than the line limited the load.
    pub held_back: PerDirection<bool>,
    /// The segment that adds the delay, if it is known.
    #[serde(default)]
    pub segment: Option<PathSegment>,
    #[serde(default)]
    pub recovery: Option<Recovery>,
    /// Whether the receiver saw that no segment of the load was lost; false if it is unknown.
    #[serde(default)]
    pub in_order: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HighPercentile {
    pub quantile: Quantile,
    /// `None` if the percentile falls on a lost packet.
    pub ns: Option<i64>,
}

impl From<&Finding> for LoadedStep {
    /// Takes the highest percentiles that the numbers of values support. The test of another tool has
    /// few values, so its median counts, too; without idle probes, its smallest round trip is idle.
    fn from(finding: &Finding) -> Self {
        let load = finding.headline(Phase::Load);
        let (foreign, has_few) = (finding.foreign.as_deref(), !finding.cannot_tell.is_empty());
        let is_enough = |count: u64| has_few && count >= Quantile::GRADED_MIN;
        let highest = |it: Distribution| {
            let median = is_enough(it.count).then_some((Quantile::P50, it.p50_ns));
            it.highest_above_median().or(median)
        };
        let median_of_sent = || {
            let load = load.filter(|load| is_enough(load.sent))?;
            Some((Quantile::P50, load.judged(Quantile::P50)?))
        };
        // The other readings of a foreign server are farther from packets.
        let readings = foreign.and_then(|it| it.loaded.first());
        let readings =
            |vantage| readings.filter(|it| it.vantage == vantage).map(|it| it.distribution);
        let own_inside = finding.worst_inside();
        let inside = match foreign {
            Some(_) => readings(Vantage::Inside),
            None => own_inside.map(|it| it.distribution),
        };
        let smallest_ns =
            foreign.map_or(own_inside.and_then(|it| it.smallest_ns), |it| it.smallest_ns);
        let smallest_ns = smallest_ns.filter(|_| has_few).and_then(|ns| i64::try_from(ns).ok());
        let answered = |(quantile, ns)| HighPercentile { quantile, ns: Some(ns) };
        let of_sent = |(quantile, judged): (Quantile, Judged)| HighPercentile {
            quantile,
            ns: judged.answered_ns(),
        };
        let idle = finding.headline(Phase::Idle).and_then(|idle| idle.distribution);
        Self {
            step: finding.step.clone(),
            valid: finding.valid,
            loaded: load.is_some() || foreign.is_some(),
            idle_p50_ns: idle.map(|idle| idle.p50_ns).or(smallest_ns),
            beside: load
                .and_then(LatencySummary::highest_judged)
                .or_else(median_of_sent)
                .map(of_sent)
                .or(readings(Vantage::Beside).and_then(highest).map(answered)),
            answered: load.and_then(|it| it.distribution).and_then(highest).map(answered),
            inside: inside.and_then(highest).map(answered),
            lost_percent: load.map_or(0.0, LatencySummary::lost_percent),
            mbit_s: PerDirection::new(finding.goodput_up_mbit_s, finding.goodput_down_mbit_s),
            held_back: PerDirection::new(finding.is_held_back_up(), finding.is_held_back_down()),
            segment: finding.location.as_ref().and_then(|location| location.verdict),
            recovery: finding.recovery,
            in_order: false,
        }
    }
}

impl LoadedStep {
    fn is_held_back(&self) -> bool {
        self.held_back.up || self.held_back.down
    }

    /// Returns the percentile; `None` if it is unknown or the step is not valid.
    fn believed(&self, high: Option<HighPercentile>) -> Option<HighPercentile> {
        high.filter(|_| self.valid)
    }

    /// Returns the percentile of the probes by which the delay beside the load is judged.
    fn answered_beside(&self) -> Option<HighPercentile> {
        let sent = self.beside?;
        if sent.ns.is_some() { Some(sent) } else { self.answered.or(Some(sent)) }
    }

    fn added(&self, high: Option<HighPercentile>) -> Option<AddedDelay> {
        let (HighPercentile { quantile, ns }, idle_ns) = (self.believed(high)?, self.idle_p50_ns?);
        let added_ns = ns.map(|ns| ns.saturating_sub(idle_ns));
        Some(AddedDelay { quantile, added_ns, grade: Band::of_delay(ms(added_ns)).grade })
    }

    fn quality(&self) -> Vec<QualityOfOutcome> {
        let p99 = |high: Option<HighPercentile>| {
            let is_p99 = |high: &HighPercentile| high.quantile == Quantile::P99;
            high.filter(is_p99).map(|high| ms(high.ns))
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
        let (beside, inside) = (self.added(self.answered_beside()), self.added(self.inside));
        let is_inside = match (&beside, &inside) {
            (Some(beside), Some(inside)) => inside.ms() > beside.ms(),
            (beside, _) => beside.is_none(),
        };
        let worst = if is_inside { inside } else { beside };
        let vantage = worst.map(|_| if is_inside { Vantage::Inside } else { Vantage::Beside });
        let is_beside_as_bad =
            beside.is_some() && beside.map(|it| it.grade) == worst.map(|it| it.grade);
        // The loss counts only if enough probes were sent for a percentile of their delay.
        let lost_percent = beside.map_or(0.0, |_| self.lost_percent);
        let by_loss = Band::of_loss(lost_percent).grade;
        // A loss-based sender waits or loses until the buffer is full.
        let waits = |it: AddedDelay| it.ms() >= ADVICE_FROM_MS;
        let waits_nowhere = [beside, inside].iter().all(|it| it.is_some_and(|it| !waits(it)));
        StepJudgement {
            step: self.step.clone(),
            grade: worst.map(|worst| worst.grade.max(by_loss)),
            by_loss: worst.is_some_and(|worst| by_loss > worst.grade),
            vantage,
            noticed: if is_beside_as_bad { Some(Vantage::Beside) } else { vantage },
            idle_ns: self.idle_p50_ns,
            beside,
            inside,
            void: !self.valid && self.loaded,
            line_full: !self.is_held_back(),
            buffer_unfilled: self.in_order
                && self.lost_percent <= 0.0
                && waits_nowhere
                && !self.is_held_back(),
            loaded: self.mbit_s.map(|rate| rate.is_some()),
            lost_percent: self.lost_percent,
            recovery: self.recovery,
            qoo: self.quality(),
        }
    }
}

/// Converts to ms; infinite for a lost packet.
fn ms(ns: Option<i64>) -> f64 {
    ns.map_or(f64::INFINITY, |ns| ns as f64 / 1e6)
}

impl AddedDelay {
    /// Returns the added delay, ms; infinite if the percentile falls on a lost packet.
    pub fn ms(&self) -> f64 {
        ms(self.added_ns)
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

    /// Returns whether the queue is short and drops what would make it longer.
    fn is_short_and_lossy(&self) -> bool {
        self.by_loss && self.worst_ms().is_some_and(|ms| ms < SHORT_MS)
    }

    /// Returns the lowest Quality of Outcome of all applications, percent.
    pub fn lowest_qoo(&self) -> Option<f64> {
        self.qoo.iter().map(|it| it.score).reduce(f64::min)
    }
}

impl Judgement {
    /// Returns the step with the worst grade, of several the one whose load adds most.
    pub fn worst(&self) -> Option<&StepJudgement> {
        worst_of(&self.steps)
    }
}

fn worst_of(steps: &[StepJudgement]) -> Option<&StepJudgement> {
    let graded = steps.iter().filter_map(|step| Some((step, step.grade?, step.worst_ms()?)));
    let worst = graded.max_by(|a, b| a.1.cmp(&b.1).then(a.2.total_cmp(&b.2)));
    worst.map(|(step, ..)| step)
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
    let lossy = judged.iter().filter(|it| it.is_short_and_lossy()).map(|it| it.lost_percent);
    let lost_percent = lossy.reduce(f64::max);
    let is_bloated = |(_, judged): &(&LoadedStep, &StepJudgement)| {
        let adds = judged.worst_ms().is_some_and(|ms| ms >= ADVICE_FROM_MS);
        adds && !judged.is_short_and_lossy()
    };
    let bloated: Vec<(&LoadedStep, &StepJudgement)> =
        steps.iter().zip(judged).filter(is_bloated).collect();
    let elsewhere = |step: &LoadedStep| step.segment.filter(|it| *it != PathSegment::Access);
    let mut segments: Vec<PathSegment> = bloated.iter().filter_map(|it| elsewhere(it.0)).collect();
    segments.sort_unstable();
    segments.dedup();
    let (here, judged): (Vec<&LoadedStep>, Vec<&StepJudgement>) =
        bloated.into_iter().filter(|it| elsewhere(it.0).is_none()).unzip();
    let waits_beside = |it: &&StepJudgement| it.beside.is_none_or(|it| it.ms() >= ADVICE_FROM_MS);
    let per_flow = !judged.iter().any(waits_beside);
    // The rate of a line is unknown if the load did not fill it.
    let rate = |direction: Direction| {
        let known =
            |step: &&LoadedStep| step.mbit_s[direction].filter(|_| !step.held_back[direction]);
        here.iter().find_map(known).map(|rate| rate * SHAPED)
    };
    let mbit_s = PerDirection::from_fn(rate);
    let shape = (!here.is_empty()).then_some(Shape { mbit_s, per_flow });
    let cure = Cure { shape, segments, lost_percent };
    (cure != Cure::default()).then_some(cure)
}

#[cfg(test)]
mod tests;
