//! When a series may measure: outside of quiet hours, within a budget of bytes, on a quiet line.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{ToSpan as _, Zoned};
use underload_disk as disk;
use underload_probe::control::in_full;
use underload_probe::network::{Line, busier_bit_per_s, metered};

use super::account::Account;
use super::{Notice, SeriesError, Show};

/// When measurements may start, and how many bytes they may transfer.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    /// Hours of the local day in which no measurement starts.
    pub not: Vec<Hours>,
    /// Bytes per day: a measurement starts if one as large as the last fits, and its load ends when
    /// the bytes are spent.
    pub per_day: Option<u64>,
    /// The line counts as quiet while it carries less than this in each direction, bit/s.
    pub quiet_below: Option<u64>,
}

/// Hours of the local day in which no measurement starts, `FROM` to `TO`; they may pass midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hours {
    /// Minutes since midnight, below [`DAY_MINUTES`].
    from: i16,
    /// Minutes since midnight, at most [`DAY_MINUTES`].
    to: i16,
}

const DAY_MINUTES: i16 = 24 * 60;
/// How long the interface is observed before a measurement, and between two looks at a busy line.
const OBSERVED: Duration = Duration::from_secs(5);
const BUSY_PAUSE: Duration = Duration::from_mins(1);
/// Time between two checks of a budget that another process may free.
const LOOK_PAUSE: Duration = Duration::from_secs(5);

impl FromStr for Hours {
    type Err = &'static str;

    /// Parses `18:00-23:00` or `22:00-06:00`.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        let times = text.split_once('-').map(|(from, to)| (minutes(from), minutes(to)));
        match times {
            Some((Some(from), Some(to))) if from != to && from < DAY_MINUTES => {
                Ok(Self { from, to })
            }
            _ => Err("expected two different times of the local day, such as 18:00-23:00"),
        }
    }
}

/// Parses a time of day as minutes since midnight, up to 24:00.
fn minutes(text: &str) -> Option<i16> {
    let (hour, minute) = text.split_once(':')?;
    if !(1..=2).contains(&hour.len()) || minute.len() != 2 {
        return None;
    }
    let (hour, minute) = (hour.parse::<u8>().ok()?, minute.parse::<u8>().ok()?);
    let minutes = i16::from(hour) * 60 + i16::from(minute);
    (minute < 60 && minutes <= DAY_MINUTES).then_some(minutes)
}

impl Hours {
    fn contains(self, minute: i16) -> bool {
        if self.from < self.to {
            (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from || minute < self.to
        }
    }
}

/// Returns the end of the quiet hours that include `now`; `None` if none does. Hours that follow
/// each other are one.
fn quiet_until(not: &[Hours], now: &Zoned) -> Option<Zoned> {
    let mut at = now.clone();
    let mut until = None;
    // Each of the hours once, and once more for those that begin where the last ones end.
    for _ in 0..=2 * not.len() {
        let minute = i16::from(at.hour()) * 60 + i16::from(at.minute());
        let Some(hours) = not.iter().find(|hours| hours.contains(minute)) else { break };
        let days = i32::from(hours.to <= minute);
        let (days, to) = if hours.to == DAY_MINUTES { (1, 0) } else { (days, hours.to) };
        let date = at.date().checked_add(days.days()).ok()?;
        let time = Time::new((to / 60) as i8, (to % 60) as i8, 0, 0).ok()?;
        let next = date.to_datetime(time).to_zoned(at.time_zone().clone()).ok()?;
        // A clock that is set back repeats an hour.
        at = if next > at { next } else { at.checked_add(1.hours()).ok()? };
        until = Some(at.clone());
    }
    until
}

/// Whether hours leave no minute of the day.
pub fn covers_day(not: &[Hours]) -> bool {
    (0..DAY_MINUTES).all(|minute| not.iter().any(|hours| hours.contains(minute)))
}

/// The limits of a series.
pub struct Courtesy {
    limits: Limits,
    show: Show,
    /// The interfaces whose traffic decides whether the line is quiet.
    line: Line,
    /// No measurement starts while one of these interfaces is metered.
    pub unless_metered: Line,
    /// Whether a load cannot end before its time, so that a budget must have room for all of it.
    pub is_load_fixed: bool,
    zone: TimeZone,
}

/// The permission for one measurement. While it exists, no other process measures within the
/// budget of the series.
pub struct Grant {
    /// Bytes that the measurement may move; `None` without a budget.
    bytes_max: Option<u64>,
    _lock: Option<File>,
}

/// Why a measurement waits.
enum Wait {
    Until(Zoned, String),
    For(Duration, String),
}

impl Courtesy {
    /// Returns limits that watch the traffic of `device`, else that of the default routes.
    pub fn new(limits: Limits, device: Option<&str>, show: Show) -> Self {
        let line = match device {
            Some(name) => Line::Named(vec![name.to_owned()]),
            None => Line::OfDefaultRoutes,
        };
        let (unless_metered, zone) = (line.clone(), local_zone(show));
        Self { limits, show, unless_metered, line, is_load_fixed: false, zone }
    }

