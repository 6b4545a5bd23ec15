//! The conformance suite of stores, which a store's own tests run:
//!
//! ```ignore
//! conformance::run(|| Sqlite::open(&new_folder()));
//! conformance::race(|| Sqlite::open(&one_folder), 4);
//! ```
//!
//! The store in memory is the reference for queries; it is itself checked against answers that were
//! computed by hand.

pub mod samples;

mod memory;
mod queries;
mod rows;

pub use memory::Memory;

use crate::store::{Archive, Needs, Store, StoreError, Transaction};

/// Checks a store. `make` returns a new, empty one.
///
/// # Panics
/// If the store does not conform.
pub fn run<S: Store + Archive>(mut make: impl FnMut() -> S) {
    rows::rows_are_as_they_were_put(&mut make());
    rows::lines_are_listed_by_identifier_with_their_devices(&mut make());
    rows::what_is_not_committed_is_gone(&mut make());
    rows::changes_are_seen_before_they_are_committed(&mut make());
    rows::a_result_is_kept_once(&mut make());
    rows::what_is_older_than_is_remembered_is_known(&mut make());
    rows::leases_are_found_by_all_that_they_hold(&mut make());
    rows::the_overdue_come_in_their_order(&mut make());
    rows::large_things_are_kept(&mut make());
    queries::answers_that_were_worked_out_by_hand(&mut make());
    for seed in 1..=3 {
        queries::as_the_reference_answers(&mut make(), seed);
    }
}

/// Checks that transactions of several handles of one empty store are serialized. `open` returns a
/// handle for each thread.
///
/// # Panics
/// If transactions overlap.
pub fn race<S: Store + 'static>(mut open: impl FnMut() -> S, handles: usize) {
    let name = "counter";
    let threads: Vec<_> = (0..handles)
        .map(|_| {
            let mut store = open();
            std::thread::spawn(move || rows::race_for_places(&mut store, name))
        })
        .collect();
    let got: usize = threads.into_iter().map(|it| it.join().expect("it does not panic")).sum();
    assert_eq!(got, rows::PLACES, "of {handles} that raced so many got a place");
    let mut store = open();
    change(&mut store, |tx| {
        let taken = rows::counter(tx, name)?;
        assert_eq!(taken, rows::PLACES as u64);
        Ok(())
    });
}

/// Runs and commits a transaction.
fn change<T>(
    store: &mut dyn Store,
    by: impl FnOnce(&mut dyn Transaction) -> Result<T, StoreError>,
) -> T {
    let mut tx = store.begin(&Needs::default()).expect("it begins");
    let done = by(&mut *tx).expect("it does");
    tx.commit().expect("it commits");
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_in_memory_conforms() {
        run(Memory::new);
        let memory = Memory::new();
        race(|| memory.clone(), 4);
    }
}
