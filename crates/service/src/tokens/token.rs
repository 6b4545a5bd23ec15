//! Tokens, signed by the server's operator: which client may measure.
//!
//! A token is `ul1.CLAIMS.TAG`: claims in JSON and their HMAC-SHA-256, both in hexadecimal. It
//! names its server by the fingerprint of the server's key, expires at an instant, and is good for
//! a stated number of sessions. The keys are in a file that only its owner can read, one `NAME HEX`
//! per line. Up to two keys are valid at once, so that rotating them does not void existing tokens.

use std::path::{Path, PathBuf};
use std::time::Duration;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use ring::hmac;
use underload_disk as disk;
use underload_probe::control::claims::{Claims, PREFIX};
use underload_probe::control::private::{self, LOCK_PATIENCE};
use underload_probe::control::{Ask, Fingerprint, Result, ServiceError, from_hex, in_full};

use super::uses::{SKEW, Uses};
use crate::admission::Admitted;
use crate::random::{random, unix_seconds};
use crate::stamp::Stamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenTerms {
    /// From now to the end of the token's validity.
    pub lifetime: Duration,
    /// Number of sessions that the token is good for.
    pub uses: u32,
    /// Highest rate of a session in either direction, bit/s; `None` leaves it to the server.
    pub rate_bit_per_s: Option<u64>,
    /// Longest session; `None` leaves it to the server.
    pub duration: Option<Duration>,
}

/// Maximum number of messages that wait for the operator.
const NEWS_MAX: usize = 16;

#[derive(Clone)]
pub struct TokenKeys {
    newest: Key,
    /// Still valid, so that rotating the keys does not void its tokens.
    previous: Option<Key>,
}

#[derive(Clone)]
struct Key {
    name: String,
    secret: [u8; 32],
}

impl std::fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.all().map(|key| &key.name)).finish()
    }
}

impl TokenKeys {
    /// Reads the keys of a file, newest first.
    ///
    /// # Errors
    /// Returns [`ServiceError::File`] if reading fails, [`ServiceError::Keys`] if others can read
    /// or own the file, or it does not have one or two well-formed keys.
    pub fn load(path: &Path) -> Result<Self> {
        let error = |what: String| ServiceError::Keys { path: path.to_owned(), what };
        let text = String::from_utf8(private::read_secret(path)?);
        let text = text.map_err(|_| error("it is not text".to_owned()))?;
        let mut keys = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let key = line.trim().split_once(' ').and_then(|(name, secret)| {
                let secret = from_hex(secret.trim())?;
                Some(Key { name: name.to_owned(), secret })
            });
            let malformed = || error(format!("line {} is not a name and 64 digits", index + 1));
            keys.push(key.ok_or_else(malformed)?);
        }
        let count = keys.len();
        let mut keys = keys.into_iter();
        match (keys.next(), keys.next(), keys.next()) {
            (Some(newest), previous, None) => Ok(Self { newest, previous }),
            _ => Err(error(format!("it has {count} keys, 1 or 2 are accepted"))),
        }
    }

    /// Adds a new key to the file, created if missing, and keeps the newest of the old ones.
    pub fn rotate(path: &Path) -> Result<Self> {
        let directory = disk::directory_of(path);
        let error = |source| ServiceError::File { path: directory.to_owned(), source };
        let _lock = disk::lock_directory(directory, LOCK_PATIENCE).map_err(error)?;
        let previous = path.exists().then(|| Self::load(path)).transpose()?;
        let newest = Key { name: HEXLOWER.encode(&random::<4>()?), secret: random()? };
        let keys = Self { newest, previous: previous.map(|keys| keys.newest) };
        let line = |key: &Key| format!("{} {}\n", key.name, HEXLOWER.encode(&key.secret));
        private::write(path, keys.all().map(line).collect::<String>().as_bytes())?;
        Ok(keys)
    }

    fn all(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.newest).chain(&self.previous)
    }

    /// Returns a new token for the server with this key, signed with the newest key.
    ///
    /// # Errors
    /// Returns [`ServiceError::Randomness`] without random numbers.
    pub fn issue(&self, server: Fingerprint, terms: &TokenTerms) -> Result<String> {
        self.issue_at(server, terms, unix_seconds())
    }

    fn issue_at(&self, server: Fingerprint, terms: &TokenTerms, now: u64) -> Result<String> {
        let key = &self.newest;
        let claims = Claims {
            key: key.name.clone(),
            server: server.to_string(),
            id: HEXLOWER.encode(&random::<16>()?),
            issued: now,
            expires: now.saturating_add(terms.lifetime.as_secs()),
            uses: terms.uses,
            rate_bit_per_s: terms.rate_bit_per_s,
            duration_s: terms.duration.map(|duration| duration.as_secs()),
        };
        let json = serde_json::to_vec(&claims).map_err(ServiceError::Encode)?;
        let tag = hmac::sign(&key.for_signing(), &json);
        let [claims, tag] = [json.as_slice(), tag.as_ref()].map(|part| HEXLOWER.encode(part));
        Ok(format!("{PREFIX}.{claims}.{tag}"))
    }

    /// Returns the claims of a token. The limit of a message's length also bounds `text`.
    fn verify(&self, text: &str) -> Result<Claims, &'static str> {
        const MALFORMED: &str = "this is no token of this server";
        let mut parts = text.trim().split('.');
        let (Some(PREFIX), Some(claims), Some(tag), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(MALFORMED);
        };
        let read = |part: &str| HEXLOWER_PERMISSIVE.decode(part.as_bytes()).map_err(|_| MALFORMED);
        let (json, tag) = (read(claims)?, read(tag)?);
        let signed = |key: &&Key| hmac::verify(&key.for_signing(), &json, &tag).is_ok();
        // The signature is checked before the claims are parsed.
        self.all().find(signed).ok_or("the token is not signed with a key of this server")?;
        serde_json::from_slice(&json).map_err(|_| MALFORMED)
    }
}

