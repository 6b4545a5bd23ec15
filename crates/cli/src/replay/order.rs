//! Sorts packets by time. Captures have small inversions, because packets come from several
//! processors, queues of a network card, or interfaces.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use underload_aqm::time::{Span, Time};
use underload_terminal::exit::refuse;

use crate::replay::arrival::{Arrival, Arrivals};

pub const WINDOW: Span = Span::from_secs(1);
/// Largest number of buffered packets: 32 MiB.
pub const WINDOW_PACKETS: usize = 1 << 19;

/// Sorts within [`WINDOW`] and [`WINDOW_PACKETS`]; packets of equal time keep their order. A larger
/// inversion ends the stream with an error.
pub fn in_order(arrivals: Arrivals) -> Arrivals {
    let mut sorter =
        Sorter { arrivals, waiting: BinaryHeap::new(), newest: Time::ZERO, emitted: None };
    let (mut is_ended, mut failure) = (false, None);
    Box::new(std::iter::from_fn(move || {
        while !is_ended && !sorter.is_ready() {
            match sorter.arrivals.next() {
                None => is_ended = true,
                Some(arrival) => {
                    failure = arrival.and_then(|arrival| sorter.push(arrival)).err();
                    is_ended = failure.is_some();
                }
            }
        }
        // The packets before a bad one come first.
        match sorter.pop() {
            Some(arrival) => Some(Ok(arrival)),
            None => failure.take().map(Err),
        }
    }))
}

/// Makes the times relative to the first packet's.
pub fn from_zero(arrivals: Arrivals) -> Arrivals {
    let mut first = None;
    Box::new(arrivals.map(move |arrival| {
        let arrival = arrival?;
        let first = *first.get_or_insert(arrival.time);
        Ok(Arrival { time: Time::ZERO + arrival.time.since(first), ..arrival })
    }))
}

struct Sorter {
    arrivals: Arrivals,
    waiting: BinaryHeap<Reverse<Waiting>>,
    newest: Time,
    /// Time of the last returned packet.
    emitted: Option<Time>,
}

/// An arrival, ordered by time and then by its position in the input.
struct Waiting(Arrival);

impl Sorter {
    /// Whether the first packet can be returned.
    fn is_ready(&self) -> bool {
        self.waiting.len() >= WINDOW_PACKETS
            || self
                .waiting
                .peek()
                .is_some_and(|Reverse(Waiting(first))| self.newest.since(first.time) >= WINDOW)
    }

    fn push(&mut self, arrival: Arrival) -> anyhow::Result<()> {
        if let Some(emitted) = self.emitted.filter(|emitted| arrival.time < *emitted) {
            refuse!(
                "packet {}: it is {} earlier than a packet that was replayed already; packets may \
                 be {WINDOW} or {WINDOW_PACKETS} packets out of order: sort the input by time (a \
                 capture: `reordercap`)",
                arrival.id + 1,
                emitted.since(arrival.time)
            );
        }
        self.newest = self.newest.max(arrival.time);
        self.waiting.push(Reverse(Waiting(arrival)));
        Ok(())
    }

    fn pop(&mut self) -> Option<Arrival> {
        let Reverse(Waiting(arrival)) = self.waiting.pop()?;
        self.emitted = Some(arrival.time);
        Some(arrival)
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.0.time, self.0.id).cmp(&(other.0.time, other.0.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use underload_aqm::packet::Meta;

    /// The ids and times that come out, and the error if any.
    fn sorted(times: impl Iterator<Item = Time> + 'static) -> (Vec<(u64, Time)>, Option<String>) {
        let arrivals = (0..).zip(times);
        let arrivals = arrivals.map(|(id, time)| {
            let meta = Meta::new(100, 0);
            Ok(Arrival { id, time, meta, is_wanted: true })
        });
        let (mut out, mut error) = (Vec::new(), None);
        for arrival in in_order(Box::new(arrivals)) {
            match arrival {
                Ok(arrival) => out.push((arrival.id, arrival.time)),
                Err(found) => error = Some(format!("{found:#}")),
            }
        }
        (out, error)
    }

    #[test]
    fn small_inversions_are_put_right_and_equal_times_keep_their_order() {
        let times = [5, 3, 4, 4, 900, 899].map(Time::from_millis);
        let (out, error) = sorted(times.into_iter());
        let ids: Vec<u64> = out.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [1, 2, 3, 0, 5, 4]);
        assert!(out.is_sorted_by_key(|(_, time)| *time));
        assert_eq!(error, None);
    }

    #[test]
    fn a_packet_may_be_as_late_as_the_window_is_long() {
        let late = |ms| [0, 2_000, 3_000, ms, 4_000].map(Time::from_millis);
        let (out, error) = sorted(late(2_000).into_iter());
        assert_eq!((out.len(), error), (5, None));
        // The packet of 2,000 ms is returned when that of 3,000 ms arrives.
        let (out, error) = sorted(late(1_999).into_iter());
        let error = error.expect("too late");
        assert!(error.contains("packet 4: it is 1ms earlier"), "{error}");
        assert_eq!(out.len(), 3, "the packets before the bad one come first");
    }

    #[test]
    fn the_number_of_packets_that_wait_is_bounded() {
        // A nanosecond apart: the time window alone would buffer all of them.
        let count = WINDOW_PACKETS as u64 + 10;
        let times = (1..=count).map(Time::from_nanos).chain([Time::ZERO]);
        let (out, error) = sorted(times);
        assert_eq!(out.len() as u64, count);
        assert!(error.is_some_and(|error| error.contains("out of order")));
    }
}
