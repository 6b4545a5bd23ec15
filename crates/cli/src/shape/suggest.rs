//! `underload shape suggest`: tries rates and queues on the real line, and chooses by one rule.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use underload_aqm::config::Spec;
use underload_aqm::rate::Rate;
use underload_line::{Place, Request as Measurement};
use underload_probe::preset::{Knobs, LoadDirections, Preset};
use underload_record::schema::{Direction, PerDirection};
use underload_report::{load, write_report};
use underload_shape::machine::{ApplyError, Session, Snapshot, SnapshotError, Temporary};
use underload_shape::request::{Overhead, Request};
use underload_shape::suggest::{
    Choice, INSIDE_MORE_MS, Limit, Next, Outcome, PASSES, Reading, SHARES_PERCENT, Search, Trial,
    before_and_after,
};
use underload_terminal::console::{self, note};
use underload_terminal::exit::OrBadInput as _;
use underload_terminal::interrupt::Interrupt;
use underload_terminal::quantity::{from_to, size};

use super::require_rights;
use crate::measure::{self, ServerOptions, worded};

#[derive(Debug, Args)]
#[command(after_help = "\
Measures the line as it is, idle and loaded down and up. Each direction whose load adds more than
--limit beside itself (p99 above idle), or 20 ms more than that inside itself, is then shaped to 95,
90, 85 and 75 % of what it carried, until two measurements find a share good. Later queues are tried
only where they could keep a larger share.
Each trial is undone by itself, also after Ctrl-C or a kill. Nothing is shaped in the end: the
command that does so is printed, and the one that prints a file for each start of the machine.

Examples:
  sudo underload shape suggest example.net --dev eth0
  sudo underload shape suggest example.net --dev wan --overhead docsis
  sudo underload shape suggest example.net --dev eth0 --budget 300MB")]
pub struct Arguments {
    /// A host with `underload serve`: a name or an address, with :PORT unless it is 4862.
    host: String,
    /// The device that leads to the access line, such as eth0 or ppp0.
    #[arg(long, value_name = "DEV")]
    dev: String,
    /// Bytes that all measurements together may move.
    #[arg(long, value_name = "SIZE", default_value = "1GB", value_parser = size)]
    budget: u64,
    /// Latency that the load may add beside itself.
    #[arg(long, value_name = "TIME", default_value = "10ms",
        value_parser = from_to("1ms", "1s"))]
    limit: Duration,
    /// A queue to try; several are tried in their order [default: cake, fq-codel, fq-pie].
    #[arg(long = "queue", value_name = "SPEC")]
    queues: Vec<String>,
    /// What the line adds to each packet, as for `apply`.
    #[arg(long, value_name = "KIND", default_value = "none", value_parser = Overhead::parse)]
    overhead: Overhead,
    /// Replaces a shaper that underload did not set up while it tries.
    #[arg(long, hide_short_help = true)]
    replace: bool,
    /// Length of each load [default: 5s].
    #[arg(long, value_name = "TIME", value_parser = from_to("100ms", "1min"))]
    #[arg(hide_short_help = true)]
    duration: Option<Duration>,
    #[command(flatten)]
    server: ServerOptions,
    /// The directory of all measurements [default: runs/suggest-DEV-TIME].
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    out: Option<PathBuf>,
}

/// The queues that are tried, the one with the fewest commands first.
const QUEUES: [&str; 3] = ["cake", "fq-codel", "fq-pie"];
/// After this time a trial is undone whatever happens: the longest load, twice, must fit into it.
const TRIAL_MAX: Duration = Duration::from_mins(30);
/// Measurements of a direction while this machine is too busy for one.
const ATTEMPTS: usize = 3;
const BOTH: PerDirection<bool> = PerDirection::new(true, true);
/// The rate at which a queue is tried for an instant, if the device's rate is unknown.
const FAST: Rate = Rate::from_megabits_per_second(10_000);

