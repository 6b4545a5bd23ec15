//! Operators, and secrets for their tokens.

use underload_fleet::store::Result;
pub use underload_fleet::token::*;

/// Returns the random secret of a new token.
///
/// # Errors
/// Returns [`StoreError::Temporary`](underload_fleet::store::StoreError::Temporary) if the system
/// has no randomness.
pub fn new_secret() -> Result<[u8; 32]> {
    crate::random::bytes()
}
