//! A fingerprint of a server's public key.

use std::fmt;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

/// SHA-256 of a public key as its certificate has it (`SubjectPublicKeyInfo`, RFC 5280 section
/// 4.1). A certificate that is renewed with the same key has the same fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub(super) [u8; 32]);

impl Fingerprint {
    /// Hashes the DER encoding of a key or a certificate.
    pub(super) fn digest(bytes: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest.as_ref());
        Self(fingerprint)
    }

    /// Parses `sha256:` and 64 hexadecimal digits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        text.strip_prefix("sha256:").and_then(from_hex).map(Self)
    }
}

/// Writes `sha256:` and 64 hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", HEXLOWER.encode(&self.0))
    }
}

/// Parses exactly `N` bytes of hexadecimal digits, in upper or lower case.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?.try_into().ok()
}
