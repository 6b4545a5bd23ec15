//! Random bytes for secrets, from the operating system's generator.

use ring::rand::{SecureRandom as _, SystemRandom};
use underload_fleet::store::StoreError;

/// Returns `N` cryptographically secure random bytes.
///
/// # Errors
/// The machine has no randomness.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], StoreError> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    let none = |_| StoreError::temporary("no randomness");
    filled.map_err(none).map(|()| bytes)
}
