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
use underload_sim::congestion::{CongestionControl, Setup};
use underload_sim::tcp::EcnUse;
use underload_sim::trial::TrialLabel;

/// Makes what decides in one queue of one trial, which draws its random numbers from that stream.
pub type MakeQueue = dyn Fn(&TrialLabel, Rng) -> Box<dyn Judge> + Send + Sync;

/// Makes the congestion control of one connection of one trial.
pub type MakeControl = dyn Fn(&TrialLabel, Setup) -> Box<dyn CongestionControl> + Send + Sync;

/// A congestion control, and the use of ECN that it cannot do without, if there is one.
#[derive(Clone)]
pub(crate) struct Control {
    pub make: Arc<MakeControl>,
    pub ecn: Option<EcnUse>,
}

/// Algorithms by their SPECs.
#[derive(Clone, Default)]
pub struct Own {
    queues: BTreeMap<String, Arc<MakeQueue>>,
    controls: BTreeMap<String, Control>,
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

    /// With a congestion control, too; `ecn`: the use of ECN that it cannot do without. One that is
    /// known by the same name gives way.
    #[must_use]
    pub fn control(mut self, name: &str, make: Arc<MakeControl>, ecn: Option<EcnUse>) -> Self {
        self.controls.insert(name.to_owned(), Control { make, ecn });
        self
    }

    pub(crate) fn find_control(&self, name: &str) -> Option<&Control> {
        self.controls.get(name)
    }

    pub(crate) fn find_queue(&self, spec: &str) -> Option<&Arc<MakeQueue>> {
        self.queues.get(spec)
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.queues.keys().chain(self.controls.keys())).finish()
    }
}
