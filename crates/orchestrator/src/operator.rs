//! Operators: who may look and who may act, by tokens of which only hashes are kept.
//!
//! A token is `ulo1.NAME.SECRET`. What is kept of it is the setting `operator/NAME`.

use std::fmt;

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use underload_fleet::store::{StoreError, Transaction};

/// What an operator may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Looks at what was collected.
    Viewer,
    /// Also sees single devices, makes codes, applies and stops plans, removes devices.
    Operator,
}

/// Who showed a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// The token's name, which the log of operators' actions names.
    pub name: String,
    /// What it may do.
    pub role: Role,
}

/// A name that no token can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token's name is 1 to 32 of a-z, 0-9 and -")]
pub struct NotAName;

/// What is kept of a token.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    role: Role,
    /// Of the token's text, hexadecimal.
    sha256: String,
    expires_ms: u64,
}

const PREFIX: &str = "ulo1";
const NAME_MAX: usize = 32;

/// A token's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenName(String);

impl TokenName {
    /// Reads one.
    ///
    /// # Errors
    /// [`NotAName`].
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

/// The secret of a new token, which nobody can foretell.
///
/// # Errors
/// [`StoreError::Temporary`]: the machine has no randomness.
pub fn new_secret() -> Result<[u8; 32], StoreError> {
    crate::random::bytes()
}

/// Makes a token good until `expires_ms`, milliseconds since 1970; an older one of that name is
/// good no more. The text is known to nobody but the caller.
///
/// # Errors
/// [`StoreError`].
pub fn new_token(
    tx: &mut dyn Transaction,
    name: &TokenName,
    role: Role,
    expires_ms: u64,
    secret: [u8; 32],
) -> Result<String, StoreError> {
    let text = format!("{PREFIX}.{name}.{}", HEXLOWER.encode(&secret));
    let kept = Kept { role, sha256: hash(&text), expires_ms };
    // Two names and a number: nothing that JSON could not hold.
    let json = serde_json::to_vec(&kept).unwrap_or_default();
    tx.put_setting(&name.setting(), &json)?;
    Ok(text)
}

/// Whether a token of this name was ever made.
///
/// # Errors
/// [`StoreError`].
pub fn is_known(tx: &mut dyn Transaction, name: &TokenName) -> Result<bool, StoreError> {
    Ok(tx.setting(&name.setting())?.is_some())
}

/// Who shows this token; `None` if nobody does.
///
/// # Errors
/// [`StoreError`].
pub fn who_shows(
    tx: &mut dyn Transaction,
    now_ms: u64,
    token: &str,
) -> Result<Option<Operator>, StoreError> {
    let name = token.split('.').nth(1).unwrap_or_default();
    who_has(tx, now_ms, name, &hash(token))
}

/// Whose token has this name and this SHA-256, hexadecimal; `None` if there is none. A session
/// that began with a token remembers no more of it.
///
/// # Errors
/// [`StoreError`].
pub fn who_has(
    tx: &mut dyn Transaction,
    now_ms: u64,
    name: &str,
    sha256: &str,
) -> Result<Option<Operator>, StoreError> {
    let Ok(name) = TokenName::new(name) else { return Ok(None) };
    let Some(bytes) = tx.setting(&name.setting())? else { return Ok(None) };
    let kept: Kept = serde_json::from_slice(&bytes)
        .map_err(|error| StoreError::broken(name.setting()).because(error))?;
    let is_it: bool = sha256.as_bytes().ct_eq(kept.sha256.as_bytes()).into();
    let is_good = is_it && now_ms < kept.expires_ms;
    Ok(is_good.then_some(Operator { name: name.0, role: kept.role }))
}

/// Makes a token good no more. False if there was none of that name.
///
/// # Errors
/// [`StoreError`].
pub fn revoke(tx: &mut dyn Transaction, name: &TokenName) -> Result<bool, StoreError> {
    let is_known = is_known(tx, name)?;
    if is_known {
        let none = Kept { role: Role::Viewer, sha256: String::new(), expires_ms: 0 };
        let json = serde_json::to_vec(&none).unwrap_or_default();
        tx.put_setting(&name.setting(), &json)?;
    }
    Ok(is_known)
}

fn hash(text: &str) -> String {
    HEXLOWER.encode(digest(&SHA256, text.as_bytes()).as_ref())
}
