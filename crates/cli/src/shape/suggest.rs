//! `underload shape suggest`: tries rates and queues on the real line, and chooses by one rule.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use underload_aqm::config::Spec;
use underload_line::{LineError, Place, Request as Measurement};
use underload_probe::preset::{Knobs, LoadDirections, Preset};
use underload_record::schema::{Direction, Finding, PerDirection};
use underload_shape::machine::search::{FAST, LineSearch, SearchError, mb};
use underload_shape::machine::{ApplyError, Session, Snapshot, SnapshotError};
use underload_shape::request::{Overhead, Request};
use underload_shape::suggest::{
    Choice, INSIDE_MORE_MS, Limit, Outcome, PASSES, Reading, SHARES_PERCENT, before_and_after,
};
use underload_tc::run::ToolError;
use underload_terminal::console::{self, note, shell_word};
use underload_terminal::exit::{OrBadInput as _, bad_input};
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
Each trial is undone by itself, also after Ctrl-C or a kill. In the end nothing is shaped: printed
are the command that shapes now, and the command that prints a file for each start of the machine.

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

impl Arguments {
    pub fn run(&self) -> anyhow::Result<()> {
        let queues = self.queues()?;
        self.measurement(PerDirection::new(true, true), "", 0)
            .check()
            .map_err(|error| worded(error.into()))?;
        require_rights("shape", "suggest")?;
        let interrupt = Interrupt::watch()?;
        let session = Session::open()?;
        let snapshot = Snapshot::take(&self.dev).bad_input_if(SnapshotError::is_refusal)?;
        let mut search = LineSearch {
            session: &session,
            device: self.dev.clone(),
            overhead: self.overhead,
            queues,
            limit: Limit { added_ms: self.limit_ms() },
            budget: self.budget,
            may_replace: self.replace,
        };
        // Before anything is sent.
        let lacking = search.remove_unusable(&snapshot).bad_input_if(ApplyError::is_refusal)?;
        for line in ToolError::in_lines(&lacking) {
            note!("not tried: {line}");
        }
        ensure!(!search.queues.is_empty(), "this kernel has none of the queues to try");
        let folder = self.folder();
        note!(
            "{}: measured as it is, then with shapers at up to {} rates; all measurements \
             together move at most {} (--budget)",
            self.dev,
            SHARES_PERCENT.len(),
            mb(self.budget)
        );
        let mut measure = |loads, label: &str, bytes_max| -> Result<Vec<Finding>, LineError> {
            let request = self.measurement(loads, label, bytes_max);
            let measured = measure::line(&request, Place::In(&folder), &interrupt)?;
            measured.write_files()?;
            let findings = measured.findings.clone();
            measured.into_result(interrupt.flag())?;
            Ok(findings)
        };
        let outcome = search.run(&mut |text| note!("{text}"), &mut measure).map_err(marked);
        note!("measurements: {}", shell_word(&folder));
        let (before, outcome) = interrupt.explain(outcome)?;
        self.print(&before, outcome, &search)
    }

    fn print(
        &self,
        before: &PerDirection<Option<Reading>>,
        outcome: Outcome,
        search: &LineSearch<'_>,
    ) -> anyhow::Result<()> {
        if !matches!(outcome, Outcome::Shape(_)) {
            console::print(&before_and_after(before, None))?;
        }
        match outcome {
            Outcome::NothingToMend => console::print(&format!(
                "Nothing to mend: the load adds at most {:.0} ms, and {:.0} ms inside itself.\n",
                self.limit_ms(),
                self.limit_ms() + INSIDE_MORE_MS
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
            Outcome::Shape(choice) => self.suggest(before, &choice, search),
        }
    }

    /// Returns the queues to try, which a request on some device can have.
    fn queues(&self) -> anyhow::Result<Vec<Spec>> {
        let given = self.queues.iter().map(String::as_str);
        let texts: Vec<&str> =
            if self.queues.is_empty() { QUEUES.to_vec() } else { given.collect() };
        let queue = |text: &str| -> anyhow::Result<Spec> {
            let queue = Spec::parse(text).context("--queue")?;
            let rates = PerDirection::new(Some(FAST), Some(FAST));
            let (device, overhead) = (self.dev.clone(), self.overhead);
            let request = Request { device, rates, queue, down_queue: None, overhead };
            request.check(None)?;
            Ok(request.queue)
        };
        texts.into_iter().map(queue).collect::<anyhow::Result<_>>().or_bad_input()
    }

    fn limit_ms(&self) -> f64 {
        self.limit.as_secs_f64() * 1e3
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
        before: &PerDirection<Option<Reading>>,
        choice: &Choice,
        search: &LineSearch<'_>,
    ) -> anyhow::Result<()> {
        let request = search.request(&search.queues[choice.queue], choice.rates);
        let names = search.queues.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let limit_ms = self.limit_ms();
        console::print(&format!(
            "{}The rule: the largest of 95, 90, 85 and 75 % of the goodput whose p99 under load is \
             at most {limit_ms:.0} ms above idle beside the load, and {:.0} ms inside it, in \
             {PASSES} measurements; of the queues {names} the one with the larger share, else the \
             first.\n\nNow, until the machine restarts:\n  {}\n\n\
             A file for each start of the machine, for systemd or openwrt:\n  {}\n",
            before_and_after(before, Some(choice)),
            limit_ms + INSIDE_MORE_MS,
            request.apply_command(),
            request.write_command()
        ))
    }
}

/// Converts an error: a faulty setting gets the name of its option, and the error of a faulty input the
/// exit status of one.
fn marked(error: SearchError<LineError>) -> anyhow::Error {
    match error {
        SearchError::Measure(error) => worded(error),
        SearchError::Apply(error) if error.is_refusal() => bad_input(error),
        error => error.into(),
    }
}
