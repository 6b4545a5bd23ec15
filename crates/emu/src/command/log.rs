//! Logs of a link: per packet in Mahimahi's format, which its graph scripts read, and samples over
//! time.
//!
//! Mahimahi counts four bytes of TUN header in every packet, and so does its log. Its opportunities
//! (`#`) are what a link saturated with full packets would have carried, counted in the same way:
//! the same link model computes them, and they are summed up per millisecond. A link without a
//! rate, or faster than [`OPPORTUNITY_RATE_MAX`], has no opportunities.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Receiver;

use underload_aqm::link::{FlightOptions, Link, RateProcess};
use underload_aqm::packet::{Meta, Packet};
use underload_aqm::qdisc::{Admit, Backlog, Dequeue, Observer, Qdisc, Stats};
use underload_aqm::rate::Rate;
use underload_aqm::registry::LinkSetup;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

use crate::gateway::{Event, Events, GatewayReport};

const TUN_HEADER_BYTES: u32 = 4;
/// IP length of a full packet; the log adds the header to it as to every packet.
const OPPORTUNITY_BYTES: u32 = 1500;
/// The fastest link whose opportunities are logged: each is computed, and the log of a faster link
/// would fall behind its packets.
pub const OPPORTUNITY_RATE_MAX: Rate = Rate::from_megabits_per_second(100_000);
/// Departures are reported when transmission starts, up to this much ahead of their time.
const REORDER: Span = Span::from_secs(2);
/// Maximum number of events that wait to be ordered.
const REORDER_MAX: usize = 1 << 20;

/// Writes one direction's log until the journal ends, and returns the number of events. `rng` is
/// the stream of the running link, so that both have the same capacity.
///
/// Once `is_abandoned` is true, the rest is not written, and the last line reports that.
pub fn write_events(
    path: &Path,
    header: &str,
    link: &LinkSetup,
    rng: &Rng,
    journal: &Receiver<Events>,
    is_abandoned: &AtomicBool,
) -> io::Result<u64> {
    let mut log = Log {
        file: BufWriter::new(open_new(path)?),
        capacity: Capacity::new(link, rng),
        waiting: BinaryHeap::new(),
        written: 0,
        is_abandoned,
    };
    log.file.write_all(header.as_bytes())?;
    match log.write_journal(journal) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            writeln!(log.file, "{ABANDONED}")?;
        }
        outcome => outcome?,
    }
    log.file.flush()?;
    Ok(log.written)
}

/// Last line of a log that a signal cut short.
const ABANDONED: &str = "# cut short by a signal";

/// Creates a file; opens an existing pipe or device.
fn open_new(path: &Path) -> io::Result<File> {
    match File::create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !path.is_file() => {
            OpenOptions::new().write(true).open(path)
        }
        opened => opened,
    }
}

/// Returns the comments at the start of a log.
pub fn header(direction: &str, link: &str, queue: &str, path: &Path, command: &str) -> String {
    format!(
        "# mahimahi mm-link ({direction}) [{link}] > {}\n\
         # command line: {command}\n\
         # queue: {queue}\n\
         # init timestamp: 0\n\
         # base timestamp: 0\n",
        path.display()
    )
}

struct Log<'a> {
    file: BufWriter<File>,
    /// `None` if the link has no opportunities.
    capacity: Option<Capacity>,
    /// Events by time and number.
    waiting: BinaryHeap<Reverse<(Time, u64, Event)>>,
    written: u64,
    is_abandoned: &'a AtomicBool,
}

impl Log<'_> {
    fn write_journal(&mut self, journal: &Receiver<Events>) -> io::Result<()> {
        let mut newest = Time::ZERO;
        for (time, event) in journal.iter().flatten() {
            if matches!(event, Event::Arrival { .. }) {
                newest = newest.max(time);
            }
            let number = self.written + self.waiting.len() as u64;
            self.waiting.push(Reverse((time, number, event)));
            self.write_until(newest - REORDER)?;
        }
        self.write_until(Time::MAX)
    }

    fn write_until(&mut self, limit: Time) -> io::Result<()> {
        while let Some(Reverse((time, ..))) = self.waiting.peek() {
            if *time > limit && self.waiting.len() < REORDER_MAX {
                break;
            }
            let Some(Reverse((time, _, event))) = self.waiting.pop() else { break };
            if let Some(capacity) = &mut self.capacity {
                capacity.write_until(time, &mut self.file, self.is_abandoned)?;
            }
            stop_if(self.is_abandoned)?;
            write_event(&mut self.file, time, event)?;
            self.written += 1;
        }
        Ok(())
    }
}

