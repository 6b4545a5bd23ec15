//! The rest of a day after its runs were deleted: sums of series of lines that are alike, and
//! counts of outcomes.

use std::collections::BTreeMap;
use std::path::Path;

use underload_fleet::plan::Kind;
use underload_fleet::retention::{EndKey, Fold, SumKey, SumOf};
use underload_fleet::store::StoreError;
use underload_store::{Column, table};

use super::runs::{name_of_outcome, outcome_of};
use super::table::{Reader, Writer, Written, bins_of, counts_of, damaged, histogram, text};

type SumRow<'a> = (&'a SumKey, &'a KeptSum);

table! {
    /// Columns of a file of sums. Plan and day are in its path.
    struct SumColumns of row: SumRow {
        cohort: Text = &row.0.cohort;
        hour: Long = row.0.hour;
        tier: Text = &row.0.tier;
        region: Text = &row.0.region;
        firmware: Text = &row.0.firmware;
        step: Text = &row.0.step;
        kind: Text = row.0.kind.name();
        dscp: Long = row.0.dscp;
        tests: Long = row.1.tests;
        devices: OptionalLong = row.1.devices;
        sent: Long = row.1.sent;
        lost: Long = row.1.lost;
        bin: Longs = bins_of(Some(&row.1.bins));
        count: Counts = counts_of(Some(&row.1.bins));
    }
}

type EndRow<'a> = (&'a EndKey, u64);

table! {
    /// Columns of a file of ends.
    struct EndColumns of row: EndRow {
        cohort: Text = &row.0.cohort;
        outcome: Text = name_of_outcome(row.0.outcome);
        reason: Text = &row.0.reason;
        count: Long = row.1;
    }
}

/// A sum with the number of devices. `None` if results were added to an earlier sum: a sum does not
/// store which devices it counted, so the later results may be of devices that are counted already.
pub(crate) type KeptSum = SumOf<Option<u64>>;

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
            kept.add_all_but_devices(sum);
            kept.devices = is_first.then_some(sum.devices);
        }
        for (key, count) in fold.ends() {
            let kept = self.ends.entry(key.clone()).or_default();
            *kept = kept.saturating_add(count);
        }
    }

    pub(crate) fn write_sums(&self, path: &Path) -> Result<Written, StoreError> {
        let mut writer = Writer::new::<SumColumns<'_>>(path)?;
        for row in &self.sums {
            writer.row::<SumColumns<'_>>(&row)?;
        }
        writer.finish()
    }

    pub(crate) fn write_ends(&self, path: &Path) -> Result<Written, StoreError> {
        let mut writer = Writer::new::<EndColumns<'_>>(path)?;
        for (key, count) in &self.ends {
            writer.row::<EndColumns<'_>>(&(key, *count))?;
        }
        writer.finish()
    }

    pub(crate) fn read_sums(&mut self, path: &Path, of: (&str, u32)) -> Result<(), StoreError> {
        let reader = Reader::open::<SumColumns<'_>>(path, |_| true)?;
        let row = |columns: &[Column], row| SumColumns::view(columns)?.sum(row, of);
        read(&mut self.sums, path, (reader, "sum"), row)
    }

    pub(crate) fn read_ends(&mut self, path: &Path, of: (&str, u32)) -> Result<(), StoreError> {
        let reader = Reader::open::<EndColumns<'_>>(path, |_| true)?;
        let row = |columns: &[Column], row| EndColumns::view(columns)?.end(row, of);
        read(&mut self.ends, path, (reader, "count"), row)
    }
}

/// Adds the rows of a file to `rows`. `what` names a row in errors.
fn read<K: Ord, V>(
    rows: &mut BTreeMap<K, V>,
    path: &Path,
    (mut reader, what): (Reader, &str),
    row_of: impl Fn(&[Column], usize) -> Option<(K, V)>,
) -> Result<(), StoreError> {
    while let Some(columns) = reader.next()? {
        for row in 0..columns.first().map_or(0, Column::rows) {
            let (key, value) = row_of(&columns, row)
                .ok_or_else(|| damaged(path, &format!("row {row} of a batch is not a {what}")))?;
            rows.insert(key, value);
        }
    }
    Ok(())
}

impl SumColumns<'_> {
    /// Returns a row; `None` if a value is invalid.
    fn sum(&self, row: usize, (plan, day): (&str, u32)) -> Option<(SumKey, KeptSum)> {
        let key = SumKey {
            plan: plan.to_owned(),
            cohort: text(&self.cohort[row])?.to_owned(),
            day,
            hour: u8::try_from(self.hour[row]).ok()?,
            tier: text(&self.tier[row])?.to_owned(),
            region: text(&self.region[row])?.to_owned(),
            firmware: text(&self.firmware[row])?.to_owned(),
            step: text(&self.step[row])?.to_owned(),
            kind: Kind::from_name(text(&self.kind[row])?)?,
            dscp: u8::try_from(self.dscp[row]).ok()?,
        };
        let sum = KeptSum {
            bins: histogram(self.bin, self.count, row)?,
            tests: self.tests[row] as u64,
            devices: self.devices[row].map(|devices| devices as u64),
            sent: self.sent[row] as u64,
            lost: self.lost[row] as u64,
        };
        Some((key, sum))
    }
}

impl EndColumns<'_> {
    /// Returns a row; `None` if a value is invalid.
    fn end(&self, row: usize, (plan, day): (&str, u32)) -> Option<(EndKey, u64)> {
        let key = EndKey {
            plan: plan.to_owned(),
            cohort: text(&self.cohort[row])?.to_owned(),
            day,
            outcome: outcome_of(text(&self.outcome[row])?)?,
            reason: text(&self.reason[row])?.to_owned(),
        };
        Some((key, self.count[row] as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::many;

    #[test]
    fn sums_read_back_as_written() {
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
