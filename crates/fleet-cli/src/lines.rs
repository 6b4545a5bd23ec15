//! Commands about lines: who they are, and their attributes over time.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use data_encoding::HEXLOWER;
use jiff::civil::Date;
use jiff::{Timestamp, tz::TimeZone};
use underload_fleet::device::Attributes;
use underload_fleet::line::LineUpdate;
use underload_fleet::operator::{LineState, ListLines, PutLines, PutLinesAnswer};
use underload_fleet::orchestrator::LINES_MAX;
use underload_orchestrator::http::system_ms;
use underload_orchestrator::operator::new_secret;
use underload_orchestrator::store::{Forgetting, Forgotten, Place};
use underload_record::text::{count, one_line};
use underload_terminal::console::{self, note};
use underload_terminal::exit::{OrBadInput, bad_input, refuse};

use super::operate::Reach;
use super::orchestrator::existing_store;

#[derive(Debug, Subcommand)]
pub(super) enum Lines {
    /// Records the lines of a CSV file: creates those that are new, and changes others.
    Import(Import),
    /// Changes the name, device or attributes of a line; a retired line is in use again.
    Set(Set),
    /// Lists lines.
    List(Listing),
    /// Prints a line and its history.
    #[command(after_help = "Examples:
  underload fleet lines show ACC-1001")]
    Show(Named),
    /// Excludes a line from all plans and counts, until it is set again.
    #[command(after_help = "Examples:
  underload fleet lines retire ACC-1001")]
    Retire(Named),
    /// Deletes lines, their devices and all that they measured, for good.
    Forget(Forget),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Changes the store itself, also while orchestrators run, and writes each file of the archive again
that has results of the lines. Their agents stop at their next request. Prints a receipt: only who
knows it can tell by the log which lines were forgotten.

Examples:
  underload fleet lines forget ACC-1001
  underload fleet lines forget ACC-1001 ACC-1002 --yes")]
pub(super) struct Forget {
    /// External identifiers of lines, or the 32 digits of devices.
    #[arg(value_name = "LINE", required = true)]
    lines: Vec<String>,
    /// Does not ask.
    #[arg(long)]
    yes: bool,
    /// The orchestrator's store: sqlite:DIR or postgres://USER@HOST/DATABASE [default:
    /// sqlite:~/.local/share/underload/fleet].
    #[arg(long, value_name = "STORE")]
    store: Option<Place>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  underload fleet lines import lines.csv
  underload fleet lines import upgraded.csv --from 2026-11-02")]
pub(super) struct Import {
    /// A CSV file with a column external_id and some of name, device, model, firmware, segment,
    /// region, configured, tier_up_bit_per_s, tier_down_bit_per_s. Empty cells change nothing.
    file: PathBuf,
    /// When the attributes became valid: a day, UTC, or a time such as 2026-11-02T04:30:00Z
    /// [default: always for the first value of an attribute, now for later ones].
    #[arg(long, value_name = "DATE", value_parser = moment)]
    from: Option<u64>,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  underload fleet lines set ACC-1001 configured=docsis-pie --from 2026-11-02
  underload fleet lines set ACC-1001 name='Mrs. Miller' device=DEVICE")]
pub(super) struct Set {
    /// The line's external identifier.
    external_id: String,
    /// Values of name, device, model, firmware, segment, region, configured, tier_up_bit_per_s,
    /// tier_down_bit_per_s. Without one, only brings a retired line back.
    #[arg(value_name = "NAME=VALUE")]
    values: Vec<String>,
    /// As for import.
    #[arg(long, value_name = "DATE", value_parser = moment)]
    from: Option<u64>,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  underload fleet lines list miller
  underload fleet lines list --where configured=fifo --silent-days 3")]
pub(super) struct Listing {
    /// A part of the name or of the external identifier.
    #[arg(default_value = "", hide_default_value = true)]
    text: String,
    /// Only lines with this value, such as region=north; may be given several times.
    #[arg(long = "where", value_name = "NAME=VALUE")]
    only: Vec<String>,
    /// Only lines in use whose device made no request for this number of days.
    #[arg(long, value_name = "N")]
    silent_days: Option<u32>,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Args)]
pub(super) struct Named {
    /// The line's external identifier.
    external_id: String,
    #[command(flatten)]
    reach: Reach,
}

impl Lines {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Import(import) => {
                let updates = List::read(&import.file, true)?.updates;
                let PutLinesAnswer { created, changed } =
                    put(&import.reach, &updates, import.from, true)?;
                note!("{}: {created} new, {changed} changed", count(updates.len(), "line"));
                Ok(())
            }
            Self::Set(set) => {
                let mut update = LineUpdate { is_retired: Some(false), ..LineUpdate::default() };
                update.set("external_id", &set.external_id).or_bad_input()?;
                for (name, value) in pairs(&set.values)? {
                    update.set(&name, &value).or_bad_input()?;
                }
                put(&set.reach, &[update], set.from, false).map(drop)
            }
            Self::List(list) => list.run(),
            Self::Show(Named { external_id, reach }) => {
                let external_id = Some(external_id.clone());
                let found = reach.ask(&ListLines { external_id, ..ListLines::default() })?;
                console::print(
                    &found.lines.iter().map(|it| row(it) + &history(it)).collect::<String>(),
                )
            }
            Self::Retire(Named { external_id, reach }) => {
                let mut update = LineUpdate { is_retired: Some(true), ..LineUpdate::default() };
                update.set("external_id", external_id).or_bad_input()?;
                put(reach, &[update], None, false).map(drop)
            }
            Self::Forget(forget) => forget.run(),
        }
    }
}

impl Forget {
    fn run(&self) -> anyhow::Result<()> {
        let place = existing_store(self.store.as_ref())?;
        let at = || place.to_string();
        let mut forgetting = Forgetting::open(&place).with_context(at)?;
        if forgetting.has_finished {
            note!("what an earlier command deleted is no longer on the disk either");
        }
        let mut unknown = Vec::new();
        for line in &self.lines {
            if !forgetting.add(line).with_context(at)? {
                unknown.push(format!("no line or device `{}`", one_line(line)));
            }
        }
        if !unknown.is_empty() {
            return Err(bad_input(anyhow!(unknown.join("\n"))));
        }
        let what = format!(
            "{} with {} and all results",
            count(self.lines.len(), "line"),
            count(forgetting.devices(), "device")
        );
        if !self.yes {
            match console::consent(&format!("{what} will be deleted for good. Delete?"))? {
                Some(true) => {}
                Some(false) => refuse!("nothing was deleted"),
                None => return Err(bad_input(anyhow!("{what} would be deleted: expected --yes"))),
            }
        }
        let secret = new_secret().context("making a receipt")?;
        let receipt = HEXLOWER.encode(&secret[..16]);
        console::print(&format!("receipt {receipt}\n"))?;
        let forgotten = forgetting.run(&receipt, system_ms()).with_context(at)?;
        let Forgotten { results, files } = forgotten;
        let results = count(usize::try_from(results).unwrap_or(usize::MAX), "result");
        note!("{what} were deleted: {results}; {} written again", count(files, "file"));
        if place.directory().is_none() {
            note!(
                "PostgreSQL has deleted rows in its files until `VACUUM FULL`, and in its \
                 write-ahead log and backups until they expire"
            );
        }
        Ok(())
    }
}

impl Listing {
    fn run(&self) -> anyhow::Result<()> {
        let mut list = ListLines {
            text: self.text.clone(),
            attributes: pairs(&self.only)?,
            silent_days: self.silent_days,
            ..ListLines::default()
        };
        let mut all = Vec::new();
        loop {
            let page = self.reach.ask_patiently(&list)?;
            if self.json {
                all.extend(page.lines);
            } else {
                console::print(&page.lines.iter().map(row).collect::<String>())?;
            }
            match page.next {
                Some(next) => list.after = next,
                None if self.json => return console::print_json(&all),
                None => return Ok(()),
            }
        }
    }
}

pub(super) fn pairs(texts: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut pairs = BTreeMap::new();
    for text in texts {
        let pair = text.split_once('=');
        let (name, value) =
            pair.ok_or_else(|| bad_input(anyhow!("`{text}`: expected NAME=VALUE")))?;
        if pairs.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(bad_input(anyhow!("`{name}` is given twice")));
        }
    }
    Ok(pairs)
}

