//! `underload shape trial`: hours with and without a shaper, drawn by lot, and what they show.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Args;
use jiff::Timestamp;
use underload_line::Place;
use underload_line::series::Courtesy;
use underload_measure::followed;
use underload_probe::preset::{Knobs, Preset};
use underload_record::history::Followed;
use underload_record::schema::{Direction, PerDirection, TrialRecord};
use underload_report::{plain_text, trial_sentences};
use underload_shape::machine::hours::{Hours, HoursError, News, Shaper, is_begun, now_s};
use underload_shape::machine::{self, ApplyError, Lasts, Session};
use underload_shape::request::Request;
use underload_shape::trial::{Hour, Plan, Position, Settings};
use underload_store::series::Series;
use underload_store::{RunDir, StoreError};
use underload_terminal::console::{self, note, shell_word, warning};
use underload_terminal::exit::OrBadInput as _;
use underload_terminal::interrupt::Interrupt;
use underload_terminal::quantity::from_to;

use super::apply::Shaping;
use super::require_rights;
use crate::measure::{self, CourtesyOptions, ServerOptions, worded};

#[derive(Debug, Args)]
#[command(after_help = "\
Of each two hours one is shaped, drawn by lot; each hour is measured once. At the end the hours are
compared, with a 99 % interval of the difference. If the p99 under load is lower with the shaper, it
stays on until the machine restarts; if not, the line is as before. The plan is in --out: after a
restart the same command continues it.

Examples:
  sudo underload shape trial example.net --dev eth0 --up 18mbit --down 90mbit
  sudo underload shape trial example.net --dev eth0 --down 90mbit --length 14d --not 18:00-23:00
  sudo underload shape trial example.net --dev wan --up 18mbit --per-day 2GB --out /root/trial")]
pub struct Arguments {
    /// A host with `underload serve`: a name or an address, with :PORT unless it is 4862.
    host: String,
    #[command(flatten)]
    shaping: Shaping,
    /// Length of the trial, from 12h to 60d.
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = from_to("12h", "60d"))]
    length: Duration,
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

impl Arguments {
    pub fn run(&self) -> anyhow::Result<()> {
        let request = self.shaping.request()?;
        self.courtesy.check().or_bad_input()?;
        let new = || PathBuf::from("runs").join(format!("trial-{}", request.device));
        let directory = self.out.clone().unwrap_or_else(new);
        let measurement = self.measurement(&request, false, None);
        measurement.check().map_err(|error| worded(error.into()))?;
        require_rights("shape", "trial")?;
        let interrupt = Interrupt::watch()?;
        let session = Session::open()?;
        let shaper = Shaper { session: &session, request: &request, may_replace: self.replace };
        // Before the plan is written: the corrected command would not match it.
        let is_new = !is_begun(&directory);
        if is_new {
            RunDir::check_vacant(&directory).bad_input_if(StoreError::is_occupied)?;
            shaper.try_once().bad_input_if(HoursError::is_refusal)?;
        }
        let plan = Plan { start_s: now_s(), slots: self.slots(), seed: measure::seed() };
        let settings = Settings::new(plan, measurement.shown_host(), request.apply_command());
        let hours = Hours::open(&directory, settings).bad_input_if(HoursError::is_refusal)?;
        let mut trial = Trial { arguments: self, shaper, interrupt: &interrupt, directory, hours };
        if trial.hours.position() == Position::After {
            note!("{}: this trial has ended; nothing is changed", trial.directory.display());
            return trial.result().map(drop);
        }
        if !is_new {
            shaper.try_once().bad_input_if(HoursError::is_refusal)?;
        }
        trial.run()?;
        trial.conclude()
    }

