//! `underload try`: compares queues on a line that the options describe, without a file.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use underload_disk::{self as disk, Access};
use underload_run::{Settings, WorldChoice};
use underload_scenario::Scenario;
use underload_scenario::question::Question;
use underload_terminal::COMMIT;
use underload_terminal::console::{note, shell_word};
use underload_terminal::exit::{bad_input, refuse};

use crate::fail::FailOn;
use crate::present::Show;
use crate::run::{Outcome, Stored, run_and_show};

#[derive(Debug, Args)]
#[command(after_help = "\
Without options: does CAKE help a video call beside an upload, compared with a plain buffer?

Examples:
  underload try
  underload try cable 200/20 cake upload game
  underload try 100/20 --rtt 30 --queue fifo --queue pie --upload=4 --call --game
  underload try cable --router cake --router fq_codel@90/9 --upload --download --call
  underload try 40/10 --up-queue docsis-pie --wifi 60 --router cake --backup 5 --video
  underload try --queue codel --congestion-control cubic --congestion-control bbr
  underload try --follow 3..60 --download
  underload try --call --save mine.toml")]
pub struct Arguments {
    /// DOWN/UP in Mbit/s, a line by name, the router's queue, what is sent [default: 100/20].
    #[arg(value_name = "WORD")]
    words: Vec<String>,
    /// The link up: a rate, or a link of `underload queues` [default: 20mbit].
    #[arg(long, value_name = "RATE", hide_short_help = true)]
    up: Option<String>,
    /// The link down: a rate, or a link of `underload queues` [default: 100mbit].
    #[arg(long, value_name = "RATE", hide_short_help = true)]
    down: Option<String>,
    /// The round trip of the line when nothing else is sent [default: 30ms].
    #[arg(long, value_name = "TIME")]
    rtt: Option<String>,
    /// The line's queue up, or a buffer's time [default: fifo].
    #[arg(long, visible_alias = "modem", value_name = "SPEC")]
    up_queue: Option<String>,
    /// The queue of the line down, at the provider [default: fifo].
    #[arg(long, value_name = "SPEC", hide_short_help = true)]
    down_queue: Option<String>,
    /// A shaper in the router, SPEC or SPEC@DOWN/UP (else 95 % of the line), compared with none.
    #[arg(long = "router", value_name = "SPEC", conflicts_with = "queues")]
    routers: Vec<String>,
    /// Rates between which the line varies and `shape auto` follows it, as 3..60 or 3..60/1..10 down
    /// and up; compared with the best fixed rate and with an oracle that knows the rate.
    #[arg(long, value_name = "MIN..MAX", hide_short_help = true)]
    follow: Option<String>,
    /// Rates beyond which the provider drops packets.
    #[arg(long, value_name = "DOWN/UP")]
    policer: Option<String>,
    /// A Wi-Fi of this rate between the client and the line.
    #[arg(long, value_name = "RATE")]
    wifi: Option<String>,
    /// A queue in place of the line's own [default: the line's, then cake].
    #[arg(long = "queue", value_name = "SPEC",
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    queues: Vec<String>,
    /// Bulk uploads [default: 1, if nothing that is sent is named].
    #[arg(long, value_name = "N", num_args(0..=1), require_equals(true), default_missing_value("1"))]
    upload: Option<u32>,
    /// Bulk downloads [default: none].
    #[arg(long, value_name = "N", num_args(0..=1), require_equals(true), default_missing_value("1"))]
    download: Option<u32>,
    /// A backup: packets at this rate, ledbat, or 5:ledbat.
    #[arg(long, value_name = "RATE")]
    backup: Option<String>,
    /// The congestion control of uploads and downloads; several are compared [default: cubic].
    #[arg(long = "congestion-control", value_name = "NAME", hide_short_help = true)]
    congestion_controls: Vec<String>,
    /// Video calls [default: 1, if nothing that is sent is named].
    #[arg(long, value_name = "N", num_args(0..=1), require_equals(true), default_missing_value("1"))]
    call: Option<u32>,
    /// Online games, with small packets both ways.
    #[arg(long, value_name = "N", num_args(0..=1), require_equals(true), default_missing_value("1"))]
    game: Option<u32>,
    /// Browsers that load pages.
    #[arg(long, value_name = "N", num_args(0..=1), require_equals(true), default_missing_value("1"))]
    page: Option<u32>,
    /// Videos that players stream; 1:4k is one in 4K.
    #[arg(long, value_name = "N[:4k]", num_args(0..=1), require_equals(true), default_missing_value("1"))]
    video: Option<String>,
    /// The time under load.
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
    /// Runs in real time with this machine's own TCP instead of the simulator, which alone has calls,
    /// games, pages and films.
    #[arg(long, hide_short_help = true)]
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
        let question = self.question()?;
        let scenario = self.scenario(&question)?;
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
        if let Some(words) = question.assumed() {
            note!("{words} --up-queue fifo:limit=SIZE sets another.");
        }
        for remark in question.remarks() {
            note!("{remark}");
        }
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
    fn scenario(&self, question: &Question) -> anyhow::Result<Scenario> {
        let name = self.save.as_deref().map_or("try".into(), Path::to_string_lossy);
        question.scenario(&name).map_err(|faults| {
            let mut seen = BTreeSet::new();
            let lines = faults.iter().map(ToString::to_string);
            let lines: Vec<String> = lines.filter(|line| seen.insert(line.clone())).collect();
            bad_input(anyhow!(lines.join("\nerror: ")))
        })
    }

