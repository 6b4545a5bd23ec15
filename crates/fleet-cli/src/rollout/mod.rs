//! `underload fleet rollout`: changes the configuration of lines in stages.
//!
//! Each command reads the log in the store, does what is due, and appends to the log. A batch of
//! lines is logged after the connector was called for all of them: a command that was killed calls
//! the connector again for at most one batch.

mod connector;
mod daily;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use data_encoding::BASE64;
use underload_disk as disk;
use underload_fleet::plan::{BYTES_MAX, Plan};
use underload_fleet::rollout::{
    Event, Exposure, Pause, Phase, RolloutPlan, Row, State, Watch, WatchedLine, append, judge,
    load, lot,
};
use underload_fleet::store::{Archive, Device, Filter, Needs};
use underload_orchestrator::http::system_ms;
use underload_orchestrator::rollout::{event_words, state_words};
use underload_orchestrator::store::Place;
use underload_record::stats::median;
use underload_record::text::one_line;
use underload_report::{significant, thousands};
use underload_terminal::console;
use underload_terminal::exit::{OrBadInput, bad_input};

use super::orchestrator::existing_store;
use connector::Connector;
use daily::{Day, p99s_by_day};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  underload fleet rollout plan pie.toml
  underload fleet rollout start pie.toml --dry-run
  underload fleet rollout confirm pie.toml --by ana")]
pub(super) struct Arguments {
    /// plan: prints the lines with their latency and their file; start: starts or continues, to be
    /// run once a day; status: prints log and state; confirm: continues after a pause; back:
    /// returns all changed lines to their former configuration.
    action: Action,
    /// The rollout's file.
    plan: PathBuf,
    /// The orchestrator's store: sqlite:DIR or postgres://USER@HOST/DATABASE [default:
    /// sqlite:~/.local/share/underload/fleet].
    #[arg(long, value_name = "STORE")]
    store: Option<Place>,
    /// Starts a rollout that changes no line, and logs what it would have done.
    #[arg(long)]
    dry_run: bool,
    /// Name of the person who decides, for the log.
    #[arg(long, value_name = "NAME", default_value = "the store's owner")]
    by: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Action {
    Plan,
    Start,
    Status,
    Confirm,
    Back,
}

const DAY_MS: u64 = 86_400_000;
/// Lines in a row of the log, and failures that end a row earlier.
const BATCH: usize = 100;
const BATCH_FAILURES: usize = 10;
/// Lines that are read from the store at once.
const PAGE: usize = 10_000;
/// Longest configuration file, whose document fits into a pipe.
const CONFIGURATION_MAX: u64 = 32 << 10;
/// The author of what follows from the plan and the measurements.
const PLAN: &str = "the plan";

impl Arguments {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let mut rollout = self.open()?;
        if matches!(self.action, Action::Confirm) {
            // Days since the pause may show harm.
            rollout.watch()?;
        }
        let refused = |why: &str| Err(bad_input(anyhow!("{why}: {}", rollout.sentence())));
        let state = rollout.state();
        let event = match (self.action, state.phase) {
            (Action::Plan, _) => {
                rollout.check()?;
                return rollout.print_plan();
            }
            (Action::Status, _) => return console::print(&rollout.words(0)),
            (Action::Start, Phase::New) => {
                rollout.check()?;
                Some(Event::Started { is_dry_run: self.dry_run })
            }
            (Action::Start, _) if self.dry_run && !state.is_dry_run => {
                return refused("it was not started with --dry-run");
            }
            (Action::Start, _) | (Action::Back, Phase::Returning) => None,
            (Action::Confirm, Phase::Paused(_)) => {
                let known = &rollout.plan.confirmers;
                if !known.is_empty() && !known.contains(&self.by) {
                    let known = known.join(", ");
                    return Err(bad_input(anyhow!("--by: expected one of {known}")));
                }
                Some(Event::Confirmed)
            }
            (Action::Confirm, _) => return refused("nothing to confirm"),
            (Action::Back, Phase::New) => return refused("no line is changed"),
            // A second order repeats what the connector failed on.
            (Action::Back, _) => Some(Event::Stopped),
        };
        let before = rollout.log.len();
        if let Some(event) = event {
            rollout.append(&self.by, event)?;
        }
        loop {
            let has_ended = match rollout.state().phase {
                Phase::Sending | Phase::Returning => rollout.send()?,
                _ => rollout.watch()?,
            };
            if !has_ended {
                break;
            }
        }
        console::print(&rollout.words(before))
    }

