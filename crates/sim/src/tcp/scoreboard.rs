//! The sender's records of sent segments that are not acknowledged.
//!
//! A ring of fixed-size records, indexed by sequence number. The counts are those of RFC 6675's
//! pipe as in Linux: in flight = outstanding - sacked - lost + retransmissions. Losses are detected
//! by time (RACK, RFC 8985) with two cursors instead of a scan: first transmissions are in order of
//! sequence and time, retransmissions are queued in order of time, so each record is examined once
//! per transmission.

use std::collections::VecDeque;

use underload_aqm::time::{Span, Time};

use crate::net::{SackBlock, Stamp};
use crate::sys::prefetch;

#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// Time of the last transmission.
    at: Time,
    /// Rate sampling: when the segment that opened the sampling window was sent.
    window_opened: Time,
    /// Rate sampling: when the count `delivered` was reached.
    delivered_at: Time,
    /// Rate sampling: segments delivered when this one was sent.
    delivered: u32,
    len: u16,
    flags: u8,
}

const _: () = assert!(size_of::<Sent>() <= 32, "two records share a cache line");

const SACKED: u8 = 1;
const LOST: u8 = 2;
/// A retransmission is in flight.
const RETRANSMITTING: u8 = 4;
/// Sent more than once: the round trip time is ambiguous (Karn's rule).
const RETRANSMITTED: u8 = 8;
const APP_LIMITED: u8 = 16;

/// Segments and bytes that an acknowledgement newly delivered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delivery {
    /// Arrival, echoed time stamp and minimum round trip at that time, which distinguish the
    /// arrival of a retransmission from that of an earlier transmission.
    pub(super) now: Time,
    pub(super) echoed: Stamp,
    pub(super) min_rtt: Span,
    /// Segments newly acknowledged by the cumulative number.
    pub(super) acknowledged: u32,
    /// Segments newly known to have arrived.
    pub(super) delivered: u32,
    /// Segments newly known to have arrived by selective acknowledgements.
    pub(super) sacked: u32,
    /// Payload bytes acknowledged cumulatively.
    pub(super) acknowledged_bytes: u64,
    /// Sending times of the first and the last newly acknowledged segments that were sent once.
    pub(super) first_sent: Option<Time>,
    pub(super) last_sent: Option<Time>,
    /// Sending time of the first newly sacked segment that was sent once.
    pub(super) sacked_sent: Option<Time>,
    /// The first newly delivered segment that was sent once.
    pub(super) first_original: Option<u32>,
    pub(super) sample: Option<RateSample>,
    pub(super) newest: Option<Newest>,
}

/// State at the transmission of a segment, read when it is delivered (Linux `tcp_rate.c`).
#[derive(Clone, Copy, Debug)]
pub(super) struct RateSample {
    pub(super) prior_delivered: u32,
    pub(super) prior_at: Time,
    pub(super) sent_at: Time,
    pub(super) send_interval: Span,
    pub(super) app_limited: bool,
}

/// The most recently sent segment known to have arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Newest {
    pub(super) sent_at: Time,
    pub(super) sequence: u32,
}

/// The state at a transmission, for rate sampling.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    pub(super) now: Time,
    pub(super) window_opened: Time,
    pub(super) delivered_at: Time,
    pub(super) delivered: u32,
    pub(super) app_limited: bool,
}

/// The newest delivered transmission, and how long the others may lag behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RackView {
    pub(super) now: Time,
    pub(super) sent_at: Time,
    pub(super) sequence: u32,
    /// Round trip time of the newest delivered transmission plus the reordering window.
    pub(super) patience: Span,
}

/// Outcome of a search for losses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    /// Segments newly considered lost.
    pub(super) lost: u32,
    /// Number of retransmissions among `lost`.
    pub(super) lost_again: u32,
    /// When to check again; `None` if no segment is within its reordering window.
    pub(super) next_check: Option<Time>,
}