/// Records lines. Nothing is recorded if a line is refused.
pub(super) fn put(
    reach: &Reach,
    updates: &[LineUpdate],
    from_ms: Option<u64>,
    is_import: bool,
) -> anyhow::Result<PutLinesAnswer> {
    let mut sum = PutLinesAnswer::default();
    // A request is recorded as a whole; several are checked first.
    for is_check in [true, false].into_iter().filter(|it| !it || updates.len() > LINES_MAX) {
        sum = PutLinesAnswer::default();
        for lines in updates.chunks(LINES_MAX) {
            let message = PutLines { lines: lines.to_vec(), from_ms, is_import, is_check };
            let answer = reach.ask_patiently(&message)?;
            sum.created += answer.created;
            sum.changed += answer.changed;
        }
    }
    Ok(sum)
}

fn row(state: &LineState) -> String {
    let LineState { line, attributes, seen_ms, is_retired } = state;
    let mut text = format!("{:<18}  {:<24}", one_line(&line.external_id), one_line(&line.name));
    for name in Attributes::NAMES {
        let value = attributes.get(name).filter(|value| !value.is_empty() && value != "0/0");
        let _ = value.map(|value| write!(text, "  {name}={}", one_line(&value)));
    }
    let state = match seen_ms {
        _ if *is_retired => "retired".to_owned(),
        Some(seen_ms) => format!("last request {}", date(*seen_ms)),
        None => "no device".to_owned(),
    };
    format!("{text}  {state}\n")
}

