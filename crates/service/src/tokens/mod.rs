//! Who may measure by a word of the operator: signed tokens and leases, and how often each was
//! used.

mod leases;
mod token;
mod uses;

pub(crate) use leases::{LeaseDesk, LeaseHeld, Leased};
pub use leases::{LeaseTerms, Leases};
pub(crate) use token::TokenDesk;
pub use token::{TokenKeys, TokenTerms};
