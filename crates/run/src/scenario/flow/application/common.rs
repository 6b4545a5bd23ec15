//! Code shared by the applications: the trait of their keys, and their congestion control.

use underload_sim::application::ApplicationConfig;
use underload_sim::congestion::Algorithm;

use crate::keys::{Fault, Section};

/// The keys of one application, and what they mean.
pub(in crate::scenario::flow) trait Application: Section {
    const NAME: &str;

    /// The codepoint that its own keys ask for, beside the key `dscp`.
    fn own_dscp(&self) -> Option<u8> {
        None
    }

    /// Whether an application that goes one way goes the other way, too.
    fn goes_both_ways(&self) -> bool {
        false
    }

    fn config(self) -> Result<ApplicationConfig, Fault>;
}

/// The congestion control of a connection; CUBIC where none is named.
pub(super) fn algorithm(name: Option<&str>) -> Result<Algorithm, Fault> {
    let name = name.unwrap_or(Algorithm::Cubic.name());
    Algorithm::from_name(name).ok_or_else(|| {
        let known = Algorithm::names();
        Fault::new("congestion_control", format!("`{name}` is not simulated; expected {known}"))
    })
}
