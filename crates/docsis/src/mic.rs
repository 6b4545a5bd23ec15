//! Message integrity checks: the CM MIC, the CMTS MIC and the extended CMTS MIC.
//!
//! - The **CM MIC** (type 6) is a plain MD5 over all settings but the MICs, in file order.
//! - The **CMTS MIC** (type 7) is an HMAC-MD5 over a fixed list of types, in the list's order. It
//!   does not cover the types that the specification added later: aggregate service flows (70, 71),
//!   the default target buffer (68), the AQM and low latency switches (76, 91).
//! - The **extended CMTS MIC** (43.6) names the types that it covers in a bitmap, and covers them
//!   in file order. Without an explicit digest (43.6.3) the value of type 7 is the extended
//!   digest. With one, 43.6.3 is the extended digest (zero while it is computed) and type 7 is the
//!   CMTS MIC.
//!
//! Types 20 and 59 (the modem's address, IPv4 or IPv6) share one place in the CMTS MIC's list.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use thiserror::Error;

use crate::code::extended_mic::{BITMAP, DIGEST_TYPE, EXPLICIT_DIGEST};
use crate::code::extension::EXTENDED_MIC;
use crate::code::top::{self, CM_MIC, CMTS_MIC, EXTENSION};
use crate::encode::{EncodeError, standard_pads, tlv_bytes};
use crate::schema::{GENERAL_VENDOR, VENDOR_ID};
use crate::tlv::{Config, Ending, Item, Tlv, Value};

const DIGEST_BYTES: usize = 16;

pub type Mic = [u8; DIGEST_BYTES];

/// The types that the CMTS MIC covers, in its order.
pub const CMTS_MIC_ORDER: [u8; 22] = [
    top::DOWNSTREAM_FREQUENCY,
    top::UPSTREAM_CHANNEL_ID,
    top::NETWORK_ACCESS_CONTROL,
    top::CLASS_OF_SERVICE,
    top::BASELINE_PRIVACY,
    top::EXTENSION,
    top::CM_MIC,
    top::MAXIMUM_CPES,
    top::TFTP_TIMESTAMP,
    top::TFTP_MODEM_IPV4,
    top::TFTP_MODEM_IPV6,
    top::UPSTREAM_CLASSIFIER,
    top::DOWNSTREAM_CLASSIFIER,
    top::UPSTREAM_FLOW,
    top::DOWNSTREAM_FLOW,
    top::MAXIMUM_CLASSIFIERS,
    top::PRIVACY_ENABLE,
    top::HEADER_SUPPRESSION,
    top::SUBSCRIBER_CONTROL,
    top::SUBSCRIBER_IPV4_LIST,
    top::SUBSCRIBER_FILTER_GROUPS,
    top::TEST_MODES,
];

/// The digest type (43.6.1) of HMAC-MD5.
const HMAC_MD5: u8 = 1;

/// The secret that the operator's files and CMTS share. Debug output does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Strips trailing line ends, which a file or an environment variable may have.
    pub fn new(bytes: &[u8]) -> Self {
        let end = bytes.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n'));
        Self(bytes[..end.map_or(0, |end| end + 1)].to_vec())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn digest(&self, message: &[u8]) -> Mic {
        // HMAC accepts a key of any length; the error cannot happen.
        let Ok(mut mac) = Hmac::<Md5>::new_from_slice(&self.0) else { return [0; DIGEST_BYTES] };
        mac.update(message);
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Why a message integrity check cannot be computed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MicError {
    #[error(transparent)]
    Encode(#[from] EncodeError),
    #[error("43.6.1 is digest type {0}; only type 1 (HMAC-MD5) is supported")]
    DigestType(u64),
    #[error("43.6 needs both 43.6.1 (digest type) and 43.6.2 (bitmap)")]
    Incomplete,
    #[error(
        "43.6.2 covers type 6, and the CM MIC covers the explicit digest 43.6.3: neither can be \
         computed first; clear bit 6 or delete 43.6.3"
    )]
    Circular,
}

/// The extended CMTS MIC's settings in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extended {
    /// Type of the digest; 1 is HMAC-MD5.
    pub digest_type: u64,
    pub bitmap: Vec<u8>,
    pub explicit: Option<Vec<u8>>,
}

impl Extended {
    /// Reads the first 43.6 of a file in a field of the specification. In a vendor's field the type
    /// means something else.
    pub fn from_config(config: &Config) -> Result<Option<Self>, MicError> {
        let mut own = config.settings_of_type(EXTENSION).filter(|tlv| is_general(tlv));
        let Some(tlv) = own.find_map(|tlv| tlv.child(EXTENDED_MIC)) else { return Ok(None) };
        let digest_type = tlv.number(DIGEST_TYPE).ok_or(MicError::Incomplete)?;
        let bitmap = tlv.child(BITMAP).and_then(Tlv::as_bytes).ok_or(MicError::Incomplete)?;
        let explicit = tlv.child(EXPLICIT_DIGEST).and_then(Tlv::as_bytes).map(<[u8]>::to_vec);
        Ok(Some(Self { digest_type, bitmap: bitmap.to_vec(), explicit }))
    }

