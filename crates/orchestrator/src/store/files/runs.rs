//! Results as rows, one for each series, and back, with nothing lost.
//!
//! A step without series has a row without one, and a run without steps a row without a step. Rows
//! of a result follow each other; results are in the order of cohort, tier, region, pseudonym.

use std::path::Path;

use underload_fleet::bins::Bins;
use underload_fleet::device::{Attributes, DeviceId, Pseudonym};
use underload_fleet::outcome::{Outcome, RunResult, SeriesResult, StepResult};
use underload_fleet::plan::Kind as Load;
use underload_fleet::store::{Filter, StoreError, StoredResult};

use super::columns::{Column, Kind, Layout, Reader, Value, Writer, Written, damaged};
use crate::store::encode::{bytes_of_bins, visit_bins};

/// A result with the number that says when it came.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::store) struct Numbered {
    pub(in crate::store) number: i64,
    pub(in crate::store) result: StoredResult,
}

/// What results are ordered by in a file.
pub(in crate::store) type Order = (String, String, String, Pseudonym, i64);

impl Numbered {
    pub(in crate::store) fn order(&self) -> Order {
        let StoredResult { cohort, attributes, pseudonym, .. } = &self.result;
        let tier = attributes.get("tier").unwrap_or_default();
        (cohort.clone(), tier, attributes.region.clone(), *pseudonym, self.number)
    }
}

/// Columns of a file of runs. The plan is in its path.
pub(super) const LAYOUT: &Layout = &[
    ("number", Kind::Rising),
    ("device", Kind::Bytes),
    ("pseudonym", Kind::Bytes),
    ("epoch", Kind::Long),
    ("sequence", Kind::Rising),
    ("stored_ms", Kind::Rising),
    ("cohort", Kind::Text),
    ("model", Kind::Text),
    ("firmware", Kind::Text),
    ("tier_up_bit_per_s", Kind::Long),
    ("tier_down_bit_per_s", Kind::Long),
    ("segment", Kind::Text),
    ("region", Kind::Text),
    ("configured", Kind::Text),
    ("measured", Kind::Text),
    ("run", Kind::Rising),
    ("at_ms", Kind::Rising),
    ("outcome", Kind::Text),
    ("reason", Kind::Text),
    ("server", Kind::Text),
    ("version", Kind::Text),
    ("step_number", Kind::OptionalLong),
    ("step", Kind::OptionalText),
    ("kind", Kind::OptionalText),
    ("goodput_bit_per_s", Kind::OptionalLong),
    ("tier_percent", Kind::OptionalReal),
    ("dscp", Kind::OptionalLong),
    ("sent", Kind::OptionalLong),
    ("lost", Kind::OptionalLong),
    ("bins", Kind::OptionalBytes),
    ("p50_us", Kind::OptionalLong),
    ("p99_us", Kind::OptionalLong),
    ("mean_us", Kind::OptionalLong),
    ("max_us", Kind::OptionalLong),
];

/// A file that results are added to, in their order.
pub(in crate::store) struct RunsWriter {
    writer: Writer,
    results: u64,
    last: i64,
}

impl RunsWriter {
    pub(in crate::store) fn new(path: &Path) -> Result<Self, StoreError> {
        Ok(Self { writer: Writer::new(path, LAYOUT)?, results: 0, last: 0 })
    }

    pub(in crate::store) fn add(&mut self, kept: &Numbered) -> Result<(), StoreError> {
        self.results += 1;
        self.last = self.last.max(kept.number);
        let steps = &kept.result.result.steps;
        if steps.is_empty() {
            return self.row(kept, None, None);
        }
        for (place, step) in steps.iter().enumerate() {
            if step.series.is_empty() {
                self.row(kept, Some((place, step)), None)?;
            }
            for series in &step.series {
                self.row(kept, Some((place, step)), Some(series))?;
            }
        }
        Ok(())
    }

