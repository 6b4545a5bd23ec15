//! The writes of an application that always has more data.

use super::{Scoreboard, Window};

/// Where writes end: there Linux sets PSH, which a receiver that has read all data acknowledges at
/// once (`tcp_cleanup_rbuf`), so that every second segment is counted from there on.
///
/// As in the worlds with Linux's TCP, the application writes again when a third of the send buffer
/// is free and less than 64 KiB wait, until the buffer is full or 128 KiB wait
/// (`TCP_NOTSENT_LOWAT`). The buffer has twice the largest window. Every fourth write, the last of
/// 256 KiB, ends within a segment that the next one continues.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// Bit `n` is set if the `n`th waiting segment ends a write; the next segment is bit 0.
    ends: u128,
    /// Segments written and not sent.
    unsent: u32,
    buffer: u32,
    writes: u32,
}

impl Writer {
    /// Sends a segment; returns whether it is the end of a write.
    #[inline]
    pub(super) fn sends(&mut self) -> bool {
        let ends = self.ends & 1 == 1;
        self.ends >>= 1;
        self.unsent = self.unsent.saturating_sub(1);
        ends
    }

    /// Writes if there is space, after an acknowledgement.
    #[inline]
    pub(super) fn write(&mut self, board: &Scoreboard, window: &Window) {
        self.buffer = self.buffer.max(2 * window.size.max(10));
        let queued = board.outstanding() + self.unsent;
        if self.unsent > LEAST_UNSENT || queued > self.buffer * 2 / 3 {
            return;
        }
        self.unsent = MOST_UNSENT.min(self.buffer.saturating_sub(board.outstanding()));
        self.writes += 1;
        if !self.writes.is_multiple_of(4) && self.unsent > 0 {
            self.ends |= 1 << (self.unsent - 1);
        }
    }
}

/// Segments in 64 KiB and in 128 KiB.
const LEAST_UNSENT: u32 = 45;
const MOST_UNSENT: u32 = 91;

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends all of a window of `size` once per round; returns the numbers of segments from one end
    /// of a write to the next.
    fn between_ends(size: u32, rounds: u32) -> Vec<u32> {
        let (mut writer, window, board) = (Writer::default(), Window::new(size), Scoreboard::new());
        let mut since = 0;
        let mut between = Vec::new();
        for _ in 0..rounds * size / 2 {
            writer.write(&board, &window);
            for _ in 0..2 {
                since += 1;
                if writer.sends() {
                    between.push(std::mem::take(&mut since));
                }
            }
        }
        between
    }

    #[test]
    fn writes_end_every_64_kib_or_a_third_of_the_buffer() {
        let large = between_ends(200, 10);
        assert_eq!(large[..6], [91, 46, 46, 92, 46, 46], "the fourth one does not end");
        let small = between_ends(16, 20);
        assert!(small[1..].iter().all(|between| (10..=30).contains(between)), "{small:?}");
    }
}
