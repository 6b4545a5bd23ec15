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

use std::fmt;

use serde::{Deserialize, Serialize};

use super::evidence::Evidence;
use super::model::{Component, Model};

/// Kinds of queue that behave differently to their users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueKind {
    /// A buffer that loses what does not fit: tail drop, head drop, Buffer Control. On a link of
    /// constant rate also a bound on the age of packets (BoDe): the same queue in other units.
    DropTail,
    /// PIE, DOCSIS-PIE: a controller of the drop probability.
    PieLike,
    /// CoDel: drops while the shortest recent delay is above a target.
    CodelLike,
    /// RED: drops by the mean length.
    RedLike,
    /// A queue per flow, FQ-CoDel and its kin.
    FlowQueuing,
    /// Two queues with one capacity: DualPI2, Low Latency DOCSIS (RFC 9332).
    DualQueue,
}

/// Kinds of queue as far as a user has to act differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueFamily {
    /// See [`QueueKind::DropTail`].
    DropTail,
    /// An AQM on one queue for all: PIE-like, CoDel-like, RED-like.
    SingleQueueAqm,
    /// See [`QueueKind::FlowQueuing`].
    FlowQueuing,
    /// See [`QueueKind::DualQueue`].
    DualQueue,
}

impl QueueKind {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::DropTail,
        Self::PieLike,
        Self::CodelLike,
        Self::RedLike,
        Self::FlowQueuing,
        Self::DualQueue,
    ];

    /// The name in tables and in the model's file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DropTail => "drop-tail",
            Self::PieLike => "PIE-like",
            Self::CodelLike => "CoDel-like",
            Self::RedLike => "RED-like",
            Self::FlowQueuing => "flow queuing",
            Self::DualQueue => "dual queue",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The family that the kind belongs to.
    pub const fn family(self) -> QueueFamily {
        match self {
            Self::DropTail => QueueFamily::DropTail,
            Self::PieLike | Self::CodelLike | Self::RedLike => QueueFamily::SingleQueueAqm,
            Self::FlowQueuing => QueueFamily::FlowQueuing,
            Self::DualQueue => QueueFamily::DualQueue,
        }
    }
}

impl QueueFamily {
    /// Every family.
    pub const ALL: [Self; 4] =
        [Self::DropTail, Self::SingleQueueAqm, Self::FlowQueuing, Self::DualQueue];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DropTail => "drop-tail",
            Self::SingleQueueAqm => "single-queue AQM",
            Self::FlowQueuing => "flow queuing",
            Self::DualQueue => "dual queue",
        }
    }
}

impl fmt::Display for QueueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for QueueFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

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

/// Features per vector.
pub const FEATURES: usize = 18;

/// What the model sees, in order; `None` where it was not measured.
pub type FeatureVector = [Option<f64>; FEATURES];

/// The names of the features, for the model's file and for evidence.
pub const FEATURE_NAMES: [&str; FEATURES] = [
    "log round trip",
    "log rate",
    "log delay p50",
    "log delay p95 / p50",
    "log delay p5 / p50",
    "share at top",
    "log own flow / p50",
    "log p50 / DSCP 45",
    "log p50 / ECT(1)",
    "CE of ECT(0)",
    "CE of ECT(1)",
    "log swing period / round trip",
    "log loss share",
    "log overload delay / p99",
    "log overload spread",
    "log overload late / early",
    "overload lost",
    "overload lost more than its load",
];

/// What a delay must differ by to count, ms: half a packet at 10 Mbit/s, or a host's noise.
const NOISE_MS: f64 = 0.5;

/// The vector of a path's evidence.
pub fn features(evidence: &Evidence) -> FeatureVector {
    let Evidence { tcp, .. } = evidence;
    let ratio = |a: f64, b: f64| ((a + NOISE_MS) / (b + NOISE_MS)).log10();
    // Class separation may show under either load; the larger one is the evidence.
    let overload = evidence.overload;
    let separation = |under_tcp: Option<f64>, under_udp: Option<f64>| {
        let first = under_tcp.map(|class| ratio(tcp.p50_ms, class));
        let second = overload.zip(under_udp).map(|(udp, class)| ratio(udp.late_p50_ms, class));
        [first, second].into_iter().flatten().reduce(f64::max)
    };
    let swing = evidence.swing_period_ms.map(|period| (period / evidence.base_rtt_ms).log10());
    [
        Some(evidence.base_rtt_ms.max(0.1).log10()),
        Some(evidence.rate_bit_per_s.max(1.0).log10()),
        Some((tcp.p50_ms + NOISE_MS).log10()),
        Some(ratio(tcp.p95_ms, tcp.p50_ms)),
        Some(ratio(tcp.p5_ms, tcp.p50_ms)),
        Some(tcp.at_top),
        evidence.own_flow_ms.map(|own| ratio(own, tcp.p50_ms)),
        separation(evidence.nqb_ms, overload.and_then(|udp| udp.nqb_ms)),
        separation(evidence.ect1_ms, overload.and_then(|udp| udp.ect1_ms)),
        evidence.ce_of_ect0.map(f64::sqrt),
        evidence.ce_of_ect1.map(f64::sqrt),
        swing,
        evidence.loss_share.map(|share| (share + 1e-4).log10()),
        overload.map(|udp| ratio(udp.late_p50_ms, tcp.p99_ms)),
        overload.map(|udp| ratio(udp.late_p90_ms - udp.late_p10_ms, udp.late_p50_ms)),
        overload.map(|udp| ratio(udp.late_p50_ms, udp.early_ms)),
        overload.map(|udp| udp.lost),
        overload.and_then(|udp| Some(udp.lost - udp.load_lost?)),
    ]
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
