//! Checks every call of a queue against a model that knows only packets.

use std::collections::BTreeMap;

use super::{HOSTS, Order, Subject};
use underload_aqm::packet::{Dscp, Ecn, Meta, Packet};
use underload_aqm::qdisc::{
    Admit, Backlog, BoxedQdisc, Count, Dequeue, DropReason, MarkReason, Observer, Stats,
};
use underload_aqm::time::Time;

/// A queue and the packets that it must contain.
pub struct Supervised {
    queue: BoxedQdisc<u32>,
    books: Books,
    limit: Option<Backlog>,
    may_mark: bool,
    next_id: u32,
    order: Order,
    /// The packet that left last, by flow and, for dual queues, side.
    last_sent: BTreeMap<(u32, bool), u32>,
}

/// The calls of the observer, each of which is checked.
struct Books {
    stored: BTreeMap<u32, Stored>,
    /// The sum of `stored`.
    backlog: Backlog,
    stats: Stats,
    phase: Phase,
    /// Packets dropped in the current call.
    dropped_now: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Stored {
    meta: Meta,
    is_marked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Enqueue,
    Dequeue,
}

impl Books {
    /// Removes a packet that leaves. Only its ECN field may have changed, and only by a mark.
    fn release(&mut self, packet: &Packet<u32>) -> Stored {
        let id = packet.payload;
        let stored = self.stored.remove(&id);
        let stored = stored.unwrap_or_else(|| panic!("packet {id} is not stored"));
        self.backlog.remove(stored.meta.len);
        let meta = &packet.meta;
        let ecn = if stored.is_marked { Ecn::Ce } else { stored.meta.ecn };
        assert_eq!(meta.ecn, ecn, "packet {id}: ECN, marked: {}", stored.is_marked);
        assert_eq!(
            (meta.len, meta.flow, meta.dscp, meta.src, meta.dst),
            (stored.meta.len, stored.meta.flow, stored.meta.dscp, stored.meta.src, stored.meta.dst),
            "packet {id}: a field other than ECN changed"
        );
        stored
    }
}

impl Observer<u32> for Books {
    fn dropped(&mut self, _now: Time, packet: Packet<u32>, reason: DropReason) {
        self.release(&packet);
        assert_eq!(reason.at_enqueue(), self.phase == Phase::Enqueue, "{reason:?}");
        match self.phase {
            Phase::Enqueue => self.stats.dropped_enqueue.add(packet.meta.len),
            Phase::Dequeue => self.stats.dropped_dequeue.add(packet.meta.len),
        }
        self.dropped_now.push(packet.payload);
    }

    fn marked(&mut self, _now: Time, packet: &Packet<u32>, _reason: MarkReason) {
        let id = packet.payload;
        let stored = self.stored.get_mut(&id).unwrap_or_else(|| panic!("{id} is not stored"));
        assert!(matches!(stored.meta.ecn, Ecn::Ect0 | Ecn::Ect1), "only ECT may be marked");
        assert!(!stored.is_marked, "packet {id} is marked twice");
        assert_eq!(packet.meta.ecn, Ecn::Ce, "packet {id} is reported as marked, but is not CE");
        stored.is_marked = true;
        self.stats.marked += 1;
    }
}

impl Supervised {
    pub fn new(subject: &Subject, seed: u64) -> Self {
        Self {
            queue: subject.build(seed),
            books: Books {
                stored: BTreeMap::new(),
                backlog: Backlog::default(),
                stats: Stats::default(),
                phase: Phase::Enqueue,
                dropped_now: Vec::new(),
            },
            limit: subject.limit,
            may_mark: subject.may_mark,
            next_id: 0,
            order: subject.order,
            last_sent: BTreeMap::new(),
        }
    }

