//! Packets in order of time. Captures hold small inversions: two processors, two queues of a card
//! or two interfaces hand packets over a moment late.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use anyhow::bail;
use underload_aqm::time::{Span, Time};
use underload_terminal::exit::OrBadInput;

use crate::replay::arrival::{Arrival, Arrivals};

/// Longest time by which a packet of the input may be late.
pub const WINDOW: Span = Span::from_secs(1);
/// Packets held at once to wait for late ones, at most: 32 MiB.
pub const WINDOW_PACKETS: usize = 1 << 19;

/// Sorts within [`WINDOW`] and [`WINDOW_PACKETS`]; packets of one instant keep their order. A
/// packet later than that ends the stream with an error.
pub fn in_order(arrivals: Arrivals) -> Arrivals {
    let mut sorter =
        Sorter { arrivals, waiting: BinaryHeap::new(), newest: Time::ZERO, emitted: None };
    let mut ended = None;
    Box::new(std::iter::from_fn(move || {
        while ended.is_none() && !sorter.is_ready() {
            match sorter.arrivals.next() {
                None => ended = Some(Ok(())),
                Some(arrival) => match arrival.and_then(|arrival| sorter.hold(arrival)) {
                    Ok(()) => {}
                    Err(error) => ended = Some(Err(error)),
                },
            }
        }
        if let Some(arrival) = sorter.release() {
            return Some(Ok(arrival));
        }
        // The packets that stand before a bad one have come first.
        match ended.replace(Ok(())) {
            Some(Err(error)) => Some(Err(error)),
            _ => None,
        }
    }))
}

/// The same with times that count from the first packet's.
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
    /// Time of the packet that went last.
    emitted: Option<Time>,
}

/// An arrival, ordered by time and then by its place in the input.
struct Waiting(Arrival);

impl Sorter {
    /// Whether the first packet need not wait any longer.
    fn is_ready(&self) -> bool {
        self.waiting.len() >= WINDOW_PACKETS
            || self
                .waiting
                .peek()
                .is_some_and(|Reverse(Waiting(first))| self.newest.since(first.time) >= WINDOW)
    }

    fn hold(&mut self, arrival: Arrival) -> anyhow::Result<()> {
        if let Some(emitted) = self.emitted.filter(|emitted| arrival.time < *emitted) {
            let (number, late) = (arrival.id + 1, emitted.since(arrival.time));
            return too_late(number, late).or_bad_input();
        }
        self.newest = self.newest.max(arrival.time);
        self.waiting.push(Reverse(Waiting(arrival)));
        Ok(())
    }

    fn release(&mut self) -> Option<Arrival> {
        let Reverse(Waiting(arrival)) = self.waiting.pop()?;
        self.emitted = Some(arrival.time);
        Some(arrival)
    }
}

fn too_late(number: u64, late: Span) -> anyhow::Result<()> {
    bail!(
        "packet {number}: it comes {late} before a packet that was replayed already; packets may \
         stand {WINDOW} or {WINDOW_PACKETS} packets out of order: sort the input by time (a \
         capture: `reordercap`)"
    )
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
        // The packet of 2,000 ms went when that of 3,000 ms came.
        let (out, error) = sorted(late(1_999).into_iter());
        let error = error.expect("too late");
        assert!(error.contains("packet 4: it comes 1ms before"), "{error}");
        assert_eq!(out.len(), 3, "what stands before the bad packet comes out");
    }

    #[test]
    fn the_number_of_packets_that_wait_is_bounded() {
        // All within a nanosecond each: time alone would hold them all.
        let count = WINDOW_PACKETS as u64 + 10;
        let times = (1..=count).map(Time::from_nanos).chain([Time::ZERO]);
        let (out, error) = sorted(times);
        assert_eq!(out.len() as u64, count);
        assert!(error.is_some_and(|error| error.contains("out of order")));
    }
}