    fn now(&self) -> Zoned {
        jiff::Timestamp::now().to_zoned(self.zone.clone())
    }

    fn today(&self) -> Date {
        self.now().date()
    }

    /// Waits until a measurement may start; `None` if interrupted, or if `is_too_late`.
    ///
    /// # Errors
    /// Returns an error if the account cannot be read or the traffic of the line is unknown.
    pub fn wait(
        &self,
        directory: &Path,
        stop: &AtomicBool,
        is_too_late: &dyn Fn() -> bool,
    ) -> Result<Option<Grant>, SeriesError> {
        let mut said = String::new();
        let is_cancelled = || stop.load(Ordering::Relaxed) || is_too_late();
        while !is_cancelled() {
            let wait = match self.ask(directory, stop)? {
                Ok(grant) => return Ok(Some(grant)),
                Err(wait) => wait,
            };
            let (Wait::Until(_, why) | Wait::For(_, why)) = &wait;
            if *why != said {
                (self.show)(Notice::Note(why.clone()));
                said.clone_from(why);
            }
            let is_over = |waited: Duration| match &wait {
                // The clock may jump, and the machine may sleep.
                Wait::Until(until, _) => self.now() >= *until || waited >= BUSY_PAUSE,
                Wait::For(length, _) => waited >= *length,
            };
            let start = std::time::Instant::now();
            while !is_over(start.elapsed()) && !is_cancelled() {
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        Ok(None)
    }

    /// Runs a measurement within its permission, and charges the budget with the bytes that it
    /// returns.
    ///
    /// # Errors
    /// Returns the error of the measurement, or that of an account which cannot be written.
    pub fn charge<T, E: From<SeriesError>>(
        &self,
        directory: &Path,
        grant: &Grant,
        measure: impl FnOnce(Option<u64>) -> (Result<T, E>, u64),
    ) -> Result<T, E> {
        let Some(bytes_max) = grant.bytes_max else { return measure(None).0 };
        let reserved = Account::reserve(directory, self.today(), bytes_max)?;
        let (measured, moved) = measure(Some(bytes_max));
        match Account::settle(directory, self.today(), reserved, moved) {
            Ok(account) => self.show_use(&account),
            Err(error) => {
                let error = in_full(&error);
                (self.show)(Notice::Warning(format!("the account of bytes: {error}")));
            }
        }
        measured
    }

    /// Returns the permission for a measurement, or the wait before the next attempt.
    fn ask(&self, directory: &Path, stop: &AtomicBool) -> Result<Result<Grant, Wait>, SeriesError> {
        if let Some(metered) = metered(&self.unless_metered) {
            let why = format!("{metered}: no measurement until that changes");
            return Ok(Err(Wait::For(BUSY_PAUSE, why)));
        }
        let has_budget = self.limits.per_day.is_some();
        let account = || if has_budget { Account::read(directory) } else { Ok(Account::default()) };
        if let Some(wait) = self.by_clock(&account()?)? {
            return Ok(Err(wait));
        }
        if let Some(wait) = self.by_traffic(stop)? {
            return Ok(Err(wait));
        }
        if !has_budget {
            return Ok(Ok(Grant { bytes_max: None, _lock: None }));
        }
        // A separate file, because each step of the account locks the directory.
        let path = directory.join(LOCKED);
        let lock = match disk::lock_directory(&path, Duration::ZERO) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let why = "another process measures within this budget".to_owned();
                return Ok(Err(Wait::For(LOOK_PAUSE, why)));
            }
            lock => lock.map_err(|source| SeriesError::File { path, source })?,
        };
        // The other process may have spent the budget meanwhile.
        let account = account()?;
        if let Some(wait) = self.by_clock(&account)? {
            return Ok(Err(wait));
        }
        Ok(Ok(Grant { bytes_max: self.left_bytes(&account), _lock: Some(lock) }))
    }

    /// Returns the bytes that the budget leaves; `None` without a budget.
    fn left_bytes(&self, account: &Account) -> Option<u64> {
        let used = account.on(self.today()).day_bytes;
        self.limits.per_day.map(|limit| limit.saturating_sub(used))
    }

