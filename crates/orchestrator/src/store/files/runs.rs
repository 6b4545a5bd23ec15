//! Results as rows, one for each series, and back without loss.
//!
//! A step without series has one row without a series, and a run without steps one row without a
//! step. Round trips of a load are a series without a DSCP. The rows of a result are consecutive;
//! results are ordered by cohort, tier, region and pseudonym.

use std::path::Path;

use parquet::data_type::ByteArray;
use underload_fleet::device::{Attributes, DeviceId, Pseudonym};
use underload_fleet::outcome::{Outcome, RunResult, SeriesResult, StepResult};
use underload_fleet::plan::Kind as Load;
use underload_fleet::store::{Filter, StoreError, StoredResult};
use underload_record::judgement::Grade;
use underload_store::table::Table as _;
use underload_store::{Column, table};

use super::catalogue::Part;
use super::table::{Reader, Writer, bins_of, counts_of, damaged, histogram, text};

/// A result with its number in the database, which rises in the order of arrival.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Numbered {
    pub(crate) number: i64,
    pub(crate) result: StoredResult,
}

/// The sort key of the results in a file.
pub(crate) type Order = (String, String, String, Pseudonym, i64);

impl Numbered {
    pub(crate) fn order(&self) -> Order {
        let StoredResult { cohort, attributes, pseudonym, .. } = &self.result;
        let tier = attributes.get("tier").unwrap_or_default();
        (cohort.clone(), tier, attributes.region.clone(), *pseudonym, self.number)
    }
}

/// The source of a row: one series of a step, a step without series (`series` is `None`), or a
/// result without steps (`step` is `None` too).
#[derive(Clone, Copy)]
struct RunRow<'a> {
    number: i64,
    kept: &'a StoredResult,
    step: Option<(usize, &'a StepResult)>,
    series: Option<&'a SeriesResult>,
    /// The DSCP of the probes; `None` for round trips of a load.
    dscp: Option<u8>,
}

