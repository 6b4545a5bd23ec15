//! Every subject repeats its results, and does not depend on how often its link is polled.

use underload_laws as laws;

use crate::subject::subjects;

#[test]
fn equal_seeds_give_equal_fates_and_every_queue_signals() {
    subjects().iter().for_each(laws::repeats_itself);
}

#[test]
fn extra_polls_change_nothing() {
    subjects().iter().for_each(laws::does_not_feel_polls);
}