    /// Returns the wait that quiet hours or the budget demand.
    fn by_clock(&self, account: &Account) -> Result<Option<Wait>, SeriesError> {
        let now = self.now();
        if let Some(until) = quiet_until(&self.limits.not, &now) {
            let why = format!("quiet hours: no measurement before {}", until.strftime("%H:%M"));
            return Ok(Some(Wait::Until(until, why)));
        }
        let Some(limit) = self.limits.per_day else { return Ok(None) };
        let account = account.on(now.date());
        let (used, next) = (account.day_bytes, account.last_bytes);
        if next > limit && self.is_load_fixed {
            return Err(SeriesError::SmallBudget { limit: mb(limit), last: mb(next) });
        }
        // A load without a fixed length stops when its budget is used up.
        let next = next.min(limit);
        if used.saturating_add(next.max(1)) <= limit {
            return Ok(None);
        }
        let until = now.tomorrow().and_then(|it| it.start_of_day());
        let until = until.map_err(|_| SeriesError::Calendar)?;
        let why = format!(
            "budget: {} of {} are used, and a measurement takes {}; the next one is after {}",
            mb(used),
            mb(limit),
            mb(next),
            until.strftime("%Y-%m-%d %H:%M")
        );
        Ok(Some(Wait::Until(until, why)))
    }

    /// Returns a wait if the line carries more than the limit.
    fn by_traffic(&self, stop: &AtomicBool) -> Result<Option<Wait>, SeriesError> {
        let Some(limit) = self.limits.quiet_below else { return Ok(None) };
        let read = || self.line.bytes().ok_or(SeriesError::NoDefaultRoute);
        let (before, start) = (read()?, std::time::Instant::now());
        while start.elapsed() < OBSERVED && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(200));
        }
        let rate = busier_bit_per_s(before, read()?, start.elapsed());
        let why =
            format!("the line is in use; a measurement waits until it is quiet ({limit} bit/s)");
        Ok((rate > limit).then_some(Wait::For(BUSY_PAUSE, why)))
    }

    /// Shows what the series has used of its budget.
    fn show_use(&self, account: &Account) {
        let used = mb(account.on(self.today()).day_bytes);
        let limit = self.limits.per_day.map_or(String::new(), |limit| format!(" of {}", mb(limit)));
        (self.show)(Notice::Note(format!("used: {used}{limit} today")));
    }
}

/// The file of a series that is locked while a process measures within a budget.
const LOCKED: &str = "series.json";

