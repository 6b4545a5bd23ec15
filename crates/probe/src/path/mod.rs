//! Examines how a path treats packets: which markings survive, where they change, how DSCP 45 is
//! treated, and which kind of queue is at the bottleneck.
//!
//! | module | question | answer from |
//! |---|---|---|
//! | `marks` | which markings survive, per direction? | STAMP's Class of Service TLV |
//! | `policy` | which policy explains all changes together? | the fate of each marking |
//! | `hops` | which hop changes them? | headers that routers quote of expired packets |
//! | `examine` | what happens under load? | TCP, then UDP above the rate, with probes in four classes |
//! | `evidence` | what do the probes show? | a few numbers, from a line or a simulation |
//! | `classify`, `model` | which queue is it? | a likelihood learnt from simulated queues |
//! | `advice` | what should be changed? | all of the above |

mod advice;
mod classify;
mod evidence;
mod examine;
mod features;
mod hops;
mod kind;
mod marks;
mod model;
mod policy;

#[cfg(feature = "fuzzing")]
pub use hops::read_quotes;

pub use advice::advice;
pub use classify::{Answer, CERTAIN, Classification, DISTANCE_MAX, classify, classify_with};
pub use evidence::{
    CLASSES, Control, Delay, Evidence, OVERLOAD, OVERLOAD_PACKET_BYTES, Overload, Stage, UdpLoad,
};
pub use examine::{
    Examination, ExamineConfig, FLOWS, PRIORITY_SHARE, Part, Treatment, TreatmentVerdict, examine,
};
pub use features::{FEATURE_NAMES, FEATURES, FeatureVector, features};
pub use hops::{Change as HopChange, Hop, HopTrace, HopsError, TRACED_MAX, trace_hops};
pub use kind::{QueueFamily, QueueKind};
pub use marks::{Change, Fate, MARKINGS, MarkRow, MarkSurvey, MarksError, survey_marks};
pub use model::{Component, Model, ModelError};
pub use policy::{Policy, PolicyFinding, policies};