    /// Returns the number of hours: blocks have two.
    fn slots(&self) -> u32 {
        (self.length.as_secs().div_ceil(2 * 3_600) * 2) as u32
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

/// A trial that runs.
struct Trial<'a> {
    arguments: &'a Arguments,
    shaper: Shaper<'a>,
    interrupt: &'a Interrupt,
    directory: PathBuf,
    hours: Hours,
}

impl Trial<'_> {
    /// Shapes and measures hour by hour until the plan ends.
    fn run(&mut self) -> anyhow::Result<()> {
        let (arguments, shaper, interrupt) = (self.arguments, self.shaper, self.interrupt);
        let (directory, hours) = (&self.directory, &mut self.hours);
        let plan = hours.log.settings.plan;
        // Processes that share a budget lock a file of the series.
        Series::open(directory, &format!("{:016x}", plan.seed))?;
        let end = Timestamp::from_second(plan.ends_s(plan.slots - 1))?;
        note!(
            "{}: {} hours, seed {}, until {}; {} are measured",
            directory.display(),
            plan.slots,
            plan.seed,
            end.to_zoned(measure::local_zone()).strftime("%Y-%m-%d %H:%M"),
            hours.log.measured()
        );
        let courtesy = arguments.courtesy.courtesy(Some(&shaper.request.device));
        let line = Line { arguments, request: shaper.request, interrupt, directory, courtesy };
        hours.run(
            &shaper,
            &|| interrupt.is_requested(),
            &mut |hours, slot| Ok(line.measure(hours, slot)?),
            &mut |news| match news {
                News::ClockIsEarly => {
                    note!("the clock is before the start of the trial: waiting until it is right");
                }
                News::Failed { slot, error } => {
                    warning!("hour {} of {}: {:#}", slot + 1, plan.slots, anyhow!(error));
                }
            },
        );
        if !interrupt.is_requested() {
            return Ok(());
        }
        Err(interrupt.stopped(anyhow!(
            "{} is as it was before; the same command continues the trial",
            shaper.request.device
        )))
    }

    /// Prints the result, and shapes the line if the shaper helps.
    fn conclude(&self) -> anyhow::Result<()> {
        let Shaper { session, request, may_replace } = self.shaper;
        let device = &request.device;
        if !self.result()? {
            return console::print(&format!("{device}: the shaper is off.\n"));
        }
        let settings = machine::Settings { may_replace, lasts: Lasts::Confirmed };
        session.apply(request, settings).bad_input_if(ApplyError::is_refusal)?;
        console::print(&format!(
            "{device}: the shaper stays on until the machine restarts; `underload shape write` \
             prints a file for each start, `underload shape off` removes it.\n"
        ))
    }

    /// Prints what the hours show. Returns whether the shaper helps.
    fn result(&self) -> anyhow::Result<bool> {
        let log = &self.hours.log;
        let delays_ms = log.values(|hour| Some(hour.load_p99_ms));
        let goodput = |direction| log.values(|hour| hour.goodput_mbit_s[direction]);
        let (sentences, helps) = trial_sentences(&delays_ms, &PerDirection::from_fn(goodput));
        let text: String = sentences.iter().map(|line| plain_text(line) + "\n").collect();
        console::print(&text)?;
        note!("`underload history {}` draws the hours", shell_word(&self.directory));
        Ok(helps)
    }
}

/// The line of a trial, and when it may be measured.
struct Line<'a> {
    arguments: &'a Arguments,
    request: &'a Request,
    interrupt: &'a Interrupt,
    directory: &'a Path,
    courtesy: Courtesy,
}

impl Line<'_> {
    /// Measures an hour; `None` if quiet hours, a pause, the budget or the line left no time.
    fn measure(&self, hours: &Hours, slot: u32) -> anyhow::Result<Option<Hour>> {
        let Self { arguments, request, interrupt, directory, courtesy } = self;
        let is_shaped = hours.log.settings.plan.is_shaped(slot);
        let is_over = || !hours.is_in(slot);
        let Some(grant) = courtesy.wait(directory, interrupt.flag(), &is_over)? else {
            return Ok(None);
        };
        courtesy.charge(directory, &grant, |bytes_max| {
            let measurement = arguments.measurement(request, is_shaped, bytes_max);
            match measure::line(&measurement, Place::In(directory), interrupt) {
                Ok(measured) => {
                    let moved = measured.findings.iter().map(|finding| finding.moved_bytes).sum();
                    let hour = || {
                        measured.write_files()?;
                        let hour = self.read(&measured.run.trials, slot, is_shaped);
                        measured.into_result(interrupt.flag())?;
                        hour.map(Some)
                    };
                    (hour(), moved)
                }
                Err(error) => (Err(worded(error)), 0),
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
}