#[derive(Debug, Default)]
pub(super) struct Scoreboard {
    ring: Vec<Sent>,
    /// Oldest segment not acknowledged.
    pub(super) first: u32,
    /// Next segment to send for the first time.
    pub(super) next: u32,
    pub(super) bytes: u64,
    pub(super) sacked: u32,
    lost: u32,
    /// Transmissions considered lost since the start (Linux `tp->lost`).
    pub(super) total_lost: u32,
    pub(super) retransmitting: u32,
    /// Lost segments without a retransmission in flight.
    waiting: u32,
    /// The number after the highest selectively acknowledged segment.
    highest_sacked: u32,
    /// Blocks of the previous acknowledgement, so that only new parts are walked through.
    known: [(u32, u32); 3],
    /// No lost segment before this one waits for retransmission.
    lost_hint: u32,
    /// First transmissions before this one have been examined for loss.
    unjudged: u32,
    /// Retransmissions in order of time; an entry is stale once the segment is delivered.
    retransmissions: VecDeque<(u32, Time)>,
    pub(super) reordering_seen: bool,
}

impl Scoreboard {
    pub(super) fn new() -> Self {
        Self { ring: vec![Sent::default(); INITIAL_CAPACITY], ..Self::default() }
    }

    pub(super) fn outstanding(&self) -> u32 {
        self.next - self.first
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.outstanding() + self.retransmitting - self.sacked - self.lost
    }

    /// Returns the time of the latest transmission of the oldest segment.
    pub(super) fn oldest_sent(&self) -> Option<Time> {
        (self.first < self.next).then(|| self.sent(self.first).at)
    }

    /// Returns whether no segment is sacked, lost or retransmitted.
    pub(super) fn is_clean(&self) -> bool {
        self.sacked == 0 && self.lost == 0 && self.retransmissions.is_empty()
    }

    /// Prefetches the records of the oldest segment and the oldest retransmission.
    #[inline]
    pub(super) fn prefetch_oldest(&self) {
        prefetch(self.sent(self.first));
        if let Some(oldest) = self.retransmissions.front() {
            prefetch(oldest);
        }
    }

    fn sent(&self, sequence: u32) -> &Sent {
        &self.ring[sequence as usize & (self.ring.len() - 1)]
    }

    fn sent_mut(&mut self, sequence: u32) -> &mut Sent {
        let mask = self.ring.len() - 1;
        &mut self.ring[sequence as usize & mask]
    }

    /// Records the first transmission of the next segment and returns its number.
    // Inlined so that the departure stays in registers.
    #[inline]
    pub(super) fn send_new(&mut self, len: u16, departure: &Departure) -> u32 {
        if self.outstanding() as usize == self.ring.len() {
            self.grow();
        }
        let sequence = self.next;
        *self.sent_mut(sequence) = Sent {
            at: departure.now,
            window_opened: departure.window_opened,
            delivered_at: departure.delivered_at,
            delivered: departure.delivered,
            len,
            flags: if departure.app_limited { APP_LIMITED } else { 0 },
        };
        self.next += 1;
        self.bytes += u64::from(len);
        sequence
    }

    /// Records a retransmission and returns the segment's payload bytes.
    pub(super) fn send_again(&mut self, sequence: u32, departure: &Departure) -> u16 {
        let sent = self.sent_mut(sequence);
        let was_retransmitting = sent.flags & RETRANSMITTING != 0;
        let was_waiting = waits(sent.flags);
        sent.at = departure.now;
        sent.window_opened = departure.window_opened;
        sent.delivered_at = departure.delivered_at;
        sent.delivered = departure.delivered;
        sent.flags |= RETRANSMITTING | RETRANSMITTED;
        let len = sent.len;
        self.retransmitting += u32::from(!was_retransmitting);
        self.waiting -= u32::from(was_waiting);
        self.retransmissions.push_back((sequence, departure.now));
        len
    }

    /// Returns the highest segment that is not selectively acknowledged.
    pub(super) fn last_unsacked(&self) -> Option<u32> {
        (self.first..self.next).rev().find(|&sequence| self.sent(sequence).flags & SACKED == 0)
    }

    /// Returns the first lost segment without a retransmission in flight.
    #[inline]
    pub(super) fn next_lost(&mut self) -> Option<u32> {
        if self.waiting == 0 { None } else { self.find_lost() }
    }

