//! Results and the state of a device on disk, until an orchestrator has stored the results.
//!
//! Lines are appended to a file and synced before they count. A new file begins when the last one
//! is long enough; the oldest file is deleted once all of its results are acknowledged. All files
//! together stay below a limit: if results wait for too long, the oldest are dropped and counted.
//! Each line has a checksum. A line that a kill or a power cut left incomplete is ignored, because
//! it was never reported as stored. If a complete line is damaged, other lines may have been lost
//! with it, so that a new epoch of result numbers begins.
//!
//! Opening a spool writes what still counts into new files and then removes the old ones, so that
//! damage and leftovers are read only once.

mod line;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::{fs, io};

use line::{Line, State};
use underload_disk::{self as disk, Access, Journal};
use underload_fleet::agent::{Began, Memory, Usage};
use underload_fleet::message::{Numbered, REQUEST_MAX};
use underload_fleet::outcome::RunResult;

#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    bytes_max: u64,
    /// Existing files, oldest first; lines are appended to the last.
    files: VecDeque<SpoolFile>,
    /// `None` before the first line of a file, and after an error.
    journal: Option<Journal>,
    state: State,
    waiting: VecDeque<Entry>,
    _lock: fs::File,
}

#[derive(Debug)]
struct SpoolFile {
    number: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Entry {
    epoch: u32,
    sequence: u64,
    /// Number of the file that contains the result.
    file: u64,
    /// [`Numbered`] in JSON.
    json: String,
}

/// Results for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Epoch of all results.
    pub epoch: u32,
    /// Number of the last result.
    pub through: u64,
    /// [`underload_fleet::message::Results`] in JSON.
    pub body: String,
}

/// Default of the limit on disk, in bytes.
pub const BYTES_DEFAULT: u64 = 1 << 20;
/// Smallest limit: less would not fit the result of a run.
pub const BYTES_MIN: u64 = 64 << 10;
/// Number of files that the limit is divided into.
const FILES: u64 = 8;
/// Longest line with a device's state, in bytes.
const STATE_MAX: u64 = 4 << 10;
const NAME_PREFIX: &str = "spool-";