/// Formats bytes as MB.
fn mb(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// Returns the time zone of this machine: `TZ`, `/etc/localtime`, `/etc/TZ` (OpenWrt), else UTC.
/// An unknown `TZ` is shown as a warning.
pub fn local_zone(show: Show) -> TimeZone {
    let of_file = |path: &Path| TimeZone::tzif("local", &fs::read(path).ok()?).ok();
    let of_text = |text: &str| {
        let text = text.trim().trim_start_matches(':');
        let is_name = !text.is_empty() && !text.contains("..");
        let named = || of_file(&Path::new("/usr/share/zoneinfo").join(text));
        is_name.then(named).flatten().or_else(|| TimeZone::posix(text).ok())
    };
    if let Ok(text) = std::env::var("TZ").map(|text| text.trim().to_owned())
        && !text.is_empty()
    {
        return of_text(&text).unwrap_or_else(|| {
            let problem = "is no known time zone; hours and days are those of UTC";
            show(Notice::Warning(format!("TZ: {text:?} {problem}")));
            TimeZone::UTC
        });
    }
    let system = || of_file(Path::new("/etc/localtime"));
    let openwrt = || of_text(&fs::read_to_string("/etc/TZ").ok()?);
    system().or_else(openwrt).unwrap_or(TimeZone::UTC)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Zoned {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        text.parse::<jiff::civil::DateTime>().unwrap().to_zoned(zone).unwrap()
    }

    fn until(not: &[&str], now: &str) -> Option<String> {
        let not: Vec<Hours> = not.iter().map(|text| text.parse().unwrap()).collect();
        quiet_until(&not, &at(now)).map(|it| it.strftime("%m-%d %H:%M").to_string())
    }

    #[test]
    fn times_of_the_day_are_parsed_or_refused() {
        let hours = str::parse::<Hours>;
        assert_eq!(hours("18:00-23:00"), Ok(Hours { from: 1_080, to: 1_380 }));
        assert_eq!(hours("6:30-24:00"), Ok(Hours { from: 390, to: 1_440 }));
        for wrong in [
            "", "18-23", "18:00", "18:00-18:00", "25:00-26:00", "18:60-19:00", "24:00-1:00",
            "-1:00-2:00", "18:0-19:00", "18:00-23:00-1:00", "١٨:00-19:00",
        ] {
            assert!(hours(wrong).is_err_and(|told| told.contains("18:00-23:00")), "{wrong}");
        }
    }

    #[test]
    fn quiet_hours_end_on_the_right_day() {
        assert_eq!(until(&["18:00-23:00"], "2026-11-24T17:59:59"), None);
        assert_eq!(until(&["18:00-23:00"], "2026-11-24T18:00:00").unwrap(), "11-24 23:00");
        assert_eq!(until(&["18:00-23:00"], "2026-11-24T23:00:00"), None);
        assert_eq!(until(&["22:00-06:00"], "2026-11-24T23:30:00").unwrap(), "11-25 06:00");
        assert_eq!(until(&["22:00-06:00"], "2026-11-25T03:00:00").unwrap(), "11-25 06:00");
        assert_eq!(until(&["18:00-24:00"], "2026-12-31T20:00:00").unwrap(), "01-01 00:00");
        let both = ["18:00-23:00", "23:00-01:00"];
        assert_eq!(
            until(&both, "2026-11-24T18:30:00").unwrap(),
            "11-25 01:00",
            "one after another"
        );
    }

    #[test]
    fn quiet_hours_survive_the_change_of_the_clock() {
        // Spring: 02:30 does not exist, and the hours end at 03:30.
        assert_eq!(until(&["01:00-02:30"], "2026-03-29T01:15:00").unwrap(), "03-29 03:30");
        // Autumn: the hour from 02:00 comes twice.
        assert!(until(&["02:00-03:00"], "2026-10-25T02:30:00").is_some());
    }

    #[test]
    fn hours_that_cover_the_day_are_found() {
        let not = |texts: &[&str]| -> Vec<Hours> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        assert!(covers_day(&not(&["00:00-24:00"])));
        assert!(covers_day(&not(&["06:00-18:00", "18:00-06:00"])));
        assert!(!covers_day(&not(&["06:00-18:00", "18:01-06:00"])));
        assert!(until(&["06:00-18:00", "18:00-06:00"], "2026-11-24T12:00:00").is_some(), "it ends");
    }

    fn courtesy(per_day: Option<u64>) -> Courtesy {
        Courtesy {
            limits: Limits { per_day, ..Limits::default() },
            show: |_| {},
            unless_metered: Line::Ignored,
            line: Line::Ignored,
            is_load_fixed: false,
            zone: TimeZone::UTC,
        }
    }

    #[test]
    fn a_budget_is_respected_and_one_that_is_too_small_refused() {
        let account =
            |used| Account::of(jiff::Timestamp::now().to_zoned(TimeZone::UTC).date(), used, 100);
        let waits =
            |per_day, used| courtesy(per_day).by_clock(&account(used)).map(|wait| wait.is_some());
        assert!(!waits(Some(1_000), 900).unwrap());
        assert!(waits(Some(1_000), 901).unwrap());
        assert!(!waits(None, u64::MAX).unwrap());
        assert!(!waits(Some(99), 0).unwrap(), "its load ends with the budget");
        assert!(waits(Some(99), 1).unwrap());
        assert!(waits(Some(0), 0).unwrap());
        let mut fixed = courtesy(Some(99));
        fixed.is_load_fixed = true;
        let Err(error) = fixed.by_clock(&account(0)) else { panic!("a load of 100 bytes fits") };
        assert!(
            error.to_string().starts_with("the budget per day: 0.0 MB are less than"),
            "{error}"
        );
        fixed.limits.per_day = Some(100);
        assert!(fixed.by_clock(&account(0)).unwrap().is_none());
        assert!(fixed.by_clock(&account(1)).unwrap().is_some());
    }

    #[test]
    fn two_processes_never_measure_at_once_and_share_one_budget() {
        let directory = underload_disk::faults::private_tempdir().unwrap();
        let path = directory.path();
        fs::write(path.join(LOCKED), "{}").unwrap();
        let courtesy = courtesy(Some(800));
        let ask = || courtesy.ask(path, &AtomicBool::new(false)).unwrap();
        let Ok(first) = ask() else { panic!("the first is refused") };
        assert_eq!(first.bytes_max, Some(800));
        assert!(ask().is_err(), "another process measures");
        let today = courtesy.today();
        let reserved = Account::reserve(path, today, 800).unwrap();
        Account::settle(path, today, reserved, 300).unwrap();
        drop(first);
        let Ok(second) = ask() else { panic!("the second is refused") };
        assert_eq!(second.bytes_max, Some(500));
        drop(second);
        Account::settle(path, today, 0, 300).unwrap();
        assert!(ask().is_err(), "200 are left, and a measurement takes 300");
    }
}