impl Arguments {
    pub fn run(&self) -> anyhow::Result<()> {
        let queues = self.queues()?;
        self.check(&queues)?;
        require_rights("suggest")?;
        let interrupt = Interrupt::watch()?;
        let session = Session::open()?;
        let snapshot = Snapshot::take(&self.dev).bad_input_if(SnapshotError::is_refusal)?;
        let queues = self.usable(queues, &session, &snapshot)?;
        let folder = self.folder();
        let mut line = Line { arguments: self, interrupt: &interrupt, folder: &folder, moved: 0 };
        note!(
            "{}: measured as it is, then with shapers at up to {} rates; all measurements \
             together move at most {} (--budget)",
            self.dev,
            SHARES_PERCENT.len(),
            mb(self.budget)
        );
        let outcome = line.search(&session, &queues);
        line.write_page();
        let (before, outcome) = interrupt.explain(outcome)?;
        if !matches!(outcome, Outcome::Shape(_)) {
            console::print(&before_and_after(&before, None))?;
        }
        match outcome {
            Outcome::NothingToMend => console::print(&format!(
                "Nothing to mend: the load adds at most {:.0} ms, and {:.0} ms inside itself.\n",
                self.limit.as_secs_f64() * 1e3,
                self.limit.as_secs_f64() * 1e3 + INSIDE_MORE_MS
            )),
            Outcome::Varies => bail!(
                "no fixed rate mends this line, because it carried less during the trials than \
                 before: try `underload shape auto`"
            ),
            Outcome::WaitsElsewhere => bail!(
                "no rate on {} mends this line: the delay stays although less is sent than the \
                 line carries, so packets wait somewhere else (Wi-Fi, or behind the line)",
                self.dev
            ),
            Outcome::Shape(choice) => self.suggest(before, &choice, &queues),
        }
    }

    /// Refuses what could not be used at the end.
    fn check(&self, queues: &[Spec]) -> anyhow::Result<()> {
        for queue in queues {
            let rates = PerDirection::new(Some(FAST), Some(FAST));
            self.request(queue, rates).check(None).or_bad_input()?;
        }
        self.measurement(BOTH, "", 0).check().map_err(|error| worded(error.into()))
    }

    fn queues(&self) -> anyhow::Result<Vec<Spec>> {
        let given = self.queues.iter().map(String::as_str);
        let texts: Vec<&str> =
            if self.queues.is_empty() { QUEUES.to_vec() } else { given.collect() };
        let parsed = texts.into_iter().map(|text| Spec::parse(text).context("--queue"));
        parsed.collect::<anyhow::Result<_>>().or_bad_input()
    }

    fn request(&self, queue: &Spec, rates: PerDirection<Option<Rate>>) -> Request {
        let (device, queue) = (self.dev.clone(), queue.clone());
        Request { device, rates, queue, overhead: self.overhead }
    }

    /// Returns the queues that this kernel has: each is in use for an instant, before anything is
    /// sent.
    fn usable(
        &self,
        queues: Vec<Spec>,
        session: &Session,
        snapshot: &Snapshot,
    ) -> anyhow::Result<Vec<Spec>> {
        let rate = snapshot.port_rate().or(Some(FAST));
        let mut usable = Vec::new();
        for queue in queues {
            let request = self.request(&queue, PerDirection::new(rate, rate));
            match session
                .lacks(&request, self.replace, TRIAL_MAX)
                .bad_input_if(ApplyError::is_refusal)?
            {
                None => usable.push(queue),
                Some(lacking) => note!("not tried: {lacking}"),
            }
        }
        ensure!(!usable.is_empty(), "this kernel has none of the queues to try");
        Ok(usable)
    }

    fn folder(&self) -> PathBuf {
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        let new = || PathBuf::from("runs").join(format!("suggest-{}-{time}", self.dev));
        self.out.clone().unwrap_or_else(new)
    }

    fn measurement(&self, loads: PerDirection<bool>, label: &str, bytes_max: u64) -> Measurement {
        let directions = match (loads.up, loads.down) {
            (true, false) => LoadDirections::Only(Direction::Up),
            (false, true) => LoadDirections::Only(Direction::Down),
            _ => LoadDirections::AsPreset,
        };
        let knobs = Knobs { directions, duration: self.duration, ..Knobs::default() };
        Measurement {
            interface: Some(self.dev.clone()),
            bytes_max: Some(bytes_max),
            label: label.to_owned(),
            ..self.server.request(&self.host, Preset::Quick, knobs)
        }
    }

    /// Prints the results before and after, and the commands that make the choice permanent.
    fn suggest(
        &self,
        before: PerDirection<Option<Reading>>,
        choice: &Choice,
        queues: &[Spec],
    ) -> anyhow::Result<()> {
        let request = self.request(&queues[choice.queue], choice.rates);
        let names = queues.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let limit_ms = self.limit.as_secs_f64() * 1e3;
        console::print(&format!(
            "{}The rule: the largest of 95, 90, 85 and 75 % of the goodput whose p99 under load is \
             at most {limit_ms:.0} ms above idle beside the load, and {:.0} ms inside it, in \
             {PASSES} measurements; of the queues {names} the one with the larger share, else the \
             first.\n\nNow, until the machine restarts:\n  {}\n\n\
             A file for each start of the machine, for systemd, networkd, openwrt or tc:\n  {}\n",
            before_and_after(&before, Some(choice)),
            limit_ms + INSIDE_MORE_MS,
            request.apply_command(),
            request.write_command("systemd")
        ))
    }
}

