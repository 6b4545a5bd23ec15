//! The caller's algorithms: queues and congestion controls that the caller of a run provides in
//! the settings of the run.
//!
//! A scenario names them by a SPEC that begins with `own:`, such as
//! `up_queue = "own:BoDe,bound_ns=20000000"`, and the text of the SPEC identifies them. The record
//! of such a run has their SPECs and not their code, so the scenario alone does not repeat the run:
//! its trials are not cached, it cannot be resumed, and sweeps reject it. Only the simulator runs
//! them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use underload_aqm::config::{ConfigError, Spec};
use underload_aqm::queue::own::Judge;
use underload_aqm::rng::Rng;
use underload_sim::congestion::{CongestionControl, Setup};
use underload_sim::tcp::EcnUse;
use underload_sim::trial::TrialLabel;

/// Creates the algorithm of one queue of one trial, which draws random numbers from that stream.
pub type MakeQueue = dyn Fn(&TrialLabel, Rng) -> Box<dyn Judge> + Send + Sync;

/// Creates the congestion control of one connection of one trial.
pub type MakeControl = dyn Fn(&TrialLabel, Setup) -> Box<dyn CongestionControl> + Send + Sync;

#[derive(Clone)]
pub(crate) struct Control {
    pub make: Arc<MakeControl>,
    /// The use of ECN that it requires; `None` for the scenario's.
    pub ecn: Option<EcnUse>,
}

/// Algorithms by their SPECs.
#[derive(Clone, Default)]
pub struct Own {
    pub(crate) queues: BTreeMap<String, Arc<MakeQueue>>,
    pub(crate) controls: BTreeMap<String, Control>,
}

impl Own {
    /// Adds a queue, in place of an earlier one with the same SPEC.
    pub fn queue(mut self, spec: &str, make: Arc<MakeQueue>) -> Result<Self, ConfigError> {
        self.queues.insert(Spec::parse(spec)?.to_string(), make);
        Ok(self)
    }

    /// Adds a congestion control, in place of an earlier one with the same name. `ecn` is the use
    /// of ECN that it requires.
    #[must_use]
    pub fn control(mut self, name: &str, make: Arc<MakeControl>, ecn: Option<EcnUse>) -> Self {
        self.controls.insert(name.to_owned(), Control { make, ecn });
        self
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.queues.keys().chain(self.controls.keys())).finish()
    }
}
