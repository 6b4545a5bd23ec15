//! Whether the marks come from a classic AQM, by how long marked packets have waited.
//!
//! RFC 9331 section 4.3 asks a scalable sender to behave like Reno where a classic ECN AQM marks,
//! because one queue gives the same marks to a classic flow, which answers each of them by half.
//! An L4S queue marks within a millisecond or two; a classic one lets a queue stand and marks what
//! has waited in it. Briscoe and Ahmed ("TCP Prague Fall-back on Detection of a Classic ECN AQM",
//! 2019) tell them apart by the depth and the variation of the round trip while marks come. Here
//! the depth alone is taken, of one-way delays, which the receiver of a video knows, so that a full
//! queue on the way back is not taken for one on the way of the marks.
//!
//! Each virtual round trip with marks is a vote: classic if even the marked packet that waited
//! least waited longer than [`DEEP`] above the shortest delay of the session. The sender is classic
//! once ten more have said so than not, and scalable again after ten more of the other kind.
//!
//! Limits: jitter behind the queue, and a route that becomes longer, look like a classic queue,
//! which costs the video rate and nobody else; an L4S queue below some 7 Mbit/s, where two packets
//! take longer than [`DEEP`], too; a classic AQM that marks below [`DEEP`] looks like an L4S one.

use underload_aqm::time::{Span, Time};

/// The vote so far.
#[derive(Debug)]
pub(super) struct Fallback {
    /// Votes for a classic queue less those against, bounded by [`MOST_VOTES`].
    votes: i32,
    is_classic: bool,
    voted: Option<Time>,
}

impl Fallback {
    pub(super) const fn new() -> Self {
        Self { votes: 0, is_classic: false, voted: None }
    }

    /// Whether the sender is to behave like a classic one.
    pub(super) const fn is_classic(&self) -> bool {
        self.is_classic
    }

    /// Takes in that marked packets were reported, the quickest of which waited for `depth`.
    pub(super) fn on_marks(&mut self, now: Time, depth: Span) {
        if self.voted.is_some_and(|voted| now.since(voted) < VIRTUAL_RTT) {
            return;
        }
        self.voted = Some(now);
        let vote = if depth > DEEP { 1 } else { -1 };
        self.votes = (self.votes + vote).clamp(-MOST_VOTES, MOST_VOTES);
        if self.votes.abs() == MOST_VOTES {
            self.is_classic = self.votes > 0;
        }
    }
}

/// Just below the lowest target of the classic AQMs in use (5 ms, `CoDel`). L4S queues mark from
/// 0.5 (DOCSIS) or 1 ms (RFC 9332) on, but a DOCSIS one of 10 Mbit/s from two packets on, 3.2 ms.
const DEEP: Span = Span::from_micros(4_500);
/// Prague's: its reductions come no more often.
const VIRTUAL_RTT: Span = Span::from_millis(25);
/// At one vote per 25 ms a quarter of a second, longer than a flow's start disturbs an L4S queue.
const MOST_VOTES: i32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// The state after a vote every 25 ms on marks at each of these depths.
    fn after(depths: &[(u64, u64)]) -> Fallback {
        let mut fallback = Fallback::new();
        let mut now = Time::from_secs(1);
        for &(depth_us, rounds) in depths {
            for _ in 0..rounds {
                fallback.on_marks(now, Span::from_micros(depth_us));
                now += VIRTUAL_RTT;
            }
        }
        fallback
    }

    #[test]
    fn ten_rounds_of_deep_marks_make_a_classic_sender_and_ten_more_than_that_unmake_it() {
        assert!(!after(&[(5_000, 9)]).is_classic());
        assert!(after(&[(5_000, 10)]).is_classic());
        assert!(after(&[(5_000, 500), (1_000, 19)]).is_classic(), "from ten down to minus nine");
        assert!(!after(&[(5_000, 500), (1_000, 20)]).is_classic());
        assert!(!after(&[(4_500, 500)]).is_classic(), "what is not deeper is not deep");
        assert!(after(&[(4_501, 10)]).is_classic());
    }

    #[test]
    fn several_reports_of_one_round_are_one_vote() {
        let mut fallback = Fallback::new();
        for micros in 0..100 {
            let now = Time::from_secs(1) + Span::from_micros(200 * micros);
            fallback.on_marks(now, Span::from_millis(20));
        }
        assert_eq!(fallback.votes, 1);
    }
}
