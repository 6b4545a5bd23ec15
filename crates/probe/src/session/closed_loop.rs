//! The request-response probe: one packet in flight; the answer triggers the next packet.
//!
//! netperf's UDP_RR, which the Comcast study used, works like this. The probe sends often while the
//! path is idle and rarely while it is loaded, so its percentiles hide load. It is reported as a
//! separate, second view.

use super::matching::{ReplyRecord, SentRecord};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedLoopStep {
    /// Send the packet with this sequence number now, then call [`ClosedLoop::sent`].
    Send(u32),
    /// Wait for an answer, at most until the request in flight counts as lost.
    Wait {
        until_ns: u64,
    },
    Done,
}

/// A request-response session. netperf's hangs after the first loss; this one gives a packet up
/// after
/// `timeout_ns` and sends the next.
#[derive(Clone, Debug, Default)]
pub struct ClosedLoop {
    end_ns: u64,
    timeout_ns: u64,
    in_flight: Option<SentRecord>,
    /// When the last [`ClosedLoopStep::Send`] was returned, and its packet should have been sent.
    decided_ns: u64,
    next_sequence: u32,
    sent: Vec<SentRecord>,
    replies: Vec<ReplyRecord>,
}

impl ClosedLoop {
    /// Maximum number of requests: bounds the memory of a session over a path without delay.
    pub const REQUESTS_MAX: usize = 4_000_000;

    /// Returns a session that sends its last request before `end_ns` and gives each up after
    /// `timeout_ns`.
    pub fn new(end_ns: u64, timeout_ns: u64) -> Self {
        Self { end_ns, timeout_ns, ..Self::default() }
    }

    pub fn end_at(&mut self, end_ns: u64) {
        self.end_ns = end_ns;
    }

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

    /// Records that the packet of [`ClosedLoopStep::Send`] was sent at `sent_ns`.
    pub fn sent(&mut self, sent_ns: u64) {
        let (sequence, scheduled_ns) = (self.next_sequence, self.decided_ns);
        let record = SentRecord { class: 0, sequence, scheduled_ns, sent_ns };
        self.next_sequence = self.next_sequence.wrapping_add(1);
        self.in_flight = Some(record);
        self.sent.push(record);
    }

    /// Records an answer. Only the answer to the packet in flight allows the next one.
    pub fn received(&mut self, reply: ReplyRecord) {
        if self.in_flight.is_some_and(|packet| packet.sequence == reply.sequence) {
            self.in_flight = None;
        }
        if self.replies.len() < Self::REQUESTS_MAX {
            self.replies.push(reply);
        }
    }

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
        // The packet was decided at 121 and delayed until 990: the time of the decision determines
        // the phase.
        assert_eq!((sent[2].scheduled_ns, sent[2].sent_ns), (121, 990));
    }
}
