//! Limits attempts to log in.

use std::net::IpAddr;

use underload_probe::network::CustomerNetwork;

use super::problem::{Problem, Result};
use crate::http::Frequency;

/// Maximum number of attempts with one form per minute.
const ATTEMPTS_PER_FORM: u32 = 10;
/// Maximum number of attempts from one network per minute. It bounds the work of the store, as for
/// other requests without a session; tokens are too long to be guessed.
const ATTEMPTS_PER_NETWORK: u32 = 600;

/// Attempts by form, and by network.
pub(super) struct Attempts(Frequency, Frequency);

impl Default for Attempts {
    fn default() -> Self {
        Self(Frequency::new(ATTEMPTS_PER_FORM), Frequency::new(ATTEMPTS_PER_NETWORK))
    }
}

impl Attempts {
    /// Counts an attempt with an authentic form.
    pub(super) fn admit(&self, form: &str, from: Option<IpAddr>, now_ms: u64) -> Result<()> {
        let (Self(of_form, of_network), network) = (self, from.map(CustomerNetwork::of_host));
        let admitted = of_form.admit(form, now_ms);
        let admitted = admitted.and_then(|()| of_network.admit(network, now_ms));
        admitted
            .map_err(|wait_s| Problem::Busy("Too many attempts to log in: wait a minute.", wait_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_limited_by_form_and_network_and_not_by_others() {
        let attempts = Attempts::default();
        let from = |last: u32| Some(IpAddr::V4((0x0a00_0000 + last).into()));
        let now = 120_000;
        (0..ATTEMPTS_PER_FORM).for_each(|_| assert!(attempts.admit("a", from(1), now).is_ok()));
        let refused = attempts.admit("a", from(1), now + 1_000);
        assert!(matches!(refused, Err(Problem::Busy(_, 59))));
        assert!(attempts.admit("b", from(1), now).is_ok(), "another form of the address");
        assert!(attempts.admit("a", from(1), 180_000).is_ok(), "another minute");
        let mut guesses = 0..;
        let is_refused =
            |number: u32| attempts.admit(&number.to_string(), from(1), 180_000).is_err();
        assert_eq!(guesses.find(|number| is_refused(*number)), Some(ATTEMPTS_PER_NETWORK - 1));
        let others = (0..100_000).filter(|last| {
            attempts.admit(&format!("form {last}"), from(10 + last), 180_000).is_err()
        });
        assert_eq!(others.count(), 0, "each tried once");
    }
}
