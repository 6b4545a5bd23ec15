//! What every store does, checked. A store's own tests run it:
//!
//! ```ignore
//! conformance::run(|| Sqlite::open(&new_folder()));
//! conformance::race(|| Sqlite::open(&one_folder), 4);
//! ```
//!
//! The store in memory is the reference that questions are held against; some answers that are
//! written down here by hand hold that one.

pub mod samples;

mod asked;
mod kept;

use super::{Archive, Needs, Store, StoreError, Transaction};

/// Checks a store; `make` gives an empty one each time.
///
/// # Panics
/// Where it does something else.
pub fn run<S: Store + Archive>(mut make: impl FnMut() -> S) {
    kept::rows_are_as_they_were_put(&mut make());
    kept::what_is_not_committed_is_gone(&mut make());
    kept::changes_are_seen_before_they_are_committed(&mut make());
    kept::a_result_is_kept_once(&mut make());
    kept::what_is_older_than_is_remembered_is_known(&mut make());
    kept::leases_are_found_by_all_that_they_hold(&mut make());
    kept::the_overdue_come_in_their_order(&mut make());
    kept::large_things_are_kept(&mut make());
    asked::answers_that_were_worked_out_by_hand(&mut make());
    for seed in 1..=3 {
        asked::as_the_reference_answers(&mut make(), seed);
    }
}

/// Checks that transactions of several handles of one empty store follow each other; `open` gives
/// a handle for each thread.
///
/// # Panics
/// Where they do not.
pub fn race<S: Store + 'static>(mut open: impl FnMut() -> S, handles: usize) {
    let name = "counter";
    let threads: Vec<_> = (0..handles)
        .map(|_| {
            let mut store = open();
            std::thread::spawn(move || kept::race_for_places(&mut store, name))
        })
        .collect();
    let got: usize = threads.into_iter().map(|it| it.join().expect("it does not panic")).sum();
    assert_eq!(got, kept::PLACES, "of {handles} that raced so many got a place");
    let mut store = open();
    change(&mut store, |tx| {
        let taken = kept::counter(tx, name)?;
        assert_eq!(taken, kept::PLACES as u64);
        Ok(())
    });
}

/// A transaction that is committed.
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
    use crate::store::Memory;

    #[test]
    fn the_store_in_memory_conforms() {
        run(Memory::new);
        let memory = Memory::new();
        race(|| memory.clone(), 4);
    }
}