    fn find_lost(&mut self) -> Option<u32> {
        let from = self.lost_hint.max(self.first);
        let found = (from..self.next).find(|&sequence| waits(self.sent(sequence).flags));
        debug_assert!(found.is_some(), "{} segments wait", self.waiting);
        self.lost_hint = found.unwrap_or(self.next);
        found
    }

    /// Removes all segments before `cumulative`.
    #[inline]
    pub(super) fn acknowledge(&mut self, cumulative: u32, delivery: &mut Delivery) {
        let end = cumulative.min(self.next);
        self.acknowledge_run(end, delivery);
        while self.first < end {
            let sequence = self.first;
            let sent = *self.sent(sequence);
            if sent.flags & SACKED == 0 {
                let once = sent.flags & RETRANSMITTED == 0;
                delivered(delivery, &sent, sequence);
                if once {
                    delivery.first_original.get_or_insert(sequence);
                    delivery.first_sent.get_or_insert(sent.at);
                    delivery.last_sent = Some(sent.at);
                    self.reordering_seen |= sequence < self.highest_sacked;
                }
            }
            self.uncount(sent.flags);
            delivery.acknowledged += 1;
            delivery.acknowledged_bytes += u64::from(sent.len);
            self.bytes -= u64::from(sent.len);
            self.first += 1;
        }
        self.unjudged = self.unjudged.max(self.first);
    }

    /// Removes the segments before the first sacked, lost or retransmitted one, nearly always all.
    /// Each was sent no earlier than its predecessor, so the last one is the most recent.
    #[inline]
    fn acknowledge_run(&mut self, end: u32, delivery: &mut Delivery) {
        let first = self.first;
        let mut bytes = 0;
        let mut sequence = first;
        while sequence < end {
            let sent = self.sent(sequence);
            if sent.flags & !APP_LIMITED != 0 {
                break;
            }
            bytes += u64::from(sent.len);
            sequence += 1;
        }
        let count = sequence - first;
        if count == 0 {
            return;
        }
        let last = *self.sent(sequence - 1);
        delivered(delivery, &last, sequence - 1);
        delivery.delivered += count - 1;
        delivery.first_original = Some(first);
        delivery.first_sent = Some(self.sent(first).at);
        delivery.last_sent = Some(last.at);
        delivery.acknowledged += count;
        delivery.acknowledged_bytes += bytes;
        self.reordering_seen |= first < self.highest_sacked;
        self.bytes -= bytes;
        self.first = sequence;
    }

    /// Marks the segments that the blocks of an acknowledgement report.
    pub(super) fn sack(&mut self, cumulative: u32, blocks: &[SackBlock], delivery: &mut Delivery) {
        let highest_before = self.highest_sacked;
        let mut seen = [(0, 0); 3];
        for (block, seen) in blocks.iter().zip(&mut seen) {
            let (mut start, mut end) =
                (cumulative + u32::from(block.start), cumulative + u32::from(block.end));
            end = end.min(self.next);
            start = start.max(self.first);
            *seen = (start, end);
            for &(known_start, known_end) in &self.known {
                if known_start <= start && start < known_end {
                    start = known_end;
                } else if start < known_start && known_start < end && end <= known_end {
                    end = known_start;
                }
            }
            for sequence in start..end {
                self.sack_one(sequence, highest_before, delivery);
            }
            self.highest_sacked = self.highest_sacked.max(seen.1);
        }
        self.known = seen;
    }

    fn sack_one(&mut self, sequence: u32, highest_before: u32, delivery: &mut Delivery) {
        let sent = *self.sent(sequence);
        if sent.flags & SACKED != 0 {
            return;
        }
        delivered(delivery, &sent, sequence);
        delivery.sacked += 1;
        if sent.flags & RETRANSMITTED == 0 {
            delivery.sacked_sent.get_or_insert(sent.at);
            let first = delivery.first_original.get_or_insert(sequence);
            *first = sequence.min(*first);
            self.reordering_seen |= sequence < highest_before;
        }
        self.uncount(sent.flags);
        self.sacked += 1;
        self.sent_mut(sequence).flags = (sent.flags & (RETRANSMITTED | APP_LIMITED)) | SACKED;
    }