#[cfg(feature = "fuzzing")]
impl TokenKeys {
    /// Returns one key that no input can know.
    pub(crate) fn for_fuzzing() -> Result<Self> {
        let newest = Key { name: "fuzz".to_owned(), secret: random()? };
        Ok(Self { newest, previous: None })
    }

    /// Returns true if one of the keys signed this token.
    pub(crate) fn signed(&self, text: &str) -> bool {
        self.verify(text).is_ok()
    }
}

impl Key {
    fn for_signing(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.secret)
    }
}

/// Checks tokens, and counts the uses of each until it expires.
pub(crate) struct TokenDesk {
    path: PathBuf,
    /// `None` while the file is unusable; no token is accepted then.
    keys: Option<TokenKeys>,
    stamp: Option<Stamp>,
    server: Fingerprint,
    uses: Uses,
    /// Messages that the operator has not seen yet.
    news: Vec<String>,
}

impl TokenDesk {
    /// Loads the keys of `path`, which is read again when it changes. Uses are stored in the
    /// directory
    /// `state`; without one, in memory.
    pub(crate) fn open(path: &Path, server: Fingerprint, state: Option<&Path>) -> Result<Self> {
        let stamp = Stamp::read(path);
        let keys = Some(TokenKeys::load(path)?);
        let opened = state.map(|directory| Uses::open(directory, unix_seconds())).transpose()?;
        let (uses, warning) = opened.unwrap_or_default();
        let news = warning.into_iter().collect();
        Ok(Self { path: path.to_owned(), keys, stamp, server, uses, news })
    }

    pub(crate) fn serve_as(&mut self, server: Fingerprint) {
        self.server = server;
    }

    /// Reloads keys that were replaced, and returns messages for the operator.
    pub(crate) fn news(&mut self) -> Vec<String> {
        self.reload();
        std::mem::take(&mut self.news)
    }

    /// Checks whether a token allows `ask`. Only [`TokenDesk::note`] counts a use.
    pub(crate) fn check(&mut self, text: &str, ask: Ask) -> Result<Admitted, String> {
        self.reload();
        self.check_at(text, ask, unix_seconds())
    }

    /// Records a use on disk.
    ///
    /// # Errors
    /// Returns [`ServiceError::File`] if recording fails; the caller must then grant nothing.
    pub(crate) fn note(&mut self, admitted: &Admitted) -> Result<()> {
        let noted = self.uses.note(admitted.id, admitted.expires);
        if let Err(error) = &noted {
            let words = format!("uses of tokens cannot be recorded: {}", in_full(error));
            if self.news.last() != Some(&words) && self.news.len() < NEWS_MAX {
                self.news.push(words);
            }
        }
        noted
    }

