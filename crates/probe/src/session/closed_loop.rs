//! The request-response probe: one packet in flight, the next on the answer to the one before.
//!
//! This is how netperf's UDP_RR works, which the Comcast study used. Its samples come fast while
//! the path is idle and slowly while it is loaded, so its percentiles hide load: a named second
//! view.

use super::matching::{ReplyRecord, SentRecord};

/// The next action of a closed-loop requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedLoopStep {
    /// Send the packet with this sequence number now, then tell [`ClosedLoop::sent`].
    Send(u32),
    /// Wait for an answer, at most until this time.
    Wait {
        /// When the request in flight counts as lost, ns.
        until_ns: u64,
    },
    /// Past the end.
    Done,
}

/// A request-response session. Unlike netperf's, which hangs on the first loss, it gives a packet
/// up after a time limit and sends the next.
#[derive(Clone, Debug)]
pub struct ClosedLoop {
    end_ns: u64,
    timeout_ns: u64,
    in_flight: Option<SentRecord>,
    /// When the last `Send` was decided, which is when that packet should have left.
    decided_ns: u64,
    next_sequence: u32,
    sent: Vec<SentRecord>,
    replies: Vec<ReplyRecord>,
}

impl ClosedLoop {
    /// Requests at most: bounds the memory of a session over a path without delay.
    pub const REQUESTS_MAX: usize = 4_000_000;

    /// A session that sends its last request before `end_ns` and gives each up after `timeout_ns`.
    pub fn new(end_ns: u64, timeout_ns: u64) -> Self {
        Self {
            end_ns,
            timeout_ns,
            in_flight: None,
            decided_ns: 0,
            next_sequence: 0,
            sent: Vec::new(),
            replies: Vec::new(),
        }
    }

    /// Moves the end.
    pub fn end_at(&mut self, end_ns: u64) {
        self.end_ns = end_ns;
    }

    /// The action due at `now_ns`.
    pub fn step(&mut self, now_ns: u64) -> ClosedLoopStep {
        if let Some(packet) = self.in_flight {
            let until_ns = packet.sent_ns.saturating_add(self.timeout_ns);
            if now_ns < until_ns {
                return ClosedLoopStep::Wait { until_ns };
            }
            self.in_flight = None;
        }
        if now_ns >= self.end_ns || self.sent.len() >= Self::REQUESTS_MAX {
            return ClosedLoopStep::Done;
        }
        self.decided_ns = now_ns;
        ClosedLoopStep::Send(self.next_sequence)
    }

    /// The packet that [`ClosedLoop::step`] asked for left at `sent_ns`.
    pub fn sent(&mut self, sent_ns: u64) {
        let (sequence, scheduled_ns) = (self.next_sequence, self.decided_ns);
        let record = SentRecord { class: 0, sequence, scheduled_ns, sent_ns };
        self.next_sequence = self.next_sequence.wrapping_add(1);
        self.in_flight = Some(record);
        self.sent.push(record);
    }

    /// An answer arrived. Only the answer to the packet in flight lets the next one go.
    pub fn received(&mut self, reply: ReplyRecord) {
        if self.in_flight.is_some_and(|packet| packet.sequence == reply.sequence) {
            self.in_flight = None;
        }
        if self.replies.len() < Self::REQUESTS_MAX {
            self.replies.push(reply);
        }
    }

    /// Everything sent and everything received.
    pub fn into_records(self) -> (Vec<SentRecord>, Vec<ReplyRecord>) {
        (self.sent, self.replies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_request_waits_for_the_answer_or_the_time_limit() {
        let mut session = ClosedLoop::new(1_000, 100);
        assert_eq!(session.step(0), ClosedLoopStep::Send(0));
        session.sent(3);
        assert_eq!(session.step(10), ClosedLoopStep::Wait { until_ns: 103 });
        session.received(ReplyRecord { sequence: 0, received_ns: 20, ..ReplyRecord::default() });
        assert_eq!(session.step(20), ClosedLoopStep::Send(1));
        session.sent(21);
        // A second answer to 0 does not release 1.
        session.received(ReplyRecord { sequence: 0, received_ns: 30, ..ReplyRecord::default() });
        assert_eq!(session.step(30), ClosedLoopStep::Wait { until_ns: 121 });
        assert_eq!(session.step(121), ClosedLoopStep::Send(2));
        session.sent(990);
        assert_eq!(session.step(1_000), ClosedLoopStep::Wait { until_ns: 1_090 });
        assert_eq!(session.step(1_090), ClosedLoopStep::Done);
        let (sent, replies) = session.into_records();
        assert_eq!((sent.len(), replies.len()), (3, 2));
        // Decided at 121, held up until 990: the phase is the decision's.
        assert_eq!((sent[2].scheduled_ns, sent[2].sent_ns), (121, 990));
    }
}
