//! The receiving end of a TCP connection: reassembly, selective and delayed acknowledgements, ECN.

use std::cmp::Ordering;
use std::num::NonZeroI16;

use underload_aqm::packet::Ecn;
use underload_aqm::time::{Span, Time};

use super::accurate_ecn::MarkCounter;
use crate::net::{Acknowledgement, Data, SackBlock, Stamp};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Range {
    start: u32,
    end: u32,
}

#[derive(Debug, Default)]
pub(super) struct Receiver {
    /// First segment not received.
    expected: u32,
    /// Received segments beyond `expected`: ascending ranges with gaps between them.
    islands: Vec<Range>,
    /// Starts of the islands to report, most recently changed first.
    recent: [u32; 3],
    recent_count: usize,
    /// Payload bytes received, each segment counted once.
    pub(super) received_bytes: u64,
    /// Cumulative number of the last acknowledgement, and the time stamp to echo (RFC 7323 section
    /// 4.3: `Last.ACK.sent` and `TS.Recent`).
    reported: u32,
    recent_stamp: Stamp,
    /// When the delayed acknowledgement is due; [`Time::MAX`] without one.
    delayed_until: Time,
    /// Acknowledgements of segments beyond a gap since `expected` was `gap`: sent at once, and
    /// since then joined into one.
    gap: u32,
    joined: u16,
    beyond: u8,
    /// Acknowledgements that are still sent without delay.
    quick: u32,
    /// When the latest segment arrived that the cumulative acknowledgement waited for.
    last_in_order: Time,
    /// This end's own retransmission timeout, which follows from the handshake.
    timeout_us: u32,
    marks: MarkCounter,
    /// Whether the previous packet was CE.
    last_marked: bool,
    /// ECE is sent until the sender answers.
    echo: bool,
    accurate: bool,
}

impl Receiver {
    /// Accurate feedback (`accurate`) counts marks and every change between marked and unmarked
    /// packets is acknowledged at once (RFC 8257 section 3.2; RFC 9768 section 3.2.2.5.1 requires
    /// half of that). Otherwise a mark is echoed until answered (RFC 3168).
    pub(super) fn new(accurate: bool) -> Self {
        let delayed_until = Time::MAX;
        Self { quick: QUICK_ACKNOWLEDGEMENTS, accurate, delayed_until, ..Self::default() }
    }

    pub(super) fn set_timeout(&mut self, timeout: Span) {
        self.timeout_us = u32::try_from(timeout.as_nanos() / 1_000).unwrap_or(u32::MAX);
    }

    /// Returns when the delayed acknowledgement is due.
    pub(super) fn deadline(&self) -> Time {
        self.delayed_until
    }

    /// Stores a segment; returns an acknowledgement unless it is delayed.
    pub(super) fn on_data(&mut self, now: Time, data: Data, ecn: Ecn) -> Option<Acknowledgement> {
        let mark_changed = self.note_ecn(data, ecn);
        self.note_stamp(data);
        let fills_gap = !self.islands.is_empty();
        self.note_progress(now, data.sequence);
        let fresh = self.store(data);
        if !fresh {
            return Some(self.acknowledge(Some(data.sequence)));
        }
        let gap_remains = !self.islands.is_empty();
        let at_once = self.expected - self.reported >= SEGMENTS_PER_ACKNOWLEDGEMENT
            || (fills_gap && !gap_remains)
            || self.quick > 0
            || mark_changed
            || data.push
            || data.window_reduced
            || (gap_remains && !self.may_join());
        if at_once {
            self.quick = self.quick.saturating_sub(1);
            return Some(self.acknowledge(None));
        }
        let delay = if gap_remains { self.joining_delay() } else { DELAY };
        self.delayed_until = self.delayed_until.min(now + delay);
        None
    }

    /// A third of the round trip of the handshake, which the timeout exceeds by 200 ms at least, but
    /// at most a millisecond and the slack of Linux's timer.
    fn joining_delay(&self) -> Span {
        let third_us = u64::from(self.timeout_us).saturating_sub(200_000) / 3;
        Span::from_micros(third_us.min(1_000) + 10)
    }

    /// Returns whether an acknowledgement of a segment beyond a gap may wait for others (Linux
    /// `__tcp_ack_snd_check`): from the fourth on since the gap moved, and up to 44 of them.
    fn may_join(&mut self) -> bool {
        if self.gap != self.expected {
            (self.gap, self.beyond) = (self.expected, 0);
        }
        let joins = self.beyond >= DUPLICATES_AT_ONCE && self.joined < MOST_JOINED;
        self.beyond = self.beyond.saturating_add(1);
        self.joined += u16::from(joins);
        joins
    }