    fn open(&self) -> anyhow::Result<Rollout> {
        let shown = || self.plan.display().to_string();
        let bytes = disk::read_file(&self.plan, BYTES_MAX as u64).with_context(shown);
        let text = String::from_utf8(bytes.or_bad_input()?).with_context(shown).or_bad_input()?;
        let plan = RolloutPlan::parse(&text).with_context(shown).or_bad_input()?;
        let place = existing_store(self.store.as_ref())?;
        let mut archive = place.archive().with_context(|| place.to_string())?;
        let stored = load(&mut |name| archive.setting(name), &plan.name);
        let stored = stored.context("reading the store")?;
        if stored.as_ref().is_some_and(|stored| stored.text != text) {
            return Err(bad_input(anyhow!(
                "{}: a rollout `{}` was started with another file: a started rollout does not \
                 change, and its name is not used again",
                shown(),
                plan.name
            )));
        }
        let log = stored.map(|stored| stored.log).unwrap_or_default();
        let path = self.plan.clone();
        Ok(Rollout { plan, text, path, place, archive, log })
    }
}

/// A rollout in a store.
struct Rollout {
    plan: RolloutPlan,
    text: String,
    /// The plan's file, to whose directory the paths of configurations are relative.
    path: PathBuf,
    place: Place,
    archive: Box<dyn Archive>,
    log: Vec<Row>,
}

impl Rollout {
    fn state(&self) -> State {
        State::of(&self.plan, &self.log)
    }

    fn sentence(&self) -> String {
        state_words(&self.plan, &self.state())
    }

    /// Returns the log from row `from` on, and the state.
    fn words(&self, from: usize) -> String {
        let row = |row: &Row| format!("{}: {}\n", one_line(&row.who), event_words(&row.event));
        self.log[from..].iter().map(row).collect::<String>() + &self.sentence() + "\n"
    }

    fn append(&mut self, who: &str, event: Event) -> anyhow::Result<()> {
        let row = Row { at_ms: system_ms(), who: who.to_owned(), event };
        let store = || {
            let mut store = self.place.beside()?;
            let mut tx = store.begin(&Needs { admits: true, ..Needs::default() })?;
            let row = (&row, &*event_words(&row.event));
            let is_stored = append(&mut *tx, &self.plan.name, &self.text, self.log.len(), row)?;
            tx.commit().map(|()| is_stored)
        };
        if !store().with_context(|| self.place.to_string())? {
            return Err(anyhow!(
                "another command changes this rollout: try again when it has ended"
            ));
        }
        self.log.push(row);
        Ok(())
    }

    /// Returns the devices that `is_part` accepts, ordered by lot.
    fn lines(
        &mut self,
        is_part: impl Fn(&RolloutPlan, &Device) -> bool,
    ) -> anyhow::Result<Vec<WatchedLine>> {
        let (mut lines, mut after) = (Vec::new(), None);
        loop {
            let page = self.archive.devices(&Filter::default(), after, PAGE);
            let page = page.context("reading the store")?;
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            let page = page.into_iter().filter(|device| is_part(&self.plan, device));
            lines.extend(page.map(|it| WatchedLine { device: it.id, attributes: it.attributes }));
        }
        lines.sort_by_key(|line| (lot(&self.plan.name, line.device), line.device));
        Ok(lines)
    }

    /// Returns the lines that take part, and those that were changed and no longer match.
    fn watched(&mut self) -> anyhow::Result<Vec<WatchedLine>> {
        let exposure = Exposure::of(&self.log);
        self.lines(|plan, it| takes_part(plan, it) || exposure.since_ms(it.id).is_some())
    }

    /// Sends files to the lines of the stage, or returns them. Returns true.
    fn send(&mut self) -> anyhow::Result<bool> {
        let State { stage, phase, is_dry_run, .. } = self.state();
        let is_former = phase == Phase::Returning;
        let mut connector = Connector::new(&self.plan)?;
        let contents = self.contents()?;
        let exposure = Exposure::of(&self.log);
        let due = self.lines(|plan, device| {
            if is_former {
                return exposure.is_due_back(device.id);
            }
            let is_of_stage = lot(&plan.name, device.id) < plan.lots_of(stage);
            is_of_stage && takes_part(plan, device) && exposure.is_due(device.id, stage)
        })?;
        let mut due = due.iter().peekable();
        loop {
            let (mut devices, mut failed) = (Vec::new(), Vec::new());
            while devices.len() < BATCH && failed.len() < BATCH_FAILURES {
                let Some(line) = due.next() else { break };
                devices.push(line.device);
                let document = self.document(line, is_former, &contents);
                if !is_dry_run && !connector.send(&line.device.to_string(), &document) {
                    failed.push(line.device);
                }
            }
            let is_last = due.peek().is_none();
            self.append(PLAN, Event::Sent { stage, is_former, devices, failed, is_last })?;
            if is_last || self.state().phase != phase {
                return Ok(true);
            }
        }
    }

