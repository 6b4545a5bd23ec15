//! `underload try`: compares queues on a line that the options describe, without a file.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use underload_disk::{self as disk, Access};
use underload_run::{Settings, WorldChoice};
use underload_scenario::Scenario;
use underload_scenario::question::{Question, Use};
use underload_terminal::COMMIT;
use underload_terminal::console::{note, shell_word};
use underload_terminal::exit::{bad_input, refuse};

use crate::fail::FailOn;
use crate::present::Show;
use crate::run::{Outcome, Stored, run_and_show};

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
    /// Trials of each queue [default: 6; 1 with --live].
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
    #[command(flatten)]
    stored: Stored,
    #[command(flatten)]
    show: Show,
}

/// TOML has no larger numbers.
const MAX_SEED: u64 = i64::MAX as u64;

impl Arguments {
    pub fn run(&self) -> anyhow::Result<()> {
        // Before anything that takes time or writes a file.
        let destination = self.stored.destination()?;
        let scenario = self.scenario()?;
        if let Some(file) = self.save.as_ref().filter(|_| self.stored.resume.is_none()) {
            save(file, &scenario.text)?;
        }
        let settings = Settings {
            world: if self.live { WorldChoice::Live } else { WorldChoice::Sim },
            destination,
            uses_cache: true,
            commit: COMMIT,
            ..Settings::default()
        };
        run_and_show(&scenario, settings, Outcome { show: self.show, fail_on: FailOn::Never })?;
        match &self.save {
            Some(file) => {
                let world = if self.live { "live" } else { "sim" };
                note!("the same again: underload run {} --world {world}", shell_word(file));
            }
            None => note!("--save FILE writes this question as a scenario to change and repeat"),
        }
        Ok(())
    }

    /// Returns the scenario that the options describe. Its faults name the options.
    fn scenario(&self) -> anyhow::Result<Scenario> {
        self.question().scenario(&self.name()?).map_err(|faults| {
            let mut seen = BTreeSet::new();
            let lines = faults.iter().map(ToString::to_string);
            let lines: Vec<String> = lines.filter(|line| seen.insert(line.clone())).collect();
            bad_input(anyhow!(lines.join("\nerror: ")))
        })
    }

    fn question(&self) -> Question {
        let has_transfer = self.upload.is_some() || self.download.is_some();
        let asked = [self.call, self.game, self.page, self.video];
        let uses = Use::ALL.into_iter().zip(asked).filter(|(_, is_asked)| *is_asked);
        let uses: Vec<Use> = uses.map(|(it, _)| it).collect();
        let default = Question::default();
        Question {
            up: self.up.clone(),
            down: self.down.clone(),
            rtt: self.rtt.clone(),
            queues: if self.queues.is_empty() { default.queues } else { self.queues.clone() },
            uploads: self.upload.unwrap_or(u32::from(!has_transfer)),
            downloads: self.download.unwrap_or(default.downloads),
            congestion_controls: self.congestion_controls.clone(),
            uses: if uses.is_empty() && !has_transfer && !self.live { default.uses } else { uses },
            load: self.load.clone(),
            repeats: self.repeat.unwrap_or(if self.live { 1 } else { default.repeats }),
            seed: self.seed,
            is_live: self.live,
        }
    }

    /// Returns the name of the scenario: the saved file's, or `try`.
    fn name(&self) -> anyhow::Result<String> {
        let Some(file) = &self.save else { return Ok("try".to_owned()) };
        match file.to_str() {
            Some(name) => Ok(name.to_owned()),
            None => refuse!("--save {}: expected a name in UTF-8", file.display()),
        }
    }
}

/// Writes a scenario to a new file.
fn save(file: &Path, text: &str) -> anyhow::Result<()> {
    match disk::write_new(file, text.as_bytes(), Access::Usual) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            refuse!("--save {}: the file exists; expected a new name", file.display())
        }
        written => written.with_context(|| format!("--save {}", file.display())),
    }
}
