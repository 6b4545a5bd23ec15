//! Whether a reduction of the window was called for, and what to restore if it was not.
//!
//! Proof is a time stamp echoed from before the first retransmission (the Eifel detection, RFC
//! 3522) or that every retransmission arrived as a duplicate (RFC 3708), as in Linux
//! `tcp_may_undo`. The time stamp stays that of the *first* retransmission when segments are sent
//! again once more. A timeout within a recovery is judged by itself, too: an echo from before it,
//! though of a retransmission, proves that what it waited for was still under way.

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
    /// The threshold to return to is three quarters of the window at least (Linux
    /// `tcp_current_ssthresh`).
    pub(super) fn of(window: &Window) -> Self {
        let threshold = window.threshold.max((u64::from(window.size) * 3 / 4) as u32);
        Self { size: window.size, threshold }
    }

    pub(super) const fn exactly(window: &Window) -> Self {
        Self { size: window.size, threshold: window.threshold }
    }

    pub(super) fn restore(self, window: &mut Window) {
        window.size = window.size.max(self.size);
        window.threshold = window.threshold.max(self.threshold);
    }
}

/// The latest reduction, until it is known to have been needed.
#[derive(Debug, Default)]
pub(super) struct Undo {
    /// First segment outstanding at the reduction; `None`: nothing is to be undone.
    marker: Option<u32>,
    prior: Option<Prior>,
    /// Retransmissions that are not known to be duplicates; `None` before the first.
    unexplained: Option<u32>,
    /// Time stamp of the first retransmission since everything was well.
    first_again: Option<Stamp>,
}

impl Undo {
    /// A reduction from `prior` begins, or a repair without one. `under_way` retransmissions of
    /// before may yet turn out to be duplicates.
    pub(super) fn begin(&mut self, first: u32, prior: Option<Prior>, under_way: u32) {
        self.marker = Some(first);
        self.prior = prior;
        self.unexplained = (under_way > 0).then_some(under_way);
    }

    /// Nothing that was sent again is under way: the next retransmission is a first one.
    pub(super) fn forget_retransmissions(&mut self) {
        self.first_again = None;
    }

    /// The reduction stays.
    pub(super) fn give_up(&mut self) {
        self.marker = None;
    }

    pub(super) fn on_retransmission(&mut self, now: Time) {
        self.first_again.get_or_insert(Stamp::of(now));
        if self.marker.is_some() {
            *self.unexplained.get_or_insert(0) += 1;
        }
    }

    /// `sequence` arrived twice.
    pub(super) fn on_duplicate(&mut self, sequence: u32) {
        if self.marker.is_some_and(|marker| sequence >= marker) {
            self.unexplained = self.unexplained.map(|count| count.saturating_sub(1));
        }
    }

    /// Whether an acknowledgement that moves on echoes a time before the first retransmission.
    pub(super) fn was_delayed(&self, echoed: Stamp) -> bool {
        self.marker.is_some() && self.first_again.is_none_or(|again| echoed.is_before(again))
    }

    /// Whether every retransmission has turned out to be a duplicate.
    pub(super) fn all_duplicates(&self) -> bool {
        self.marker.is_some() && self.unexplained == Some(0)
    }

    /// The window to return to, once.
    pub(super) fn take(&mut self) -> Option<Prior> {
        self.marker = None;
        self.prior.take()
    }
}

/// A timeout until something answers it: whether what it waited for was still under way.
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
    fn a_window_comes_back_and_never_shrinks_by_it() {
        let restored = |prior: Prior, mut to: Window| {
            prior.restore(&mut to);
            (to.size, to.threshold)
        };
        assert_eq!(restored(Prior::of(&window(101, 10)), window(5, 5)), (101, 75));
        assert_eq!(restored(Prior::of(&window(101, 90)), window(5, 5)), (101, 90));
        assert_eq!(restored(Prior::exactly(&window(101, 10)), window(5, 5)), (101, 10));
        assert_eq!(restored(Prior::exactly(&window(101, 10)), window(200, 80)), (200, 80));
    }

    #[test]
    fn an_echo_from_before_the_first_retransmission_proves_delay() {
        let at = |micros: u64| Time::from_nanos(micros * 1_000);
        let mut undo = Undo::default();
        undo.on_retransmission(at(100));
        assert!(!undo.was_delayed(Stamp::of(at(1))), "nothing was reduced");
        undo.begin(7, Some(Prior::of(&window(20, 10))), 0);
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
        // One of before is still under way.
        undo.begin(9, None, 1);
        undo.on_retransmission(Time::ZERO);
        undo.on_duplicate(9);
        assert!(!undo.all_duplicates());
        undo.on_duplicate(9);
        assert!(undo.all_duplicates());
    }
}
