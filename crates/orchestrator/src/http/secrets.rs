//! The secrets of a fleet, which all its orchestrators share through their store.

use ring::signature::Ed25519KeyPair;
use underload_fleet::orchestrator::{Orchestrator, Settings};
use underload_fleet::store::{Needs, Store, StoreError, Transaction};

use crate::random;

const FLEET_SECRET: &str = "fleet/secret";
/// The seed of the key that leases are signed with.
const LEASE_KEY: &str = "fleet/lease-key";

/// Returns the rules with the fleet's secrets, and the secret that authenticates sessions. The
/// first orchestrator creates the secrets.
pub fn rules(store: &mut dyn Store) -> Result<(Orchestrator, [u8; 32]), StoreError> {
    // An admission, so that orchestrators that start at once agree on the secrets.
    let mut tx = store.begin(&Needs { admits: true, ..Needs::default() })?;
    let secret = stored(&mut *tx, FLEET_SECRET)?;
    let seed = stored(&mut *tx, LEASE_KEY)?;
    tx.commit()?;
    let broken = |_| StoreError::broken(format!("{LEASE_KEY} is not a key"));
    let key = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(broken)?;
    Ok((Orchestrator::new(Settings::default(), key, secret), secret))
}

fn stored(tx: &mut dyn Transaction, name: &str) -> Result<[u8; 32], StoreError> {
    if let Some(stored) = tx.setting(name)? {
        let broken = |_| StoreError::broken(format!("{name} does not have 32 bytes"));
        return stored.try_into().map_err(broken);
    }
    let made = random::bytes()?;
    tx.put_setting(name, &made)?;
    Ok(made)
}
