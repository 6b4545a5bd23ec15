//! The facts that a queue may know about its link.

use crate::rate::Rate;
use crate::time::Span;

/// Facts about a link, for defaults of queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFacts {
    /// The long-term rate; `None` if it varies or is unknown.
    pub rate: Option<Rate>,
    /// The rate during a burst, if it differs from `rate`.
    pub peak: Option<Rate>,
    /// Bytes that may pass at the peak rate.
    pub burst_bytes: Option<u64>,
    /// The time from a request to its grant, on links where packets wait for grants: up to a MAP
    /// interval until the request is sent, and the delay of the grant.
    pub request_loop: Option<Span>,
    /// Whether TCP acknowledgements without data wait in a separate queue of the link.
    pub acks_apart: bool,
}

impl LinkFacts {
    /// The facts of a link about which nothing is known.
    pub const UNKNOWN: Self =
        Self { rate: None, peak: None, burst_bytes: None, request_loop: None, acks_apart: false };

    /// Returns a link of that rate, without bursts.
    pub const fn of_rate(rate: Rate) -> Self {
        Self { rate: Some(rate), ..Self::UNKNOWN }
    }
}