impl<'a> RunRow<'a> {
    fn step<T>(self, value: impl Fn(&'a StepResult) -> T) -> Option<T> {
        self.step.map(|(_, step)| value(step))
    }
}

table! {
    /// Columns of a file of runs. The plan is in its path.
    struct Runs of row: RunRow {
        number: Long = row.number;
        device: Bytes = &row.kept.device.0;
        pseudonym: Bytes = &row.kept.pseudonym.0;
        epoch: Long = row.kept.epoch;
        sequence: Long = row.kept.sequence as i64;
        stored_ms: Long = row.kept.stored_ms as i64;
        cohort: Text = &row.kept.cohort;
        model: Text = &row.kept.attributes.model;
        firmware: Text = &row.kept.attributes.firmware;
        tier_up_bit_per_s: Long = row.kept.attributes.tier_up_bit_per_s as i64;
        tier_down_bit_per_s: Long = row.kept.attributes.tier_down_bit_per_s as i64;
        segment: Text = &row.kept.attributes.segment;
        region: Text = &row.kept.attributes.region;
        configured: Text = &row.kept.attributes.configured;
        measured: Text = &row.kept.attributes.measured;
        run: Long = row.kept.result.run as i64;
        at_ms: Long = row.kept.result.at_ms as i64;
        outcome: Text = name_of_outcome(row.kept.result.outcome);
        reason: Text = &row.kept.result.reason;
        server: Text = &row.kept.result.server;
        version: Text = &row.kept.result.version;
        step_number: OptionalLong = row.step.map(|(place, _)| place as i64);
        step: OptionalText = row.step(|step| step.step.as_str());
        kind: OptionalText = row.step(|step| step.kind.name());
        goodput_bit_per_s: OptionalLong =
            row.step(|step| step.goodput_bit_per_s).flatten().map(signed);
        tier_percent: OptionalDouble = row.step(|step| step.tier_percent).flatten();
        grade: OptionalText = row.step(|step| step.grade.map(Grade::name)).flatten();
        dscp: OptionalLong = row.dscp;
        sent: OptionalLong = row.series.map(|series| signed(series.sent));
        lost: OptionalLong = row.series.map(|series| signed(series.lost));
        bin: Longs = bins_of(row.series.map(|series| &series.bins));
        count: Counts = counts_of(row.series.map(|series| &series.bins));
        p50_us: OptionalLong = row.series.and_then(|series| series.p50_us).map(signed);
        p99_us: OptionalLong = row.series.and_then(|series| series.p99_us).map(signed);
        mean_us: OptionalLong = row.series.and_then(|series| series.mean_us).map(signed);
        max_us: OptionalLong = row.series.and_then(|series| series.max_us).map(signed);
    }
}

/// Returns the number with the same 64 bits; [`unsigned`] converts it back.
fn signed(number: u64) -> i64 {
    number as i64
}

fn unsigned(number: i64) -> u64 {
    number as u64
}

/// Columns that sums and studies read only if a filter or a group is about them.
const UNMEASURED: [&str; 16] = [
    "epoch", "sequence", "stored_ms", "model", "firmware", "tier_up_bit_per_s",
    "tier_down_bit_per_s", "segment", "region", "configured", "measured", "reason", "server",
    "version", "p50_us", "p99_us",
];

/// A file to which results are added in the order of [`Numbered::order`].
pub(crate) struct RunsWriter {
    writer: Writer,
    part: Part,
}

impl RunsWriter {
    pub(crate) fn new(folder: &Path, part: Part) -> Result<Self, StoreError> {
        Ok(Self { writer: Writer::new::<Runs<'_>>(&part.in_folder(folder))?, part })
    }

    pub(crate) fn add(&mut self, kept: &Numbered) -> Result<(), StoreError> {
        self.part.results += 1;
        self.part.last = self.part.last.max(kept.number);
        let (step, series, dscp) = (None, None, None);
        let row = RunRow { number: kept.number, kept: &kept.result, step, series, dscp };
        let steps = &kept.result.result.steps;
        if steps.is_empty() {
            return self.row(&row);
        }
        for step in steps.iter().enumerate() {
            let row = RunRow { step: Some(step), ..row };
            if step.1.series.is_empty() {
                self.row(&row)?;
            }
            for series in &step.1.series {
                let (series, dscp) = (Some(series), Some(series.dscp));
                self.row(&RunRow { series, dscp, ..row })?;
            }
            if let Some(inside) = &step.1.inside {
                self.row(&RunRow { series: Some(inside), ..row })?;
            }
        }
        Ok(())
    }

    fn row(&mut self, row: &RunRow<'_>) -> Result<(), StoreError> {
        self.part.rows += 1;
        self.writer.row::<Runs<'_>>(row)
    }

    /// Finishes the file, which is then on disk under its path.
    pub(crate) fn finish(self) -> Result<Part, StoreError> {
        let (bytes, sha256) = self.writer.finish()?;
        Ok(Part { bytes, sha256, ..self.part })
    }
}

pub(crate) struct RunsReader<'a> {
    path: std::path::PathBuf,
    plan: String,
    batches: Batches<'a>,
    batch: Vec<Column>,
    row: usize,
    rows: usize,
}

/// Returns the columns of the next rows; `None` at the end of the file.
type Batches<'a> = Box<dyn FnMut() -> Result<Option<Vec<Column>>, StoreError> + 'a>;

/// Opens all columns of a file, or those that [`Archive::visit_measured`] needs for `attributes`.
///
/// [`Archive::visit_measured`]: underload_fleet::store::Archive::visit_measured
pub(super) fn columns_of(path: &Path, attributes: Option<&[&str]>) -> Result<Reader, StoreError> {
    Reader::open::<Runs<'_>>(path, |column| {
        let is_it = |name: &&str| match *name {
            "tier" => ["tier_up_bit_per_s", "tier_down_bit_per_s"].contains(&column),
            name => name == column,
        };
        !UNMEASURED.contains(&column) || attributes.is_none_or(|names| names.iter().any(is_it))
    })
}

impl<'a> RunsReader<'a> {
    pub(crate) fn open(path: &Path, plan: &str) -> Result<Self, StoreError> {
        let mut reader = columns_of(path, None)?;
        Ok(Self::new(path, plan, Box::new(move || reader.next())))
    }

    /// Reads the results of the file at `path` from its columns.
    pub(super) fn new(path: &Path, plan: &str, batches: Batches<'a>) -> Self {
        let (path, plan) = (path.to_owned(), plan.to_owned());
        Self { path, plan, batches, batch: Vec::new(), row: 0, rows: 0 }
    }

