//! Recorded packets from files, in order of time: CSV scripts, pcap and pcapng captures.

mod capture;
mod error;
mod script;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use underload_aqm::packet::Meta;
use underload_aqm::time::{Span, Time};

use crate::replay::Arrival;
pub use error::{FrameError, LineError, RecordingError};

/// Largest inversion of time that is sorted. Captures have small ones, because packets come from
/// several processors, queues of a network card, or interfaces.
pub const WINDOW: Span = Span::from_secs(1);
/// Largest number of buffered packets.
pub const WINDOW_PACKETS: usize = 1 << 19;

/// The packets of a recording in order of time; packets of equal time keep their order. It ends at
/// the first error.
pub struct Recording {
    source: Source,
    /// Read packets by time and position in the input.
    waiting: BTreeMap<(Time, u64), Meta>,
    /// Number of packets read.
    read: u64,
    newest: Time,
    /// Time in the input of the last returned packet.
    emitted: Option<Time>,
    /// The time from which returned times count; `None` until the first packet of a capture sets
    /// it.
    origin: Option<Time>,
    /// The result of reading, once it has ended.
    end: Option<Result<(), RecordingError>>,
    cuts: Cuts,
}

/// Counts packets that were captured before their sender's network card cut them into segments.
type Cuts = Rc<Cell<u64>>;

/// Reads the next packet, whose position in the input is given; `None` at the end.
type Source = Box<dyn FnMut(u64) -> Result<Option<(Time, Meta)>, RecordingError>>;

impl Recording {
    /// Opens a file, gzipped or not, or the standard input for `-`.
    ///
    /// # Errors
    /// If the file cannot be read, or its start has none of the formats.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let file: Box<dyn Read> = match path.to_str() {
            Some("-") => Box::new(io::stdin()),
            _ => Box::new(File::open(path)?),
        };
        let mut file = BufReader::new(file);
        if file.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
            return Self::read(BufReader::new(MultiGzDecoder::new(file)));
        }
        Self::read(file)
    }

    /// Reads an open input, whose first bytes determine the format.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn read(mut bytes: impl BufRead + 'static) -> Result<Self, RecordingError> {
        const PCAP: [u32; 2] = [0xa1b2_c3d4, 0xa1b2_3c4d];
        const MODIFIED_PCAP: u32 = 0xa1b2_cd34;
        let magic = bytes.fill_buf()?;
        if magic.is_empty() {
            return Err(RecordingError::Empty);
        }
        let word = magic.first_chunk().map_or(0, |magic| u32::from_be_bytes(*magic));
        if word == MODIFIED_PCAP || word.swap_bytes() == MODIFIED_PCAP {
            return Err(RecordingError::Modified);
        }
        let cuts = Cuts::default();
        // The times of a capture are dates; the times of a script may start anywhere.
        let (source, origin) = if word == 0x0a0d_0d0a {
            (capture::pcapng(bytes, Rc::clone(&cuts))?, None)
        } else if PCAP.contains(&word) || PCAP.contains(&word.swap_bytes()) {
            (capture::pcap(bytes, Rc::clone(&cuts))?, None)
        } else {
            (script::packets(bytes)?, Some(Time::ZERO))
        };
        let waiting = BTreeMap::new();
        let (read, newest, emitted, end) = (0, Time::ZERO, None, None);
        Ok(Self { source, waiting, read, newest, emitted, origin, end, cuts })
    }

    /// Returns the number of packets so far that were cut into segments.
    pub fn cuts(&self) -> u64 {
        self.cuts.get()
    }

    /// Whether no packet still to be read may precede the first one that waits.
    fn is_ready(&self) -> bool {
        let first = self.waiting.first_key_value();
        self.waiting.len() >= WINDOW_PACKETS
            || first.is_some_and(|((first, _), _)| self.newest.since(*first) >= WINDOW)
    }

    fn push(&mut self) -> Result<(), RecordingError> {
        match (self.source)(self.read)? {
            None => self.end = Some(Ok(())),
            Some((time, meta)) => {
                if let Some(emitted) = self.emitted.filter(|emitted| time < *emitted) {
                    let (packet, by) = (self.read + 1, emitted.since(time));
                    return Err(RecordingError::Late { packet, by });
                }
                self.newest = self.newest.max(time);
                self.waiting.insert((time, self.read), meta);
                self.read += 1;
            }
        }
        Ok(())
    }
}

impl Iterator for Recording {
    type Item = Result<Arrival, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.end.is_none() && !self.is_ready() {
            if let Err(error) = self.push() {
                self.end = Some(Err(error));
            }
        }
        // The packets before a bad one come first.
        let Some(((time, id), meta)) = self.waiting.pop_first() else {
            return self.end.replace(Ok(())).and_then(Result::err).map(Err);
        };
        self.emitted = Some(time);
        let origin = *self.origin.get_or_insert(time);
        Some(Ok(Arrival { id, time: Time::ZERO + time.since(origin), meta }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ids and times that come out, and the error if any.
    fn sorted(times: impl Iterator<Item = Time> + 'static) -> (Vec<(u64, Time)>, Option<String>) {
        let mut times = times.map(|time| (time, Meta::new(100, 0)));
        let source = Box::new(move |_| Ok(times.next()));
        let (mut out, mut error) = (Vec::new(), None);
        let mut recording = Recording::read(&b"time_ns,len,flow,dscp,ecn\n"[..]).expect("a script");
        recording.source = source;
        for arrival in recording {
            match arrival {
                Ok(arrival) => out.push((arrival.id, arrival.time)),
                Err(found) => error = Some(found.to_string()),
            }
        }
        (out, error)
    }

    #[test]
    fn small_inversions_are_sorted_and_equal_times_keep_their_order() {
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
    fn the_number_of_waiting_packets_is_bounded() {
        // A nanosecond apart: the time window alone would buffer all of them.
        let count = WINDOW_PACKETS as u64 + 10;
        let times = (1..=count).map(Time::from_nanos).chain([Time::ZERO]);
        let (out, error) = sorted(times);
        assert_eq!(out.len() as u64, count);
        assert!(error.is_some_and(|error| error.contains("out of order")));
    }
}
