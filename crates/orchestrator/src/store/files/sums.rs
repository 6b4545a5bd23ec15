//! The rest of a day after its runs were deleted: sums of series of lines that are alike, and
//! counts of outcomes.

use std::collections::BTreeMap;
use std::path::Path;

use underload_fleet::bins::Bins;
use underload_fleet::plan::Kind;
use underload_fleet::retention::{EndKey, Fold, SumKey};
use underload_fleet::store::StoreError;

use super::columns::{Column, Layout, Reader, Writer, Written, columns, damaged};
use super::runs::{name_of_outcome, outcome_of};

type SumRow<'a> = (&'a SumKey, &'a KeptSum);

// Columns of a file of sums. Plan and day are in its path.
columns! { SumColumn of row: SumRow;
    Cohort: "cohort" Text = row.0.cohort.as_str();
    Hour: "hour" Long = i64::from(row.0.hour);
    Tier: "tier" Text = row.0.tier.as_str();
    Region: "region" Text = row.0.region.as_str();
    Firmware: "firmware" Text = row.0.firmware.as_str();
    Step: "step" Text = row.0.step.as_str();
    Kind: "kind" Text = row.0.kind.name();
    Dscp: "dscp" Long = i64::from(row.0.dscp);
    Tests: "tests" Long = row.1.tests;
    Devices: "devices" OptionalLong = row.1.devices;
    Sent: "sent" Long = row.1.sent;
    Lost: "lost" Long = row.1.lost;
    Bin: "bin" Bins = Some(&row.1.bins);
    Count: "count" Counts = Some(&row.1.bins);
}

type EndRow<'a> = (&'a EndKey, u64);

// Columns of a file of ends.
columns! { EndColumn of row: EndRow;
    Cohort: "cohort" Text = row.0.cohort.as_str();
    Outcome: "outcome" Text = name_of_outcome(row.0.outcome);
    Reason: "reason" Text = row.0.reason.as_str();
    Count: "count" Long = row.1;
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptSum {
    pub(crate) bins: Bins,
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) tests: u64,
    /// `None` if results arrived after the others were summed, because the devices of a sum are not
    /// stored: they may be the same.
    pub(crate) devices: Option<u64>,
}

/// Sums, and counts of outcomes, of a day of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) sums: BTreeMap<SumKey, KeptSum>,
    pub(crate) ends: BTreeMap<EndKey, u64>,
}

impl Sums {
    pub(crate) fn add(&mut self, fold: &Fold) {
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

    pub(crate) fn write_sums(&self, path: &Path) -> Result<Written, StoreError> {
        let mut writer = Writer::new(path, SumColumn::LAYOUT)?;
        for row in &self.sums {
            writer.row(SumColumn::values(row))?;
        }
        writer.finish()
    }

    pub(crate) fn write_ends(&self, path: &Path) -> Result<Written, StoreError> {
        let mut writer = Writer::new(path, EndColumn::LAYOUT)?;
        for (key, count) in &self.ends {
            writer.row(EndColumn::values((key, *count)))?;
        }
        writer.finish()
    }

    pub(crate) fn read_sums(&mut self, path: &Path, of: (&str, u32)) -> Result<(), StoreError> {
        let row = |columns: &[Column], row| sum_of(columns, row, of);
        read(&mut self.sums, path, (SumColumn::LAYOUT, "sum"), row)
    }

    pub(crate) fn read_ends(&mut self, path: &Path, of: (&str, u32)) -> Result<(), StoreError> {
        let row = |columns: &[Column], row| end_of(columns, row, of);
        read(&mut self.ends, path, (EndColumn::LAYOUT, "count"), row)
    }
}

/// Adds the rows of a file to `rows`. `what` names a row in errors.
fn read<K: Ord, V>(
    rows: &mut BTreeMap<K, V>,
    path: &Path,
    (layout, what): (&Layout, &str),
    row_of: impl Fn(&[Column], usize) -> Option<(K, V)>,
) -> Result<(), StoreError> {
    let mut reader = Reader::open(path, layout, |_| true)?;
    while let Some(columns) = reader.next()? {
        for row in 0..columns.first().map_or(0, Column::rows) {
            let (key, value) = row_of(&columns, row)
                .ok_or_else(|| damaged(path, &format!("row {row} of a batch is not a {what}")))?;
            rows.insert(key, value);
        }
    }
    Ok(())
}

fn sum_of(columns: &[Column], row: usize, (plan, day): (&str, u32)) -> Option<(SumKey, KeptSum)> {
    let text = |column: SumColumn| columns.get(column as usize)?.text(row);
    let long = |column: SumColumn| columns.get(column as usize)?.long(row);
    let key = SumKey {
        plan: plan.to_owned(),
        cohort: text(SumColumn::Cohort)?.to_owned(),
        day,
        hour: u8::try_from(long(SumColumn::Hour)?).ok()?,
        tier: text(SumColumn::Tier)?.to_owned(),
        region: text(SumColumn::Region)?.to_owned(),
        firmware: text(SumColumn::Firmware)?.to_owned(),
        step: text(SumColumn::Step)?.to_owned(),
        kind: Kind::from_name(text(SumColumn::Kind)?)?,
        dscp: u8::try_from(long(SumColumn::Dscp)?).ok()?,
    };
    let counts = columns.get(SumColumn::Count as usize);
    let bins = columns.get(SumColumn::Bin as usize)?.bins(counts, row)?;
    let sum = KeptSum {
        bins,
        tests: long(SumColumn::Tests)? as u64,
        devices: long(SumColumn::Devices).map(|devices| devices as u64),
        sent: long(SumColumn::Sent)? as u64,
        lost: long(SumColumn::Lost)? as u64,
    };
    Some((key, sum))
}

fn end_of(columns: &[Column], row: usize, (plan, day): (&str, u32)) -> Option<(EndKey, u64)> {
    let text = |column: EndColumn| columns.get(column as usize)?.text(row);
    let key = EndKey {
        plan: plan.to_owned(),
        cohort: text(EndColumn::Cohort)?.to_owned(),
        day,
        outcome: outcome_of(text(EndColumn::Outcome)?)?,
        reason: text(EndColumn::Reason)?.to_owned(),
    };
    Some((key, columns.get(EndColumn::Count as usize)?.long(row)? as u64))
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::many;

    #[test]
    fn sums_are_read_as_they_were_written() {
        let folder = underload_disk::faults::private_tempdir().expect("a folder");
        let path = folder.path().join("sums");
        let (mut fold, mut sums) = (Fold::default(), Sums::default());
        let results = many(5, 4);
        let day = results[0].day();
        results.iter().filter(|kept| kept.day() == day).for_each(|kept| fold.add(kept));
        sums.add(&fold);
        assert!(sums.sums.len() > 4, "the premise");
        sums.write_sums(&path).expect("it is on disk");
        let mut read = Sums { ends: sums.ends.clone(), ..Sums::default() };
        read.read_sums(&path, ("trial", day)).expect("it reads");
        assert_eq!(read, sums);
    }
}
