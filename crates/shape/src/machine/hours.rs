//! Runs the hours of a trial: shapes a line in those that its lots name, and stores what each
//! showed.

use std::error::Error;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use underload_disk::{self as disk, Access, Journal};

use super::error::{ApplyError, TemporaryError};
use super::session::Session;
use super::temporary::Temporary;
use crate::request::Request;
use crate::trial::{Hour, Log, LogError, Position, Settings};

/// The plan and its hours.
const FILE: &str = "trial.jsonl";
/// Maximum size of [`FILE`], bytes; a longer file is rejected.
const FILE_MAX: u64 = 16 << 20;
/// How long a change may outlast its hour, if this process hangs.
const SLACK: Duration = Duration::from_mins(5);
/// Interval between looks at the clock, which may jump.
const POLL: Duration = Duration::from_millis(500);

/// A trial in a directory. While it exists, no other process runs this trial.
#[derive(Debug)]
pub struct Hours {
    path: PathBuf,
    journal: Journal,
    pub log: Log,
    _lock: File,
}

/// Why a trial cannot begin, continue, or measure an hour.
#[derive(Debug, thiserror::Error)]
pub enum HoursError {
    #[error("{}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: another process runs this trial", path.display())]
    Locked { path: PathBuf, source: io::Error },
    #[error("{}", path.display())]
    Log { path: PathBuf, source: LogError },
    #[error(
        "{}: its trial is of `{}` with {}, not of `{}` with {}: choose another --out",
        path.display(), old.shaping, old.host, new.shaping, new.host
    )]
    Other { path: PathBuf, old: Box<Settings>, new: Box<Settings> },
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Shaper(#[from] TemporaryError),
    #[error(transparent)]
    Measure(Cause),
}

impl HoursError {
    /// Whether the directory or the request has to be another one.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Apply(error) => error.is_refusal(),
            error => matches!(error, Self::Log { .. } | Self::Other { .. }),
        }
    }
}

/// The shaper of a trial.
#[derive(Debug, Clone, Copy)]
pub struct Shaper<'a> {
    pub session: &'a Session,
    pub request: &'a Request,
    /// Replaces a shaper that underload did not set up.
    pub may_replace: bool,
}

impl<'a> Shaper<'a> {
    fn apply(&self, at_most: Duration) -> Result<Temporary<'a>, ApplyError> {
        Temporary::apply(self.session, self.request, self.may_replace, at_most)
    }

    /// Shapes the device for an instant, so that one that cannot be shaped is refused.
    ///
    /// # Errors
    /// Returns the error of the change.
    pub fn try_once(&self) -> Result<(), HoursError> {
        Ok(self.apply(SLACK)?.end()?)
    }
}

/// An event of a running trial.
#[derive(Debug)]
pub enum News {
    /// The clock is before the start of the trial, which waits until it is right.
    ClockIsEarly,
    Failed {
        slot: u32,
        error: HoursError,
    },
}

/// The error of a measurement.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Measures a slot of a trial; `None` if it could not be measured in its time.
pub type Measure<'a> = dyn FnMut(&Hours, u32) -> Result<Option<Hour>, Cause> + 'a;

/// Whether a directory has a trial.
pub fn is_begun(directory: &Path) -> bool {
    directory.join(FILE).exists()
}

impl Hours {
    /// Begins a trial with these settings, or continues the trial of a directory.
    ///
    /// # Errors
    /// Returns an error if the directory has another trial, or another process runs this one.
    pub fn open(directory: &Path, new: Settings) -> Result<Self, HoursError> {
        let path = directory.join(FILE);
        let error = |source| HoursError::File { path: path.clone(), source };
        disk::create_directory(directory, Access::Usual).map_err(error)?;
        match disk::create_new(&path, Access::Usual) {
            Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => return Err(error(cause)),
            _ => {}
        }
        let locked = |source| HoursError::Locked { path: path.clone(), source };
        let lock = disk::lock_directory(&path, Duration::ZERO).map_err(locked)?;
        let (mut journal, lines) = Journal::open(&path, FILE_MAX, Access::Usual).map_err(error)?;
        let damaged = |source| HoursError::Log { path: path.clone(), source };
        let log = match Log::parse(lines.iter()).map_err(damaged)? {
            Some(log) => log,
            None => {
                append(&mut journal, &new).map_err(error)?;
                Log::new(new.clone())
            }
        };
        if !log.settings.is_of(&new) {
            let old = Box::new(log.settings);
            return Err(HoursError::Other { path: directory.to_owned(), old, new: Box::new(new) });
        }
        Ok(Self { path, journal, log, _lock: lock })
    }

