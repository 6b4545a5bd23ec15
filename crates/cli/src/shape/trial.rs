//! `underload shape trial`: hours with and without a shaper, drawn by lot, and what they show.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use jiff::Timestamp;
use underload_disk::{self as disk, Access, Journal};
use underload_line::Place;
use underload_line::history::{History, collect};
use underload_line::series::Courtesy;
use underload_measure::followed;
use underload_probe::preset::{Knobs, Preset};
use underload_record::history::{CONTRAST_CONFIDENCE, Contrast, Followed, RUNS_MIN, Windows};
use underload_record::schema::{Direction, PerDirection, TrialRecord};
use underload_report::{HistoryPage, history_page, plain_text, replace_page, significant};
use underload_shape::machine::{self, ApplyError, Lasts, Session, Temporary};
use underload_shape::request::Request;
use underload_shape::trial::{Hour, Log, Plan, Position, SLOTS_MAX, SLOTS_MIN, Settings};
use underload_store::RunDir;
use underload_store::series::Series;
use underload_terminal::console::{self, note, warning};
use underload_terminal::exit::{OrBadInput as _, refuse};
use underload_terminal::interrupt::Interrupt;

use super::apply::Shaping;
use super::require_rights;
use crate::measure::{self, CourtesyOptions, ServerOptions, worded};
use crate::present::refuse_occupied;

#[derive(Debug, Args)]
#[command(after_help = "\
Of each two hours one is shaped, drawn by lot; each hour is measured once. At the end the hours are
compared, with a 99 % interval of the difference. If the p99 under load is lower with the shaper, it
stays on until the machine restarts; if not, the line is as before. The plan is in --out: after a
restart the same command continues it.

Examples:
  sudo underload shape trial example.net --dev eth0 --up 18mbit --down 90mbit
  sudo underload shape trial example.net --dev eth0 --down 90mbit --days 14 --not 18:00-23:00
  sudo underload shape trial example.net --dev wan --up 18mbit --per-day 2GB --out /root/trial")]
pub struct Arguments {
    /// A host with `underload serve`: a name or an address, with :PORT unless it is 4862.
    host: String,
    #[command(flatten)]
    shaping: Shaping,
    /// Length of the trial in days.
    #[arg(long, value_name = "N", default_value_t = 7, conflicts_with = "hours")]
    days: u32,
    /// Length of the trial in hours, from 12 on, instead of --days.
    #[arg(long, value_name = "N")]
    hours: Option<u32>,
    /// Replaces a shaper that underload did not set up in the hours with ours.
    #[arg(long, hide_short_help = true)]
    replace: bool,
    #[command(flatten)]
    courtesy: CourtesyOptions,
    #[command(flatten)]
    server: ServerOptions,
    /// The directory of the plan and of all measurements [default: runs/trial-DEV].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Labels of the runs, by which `underload history` compares them, too.
const LABELS: [&str; 2] = ["without the shaper", "with the shaper"];
/// The trial compares this number of each hour: the longer of the two delays.
const WHAT: &str = "p99 under load, beside or inside it";
/// The plan and its hours.
const FILE: &str = "trial.jsonl";
const PAGE: &str = "trial.html";
/// A longer file is no plan.
const FILE_MAX: u64 = 16 << 20;
/// How long a change may outlast its hour, if this process hangs.
const SLACK: Duration = Duration::from_mins(5);
/// Interval between looks at the clock, which may jump.
const POLL: Duration = Duration::from_millis(500);

impl Arguments {
    pub fn run(&self) -> anyhow::Result<()> {
        let request = self.shaping.request()?;
        let slots = self.slots()?;
        self.courtesy.check().or_bad_input()?;
        let new = || PathBuf::from("runs").join(format!("trial-{}", request.device));
        let directory = self.out.clone().unwrap_or_else(new);
        let measurement = self.measurement(&request, false, None);
        measurement.check().map_err(|error| worded(error.into()))?;
        require_rights("trial")?;
        let interrupt = Interrupt::watch()?;
        let session = Session::open()?;
        let plan = || Plan { start_s: now_s(), slots, seed: measure::seed() };
        let new = || Settings::new(plan(), measurement.shown_host(), request.apply_command());
        // Shapes for an instant, so that a device that cannot be shaped is refused now.
        let try_shaping = || -> anyhow::Result<()> {
            let change = Temporary::apply(&session, &request, self.replace, SLACK);
            Ok(change.bad_input_if(ApplyError::is_refusal)?.end()?)
        };
        let is_new = !directory.join(FILE).exists();
        if is_new {
            // Before the plan is written: the corrected command would not match it.
            refuse_occupied(RunDir::check_vacant(&directory))?;
            try_shaping()?;
        }
        let (_lock, journal, log) = open(&directory, new)?;
        let mut trial = Trial {
            arguments: self,
            request: &request,
            session: &session,
            interrupt: &interrupt,
            courtesy: self.courtesy.courtesy(Some(&request.device)),
            directory: &directory,
            journal,
            log,
        };
        trial.check_settings(&measurement.shown_host())?;
        if trial.plan().position(now_s()) == Position::After {
            note!("{}: this trial is over; nothing is changed", directory.display());
            return trial.result().map(drop);
        }
        if !is_new {
            try_shaping()?;
        }
        trial.run()?;
        trial.conclude()
    }