    pub fn covers(&self, code: u8) -> bool {
        let byte = self.bitmap.get(usize::from(code / 8)).copied().unwrap_or(0);
        byte & (0x80 >> (code % 8)) != 0
    }

    /// Returns the extension field (type 43) that makes the extended MIC cover these types.
    pub fn covering(codes: impl IntoIterator<Item = u8>) -> Tlv {
        let extended = Tlv::nested(
            EXTENDED_MIC,
            [Tlv::u8(DIGEST_TYPE, HMAC_MD5), Tlv::bytes(BITMAP, bitmap(codes))],
        );
        Tlv::nested(EXTENSION, [Tlv::bytes(VENDOR_ID, GENERAL_VENDOR), extended])
    }
}

/// Returns the bitmap of these types. Bit n, counted from the left, is type n.
pub(crate) fn bitmap(codes: impl IntoIterator<Item = u8>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for code in codes {
        let at = usize::from(code / 8);
        if bytes.len() <= at {
            bytes.resize(at + 1, 0);
        }
        bytes[at] |= 0x80 >> (code % 8);
    }
    bytes
}

impl Config {
    /// Computes the CM MIC.
    pub fn cm_mic(&self) -> Result<Mic, MicError> {
        let mut hash = Md5::new();
        for tlv in self.tlvs().filter(|tlv| !matches!(tlv.code, CM_MIC | CMTS_MIC)) {
            hash.update(tlv_bytes(tlv)?);
        }
        Ok(hash.finalize().into())
    }

    /// Whether the file's CM MIC is correct. `None` if the file has no CM MIC.
    pub fn has_correct_cm_mic(&self) -> Option<bool> {
        let stored = self.settings_of_type(CM_MIC).next()?.as_bytes()?;
        Some(self.cm_mic().is_ok_and(|mic| stored == mic))
    }

    /// Whether the file has a CMTS MIC, correct or not.
    pub fn has_cmts_mic(&self) -> bool {
        self.has(CMTS_MIC)
    }

    /// Computes type 7 from the settings and the file's CM MIC.
    pub fn cmts_mic(&self, secret: &Secret) -> Result<Mic, MicError> {
        match Extended::from_config(self)? {
            Some(extended) if extended.explicit.is_none() => self.extended_mic(&extended, secret),
            _ => self.classic_cmts_mic(secret),
        }
    }

    fn classic_cmts_mic(&self, secret: &Secret) -> Result<Mic, MicError> {
        let mut message = Vec::new();
        for code in CMTS_MIC_ORDER {
            for tlv in self.settings_of_type(code) {
                message.extend(tlv_bytes(tlv)?);
            }
        }
        Ok(secret.digest(&message))
    }

    /// Computes the extended digest over the types that the bitmap covers, in file order, with
    /// zeros for an explicit digest.
    pub fn extended_mic(&self, extended: &Extended, secret: &Secret) -> Result<Mic, MicError> {
        if extended.digest_type != u64::from(HMAC_MD5) {
            return Err(MicError::DigestType(extended.digest_type));
        }
        let mut message = Vec::new();
        for tlv in self.tlvs().filter(|tlv| tlv.code != CMTS_MIC && extended.covers(tlv.code)) {
            let mut tlv = tlv.clone();
            set_explicit(&mut tlv, |digest| digest.fill(0));
            message.extend(tlv_bytes(&tlv)?);
        }
        Ok(secret.digest(&message))
    }

    /// Makes the file ready for a modem: recomputes the MICs and moves them to the end (the CMTS
    /// MIC only with a secret), adds the end marker and pads to a multiple of four.
    pub fn seal(&mut self, secret: Option<&Secret>) -> Result<(), MicError> {
        self.items.retain(|item| match item {
            Item::Tlv(tlv) => !matches!(tlv.code, CM_MIC | CMTS_MIC),
            Item::Pad => true,
        });
        if let (Some(extended), Some(secret)) = (Extended::from_config(self)?, secret) {
            self.fill_explicit(&extended, secret)?;
        }
        self.items.push(Item::Tlv(Tlv::bytes(CM_MIC, self.cm_mic()?)));
        if let Some(secret) = secret {
            self.items.push(Item::Tlv(Tlv::bytes(CMTS_MIC, self.cmts_mic(secret)?)));
        }
        self.ending = Ending::Marker { pads: 0 };
        self.ending = Ending::Marker { pads: standard_pads(self.encode()?.len()) };
        Ok(())
    }

    fn fill_explicit(&mut self, extended: &Extended, secret: &Secret) -> Result<(), MicError> {
        if extended.explicit.is_none() {
            return Ok(());
        }
        if extended.covers(CM_MIC) {
            return Err(MicError::Circular);
        }
        // The digest covers the length of 43.6.3, so the length must be correct first.
        self.each_explicit(|digest| *digest = vec![0; DIGEST_BYTES]);
        let mic = self.extended_mic(extended, secret)?;
        self.each_explicit(|digest| *digest = mic.to_vec());
        Ok(())
    }

