//! Which flows a load server admits, and how much a flow may transfer.
//!
//! The load server calls these traits; its operator implements them. [`FlowShare`] is called for
//! every packet or chunk, so both traits are bounds of generic types and never trait objects.

use std::net::IpAddr;
use std::time::Duration;

use underload_record::schema::Direction;

use super::protocol::Token;

pub trait Admission: Send + Sync + 'static {
    type Share: FlowShare;
    /// Reserves a flow's place among others; dropping it frees the place.
    type Place;

    /// Whether clients may be strangers, which must not make this machine load a kernel module.
    const ADMITS_STRANGERS: bool;

    /// Admits a flow with `token` from `ip`.
    ///
    /// # Errors
    /// Returns the reason of a refusal, in words for the client.
    fn admit(
        &self,
        token: &Token,
        address: IpAddr,
    ) -> Result<(Self::Share, Self::Place), &'static str>;
}

/// The rate and volume of a flow in each direction, and its end. The default methods limit nothing.
pub trait FlowShare: Sync {
    /// Returns true once the flow may transfer nothing more.
    fn is_over(&self) -> bool {
        false
    }

    /// Subtracts `bytes` from what the flow may transfer now. The caller does so before it sends or
    /// reads these bytes. `bytes` is the length of one packet, or up to [`FlowShare::take_bytes`].
    ///
    /// # Errors
    /// Returns how long to wait before the next attempt if the flow may not transfer all of `bytes`
    /// now; nothing is subtracted.
    fn take(&self, _: Direction, _bytes: u64) -> Result<(), Duration> {
        Ok(())
    }

    /// Adds back bytes that [`FlowShare::take`] subtracted and the caller did not transfer.
    fn give_back(&self, _: Direction, _bytes: u64) {}

    /// Subtracts bytes that have arrived already, even if the flow may transfer nothing now.
    fn charge(&self, _: Direction, _bytes: u64) {}

    /// Returns how many bytes to request from [`FlowShare::take`] at a time.
    fn take_bytes(&self, _: Direction) -> usize {
        usize::MAX
    }

    /// Returns the current rate, bit/s; `u64::MAX` without a limit.
    fn bit_per_s(&self, _: Direction) -> u64 {
        u64::MAX
    }

    /// Records that the client wanted more than the rate.
    fn note_limited(&self, _: Direction) {}

    /// Returns the client's proven addresses, except that of the flow's TCP connection.
    fn joined(&self) -> Vec<IpAddr> {
        Vec::new()
    }
}

/// Admits every flow that shows `token`, or every flow if `token` is `None`, without limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Everybody {
    pub token: Option<Token>,
}

impl Admission for Everybody {
    type Share = Unlimited;
    type Place = ();

    const ADMITS_STRANGERS: bool = false;

    fn admit(&self, token: &Token, _: IpAddr) -> Result<(Unlimited, ()), &'static str> {
        if self.token.is_some_and(|expected| expected != *token) {
            return Err("the token is wrong or missing");
        }
        Ok((Unlimited, ()))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Unlimited;

impl FlowShare for Unlimited {}
