//! The number of uses of each token, stored across restarts.
//!
//! A line per use is appended and synced before the session is granted, so that a server that
//! crashes or loses power forgets no use that it granted. A line is `use ID EXPIRES COUNT TAG`,
//! where `COUNT` is the sum so far and `TAG` the first digits of the SHA-256 of the text before it.
//!
//! If the record is damaged, tokens are refused:
//!
//! - A last line without an end is a use that was never granted; it is ignored.
//! - Any other malformed line may have been a use of any token: all tokens issued until then are
//!   void.
//! - An expired token is removed from memory. Every token that expires no later then counts as
//!   expired, so that a clock that steps forward and back makes no token valid again.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use underload_disk::{Access, Journal, Lines};
use underload_probe::control::{ServiceError, from_hex, private};

/// Largest difference between the clocks of operator and server, s.
pub(crate) const SKEW: u64 = 60;

#[derive(Debug, Default)]
pub(crate) struct Uses {
    used: BTreeMap<[u8; 16], Used>,
    /// Tokens that expire no later were removed and are refused.
    forgotten_until: u64,
    void_before: u64,
    record: Option<Record>,
}

#[derive(Clone, Copy, Debug)]
struct Used {
    count: u32,
    expires: u64,
}

#[derive(Debug)]
struct Record {
    journal: Journal,
    path: PathBuf,
    lines: usize,
    _lock: File,
}

enum Line {
    Use([u8; 16], Used),
    ForgottenUntil(u64),
    VoidBefore(u64),
}

const NAME: &str = "token-uses";
/// Maximum number of tokens in memory; above that, new tokens are refused until one expires.
const REMEMBERED_MAX: usize = 100_000;
/// A longer record is rejected.
const RECORD_BYTES_MAX: u64 = 64 << 20;
/// The record is rewritten when it has more lines than this and two per token.
const LINES_SPARE: usize = 256;
/// Hexadecimal digits of a line's tag.
const TAG_LEN: usize = 8;

impl Uses {
    /// Loads the record in `directory`, and returns a warning for the operator if it is damaged.
    /// `now` and all other instants are seconds since 1970.
    pub(crate) fn open(directory: &Path, now: u64) -> Result<(Self, Option<String>), ServiceError> {
        let path = directory.join(NAME);
        let error = |source| ServiceError::File { path: path.clone(), source };
        private::directory(directory)?;
        let lock = lock(&directory.join("token-uses.lock"))?;
        let opened = Journal::open(&path, RECORD_BYTES_MAX, Access::Owner);
        let (journal, found) = opened.map_err(error)?;
        let mut uses = Self::default();
        let (lines, damaged) = (found.iter().count(), uses.read_lines(&found));
        let record = Record { journal, path, lines, _lock: lock };
        // A new record is rewritten, too, so that its name is on disk before its first line.
        let is_whole = record.path.exists() && damaged == 0 && !found.is_torn();
        let warning = (damaged > 0).then(|| {
            // The issuer's clock may be ahead of this one.
            uses.void_before = uses.void_before.max(now.saturating_add(SKEW));
            format!(
                "{}: {damaged} lines are damaged, so all tokens that were issued until now are \
                 void",
                record.path.display()
            )
        });
        uses.record = Some(record);
        if !is_whole {
            uses.rewrite()?;
        }
        Ok((uses, warning))
    }