fn history(state: &LineState) -> String {
    let device = state.line.device.map_or(String::new(), |device| format!("device {device}\n"));
    let changes = state.line.changes.iter().map(|it| {
        let from = if it.from_ms == 0 { "always".to_owned() } else { date(it.from_ms) };
        format!("  from {from:<16}  {}={}\n", it.attribute, one_line(&it.value))
    });
    device + &changes.collect::<String>()
}

fn date(at_ms: u64) -> String {
    let at = i64::try_from(at_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map_or_else(String::new, |at| at.strftime("%Y-%m-%d %H:%M").to_string())
}

/// Parses a time, or a day as its beginning, UTC. Returns milliseconds since 1970.
pub(super) fn moment(text: &str) -> Result<u64, String> {
    // A date is also read from a time without a zone, which is refused.
    let date = Some(text).filter(|text| text.len() == "2026-11-02".len());
    let day = || date?.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok();
    let at = text.parse().ok().or_else(|| day().map(|day| day.timestamp()));
    let at = at.and_then(|at: Timestamp| u64::try_from(at.as_millisecond()).ok());
    at.ok_or_else(|| "expected a day such as 2026-11-02, or a time with its zone".to_owned())
}

/// A list of lines from a CSV file.
#[derive(Debug)]
pub(super) struct List {
    pub columns: csv::StringRecord,
    /// The rows, as they are in the file.
    pub records: Vec<csv::StringRecord>,
    /// What each row records.
    pub updates: Vec<LineUpdate>,
}

const ROWS_MAX: usize = 1_000_000;
/// Maximum number of faults of a file that are printed.
const FAULTS_MAX: usize = 50;

impl List {
    /// Reads a file. `is_import` requires an identifier of each line.
    ///
    /// # Errors
    /// Returns all faults of the file, each with its line.
    pub(super) fn read(path: &Path, is_import: bool) -> anyhow::Result<Self> {
        let read = Self::parse(path, is_import);
        read.with_context(|| path.display().to_string()).or_bad_input()
    }

    fn parse(path: &Path, is_import: bool) -> anyhow::Result<Self> {
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_path(path)?;
        let columns = reader.headers()?.clone();
        let is_known = |column: &str| {
            ["external_id", "name", "device"].contains(&column)
                || Attributes::RECORDED.contains(&column)
        };
        let unknown = columns.iter().filter(|column| !is_known(column));
        let mut faults: Vec<String> =
            unknown.map(|it| format!("line 1: {it}: expected {}", Attributes::COLUMNS)).collect();
        let has_ids = columns.iter().any(|column| column == "external_id");
        if is_import && !has_ids {
            faults.push("line 1: the column external_id is missing".to_owned());
        }
        let mut list = Self { columns, records: Vec::new(), updates: Vec::new() };
        let mut lines = BTreeMap::new();
        for record in reader.records() {
            let record = match record {
                Ok(record) if list.records.len() < ROWS_MAX => record,
                Ok(_) => return Err(anyhow!("more than {ROWS_MAX} lines")),
                Err(error) => {
                    faults.push(error.to_string());
                    continue;
                }
            };
            let at = record.position().map_or(0, csv::Position::line);
            let mut update = LineUpdate::default();
            for (column, value) in list.columns.iter().zip(&record) {
                let is_set = !value.is_empty() || column == "external_id";
                if is_set
                    && is_known(column)
                    && let Err(error) = update.set(column, value)
                {
                    faults.push(format!("line {at}: {error}"));
                }
            }
            let id = &update.external_id;
            if !id.is_empty()
                && let Some(first) = lines.insert(id.clone(), at)
            {
                faults.push(format!("line {at}: external_id: it is that of line {first}"));
            }
            list.updates.push(update);
            list.records.push(record);
        }
        if list.updates.is_empty() {
            faults.push("the file has no lines".to_owned());
        }
        if faults.len() > FAULTS_MAX {
            faults.truncate(FAULTS_MAX);
            faults.push("and others".to_owned());
        }
        if faults.is_empty() { Ok(list) } else { Err(anyhow!(faults.join("\n"))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, is_import: bool) -> Result<List, String> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("lines.csv");
        std::fs::write(&path, text).expect("written");
        List::parse(&path, is_import).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn lines_are_read_by_their_columns() {
        let list = read("region, model\nnorth, XB7\nsouth,\n", false).expect("lines");
        let models = |list: &List| -> Vec<Option<String>> {
            list.updates.iter().map(|it| it.attributes.get("model").cloned()).collect()
        };
        assert_eq!(models(&list), [Some("XB7".to_owned()), None]);
        assert_eq!(list.updates[1].attributes["region"], "south");
        let text = "external_id,name,tier_up_bit_per_s\nACC-1,Mrs. Miller,\n00:11,,35000000\n";
        let list = read(text, true).expect("lines");
        let [first, second] = &list.updates[..] else { panic!("{list:?}") };
        assert_eq!(first.name.as_deref(), Some("Mrs. Miller"));
        assert!(first.attributes.is_empty(), "an empty cell changes nothing");
        assert_eq!(second.attributes().expect("a rate").tier_up_bit_per_s, 35_000_000);
    }

    #[test]
    fn all_faults_of_a_list_are_told_at_once_with_their_lines() {
        let long = "x".repeat(65);
        let text = format!(
            "external_id,tier_up_bit_per_s,model,device\nA,35mbit,,\nA,,,\n,,XB7,\nB,,{long},\n\
             C,1000000000000001,,12\nD,1\n"
        );
        let told = read(&text, true).expect_err("six faults");
        let expected = [
            "line 2: tier_up_bit_per_s: expected a whole number of bit/s up to 10^15",
            "line 3: external_id: it is that of line 2",
            "line 4: external_id: expected 1 to 64 characters",
            "line 5: model: expected at most 64 characters",
            "line 6: tier_up_bit_per_s: expected a whole number of bit/s",
            "line 6: device: expected 32 hexadecimal digits",
            "line: 7",
        ];
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines.len(), expected.len(), "{told}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.contains(expected), "{line}: {expected}");
        }
        for (text, expected) in [
            (
                "model,measured\nXB7,PIE\n",
                "line 1: measured: expected one of the columns external_id, name",
            ),
            ("external_id,mac\nA,00:11\n", "line 1: mac: expected one of the columns"),
            ("model\nXB7\n", "line 1: the column external_id is missing"),
            ("external_id\n", "the file has no lines"),
            ("", "the file has no lines"),
        ] {
            let told = read(text, true).expect_err(text);
            assert!(told.contains(expected), "{told}");
        }
    }

    #[test]
    fn a_day_is_its_beginning_and_a_time_has_a_zone() {
        assert_eq!(moment("1970-01-02"), Ok(86_400_000));
        assert_eq!(moment("1970-01-01T01:00:00+01:00"), Ok(0));
        for wrong in
            ["", "yesterday", "1969-12-31", "2026-02-30", "2026-11-02T04:30", "2026-11-02 04:30"]
        {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }
}