    fn row(
        &mut self,
        kept: &Numbered,
        step: Option<(usize, &StepResult)>,
        series: Option<&SeriesResult>,
    ) -> Result<(), StoreError> {
        let StoredResult { device, epoch, sequence, stored_ms, pseudonym, .. } = &kept.result;
        let StoredResult { cohort, attributes, result, .. } = &kept.result;
        let bins = series.map(|series| bytes_of_bins(&series.bins));
        let of_step = |number: fn(&StepResult) -> Option<u64>| {
            Value::OptionalLong(step.and_then(|(_, step)| number(step)).map(|it| it as i64))
        };
        let of_series = |number: fn(&SeriesResult) -> Option<u64>| {
            Value::OptionalLong(series.and_then(number).map(|it| it as i64))
        };
        let step_text = |text: fn(&StepResult) -> &str| {
            Value::OptionalBytes(step.map(|(_, step)| text(step).as_bytes()))
        };
        self.writer.row(&[
            Value::Long(kept.number),
            Value::Bytes(&device.0),
            Value::Bytes(&pseudonym.0),
            Value::Long(i64::from(*epoch)),
            Value::Long(*sequence as i64),
            Value::Long(*stored_ms as i64),
            Value::Bytes(cohort.as_bytes()),
            Value::Bytes(attributes.model.as_bytes()),
            Value::Bytes(attributes.firmware.as_bytes()),
            Value::Long(attributes.tier_up_bit_per_s as i64),
            Value::Long(attributes.tier_down_bit_per_s as i64),
            Value::Bytes(attributes.segment.as_bytes()),
            Value::Bytes(attributes.region.as_bytes()),
            Value::Bytes(attributes.configured.as_bytes()),
            Value::Bytes(attributes.measured.as_bytes()),
            Value::Long(result.run as i64),
            Value::Long(result.at_ms as i64),
            Value::Bytes(name_of_outcome(result.outcome).as_bytes()),
            Value::Bytes(result.reason.as_bytes()),
            Value::Bytes(result.server.as_bytes()),
            Value::Bytes(result.version.as_bytes()),
            Value::OptionalLong(step.map(|(place, _)| place as i64)),
            step_text(|step| &step.step),
            step_text(|step| step.kind.name()),
            of_step(|step| step.goodput_bit_per_s),
            Value::OptionalReal(step.and_then(|(_, step)| step.tier_percent)),
            of_series(|series| Some(u64::from(series.dscp))),
            of_series(|series| Some(series.sent)),
            of_series(|series| Some(series.lost)),
            Value::OptionalBytes(bins.as_deref()),
            of_series(|series| series.p50_us),
            of_series(|series| series.p99_us),
            of_series(|series| series.mean_us),
            of_series(|series| series.max_us),
        ])
    }

    /// Ends the file; also the results in it and the highest number of them.
    pub(in crate::store) fn finish(self) -> Result<((u64, i64), Written), StoreError> {
        Ok(((self.results, self.last), self.writer.finish()?))
    }
}

/// Results of a file, one after the other.
pub(in crate::store) struct RunsReader {
    path: std::path::PathBuf,
    plan: String,
    reader: Reader,
    batch: Vec<Column>,
    row: usize,
    rows: usize,
}

impl RunsReader {
    pub(in crate::store) fn open(path: &Path, plan: &str) -> Result<Self, StoreError> {
        let reader = Reader::open(path, LAYOUT, &[])?;
        let (path, plan) = (path.to_owned(), plan.to_owned());
        Ok(Self { path, plan, reader, batch: Vec::new(), row: 0, rows: 0 })
    }

    /// The next result; `None` at the end.
    ///
    /// # Errors
    /// [`StoreError::Broken`] where the file is damaged.
    pub(in crate::store) fn next(&mut self) -> Result<Option<Numbered>, StoreError> {
        self.next_of(&Filter::default())
    }

    /// The next result that is meant, whatever its plan and day are; `None` at the end.
    ///
    /// # Errors
    /// [`StoreError::Broken`] where the file is damaged.
    pub(in crate::store) fn next_of(
        &mut self,
        filter: &Filter,
    ) -> Result<Option<Numbered>, StoreError> {
        let mut found: Option<(Numbered, Option<i64>)> = None;
        while self.has_row()? {
            let row = Row { columns: &self.batch, row: self.row };
            let number = row.long(0).ok_or_else(|| self.wrong())?;
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
            let Some(batch) = self.reader.next()? else { return Ok(false) };
            self.rows = batch.first().map_or(0, Column::rows);
            (self.batch, self.row) = (batch, 0);
        }
        Ok(true)
    }

    fn wrong(&self) -> StoreError {
        damaged(&self.path, &format!("row {} of a batch is no series of a run", self.row))
    }
}

