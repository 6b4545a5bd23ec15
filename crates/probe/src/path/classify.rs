//! Which kind of queue stands at the bottleneck, by likelihood.
//!
//! [`features`] turns [`Evidence`] into a vector of logarithms and shares. The model has one
//! component per discipline and kind of congestion control, learnt from the simulator: the mean of
//! its vectors and their covariance. A component's likelihood is a Student t density rather than a
//! normal one: a real line never looks exactly like a simulated one, and the odds between two
//! components must not explode with the distance from both. A feature that was not measured is left
//! out of the density (its marginal is the same with that row and column removed). All kinds have
//! the same prior, and within a kind all its disciplines.
//!
//! The answer is "cannot tell" if no kind has [`CERTAIN`] of the posterior, or if the evidence is
//! further from every component than [`DISTANCE_MAX`]: a likelihood only ranks what it knows.

use serde::Serialize;

use super::evidence::Evidence;
use super::features::features;
use super::kind::{QueueFamily, QueueKind};
use super::model::{Component, Model};

/// The least posterior of a family that is called an answer.
pub const CERTAIN: f64 = 0.9;
/// Squared Mahalanobis distance per feature to the nearest component, above which the evidence is
/// like nothing that the model knows.
pub const DISTANCE_MAX: f64 = 12.0;

/// What the evidence says of the kind of queue.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Classification {
    /// The answer, or why there is none.
    pub answer: Answer,
    /// Posterior probability of each kind; they add up to 1.
    pub posterior: Vec<(QueueKind, f64)>,
    /// The discipline of the model that the evidence is nearest to, for example `codel`.
    pub nearest: String,
    /// Squared Mahalanobis distance per feature to that one; about 1 for a typical case.
    pub distance: f64,
}

/// A family, or none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// The queue is of this family.
    Known {
        /// The family found.
        family: QueueFamily,
        /// Posterior probability of the family.
        probability: f64,
        /// Which AQM it looks like, if one has at least [`CERTAIN`] of the family's probability.
        like: Option<QueueKind>,
    },
    /// Cannot tell: two families are about as likely.
    Ambiguous {
        /// The likeliest one.
        family: QueueFamily,
        /// Posterior probability of the likeliest family.
        probability: f64,
    },
    /// Cannot tell: like nothing that the model knows.
    Unlike,
    /// Cannot tell: nothing waited and nothing was lost.
    NotABottleneck,
}

impl Answer {
    /// The family, if there is an answer.
    pub fn family(&self) -> Option<QueueFamily> {
        match self {
            Self::Known { family, .. } => Some(*family),
            _ => None,
        }
    }
}

impl Classification {
    /// Posterior probability of a family.
    pub fn probability(&self, family: QueueFamily) -> f64 {
        let of_family = self.posterior.iter().filter(|(kind, _)| kind.family() == family);
        of_family.map(|(_, probability)| probability).sum()
    }
}

/// Judges the evidence by the model that comes with this program.
pub fn classify(evidence: &Evidence) -> Classification {
    classify_with(Model::built_in(), evidence)
}

/// Judges the evidence by another model.
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
    let posterior = posterior(&judged);
    let nearest = judged.first();
    let mut classification = Classification {
        answer: Answer::Unlike,
        posterior,
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

/// Kinds with equal priors; the likelihood of a kind is the mean over its disciplines.
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
    let of = |family| (family, classification.probability(family));
    let families = QueueFamily::ALL.map(of);
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
        .filter(|(_, of_kind)| *of_kind >= CERTAIN * probability)
        .map(|(kind, _)| *kind)
        .next();
    Answer::Known { family, probability, like }
}