    /// Returns why a token that is good for `allowed` uses is not valid; `None` if it is.
    pub(crate) fn refuse(
        &mut self,
        id: [u8; 16],
        (issued, expires): (u64, u64),
        allowed: u32,
        now: u64,
    ) -> Option<&'static str> {
        self.forget(now);
        let used = self.used.get(&id).map(|used| used.count);
        if expires <= now.max(self.forgotten_until) {
            Some("the token has expired: ask its issuer for a new one")
        } else if issued < self.void_before {
            Some("the server lost count of the tokens that were used: ask for a new one")
        } else if used.unwrap_or(0) >= allowed {
            Some("the token was used already: ask its issuer for a new one")
        } else if used.is_none() && self.used.len() >= REMEMBERED_MAX {
            Some("too many tokens are in use here: try again later")
        } else {
            None
        }
    }

    /// Records one use on disk.
    ///
    /// # Errors
    /// Returns [`ServiceError::File`] if recording fails; the use then does not count.
    pub(crate) fn note(&mut self, id: [u8; 16], expires: u64) -> Result<(), ServiceError> {
        let before = self.used.get(&id).map_or(0, |used| used.count);
        let used = Used { count: before.saturating_add(1), expires };
        let too_long = 2 * self.used.len() + LINES_SPARE;
        if self.record.as_ref().is_some_and(|record| record.lines > too_long) {
            // A failure is ignored: a long record still works.
            drop(self.rewrite());
        }
        if let Some(Record { journal, path, lines, .. }) = &mut self.record {
            let written = journal.append_synced(Line::Use(id, used).text().as_bytes());
            written.map_err(|source| ServiceError::File { path: path.clone(), source })?;
            *lines += 1;
        }
        self.used.insert(id, used);
        Ok(())
    }

    /// Removes expired tokens from memory. The record keeps them until it is rewritten with
    /// `forgotten_until`.
    fn forget(&mut self, now: u64) {
        let mut until = self.forgotten_until;
        self.used.retain(|_, used| {
            let is_over = used.expires <= now;
            if is_over {
                until = until.max(used.expires);
            }
            !is_over
        });
        self.forgotten_until = until;
    }

    fn text(&self) -> String {
        let mut lines = vec![Line::ForgottenUntil(self.forgotten_until).text()];
        lines.push(Line::VoidBefore(self.void_before).text());
        lines.extend(self.used.iter().map(|(id, used)| Line::Use(*id, *used).text()));
        lines.concat()
    }

    fn rewrite(&mut self) -> Result<(), ServiceError> {
        let text = self.text();
        let Some(Record { journal, path, lines, .. }) = &mut self.record else { return Ok(()) };
        let written = journal.rewrite(text.as_bytes());
        written.map_err(|source| ServiceError::File { path: path.clone(), source })?;
        *lines = self.used.len() + 2;
        Ok(())
    }

    /// Adds the uses in `lines`. Returns the number of damaged lines.
    fn read_lines(&mut self, lines: &Lines) -> usize {
        let mut damaged = 0;
        for line in lines.iter() {
            match std::str::from_utf8(line).ok().and_then(Line::parse) {
                Some(Line::Use(id, used)) => {
                    let known = self.used.entry(id).or_insert(used);
                    known.count = known.count.max(used.count);
                }
                Some(Line::ForgottenUntil(at)) => {
                    self.forgotten_until = self.forgotten_until.max(at);
                }
                Some(Line::VoidBefore(at)) => self.void_before = self.void_before.max(at),
                None => damaged += 1,
            }
        }
        damaged
    }
}

impl Line {
    fn text(&self) -> String {
        let words = match self {
            Self::Use(id, used) => {
                format!("use {} {} {}", HEXLOWER.encode(id), used.expires, used.count)
            }
            Self::ForgottenUntil(at) => format!("forgotten-until {at}"),
            Self::VoidBefore(at) => format!("void-before {at}"),
        };
        format!("{words} {}\n", tag(&words))
    }

    fn parse(line: &str) -> Option<Self> {
        let (words, end) = line.rsplit_once(' ')?;
        if end != tag(words) {
            return None;
        }
        let words: Vec<&str> = words.split(' ').collect();
        match words.as_slice() {
            ["use", id, expires, count] => {
                let used = Used { count: count.parse().ok()?, expires: expires.parse().ok()? };
                Some(Self::Use(from_hex(id)?, used))
            }
            ["forgotten-until", at] => Some(Self::ForgottenUntil(at.parse().ok()?)),
            ["void-before", at] => Some(Self::VoidBefore(at.parse().ok()?)),
            _ => None,
        }
    }
}

/// Detects flipped bits, not forgery.
fn tag(words: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, words.as_bytes());
    let mut text = HEXLOWER.encode(digest.as_ref());
    text.truncate(TAG_LEN);
    text
}

