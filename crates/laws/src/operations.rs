//! Sequences of operations on a queue, each checked by the ledger.

use super::{Subject, Supervised};
use underload_aqm::packet::Ecn;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

#[derive(Clone, Copy, Debug)]
pub enum Operation {
    Enqueue {
        flow: u32,
        len: u32,
        /// The bits of the ECN field.
        ecn: u8,
    },
    Dequeue,
    Wait(Span),
}

/// The starts of sequences: zero, just before 32 bits of 1024 ns wrap, and half a year later.
pub const STARTS: [Time; 3] =
    [Time::ZERO, Time::from_nanos((1 << 42) - 3_000_000), Time::from_secs(1 << 24)];

impl Operation {
    /// Returns a random operation: full packets, small packets, super-packets of 64 kB, and the
    /// empty and huge packets of a hostile sender; waits of up to 3 ms, 60 ms or 20 s, or beyond
    /// the wrap of 32 bits of microseconds (72 min) and of 1024 ns (73 min).
    pub fn random(rng: &mut Rng) -> Self {
        match rng.below(16) {
            0..8 => Self::Enqueue {
                flow: rng.below(12),
                len: match rng.below(14) {
                    0..8 => 1_500,
                    8..12 => 40 + rng.below(1_460),
                    12 => 65_535,
                    _ => [0, 1, 40_000_000][rng.below(3) as usize],
                },
                ecn: rng.below(4) as u8,
            },
            8..12 => Self::Dequeue,
            _ => Self::Wait(match rng.below(11) {
                0..6 => Span::from_nanos(u64::from(rng.below(3_000_000))),
                6..9 => Span::from_millis(u64::from(rng.below(60))),
                9 => Span::from_secs(u64::from(rng.below(20))),
                _ => Span::from_secs(4_290 + u64::from(rng.below(110))),
            }),
        }
    }
}

/// Performs `operations` from `start` on, then drains the queue. Panics if a law is broken.
pub fn perform(subject: &Subject, start: Time, operations: &[Operation]) {
    let mut queue = Supervised::new(subject, 7);
    let mut now = start;
    for &operation in operations {
        match operation {
            Operation::Enqueue { flow, len, ecn } => {
                queue.enqueue(now, flow, len, Ecn::from_bits(ecn));
            }
            Operation::Dequeue => {
                queue.dequeue(now);
            }
            Operation::Wait(span) => now += span,
        }
    }
    // Every remaining packet leaves or is dropped within a bounded time.
    for _ in 0..10_000 {
        if queue.backlog().is_empty() {
            break;
        }
        queue.dequeue(now);
        now += Span::from_millis(1);
    }
    assert!(queue.backlog().is_empty(), "{}: not drained after 10,000 ms", subject.name());
    let drained = queue.stats();
    assert_eq!((queue.dequeue(now), queue.dequeue(now)), (None, None));
    assert_eq!(queue.stats(), drained, "asking an empty queue counts nothing");
}