    /// Sends the next acknowledgements without delay if the sender seems to restart: after a
    /// timeout without progress (Linux `tcp_event_data_recv`), or if it sends again what has
    /// arrived (`tcp_enter_quickack_mode`).
    fn note_progress(&mut self, now: Time, sequence: u32) {
        let is_late = now.since(self.last_in_order) > Span::from_micros(u64::from(self.timeout_us));
        if sequence < self.expected || (sequence == self.expected && is_late) {
            self.quick = QUICK_ACKNOWLEDGEMENTS;
        }
        if sequence == self.expected {
            self.last_in_order = now;
        }
    }

    /// Returns the delayed acknowledgement if it is due.
    pub(super) fn on_timer(&mut self, now: Time) -> Option<Acknowledgement> {
        (self.delayed_until <= now).then(|| self.acknowledge(None))
    }

    /// Stores the time stamp to echo, that of the segment at the left edge: the first of several
    /// segments with a delayed acknowledgement, or the segment that fills a gap.
    fn note_stamp(&mut self, data: Data) {
        if data.sequence == self.reported {
            self.recent_stamp = data.sent;
        }
    }

    fn note_ecn(&mut self, data: Data, ecn: Ecn) -> bool {
        let marked = ecn == Ecn::Ce;
        if data.window_reduced {
            self.echo = false;
        }
        if marked {
            self.marks.count();
        }
        self.echo |= marked;
        let changed = marked != self.last_marked;
        self.last_marked = marked;
        changed && (self.accurate || marked)
    }

    /// Returns whether the segment is new.
    fn store(&mut self, data: Data) -> bool {
        let sequence = data.sequence;
        let fresh = match sequence.cmp(&self.expected) {
            Ordering::Less => false,
            Ordering::Equal => {
                self.advance();
                true
            }
            Ordering::Greater => self.store_island(sequence),
        };
        if fresh {
            self.received_bytes += u64::from(data.len);
        }
        fresh
    }

    fn advance(&mut self) {
        self.expected += 1;
        if self.islands.first().is_some_and(|island| island.start == self.expected) {
            let island = self.islands.remove(0);
            self.expected = island.end;
            self.forget(island.start);
        }
    }

    fn store_island(&mut self, sequence: u32) -> bool {
        let after = self.islands.partition_point(|island| island.start <= sequence);
        let joins_left = after > 0 && self.islands[after - 1].end >= sequence;
        if joins_left && self.islands[after - 1].end > sequence {
            self.touch(self.islands[after - 1].start);
            return false;
        }
        let joins_right = after < self.islands.len() && self.islands[after].start == sequence + 1;
        let start = match (joins_left, joins_right) {
            (true, true) => {
                let right = self.islands.remove(after);
                self.forget(right.start);
                self.islands[after - 1].end = right.end;
                self.islands[after - 1].start
            }
            (true, false) => {
                self.islands[after - 1].end += 1;
                self.islands[after - 1].start
            }
            (false, true) => {
                self.forget(sequence + 1);
                self.islands[after].start = sequence;
                sequence
            }
            (false, false) => {
                self.islands.insert(after, Range { start: sequence, end: sequence + 1 });
                sequence
            }
        };
        self.touch(start);
        true
    }

    /// Moves the island that starts at `start` to the front of the report.
    fn touch(&mut self, start: u32) {
        self.forget(start);
        let others = self.recent_count.min(self.recent.len() - 1);
        self.recent.copy_within(0..others, 1);
        self.recent[0] = start;
        self.recent_count = others + 1;
    }

    fn forget(&mut self, start: u32) {
        let found = self.recent[..self.recent_count].iter().position(|&recent| recent == start);
        if let Some(position) = found {
            self.recent.copy_within(position + 1..self.recent_count, position);
            self.recent_count -= 1;
        }
    }

    fn acknowledge(&mut self, duplicate: Option<u32>) -> Acknowledgement {
        self.joined = 0;
        self.delayed_until = Time::MAX;
        let mut blocks = [SackBlock::default(); 3];
        for (block, &start) in blocks.iter_mut().zip(&self.recent[..self.recent_count]) {
            let found = self.islands.binary_search_by_key(&start, |island| island.start);
            if let Ok(index) = found {
                let end = self.islands[index].end - self.expected;
                *block = SackBlock {
                    start: (start - self.expected).min(u32::from(u16::MAX)) as u16,
                    end: end.min(u32::from(u16::MAX)) as u16,
                };
            }
        }
        self.reported = self.expected;
        Acknowledgement {
            cumulative: self.expected,
            echoed: self.recent_stamp,
            blocks,
            ce_count: self.marks.field(),
            echo: self.echo && !self.accurate,
            duplicate: duplicate.and_then(|sequence| self.distance(sequence)),
        }
    }

    /// Returns the distance of `sequence` from the expected segment, clamped to the field.
    fn distance(&self, sequence: u32) -> Option<NonZeroI16> {
        let distance = i64::from(sequence) - i64::from(self.expected);
        NonZeroI16::new(distance.clamp(i16::MIN.into(), i16::MAX.into()) as i16)
    }
}