/// Locks the record: two servers that count at the same time would each grant the same use.
fn lock(path: &Path) -> Result<File, ServiceError> {
    let error = |source| ServiceError::File { path: path.to_owned(), source };
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = file.map_err(error)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::Error(source)) => Err(error(source)),
        Err(TryLockError::WouldBlock) => {
            Err(ServiceError::InUse { path: path.with_file_name(NAME) })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use underload_disk::faults::{self, Fault};

    use super::*;

    const NOW: u64 = 1_800_000_000;
    const SOON: u64 = NOW + 900;
    const ID: [u8; 16] = [7; 16];

    fn open(directory: &Path) -> Uses {
        let (uses, warning) = Uses::open(directory, NOW).unwrap();
        assert_eq!(warning, None);
        uses
    }

    fn is_good(uses: &mut Uses, allowed: u32, now: u64) -> bool {
        uses.refuse(ID, (NOW - 10, SOON), allowed, now).is_none()
    }

    #[test]
    fn uses_survive_a_restart_and_only_one_server_counts() {
        let directory = underload_disk::faults::private_tempdir().unwrap();
        let home = directory.path().join("state");
        let mut uses = open(&home);
        uses.note(ID, SOON).unwrap();
        assert!(matches!(Uses::open(&home, NOW), Err(ServiceError::InUse { .. })));
        drop(uses);
        let mut uses = open(&home);
        assert!(!is_good(&mut uses, 1, NOW) && is_good(&mut uses, 2, NOW));
        uses.note(ID, SOON).unwrap();
        drop(uses);
        assert!(!is_good(&mut open(&home), 2, NOW));
        let record = fs::metadata(home.join(NAME)).unwrap();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&record.permissions()) & 0o777, 0o600);
    }

    #[test]
    fn a_record_of_an_earlier_version_is_read() {
        let directory = underload_disk::faults::private_tempdir().unwrap();
        let line = "use 07070707070707070707070707070707 1800000900 1 643d717c\n";
        fs::write(directory.path().join(NAME), line.to_owned() + "use 07").unwrap();
        let mut uses = open(directory.path());
        assert!(!is_good(&mut uses, 1, NOW) && is_good(&mut uses, 2, NOW));
    }

    #[test]
    fn a_clock_step_revives_no_expired_token() {
        let directory = underload_disk::faults::private_tempdir().unwrap();
        let mut uses = open(directory.path());
        uses.note(ID, SOON).unwrap();
        assert!(!is_good(&mut uses, 1, SOON + 1));
        assert!(uses.used.is_empty(), "the premise: it was forgotten");
        assert!(!is_good(&mut uses, 1, NOW));
        uses.rewrite().unwrap();
        drop(uses);
        let mut uses = open(directory.path());
        assert!(!is_good(&mut uses, 1, NOW), "nor does a restart in between");
        assert!(uses.refuse([8; 16], (NOW, SOON + 1), 1, NOW).is_none(), "a later one is good");
    }

    #[test]
    fn truncated_or_flipped_records_lose_no_use() {
        let directory = underload_disk::faults::private_tempdir().unwrap();
        let path = directory.path().join(NAME);
        let mut uses = open(directory.path());
        uses.note(ID, SOON).unwrap();
        let one = fs::metadata(&path).unwrap().len() as usize;
        uses.note(ID, SOON).unwrap();
        drop(uses);
        let whole = fs::read(&path).unwrap();
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            // A truncated last line was never granted; complete lines count.
            let mut uses = open(directory.path());
            assert_eq!(is_good(&mut uses, 1, NOW), len < one, "{len}");
            assert!(is_good(&mut uses, 2, NOW), "{len}");
        }
        for place in 0..whole.len() - 1 {
            let mut flipped = whole.clone();
            flipped[place] ^= 1;
            fs::write(&path, &flipped).unwrap();
            let (mut uses, warning) = Uses::open(directory.path(), NOW).unwrap();
            assert!(!is_good(&mut uses, 2, NOW), "bit {place}");
            assert!(warning.unwrap().contains("void"));
            let later = NOW + SKEW;
            assert!(uses.refuse([8; 16], (later, SOON), 1, later).is_none(), "new ones are good");
            drop(uses);
            assert!(!is_good(&mut open(directory.path()), 2, NOW), "still void, and reported once");
        }
    }

    #[test]
    fn a_use_that_cannot_be_recorded_is_not_counted() {
        let directory = underload_disk::faults::private_tempdir().unwrap();
        let mut uses = open(directory.path());
        uses.note(ID, SOON).unwrap();
        for steps in 0..3 {
            let full = Fault::NoSpaceFrom(steps);
            let outcome = faults::with(directory.path(), full, || uses.note(ID, SOON));
            assert_eq!(outcome.result.is_err(), outcome.is_hit, "{full:?}");
            assert!(is_good(&mut uses, 2, NOW));
        }
        uses.note(ID, SOON).unwrap();
        assert!(!is_good(&mut uses, 2, NOW));
        drop(uses);
        let mut uses = open(directory.path());
        assert!(!is_good(&mut uses, 2, NOW) && is_good(&mut uses, 3, NOW));
    }

    #[test]
    fn the_record_stays_short() {
        let directory = underload_disk::faults::private_tempdir().unwrap();
        let mut uses = open(directory.path());
        for _ in 0..LINES_SPARE + 50 {
            uses.note(ID, SOON).unwrap();
        }
        drop(uses);
        let text = fs::read_to_string(directory.path().join(NAME)).unwrap();
        assert!(text.lines().count() < 100, "{}", text.lines().count());
        let mut uses = open(directory.path());
        let count = (LINES_SPARE + 50) as u32;
        assert!(!is_good(&mut uses, count, NOW) && is_good(&mut uses, count + 1, NOW));
    }

    #[test]
    fn tokens_beyond_the_limit_wait_until_one_expires() {
        let mut uses = Uses::default();
        for number in 0..REMEMBERED_MAX as u128 {
            uses.note((number + (1 << 120)).to_be_bytes(), SOON - 1).unwrap();
        }
        assert_eq!(
            uses.refuse(ID, (NOW, SOON), 1, NOW),
            Some("too many tokens are in use here: try again later")
        );
        assert_eq!(uses.refuse(ID, (NOW, SOON), 1, SOON - 1), None);
    }
}
