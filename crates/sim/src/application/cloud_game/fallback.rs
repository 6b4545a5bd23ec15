//! Detection of a classic AQM by the queuing delay of marked packets.
//!
//! RFC 9331 section 4.3 requires a scalable sender to behave like Reno behind a classic ECN AQM,
//! because the queue gives equal marks to classic flows, which halve their window for each. An L4S
//! queue marks within a millisecond or two; a classic one marks packets that have waited in a
//! standing queue. Briscoe and Ahmed ("TCP Prague Fall-back on Detection of a Classic ECN AQM",
//! 2019) distinguish them by the depth and the variation of the round trip while marks arrive. This
//! detector uses only the depth, of one-way delays, which the receiver of a video knows, so that a
//! full queue in the reverse direction is not mistaken for one in the direction of the marks.
//!
//! Each virtual round trip with marks is a vote: classic if the smallest delay of its marked
//! packets exceeds the shortest delay of the session by more than [`DEEP`]. The sender becomes
//! classic at ten more votes for classic than against, and scalable again at ten more votes
//! against.
//!
//! Limits: jitter behind the queue and a route that becomes longer look like a classic queue, which
//! lowers only the rate of the video; so does an L4S queue below about 7 Mbit/s, where two packets
//! take longer than [`DEEP`]. A classic AQM that marks below [`DEEP`] looks like an L4S queue.

use underload_aqm::time::{Span, Time};

pub(super) struct Fallback {
    /// Votes for a classic queue minus those against, bounded by [`MOST_VOTES`].
    votes: i32,
    pub(super) is_classic: bool,
    voted: Option<Time>,
}

impl Fallback {
    pub(super) const fn new() -> Self {
        Self { votes: 0, is_classic: false, voted: None }
    }

    /// Handles a report of marked packets, the quickest of which waited for `depth`.
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
/// 0.5 ms (DOCSIS) or 1 ms (RFC 9332) on; a DOCSIS queue of 10 Mbit/s from two packets on, 3.2 ms.
const DEEP: Span = Span::from_micros(4_500);
/// Prague's virtual round trip, the minimum time between reductions.
const VIRTUAL_RTT: Span = Span::from_millis(25);
/// A quarter of a second at one vote per 25 ms, longer than a flow's start disturbs an L4S queue.
const MOST_VOTES: i32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the state after `rounds` votes for each queue depth in microseconds, one vote every
    /// 25 ms.
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
    fn ten_rounds_of_deep_marks_select_the_classic_response_and_twenty_others_revert_it() {
        assert!(!after(&[(5_000, 9)]).is_classic);
        assert!(after(&[(5_000, 10)]).is_classic);
        assert!(after(&[(5_000, 500), (1_000, 19)]).is_classic, "from ten down to minus nine");
        assert!(!after(&[(5_000, 500), (1_000, 20)]).is_classic);
        assert!(!after(&[(4_500, 500)]).is_classic, "an equal depth is not a deep queue");
        assert!(after(&[(4_501, 10)]).is_classic);
    }

    #[test]
    fn several_reports_of_one_round_trip_count_as_one_vote() {
        let mut fallback = Fallback::new();
        for micros in 0..100 {
            let now = Time::from_secs(1) + Span::from_micros(200 * micros);
            fallback.on_marks(now, Span::from_millis(20));
        }
        assert_eq!(fallback.votes, 1);
    }
}
