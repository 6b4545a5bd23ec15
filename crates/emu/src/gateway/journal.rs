//! Events of packets, passed to a log without delaying the packets.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use underload_aqm::time::{Span, Time};

/// An event of a packet. `bytes` is the length of the IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// The packet arrived at the queue.
    Arrival { bytes: u32 },
    /// The link has sent the packet, `waited` after it was enqueued.
    Departure { bytes: u32, waited: Span },
    /// The packet was dropped, by the queue or beside it.
    Drop { bytes: u32 },
}

pub type Events = Vec<(Time, Event)>;

/// The sender of events, which never waits. Events that the receiver is too slow for are counted.
#[derive(Debug)]
pub struct Journal {
    batch: Events,
    sender: SyncSender<Events>,
    lost: u64,
}

const BATCH: usize = 4096;
/// Maximum number of batches that wait for the log: 16 MiB.
const BATCHES_MAX: usize = 128;

impl Journal {
    /// A journal and the receiver of its batches. Batches may be out of order, because a link that
    /// is polled late reports events late.
    pub fn new() -> (Self, Receiver<Events>) {
        let (sender, receiver) = sync_channel(BATCHES_MAX);
        (Self { batch: Vec::with_capacity(BATCH), sender, lost: 0 }, receiver)
    }

    pub fn write(&mut self, time: Time, event: Event) {
        self.batch.push((time, event));
        if self.batch.len() >= BATCH {
            self.flush();
        }
    }

    /// Sends the present batch.
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

    /// Sends the rest and returns the number of lost events.
    pub fn finish(mut self) -> u64 {
        self.flush();
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_without_a_reader_are_counted_and_do_not_block() {
        let (mut journal, receiver) = Journal::new();
        for n in 0..(BATCHES_MAX + 2) * BATCH {
            journal.write(Time::from_nanos(n as u64), Event::Arrival { bytes: 1 });
        }
        assert_eq!(journal.finish(), 2 * BATCH as u64);
        assert_eq!(receiver.iter().flatten().count(), BATCHES_MAX * BATCH);
    }
}
