//! The lines of a spool, and reading them.
//!
//! A line is `TAG s STATE` or `TAG r EPOCH RESULT`, with state and result in JSON, which has no
//! line breaks. `TAG` is the first half of the SHA-256 of the rest of the line. It detects bit
//! errors, not attacks.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use underload_disk::Lines;
use underload_fleet::agent::{Began, Usage};
use underload_fleet::message::Numbered;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    /// 0 before the first epoch.
    pub epoch: u32,
    /// Number of the last result of this epoch.
    pub sequence: u64,
    /// Epoch and number of the last result that is acknowledged or lost.
    pub stored: (u32, u64),
    pub dropped: u64,
    pub request: u64,
    pub began: Option<Began>,
    /// Whether the run in `began` has no result.
    pub is_running: bool,
    pub usage: Usage,
}

impl State {
    pub(super) fn begin_epoch(&mut self, now_s: u32) {
        // `u32::MAX` is the epoch of outcomes that orchestrators make. The limit of the clock
        // leaves enough numbers for all later epochs.
        self.epoch = (self.epoch + 1).max(now_s.min(EPOCH_CLOCK_MAX_S)).min(u32::MAX - 1);
        self.sequence = 0;
        self.request = 0;
        // The acknowledged number is of an earlier epoch, so this one starts at its first.
        if let Some(began) = &mut self.began {
            began.request = 0;
        }
    }
}

/// Latest clock that numbers an epoch: the year 2100, seconds since 1970.
const EPOCH_CLOCK_MAX_S: u32 = 4_102_444_800;

pub(super) enum Line<'a> {
    State(&'a State),
    Result { epoch: u32, json: &'a str },
}

impl Line<'_> {
    pub(super) fn text(&self) -> io::Result<String> {
        let words = match self {
            Self::State(state) => format!("s {}", serde_json::to_string(state)?),
            Self::Result { epoch, json } => format!("r {epoch} {json}"),
        };
        Ok(format!("{} {words}\n", tag(&words)))
    }
}

/// The content of a spool's directory.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Numbers of the files in ascending order.
    pub files: Vec<u64>,
    pub state: Option<State>,
    /// Epoch, number and JSON of each result that is not acknowledged, in order.
    pub results: Vec<(u32, u64, String)>,
    pub is_damaged: bool,
    /// Results among the damaged lines.
    pub results_damaged: u64,
}

/// Longest file that is read; more than any limit that makes sense.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Numbers of files: more than any spool uses, so that another one always follows.
const NUMBERS: u64 = 1 << 62;
/// Hexadecimal digits of a line's tag.
const TAG_LEN: usize = 32;

pub(super) fn read_all(directory: &Path, name: &str) -> io::Result<Found> {
    let mut found = Found::default();
    for entry in fs::read_dir(directory)? {
        let entry = entry?.file_name();
        let number = entry.to_str().and_then(|text| text.strip_prefix(name)?.parse::<u64>().ok());
        let is_ours = |number: &u64| *number < NUMBERS && *entry == *format!("{name}{number:010}");
        found.files.extend(number.filter(is_ours));
    }
    found.files.sort_unstable();
    let mut results = BTreeMap::new();
    for number in found.files.clone() {
        let path = directory.join(format!("{name}{number:010}"));
        let lines = Lines::read(&path, FILE_BYTES_MAX)?;
        found.read_lines(&lines, &mut results);
    }
    let state = found.state.clone().unwrap_or_default();
    let waiting = results.into_iter().filter(|(key, _)| *key > state.stored);
    found.results = waiting.map(|((epoch, sequence), json)| (epoch, sequence, json)).collect();
    // The state includes the number of a result only once the next state is written.
    if let (Some(state), Some((epoch, sequence, _))) = (&mut found.state, found.results.last())
        && *epoch == state.epoch
    {
        state.sequence = state.sequence.max(*sequence);
    }
    Ok(found)
}

impl Found {
    fn read_lines(&mut self, lines: &Lines, results: &mut BTreeMap<(u32, u64), String>) {
        // An incomplete line was never reported as stored, or its end is damaged.
        self.is_damaged |= lines.is_empty() || lines.is_torn();
        for line in lines.iter() {
            let words = std::str::from_utf8(line).ok().and_then(checked);
            if words.and_then(|words| self.add(words, results)).is_none() {
                self.is_damaged = true;
                self.results_damaged += u64::from(line.get(TAG_LEN + 1) == Some(&b'r'));
            }
        }
    }

    /// Adds the content of a line; `None` if it is malformed.
    fn add(&mut self, words: &str, results: &mut BTreeMap<(u32, u64), String>) -> Option<()> {
        let (kind, rest) = words.split_once(' ')?;
        match kind {
            "s" => self.state = Some(serde_json::from_str(rest).ok()?),
            "r" => {
                let (epoch, json) = rest.split_once(' ')?;
                let numbered: Numbered = serde_json::from_str(json).ok()?;
                let epoch: u32 = epoch.parse().ok()?;
                results.insert((epoch, numbered.sequence), json.to_owned());
                if let Some(state) = &mut self.state {
                    let result = &numbered.result;
                    let is_of_run =
                        |began: &Began| began.plan == result.plan && began.run == result.run;
                    state.is_running &= !state.began.as_ref().is_some_and(is_of_run);
                }
            }
            _ => return None,
        }
        Some(())
    }
}

fn checked(line: &str) -> Option<&str> {
    let (found, words) = line.split_once(' ')?;
    (found == tag(words)).then_some(words)
}

fn tag(words: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, words.as_bytes());
    let mut text = HEXLOWER.encode(digest.as_ref());
    text.truncate(TAG_LEN);
    text
}