/// Every second full-sized segment is acknowledged (RFC 5681 section 4.2, Linux).
const SEGMENTS_PER_ACKNOWLEDGEMENT: u32 = 2;
/// Linux `TCP_DELACK_MIN`, the value of its adaptive timeout while data arrives continuously.
const DELAY: Span = Span::from_millis(40);
/// Linux `TCP_FASTRETRANS_THRESH` and `tcp_comp_sack_nr`.
const DUPLICATES_AT_ONCE: u8 = 3;
const MOST_JOINED: u16 = 44;
/// Linux `TCP_MAX_QUICKACKS`: acknowledgements sent without delay when a sender starts or
/// restarts.
const QUICK_ACKNOWLEDGEMENTS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn data(now: Time, sequence: u32) -> Data {
        let (len, sent) = (1_448, Stamp::of(now));
        let (retransmission, window_reduced, push) = (false, false, false);
        Data { sequence, len, retransmission, window_reduced, push, sent }
    }

    /// Delivers `count` segments from `first` on, 10 ms apart, and returns for each whether it was
    /// acknowledged at once.
    fn is_quick(receiver: &mut Receiver, start: Time, first: u32, count: u32) -> Vec<bool> {
        let arrive = |index: u32| {
            let now = start + Span::from_millis(10 * u64::from(index));
            receiver.on_data(now, data(now, first + index), Ecn::NotEct).is_some()
        };
        (0..count).map(arrive).collect()
    }

    #[test]
    fn acknowledgements_are_quick_again_after_a_timeout_or_a_repetition() {
        let mut receiver = Receiver::new(false);
        receiver.set_timeout(Span::from_millis(240));
        let quick = is_quick(&mut receiver, Time::ZERO, 0, QUICK_ACKNOWLEDGEMENTS);
        assert!(quick.iter().all(|is_quick| *is_quick), "{quick:?}");
        let start = Time::from_secs(1);
        receiver.last_in_order = start;
        assert_eq!(is_quick(&mut receiver, start, 16, 3), [false, true, false]);
        let after_gap = start + Span::from_millis(20 + 241);
        let quick = is_quick(&mut receiver, after_gap, 19, 18);
        assert_eq!(
            quick.iter().filter(|is_quick| **is_quick).count(),
            17,
            "every second of the last"
        );
        let repeated = Time::from_secs(2);
        receiver.last_in_order = repeated;
        assert_eq!(is_quick(&mut receiver, repeated, 36, 1), [true], "a repetition");
        assert_eq!(is_quick(&mut receiver, repeated, 37, 3), [true; 3]);
    }

    /// Behind a gap three acknowledgements are sent at once; later ones wait a millisecond for each
    /// other, until the gap is filled or 44 wait (`__tcp_ack_snd_check` of Linux, by hand).
    #[test]
    fn acknowledgements_beyond_a_gap_are_joined_after_the_third() {
        let mut receiver = Receiver { quick: 0, timeout_us: 240_000, ..Receiver::new(false) };
        let mut arrive = |us: u64, sequence| {
            let now = Time::from_nanos(us * 1_000);
            let due = receiver.on_timer(now).map(|ack| ack.blocks[0].end);
            let ack = receiver.on_data(now, data(now, sequence), Ecn::NotEct);
            (due, ack.map(|ack| ack.cumulative))
        };
        for sequence in 1..=3 {
            assert_eq!(arrive(0, sequence), (None, Some(0)));
        }
        assert_eq!(arrive(100, 4), (None, None));
        assert_eq!(arrive(900, 5), (None, None));
        assert_eq!(arrive(1_110, 6), (Some(6), None), "due 1.01 ms after the first");
        assert_eq!(arrive(1_120, 0), (None, Some(7)), "the gap is filled");
        for sequence in 8..=10 {
            assert_eq!(arrive(1_130, sequence), (None, Some(7)), "a new gap");
        }
        for sequence in 11..55 {
            assert_eq!(arrive(1_140, sequence), (None, None));
        }
        assert_eq!(arrive(1_150, 55), (None, Some(7)), "44 wait");
    }

    #[test]
    fn the_end_of_a_write_and_a_reduced_window_are_acknowledged_at_once() {
        let mut receiver = Receiver { quick: 0, ..Receiver::new(true) };
        let mut is_quick = |sequence, push, window_reduced| {
            let data = Data { window_reduced, push, ..data(Time::ZERO, sequence) };
            receiver.on_data(Time::ZERO, data, Ecn::Ect0).is_some()
        };
        let arrivals = [(0, true, false), (1, false, false), (2, false, false), (3, false, true)];
        let quick = arrivals.map(|(sequence, push, reduced)| is_quick(sequence, push, reduced));
        assert_eq!(quick, [true, false, true, true], "pairs are counted from there on");
    }
}