/// Whether a file has a result of a device.
///
/// # Errors
/// [`StoreError::Broken`] where the file is damaged.
pub(in crate::store) fn has_device(path: &Path, device: DeviceId) -> Result<bool, StoreError> {
    let mut reader = Reader::open(path, LAYOUT, &["device"])?;
    while let Some(columns) = reader.next()? {
        let Some(devices) = columns.first() else { continue };
        if (0..devices.rows()).any(|row| devices.bytes(row) == Some(&device.0[..])) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A row of all columns.
struct Row<'a> {
    columns: &'a [Column],
    row: usize,
}

impl Row<'_> {
    fn long(&self, column: usize) -> Option<i64> {
        self.columns.get(column)?.long(self.row)
    }

    fn number(&self, column: usize) -> Option<u64> {
        self.long(column).map(|number| number as u64)
    }

    fn bytes(&self, column: usize) -> Option<&[u8]> {
        self.columns.get(column)?.bytes(self.row)
    }

    fn text(&self, column: usize) -> Option<&str> {
        self.columns.get(column)?.text(self.row)
    }

    fn real(&self, column: usize) -> Option<f64> {
        self.columns.get(column)?.real(self.row)
    }

    /// Whether its line, cohort and hour are meant. What cannot be read is, so that it is told.
    fn is_meant(&self, filter: &Filter) -> bool {
        let is = |column: usize, wanted: &str| self.text(column).is_none_or(|it| it == wanted);
        let hour = |at_ms: u64| (at_ms / 3_600_000 % 24) as u8;
        filter.cohort.as_ref().is_none_or(|cohort| is(6, cohort))
            && filter.hour.is_none_or(|wanted| self.number(16).is_none_or(|it| hour(it) == wanted))
            && filter.attributes.iter().all(|(name, wanted)| {
                let column = LAYOUT.iter().position(|(column, _)| column == name);
                // The tier is two columns, which whoever asks looks at.
                name == "tier" || column.is_some_and(|column| is(column, wanted))
            })
    }

    /// The result without its steps.
    fn result(&self, plan: &str) -> Option<StoredResult> {
        let owned = |column| self.text(column).map(str::to_owned);
        let id = |column| self.bytes(column)?.try_into().ok();
        Some(StoredResult {
            device: DeviceId(id(1)?),
            pseudonym: Pseudonym(id(2)?),
            epoch: u32::try_from(self.long(3)?).ok()?,
            sequence: self.number(4)?,
            stored_ms: self.number(5)?,
            cohort: owned(6)?,
            attributes: Attributes {
                model: owned(7)?,
                firmware: owned(8)?,
                tier_up_bit_per_s: self.number(9)?,
                tier_down_bit_per_s: self.number(10)?,
                segment: owned(11)?,
                region: owned(12)?,
                configured: owned(13)?,
                measured: owned(14)?,
            },
            result: RunResult {
                plan: plan.to_owned(),
                run: self.number(15)?,
                at_ms: self.number(16)?,
                outcome: outcome_of(self.text(17)?)?,
                reason: owned(18)?,
                server: owned(19)?,
                version: owned(20)?,
                steps: Vec::new(),
            },
        })
    }

    /// Adds the row's step, where it is not the last one, and its series.
    fn add_to(&self, result: &mut RunResult, last_step: &mut Option<i64>) -> Option<()> {
        let Some(place) = self.long(21) else { return Some(()) };
        if last_step.replace(place) != Some(place) {
            result.steps.push(StepResult {
                step: self.text(22)?.to_owned(),
                kind: load_of(self.text(23)?)?,
                goodput_bit_per_s: self.number(24),
                tier_percent: self.real(25),
                series: Vec::new(),
            });
        }
        let Some(dscp) = self.long(26) else { return Some(()) };
        let mut bins = Bins::default();
        visit_bins(self.bytes(29)?, |bin, count| bins.add_to(bin, count))?;
        result.steps.last_mut()?.series.push(SeriesResult {
            dscp: u8::try_from(dscp).ok()?,
            sent: self.number(27)?,
            lost: self.number(28)?,
            bins,
            p50_us: self.number(30),
            p99_us: self.number(31),
            mean_us: self.number(32),
            max_us: self.number(33),
        });
        Some(())
    }
}

/// An outcome as files have it: as messages do.
pub(super) fn name_of_outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Measured => "measured",
        Outcome::Invalid => "invalid",
        Outcome::Refused => "refused",
        Outcome::CrossTraffic => "cross-traffic",
        Outcome::Failed => "failed",
        Outcome::Missed => "missed",
    }
}

pub(super) fn outcome_of(name: &str) -> Option<Outcome> {
    Outcome::ALL.into_iter().find(|outcome| name_of_outcome(*outcome) == name)
}

pub(super) fn load_of(name: &str) -> Option<Load> {
    [Load::Latency, Load::Upload, Load::Download].into_iter().find(|load| load.name() == name)
}