fn stop_if(is_abandoned: &AtomicBool) -> io::Result<()> {
    if is_abandoned.load(Relaxed) { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
}

fn write_event(file: &mut impl Write, time: Time, event: Event) -> io::Result<()> {
    let ms = time.as_millis();
    match event {
        Event::Arrival { bytes } => writeln!(file, "{ms} + {}", bytes + TUN_HEADER_BYTES),
        Event::Departure { bytes, waited } => {
            let waited = waited.as_millis();
            writeln!(file, "{ms} - {} {waited}", bytes + TUN_HEADER_BYTES)
        }
        // Unlike Mahimahi's own logs, this one has drops at dequeue, too.
        Event::Drop { bytes } => writeln!(file, "{ms} d 1 {}", bytes + TUN_HEADER_BYTES),
    }
}

/// The times at which a link that is never idle finishes each opportunity.
struct Capacity {
    link: Link<()>,
    reached: Time,
    ms: u64,
    bytes: u64,
}

impl Capacity {
    /// `None` for a link without a rate, or faster than [`OPPORTUNITY_RATE_MAX`].
    fn new(link: &LinkSetup, rng: &Rng) -> Option<Self> {
        let is_too_fast = link.facts().rate.is_some_and(|rate| rate > OPPORTUNITY_RATE_MAX);
        if is_too_fast || matches!(link.rate, RateProcess::Unlimited) {
            return None;
        }
        let mut always = link.clone();
        always.delay = Span::ZERO;
        always.flight = FlightOptions::default();
        always.loss_q32 = 0;
        let mut link =
            always.build(Box::new(Saturated { overhead_bytes: link.overhead_bytes }), rng);
        link.send(Time::ZERO, opportunity(0), &mut ());
        Some(Self { link, reached: Time::ZERO, ms: 0, bytes: 0 })
    }

    fn write_until(
        &mut self,
        limit: Time,
        file: &mut impl Write,
        is_abandoned: &AtomicBool,
    ) -> io::Result<()> {
        // Advances in steps, so that opportunities do not accumulate during a long silence.
        while self.reached < limit {
            stop_if(is_abandoned)?;
            self.reached = limit.min(self.reached + Span::from_millis(10));
            while let Some((time, packet)) = self.link.poll(self.reached, &mut ()) {
                let ms = time.as_millis();
                if ms != self.ms {
                    self.flush(file)?;
                }
                self.ms = ms;
                self.bytes += u64::from(packet.meta.len + TUN_HEADER_BYTES);
            }
        }
        // A past millisecond gets no more opportunities.
        if self.ms < limit.as_millis() { self.flush(file) } else { Ok(()) }
    }

    fn flush(&mut self, file: &mut impl Write) -> io::Result<()> {
        match std::mem::take(&mut self.bytes) {
            0 => Ok(()),
            bytes => writeln!(file, "{} # {bytes}", self.ms),
        }
    }
}

/// A queue that always has a full packet to send.
struct Saturated {
    /// The overhead that the link adds on arrival and removes at the far end.
    overhead_bytes: u32,
}

fn opportunity(overhead_bytes: u32) -> Packet<()> {
    Packet { meta: Meta::new(OPPORTUNITY_BYTES + overhead_bytes, 0), payload: () }
}

impl Qdisc<()> for Saturated {
    fn enqueue(&mut self, _: Time, _: Packet<()>, _: &mut dyn Observer<()>) -> Admit {
        Admit::Queued
    }
    fn dequeue(&mut self, _: Time, _: &mut dyn Observer<()>) -> Dequeue<()> {
        Dequeue::Packet(opportunity(self.overhead_bytes))
    }
    fn backlog(&self) -> Backlog {
        Backlog { packets: 1, bytes: u64::from(OPPORTUNITY_BYTES) }
    }
    fn stats(&self) -> Stats {
        Stats::default()
    }
}

/// Writes the time series of both directions as CSV.
pub fn write_samples(path: &Path, report: &GatewayReport) -> io::Result<()> {
    let mut file = BufWriter::new(open_new(path)?);
    writeln!(
        file,
        "time_ns,direction,backlog_packets,backlog_bytes,sojourn_max_ns,sent_packets,sent_bytes,\
         dropped_packets,marked_packets"
    )?;
    for (direction, lane) in &report.lanes {
        for row in &lane.recording.curves.rows {
            writeln!(
                file,
                "{},{direction},{},{},{},{},{},{},{}",
                row.time.as_nanos(),
                row.backlog.packets,
                row.backlog.bytes,
                row.sojourn_max.as_nanos(),
                row.sent.packets,
                row.sent.bytes,
                row.drops,
                row.marks
            )?;
        }
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::Journal;

    #[test]
    fn a_log_reads_as_mahimahis_in_order_of_time() {
        let link = LinkSetup::parse("12mbit").expect("a link: 1500 bytes per millisecond");
        let (mut journal, receiver) = Journal::new();
        let at = Time::from_millis;
        journal.write(at(1), Event::Arrival { bytes: 1500 });
        // Reported when its transmission starts, before the arrival that precedes its end.
        journal.write(at(3), Event::Departure { bytes: 1500, waited: Span::from_millis(2) });
        journal.write(at(2), Event::Arrival { bytes: 100 });
        journal.write(at(2), Event::Drop { bytes: 100 });
        assert_eq!(journal.finish(), 0);
        let (events, text) = logged(&link, &receiver, false);
        assert_eq!(events, 4);
        let expected = "# base timestamp: 0\n1 + 1504\n1 # 1504\n2 + 104\n2 d 1 104\n\
                        2 # 1504\n3 - 1504 2\n";
        assert_eq!(text, expected);
    }

    /// Returns the number of events in a journal that has ended, and the log.
    fn logged(link: &LinkSetup, receiver: &Receiver<Events>, is_abandoned: bool) -> (u64, String) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("uplink.log");
        let header = "# base timestamp: 0\n";
        let is_abandoned = AtomicBool::new(is_abandoned);
        let written = write_events(&path, header, link, &Rng::new(0), receiver, &is_abandoned);
        (written.expect("written"), std::fs::read_to_string(&path).expect("a log"))
    }

    /// A journal of one packet of 1500 bytes that arrives at `from_ms` and leaves at `to_ms`.
    fn one_packet(from_ms: u64, to_ms: u64) -> Receiver<Events> {
        let (mut journal, receiver) = Journal::new();
        journal.write(Time::from_millis(from_ms), Event::Arrival { bytes: 1500 });
        let waited = Span::from_millis(to_ms - from_ms);
        journal.write(Time::from_millis(to_ms), Event::Departure { bytes: 1500, waited });
        assert_eq!(journal.finish(), 0);
        receiver
    }

    #[test]
    fn a_link_without_a_rate_has_no_opportunities_and_its_log_ends() {
        for spec in ["unlimited", "unlimited:delay=10ms", "rate:200gbit"] {
            let link = LinkSetup::parse(spec).expect("a link");
            let (events, text) = logged(&link, &one_packet(1, 1_000), false);
            assert_eq!(events, 2, "{spec}");
            assert_eq!(text, "# base timestamp: 0\n1 + 1504\n1000 - 1504 999\n", "{spec}");
        }
    }

    #[test]
    fn full_packets_use_all_of_the_opportunities() {
        // A full packet per millisecond: sent packets and opportunities are counted alike, with and
        // without an overhead on the link.
        for spec in ["12mbit", "12032kbit:overhead=4B"] {
            let link = LinkSetup::parse(spec).expect("a link");
            let (_, text) = logged(&link, &one_packet(0, 10), false);
            let sum = |mark: &str| -> u64 {
                let of_mark = text.lines().filter_map(|line| line.split_once(mark));
                of_mark.map(|(_, rest)| rest.parse::<u64>().expect("bytes")).sum()
            };
            // The opportunities of 1 to 9 ms; the one that ends with the departure is not written
            // yet.
            assert_eq!(sum(" # "), 9 * 1504, "{spec}: {text}");
        }
    }

    #[test]
    fn an_abandoned_log_ends_and_says_so() {
        let link = LinkSetup::parse("12mbit").expect("a link");
        let (_, text) = logged(&link, &one_packet(1, 3), true);
        assert_eq!(text, "# base timestamp: 0\n# cut short by a signal\n");
    }
}
