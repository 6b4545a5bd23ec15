//! Operators and their tokens, of which only hashes are stored.
//!
//! A token is `ulo1.NAME.SECRET`, and its hash is in the setting `operator/NAME`.

use std::fmt;

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

use crate::store::{Result, StoreError, Transaction};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Reads results of cohorts.
    Viewer,
    /// Also reads single devices, makes codes, applies and stops plans, removes devices.
    Operator,
}

/// The owner of a valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// Name of the token, under which the log stores actions.
    pub name: String,
    pub role: Role,
}

/// The text is not a name of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token's name is 1 to 32 of a-z, 0-9 and -")]
pub struct NotAName;

/// The stored part of a token.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    role: Role,
    /// SHA-256 of the token's text, hexadecimal.
    sha256: String,
    expires_ms: u64,
}

const PREFIX: &str = "ulo1";
const NAME_MAX: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenName(String);

impl TokenName {
    pub fn new(name: &str) -> Result<Self, NotAName> {
        let is_good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let fits = (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_good);
        if fits { Ok(Self(name.to_owned())) } else { Err(NotAName) }
    }

    fn setting(&self) -> String {
        format!("operator/{}", self.0)
    }
}

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for TokenName {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Self, NotAName> {
        Self::new(text)
    }
}

/// Creates a token that is valid until `expires_ms`, milliseconds since 1970, and replaces an older
/// one with that name. Returns the text, which is not stored.
pub fn new_token(
    tx: &mut dyn Transaction,
    name: &TokenName,
    role: Role,
    expires_ms: u64,
    secret: [u8; 32],
) -> Result<String> {
    let text = format!("{PREFIX}.{name}.{}", HEXLOWER.encode(&secret));
    let stored = Stored { role, sha256: hash(&text), expires_ms };
    let json = serde_json::to_vec(&stored).unwrap_or_default();
    tx.put_setting(&name.setting(), &json)?;
    Ok(text)
}

/// Returns whether a token with this name was ever created.
pub fn is_known(tx: &mut dyn Transaction, name: &TokenName) -> Result<bool> {
    Ok(tx.setting(&name.setting())?.is_some())
}

/// Returns the owner of a token; `None` if it is not valid.
pub fn who_shows(tx: &mut dyn Transaction, now_ms: u64, token: &str) -> Result<Option<Operator>> {
    let name = token.split('.').nth(1).unwrap_or_default();
    who_has(tx, now_ms, name, &hash(token))
}

/// Returns the owner of the token with this name and hexadecimal SHA-256; `None` if no such token
/// is valid. A session stores only the hash.
pub fn who_has(
    tx: &mut dyn Transaction,
    now_ms: u64,
    name: &str,
    sha256: &str,
) -> Result<Option<Operator>> {
    let Ok(name) = TokenName::new(name) else { return Ok(None) };
    let Some(bytes) = tx.setting(&name.setting())? else { return Ok(None) };
    let stored: Stored = serde_json::from_slice(&bytes)
        .map_err(|error| StoreError::broken(name.setting()).because(error))?;
    let is_it: bool = sha256.as_bytes().ct_eq(stored.sha256.as_bytes()).into();
    let is_good = is_it && now_ms < stored.expires_ms;
    Ok(is_good.then_some(Operator { name: name.0, role: stored.role }))
}

/// Revokes a token. Returns false if the name is unknown.
pub fn revoke(tx: &mut dyn Transaction, name: &TokenName) -> Result<bool> {
    let is_known = is_known(tx, name)?;
    if is_known {
        let none = Stored { role: Role::Viewer, sha256: String::new(), expires_ms: 0 };
        let json = serde_json::to_vec(&none).unwrap_or_default();
        tx.put_setting(&name.setting(), &json)?;
    }
    Ok(is_known)
}

fn hash(text: &str) -> String {
    HEXLOWER.encode(digest(&SHA256, text.as_bytes()).as_ref())
}