    /// Returns the next result; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Numbered>, StoreError> {
        self.next_of(&Filter::default())
    }

    /// Returns the next result whose cohort, hour and attributes meet the filter; `None` at the
    /// end.
    pub(crate) fn next_of(&mut self, filter: &Filter) -> Result<Option<Numbered>, StoreError> {
        let mut found: Option<(Numbered, Option<i64>)> = None;
        while self.has_row()? {
            let columns = Runs::view(&self.batch).ok_or_else(|| self.wrong())?;
            let row = Row { all: &self.batch, columns, at: self.row };
            let number = columns.number[self.row];
            let (kept, last_step) = match &mut found {
                Some((kept, _)) if kept.number != number => break,
                Some((kept, step)) => (kept, step),
                None if !row.is_meant(filter) => {
                    self.row += 1;
                    continue;
                }
                None => {
                    let result = row.result(&self.plan).ok_or_else(|| self.wrong())?;
                    let (kept, step) = found.insert((Numbered { number, result }, None));
                    (kept, step)
                }
            };
            row.add_to(&mut kept.result.result, last_step).ok_or_else(|| self.wrong())?;
            self.row += 1;
        }
        Ok(found.map(|(kept, _)| kept))
    }

    fn has_row(&mut self) -> Result<bool, StoreError> {
        while self.row == self.rows {
            let Some(batch) = (self.batches)()? else { return Ok(false) };
            self.rows = batch.first().map_or(0, Column::rows);
            (self.batch, self.row) = (batch, 0);
        }
        Ok(true)
    }

    fn wrong(&self) -> StoreError {
        damaged(&self.path, &format!("row {} of a batch is not a series of a run", self.row))
    }
}

/// Returns whether a file has results of a device whose identifier `is_it` accepts.
pub(crate) fn has_device(path: &Path, is_it: impl Fn(&[u8]) -> bool) -> Result<bool, StoreError> {
    let mut reader = Reader::open::<Runs<'_>>(path, |column| column == "device")?;
    while let Some(columns) = reader.next()? {
        let Some(Runs { device: devices, .. }) = Runs::view(&columns) else { continue };
        if devices.iter().any(|own| is_it(own.data())) {
            return Ok(true);
        }
    }
    Ok(false)
}

struct Row<'a> {
    all: &'a [Column],
    columns: Runs<'a>,
    at: usize,
}

