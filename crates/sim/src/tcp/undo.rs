//! Detection of spurious window reductions, and the window to restore.
//!
//! A reduction was spurious if an echoed time stamp is older than the first retransmission (Eifel
//! detection, RFC 3522) or if every retransmission arrived as a duplicate (RFC 3708), as in Linux
//! `tcp_may_undo`. The time stamp remains that of the *first* retransmission when segments are
//! retransmitted again. A timeout within a recovery is also judged separately: an echo from before
//! it, even of a retransmission, proves that the awaited segment was still in flight.

use underload_aqm::time::Time;

use crate::congestion::Window;
use crate::net::Stamp;

/// The window before a reduction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prior {
    size: u32,
    threshold: u32,
}

impl Prior {
    /// The threshold to restore is at least three quarters of the window (Linux
    /// `tcp_current_ssthresh`).
    pub(super) fn new(window: &Window) -> Self {
        let threshold = window.threshold.max((u64::from(window.size) * 3 / 4) as u32);
        Self { size: window.size, threshold }
    }

    pub(super) const fn unraised(window: &Window) -> Self {
        Self { size: window.size, threshold: window.threshold }
    }

    pub(super) fn restore(self, window: &mut Window) {
        window.size = window.size.max(self.size);
        window.threshold = window.threshold.max(self.threshold);
    }
}

/// The latest reduction, until it is known to be justified.
#[derive(Debug, Default)]
pub(super) struct Undo {
    /// First segment outstanding at the reduction; `None` if there is nothing to undo.
    marker: Option<u32>,
    prior: Option<Prior>,
    /// Retransmissions not known to be duplicates; `None` before the first retransmission.
    unexplained: Option<u32>,
    /// Time stamp of the first retransmission since no retransmission was in flight.
    first_again: Option<Stamp>,
}

impl Undo {
    /// Starts a reduction from `prior`, or a repair without one (`None`). `under_way` earlier
    /// retransmissions are in flight and may arrive as duplicates.
    pub(super) fn begin(&mut self, first: u32, prior: Option<Prior>, under_way: u32) {
        self.marker = Some(first);
        self.prior = prior;
        self.unexplained = (under_way > 0).then_some(under_way);
    }

    /// No retransmission is in flight: the next one counts as the first.
    pub(super) fn forget_retransmissions(&mut self) {
        self.first_again = None;
    }

    /// Accepts the reduction as justified.
    pub(super) fn give_up(&mut self) {
        self.marker = None;
    }

    pub(super) fn on_retransmission(&mut self, now: Time) {
        self.first_again.get_or_insert(Stamp::of(now));
        if self.marker.is_some() {
            *self.unexplained.get_or_insert(0) += 1;
        }
    }

    /// Records that `sequence` arrived twice.
    pub(super) fn on_duplicate(&mut self, sequence: u32) {
        if self.marker.is_some_and(|marker| sequence >= marker) {
            self.unexplained = self.unexplained.map(|count| count.saturating_sub(1));
        }
    }

    /// Returns whether an advancing acknowledgement echoes a time before the first retransmission.
    pub(super) fn was_delayed(&self, echoed: Stamp) -> bool {
        self.marker.is_some() && self.first_again.is_none_or(|again| echoed.is_before(again))
    }

    /// Returns whether every retransmission arrived as a duplicate.
    pub(super) fn all_duplicates(&self) -> bool {
        self.marker.is_some() && self.unexplained == Some(0)
    }

    /// Removes and returns the window to restore.
    pub(super) fn take(&mut self) -> Option<Prior> {
        self.marker = None;
        self.prior.take()
    }
}

/// A timeout that may prove premature, until the next progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Premature {
    pub(super) at: Stamp,
    pub(super) prior: Prior,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(size: u32, threshold: u32) -> Window {
        let mut window = Window::new(size);
        window.threshold = threshold;
        window
    }

    #[test]
    fn undo_restores_the_window_and_never_shrinks_it() {
        let restored = |prior: Prior, mut to: Window| {
            prior.restore(&mut to);
            (to.size, to.threshold)
        };
        assert_eq!(restored(Prior::new(&window(101, 10)), window(5, 5)), (101, 75));
        assert_eq!(restored(Prior::new(&window(101, 90)), window(5, 5)), (101, 90));
        assert_eq!(restored(Prior::unraised(&window(101, 10)), window(5, 5)), (101, 10));
        assert_eq!(restored(Prior::unraised(&window(101, 10)), window(200, 80)), (200, 80));
    }

    #[test]
    fn an_echo_from_before_the_first_retransmission_proves_delay() {
        let at = |micros: u64| Time::from_nanos(micros * 1_000);
        let mut undo = Undo::default();
        undo.on_retransmission(at(100));
        assert!(!undo.was_delayed(Stamp::of(at(1))), "nothing was reduced");
        undo.begin(7, Some(Prior::new(&window(20, 10))), 0);
        undo.on_retransmission(at(200));
        assert!(undo.was_delayed(Stamp::of(at(99))));
        assert!(!undo.was_delayed(Stamp::of(at(100))), "the first of all counts");
        undo.forget_retransmissions();
        undo.on_retransmission(at(300));
        assert!(undo.was_delayed(Stamp::of(at(299))) && !undo.was_delayed(Stamp::of(at(300))));
        assert!(undo.take().is_some() && undo.take().is_none(), "once");
        assert!(!undo.was_delayed(Stamp::of(at(1))));
    }

    #[test]
    fn every_retransmission_must_have_arrived_twice() {
        let mut undo = Undo::default();
        undo.begin(7, None, 0);
        undo.on_duplicate(7);
        assert!(!undo.all_duplicates(), "none was sent");
        undo.on_retransmission(Time::ZERO);
        undo.on_retransmission(Time::ZERO);
        undo.on_duplicate(6);
        undo.on_duplicate(7);
        assert!(!undo.all_duplicates(), "one of two: 6 is older than the reduction");
        undo.on_duplicate(8);
        assert!(undo.all_duplicates());
        undo.give_up();
        assert!(!undo.all_duplicates());
        // A segment that was sent before the reduction is still in flight.
        undo.begin(9, None, 1);
        undo.on_retransmission(Time::ZERO);
        undo.on_duplicate(9);
        assert!(!undo.all_duplicates());
        undo.on_duplicate(9);
        assert!(undo.all_duplicates());
    }
}