/// The measured line, and the bytes that its measurements moved.
struct Line<'a> {
    arguments: &'a Arguments,
    interrupt: &'a Interrupt,
    folder: &'a Path,
    moved: u64,
}

/// A measurement's readings, and the bytes that each direction's load moved.
#[derive(Default)]
struct Measured {
    readings: PerDirection<Option<Reading>>,
    moved: PerDirection<u64>,
}

impl Line<'_> {
    /// Measures the line without and with shapers until the rule has its outcome.
    fn search(
        &mut self,
        session: &Session,
        queues: &[Spec],
    ) -> anyhow::Result<(PerDirection<Option<Reading>>, Outcome)> {
        let first = self.measure(BOTH, "no shaper")?;
        let before = first.readings;
        let added_ms = self.arguments.limit.as_secs_f64() * 1e3;
        let mut search = Search::new(before, Limit { added_ms }, queues.len());
        loop {
            let trial = match search.next() {
                Next::Done(outcome) => return Ok((before, outcome)),
                Next::Measure(trial) => trial,
            };
            self.check_budget(&trial, first.moved)?;
            let queue = &queues[trial.queue];
            let request = self.arguments.request(queue, trial.rates);
            let replace = self.arguments.replace;
            let change = Temporary::apply(session, &request, replace, TRIAL_MAX)
                .bad_input_if(ApplyError::is_refusal)?;
            let label = trial.label(queue);
            note!("trying {label}");
            let measured = self.measure(trial.loads, &label);
            let ended = change.end();
            let readings = measured?.readings;
            ended?;
            search.add(trial, readings);
        }
    }

    /// Measures the loaded directions, and those again for which this machine was too busy.
    fn measure(&mut self, loads: PerDirection<bool>, label: &str) -> anyhow::Result<Measured> {
        let mut found = Measured::default();
        for _ in 0..ATTEMPTS {
            let missing = PerDirection::from_fn(|it| loads[it] && found.readings[it].is_none());
            if missing == PerDirection::default() {
                return Ok(found);
            }
            self.measure_once(missing, label, &mut found)?;
        }
        ensure!(
            Direction::ALL.into_iter().all(|it| !loads[it] || found.readings[it].is_some()),
            "this machine was too busy for a measurement, {ATTEMPTS} times: stop what else it does"
        );
        Ok(found)
    }

    /// Measures once, within what is left of the budget.
    fn measure_once(
        &mut self,
        loads: PerDirection<bool>,
        label: &str,
        found: &mut Measured,
    ) -> anyhow::Result<()> {
        let left = self.arguments.budget.saturating_sub(self.moved);
        let request = self.arguments.measurement(loads, label, left);
        let measured = measure::line(&request, Place::In(self.folder), self.interrupt)?;
        for finding in &measured.findings {
            self.moved = self.moved.saturating_add(finding.moved_bytes);
            let Some(direction) = Direction::from_name(&finding.step) else { continue };
            found.moved[direction] = finding.moved_bytes;
            if finding.uncertain {
                continue;
            }
            if finding.budget_spent {
                bail!("--budget {}: spent; nothing was chosen", mb(self.arguments.budget));
            }
            found.readings[direction] = Some(Reading::new(finding)?);
        }
        measured.write_files()?;
        Ok(measured.into_result(self.interrupt.flag())?)
    }

    /// Refuses a trial that would probably exceed the budget.
    fn check_budget(&self, trial: &Trial, first: PerDirection<u64>) -> anyhow::Result<()> {
        let loaded = first.into_iter().filter(|(direction, _)| trial.loads[*direction]);
        let needed: u64 = loaded.map(|(_, bytes)| bytes).sum();
        let left = self.arguments.budget.saturating_sub(self.moved);
        ensure!(
            needed <= left,
            "--budget {}: the next measurement takes {}, and {} are left; nothing was chosen",
            mb(self.arguments.budget),
            mb(needed),
            mb(left)
        );
        Ok(())
    }

    /// Writes a page with all measurements. A page that fails does not hide the outcome.
    fn write_page(&self) {
        let runs = std::fs::read_dir(self.folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> =
            runs.map(|entry| entry.path()).filter(|path| path.join("run.json").is_file()).collect();
        paths.sort();
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        if paths.is_empty() {
            return;
        }
        match load(&paths)
            .map_err(anyhow::Error::from)
            .and_then(|runs| write_report(self.folder, &runs).map_err(anyhow::Error::from))
        {
            Ok(page) => note!("all measurements: {}", page.display()),
            Err(error) => note!("no page of all measurements: {error:#}"),
        }
    }
}

/// Formats bytes as MB.
fn mb(bytes: u64) -> String {
    format!("{:.0} MB", bytes as f64 / 1e6)
}
