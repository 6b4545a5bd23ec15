//! The secrets of a fleet, which all its orchestrators share through their store.

use ring::signature::Ed25519KeyPair;
use underload_fleet::orchestrator::{Orchestrator, Settings};
use underload_fleet::store::{Needs, Store, StoreError, Transaction};

use crate::random;

/// Authenticates sessions.
const FLEET_SECRET: &str = "fleet/secret";
/// The seed of the key that leases are signed with.
const LEASE_KEY: &str = "fleet/lease-key";

/// The rules with the secrets that the store has, and the one that authenticates sessions. Who
/// comes first makes them; the transaction sees to it that two who come at once agree.
pub fn rules(store: &mut dyn Store) -> Result<(Orchestrator, [u8; 32]), StoreError> {
    // Orchestrators that begin at once follow each other here.
    let mut tx = store.begin(&Needs { admits: true, ..Needs::default() })?;
    let secret = kept(&mut *tx, FLEET_SECRET)?;
    let seed = kept(&mut *tx, LEASE_KEY)?;
    tx.commit()?;
    let broken = |_| StoreError::broken(format!("{LEASE_KEY} is no key"));
    let key = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(broken)?;
    Ok((Orchestrator::new(Settings::default(), key, secret), secret))
}

fn kept(tx: &mut dyn Transaction, name: &str) -> Result<[u8; 32], StoreError> {
    if let Some(kept) = tx.setting(name)? {
        let broken = |_| StoreError::broken(format!("{name} is not of 32 bytes"));
        return kept.try_into().map_err(broken);
    }
    let made = random::bytes()?;
    tx.put_setting(name, &made)?;
    Ok(made)
}
