//! Leases: signed by an orchestrator, valid at one server, once, for a limited time.
//!
//! A lease is `ull1.CLAIMS.SIGNATURE`: claims in JSON and an Ed25519 signature over them, both in
//! base64url. The server verifies it without a request: it has the public key from its heartbeats,
//! its own name, and the time.

use data_encoding::BASE64URL_NOPAD;
use ring::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::device::DeviceId;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// Unique. A server remembers used leases by it.
    pub id: u64,
    pub device: DeviceId,
    pub server: String,
    /// Highest rate towards the server, bit/s.
    pub up_bit_per_s: u64,
    /// Highest rate from the server, bit/s.
    pub down_bit_per_s: u64,
    /// Earliest start of the run, milliseconds since 1970.
    pub not_before_ms: u64,
    /// Latest start of the run.
    pub not_after_ms: u64,
    /// Longest duration of the run.
    pub lasts_ms: u64,
    /// When the reservation ends.
    pub expires_ms: u64,
}

/// Why a lease is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    #[error("this is not a lease")]
    NotALease,
    #[error("the lease is not signed by an orchestrator of this server")]
    Signature,
    #[error("the lease is for another server")]
    Server,
    #[error("the lease does not begin yet")]
    Early,
    #[error("the lease is over")]
    Late,
}

const PREFIX: &str = "ull1";
/// Longest lease, in bytes.
pub const LEASE_MAX: usize = 2_048;
/// Largest difference between the clocks of orchestrator and server that is accepted.
pub const SKEW_MS: u64 = 5_000;

impl Claims {
    pub fn sign(&self, key: &Ed25519KeyPair) -> String {
        // Numbers and text always serialize.
        let json = serde_json::to_vec(self).unwrap_or_default();
        let signature = key.sign(&json);
        let [claims, signature] =
            [json.as_slice(), signature.as_ref()].map(|part| BASE64URL_NOPAD.encode(part));
        format!("{PREFIX}.{claims}.{signature}")
    }

    /// Verifies a lease that one of `keys` signed, for this server and time, and returns its
    /// claims.
    ///
    /// # Errors
    /// Returns why the lease is rejected.
    pub fn verify(
        text: &str,
        keys: &[[u8; 32]],
        server: &str,
        now_ms: u64,
    ) -> Result<Self, LeaseError> {
        let claims = Self::signed_by(text, keys)?;
        if claims.server != server {
            return Err(LeaseError::Server);
        }
        if now_ms.saturating_add(SKEW_MS) < claims.not_before_ms {
            return Err(LeaseError::Early);
        }
        let last = claims.not_after_ms.min(claims.expires_ms);
        if now_ms > last.saturating_add(SKEW_MS) {
            return Err(LeaseError::Late);
        }
        Ok(claims)
    }

    fn signed_by(text: &str, keys: &[[u8; 32]]) -> Result<Self, LeaseError> {
        if text.len() > LEASE_MAX {
            return Err(LeaseError::NotALease);
        }
        let mut parts = text.trim().split('.');
        let (Some(PREFIX), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(LeaseError::NotALease);
        };
        let read =
            |part: &str| BASE64URL_NOPAD.decode(part.as_bytes()).map_err(|_| LeaseError::NotALease);
        let (json, signature) = (read(claims)?, read(signature)?);
        let is_good = |key: &&[u8; 32]| {
            UnparsedPublicKey::new(&ED25519, &key[..]).verify(&json, &signature).is_ok()
        };
        // The claims are parsed only after their signature was verified.
        keys.iter().find(is_good).ok_or(LeaseError::Signature)?;
        serde_json::from_slice(&json).map_err(|_| LeaseError::NotALease)
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::KeyPair as _;

    use super::*;

    fn pair(seed: u8) -> (Ed25519KeyPair, [u8; 32]) {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("any seed is a key");
        let public = pair.public_key().as_ref().try_into().expect("32 bytes");
        (pair, public)
    }

    fn claims() -> Claims {
        Claims {
            id: 7,
            device: DeviceId([1; 16]),
            server: "east".to_owned(),
            up_bit_per_s: 35_000_000,
            down_bit_per_s: 0,
            not_before_ms: 100_000,
            not_after_ms: 160_000,
            lasts_ms: 21_000,
            expires_ms: 196_000,
        }
    }

    #[test]
    fn a_lease_is_valid_only_at_its_server_until_it_expires() {
        let (key, public) = pair(1);
        let lease = claims().sign(&key);
        let at = |server, now| Claims::verify(&lease, &[pair(2).1, public], server, now);
        assert_eq!(at("east", 100_000), Ok(claims()));
        assert_eq!(at("west", 100_000), Err(LeaseError::Server));
        assert_eq!(at("east", 94_999), Err(LeaseError::Early));
        assert_eq!(at("east", 165_000), Ok(claims()));
        assert_eq!(at("east", 165_001), Err(LeaseError::Late));
    }

    #[test]
    fn only_the_orchestrator_can_sign_a_lease() {
        let (key, public) = pair(1);
        let lease = claims().sign(&key);
        let other = Claims { up_bit_per_s: 1 << 40, ..claims() }.sign(&pair(2).0);
        assert_eq!(Claims::verify(&other, &[public], "east", 100_000), Err(LeaseError::Signature));
        let [old, new] = [&lease, &other].map(|text| text.split('.').collect::<Vec<_>>());
        let mixed = [old[0], new[1], old[2]].join(".");
        assert_eq!(Claims::verify(&mixed, &[public], "east", 100_000), Err(LeaseError::Signature));
        for none in ["", "ull1", "ull1..", "ull1.a.b.c", &"x".repeat(LEASE_MAX + 1)] {
            let found = Claims::verify(none, &[public], "east", 100_000);
            assert!(found.is_err(), "{none:?}");
        }
    }
}
