//! Results put together, so that a page's question does not read results again.
//!
//! There are three levels, each told apart by more than the one before: cohorts by day, lines
//! (model, firmware, tier, region, configured) by day, the same by hour. A question is answered
//! from the first level that knows all it asks for, and from the results themselves where none
//! does, as for one segment. A keeper puts results together in the order in which they came and
//! notes how far it is; what came later is added from the results when a question is asked, so
//! that an answer is always about all that was kept. Devices of a cell are a set of numbers, so
//! that those of many cells are counted once each.

mod batch;
mod planned;
mod question;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use underload_fleet::bins::Bins;
use underload_fleet::device::DeviceId;
use underload_fleet::outcome::Outcome;
use underload_fleet::plan::Kind;
use underload_fleet::store::{StoreError, StoredResult};

use super::database::{Row, Value, values};
use super::encode::{Encoded, bytes_of_bins, checksum, visit_bins};
pub(super) use batch::Batch;
pub use batch::RolledUp;
pub(super) use planned::Planned;
pub(crate) use question::needs_results;
pub(super) use question::{Part, Question};

/// How finely results are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Plan, cohort, day, and what was measured.
    Cohorts,
    /// Also attributes of the line.
    Lines,
    /// Also the hour of the day.
    Hours,
}

impl Level {
    /// As it is stored.
    pub(super) fn number(self) -> i16 {
        match self {
            Self::Cohorts => 0,
            Self::Lines => 1,
            Self::Hours => 2,
        }
    }
}

/// What a cell is of, besides its day and hour.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Key {
    /// The plan.
    pub(super) plan: String,
    /// The cohort.
    pub(super) cohort: String,
    /// The line, where the level tells lines apart: [`LINE`].
    pub(super) line: Option<[String; 5]>,
    /// Series or runs.
    pub(super) of: Of,
}

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Of {
    /// Series of probes that were measured.
    Series {
        /// The step's name.
        step: String,
        /// What it loaded.
        kind: Kind,
        /// The marking.
        dscp: u8,
    },
    /// Ends of runs that were due.
    Runs {
        /// Which.
        outcome: Outcome,
        /// Why.
        reason: String,
    },
}

impl Of {
    /// As it is stored: which of the two.
    pub(super) fn number(&self) -> i16 {
        match self {
            Self::Series { .. } => SERIES,
            Self::Runs { .. } => RUNS,
        }
    }
}

/// Stored number of cells of series.
pub(super) const SERIES: i16 = 0;
/// Stored number of cells of runs.
pub(super) const RUNS: i16 = 1;

/// The attributes in [`Key::line`]. Segments are too many, and what was measured varies.
pub(super) const LINE: [&str; 5] = ["model", "firmware", "tier", "region", "configured"];

/// Where a cell is: its level, day, hour (0 where the level tells none apart), and key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) level: Level,
    pub(super) day: u32,
    pub(super) hour: u8,
    pub(super) key: Key,
}

/// Where a cell is stored: as [`Place`], with numbers instead of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SumPlace {
    pub(super) level: i16,
    /// [`SERIES`] or [`RUNS`].
    pub(super) kind: i16,
    pub(super) day: i64,
    pub(super) hour: i16,
    pub(super) key: i64,
}

impl SumPlace {
    /// Before all others.
    pub(super) const MIN: Self = Self { level: 0, kind: 0, day: i64::MIN, hour: 0, key: 0 };

    /// The key of its row in the table of sums.
    pub(super) fn values(&self) -> Vec<Value> {
        values![self.level, self.kind, self.day, self.hour, self.key]
    }

    /// Reads the key of a row.
    pub(super) fn of(row: &mut Row) -> Result<Self, StoreError> {
        let (level, kind, day) = (row.small()?, row.small()?, row.long()?);
        Ok(Self { level, kind, day, hour: row.small()?, key: row.long()? })
    }
}

/// What was put together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cell {
    /// All round trips.
    pub(super) bins: Bins,
    /// Probes that were sent.
    pub(super) sent: u64,
    /// Probes that were lost.
    pub(super) lost: u64,
    /// Series, or runs.
    pub(super) tests: u64,
    /// The numbers of the devices that they are of.
    pub(super) devices: RoaringBitmap,
}

impl Cell {
    /// Adds all that another has.
    pub(super) fn merge(&mut self, other: &Self) {
        self.bins.merge(&other.bins);
        self.sent = self.sent.saturating_add(other.sent);
        self.lost = self.lost.saturating_add(other.lost);
        self.tests = self.tests.saturating_add(other.tests);
        self.devices |= &other.devices;
    }
}