impl Spool {
    /// Opens the spool in `directory`, which is created if it is missing. An epoch that begins now
    /// has the number `now_s`, seconds since 1970, or one more than the last.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if another agent uses the directory.
    pub fn open(directory: &Path, bytes_max: u64, now_s: u32) -> io::Result<Self> {
        disk::create_directory(directory, Access::Owner)?;
        let lock = disk::lock_directory(directory, std::time::Duration::from_secs(2));
        let lock = lock.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::Error::new(error.kind(), "another agent uses it"),
            _ => error,
        })?;
        let found = line::read_all(directory, NAME_PREFIX)?;
        let mut state = found.state.unwrap_or_default();
        let last_epoch = found.results.last().map_or(0, |(epoch, ..)| *epoch);
        state.epoch = state.epoch.max(last_epoch);
        if found.is_damaged || found.files.is_empty() {
            state.begin_epoch(now_s);
        }
        state.dropped += found.results_damaged;
        let next = found.files.last().map_or(1, |last| last + 1);
        let mut spool = Self {
            directory: directory.to_owned(),
            bytes_max: bytes_max.max(BYTES_MIN),
            files: VecDeque::new(),
            journal: None,
            state,
            waiting: VecDeque::new(),
            _lock: lock,
        };
        spool.begin_file(next)?;
        for (epoch, sequence, json) in found.results {
            spool.make_room(json.len() as u64)?;
            spool.append_result(epoch, sequence, json)?;
        }
        spool.sync()?;
        for number in found.files {
            disk::remove(&spool.path(number))?;
        }
        Ok(spool)
    }

    /// See [`underload_fleet::message::Next::epoch`].
    pub fn epoch(&self) -> u32 {
        self.state.epoch
    }

    /// Number of results that are not acknowledged.
    pub fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Number of results that were lost.
    pub fn dropped(&self) -> u64 {
        self.state.dropped
    }

    /// Size on disk, in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Returns the state that an agent needs to continue.
    pub fn memory(&self) -> Memory {
        let began = self.state.began.clone();
        let interrupted = began.clone().filter(|_| self.state.is_running);
        let State { request, usage, .. } = self.state.clone();
        Memory { request, began, interrupted, usage, alone: None, removal: None }
    }

    /// Stores runs and traffic with the next line that is written.
    pub fn set_usage(&mut self, usage: &Usage) {
        self.state.usage.clone_from(usage);
    }

    /// Stores runs and traffic now.
    pub fn note_usage(&mut self, usage: &Usage) -> io::Result<()> {
        self.change(|state| state.usage.clone_from(usage))
    }

    /// Stores the number of a request. If this or another change fails, the state is unchanged.
    pub fn note_request(&mut self, request: u64) -> io::Result<()> {
        if request == self.state.request {
            return Ok(());
        }
        self.change(|state| state.request = request)
    }

    /// Stores that a run began.
    pub fn note_began(&mut self, began: &Began) -> io::Result<()> {
        self.change(|state| {
            state.is_running = true;
            state.began = Some(began.clone());
        })
    }

    /// Stores a result durably.
    ///
    /// # Errors
    /// [`io::ErrorKind::FileTooLarge`] for a result of more than an eighth of the limit.
    pub fn keep(&mut self, result: &RunResult) -> io::Result<()> {
        // The number is used up even if an error follows, because the line may be on disk.
        self.state.sequence += 1;
        let (epoch, sequence) = (self.state.epoch, self.state.sequence);
        let numbered = Numbered { sequence, result: result.clone() };
        let json = serde_json::to_string(&numbered)?;
        if json.len() as u64 > self.bytes_max / FILES - STATE_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.make_room(json.len() as u64)?;
        self.append_result(epoch, sequence, json)?;
        if let Err(error) = self.sync() {
            self.waiting.pop_back();
            return Err(error);
        }
        let is_of_run = |began: &Began| began.plan == result.plan && began.run == result.run;
        if self.state.began.as_ref().is_some_and(is_of_run) {
            self.state.is_running = false;
        }
        Ok(())
    }

    /// Returns at most `most` of the oldest results, all of one epoch; `None` if none wait.
    pub fn oldest(&self, most: usize) -> Option<Batch> {
        let epoch = self.waiting.front()?.epoch;
        let mut body = format!("{{\"epoch\":{epoch},\"results\":[");
        let mut through = 0;
        let same = self.waiting.iter().take_while(|entry| entry.epoch == epoch);
        for entry in same.take(most) {
            if through > 0 && body.len() + entry.json.len() + 3 > REQUEST_MAX {
                break;
            }
            if through > 0 {
                body.push(',');
            }
            body.push_str(&entry.json);
            through = entry.sequence;
        }
        body.push_str("]}");
        Some(Batch { epoch, through, body })
    }

    /// Deletes acknowledged results. After a failure they are sent again, which changes nothing.
    pub fn note_stored(&mut self, epoch: u32, through: u64) {
        let is_stored = |entry: &Entry| (entry.epoch, entry.sequence) <= (epoch, through);
        while self.waiting.front().is_some_and(is_stored) {
            self.waiting.pop_front();
        }
        let _ = self.change(|state| state.stored = (epoch, through));
        // Files without results are also deleted when space is needed.
        let _ = self.remove_empty();
    }

    /// Drops the oldest result and counts it as lost.
    pub fn discard(&mut self) {
        if let Some(entry) = self.waiting.pop_front() {
            let stored = (entry.epoch, entry.sequence);
            let _ = self.change(|state| {
                state.stored = stored;
                state.dropped += 1;
            });
        }
    }

    /// Begins a new epoch with the number `now_s`, seconds since 1970, or one more than the last.
    pub fn renew(&mut self, now_s: u32) -> io::Result<()> {
        self.change(|state| state.begin_epoch(now_s))
    }

    /// Changes the state and syncs it, together with results that were appended and are not synced.
    fn change(&mut self, change: impl FnOnce(&mut State)) -> io::Result<()> {
        let before = self.state.clone();
        change(&mut self.state);
        let text = Line::State(&self.state).text();
        let written = text.and_then(|text| self.append(&text)).and_then(|()| self.sync());
        if written.is_err() {
            // A number that may be on disk is not used again.
            let sequence = self.state.sequence.max(before.sequence);
            self.state = before;
            self.state.sequence = sequence;
        }
        written
    }

    fn append_result(&mut self, epoch: u32, sequence: u64, json: String) -> io::Result<()> {
        self.append(&Line::Result { epoch, json: &json }.text()?)?;
        let file = self.files.back().map_or(0, |file| file.number);
        self.waiting.push_back(Entry { epoch, sequence, file, json });
        Ok(())
    }

    /// Deletes the oldest files until `bytes` and a state fit below the limit.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        let needed = bytes + STATE_MAX;
        while self.bytes() + needed > self.bytes_max {
            if self.files.len() < 2 {
                self.begin_file(self.next_number())?;
            }
            self.drop_oldest_file()?;
        }
        Ok(())
    }

    /// Drops the results of the oldest file. They are counted as lost before the file is removed,
    /// so that the count survives a kill in between.
    fn drop_oldest_file(&mut self) -> io::Result<()> {
        let Some(oldest) = self.files.front().map(|file| file.number) else { return Ok(()) };
        let lost: Vec<_> = self.waiting.iter().take_while(|entry| entry.file <= oldest).collect();
        if let Some(last) = lost.last() {
            let (stored, count) = ((last.epoch, last.sequence), lost.len());
            self.change(|state| {
                state.stored = stored;
                state.dropped += count as u64;
            })?;
            self.waiting.drain(..count);
        }
        disk::remove(&self.path(oldest))?;
        self.files.pop_front();
        Ok(())
    }

    fn remove_empty(&mut self) -> io::Result<()> {
        let first = self.waiting.front().map_or(u64::MAX, |entry| entry.file);
        while self.files.len() > 1 && self.files.front().is_some_and(|file| file.number < first) {
            let Some(file) = self.files.front() else { break };
            disk::remove(&self.path(file.number))?;
            self.files.pop_front();
        }
        Ok(())
    }

    /// Appends a line to the last file, or to a new one if that is full or broken.
    fn append(&mut self, text: &str) -> io::Result<()> {
        let is_full = self.files.back().is_none_or(|last| last.bytes >= self.bytes_max / FILES);
        if is_full || self.journal.as_ref().is_none_or(Journal::is_torn) {
            self.sync()?;
            self.begin_file(self.next_number())?;
        }
        let (Some(journal), Some(last)) = (&mut self.journal, self.files.back_mut()) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        journal.append(text.as_bytes())?;
        last.bytes = journal.bytes();
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let synced = self.journal.as_ref().map_or(Ok(()), Journal::sync);
        if synced.is_err() {
            // After an error it is unknown which lines are on disk.
            self.journal = None;
        }
        synced
    }

    fn begin_file(&mut self, number: u64) -> io::Result<()> {
        let path = self.path(number);
        let text = Line::State(&self.state).text()?;
        match Journal::create(&path, text.as_bytes(), Access::Owner) {
            Ok(journal) => {
                self.files.push_back(SpoolFile { number, bytes: journal.bytes() });
                self.journal = Some(journal);
                Ok(())
            }
            Err(error) => {
                // The next attempt uses the same name.
                let _ = disk::remove(&path);
                Err(error)
            }
        }
    }

    fn next_number(&self) -> u64 {
        self.files.back().map_or(1, |last| last.number + 1)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{NAME_PREFIX}{number:010}"))
    }
}

#[cfg(test)]
mod tests;