    fn slots(&self) -> anyhow::Result<u32> {
        let hours = self.hours.unwrap_or(self.days.saturating_mul(24));
        if !(SLOTS_MIN..=SLOTS_MAX).contains(&hours) {
            refuse!("--days, --hours: expected {SLOTS_MIN} hours to {} days", SLOTS_MAX / 24);
        }
        // Blocks have two hours.
        Ok(hours.next_multiple_of(2))
    }

    fn measurement(
        &self,
        request: &Request,
        is_shaped: bool,
        bytes_max: Option<u64>,
    ) -> underload_line::Request {
        underload_line::Request {
            interface: Some(request.device.clone()),
            bytes_max,
            label: LABELS[usize::from(is_shaped)].to_owned(),
            ..self.server.request(&self.host, Preset::Quick, Knobs::default())
        }
    }
}

/// Opens the log of a trial, or begins a trial. The lock keeps other processes from beginning or
/// continuing it.
fn open(directory: &Path, new: impl FnOnce() -> Settings) -> anyhow::Result<(File, Journal, Log)> {
    let path = directory.join(FILE);
    let name = || path.display().to_string();
    let created = disk::create_directory(directory, Access::Usual);
    created.with_context(|| directory.display().to_string())?;
    match disk::create_new(&path, Access::Usual) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(error).with_context(name);
        }
        _ => {}
    }
    let lock = disk::lock_directory(&path, Duration::ZERO);
    let lock = lock.with_context(|| format!("{}: another process runs this trial", name()))?;
    let (mut journal, lines) = Journal::open(&path, FILE_MAX, Access::Usual).with_context(name)?;
    let log = match Log::parse(lines.iter()).with_context(name).or_bad_input()? {
        Some(log) => log,
        None => {
            let log = Log::new(new());
            let line = serde_json::to_string(&log.settings)? + "\n";
            journal.append_synced(line.as_bytes()).with_context(name)?;
            log
        }
    };
    // Processes that share a budget lock a file of the series.
    Series::open(directory, &format!("{:016x}", log.settings.plan.seed))?;
    Ok((lock, journal, log))
}

/// A trial that runs.
struct Trial<'a> {
    arguments: &'a Arguments,
    request: &'a Request,
    session: &'a Session,
    interrupt: &'a Interrupt,
    courtesy: Courtesy,
    directory: &'a Path,
    journal: Journal,
    log: Log,
}