/// A cell as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CellBytes {
    pub(super) bins: Vec<u8>,
    /// [`CHECKED`], a checksum of the whole cell, and the set; the set alone in cells that were
    /// written before there were checksums.
    pub(super) devices: Vec<u8>,
    pub(super) sent: i64,
    pub(super) lost: i64,
    pub(super) tests: i64,
}

impl From<&Cell> for CellBytes {
    fn from(cell: &Cell) -> Self {
        let mut set = Vec::with_capacity(cell.devices.serialized_size());
        // Memory takes whatever is written to it.
        let _ = cell.devices.serialize_into(&mut set);
        let mut bytes = Self {
            bins: bytes_of_bins(&cell.bins),
            devices: vec![CHECKED],
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
    /// Reads what follows the key of a row.
    pub(super) fn of(mut row: Row) -> Result<Self, StoreError> {
        let (bins, devices) = (row.bytes()?, row.bytes()?);
        Ok(Self { bins, devices, sent: row.long()?, lost: row.long()?, tests: row.long()? })
    }

    /// The cell.
    ///
    /// # Errors
    /// [`StoreError::Broken`] where the bytes are damaged.
    pub(super) fn read(&self) -> Result<Cell, StoreError> {
        let mut bins = Bins::default();
        let devices = self.visit(|bin, count| bins.add_to(bin, count))?;
        let [sent, lost, tests] = [self.sent, self.lost, self.tests].map(|number| number as u64);
        Ok(Cell { bins, sent, lost, tests, devices })
    }

    /// Shows each bin with its count, and returns the devices.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn visit(&self, see: impl FnMut(u16, u64)) -> Result<RoaringBitmap, StoreError> {
        let damaged = || StoreError::broken("a stored sum is damaged: restore a copy of the store");
        let set = match self.devices.split_first() {
            Some((&CHECKED, rest)) => {
                let (sum, set) = rest.split_first_chunk().ok_or_else(damaged)?;
                (self.checksum(set) == *sum).then_some(set).ok_or_else(damaged)?
            }
            _ => &self.devices[..],
        };
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

/// Start of the devices of a cell with a checksum. A set alone starts with another byte.
const CHECKED: u8 = 2;

/// Puts results together in memory.
#[derive(Debug, Default)]
pub(super) struct Rollup {
    planned: Arc<Planned>,
    keys: BTreeMap<Key, u32>,
    /// By day, hour and key.
    cells: BTreeMap<(u32, u8, u32), Cell>,
}

impl Rollup {
    /// Folds the series that the plans have.
    pub(super) fn new(planned: Arc<Planned>) -> Self {
        Self { planned, ..Self::default() }
    }

    /// Folds rows until they have as many cells as `batch` allows. Returns how many rows it folded,
    /// or `None` if `stop` is set.
    ///
    /// # Errors
    /// [`StoreError::Broken`] if a row is damaged.
    pub(super) fn fold<'a>(
        &mut self,
        rows: impl Iterator<Item = &'a Encoded>,
        numbers: &HashMap<DeviceId, u32>,
        batch: Batch,
        stop: &AtomicBool,
    ) -> Result<Option<usize>, StoreError> {
        let mut folded = 0;
        for row in rows {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if folded > 0 && self.cells.len() >= batch.cells {
                break;
            }
            let stored = row.decode()?;
            if let Some(number) = numbers.get(&row.device) {
                self.add(&stored, *number);
            }
            folded += 1;
        }
        Ok(Some(folded))
    }

    /// Adds a result of the device with that number.
    pub(super) fn add(&mut self, stored: &StoredResult, device: u32) {
        let result = &stored.result;
        let line = LINE.map(|name| stored.attributes.get(name).unwrap_or_default());
        let key = |of| Key {
            plan: result.plan.clone(),
            cohort: stored.cohort.clone(),
            line: Some(line.clone()),
            of,
        };
        if stored.was_due() {
            let runs = Of::Runs { outcome: result.outcome, reason: result.reason.clone() };
            self.count(key(runs), stored, device);
        }
        let planned = Arc::clone(&self.planned);
        for (of, series) in planned.series_of(result) {
            let cell = self.count(key(of), stored, device);
            cell.bins.merge(&series.bins);
            cell.sent = cell.sent.saturating_add(series.sent);
            cell.lost = cell.lost.saturating_add(series.lost);
        }
    }

    /// The cell of a series or run, which is counted.
    fn count(&mut self, key: Key, stored: &StoredResult, device: u32) -> &mut Cell {
        let next = self.keys.len() as u32;
        let key = *self.keys.entry(key).or_insert(next);
        let cell = self.cells.entry((stored.day(), stored.hour(), key)).or_default();
        cell.devices.insert(device);
        cell.tests += 1;
        cell
    }

    /// The cells of all levels.
    pub(super) fn finish(self) -> BTreeMap<Place, Cell> {
        let mut keys: Vec<(Key, u32)> = self.keys.into_iter().collect();
        keys.sort_by_key(|(_, number)| *number);
        let mut places: BTreeMap<Place, Cell> = BTreeMap::new();
        for ((day, hour, key), cell) in self.cells {
            let Some((key, _)) = keys.get(key as usize) else { continue };
            let of_cohort = Key { line: None, ..key.clone() };
            let coarser = [
                Place { level: Level::Cohorts, day, hour: 0, key: of_cohort },
                Place { level: Level::Lines, day, hour: 0, key: key.clone() },
            ];
            for place in coarser {
                places.entry(place).or_default().merge(&cell);
            }
            places.insert(Place { level: Level::Hours, day, hour, key: key.clone() }, cell);
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing;

    #[test]
    fn every_level_has_all_of_it_and_each_device_once() {
        let mut rollup = Rollup::default();
        let results: Vec<StoredResult> =
            (0..300).map(|n| testing::result(n % 20, n / 20)).collect();
        for stored in &results {
            rollup.add(stored, u32::from(stored.device.0[0]));
        }
        let places = rollup.finish();
        let series = |stored: &StoredResult| stored.result.pooled_series().count() as u64;
        let runs = results.iter().filter(|stored| stored.was_due()).count() as u64;
        assert!(runs < 300, "the premise: some measured on their own");
        let all_series = results.iter().map(series).sum::<u64>();
        assert!(all_series > 300, "most were measured");
        for level in [Level::Cohorts, Level::Lines, Level::Hours] {
            let of = |number| {
                let cells = places.iter().filter(move |(place, _)| {
                    place.level == level && place.key.of.number() == number
                });
                cells.map(|(_, cell)| cell)
            };
            assert_eq!(of(RUNS).map(|cell| cell.tests).sum::<u64>(), runs);
            assert_eq!(of(SERIES).map(|cell| cell.tests).sum::<u64>(), all_series);
            let mut devices = RoaringBitmap::new();
            of(RUNS).for_each(|cell| devices |= &cell.devices);
            assert_eq!(devices.len(), 20);
        }
        let coarse = places.keys().filter(|place| place.level == Level::Cohorts).count();
        assert!(coarse * 2 < places.len(), "{coarse} of {}", places.len());
    }

    #[test]
    fn a_cell_comes_back_as_it_was() {
        let mut rollup = Rollup::default();
        (0..50).for_each(|n| rollup.add(&testing::result(n, 1), n as u32 * 7_919));
        for cell in rollup.finish().into_values() {
            let bytes = CellBytes::from(&cell);
            assert_eq!(bytes.read().expect("it is whole"), cell);
            let cut = CellBytes { devices: bytes.devices[1..].to_vec(), ..bytes };
            assert!(cut.read().is_err(), "a damaged set is told");
        }
    }

    #[test]
    fn every_flipped_bit_of_a_cell_is_an_error() {
        let mut rollup = Rollup::default();
        (0..50).for_each(|n| rollup.add(&testing::result(n, 1), n as u32 * 7_919));
        let cells: Vec<_> = rollup.finish().into_values().collect();
        let cell = cells.iter().max_by_key(|cell| cell.devices.len()).expect("a cell");
        let good = CellBytes::from(cell);
        let is_told = |flip: &dyn Fn(&mut CellBytes)| {
            let mut changed = good.clone();
            flip(&mut changed);
            assert_ne!(changed, good, "the premise: something is flipped");
            changed.read().is_err()
        };
        for bit in 0..64 {
            assert!(is_told(&|cell| cell.sent ^= 1 << bit), "sent, {bit}");
            assert!(is_told(&|cell| cell.lost ^= 1 << bit), "lost, {bit}");
            assert!(is_told(&|cell| cell.tests ^= 1 << bit), "tests, {bit}");
        }
        for bit in 0..8 {
            for place in 0..good.bins.len() {
                assert!(is_told(&|cell| cell.bins[place] ^= 1 << bit), "bins, {place}, {bit}");
            }
            for place in 0..good.devices.len() {
                assert!(is_told(&|cell| cell.devices[place] ^= 1 << bit), "set, {place}, {bit}");
            }
        }
    }

    #[test]
    fn a_cell_without_a_checksum_is_read() {
        let mut rollup = Rollup::default();
        (0..50).for_each(|n| rollup.add(&testing::result(n, 1), n as u32 * 7_919));
        for cell in rollup.finish().into_values() {
            let mut bytes = CellBytes::from(&cell);
            bytes.devices.clear();
            cell.devices.serialize_into(&mut bytes.devices).expect("it is written");
            assert_eq!(bytes.read().expect("it is read"), cell);
        }
    }
}