    fn uncount(&mut self, flags: u8) {
        self.sacked -= u32::from(flags & SACKED != 0);
        self.lost -= u32::from(flags & LOST != 0);
        self.retransmitting -= u32::from(flags & RETRANSMITTING != 0);
        self.waiting -= u32::from(waits(flags));
    }

    /// Finds the segments that the newest delivered transmission has overtaken by more than the
    /// reordering window (RFC 8985 section 6.2, step 5).
    pub(super) fn find_losses(&mut self, view: &RackView) -> Losses {
        let mut losses = Losses::default();
        while self.unjudged < self.next {
            let sequence = self.unjudged;
            let sent = *self.sent(sequence);
            if sent.flags & (SACKED | LOST | RETRANSMITTED) == 0 {
                if (sent.at, sequence) >= (view.sent_at, view.sequence) {
                    break;
                }
                if !self.time_is_up(sequence, sent.at, view, &mut losses) {
                    break;
                }
            }
            self.unjudged += 1;
        }
        while let Some(&(sequence, at)) = self.retransmissions.front() {
            let newer = (at, sequence) >= (view.sent_at, view.sequence);
            let waits = self.is_under_way(sequence, at)
                && (newer || !self.time_is_up(sequence, at, view, &mut losses));
            if waits {
                break;
            }
            self.retransmissions.pop_front();
        }
        losses
    }

    /// Returns whether a retransmission at this time is the latest transmission of the segment and
    /// not lost. After an undone timeout such a segment has no `RETRANSMITTING` flag.
    fn is_under_way(&self, sequence: u32, at: Time) -> bool {
        sequence >= self.first && {
            let sent = self.sent(sequence);
            let lost = waits(sent.flags);
            sent.flags & RETRANSMITTED != 0 && sent.flags & SACKED == 0 && !lost && sent.at == at
        }
    }

    fn time_is_up(&mut self, sequence: u32, at: Time, view: &RackView, out: &mut Losses) -> bool {
        let expires = at + view.patience;
        if expires > view.now {
            out.next_check = Some(out.next_check.map_or(expires, |other| other.min(expires)));
            return false;
        }
        out.lost += 1;
        out.lost_again += u32::from(self.sent(sequence).flags & RETRANSMITTED != 0);
        self.mark_lost(sequence);
        true
    }

    fn mark_lost(&mut self, sequence: u32) {
        let flags = self.sent(sequence).flags;
        self.retransmitting -= u32::from(flags & RETRANSMITTING != 0);
        self.lost += u32::from(flags & LOST == 0);
        self.waiting += u32::from(!waits(flags));
        self.total_lost += u32::from(!waits(flags));
        self.sent_mut(sequence).flags = (flags | LOST) & !RETRANSMITTING;
        self.lost_hint = self.lost_hint.min(sequence);
    }

    /// Marks as lost, after a retransmission timeout, the first segment and those beyond their
    /// round trip and reordering window (RFC 8985 section 6.3). The others are still in flight.
    pub(super) fn mark_overdue(&mut self, view: &RackView) {
        for sequence in self.first..self.next {
            let sent = self.sent(sequence);
            let overdue = sequence == self.first || sent.at + view.patience <= view.now;
            if overdue && sent.flags & SACKED == 0 {
                self.mark_lost(sequence);
            }
        }
    }

    /// Clears all losses after a spurious reduction, to judge by latest transmissions again.
    pub(super) fn forget_losses(&mut self) {
        self.retransmissions.clear();
        for sequence in self.first..self.next {
            let sent = self.sent_mut(sequence);
            sent.flags &= !LOST;
            let (at, flags) = (sent.at, sent.flags);
            if flags & (RETRANSMITTED | SACKED) == RETRANSMITTED {
                self.retransmissions.push_back((sequence, at));
            }
        }
        self.retransmissions
            .make_contiguous()
            .sort_unstable_by_key(|&(sequence, at)| (at, sequence));
        self.lost = 0;
        self.waiting = 0;
        self.unjudged = self.first;
    }