    fn reload(&mut self) {
        let stamp = Stamp::read(&self.path);
        if stamp == self.stamp && self.keys.is_some() {
            return;
        }
        self.stamp = stamp;
        let had = self.keys.is_some();
        let words = match TokenKeys::load(&self.path) {
            Ok(keys) => {
                self.keys = Some(keys);
                (!had).then(|| "the keys of tokens can be read again".to_owned())
            }
            Err(error) => {
                // The operator may have removed the keys to void the tokens.
                self.keys = None;
                let words = || format!("no token is accepted any more: {}", in_full(&error));
                had.then(words)
            }
        };
        self.news.extend(words);
        self.news.truncate(NEWS_MAX);
    }

    fn check_at(&mut self, text: &str, ask: Ask, now: u64) -> Result<Admitted, String> {
        let keys = self.keys.as_ref();
        let keys = keys.ok_or("the server cannot read the keys of its tokens: try again later")?;
        let claims = keys.verify(text)?;
        let is_for_us = |named: Fingerprint| named == self.server;
        if !claims.server.parse().is_ok_and(is_for_us) {
            return Err("the token is for another server".to_owned());
        }
        if claims.issued > now + SKEW {
            return Err("the token is from the future: check the clocks".to_owned());
        }
        if let Some(most) = claims.duration_s
            && ask.duration > Duration::from_secs(most)
        {
            return Err(format!("the token is for sessions of at most {most} s"));
        }
        if let Some(most) = claims.rate_bit_per_s {
            let asked = [ask.up_bit_per_s, ask.down_bit_per_s];
            if asked.iter().flatten().any(|rate| *rate > most) {
                return Err(format!("the token is for at most {most} bit/s"));
            }
        }
        let id = from_hex(&claims.id).ok_or("the token has no identifier")?;
        let (issued, expires) = (claims.issued, claims.expires);
        match self.uses.refuse(id, (issued, expires), claims.uses, now) {
            Some(reason) => Err(reason.to_owned()),
            None => {
                let rate_bit_per_s = claims.rate_bit_per_s;
                Ok(Admitted { id, rate_bit_per_s, expires, is_reserved: false })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::{SystemTime, UNIX_EPOCH};

    use proptest::prelude::*;
    use underload_disk::faults::{self, Fault};
    use underload_probe::control::MESSAGE_MAX;
    use underload_probe::control::claims::server_of;

    use super::*;
    use crate::identity::Identity;

    const NOW: u64 = 1_800_000_000;

    fn terms() -> TokenTerms {
        TokenTerms {
            lifetime: Duration::from_mins(15),
            uses: 1,
            rate_bit_per_s: Some(100),
            duration: Some(Duration::from_secs(30)),
        }
    }

    fn ask() -> Ask {
        Ask { up_bit_per_s: Some(100), down_bit_per_s: Some(10), duration: Duration::from_secs(30) }
    }

    fn desk() -> (tempfile::TempDir, TokenDesk, Fingerprint) {
        let directory = faults::private_tempdir().unwrap();
        let path = directory.path().join("keys");
        TokenKeys::rotate(&path).unwrap();
        let server = Identity::generate().unwrap().fingerprint();
        let desk = TokenDesk::open(&path, server, None).unwrap();
        (directory, desk, server)
    }

    fn keys(desk: &TokenDesk) -> &TokenKeys {
        desk.keys.as_ref().unwrap()
    }

    #[test]
    fn rotations_at_once_lose_no_key() {
        let directory = faults::private_tempdir().unwrap();
        let path = directory.path().join("keys");
        for _ in 0..16 {
            let rotate = || TokenKeys::rotate(&path).unwrap().newest.name;
            let mut created = std::thread::scope(|threads| {
                [(); 2].map(|()| threads.spawn(rotate)).map(|thread| thread.join().unwrap())
            });
            let keys = TokenKeys::load(&path).unwrap();
            let mut stored: Vec<_> = keys.all().map(|key| key.name.clone()).collect();
            created.sort();
            stored.sort();
            assert_eq!(stored, created);
        }
    }

    #[test]
    fn a_token_is_valid_for_its_server_time_uses_and_limits() {
        let (_directory, mut desk, server) = desk();
        let token = keys(&desk).issue_at(server, &terms(), NOW).unwrap();
        let refused = |desk: &mut TokenDesk, token: &str, ask, now| {
            desk.check_at(token, ask, now).unwrap_err()
        };
        let long = Ask { duration: Duration::from_secs(31), ..ask() };
        assert!(refused(&mut desk, &token, long, NOW).contains("30 s"));
        let longer = Ask { duration: Duration::from_millis(30_001), ..ask() };
        assert!(refused(&mut desk, &token, longer, NOW).contains("30 s"));
        let fast = Ask { up_bit_per_s: Some(101), ..ask() };
        assert!(refused(&mut desk, &token, fast, NOW).contains("100 bit/s"));
        assert!(refused(&mut desk, &token, ask(), NOW - 61).contains("future"));
        assert!(refused(&mut desk, &token, ask(), NOW + 900).contains("expired"));
        let admitted = desk.check_at(&token, ask(), NOW + 899).unwrap();
        assert_eq!(desk.check_at(&token, ask(), NOW - SKEW), Ok(admitted), "a minute is no fault");
        assert_eq!(admitted.rate_bit_per_s, Some(100));
        // A token that was only checked can be checked again.
        assert_eq!(desk.check_at(&token, ask(), NOW), Ok(admitted));
        desk.note(&admitted).unwrap();
        assert!(refused(&mut desk, &token, ask(), NOW).contains("used already"));
        let other: Fingerprint = format!("sha256:{}", "cd".repeat(32)).parse().unwrap();
        let foreign = keys(&desk).issue_at(other, &terms(), NOW).unwrap();
        assert!(refused(&mut desk, &foreign, ask(), NOW).contains("another server"));
    }

    #[test]
    fn a_token_is_valid_from_its_creation() {
        let (_directory, mut desk, server) = desk();
        let token = keys(&desk).issue(server, &terms()).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!(desk.check_at(&token, ask(), now).is_ok());
        let old = keys(&desk).issue_at(server, &terms(), now - 3_600).unwrap();
        assert!(desk.check(&old, ask()).unwrap_err().contains("expired"));
    }

    #[test]
    fn a_new_certificate_with_another_key_ends_the_tokens_of_the_old_one() {
        let (_directory, mut desk, old) = desk();
        let new = Identity::generate().unwrap().fingerprint();
        desk.serve_as(new);
        let issue = |desk: &TokenDesk, server| keys(desk).issue_at(server, &terms(), NOW).unwrap();
        let (of_old, of_new) = (issue(&desk, old), issue(&desk, new));
        assert!(desk.check_at(&of_old, ask(), NOW).unwrap_err().contains("another server"));
        assert!(desk.check_at(&of_new, ask(), NOW).is_ok());
    }

    #[test]
    fn the_operator_is_warned_once_that_uses_cannot_be_recorded() {
        let (directory, ..) = desk();
        let path = directory.path().join("keys");
        let server = Identity::generate().unwrap().fingerprint();
        let mut desk = TokenDesk::open(&path, server, Some(directory.path())).unwrap();
        let admitted =
            Admitted { id: [1; 16], rate_bit_per_s: None, expires: NOW, is_reserved: false };
        let fail = |desk: &mut TokenDesk| {
            let full = Fault::NoSpaceFrom(0);
            faults::with(directory.path(), full, || desk.note(&admitted)).result.unwrap_err()
        };
        let error = fail(&mut desk);
        fail(&mut desk);
        let told = format!("uses of tokens cannot be recorded: {}", in_full(&error));
        assert!(told.contains("token-uses") && told.contains("no storage space"), "{told}");
        assert_eq!(desk.news(), std::slice::from_ref(&told));
        // Other news may wait, too, up to a limit.
        desk.news = vec!["other news".to_owned(); NEWS_MAX - 1];
        fail(&mut desk);
        assert_eq!(desk.news.len(), NEWS_MAX);
        assert_eq!(desk.news.last(), Some(&told));
        desk.news = vec!["other news".to_owned(); NEWS_MAX];
        fail(&mut desk);
        assert!(desk.news.len() == NEWS_MAX && !desk.news.contains(&told));
    }

    #[test]
    fn tokens_longer_than_a_message_are_rejected() {
        let (_directory, desk, server) = desk();
        let token = keys(&desk).issue_at(server, &terms(), NOW).unwrap();
        let claims = token.split('.').nth(1).unwrap();
        // Spaces after the claims.
        let padded = |len: usize| format!("{claims}{}", "20".repeat((len - claims.len()) / 2));
        assert_eq!(server_of(&format!("ul1.{}.00", padded(MESSAGE_MAX))), Some(server));
        assert_eq!(server_of(&format!("ul1.{}.00", padded(MESSAGE_MAX + 2))), None);
    }

    #[test]
    fn the_bearer_can_read_the_server_of_a_token() {
        let (_directory, desk, server) = desk();
        let token = keys(&desk).issue_at(server, &terms(), NOW).unwrap();
        assert_eq!(server_of(&format!("{token}\n")), Some(server));
        for wrong in ["", "ul1", "ul1.", "ul1.7b7d.00", "ul2.00.00", &token[4..], "open sesame"] {
            assert_eq!(server_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn two_keys_are_valid_and_a_third_ends_the_first() {
        let (directory, mut desk, server) = desk();
        let path = directory.path().join("keys");
        let many = TokenTerms { uses: 9, ..terms() };
        let old = keys(&desk).issue_at(server, &many, NOW).unwrap();
        desk.keys = Some(TokenKeys::rotate(&path).unwrap());
        let new = keys(&desk).issue_at(server, &many, NOW).unwrap();
        assert!(desk.check_at(&old, ask(), NOW).is_ok());
        assert!(desk.check_at(&new, ask(), NOW).is_ok());
        desk.keys = Some(TokenKeys::rotate(&path).unwrap());
        assert!(desk.check_at(&old, ask(), NOW).unwrap_err().contains("not signed"));
        assert!(desk.check_at(&new, ask(), NOW).is_ok());
    }

    #[test]
    fn unreadable_keys_admit_no_client() {
        let (directory, mut desk, server) = desk();
        let path = directory.path().join("keys");
        let many = TokenTerms { uses: 99, ..terms() };
        let token = keys(&desk).issue(server, &many).unwrap();
        let bytes = fs::read(&path).unwrap();
        let private = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        };
        let take_away: [&dyn Fn(); 3] =
            [&|| fs::remove_file(&path).unwrap(), &|| fs::write(&path, "").unwrap(), &|| {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            }];
        for (index, take_away) in take_away.iter().enumerate() {
            assert!(desk.check(&token, ask()).is_ok(), "{index}");
            take_away();
            let refused = desk.check(&token, ask()).unwrap_err();
            assert!(refused.contains("cannot read the keys"), "{index}: {refused}");
            assert!(desk.check(&token, ask()).is_err(), "{index}");
            let news = desk.news();
            assert!(news.len() == 1 && news[0].contains("no token is accepted"), "{news:?}");
            private(&bytes);
            assert!(desk.check(&token, ask()).is_ok(), "{index}");
            assert_eq!(desk.news().len(), 1, "reported once: the keys are readable again");
        }
    }

    #[test]
    fn a_key_file_that_others_can_read_is_refused() {
        let (directory, ..) = desk();
        let path = directory.path().join("keys");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = TokenKeys::load(&path).unwrap_err().to_string();
        assert!(error.contains("others can read it"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for wrong in ["", "only-a-name\n", "a 12\n"] {
            fs::write(&path, wrong).unwrap();
            assert!(TokenKeys::load(&path).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn after_any_disk_fault_the_key_file_is_the_old_or_the_new_one() {
        let (directory, ..) = desk();
        let before = faults::tree(directory.path());
        let old = TokenKeys::load(&directory.path().join("keys")).unwrap();
        let action = |root: &Path| TokenKeys::rotate(&root.join("keys"));
        faults::at_every_step(&before, action, |fault, root, outcome| {
            let left = faults::tree(root);
            for tree in outcome.after_power_cut.iter().chain([&left]) {
                faults::restore(root, tree);
                let path = root.join("keys");
                let keys = TokenKeys::load(&path).unwrap();
                let kept = keys.all().last().map(|key| key.secret);
                assert_eq!(kept, Some(old.newest.secret), "{fault:?}");
                assert!(outcome.result.is_err() || keys.previous.is_some(), "{fault:?}");
            }
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_changed_token_is_rejected(place in 4usize..400, digit in 0u8..16) {
            let (_directory, mut desk, server) = desk();
            let token = keys(&desk).issue_at(server, &terms(), NOW).unwrap();
            let digit = char::from_digit(u32::from(digit), 16).unwrap();
            let changed: String = token
                .char_indices()
                .map(|(index, old)| if index == place && old != '.' { digit } else { old })
                .collect();
            prop_assert_eq!(desk.check_at(&changed, ask(), NOW).is_ok(), changed == token);
        }

        #[test]
        fn any_text_is_refused_without_a_panic(text in "(ul1\\.)?[0-9a-f.]{0,60}|\\PC{0,40}") {
            let (_directory, mut desk, _) = desk();
            prop_assert!(desk.check_at(&text, ask(), NOW).is_err());
        }
    }
}
