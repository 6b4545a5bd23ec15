//! Sessions of visitors: a login with a token sets an authenticated cookie.
//!
//! Sessions are not stored, so that any of several orchestrators can serve them. The cookie has the
//! hash of the token and an expiry, authenticated with a secret that all orchestrators share. The
//! token must still be valid, which is checked again after [`REMEMBERED_MS`].

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use axum::http::{HeaderMap, header};
use data_encoding::HEXLOWER;
use ring::hmac::{HMAC_SHA256, Key, sign, verify};

use crate::operator::Operator;

pub(super) const SESSION_MS: u64 = 12 * 3_600_000;
/// How long the form of the login is valid.
pub(super) const FORM_MS: u64 = 3_600_000;
/// How long a valid token is cached: a revoked one ends its sessions within this time.
pub(super) const REMEMBERED_MS: u64 = 5_000;
const REMEMBERED: usize = 1_024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) name: String,
    /// SHA-256 of the token's text, hexadecimal.
    pub(super) sha256: String,
    pub(super) expires_ms: u64,
}

pub(super) struct Sessions {
    key: Key,
    is_tls: bool,
    known: Mutex<HashMap<Claim, Seen>>,
}

/// A cached lookup of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// `None` if the token was not valid.
    pub(super) operator: Option<Operator>,
    at_ms: u64,
}

impl std::hash::Hash for Claim {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.sha256.hash(state);
    }
}

impl Sessions {
    pub(super) fn new(secret: &[u8; 32], is_tls: bool) -> Self {
        let of_pages = sign(&Key::new(HMAC_SHA256, secret), b"sessions of pages");
        let key = Key::new(HMAC_SHA256, of_pages.as_ref());
        Self { key, is_tls, known: Mutex::default() }
    }

    /// Returns the text of a session's cookie.
    pub(super) fn text(&self, claim: &Claim) -> String {
        let Claim { name, sha256, expires_ms } = claim;
        self.sealed("session", &format!("{name}.{sha256}.{expires_ms}"))
    }

    /// Returns the content of a cookie if it is authentic and has not expired.
    pub(super) fn claim(&self, text: &str, now_ms: u64) -> Option<Claim> {
        let payload = self.opened("session", text)?;
        let mut parts = payload.split('.');
        let (name, sha256) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        let expires_ms = parts.next()?.parse().ok()?;
        (now_ms < expires_ms).then_some(Claim { name, sha256, expires_ms })
    }

    /// Returns the token of the session's forms, which pages of other origins do not know.
    pub(super) fn form_token(&self, session: &str) -> String {
        HEXLOWER.encode(sign(&self.key, format!("form\n{session}").as_bytes()).as_ref())
    }

    pub(super) fn is_form_token(&self, session: &str, token: &str) -> bool {
        let Ok(token) = HEXLOWER.decode(token.as_bytes()) else { return false };
        verify(&self.key, format!("form\n{session}").as_bytes(), &token).is_ok()
    }

    /// Returns the text of the cookie of the login's form, which binds the form to its browser.
    pub(super) fn stranger(&self, random: [u8; 16], now_ms: u64) -> String {
        let payload = format!("{}.{}", HEXLOWER.encode(&random), now_ms.saturating_add(FORM_MS));
        self.sealed("stranger", &payload)
    }

    pub(super) fn is_stranger(&self, text: &str, now_ms: u64) -> bool {
        let expires = self.opened("stranger", text).and_then(|payload| payload.rsplit_once('.'));
        expires.and_then(|(_, at)| at.parse().ok()).is_some_and(|at: u64| now_ms < at)
    }

    fn sealed(&self, purpose: &str, payload: &str) -> String {
        let tag = sign(&self.key, format!("{purpose}\n{payload}").as_bytes());
        format!("{payload}.{}", HEXLOWER.encode(tag.as_ref()))
    }

