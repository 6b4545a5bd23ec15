//! Leases: capacity at this server that an orchestrator of many servers has reserved.
//!
//! A lease is a text. [`Leases`] parses it and returns its terms; this module does not know its
//! format. Each lease is used once, across restarts, and its session gets the rates in the lease,
//! whatever other clients of its network use.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use underload_probe::control::{Ask, ServiceError};

use super::uses::Uses;
use crate::admission::Admitted;

/// A parser of leases that needs no connection to their issuer.
pub trait Leases: Send + Sync {
    /// Returns the current terms of a lease, or why it allows nothing; `None` if `text` is not a
    /// lease.
    fn terms(&self, text: &str) -> Option<Result<LeaseTerms, String>>;

    fn begun(&self, id: u64);

    /// Called when the session of lease `id` has ended.
    fn ended(&self, id: u64);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// Unique; each lease is good once.
    pub id: u64,
    /// Rate towards the server, bit/s.
    pub up_bit_per_s: u64,
    /// Rate from the server, bit/s.
    pub down_bit_per_s: u64,
    /// Longest session from now on.
    pub lasts: Duration,
    /// The current time by the clock of the issuer, seconds since 1970.
    pub now: u64,
    /// When the lease was issued, seconds since 1970.
    pub issued: u64,
    /// When the lease expires, seconds since 1970.
    pub expires: u64,
}

pub(crate) struct LeaseDesk {
    source: Arc<dyn Leases>,
    uses: Uses,
}

/// The session of a lease; dropping it calls [`Leases::ended`].
pub(crate) struct LeaseHeld {
    source: Arc<dyn Leases>,
    id: u64,
}

pub(crate) struct Leased {
    pub admitted: Admitted,
    pub ask: Ask,
    id: u64,
}

impl LeaseDesk {
    /// Loads the uses stored in `state`. Returns a warning for the operator if the record is
    /// damaged.
    pub(crate) fn open(
        source: Arc<dyn Leases>,
        state: Option<&Path>,
        now: u64,
    ) -> Result<(Self, Option<String>), ServiceError> {
        let opened = state.map(|state| Uses::open(&state.join("leases"), now)).transpose()?;
        let (uses, warning) = opened.unwrap_or_default();
        Ok((Self { source, uses }, warning))
    }

    /// Returns what a lease allows; `None` if `text` is not a lease. Only [`LeaseDesk::note`]
    /// counts a use.
    pub(crate) fn check(&mut self, text: &str, ask: Ask) -> Option<Result<Leased, String>> {
        Some(self.source.terms(text)?.and_then(|terms| self.leased(terms, ask)))
    }

    fn leased(&mut self, terms: LeaseTerms, ask: Ask) -> Result<Leased, String> {
        let mut number = [0; 16];
        number[8..].copy_from_slice(&terms.id.to_be_bytes());
        let times = (terms.issued, terms.expires);
        if self.uses.refuse(number, times, 1, terms.now).is_some() {
            return Err("the lease was used already, or has expired".to_owned());
        }
        let lower = |asked: Option<u64>, leased: u64| asked.map_or(leased, |it| it.min(leased));
        let admitted = Admitted {
            id: number,
            rate_bit_per_s: None,
            expires: terms.expires,
            is_reserved: true,
        };
        let ask = Ask {
            up_bit_per_s: Some(lower(ask.up_bit_per_s, terms.up_bit_per_s)),
            down_bit_per_s: Some(lower(ask.down_bit_per_s, terms.down_bit_per_s)),
            duration: ask.duration.min(terms.lasts),
        };
        Ok(Leased { admitted, ask, id: terms.id })
    }

    /// Records a use on disk.
    ///
    /// # Errors
    /// Returns [`ServiceError::File`] if recording fails; the caller must then grant nothing.
    pub(crate) fn note(&mut self, leased: &Leased) -> Result<LeaseHeld, ServiceError> {
        self.uses.note(leased.admitted.id, leased.admitted.expires)?;
        self.source.begun(leased.id);
        Ok(LeaseHeld { source: Arc::clone(&self.source), id: leased.id })
    }
}

impl Drop for LeaseHeld {
    fn drop(&mut self) {
        self.source.ended(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One;

    impl Leases for One {
        fn terms(&self, text: &str) -> Option<Result<LeaseTerms, String>> {
            let id = text.strip_prefix("lease ")?.parse().map_err(|_| "no number".to_owned());
            Some(id.map(|id| LeaseTerms {
                id,
                up_bit_per_s: 5_000,
                down_bit_per_s: 100,
                lasts: Duration::from_secs(20),
                now: 1_000,
                issued: 990,
                expires: 1_020,
            }))
        }

        fn begun(&self, _: u64) {}

        fn ended(&self, _: u64) {}
    }

    fn ask(up: Option<u64>, seconds: u64) -> Ask {
        let duration = Duration::from_secs(seconds);
        Ask { up_bit_per_s: up, down_bit_per_s: None, duration }
    }

    #[test]
    fn a_lease_is_valid_once_even_over_restarts() {
        let directory = underload_disk::faults::private_tempdir().unwrap();
        let open = || {
            let (desk, warning) =
                LeaseDesk::open(Arc::new(One), Some(directory.path()), 1_000).unwrap();
            assert_eq!(warning, None);
            desk
        };
        let mut desk = open();
        assert!(desk.check("ul1.a.b", ask(None, 1)).is_none(), "a token");
        assert!(desk.check("lease x", ask(None, 1)).unwrap().is_err());
        let leased = desk.check("lease 7", ask(None, 1)).unwrap().unwrap();
        drop(desk.note(&leased).unwrap());
        assert!(desk.check("lease 7", ask(None, 1)).unwrap().is_err());
        drop(desk);
        let mut desk = open();
        assert!(desk.check("lease 7", ask(None, 1)).unwrap().is_err());
        assert!(desk.check("lease 8", ask(None, 1)).unwrap().is_ok());
    }

    #[test]
    fn a_session_gets_the_smaller_of_lease_and_request() {
        let (mut desk, _) = LeaseDesk::open(Arc::new(One), None, 1_000).unwrap();
        let mut asked = |ask| desk.check("lease 7", ask).unwrap().unwrap().ask;
        let all = Ask {
            up_bit_per_s: Some(5_000),
            down_bit_per_s: Some(100),
            duration: Duration::from_secs(20),
        };
        assert_eq!(asked(ask(None, 60)), all);
        assert_eq!(asked(ask(Some(u64::MAX), 20)), all);
        let less = Ask { up_bit_per_s: Some(7), duration: Duration::from_secs(3), ..all };
        assert_eq!(asked(ask(Some(7), 3)), less);
    }
}
