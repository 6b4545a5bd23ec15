//! `underload try`: compares queues on a line that the options describe, without a file.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use underload_aqm::config::closest;
use underload_disk::{self as disk, Access};
use underload_run::question::{Question, Use};
use underload_run::scenario::{Builder, Options, Scenario, ScenarioErrors, simulated_controls};
use underload_run::source::load_file;
use underload_run::{Destination, Settings, WorldChoice};
use underload_store::RunDir;
use underload_terminal::console::{note, shell_word};
use underload_terminal::exit::{bad_input, refuse};

use crate::fail::FailOn;
use crate::present::{Show, refuse_occupied};
use crate::run::{COMMIT, Outcome, run_and_show};

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "command-line switches")]
#[command(after_help = "\
Without options: does CAKE help a video call beside an upload, compared with a plain buffer?

Examples:
  underload try
  underload try --up 20mbit --down 100mbit --rtt 30ms --queue fifo --queue cake --call --game
  underload try --up 1mbit --queue fifo:limit=64KiB --queue fq_codel --download=4 --page
  underload try --queue codel --congestion-control cubic --congestion-control bbr
  underload try --queue fifo --queue pie --upload --live
  underload try --call --save mine.toml")]
pub struct Arguments {
    /// The link up: a rate, or a link of `underload queues`.
    #[arg(long, value_name = "RATE", default_value = "20mbit")]
    up: String,
    /// The link down: a rate, or a link of `underload queues`.
    #[arg(long, value_name = "RATE", default_value = "100mbit")]
    down: String,
    /// The round trip of the line when nothing else is sent.
    #[arg(long, value_name = "TIME", default_value = "30ms")]
    rtt: String,
    /// A queue, used in both directions; the first one is the baseline [default: fifo, then cake].
    #[arg(long = "queue", value_name = "SPEC",
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    queues: Vec<String>,
    /// Bulk uploads [default: 1, if there is no --download].
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    upload: Option<u32>,
    /// Bulk downloads [default: none].
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    download: Option<u32>,
    /// The congestion control of uploads and downloads; several are compared.
    #[arg(long = "congestion-control", value_name = "NAME", default_value = "cubic")]
    #[arg(hide_short_help = true)]
    congestion_controls: Vec<String>,
    /// A video call [default: yes, if neither a use nor a transfer is given].
    #[arg(long)]
    call: bool,
    /// An online game, with small packets both ways.
    #[arg(long)]
    game: bool,
    /// A browser that loads pages.
    #[arg(long)]
    page: bool,
    /// A video that a player streams.
    #[arg(long)]
    video: bool,
    /// The time under load; 30s are enough for a p99 of a call and of a game.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    load: String,
    /// Trials of each queue [default: 5; 1 with --live].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeat: Option<u32>,
    /// Seed of the random numbers.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(..=MAX_SEED))]
    #[arg(hide_short_help = true)]
    seed: u64,
    /// Runs in real time with this machine's own TCP instead of the simulator.
    #[arg(long, conflicts_with_all = ["call", "game", "page", "video"])]
    live: bool,
    /// Writes the question to this new file, as a scenario for `underload run`.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// The run directory, which must be new or empty [default: runs/NAME-TIME].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Continues the interrupted run in this directory; the other options must be the same as then.
    #[arg(long, value_name = "DIR", conflicts_with = "out", hide_short_help = true)]
    resume: Option<PathBuf>,
    /// Prints the run as one JSON document instead of the table.
    #[arg(long, hide_short_help = true)]
    json: bool,
    /// Opens the report in a browser.
    #[arg(long, hide_short_help = true)]
    open: bool,
}

/// TOML has no larger numbers.
const MAX_SEED: u64 = i64::MAX as u64;
/// The queues that are compared if none is given: what most lines have, and the usual cure.
const QUEUES: [&str; 2] = ["fifo", "cake"];

impl Arguments {
    pub fn run(&self) -> anyhow::Result<()> {
        // Before anything that takes time or writes a file.
        if let Some(out) = &self.out {
            refuse_occupied(RunDir::check_vacant(out))?;
        }
        let mut controls = BTreeSet::new();
        if let Some(twice) = self.congestion_controls.iter().find(|name| !controls.insert(*name)) {
            refuse!("--congestion-control: `{twice}` is given twice; expected different ones");
        }
        let scenario = self.scenario()?;
        if !self.live {
            self.check_controls()?;
        }
        if let Some(file) = self.save.as_ref().filter(|_| self.resume.is_none()) {
            save(&format_args!("--save {}", file.display()), file, &scenario.text)?;
        }
        let settings = Settings {
            world: if self.live { WorldChoice::Live } else { WorldChoice::Sim },
            destination: match (&self.resume, &self.out) {
                (Some(path), _) => Destination::Resume(path.clone()),
                (None, Some(path)) => Destination::Directory(path.clone()),
                (None, None) => Destination::NewIn("runs".into()),
            },
            uses_cache: true,
            commit: COMMIT,
            ..Settings::default()
        };
        let show = Show { json: self.json, open: self.open };
        run_and_show(&scenario, settings, Outcome { show, fail_on: FailOn::Never, watch: false })?;
        match &self.save {
            Some(file) => {
                let world = if self.live { "live" } else { "sim" };
                note!("the same again: underload run {} --world {world}", shell_word(file));
            }
            None => note!("--save FILE writes this question as a scenario to change and repeat"),
        }
        Ok(())
    }