    /// Offers a packet of `flow`. Its DSCP follows from the flow.
    pub fn enqueue(&mut self, now: Time, flow: u32, len: u32, ecn: Ecn) -> Admit {
        let id = self.next_id;
        self.next_id += 1;
        let mut meta = Meta::new(len, flow);
        meta.ecn = ecn;
        meta.dst = flow % HOSTS;
        meta.dscp = [0, 45, 46, 34, 8].map(Dscp::new)[flow as usize % 5].expect("a codepoint");
        self.books.phase = Phase::Enqueue;
        self.books.dropped_now.clear();
        self.books.stats.offered.add(len);
        self.books.backlog.add(len);
        self.books.stored.insert(id, Stored { meta, is_marked: false });
        let admit = self.queue.enqueue(now, Packet { meta, payload: id }, &mut self.books);
        let was_dropped = self.books.dropped_now.contains(&id);
        assert_eq!(admit == Admit::Refused, was_dropped, "packet {id}: {admit:?}");
        if let Some(stored) = self.books.stored.get_mut(&id) {
            stored.meta.arrived = now;
        }
        self.balance();
        admit
    }

    /// Dequeues a packet; returns its identifier and whether it is CE.
    pub fn dequeue(&mut self, now: Time) -> Option<(u32, Ecn)> {
        self.books.phase = Phase::Dequeue;
        self.books.dropped_now.clear();
        let sent = match self.queue.dequeue(now, &mut self.books) {
            Dequeue::Packet(packet) => {
                let stored = self.books.release(&packet);
                assert_eq!(packet.meta.arrived, stored.meta.arrived, "stamped by the queue");
                self.books.stats.sent.add(packet.meta.len);
                self.check_order(&packet.meta, stored.meta.ecn, packet.payload);
                Some((packet.payload, packet.meta.ecn))
            }
            Dequeue::Empty => {
                assert!(self.books.stored.is_empty(), "Empty, but {:?}", self.queue.backlog());
                None
            }
            Dequeue::NotBefore(time) => {
                assert!(time > now, "NotBefore names {time:?}, asked at {now:?}");
                assert!(!self.books.stored.is_empty(), "shapes an empty queue");
                None
            }
        };
        self.balance();
        sent
    }

    /// Checks that the packets of one flow leave in the order in which they arrived.
    fn check_order(&mut self, meta: &Meta, ecn: Ecn, id: u32) {
        let side = match self.order {
            Order::Flow => false,
            Order::FlowAndScalability => matches!(ecn, Ecn::Ect1 | Ecn::Ce),
            Order::None => return,
        };
        let last = self.last_sent.insert((meta.flow, side), id);
        assert!(last < Some(id), "flow {} is reordered", meta.flow);
    }

    /// Returns the backlog that the queue reports.
    pub fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    /// Returns the counters that the queue reports.
    pub fn stats(&self) -> Stats {
        self.queue.stats()
    }

    /// Compares the queue's totals with those of the model, so both only grow.
    fn balance(&self) {
        let backlog = self.books.backlog;
        assert_eq!(self.queue.backlog(), backlog, "backlog");
        let stats = self.queue.stats();
        // The observer receives no event when an AQM sleeps.
        let told = Stats { slept: stats.slept, ..self.books.stats };
        assert_eq!(stats, told, "counters equal the events that the observer received");
        assert!(stats.slept <= stats.offered.packets, "the AQM passed more than was offered");
        let left = [stats.sent, stats.dropped_enqueue, stats.dropped_dequeue];
        let left = left.iter().fold(Count::default(), |sum, count| Count {
            packets: sum.packets + count.packets,
            bytes: sum.bytes + count.bytes,
        });
        assert_eq!(stats.offered.packets, left.packets + u64::from(backlog.packets));
        assert_eq!(stats.offered.bytes, left.bytes + backlog.bytes);
        assert!(self.may_mark || stats.marked == 0, "marks although ECN is off");
        if let Some(limit) = self.limit {
            let within = backlog.packets <= limit.packets && backlog.bytes <= limit.bytes;
            assert!(within, "{backlog:?} is beyond the limit");
        }
    }
}
