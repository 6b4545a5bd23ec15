//! Logs of a link: per packet in Mahimahi's format, which its graph scripts read, and our own
//! samples over time.
//!
//! Mahimahi counts four bytes of TUN header in every packet, and so does its log. Its opportunities
//! (`#`) are what a saturated link would have carried: computed by the same link model, summed up
//! per millisecond.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::Receiver;

use underload_aqm::link::{FlightOptions, Link};
use underload_aqm::packet::{Meta, Packet};
use underload_aqm::qdisc::{Admit, Backlog, Dequeue, Observer, Qdisc, Stats};
use underload_aqm::registry::LinkSetup;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

use crate::journal::{Event, Events};
use crate::report::GatewayReport;

const TUN_HEADER_BYTES: u32 = 4;
const OPPORTUNITY_BYTES: u32 = 1504;
/// Departures are told when transmission starts, up to so much ahead of their time.
const REORDER: Span = Span::from_secs(2);
/// Events kept for ordering, at most.
const REORDER_MAX: usize = 1 << 20;

/// Writes one direction's log until the journal ends, and returns the number of events. The link
/// draws from `rng`, as the one in service does, so that its capacity is told and not another.
///
/// # Errors
/// Where the file cannot be written; the journal is then read on, so that nobody waits.
pub fn write_events(
    path: &Path,
    header: &str,
    link: &LinkSetup,
    rng: &Rng,
    journal: &Receiver<Events>,
) -> io::Result<u64> {
    let mut log = Log {
        file: BufWriter::new(File::create(path)?),
        capacity: Capacity::of(link, rng),
        waiting: BinaryHeap::new(),
        written: 0,
    };
    log.file.write_all(header.as_bytes())?;
    let mut newest = Time::ZERO;
    for (time, event) in journal.iter().flatten() {
        newest = newest.max(if matches!(event, Event::Arrival { .. }) { time } else { newest });
        log.waiting.push(Reverse((time, log.written + log.waiting.len() as u64, Line(event))));
        log.write_until(newest - REORDER)?;
    }
    log.write_until(Time::MAX)?;
    log.file.flush()?;
    Ok(log.written)
}

/// The comments at the start of a log.
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

struct Log {
    file: BufWriter<File>,
    capacity: Capacity,
    waiting: BinaryHeap<Reverse<(Time, u64, Line)>>,
    written: u64,
}

/// An event without an order of its own: time and number order it.
#[derive(Debug)]
struct Line(Event);

impl PartialEq for Line {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Line {}
impl PartialOrd for Line {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Line {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl Log {
    fn write_until(&mut self, limit: Time) -> io::Result<()> {
        while let Some(Reverse((time, ..))) = self.waiting.peek() {
            if *time > limit && self.waiting.len() < REORDER_MAX {
                break;
            }
            let Some(Reverse((time, _, Line(event)))) = self.waiting.pop() else { break };
            self.capacity.write_until(time, &mut self.file)?;
            write_event(&mut self.file, time, event)?;
            self.written += 1;
        }
        Ok(())
    }
}

fn write_event(file: &mut impl Write, time: Time, event: Event) -> io::Result<()> {
    let ms = time.as_nanos() / 1_000_000;
    match event {
        Event::Arrival { bytes } => writeln!(file, "{ms} + {}", bytes + TUN_HEADER_BYTES),
        Event::Departure { bytes, waited } => {
            let waited = waited.as_nanos() / 1_000_000;
            writeln!(file, "{ms} - {} {waited}", bytes + TUN_HEADER_BYTES)
        }
        // Unlike Mahimahi's own logs, drops at dequeue are told too.
        Event::Drop { bytes } => writeln!(file, "{ms} d 1 {}", bytes + TUN_HEADER_BYTES),
    }
}

/// When a link that is never idle would have finished each opportunity.
struct Capacity {
    link: Link<()>,
    reached: Time,
    ms: u64,
    bytes: u64,
}

impl Capacity {
    fn of(link: &LinkSetup, rng: &Rng) -> Self {
        let mut always = link.clone();
        always.delay = Span::ZERO;
        always.flight = FlightOptions::default();
        always.loss_q32 = 0;
        let mut link = always.build(Box::new(Saturated), rng);
        link.send(Time::ZERO, opportunity(), &mut ());
        Self { link, reached: Time::ZERO, ms: 0, bytes: 0 }
    }

