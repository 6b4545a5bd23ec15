//! What a queue may know of the link that it stands in front of.

use crate::rate::Rate;
use crate::time::Span;

/// Facts about a link, for defaults of a queue that depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFacts {
    /// Rate in the long run.
    pub rate: Option<Rate>,
    /// Rate while a burst lasts, where it differs.
    pub peak: Option<Rate>,
    /// Bytes that may pass at the peak rate.
    pub burst_bytes: Option<u64>,
    /// From a request to its grant, where packets wait for grants: up to a MAP interval until it is
    /// carried, and the grant's own delay.
    pub request_loop: Option<Span>,
}

impl LinkFacts {
    /// Facts of a link about which nothing is known.
    pub const UNKNOWN: Self =
        Self { rate: None, peak: None, burst_bytes: None, request_loop: None };

    /// A link of that rate, without bursts.
    pub const fn of_rate(rate: Rate) -> Self {
        Self { rate: Some(rate), ..Self::UNKNOWN }
    }
}
