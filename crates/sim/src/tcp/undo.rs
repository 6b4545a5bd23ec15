//! Taking back reductions of the window that nothing had called for.

use crate::congestion::Window;

/// The window before a reduction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prior {
    size: u32,
    threshold: u32,
}

impl Prior {
    pub(super) const fn of(window: &Window) -> Self {
        Self { size: window.size, threshold: window.threshold }
    }

    pub(super) fn restore(self, window: &mut Window) {
        window.size = window.size.max(self.size);
        window.threshold = window.threshold.max(self.threshold);
    }
}

/// A fast recovery that is spurious if every retransmission turns out to be a duplicate (RFC 3708;
/// Linux `tcp_try_undo_dsack`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspect {
    prior: Prior,
    /// Retransmissions that are not known to be duplicates.
    unexplained: u32,
}

impl Suspect {
    pub(super) const fn new(prior: Prior) -> Self {
        Self { prior, unexplained: 0 }
    }

    pub(super) fn on_retransmission(&mut self) {
        self.unexplained += 1;
    }

    /// A segment arrived twice. Returns the window to restore if that explains the last
    /// retransmission.
    pub(super) fn on_duplicate(&mut self) -> Option<Prior> {
        let before = self.unexplained;
        self.unexplained = before.saturating_sub(1);
        (before == 1).then_some(self.prior)
    }
}