impl Trial<'_> {
    fn plan(&self) -> Plan {
        self.log.settings.plan
    }

    fn is_in(&self, slot: u32) -> bool {
        self.plan().position(now_s()) == Position::In { slot }
    }

    /// Refuses to continue a trial of something else.
    fn check_settings(&self, host: &str) -> anyhow::Result<()> {
        let Settings { host: old_host, shaping: old, .. } = &self.log.settings;
        let new = self.request.apply_command();
        if *old != new || old_host != host {
            refuse!(
                "{}: its trial is of `{old}` with {old_host}, not of `{new}` with {host}: choose \
                 another --out",
                self.directory.display()
            );
        }
        Ok(())
    }

    /// Shapes and measures hour by hour until the plan ends.
    fn run(&mut self) -> anyhow::Result<()> {
        let plan = self.plan();
        let zone = measure::local_zone();
        let end = Timestamp::from_second(plan.ends_s(plan.slots - 1))?.to_zoned(zone);
        note!(
            "{}: {} hours, seed {}, until {}; {} are measured",
            self.directory.display(),
            plan.slots,
            plan.seed,
            end.strftime("%Y-%m-%d %H:%M"),
            self.log.measured()
        );
        loop {
            let position = plan.position(now_s());
            match position {
                Position::After => return Ok(()),
                Position::Before => {
                    note!("the clock is before the start of the trial: waiting until it is right");
                }
                Position::In { slot } => {
                    let outcome = self.hour(slot);
                    if let Err(error) = outcome.as_ref()
                        && !self.interrupt.is_requested()
                    {
                        warning!("hour {} of {}: {error:#}", slot + 1, plan.slots);
                    }
                }
            }
            // An hour that failed is not tried again.
            self.wait(|| plan.position(now_s()) != position);
            if self.interrupt.is_requested() {
                return Err(self.interrupt.stopped(anyhow::anyhow!(
                    "{} is as it was before; the same command continues the trial",
                    self.request.device
                )));
            }
        }
    }

    /// Shapes the line for an hour if its lot says so, and measures it once.
    fn hour(&mut self, slot: u32) -> anyhow::Result<()> {
        let is_shaped = self.plan().is_shaped(slot);
        let left_s = self.plan().ends_s(slot).saturating_sub(now_s()).max(0);
        let at_most = Duration::from_secs(left_s.unsigned_abs()) + SLACK;
        let apply =
            || Temporary::apply(self.session, self.request, self.arguments.replace, at_most);
        let change = is_shaped.then(apply).transpose().bad_input_if(ApplyError::is_refusal)?;
        if !self.log.has(slot)
            && let Some(hour) = self.measure(slot, is_shaped)?
        {
            // An hour whose shaper another command removed shows nothing.
            change.as_ref().map_or(Ok(()), Temporary::check)?;
            let line = serde_json::to_string(&hour)? + "\n";
            self.journal.append_synced(line.as_bytes()).context(FILE)?;
            self.log.add(hour);
        }
        self.wait(|| !self.is_in(slot));
        Ok(change.map_or(Ok(()), Temporary::end)?)
    }

    /// Measures an hour; `None` if quiet hours, a pause, the budget or the line left no time.
    fn measure(&self, slot: u32, is_shaped: bool) -> anyhow::Result<Option<Hour>> {
        let starts_s = self.plan().measured_at_s(slot);
        self.wait(|| now_s() >= starts_s || !self.is_in(slot));
        let is_over = || !self.is_in(slot);
        let Some(grant) = self.courtesy.wait(self.directory, self.interrupt.flag(), &is_over)?
        else {
            return Ok(None);
        };
        self.courtesy.charge(self.directory, &grant, |bytes_max| {
            let request = self.arguments.measurement(self.request, is_shaped, bytes_max);
            match measure::line(&request, Place::In(self.directory), self.interrupt) {
                Ok(measured) => {
                    let moved = measured.findings.iter().map(|finding| finding.moved_bytes).sum();
                    let hour = || {
                        measured.write_files()?;
                        let hour = self.read(&measured.run.trials, slot, is_shaped);
                        measured.into_result(self.interrupt.flag())?;
                        hour.map(Some)
                    };
                    (hour(), moved)
                }
                Err(error) => (Err(error), 0),
            }
        })
    }

    /// Returns the values of a measurement.
    fn read(&self, trials: &[TrialRecord], slot: u32, is_shaped: bool) -> anyhow::Result<Hour> {
        let value = |direction: Direction, wanted: Followed| {
            let is_it = |it: &&TrialRecord| it.variant == direction.name();
            let trial = trials.iter().filter(is_it).find(|it| it.validity.is_valid())?;
            let mut values = followed(trial).into_iter();
            values.find_map(|(followed, value)| (followed == wanted).then_some(value))
        };
        let mut load_p99_ms = 0.0_f64;
        for (direction, _) in self.request.shaped() {
            let Some(beside_ms) = value(direction, Followed::LoadP99) else {
                bail!("step {direction} has no valid p99 under load");
            };
            let inside_ms = value(direction, Followed::InsideP99).unwrap_or(0.0);
            load_p99_ms = load_p99_ms.max(beside_ms).max(inside_ms);
        }
        let goodput_mbit_s = PerDirection::new(
            value(Direction::Up, Followed::GoodputUp),
            value(Direction::Down, Followed::GoodputDown),
        );
        Ok(Hour { slot, is_shaped, load_p99_ms, goodput_mbit_s })
    }

    /// Waits until a condition is met, or until Ctrl-C.
    fn wait(&self, is_over: impl Fn() -> bool) {
        while !is_over() && !self.interrupt.is_requested() {
            std::thread::sleep(POLL);
        }
    }

    /// Prints the result, and shapes the line if the shaper helps.
    fn conclude(&self) -> anyhow::Result<()> {
        let device = &self.request.device;
        if !self.result()? {
            return console::print(&format!("{device}: the shaper is off.\n"));
        }
        let (may_replace, lasts) = (self.arguments.replace, Lasts::Confirmed);
        let settings = machine::Settings { may_replace, lasts };
        self.session.apply(self.request, settings).bad_input_if(ApplyError::is_refusal)?;
        console::print(&format!(
            "{device}: the shaper stays on until the machine restarts; `underload shape write` \
             prints a file for each start, `underload shape off` removes it.\n"
        ))
    }

    /// Prints what the hours show, and writes the page. Returns whether the shaper helps.
    fn result(&self) -> anyhow::Result<bool> {
        let (sentences, helps) = sentences(&self.log);
        let text: String = sentences.iter().map(|line| plain_text(line) + "\n").collect();
        console::print(&text)?;
        match self.page(&sentences) {
            Ok(page) => note!("page: {}", page.display()),
            Err(error) => warning!("no page: {error:#}"),
        }
        Ok(helps)
    }

    /// Writes the page of `history`, with the sentences of the trial instead of those of a trend.
    fn page(&self, sentences: &[String]) -> anyhow::Result<PathBuf> {
        let collected = collect(self.directory, now_s())?;
        let windows = Windows { baseline_s: 7 * 86_400, recent_s: 86_400 };
        let history = History::new(collected, Followed::LoadP99, windows);
        let History { collected, trends, marks, labels, .. } = &history;
        let skipped = &collected.skipped;
        let content = HistoryPage { sentences, trends, marks, labels, skipped };
        let title = format!("A trial of {} on {}", self.request.queue, self.request.device);
        let page = self.directory.join(PAGE);
        replace_page(&page, &history_page(&title, content))?;
        Ok(page)
    }
}