impl Row<'_> {
    /// Returns whether the cohort, hour and attributes meet the filter. Unreadable values match, so
    /// that reading the row reports the damage.
    fn is_meant(&self, filter: &Filter) -> bool {
        let hour = unsigned(self.columns.at_ms[self.at]) / 3_600_000 % 24;
        let cohort = text(&self.columns.cohort[self.at]);
        filter.cohort.as_ref().is_none_or(|wanted| cohort.is_none_or(|own| own == wanted))
            && filter.hour.is_none_or(|wanted| hour == u64::from(wanted))
            && filter.attributes.iter().all(|(name, wanted)| {
                let place = Runs::LAYOUT.iter().position(|(column, _)| column == name);
                let text = |place: usize| self.all.get(place)?.text(self.at);
                // The tier is in two columns; the caller compares it.
                name == "tier"
                    || place.is_some_and(|place| text(place).is_none_or(|it| it == wanted))
            })
    }

    /// Returns the result without its steps; `None` if a value is invalid.
    fn result(&self, plan: &str) -> Option<StoredResult> {
        let Self { columns, at: row, .. } = *self;
        let owned = |column: &[ByteArray]| text(&column[row]).map(str::to_owned);
        Some(StoredResult {
            device: DeviceId(columns.device[row].data().try_into().ok()?),
            pseudonym: Pseudonym(columns.pseudonym[row].data().try_into().ok()?),
            epoch: u32::try_from(columns.epoch[row]).ok()?,
            sequence: unsigned(columns.sequence[row]),
            stored_ms: unsigned(columns.stored_ms[row]),
            cohort: owned(columns.cohort)?,
            attributes: Attributes {
                model: owned(columns.model)?,
                firmware: owned(columns.firmware)?,
                tier_up_bit_per_s: unsigned(columns.tier_up_bit_per_s[row]),
                tier_down_bit_per_s: unsigned(columns.tier_down_bit_per_s[row]),
                segment: owned(columns.segment)?,
                region: owned(columns.region)?,
                configured: owned(columns.configured)?,
                measured: owned(columns.measured)?,
            },
            result: RunResult {
                plan: plan.to_owned(),
                run: unsigned(columns.run[row]),
                at_ms: unsigned(columns.at_ms[row]),
                outcome: outcome_of(text(&columns.outcome[row])?)?,
                reason: owned(columns.reason)?,
                server: owned(columns.server)?,
                version: owned(columns.version)?,
                steps: Vec::new(),
            },
        })
    }

    /// Adds the row's step, unless it is the last one of `result`, and its series. `None` if a value
    /// is invalid.
    fn add_to(&self, result: &mut RunResult, last_step: &mut Option<i64>) -> Option<()> {
        let Self { columns, at: row, .. } = *self;
        let Some(place) = columns.step_number[row] else { return Some(()) };
        if last_step.replace(place) != Some(place) {
            result.steps.push(StepResult {
                step: text(columns.step[row].as_ref()?)?.to_owned(),
                kind: Load::from_name(text(columns.kind[row].as_ref()?)?)?,
                goodput_bit_per_s: columns.goodput_bit_per_s[row].map(unsigned),
                tier_percent: columns.tier_percent[row],
                grade: match &columns.grade[row] {
                    Some(grade) => Some(Grade::from_name(text(grade)?)?),
                    None => None,
                },
                series: Vec::new(),
                inside: None,
            });
        }
        let Some(sent) = columns.sent[row].map(unsigned) else { return Some(()) };
        let dscp = columns.dscp[row];
        let series = SeriesResult {
            dscp: u8::try_from(dscp.unwrap_or(0)).ok()?,
            sent,
            lost: columns.lost[row].map(unsigned)?,
            bins: histogram(columns.bin, columns.count, row)?,
            p50_us: columns.p50_us[row].map(unsigned),
            p99_us: columns.p99_us[row].map(unsigned),
            mean_us: columns.mean_us[row].map(unsigned),
            max_us: columns.max_us[row].map(unsigned),
        };
        let step = result.steps.last_mut()?;
        match dscp {
            Some(_) => step.series.push(series),
            None => step.inside = Some(series),
        }
        Some(())
    }
}

/// Name of an outcome in files and messages.
fn name_of_outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::CrossTraffic => "cross-traffic",
        other => other.name(),
    }
}

