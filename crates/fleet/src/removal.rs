//! Signed statements of an orchestrator that a device was removed.
//!
//! A removed agent stops for good, and measures again only after a visit on site. So an HTTP status
//! or TLS is not enough: the statement is signed with the key of the leases, which the device
//! received when it enrolled, and it names the enrolment that it ends.

use data_encoding::HEXLOWER;
use ring::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::device::DeviceId;

/// The enrolment that a removal ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    pub device: DeviceId,
    /// When the device enrolled, milliseconds since 1970; 0 for a server. A store that was restored
    /// from a backup may have an older enrolment of the same key.
    pub enrolled_ms: u64,
}

/// A removal, signed at an instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Removal {
    /// The device that was removed.
    pub device: DeviceId,
    /// When that device enrolled, milliseconds since 1970; 0 for a server.
    pub enrolled_ms: u64,
    /// When the statement was signed, milliseconds since 1970.
    pub at_ms: u64,
    /// Ed25519 with the key that signs leases, 128 hexadecimal digits.
    pub signature: String,
}

fn signed_text(removed: Removed, at_ms: u64) -> String {
    let Removed { device, enrolled_ms } = removed;
    format!("underload removal\n{device}\n{enrolled_ms}\n{at_ms}\n")
}

impl Removed {
    /// Signs that this enrolment ended, at `at_ms`.
    pub fn sign(self, key: &Ed25519KeyPair, at_ms: u64) -> Removal {
        let signature = HEXLOWER.encode(key.sign(signed_text(self, at_ms).as_bytes()).as_ref());
        Removal { device: self.device, enrolled_ms: self.enrolled_ms, at_ms, signature }
    }
}

impl Removal {
    /// Returns the enrolment that the statement ends.
    pub fn removed(&self) -> Removed {
        Removed { device: self.device, enrolled_ms: self.enrolled_ms }
    }

    /// Whether the owner of `public_key` signed the statement.
    pub fn is_signed_by(&self, public_key: &[u8; 32]) -> bool {
        let text = signed_text(self.removed(), self.at_ms);
        let signature = HEXLOWER.decode(self.signature.as_bytes());
        let key = UnparsedPublicKey::new(&ED25519, &public_key[..]);
        signature.is_ok_and(|signature| key.verify(text.as_bytes(), &signature).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::KeyPair as _;

    use super::*;

    #[test]
    fn a_removal_is_bound_to_device_enrolment_time_and_key() {
        let pair = |seed| Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("a key");
        let public = |pair: &Ed25519KeyPair| pair.public_key().as_ref().try_into().expect("32");
        let key = pair(1);
        let removal = Removed { device: DeviceId([1; 16]), enrolled_ms: 5 }.sign(&key, 7);
        assert!(removal.is_signed_by(&public(&key)));
        assert!(!removal.is_signed_by(&public(&pair(2))));
        for other in [
            Removal { device: DeviceId([2; 16]), ..removal.clone() },
            Removal { enrolled_ms: 6, ..removal.clone() },
            Removal { at_ms: 8, ..removal.clone() },
            Removal { signature: String::new(), ..removal.clone() },
            Removal { signature: "x".repeat(128), ..removal.clone() },
        ] {
            assert!(!other.is_signed_by(&public(&key)), "{other:?}");
        }
    }
}