/// Returns what the hours show, and whether the delay is lower with the shaper.
fn sentences(log: &Log) -> (Vec<String>, bool) {
    let values = log.values(|hour| Some(hour.load_p99_ms));
    let [without, with] = &values;
    let Some(contrast) = Contrast::new(with, without) else {
        let (with, without) = (with.len(), without.len());
        let few = format!(
            "{with} hours with the shaper and {without} without it were measured, and a \
             comparison needs {RUNS_MIN} of each: no effect is shown."
        );
        return (vec![few], false);
    };
    let effect = match contrast.is_more() {
        Some(false) => "The shaper helps",
        Some(true) => "The shaper does harm",
        None => "No effect is shown",
    };
    let words = difference(WHAT, "ms", &contrast);
    let mut lines = vec![format!("{effect}: {words}")];
    for direction in Direction::ALL {
        let [without, with] = log.values(|hour| hour.goodput_mbit_s[direction]);
        if let Some(contrast) = Contrast::new(&with, &without) {
            lines.push(difference(&format!("Goodput {direction}"), "Mbit/s", &contrast));
        }
    }
    (lines, contrast.is_more() == Some(false))
}

/// Returns the difference that the shaper makes, with its interval.
fn difference(what: &str, unit: &str, contrast: &Contrast) -> String {
    let Contrast { with, without, shift } = contrast;
    let interval = match (shift.low, shift.high) {
        (Some(low), Some(high)) => format!(
            "{:.0} % interval {} to {}",
            CONTRAST_CONFIDENCE * 100.0,
            signed(low),
            signed(high)
        ),
        _ => "too few hours for an interval".to_owned(),
    };
    format!(
        "{what}: median {} {unit} in {} hours with the shaper, {} {unit} in {} without it; \
         difference {} {unit} ({interval}).",
        significant(with.p50),
        with.runs,
        significant(without.p50),
        without.runs,
        signed(shift.value)
    )
}

