//! The kind of queue at the bottleneck, by likelihood.
//!
//! [`features`] turns [`Evidence`] into a vector of logarithms and shares. The model has one
//! component per discipline and kind of congestion control, learnt from the simulator: the mean and
//! the covariance of its vectors. A component's likelihood is a Student t density and not a normal
//! one: no real line looks exactly like a simulated one, and the odds between two components must
//! not explode with the distance from both. A feature that was not measured is left out of the
//! density (its row and column are removed). All kinds have the same prior, and within a kind all
//! disciplines.
//!
//! The answer is "cannot tell" if no kind has [`CERTAIN`] of the posterior, or if the evidence is
//! further from every component than [`DISTANCE_MAX`]: a likelihood only ranks known kinds.

use serde::Serialize;

use super::evidence::Evidence;
use super::features::features;
use super::kind::{QueueFamily, QueueKind};
use super::model::{Component, Model};

/// Smallest posterior of a family that counts as an answer.
pub const CERTAIN: f64 = 0.9;
/// Squared Mahalanobis distance per feature to the nearest component, above which the evidence
/// resembles no component.
pub const DISTANCE_MAX: f64 = 12.0;

/// The queue at the bottleneck, by the evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Classification {
    pub answer: Answer,
    /// Posterior probability of each kind. The sum is 1.
    pub posterior: Vec<(QueueKind, f64)>,
    /// The model's discipline nearest to the evidence, for example `codel`.
    pub nearest: String,
    /// Squared Mahalanobis distance per feature to `nearest`; about 1 for a typical case.
    pub distance: f64,
}

/// The family of the queue, or why it is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    Known {
        family: QueueFamily,
        probability: f64,
        /// The AQM, if one kind has at least [`CERTAIN`] of the family's probability.
        like: Option<QueueKind>,
    },
    /// No family is likely enough; `family` is the likeliest.
    Ambiguous { family: QueueFamily, probability: f64 },
    /// The evidence resembles no component of the model.
    Unlike,
    /// No packet waited or was lost.
    NotABottleneck,
}

impl Answer {
    /// Returns the family; `None` without an answer.
    pub fn family(&self) -> Option<QueueFamily> {
        match self {
            Self::Known { family, .. } => Some(*family),
            _ => None,
        }
    }
}

impl Classification {
    pub fn probability(&self, family: QueueFamily) -> f64 {
        let members = self.posterior.iter().filter(|(kind, _)| kind.family() == family);
        members.map(|(_, probability)| probability).sum()
    }
}

/// Classifies the evidence by the built-in model.
pub fn classify(evidence: &Evidence) -> Classification {
    classify_with(Model::built_in(), evidence)
}

pub fn classify_with(model: &Model, evidence: &Evidence) -> Classification {
    let vector = features(evidence);
    let control = evidence.control;
    let mut judged: Vec<Judged<'_>> = model
        .components_for(control)
        .map(|component| {
            let (log_likelihood, distance) = component.log_likelihood(&vector);
            Judged { component, log_likelihood, distance }
        })
        .collect();
    judged.sort_by(|a, b| b.log_likelihood.total_cmp(&a.log_likelihood));
    let nearest = judged.first();
    let mut classification = Classification {
        answer: Answer::Unlike,
        posterior: posterior(&judged),
        nearest: nearest.map_or_else(String::new, |judged| judged.component.name.clone()),
        distance: nearest.map_or(f64::INFINITY, |judged| judged.distance),
    };
    classification.answer = answer(&classification, evidence);
    classification
}

struct Judged<'a> {
    component: &'a Component,
    log_likelihood: f64,
    distance: f64,
}

/// Returns the posterior of each kind. All kinds have equal priors; the likelihood of a kind is the
/// sum over its disciplines, divided by the number of disciplines of its family.
fn posterior(judged: &[Judged<'_>]) -> Vec<(QueueKind, f64)> {
    let best = judged.first().map_or(0.0, |judged| judged.log_likelihood);
    let families = QueueFamily::ALL.map(|family| {
        judged.iter().filter(|judged| judged.component.kind.family() == family).count()
    });
    let weights = QueueKind::ALL.map(|kind| {
        let of_kind = judged.iter().filter(|judged| judged.component.kind == kind);
        let sum: f64 = of_kind.map(|judged| (judged.log_likelihood - best).exp()).sum();
        let family = QueueFamily::ALL.iter().position(|family| *family == kind.family());
        let disciplines = family.and_then(|index| families.get(index)).copied().unwrap_or(1);
        sum / disciplines.max(1) as f64
    });
    let total: f64 = weights.iter().sum();
    QueueKind::ALL.into_iter().zip(weights.map(|weight| weight / total.max(1e-300))).collect()
}

fn answer(classification: &Classification, evidence: &Evidence) -> Answer {
    if !evidence.shows_a_queue() {
        return Answer::NotABottleneck;
    }
    let families = QueueFamily::ALL.map(|family| (family, classification.probability(family)));
    let Some((family, probability)) = families.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))
    else {
        return Answer::Unlike;
    };
    if classification.distance > DISTANCE_MAX {
        return Answer::Unlike;
    }
    if probability < CERTAIN {
        return Answer::Ambiguous { family, probability };
    }
    let members = classification.posterior.iter().filter(|(kind, _)| kind.family() == family);
    let like = members
        .filter(|(_, probability_of_kind)| *probability_of_kind >= CERTAIN * probability)
        .map(|(kind, _)| *kind)
        .next();
    Answer::Known { family, probability, like }
}