    /// Returns the scenario that the options describe.
    pub fn scenario(&self) -> anyhow::Result<Scenario> {
        resolve(&self.question().scenario(&self.name()?, &self.description()))
    }

    /// Refuses a congestion control that the simulator lacks.
    fn check_controls(&self) -> anyhow::Result<()> {
        let known = simulated_controls();
        let Some(name) = self.congestion_controls.iter().find(|name| !known.contains(name)) else {
            return Ok(());
        };
        let meant = closest(name, known.iter().map(String::as_str));
        let meant = meant.map_or(String::new(), |meant| format!("; did you mean `{meant}`?"));
        let known = known.join(", ");
        refuse!("--congestion-control: `{name}` is not simulated; expected one of {known}{meant}");
    }

    fn question(&self) -> Question {
        let uses = [
            (self.call, Use::Call),
            (self.game, Use::Game),
            (self.page, Use::Page),
            (self.video, Use::Video),
        ];
        let mut uses: Vec<Use> =
            uses.into_iter().filter(|(is_asked, _)| *is_asked).map(|(_, it)| it).collect();
        let has_transfer = self.upload.is_some() || self.download.is_some();
        if uses.is_empty() && !has_transfer && !self.live {
            uses.push(Use::Call);
        }
        let queues = match self.queues.as_slice() {
            [] => QUEUES.map(str::to_owned).to_vec(),
            given => given.to_vec(),
        };
        Question {
            up: self.up.clone(),
            down: self.down.clone(),
            rtt: self.rtt.clone(),
            queues,
            uploads: self.upload.unwrap_or(u32::from(!has_transfer)),
            downloads: self.download.unwrap_or(0),
            congestion_controls: self.congestion_controls.clone(),
            uses,
            load: self.load.clone(),
            repeats: self.repeat.unwrap_or(if self.live { 1 } else { 5 }),
            seed: self.seed,
        }
    }

    /// Returns the name of the scenario: that of the saved file, or `try`.
    fn name(&self) -> anyhow::Result<String> {
        let Some(file) = &self.save else { return Ok("try".to_owned()) };
        match file.to_str() {
            Some(name) => Ok(name.to_owned()),
            None => refuse!("--save {}: expected a name in UTF-8", file.display()),
        }
    }

    fn description(&self) -> String {
        let queues = match self.queues.as_slice() {
            [] => QUEUES.join(", "),
            given => given.join(", "),
        };
        format!("A question of `underload try`: {queues}, each in both directions.")
    }
}

/// Checks the scenario. The faults name the options that cause them.
fn resolve(builder: &Builder) -> anyhow::Result<Scenario> {
    let load = &mut |file: &str| load_file("", file);
    builder.finish_with(&Options::default(), load).map_err(|errors| bad_input(in_options(&errors)))
}

/// Returns the faults, each once and under the option that causes it.
fn in_options(errors: &ScenarioErrors) -> anyhow::Error {
    let mut seen = BTreeSet::new();
    let of_option = errors.0.iter().map(|error| match option(&error.key) {
        Some(option) => format!("{option}: {}", with_options(&error.problem)),
        None => format!("{}: {}", error.key, error.problem),
    });
    let lines: Vec<String> = of_option.filter(|line| seen.insert(line.clone())).collect();
    anyhow!(lines.join("\nerror: "))
}

/// Returns a problem that names options instead of the keys that they set, such as `--rtt`.
fn with_options(problem: &str) -> String {
    let named = |text: String, key: &&str| match (key.rsplit('.').next(), option(key)) {
        (Some(name), Some(option)) => text.replace(&format!("`{name}`"), &format!("`{option}`")),
        _ => text,
    };
    KEYS.iter().fold(problem.to_owned(), named)
}

/// Keys of the scenario that options set, as far as problems of other keys name them.
const KEYS: [&str; 6] =
    ["path.up", "path.down", "path.rtt", "path.up_queue", "path.down_queue", "phases.load"];

/// Returns the option that sets a key of the scenario.
fn option(key: &str) -> Option<&'static str> {
    Some(match key {
        "path.up" => "--up",
        "path.down" => "--down",
        "path.rtt" => "--rtt",
        "path.up_queue" | "path.down_queue" => "--queue",
        "phases.load" => "--load",
        _ if key.ends_with(".congestion_control") => "--congestion-control",
        _ if key.starts_with("variant") => "--queue",
        _ => return None,
    })
}

/// Writes a scenario. `name` is the file's name in errors.
pub fn save(name: &dyn Display, file: &Path, text: &str) -> anyhow::Result<()> {
    match disk::write_new(file, text.as_bytes(), Access::Usual) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            refuse!("{name}: the file exists; expected a new name")
        }
        written => written.with_context(|| name.to_string()),
    }
}