    fn each_explicit(&mut self, change: impl Fn(&mut Vec<u8>)) {
        for item in &mut self.items {
            if let Item::Tlv(tlv) = item {
                set_explicit(tlv, &change);
            }
        }
    }
}

/// Applies `change` to the explicit digest inside an extension field, if it has one.
fn set_explicit(tlv: &mut Tlv, change: impl Fn(&mut Vec<u8>)) {
    if tlv.code != EXTENSION || !is_general(tlv) {
        return;
    }
    let digest = inner(tlv, EXTENDED_MIC).and_then(|extended| inner(extended, EXPLICIT_DIGEST));
    if let Some(Tlv { value: Value::Bytes(digest), .. }) = digest {
        change(digest);
    }
}

/// Whether an extension field is the specification's own.
fn is_general(field: &Tlv) -> bool {
    field.child(VENDOR_ID).and_then(Tlv::as_bytes) == Some(&GENERAL_VENDOR)
}

fn inner(tlv: &mut Tlv, code: u8) -> Option<&mut Tlv> {
    match &mut tlv.value {
        Value::Nested(children) => children.iter_mut().find(|child| child.code == code),
        Value::Bytes(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_are_not_part_of_a_secret() {
        assert_eq!(Secret::new(b"bufferbloat\r\n"), Secret::new(b"bufferbloat"));
        assert_ne!(Secret::new(b" bufferbloat"), Secret::new(b"bufferbloat"));
        assert!(Secret::new(b"\n\n").is_empty());
        assert_eq!(format!("{:?}", Secret::new(b"bufferbloat")), "Secret(..)");
    }

    #[test]
    fn bitmap_counts_types_from_the_left() {
        let codes = [3, 6, 18, 22, 23, 24, 25, 43, 70, 71];
        assert_eq!(bitmap(codes), [0x12, 0, 0x23, 0xc0, 0, 0x10, 0, 0, 0x03]);
        let config = Config::new([Extended::covering(codes)]);
        let extended = Extended::from_config(&config).unwrap().unwrap();
        for code in 0..=u8::MAX {
            assert_eq!(extended.covers(code), codes.contains(&code), "type {code}");
        }
    }

    #[test]
    fn a_vendor_specific_setting_6_is_not_taken_for_an_extended_mic() {
        let field = Tlv::nested(43, [Tlv::bytes(8, [0, 0x40, 0x7b]), Tlv::u8(6, 1)]);
        let mut config = Config::new([Tlv::u8(3, 1), field]);
        assert_eq!(Extended::from_config(&config), Ok(None));
        config.seal(Some(&Secret::new(b"x"))).expect("the classic CMTS MIC");
        let bytes = config.encode().expect("a file");
        let findings = crate::check::check(&bytes, Some(&Secret::new(b"x")));
        let rules: Vec<_> = findings.iter().map(|finding| finding.rule.id()).collect();
        assert!(
            !rules.iter().any(|rule| ["D202", "D206", "D207", "D208"].contains(rule)),
            "{rules:?}"
        );
    }

    #[test]
    fn an_explicit_digest_is_filled_in_and_guards_what_the_bitmap_names() {
        let secret = Secret::new(b"bufferbloat");
        let mut field = Extended::covering([3, 43, 70]);
        if let Some(Tlv { value: Value::Nested(children), .. }) = inner(&mut field, EXTENDED_MIC) {
            children.push(Tlv::bytes(EXPLICIT_DIGEST, []));
        }
        let mut config = Config::new([Tlv::u8(3, 1), field, Tlv::nested(70, [Tlv::u16(1, 5)])]);
        config.seal(Some(&secret)).unwrap();
        let extended = Extended::from_config(&config).unwrap().unwrap();
        let digest = extended.explicit.clone().unwrap();
        assert_eq!(digest, config.extended_mic(&extended, &secret).unwrap());
        assert_eq!(
            config.settings_of_type(CMTS_MIC).next().unwrap().as_bytes().unwrap(),
            config.classic_cmts_mic(&secret).unwrap()
        );

        let mut changed = config.clone();
        changed.items[2] = Item::Tlv(Tlv::nested(70, [Tlv::u16(1, 6)]));
        assert_ne!(digest, changed.extended_mic(&extended, &secret).unwrap());
        changed.items[2] = config.items[2].clone();
        changed.items.insert(3, Item::Tlv(Tlv::u8(91, 0)));
        assert_eq!(digest, changed.extended_mic(&extended, &secret).unwrap(), "91 is not covered");
    }

    #[test]
    fn an_explicit_digest_cannot_cover_the_cm_mic() {
        let mut field = Extended::covering([3, 6]);
        if let Some(Tlv { value: Value::Nested(children), .. }) = inner(&mut field, EXTENDED_MIC) {
            children.push(Tlv::bytes(EXPLICIT_DIGEST, [0; DIGEST_BYTES]));
        }
        let mut config = Config::new([Tlv::u8(3, 1), field]);
        assert_eq!(config.seal(Some(&Secret::new(b"x"))), Err(MicError::Circular));
    }
}