    fn write_until(&mut self, limit: Time, file: &mut impl Write) -> io::Result<()> {
        // In steps, so that a long silence does not pile opportunities up.
        while self.reached < limit {
            self.reached = limit.min(self.reached + Span::from_millis(10));
            while let Some((time, packet)) = self.link.poll(self.reached, &mut ()) {
                let ms = time.as_nanos() / 1_000_000;
                if ms != self.ms {
                    self.flush(file)?;
                }
                self.ms = ms;
                self.bytes += u64::from(packet.meta.len);
            }
        }
        // No more can come for a millisecond that is over.
        if self.ms < limit.as_nanos() / 1_000_000 { self.flush(file) } else { Ok(()) }
    }

    fn flush(&mut self, file: &mut impl Write) -> io::Result<()> {
        match std::mem::take(&mut self.bytes) {
            0 => Ok(()),
            bytes => writeln!(file, "{} # {bytes}", self.ms),
        }
    }
}

/// A queue that always has an opportunity's worth to send.
struct Saturated;

fn opportunity() -> Packet<()> {
    Packet { meta: Meta::new(OPPORTUNITY_BYTES, 0), payload: () }
}

impl Qdisc<()> for Saturated {
    fn enqueue(&mut self, _: Time, _: Packet<()>, _: &mut dyn Observer<()>) -> Admit {
        Admit::Queued
    }
    fn dequeue(&mut self, _: Time, _: &mut dyn Observer<()>) -> Dequeue<()> {
        Dequeue::Packet(opportunity())
    }
    fn backlog(&self) -> Backlog {
        Backlog { packets: 1, bytes: u64::from(OPPORTUNITY_BYTES) }
    }
    fn stats(&self) -> Stats {
        Stats::default()
    }
}

/// Writes the time series of both directions as CSV.
///
/// # Errors
/// Where the file cannot be written.
pub fn write_samples(path: &Path, report: &GatewayReport) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    writeln!(
        file,
        "time_ns,direction,backlog_packets,backlog_bytes,sojourn_max_ns,sent_packets,sent_bytes,\
         dropped_packets,marked_packets"
    )?;
    for (direction, lane) in &report.lanes {
        for row in &lane.recording.rows {
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
    use crate::journal::Journal;

    #[test]
    fn a_log_reads_as_mahimahis_in_order_of_time() {
        let link = LinkSetup::parse("12032kbit").expect("a link: 1504 bytes per millisecond");
        let (mut journal, receiver) = Journal::new();
        let at = Time::from_millis;
        journal.write(at(1), Event::Arrival { bytes: 1500 });
        // Told at its start, before the arrival that precedes its end.
        journal.write(at(3), Event::Departure { bytes: 1500, waited: Span::from_millis(2) });
        journal.write(at(2), Event::Arrival { bytes: 100 });
        journal.write(at(2), Event::Drop { bytes: 100 });
        assert_eq!(journal.finish(), 0);
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("uplink.log");
        let events = write_events(&path, "# base timestamp: 0\n", &link, &Rng::new(0), &receiver);
        assert_eq!(events.expect("written"), 4);
        let text = std::fs::read_to_string(&path).expect("a log");
        let expected = "# base timestamp: 0\n1 + 1504\n1 # 1504\n2 + 104\n2 d 1 104\n\
                        2 # 1504\n3 - 1504 2\n";
        assert_eq!(text, expected);
    }
}