    fn grow(&mut self) {
        let mut ring = vec![Sent::default(); self.ring.len() * 2];
        let mask = ring.len() - 1;
        for sequence in self.first..self.next {
            ring[sequence as usize & mask] = *self.sent(sequence);
        }
        self.ring = ring;
    }
}

/// Returns whether a segment with these flags is lost and has no retransmission in flight.
const fn waits(flags: u8) -> bool {
    flags & (LOST | RETRANSMITTING) == LOST
}

/// Counts a newly delivered segment.
#[inline]
fn delivered(delivery: &mut Delivery, sent: &Sent, sequence: u32) {
    delivery.delivered += 1;
    if delivery
        .sample
        .is_none_or(|sample| (sent.delivered, sent.at) >= (sample.prior_delivered, sample.sent_at))
    {
        delivery.sample = Some(RateSample {
            prior_delivered: sent.delivered,
            prior_at: sent.delivered_at,
            sent_at: sent.at,
            send_interval: sent.at.since(sent.window_opened),
            app_limited: sent.flags & APP_LIMITED != 0,
        });
    }
    let newer = delivery
        .newest
        .is_none_or(|newest| (sent.at, sequence) > (newest.sent_at, newest.sequence));
    if newer && (sent.flags & RETRANSMITTED == 0 || delivery.is_of_latest(sent)) {
        delivery.newest = Some(Newest { sent_at: sent.at, sequence });
    }
}

impl Delivery {
    /// Returns whether a retransmission can have arrived (RFC 8985 section 6.2, step 2).
    fn is_of_latest(&self, sent: &Sent) -> bool {
        !self.echoed.is_before(Stamp::of(sent.at)) && self.now.since(sent.at) >= self.min_rtt
    }
}

const INITIAL_CAPACITY: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn departure(now: Time) -> Departure {
        Departure { now, window_opened: now, delivered_at: now, delivered: 0, app_limited: false }
    }

    /// Segments 0 to 2 under way, of which the last has arrived.
    fn with_the_last_sacked() -> Scoreboard {
        let mut board = Scoreboard::new();
        for _ in 0..3 {
            board.send_new(1_448, &departure(Time::ZERO));
        }
        let block = SackBlock { start: 2, end: 3 };
        board.sack(0, &[block], &mut Delivery::default());
        board
    }

    #[test]
    fn a_tail_loss_probe_goes_to_the_last_segment_that_has_not_arrived() {
        assert_eq!(with_the_last_sacked().last_unsacked(), Some(1));
        assert_eq!(Scoreboard::new().last_unsacked(), None);
    }

    #[test]
    fn counts_stay_balanced_when_a_probe_is_overtaken() {
        let mut board = with_the_last_sacked();
        let last = board.last_unsacked().expect("two have not arrived");
        board.send_again(last, &departure(Time::from_millis(10)));
        let view = RackView {
            now: Time::from_millis(500),
            sent_at: Time::from_millis(20),
            sequence: 2,
            patience: Span::from_millis(100),
        };
        assert_eq!(board.find_losses(&view).lost, 2);
        assert_eq!((board.outstanding(), board.sacked, board.in_flight()), (3, 1, 0));
    }

    #[test]
    fn a_timeout_keeps_segments_younger_than_a_round_trip_in_flight() {
        let mut board = Scoreboard::new();
        for sent_ms in [0, 0, 0, 0, 450, 450] {
            board.send_new(1_000, &departure(Time::from_millis(sent_ms)));
        }
        let blocks = [SackBlock { start: 1, end: 2 }];
        board.sack(0, &blocks, &mut Delivery::default());
        // Segment 0 is lost, sent again and lost again; 2 and 3 are only late.
        board.mark_lost(0);
        board.send_again(0, &departure(Time::from_millis(400)));
        let view = RackView {
            now: Time::from_millis(500),
            sent_at: Time::ZERO,
            sequence: 1,
            patience: Span::from_millis(200),
        };
        board.mark_overdue(&view);
        assert_eq!(board.in_flight(), 2, "4 and 5");
        let mut again = Vec::new();
        while let Some(sequence) = board.next_lost() {
            board.send_again(sequence, &departure(Time::from_millis(500)));
            again.push(sequence);
        }
        assert_eq!(again, [0, 2, 3]);
    }
}