fn outcome_of(name: &str) -> Option<Outcome> {
    Outcome::ALL.into_iter().find(|outcome| name_of_outcome(*outcome) == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};
    use underload_fleet::store::{Archive as _, Dimension, Memory, Needs, Store as _};

    use super::*;
    use crate::pages::quantile_ms;
    use crate::store::testing::{append, many, plan};
    use crate::study;

    fn read(path: &Path, plan: &str) -> Vec<Numbered> {
        let mut reader = RunsReader::open(path, plan).expect("it opens");
        std::iter::from_fn(|| reader.next().expect("it reads")).collect()
    }

    fn write(path: &Path, results: &[Numbered]) {
        let (folder, name) = (path.parent().expect("a folder"), path.file_name().expect("a name"));
        let path = name.to_str().expect("a text").to_owned();
        let part = Part { path, ..Part::without_runs("trial", 1) };
        let mut writer = RunsWriter::new(folder, part).expect("it begins");
        for kept in results {
            writer.add(kept).expect("it is added");
        }
        writer.finish().expect("it is on disk");
    }

    /// Returns the curves and outcomes that pages show of `results`, and the means that a study
    /// shows.
    fn shown(results: &[StoredResult]) -> Value {
        let mut memory = Memory::new();
        let mut change = memory.begin(&Needs::default()).expect("it begins");
        change.put_plan(&plan()).expect("it is put");
        change.commit().expect("it is kept");
        append(&mut memory, results);
        let by = [Dimension::Cohort, Dimension::Step, Dimension::Dscp];
        let sums = memory.sums(&Filter::default(), &by).expect("sums");
        let curves = sums.iter().map(|sum| {
            let ms = |share| quantile_ms(&sum.bins, sum.lost, share);
            let us = |share| ms(share).map(|ms| (ms * 1e3).round());
            let [cohort, step, dscp] = &sum.key[..] else { panic!("three values") };
            let dscp: u8 = dscp.parse().expect("a number");
            let (tests, devices) = (sum.tests, sum.devices);
            json!([cohort, step, dscp, tests, devices, sum.sent, sum.lost, us(0.5), us(0.99)])
        });
        let curves: Vec<Value> = curves.collect();
        let outcomes = memory.outcomes(&Filter::default()).expect("outcomes").counts;
        let outcome = |it: &underload_fleet::store::OutcomeCount| {
            json!([name_of_outcome(it.outcome), it.reason, it.count, it.devices])
        };
        let outcomes: Vec<Value> = outcomes.iter().map(outcome).collect();
        let study = study::study(&mut memory, "trial", &study::Question::default());
        let study = study.expect("a study");
        for sum in &sums {
            let [cohort, step, dscp] = &sum.key[..] else { panic!("three values") };
            let mut series = study.series.iter();
            let series = series.find(|it| it.step == *step && it.dscp.to_string() == *dscp);
            let mut own = series.expect("a series").cohorts.iter();
            let own = own.find(|own| own.cohort == *cohort).expect("a cohort");
            for found in &own.quantiles {
                assert_eq!(found.ms, quantile_ms(&sum.bins, sum.lost, found.share), "{sum:?}");
            }
        }
        let means = study.series.into_iter().flat_map(|series| {
            series.cohorts.into_iter().filter_map(move |own| {
                let mean_ms = own.mean.average?.mean;
                let us = (mean_ms * 1e3).round();
                Some(((own.cohort, series.step.clone(), series.dscp), us))
            })
        });
        let means: BTreeMap<_, _> = means.collect();
        let mean = |((cohort, step, dscp), us)| json!([cohort, step, dscp, us]);
        let means: Vec<Value> = means.into_iter().map(mean).collect();
        json!({ "curves": curves, "outcomes": outcomes, "means": means })
    }

    #[test]
    fn reading_for_a_study_skips_columns_that_it_does_not_use() {
        let folder = underload_disk::faults::private_tempdir().expect("a folder");
        let path = folder.path().join("runs");
        let results: Vec<Numbered> =
            (1..).zip(many(3, 4)).map(|(number, result)| Numbered { number, result }).collect();
        write(&path, &results);
        let mut columns = columns_of(&path, Some(&["tier"])).expect("it opens");
        let mut reader = RunsReader::new(&path, "trial", Box::new(|| columns.next()));
        for mut whole in results {
            let found = reader.next().expect("it reads").expect("a result").result;
            let whole = &mut whole.result;
            assert_eq!(found.attributes.get("tier"), whole.attributes.get("tier"));
            assert_eq!(found.attributes.region, "");
            let parts = |it: &StoredResult| (it.device, it.pseudonym, it.cohort.clone(), it.hour());
            assert_eq!((parts(&found), found.was_due()), (parts(whole), whole.was_due()));
            let series = whole.result.steps.iter_mut().flat_map(|step| &mut step.series);
            series.for_each(|it| (it.p50_us, it.p99_us) = (None, None));
            assert_eq!(found.result.steps, whole.result.steps);
        }
    }

    /// `python/tests/test_archive.py` runs the same queries on this file with other programs.
    #[test]
    fn other_programs_compute_what_pages_show() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/files/golden");
        let mut results: Vec<Numbered> =
            (1..).zip(many(6, 12)).map(|(number, result)| Numbered { number, result }).collect();
        results.sort_by_key(Numbered::order);
        let (file, answers) = (golden.join("runs.parquet"), golden.join("shown.json"));
        let stored: Vec<StoredResult> = results.iter().map(|kept| kept.result.clone()).collect();
        let shown = serde_json::to_string_pretty(&shown(&stored)).expect("it is written") + "\n";
        if std::env::var_os("UNDERLOAD_WRITE_GOLDEN").is_some() {
            write(&file, &results);
            std::fs::write(&answers, &shown).expect("it is written");
        }
        assert_eq!(read(&file, "trial"), results);
        assert_eq!(std::fs::read_to_string(&answers).expect("it reads"), shown);
    }
}