fn signed(value: f64) -> String {
    format!("{}{}", if value < 0.0 { "-" } else { "+" }, significant(value.abs()))
}

/// Returns the seconds since 1970.
fn now_s() -> i64 {
    Timestamp::now().as_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the log of a trial of two days. `p99_ms` returns the p99 of a slot by its number and
    /// the side drawn for it.
    fn log(p99_ms: impl Fn(u32, bool) -> f64) -> Log {
        let plan = Plan { start_s: 1_790_000_000, slots: 48, seed: 5 };
        let mut log = Log::new(Settings::new(plan, "a.example".to_owned(), String::new()));
        for slot in 0..48 {
            let is_shaped = plan.is_shaped(slot);
            let down = Some(if is_shaped { 17.9 } else { 19.0 });
            let goodput_mbit_s = PerDirection::new(None, down);
            log.add(Hour { slot, is_shaped, load_p99_ms: p99_ms(slot, is_shaped), goodput_mbit_s });
        }
        log
    }

    #[test]
    fn a_trial_says_whether_the_shaper_helps_and_what_it_costs() {
        let spread = |slot: u32| f64::from(slot * 37 % 48) / 10.0;
        let (lines, helps) =
            sentences(&log(|slot, is_shaped| spread(slot) + if is_shaped { 24.0 } else { 220.0 }));
        assert!(helps);
        assert!(
            lines[0].starts_with(
                "The shaper helps: p99 under load, beside or inside it: median 26.3 ms in 24 hours \
                 with the shaper, 222 ms in 24 without it; difference -196 ms (99 % interval -19"
            ),
            "{lines:?}"
        );
        assert!(lines[1].starts_with("Goodput down: median 17.9 Mbit/s"), "{lines:?}");
        assert_eq!(lines.len(), 2, "goodput up is unknown");
        let (lines, helps) = sentences(&log(|slot, _| 20.0 + spread(slot)));
        assert!(!helps && lines[0].starts_with("No effect is shown: "), "{lines:?}");
        let worse = |slot: u32, is_shaped: bool| spread(slot) + if is_shaped { 90.0 } else { 20.0 };
        let (lines, helps) = sentences(&log(worse));
        assert!(!helps && lines[0].starts_with("The shaper does harm: "), "{lines:?}");
    }

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
            let begin = |seed| scope.spawn(move || open(directory, || new(seed)));
            let begun: Vec<_> = (0..16).map(begin).collect();
            begun.into_iter().map(|it| it.join().expect("no thread panics")).collect()
        });
        let (begun, refused): (Vec<_>, Vec<_>) = all.into_iter().partition(Result::is_ok);
        let [(_lock, _, log)] = &begun.into_iter().flatten().collect::<Vec<_>>()[..] else {
            panic!("not one has it: {refused:?}");
        };
        let text = std::fs::read_to_string(directory.join(FILE)).expect("a log");
        assert_eq!(text, serde_json::to_string(&log.settings).expect("a line") + "\n");
    }

    #[test]
    fn a_trial_of_few_hours_has_no_verdict() {
        let settings = log(|_, _| 1.0).settings;
        let (lines, helps) = sentences(&Log::new(settings));
        assert!(!helps && lines[0].starts_with("0 hours with the shaper and 0 without"));
    }
}