    fn question(&self) -> anyhow::Result<Question> {
        let typed: Vec<String> =
            std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let is_rate = |pair: &&[String]| {
            ["--upload", "--download", "--call", "--game", "--page", "--video"].contains(&&*pair[0])
                && pair[1].starts_with(|c: char| c.is_ascii_digit())
                && !pair[1].contains('/')
        };
        if let Some([option, rate]) = typed.windows(2).find(is_rate) {
            refuse!(
                "{option} {rate}: how many follows `=`, as {option}=4; the line's rates \
                 are a word, as in `try 100/20`"
            );
        }
        let mut options: Vec<(&str, String)> = Vec::new();
        for (name, values) in [
            ("up", self.up.as_slice()),
            ("down", self.down.as_slice()),
            ("rtt", self.rtt.as_slice()),
            ("up-queue", self.up_queue.as_slice()),
            ("down-queue", self.down_queue.as_slice()),
            ("wifi", self.wifi.as_slice()),
            ("backup", self.backup.as_slice()),
            ("policer", self.policer.as_slice()),
            ("follow", self.follow.as_slice()),
            ("router", &self.routers),
            ("queue", &self.queues),
            ("congestion-control", &self.congestion_controls),
        ] {
            options.extend(values.iter().map(|value| (name, value.clone())));
        }
        for (name, value) in [
            ("upload", self.upload),
            ("download", self.download),
            ("call", self.call),
            ("game", self.game),
            ("page", self.page),
            ("repeat", self.repeat.or(self.live.then_some(1))),
        ] {
            options.extend(value.map(|value| (name, value.to_string())));
        }
        options.extend(self.video.iter().map(|films| ("video", films.clone())));
        options.extend([("load", self.load.clone()), ("seed", self.seed.to_string())]);
        let question = Question::asked(&self.words, &options, self.live)
            .map_err(|fault| bad_input(anyhow!("{fault}")))?;
        if self.live && (!question.hops().is_empty() || !question.uses.is_empty()) {
            refuse!(
                "--live: only the simulator has calls, games, pages and films, and boxes before the \
                 line; leave out one of both"
            );
        }
        Ok(question)
    }
}

/// Writes a scenario to a new file.
fn save(file: &Path, text: &str) -> anyhow::Result<()> {
    match disk::write_new(file, text.as_bytes(), Access::Usual) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            refuse!("--save {}: the file exists; expected a new name", file.display())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            refuse!("--save {}: its folder does not exist", file.display())
        }
        written => written.with_context(|| format!("--save {}", file.display())),
    }
}