    fn opened<'t>(&self, purpose: &str, text: &'t str) -> Option<&'t str> {
        let (payload, tag) = text.rsplit_once('.')?;
        let tag = HEXLOWER.decode(tag.as_bytes()).ok()?;
        verify(&self.key, format!("{purpose}\n{payload}").as_bytes(), &tag).ok()?;
        Some(payload)
    }

    /// Returns the cached lookup of a token; `None` if the token is not cached or the entry is too
    /// old.
    pub(super) fn remembered(&self, claim: &Claim, now_ms: u64) -> Option<Seen> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = known.get(claim)?;
        (now_ms.abs_diff(seen.at_ms) < REMEMBERED_MS).then(|| seen.clone())
    }

    pub(super) fn remember(&self, claim: Claim, operator: Option<Operator>, now_ms: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.retain(|_, seen| now_ms.abs_diff(seen.at_ms) < REMEMBERED_MS);
        }
        if known.len() < REMEMBERED {
            known.insert(claim, Seen { operator, at_ms: now_ms });
        }
    }

    pub(super) fn cookie(&self, kind: Cookie, text: &str, lasts_ms: u64) -> String {
        let (name, secure) = (self.cookie_name(kind), if self.is_tls { "; Secure" } else { "" });
        let seconds = lasts_ms / 1_000;
        format!("{name}={text}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
    }

    /// Returns the text of a cookie in a request.
    pub(super) fn cookie_of<'h>(&self, headers: &'h HeaderMap, kind: Cookie) -> Option<&'h str> {
        let name = self.cookie_name(kind);
        let lines = headers.get_all(header::COOKIE).into_iter();
        let pairs = lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(';'));
        let mut pairs = pairs.filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(found, _)| *found == name).map(|(_, text)| text)
    }

    /// Over TLS, with the prefix `__Host-`: only this host can set the cookie.
    fn cookie_name(&self, kind: Cookie) -> &'static str {
        match (kind, self.is_tls) {
            (Cookie::Session, true) => "__Host-underload",
            (Cookie::Session, false) => "underload",
            (Cookie::Stranger, true) => "__Host-underload-login",
            (Cookie::Stranger, false) => "underload-login",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cookie {
    Session,
    /// Binds the login's form to its browser.
    Stranger,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions() -> Sessions {
        Sessions::new(&[7; 32], true)
    }

    fn claim() -> Claim {
        Claim { name: "ana".into(), sha256: "ab".repeat(32), expires_ms: 1_000_000 }
    }

    #[test]
    fn a_cookie_is_valid_unchanged_and_until_it_expires() {
        let (sessions, text) = (sessions(), sessions().text(&claim()));
        assert_eq!(sessions.claim(&text, 999_999), Some(claim()));
        assert_eq!(sessions.claim(&text, 1_000_000), None);
        let others = Sessions::new(&[8; 32], true);
        assert_eq!(others.claim(&text, 1), None, "another fleet's");
        for forged in [
            text.replacen("ana", "eve", 1),
            text.replace("1000000", "9000000"),
            text[..text.len() - 2].to_owned(),
            sessions.stranger([1; 16], 0),
            String::new(),
            "...".to_owned(),
        ] {
            assert_eq!(sessions.claim(&forged, 1), None, "{forged}");
        }
    }

    #[test]
    fn a_form_token_is_valid_only_in_its_session() {
        let sessions = sessions();
        let token = sessions.form_token("one");
        assert!(sessions.is_form_token("one", &token));
        assert!(!sessions.is_form_token("two", &token) && !sessions.is_form_token("one", ""));
        let stranger = sessions.stranger([1; 16], 5);
        assert!(sessions.is_stranger(&stranger, 5 + FORM_MS - 1));
        assert!(!sessions.is_stranger(&stranger, 5 + FORM_MS));
        assert!(!sessions.is_stranger(&sessions.text(&claim()), 5));
    }

    #[test]
    fn a_cookie_goes_to_this_host_only_and_to_no_script() {
        let line = sessions().cookie(Cookie::Session, "x", SESSION_MS);
        assert_eq!(
            line,
            "__Host-underload=x; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure"
        );
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, "a=b; __Host-underload=x".parse().expect("a header"));
        assert_eq!(sessions().cookie_of(&headers, Cookie::Session), Some("x"));
        assert_eq!(sessions().cookie_of(&headers, Cookie::Stranger), None);
    }

    #[test]
    fn a_users_role_is_queried_again_and_memory_is_bounded() {
        let sessions = sessions();
        sessions.remember(claim(), None, 10_000);
        let seen = sessions.remembered(&claim(), 10_000 + REMEMBERED_MS - 1);
        assert_eq!(seen.map(|seen| seen.operator), Some(None));
        assert_eq!(sessions.remembered(&claim(), 10_000 + REMEMBERED_MS), None);
        for number in 0..REMEMBERED + 10 {
            let other = Claim { sha256: number.to_string(), ..claim() };
            sessions.remember(other, None, 10_001);
        }
        let known = sessions.known.lock().expect("no thread panicked");
        assert!(known.len() <= REMEMBERED);
    }
}
