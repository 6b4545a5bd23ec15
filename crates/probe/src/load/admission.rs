//! Who may have a flow of a load server, and what a flow may move.
//!
//! The server asks; whoever runs it answers. A flow asks for every packet or chunk, so both traits
//! are bounds of generic types and never trait objects.

use std::net::IpAddr;
use std::time::Duration;

use underload_record::schema::Direction;

use super::protocol::Token;

/// Decides about flows.
pub trait Admission: Send + Sync + 'static {
    /// What an admitted flow is allowed to move.
    type Share: FlowShare;
    /// A flow's place among others, given back when it is dropped.
    type Place;

    /// Whether those who are admitted are strangers, who may not make this machine load a kernel
    /// module.
    const ADMITS_STRANGERS: bool;

    /// Admits a flow that shows `token` and comes from `address`.
    ///
    /// # Errors
    /// Why not, in words for the client.
    fn admit(
        &self,
        token: &Token,
        address: IpAddr,
    ) -> Result<(Self::Share, Self::Place), &'static str>;
}

/// What a flow may move: a rate and a volume in each direction, and an end.
pub trait FlowShare: Sync {
    /// True once nothing may be moved any more.
    fn is_over(&self) -> bool;

    /// Takes what is about to be sent or read, a packet or at most [`FlowShare::take_bytes`].
    ///
    /// # Errors
    /// Nothing was taken; how long to wait before asking again.
    fn take(&self, direction: Direction, bytes: u64) -> Result<(), Duration>;

    /// Gives back what was taken and neither sent nor read.
    fn give_back(&self, direction: Direction, bytes: u64);

    /// Counts what came and could not be held back.
    fn charge(&self, direction: Direction, bytes: u64);

    /// A good size for a take.
    fn take_bytes(&self, direction: Direction) -> usize;

    /// The rate now, bit/s; `u64::MAX` where there is no limit.
    fn bit_per_s(&self, direction: Direction) -> u64;

    /// Notes that the client wanted more than the rate.
    fn note_limited(&self, direction: Direction);

    /// Addresses beside that of the flow's TCP connection that were proved to be the client's.
    fn joined(&self) -> Vec<IpAddr>;
}

/// Admits whoever shows the token, or everybody where there is none, and limits nothing.
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

/// A share without a limit: the flow moves as much as the path takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unlimited;

impl FlowShare for Unlimited {
    fn is_over(&self) -> bool {
        false
    }

    fn take(&self, _: Direction, _: u64) -> Result<(), Duration> {
        Ok(())
    }

    fn give_back(&self, _: Direction, _: u64) {}

    fn charge(&self, _: Direction, _: u64) {}

    fn take_bytes(&self, _: Direction) -> usize {
        usize::MAX
    }

    fn bit_per_s(&self, _: Direction) -> u64 {
        u64::MAX
    }

    fn note_limited(&self, _: Direction) {}

    fn joined(&self) -> Vec<IpAddr> {
        Vec::new()
    }
}
