//! Every packet's arrival, departure and drop, on its way to a file without holding packets up.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use underload_aqm::time::{Span, Time};

/// Something that happened to a packet. Bytes are those of the IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The packet arrived at the queue.
    Arrival {
        /// Length of the IP packet.
        bytes: u32,
    },
    /// The link has sent it.
    Departure {
        /// Length of the IP packet.
        bytes: u32,
        /// Since it was enqueued, its transmission included.
        waited: Span,
    },
    /// The packet was dropped.
    Drop {
        /// Length of the IP packet.
        bytes: u32,
    },
}

/// A batch of events, each with its instant.
pub type Events = Vec<(Time, Event)>;

/// The data path's end: it never waits. What the other end does not take in time is counted.
#[derive(Debug)]
pub struct Journal {
    batch: Events,
    sender: SyncSender<Events>,
    lost: u64,
}

/// Events in a batch.
const BATCH: usize = 4096;
/// Batches under way at most: 16 MiB.
const BATCHES_MAX: usize = 128;

impl Journal {
    /// A journal, and where its batches arrive. Batches need not be in order of time: a link that
    /// is looked at late tells late what happened in between.
    pub fn new() -> (Self, Receiver<Events>) {
        let (sender, receiver) = sync_channel(BATCHES_MAX);
        (Self { batch: Vec::with_capacity(BATCH), sender, lost: 0 }, receiver)
    }

    /// Adds an event.
    pub fn write(&mut self, time: Time, event: Event) {
        self.batch.push((time, event));
        if self.batch.len() >= BATCH {
            self.flush();
        }
    }

    /// Sends what there is.
    pub fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        if let Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) =
            self.sender.try_send(batch)
        {
            self.lost += batch.len() as u64;
        }
    }

    /// Sends the rest, and tells how many events were lost.
    pub fn finish(mut self) -> u64 {
        self.flush();
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_takes_is_counted_not_waited_for() {
        let (mut journal, receiver) = Journal::new();
        for n in 0..(BATCHES_MAX + 2) * BATCH {
            journal.write(Time::from_nanos(n as u64), Event::Arrival { bytes: 1 });
        }
        assert_eq!(journal.finish(), 2 * BATCH as u64);
        assert_eq!(receiver.iter().flatten().count(), BATCHES_MAX * BATCH);
    }
}
