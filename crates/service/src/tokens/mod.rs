//! The operator's permissions to measure: signed tokens and leases, and the number of their uses.

mod leases;
mod token;
mod uses;

pub(crate) use leases::{LeaseDesk, LeaseHeld};
pub use leases::{LeaseTerms, Leases};
pub(crate) use token::TokenDesk;
pub use token::{TokenKeys, TokenTerms};
