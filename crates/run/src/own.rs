//! Algorithms of one's own: queues and congestion controls that whoever runs a scenario brings
//! along, as a value of the run's [`Settings`](crate::Settings).
//!
//! A scenario names them by a SPEC that begins with `own:`, such as
//! `up_queue = "own:BoDe,bound_ns=20000000"`, and the text of that SPEC is what they are known by.
//! The record of such a run names them and does not hold them: its scenario alone does not repeat
//! it, so its trials are neither cached nor resumed, and sweeps refuse them. Virtual time alone
//! runs them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use underload_aqm::config::{ConfigError, Spec};
use underload_aqm::queue::own::Judge;
use underload_aqm::rng::Rng;
use underload_sim::trial::TrialLabel;

/// Makes what decides in one queue of one trial, which draws its random numbers from that stream.
pub type MakeQueue = dyn Fn(&TrialLabel, Rng) -> Box<dyn Judge> + Send + Sync;

/// Algorithms by their SPECs.
#[derive(Clone, Default)]
pub struct Own {
    queues: BTreeMap<String, Arc<MakeQueue>>,
}

impl Own {
    /// With a queue, too. One that is known by the same SPEC gives way.
    ///
    /// # Errors
    /// What is no SPEC.
    pub fn queue(mut self, spec: &str, make: Arc<MakeQueue>) -> Result<Self, ConfigError> {
        self.queues.insert(Spec::parse(spec)?.to_string(), make);
        Ok(self)
    }

    pub(crate) fn find_queue(&self, spec: &str) -> Option<&Arc<MakeQueue>> {
        self.queues.get(spec)
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.queues.keys()).finish()
    }
}
