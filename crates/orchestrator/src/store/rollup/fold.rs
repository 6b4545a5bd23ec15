//! Folds results into cells in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use underload_fleet::device::DeviceId;
use underload_fleet::store::{StoreError, StoredResult};

use super::batch::Batch;
use super::cells::{Cell, Key, LINE, Level, Place, Subject};
use crate::store::encode::Encoded;

#[derive(Debug, Default)]
pub(crate) struct Rollup {
    keys: BTreeMap<Key, u32>,
    /// Cells by day, hour and the key's number in `keys`.
    cells: BTreeMap<(u32, u8, u32), Cell>,
}

impl Rollup {
    /// Folds rows until they have as many cells as `batch` allows. Returns how many rows it folded,
    /// or `None` if `stop` is set.
    ///
    /// # Errors
    /// [`StoreError::Broken`] if a row is damaged.
    pub(crate) fn fold<'a>(
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

    /// Adds a result. `number` is the number of its device.
    pub(crate) fn add(&mut self, stored: &StoredResult, device: u32) {
        let result = &stored.result;
        let line = LINE.map(|name| stored.attributes.get(name).unwrap_or_default());
        let key = |of| Key {
            plan: result.plan.clone(),
            cohort: stored.cohort.clone(),
            line: Some(line.clone()),
            of,
        };
        if stored.was_due() {
            let runs = Subject::Runs { outcome: result.outcome, reason: result.reason.clone() };
            self.count(key(runs), stored, device);
        }
        for (of, series) in Subject::series_of(result) {
            let cell = self.count(key(of), stored, device);
            cell.add_probes(series);
        }
    }

    /// Counts a series or run, and returns its cell.
    fn count(&mut self, key: Key, stored: &StoredResult, device: u32) -> &mut Cell {
        let next = self.keys.len() as u32;
        let key = *self.keys.entry(key).or_insert(next);
        let cell = self.cells.entry((stored.day(), stored.hour(), key)).or_default();
        cell.devices.insert(device);
        cell.tests += 1;
        cell
    }

    /// Returns the cells of all levels.
    pub(crate) fn finish(self) -> BTreeMap<Place, Cell> {
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
    use roaring::RoaringBitmap;

    use super::*;
    use crate::store::rollup::cells::{CellBytes, RUNS, SERIES};
    use crate::store::testing;

    #[test]
    fn every_level_counts_all_results_and_each_device_once() {
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
    fn an_encoded_cell_decodes_to_an_equal_one() {
        let mut rollup = Rollup::default();
        (0..50).for_each(|n| rollup.add(&testing::result(n, 1), n as u32 * 7_919));
        for cell in rollup.finish().into_values() {
            let bytes = CellBytes::from(&cell);
            assert_eq!(bytes.read().expect("it is whole"), cell);
            let cut = CellBytes { devices: bytes.devices[1..].to_vec(), ..bytes };
            assert!(cut.read().is_err(), "a damaged set is an error");
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
}
