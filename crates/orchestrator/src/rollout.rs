//! Rollouts in a store: settings with their plans and logs. Every row of such a log is also a row
//! of the operators' log, in the same transaction.

use serde::{Deserialize, Serialize};
use underload_fleet::rollout::{Decision, Event, Look, Measure, Phase, RolloutPlan, Row, State};
use underload_fleet::store::{LogEntry, Result, StoreError, Transaction};
use underload_record::text::one_line;
use underload_report::{significant, thousands};

use crate::pages::date_text;

/// A started rollout.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRollout {
    /// The plan's file, unchanged.
    pub text: String,
    pub log: Vec<Row>,
}

/// The setting of a rollout. Each row of its log has a setting, too, so that a row is added in
/// constant time.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    text: String,
    rows: usize,
}

/// Returns a setting of the store by its name.
pub type Settings<'a> = &'a mut dyn FnMut(&str) -> Result<Option<Vec<u8>>>;

/// The setting with the names of all rollouts.
const NAMES: &str = "rollouts";

/// Returns a rollout with its log; `None` if it was not started.
pub fn load(setting: Settings<'_>, name: &str) -> Result<Option<StoredRollout>> {
    let Some(Head { text, rows }) = read(setting, &format!("rollout/{name}"))? else {
        return Ok(None);
    };
    let missing = || StoreError::broken(format!("rollout `{name}`: a row of its log is missing"));
    let row = |number| read(setting, &format!("rollout/{name}/{number}"))?.ok_or_else(missing);
    Ok(Some(StoredRollout { text, log: (0..rows).map(row).collect::<Result<_>>()? }))
}

/// Returns the names of all rollouts, the oldest first.
pub fn names(setting: Settings<'_>) -> Result<Vec<String>> {
    read(setting, NAMES).map(Option::unwrap_or_default)
}

fn read<T: for<'de> Deserialize<'de>>(setting: Settings<'_>, name: &str) -> Result<Option<T>> {
    let broken = |error| StoreError::broken(name).because(error);
    setting(name)?.map(|bytes| serde_json::from_slice(&bytes)).transpose().map_err(broken)
}

fn write(tx: &mut dyn Transaction, name: &str, value: &impl Serialize) -> Result<()> {
    let broken = |error| StoreError::broken(name).because(error);
    tx.put_setting(name, &serde_json::to_vec(value).map_err(broken)?)
}

/// Appends a row to the log of a rollout, which had `known` rows. Returns false if another command
/// has changed the rollout since: then nothing is stored.
pub fn append(
    tx: &mut dyn Transaction,
    name: &str,
    text: &str,
    known: usize,
    row: &Row,
) -> Result<bool> {
    let head = format!("rollout/{name}");
    let stored: Option<Head> = read(&mut |name| tx.setting(name), &head)?;
    if stored.map_or(0, |stored| stored.rows) != known {
        return Ok(false);
    }
    if known == 0 {
        let mut names = names(&mut |name| tx.setting(name))?;
        names.push(name.to_owned());
        write(tx, NAMES, &names)?;
    }
    write(tx, &format!("{head}/{known}"), row)?;
    write(tx, &head, &Head { text: text.to_owned(), rows: known + 1 })?;
    let what = format!("rollout {name}: {}", event_words(&row.event));
    tx.log(&LogEntry { at_ms: row.at_ms, who: row.who.clone(), what })?;
    Ok(true)
}

/// Describes an event in a sentence without its subject.
pub fn event_words(event: &Event) -> String {
    match event {
        Event::Started { is_dry_run: true } => "started as a dry run, which changes no line".into(),
        Event::Started { is_dry_run: false } => "started".into(),
        Event::Sent { is_former, devices, failed, .. } => {
            let what = if *is_former { "the former configuration" } else { "the new file" };
            let failed = match failed.len() {
                0 => String::new(),
                count => format!(", of which {count} were not confirmed"),
            };
            format!("sent {what} to {} lines{failed}", thousands(devices.len() as u64))
        }
        Event::Looked { day, looks, decision } => {
            let all = looks.iter().filter(|look| look.group.is_empty());
            let looks: Vec<String> = all.map(look_words).collect();
            let seen = if looks.is_empty() { "too few lines".to_owned() } else { looks.join(", ") };
            let day = date_text(*day);
            format!("judged {day}: {seen}: {}", decision_words(decision))
        }
        Event::Confirmed => "confirmed".into(),
        Event::Stopped => "ordered the former configuration".into(),
    }
}

/// Describes an effect with its interval: `p99 0.61 times (0.55 to 0.68)`.
pub fn look_words(look: &Look) -> String {
    let effect = &look.effect;
    let of = |value: f64| match look.measure {
        Measure::P99 => significant(value.exp()),
        Measure::Harmed => significant(value * 100.0),
    };
    let (value, low, high) = (of(effect.value), of(effect.low), of(effect.high));
    let group = if look.group.is_empty() { "" } else { " of " };
    let group = format!("{group}{}", one_line(&look.group));
    match look.measure {
        Measure::P99 => format!("p99{group} {value} times ({low} to {high})"),
        Measure::Harmed => format!("harmed lines{group} {value} % more ({low} to {high} %)"),
    }
}

fn decision_words(decision: &Decision) -> String {
    match decision {
        Decision::Wait => "wait".into(),
        Decision::Forward => "the next stage begins".into(),
        Decision::Pause(pause) => format!("pause, {pause}"),
        Decision::Back { group, measure } => {
            let group = if group.is_empty() { "all lines" } else { group };
            format!("back, because {} was harmed ({measure})", one_line(group))
        }
        Decision::Done => "done".into(),
    }
}

/// Describes a rollout in a sentence.
pub fn state_words(plan: &RolloutPlan, state: &State) -> String {
    let percent = plan.stages_percent[state.stage];
    let number = state.stage + 1;
    let stage = format!("stage {number} of {} ({percent} %)", plan.stages_percent.len());
    let phase = match state.phase {
        Phase::New => return format!("{} has not started.", plan.name),
        Phase::Sending => format!("sends the new file to the lines of {stage}"),
        Phase::Watching => {
            let days = state.next_day - state.since_day;
            format!("watches {stage}: {days} days were judged, of at least {}", plan.least_days)
        }
        Phase::Paused(pause) => format!("is paused in {stage}: {pause}"),
        Phase::Returning => format!("returns the lines of {stage} to their former configuration"),
        Phase::Returned => format!("was taken back in {stage}"),
        Phase::Done => format!("is done, after {stage}"),
    };
    let dry = if state.is_dry_run { " (dry run: no line is changed)" } else { "" };
    format!("{} {phase}{dry}.", plan.name)
}
