//! What is left of a day after its runs are gone: sums of series of lines that are alike, and how
//! often runs came to each end.

use std::collections::BTreeMap;
use std::path::Path;

use underload_fleet::bins::Bins;
use underload_fleet::retention::{EndKey, Fold, SumKey};
use underload_fleet::store::StoreError;

use super::columns::{Column, Kind, Layout, Reader, Value, Writer, Written, damaged};
use super::runs::{load_of, name_of_outcome, outcome_of};
use crate::store::encode::{bytes_of_bins, visit_bins};

/// Columns of a file of sums. Plan and day are in its path.
const SUMS: &Layout = &[
    ("cohort", Kind::Text),
    ("hour", Kind::Long),
    ("tier", Kind::Text),
    ("region", Kind::Text),
    ("firmware", Kind::Text),
    ("step", Kind::Text),
    ("kind", Kind::Text),
    ("dscp", Kind::Long),
    ("tests", Kind::Long),
    ("devices", Kind::OptionalLong),
    ("sent", Kind::Long),
    ("lost", Kind::Long),
    ("bins", Kind::OptionalBytes),
];

/// Columns of a file of ends.
const ENDS: &Layout = &[
    ("cohort", Kind::Text),
    ("outcome", Kind::Text),
    ("reason", Kind::Text),
    ("count", Kind::Long),
];

/// A sum as it is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct KeptSum {
    pub(in crate::store) bins: Bins,
    pub(in crate::store) sent: u64,
    pub(in crate::store) lost: u64,
    pub(in crate::store) tests: u64,
    /// `None` where results came after the others had been added up: of those it is not known
    /// whether they are of the same devices.
    pub(in crate::store) devices: Option<u64>,
}

/// Sums and ends of a day of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct Sums {
    pub(in crate::store) sums: BTreeMap<SumKey, KeptSum>,
    pub(in crate::store) ends: BTreeMap<EndKey, u64>,
}

impl Sums {
    /// Adds what was folded.
    pub(in crate::store) fn add(&mut self, fold: &Fold) {
        for (key, sum) in fold.sums() {
            let is_first = !self.sums.contains_key(key);
            let kept = self.sums.entry(key.clone()).or_default();
            kept.bins.merge(&sum.bins);
            kept.sent = kept.sent.saturating_add(sum.sent);
            kept.lost = kept.lost.saturating_add(sum.lost);
            kept.tests = kept.tests.saturating_add(sum.tests);
            kept.devices = is_first.then_some(sum.devices);
        }
        for (key, count) in fold.ends() {
            let kept = self.ends.entry(key.clone()).or_default();
            *kept = kept.saturating_add(count);
        }
    }

    /// Writes a file of the sums.
    pub(in crate::store) fn write_sums(&self, path: &Path) -> Result<Written, StoreError> {
        let mut writer = Writer::new(path, SUMS)?;
        for (key, sum) in &self.sums {
            writer.row(&[
                Value::Bytes(key.cohort.as_bytes()),
                Value::Long(i64::from(key.hour)),
                Value::Bytes(key.tier.as_bytes()),
                Value::Bytes(key.region.as_bytes()),
                Value::Bytes(key.firmware.as_bytes()),
                Value::Bytes(key.step.as_bytes()),
                Value::Bytes(key.kind.name().as_bytes()),
                Value::Long(i64::from(key.dscp)),
                Value::Long(sum.tests as i64),
                Value::OptionalLong(sum.devices.map(|devices| devices as i64)),
                Value::Long(sum.sent as i64),
                Value::Long(sum.lost as i64),
                Value::OptionalBytes(Some(&bytes_of_bins(&sum.bins))),
            ])?;
        }
        writer.finish()
    }

    /// Writes a file of the ends.
    pub(in crate::store) fn write_ends(&self, path: &Path) -> Result<Written, StoreError> {
        let mut writer = Writer::new(path, ENDS)?;
        for (key, count) in &self.ends {
            writer.row(&[
                Value::Bytes(key.cohort.as_bytes()),
                Value::Bytes(name_of_outcome(key.outcome).as_bytes()),
                Value::Bytes(key.reason.as_bytes()),
                Value::Long(*count as i64),
            ])?;
        }
        writer.finish()
    }

    /// Reads a file of sums.
    pub(in crate::store) fn read_sums(
        &mut self,
        path: &Path,
        (plan, day): (&str, u32),
    ) -> Result<(), StoreError> {
        let mut reader = Reader::open(path, SUMS, &[])?;
        while let Some(columns) = reader.next()? {
            let rows = columns.first().map_or(0, Column::rows);
            for row in 0..rows {
                let (key, sum) = sum_of(&columns, row, (plan, day))
                    .ok_or_else(|| damaged(path, &format!("row {row} of a batch is no sum")))?;
                self.sums.insert(key, sum);
            }
        }
        Ok(())
    }

    /// Reads a file of ends.
    pub(in crate::store) fn read_ends(
        &mut self,
        path: &Path,
        (plan, day): (&str, u32),
    ) -> Result<(), StoreError> {
        let mut reader = Reader::open(path, ENDS, &[])?;
        while let Some(columns) = reader.next()? {
            let rows = columns.first().map_or(0, Column::rows);
            for row in 0..rows {
                let (key, count) = end_of(&columns, row, (plan, day))
                    .ok_or_else(|| damaged(path, &format!("row {row} of a batch is no end")))?;
                self.ends.insert(key, count);
            }
        }
        Ok(())
    }
}

fn sum_of(columns: &[Column], row: usize, (plan, day): (&str, u32)) -> Option<(SumKey, KeptSum)> {
    let text = |column: usize| columns.get(column)?.text(row);
    let long = |column: usize| columns.get(column)?.long(row);
    let key = SumKey {
        plan: plan.to_owned(),
        cohort: text(0)?.to_owned(),
        day,
        hour: u8::try_from(long(1)?).ok()?,
        tier: text(2)?.to_owned(),
        region: text(3)?.to_owned(),
        firmware: text(4)?.to_owned(),
        step: text(5)?.to_owned(),
        kind: load_of(text(6)?)?,
        dscp: u8::try_from(long(7)?).ok()?,
    };
    let mut bins = Bins::default();
    visit_bins(columns.get(12)?.bytes(row)?, |bin, count| bins.add_to(bin, count))?;
    let sum = KeptSum {
        bins,
        tests: long(8)? as u64,
        devices: long(9).map(|devices| devices as u64),
        sent: long(10)? as u64,
        lost: long(11)? as u64,
    };
    Some((key, sum))
}

fn end_of(columns: &[Column], row: usize, (plan, day): (&str, u32)) -> Option<(EndKey, u64)> {
    let text = |column: usize| columns.get(column)?.text(row);
    let key = EndKey {
        plan: plan.to_owned(),
        cohort: text(0)?.to_owned(),
        day,
        outcome: outcome_of(text(1)?)?,
        reason: text(2)?.to_owned(),
    };
    Some((key, columns.get(3)?.long(row)? as u64))
}