    /// Checks what a started rollout needs: its connector, its files and its measurements.
    fn check(&mut self) -> anyhow::Result<()> {
        Connector::new(&self.plan)?;
        self.contents()?;
        let RolloutPlan { plan, step, dscp, .. } = &self.plan;
        let row = self.archive.plans()?.into_iter().find(|row| row.name == *plan);
        let measured = row.and_then(|row| Plan::parse(&row.text).ok());
        let mut steps = measured.iter().flat_map(|measured| &measured.steps);
        if steps.any(|it| it.name == *step && it.classes.contains(dscp)) {
            return Ok(());
        }
        let problem = "no such plan was applied, or it has no such step with this DSCP";
        Err(bad_input(anyhow!("plan `{plan}`, step `{step}`, dscp {dscp}: {problem}")))
    }

    /// Reads the configurations, by their paths in the plan.
    fn contents(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let read = |path: &String| {
            let bytes = disk::read_file(&self.path.with_file_name(path), CONFIGURATION_MAX);
            let bytes = bytes.with_context(|| format!("[[file]] {path}")).or_bad_input()?;
            Ok((path.clone(), BASE64.encode(&bytes)))
        };
        self.plan.files.iter().map(|file| read(&file.path)).collect()
    }

    fn document(
        &self,
        line: &WatchedLine,
        is_former: bool,
        contents: &BTreeMap<String, String>,
    ) -> String {
        let file = self.plan.file_of(&line.attributes).filter(|_| !is_former);
        let document = serde_json::json!({
            "rollout": self.plan.name,
            "action": if is_former { "back" } else { "set" },
            "device": line.device,
            "attributes": line.attributes,
            "file": file.map(|file| &file.path),
            "configuration_base64": file.and_then(|file| contents.get(&file.path)),
        });
        document.to_string()
    }

    fn days(
        &mut self,
        days: (u32, u32),
        lines: &[WatchedLine],
    ) -> anyhow::Result<BTreeMap<u32, Day>> {
        let numbers = lines.iter().enumerate().map(|(number, line)| (line.device, number));
        let days = p99s_by_day(self.archive.as_mut(), &self.plan, days, &numbers.collect());
        days.context("reading the store")
    }

    /// Judges the days that are over, of a stage that is watched or paused. Returns whether the
    /// phase ended.
    fn watch(&mut self) -> anyhow::Result<bool> {
        let today = day_of(system_ms());
        let is_watched = match self.state().phase {
            Phase::Watching => true,
            Phase::Paused(pause) => pause != Pause::Failures,
            _ => false,
        };
        if !is_watched || self.state().next_day >= today {
            return Ok(false);
        }
        let lines = self.watched()?;
        let first = day_of(self.log[0].at_ms).saturating_sub(self.plan.before_days);
        let days = self.days((first, today), &lines)?;
        let mut watch = Watch::new(&self.plan, &self.log, &lines);
        for day in first..today {
            watch.add_day(day, days.get(&day).map_or(&[][..], Vec::as_slice));
            let state = self.state();
            if day >= state.next_day {
                self.append(PLAN, judge(&self.plan, &state, day, watch.looks()))?;
                if self.state().phase != state.phase {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn print_plan(&mut self) -> anyhow::Result<()> {
        let lines = self.watched()?;
        let today = day_of(system_ms());
        let days = self.days((today.saturating_sub(self.plan.before_days), today + 1), &lines)?;
        let mut groups: BTreeMap<String, (u64, Vec<f64>)> = BTreeMap::new();
        let group = |line: &WatchedLine| {
            let of = |name| one_line(&line.attributes.get(name).unwrap_or_default());
            let file = self.plan.file_of(&line.attributes).map_or("", |file| &file.path);
            format!("model {}, tier {}, {file}", of("model"), of("tier"))
        };
        for line in &lines {
            groups.entry(group(line)).or_default().0 += 1;
        }
        for (line, p99) in days.values().flatten() {
            groups.entry(group(&lines[*line])).or_default().1.push(*p99);
        }
        let mut text = self.sentence() + "\n";
        for (group, (count, p99s)) in &groups {
            let p99 = median(p99s).filter(|ms| ms.is_finite());
            let p99 = p99.map_or("not measured".to_owned(), |ms| significant(ms) + " ms");
            let _ = writeln!(text, "  {} lines, {group}: p99 {p99}", thousands(*count));
        }
        for percent in &self.plan.stages_percent {
            let count = thousands((lines.len() as f64 * percent / 100.0).round() as u64);
            let _ = writeln!(text, "  stage of {percent} %: about {count} lines");
        }
        console::print(&text)
    }
}

fn takes_part(plan: &RolloutPlan, device: &Device) -> bool {
    !device.is_removed && plan.includes(&device.attributes)
}

fn day_of(at_ms: u64) -> u32 {
    u32::try_from(at_ms / DAY_MS).unwrap_or(u32::MAX)
}