    /// Returns the position of the present in the plan.
    pub fn position(&self) -> Position {
        self.log.settings.plan.position(now_s())
    }

    /// Shapes and measures hour by hour until the plan ends, or until `is_stopped`. `measure`
    /// returns `None` if quiet hours, a pause, a budget or the line left it no time. An hour that
    /// failed is reported and not tried again.
    pub fn run(
        &mut self,
        shaper: &Shaper<'_>,
        is_stopped: &dyn Fn() -> bool,
        measure: &mut Measure<'_>,
        report: &mut dyn FnMut(News),
    ) {
        loop {
            let position = self.position();
            match position {
                Position::After => return,
                Position::Before => report(News::ClockIsEarly),
                Position::In { slot } => match self.hour(slot, shaper, is_stopped, measure) {
                    Err(error) if !is_stopped() => report(News::Failed { slot, error }),
                    _ => {}
                },
            }
            wait(|| self.position() != position || is_stopped());
            if is_stopped() {
                return;
            }
        }
    }

    /// Shapes the line for an hour if the plan says so, and measures the line once.
    fn hour(
        &mut self,
        slot: u32,
        shaper: &Shaper<'_>,
        is_stopped: &dyn Fn() -> bool,
        measure: &mut Measure<'_>,
    ) -> Result<(), HoursError> {
        let plan = self.log.settings.plan;
        let left_s = plan.ends_s(slot).saturating_sub(now_s()).max(0);
        let at_most = Duration::from_secs(left_s.unsigned_abs()) + SLACK;
        let change = plan.is_shaped(slot).then(|| shaper.apply(at_most)).transpose()?;
        if !self.log.has(slot) {
            let starts_s = plan.measured_at_s(slot);
            wait(|| now_s() >= starts_s || !self.is_in(slot) || is_stopped());
            if let Some(hour) = measure(self, slot).map_err(HoursError::Measure)? {
                // An hour whose shaper another command removed is not evidence for either side.
                change.as_ref().map_or(Ok(()), Temporary::check)?;
                let error = |source| HoursError::File { path: self.path.clone(), source };
                append(&mut self.journal, &hour).map_err(error)?;
                self.log.add(hour);
            }
        }
        wait(|| !self.is_in(slot) || is_stopped());
        Ok(change.map_or(Ok(()), Temporary::end)?)
    }

    /// Whether the present is in a slot of the plan.
    pub fn is_in(&self, slot: u32) -> bool {
        self.position() == Position::In { slot }
    }
}

/// Returns the seconds since 1970.
pub fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn wait(is_over: impl Fn() -> bool) {
    while !is_over() {
        std::thread::sleep(POLL);
    }
}

/// Appends a line that is on the disk when this returns.
fn append(journal: &mut Journal, document: &impl Serialize) -> io::Result<()> {
    let line = serde_json::to_string(document).map_err(io::Error::other)? + "\n";
    journal.append_synced(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::Plan;

    #[test]
    fn only_one_of_several_processes_starts_a_trial() {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = folder.path().join("trial");
        let new = |seed| {
            let plan = Plan { start_s: 1_790_000_000, slots: 48, seed };
            Settings::new(plan, "a.example".to_owned(), String::new())
        };
        let all: Vec<_> = std::thread::scope(|scope| {
            let directory = &directory;
            let begin = |seed| scope.spawn(move || Hours::open(directory, new(seed)));
            let begun: Vec<_> = (0..16).map(begin).collect();
            begun.into_iter().map(|it| it.join().expect("no thread panics")).collect()
        });
        let (begun, refused): (Vec<_>, Vec<_>) = all.into_iter().partition(Result::is_ok);
        let [hours] = &begun.into_iter().flatten().collect::<Vec<_>>()[..] else {
            panic!("not one has it: {refused:?}");
        };
        let text = std::fs::read_to_string(directory.join(FILE)).expect("a log");
        assert_eq!(text, serde_json::to_string(&hours.log.settings).expect("a line") + "\n");
    }
}
