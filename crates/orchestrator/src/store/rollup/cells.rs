//! Cells of sums, their keys, and their encoding.

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use underload_fleet::bins::{Bins, visit_bins};
use underload_fleet::outcome::{Outcome, RunResult, SeriesResult};
use underload_fleet::plan::Kind;
use underload_fleet::store::StoreError;

use crate::store::database::{Row, Value, values};
use crate::store::encode::checksum;

/// The granularity of a sum: the properties by which results get separate cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Plan, cohort, day, and what was measured.
    Cohorts,
    /// Also attributes of the line.
    Lines,
    /// Also the hour of the day.
    Hours,
}

impl Level {
    pub(crate) fn number(self) -> i16 {
        match self {
            Self::Cohorts => 0,
            Self::Lines => 1,
            Self::Hours => 2,
        }
    }
}

/// The key of a cell within one level, day and hour.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) plan: String,
    pub(crate) cohort: String,
    /// Values of the attributes in [`LINE`]; `None` at [`Level::Cohorts`].
    pub(crate) line: Option<[String; 5]>,
    pub(crate) of: Subject,
}

/// The subject of a cell: the series that it sums, or the outcome of runs that it counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Subject {
    /// A measured series of probes.
    Series { step: String, kind: Kind, dscp: u8 },
    /// Due runs with an outcome.
    Runs { outcome: Outcome, reason: String },
}

impl Subject {
    /// Returns the series of a result that count in sums, each as the subject of a cell.
    pub(crate) fn series_of(result: &RunResult) -> impl Iterator<Item = (Self, &SeriesResult)> {
        result.pooled_series().map(|(step, series)| {
            let (name, kind, dscp) = (step.step.clone(), step.kind, series.dscp);
            (Self::Series { step: name, kind, dscp }, series)
        })
    }

    /// Returns [`SERIES`] or [`RUNS`].
    pub(crate) fn number(&self) -> i16 {
        match self {
            Self::Series { .. } => SERIES,
            Self::Runs { .. } => RUNS,
        }
    }
}

/// Stored number of cells of series.
pub(crate) const SERIES: i16 = 0;
/// Stored number of cells of runs.
pub(crate) const RUNS: i16 = 1;

/// The attributes in [`Key::line`], without those with many values (`segment`) or that vary
/// (`measured`).
pub(crate) const LINE: [&str; 5] = ["model", "firmware", "tier", "region", "configured"];

/// The address of a cell. `hour` is 0 except at [`Level::Hours`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) level: Level,
    pub(crate) day: u32,
    pub(crate) hour: u8,
    pub(crate) key: Key,
}

/// The address of a stored cell: a [`Place`] with numbers for its level and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SumPlace {
    pub(crate) level: i16,
    /// The kind of the cell: [`SERIES`] or [`RUNS`].
    pub(crate) kind: i16,
    pub(crate) day: i64,
    pub(crate) hour: i16,
    pub(crate) key: i64,
}

impl SumPlace {
    /// The key of its row in the table of sums.
    pub(crate) fn values(&self) -> Vec<Value> {
        values![self.level, self.kind, self.day, self.hour, self.key]
    }

    /// Reads the key of a row.
    pub(crate) fn from_row(row: &mut Row) -> Result<Self, StoreError> {
        let (level, kind, day) = (row.small()?, row.small()?, row.long()?);
        Ok(Self { level, kind, day, hour: row.small()?, key: row.long()? })
    }
}

/// The sum of all series or runs with the same [`Place`]. Runs only set `tests` and `devices`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cell {
    pub(crate) bins: Bins,
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) tests: u64,
    /// Numbers of the devices.
    pub(crate) devices: RoaringBitmap,
}

impl Cell {
    /// Adds the probes of a series.
    pub(super) fn add_probes(&mut self, series: &SeriesResult) {
        self.bins.merge(&series.bins);
        self.sent = self.sent.saturating_add(series.sent);
        self.lost = self.lost.saturating_add(series.lost);
    }

    /// Removes a part that was added before.
    pub(crate) fn subtract(&mut self, part: &Self) {
        self.bins.subtract(&part.bins);
        self.sent = self.sent.saturating_sub(part.sent);
        self.lost = self.lost.saturating_sub(part.lost);
        self.tests = self.tests.saturating_sub(part.tests);
    }

    /// Adds a cell of the same or of a finer [`Place`].
    pub(crate) fn merge(&mut self, other: &Self) {
        self.bins.merge(&other.bins);
        self.sent = self.sent.saturating_add(other.sent);
        self.lost = self.lost.saturating_add(other.lost);
        self.tests = self.tests.saturating_add(other.tests);
        self.devices |= &other.devices;
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CellBytes {
    pub(crate) bins: Vec<u8>,
    /// A checksum of the whole cell, and the set.
    pub(crate) devices: Vec<u8>,
    pub(crate) sent: i64,
    pub(crate) lost: i64,
    pub(crate) tests: i64,
}

impl From<&Cell> for CellBytes {
    fn from(cell: &Cell) -> Self {
        let mut set = Vec::with_capacity(cell.devices.serialized_size());
        // Writing to memory cannot fail.
        let _ = cell.devices.serialize_into(&mut set);
        let mut bytes = Self {
            bins: cell.bins.to_bytes(),
            devices: Vec::new(),
            sent: cell.sent as i64,
            lost: cell.lost as i64,
            tests: cell.tests as i64,
        };
        let sum = bytes.checksum(&set);
        bytes.devices.extend(sum.into_iter().chain(set));
        bytes
    }
}

impl CellBytes {
    /// Reads the columns after the key of a row.
    pub(crate) fn from_row(mut row: Row) -> Result<Self, StoreError> {
        let (bins, devices) = (row.bytes()?, row.bytes()?);
        Ok(Self { bins, devices, sent: row.long()?, lost: row.long()?, tests: row.long()? })
    }

    /// Decodes the histogram and sums of a cell.
    ///
    /// # Errors
    /// Returns [`StoreError::Broken`] if the bytes are damaged.
    pub(crate) fn read(&self) -> Result<Cell, StoreError> {
        let mut bins = Bins::default();
        let devices = self.visit(|bin, count| bins.add_to(bin, count))?;
        let [sent, lost, tests] = [self.sent, self.lost, self.tests].map(|number| number as u64);
        Ok(Cell { bins, sent, lost, tests, devices })
    }

    /// Calls `see` with each bin and its count. Returns the devices.
    pub(super) fn visit(&self, see: impl FnMut(u16, u64)) -> Result<RoaringBitmap, StoreError> {
        let damaged = || StoreError::broken("a stored sum is damaged: restore a copy of the store");
        let (sum, set) = self.devices.split_first_chunk().ok_or_else(damaged)?;
        if self.checksum(set) != *sum {
            return Err(damaged());
        }
        visit_bins(&self.bins, see).ok_or_else(damaged)?;
        RoaringBitmap::deserialize_from(set).map_err(|_| damaged())
    }

    fn checksum(&self, set: &[u8]) -> [u8; 4] {
        let bins = (self.bins.len() as u64).to_le_bytes();
        let [sent, lost, tests] = [self.sent, self.lost, self.tests].map(i64::to_le_bytes);
        let parts: [&[u8]; 6] = [&bins, &self.bins, &sent, &lost, &tests, set];
        checksum(&parts)
    }
}
