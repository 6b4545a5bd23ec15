//! Packet scripts: CSV `time_ns,len,flow,dscp,ecn`.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use anyhow::{Context, anyhow, bail};
use serde::Deserialize;
use underload_aqm::packet::{Dscp, Ecn, Meta};
use underload_aqm::time::Time;

use crate::replay::arrival::{Arrival, Arrivals};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row<'a> {
    time_ns: u64,
    len: u32,
    flow: u32,
    dscp: u8,
    ecn: &'a str,
}

/// Longest packet. Queues do not support IPv6 jumbograms.
const MAX_LEN: u32 = 65_535;

/// Longest accepted line. A line of numbers has about a hundred bytes; a line without an end would
/// fill the memory.
const LINE_MAX_BYTES: usize = 64 << 10;

/// A script with at most [`LINE_MAX_BYTES`] per line. The CSV reader reads ahead, so this counts
/// the bytes that it reads while it searches the end of a line.
struct Lines {
    text: Box<dyn Read>,
    left: Rc<Cell<usize>>,
}

impl Read for Lines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left.get() == 0 {
            let problem = format!("a line of more than {LINE_MAX_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        let length = buffer.len().min(self.left.get());
        let count = self.text.read(&mut buffer[..length])?;
        self.left.set(self.left.get() - count);
        Ok(count)
    }
}

/// Reads the packets of a script.
pub fn packets(text: Box<dyn Read>) -> anyhow::Result<Arrivals> {
    let left = Rc::new(Cell::new(LINE_MAX_BYTES));
    let text = Lines { text, left: Rc::clone(&left) };
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text);
    let header = reader.headers().context("line 1")?.clone();
    for column in ["time_ns", "len", "flow", "dscp", "ecn"] {
        if !header.iter().any(|name| name == column) {
            bail!("line 1: expected the header `time_ns,len,flow,dscp,ecn`, or a pcap file");
        }
    }
    let (mut failed, mut next_id) = (false, 0);
    Ok(Box::new(std::iter::from_fn(move || {
        if failed {
            return None;
        }
        left.set(LINE_MAX_BYTES);
        let line = reader.position().line();
        let mut record = csv::StringRecord::new();
        let arrival = match reader.read_record(&mut record) {
            Ok(false) => return None,
            Ok(true) => {
                let line = record.position().map_or(0, csv::Position::line);
                arrival(next_id, &record, &header).with_context(|| format!("line {line}"))
            }
            Err(error) => Err(anyhow::Error::from(error)).with_context(|| format!("line {line}")),
        };
        failed = arrival.is_err();
        next_id += 1;
        Some(arrival)
    })))
}

fn arrival(
    id: u64,
    record: &csv::StringRecord,
    header: &csv::StringRecord,
) -> anyhow::Result<Arrival> {
    let row: Row<'_> = record.deserialize(Some(header)).map_err(|error| match error.kind() {
        // The message of `csv` repeats the position that the caller adds.
        csv::ErrorKind::Deserialize { err, .. } => match err.field() {
            Some(field) => {
                anyhow!("`{}`: {}", header.get(field as usize).unwrap_or("?"), err.kind())
            }
            None => anyhow!("{}", err.kind()),
        },
        _ => error.into(),
    })?;
    if row.len == 0 || row.len > MAX_LEN {
        bail!("`len` {}: expected 1 to {MAX_LEN} bytes", row.len);
    }
    let dscp =
        Dscp::new(row.dscp).ok_or_else(|| anyhow!("`dscp` {}: expected 0 to 63", row.dscp))?;
    let ecn = Ecn::from_name(row.ecn)
        .ok_or_else(|| anyhow!("`ecn` {}: expected not-ect, ect0, ect1 or ce", row.ecn))?;
    let meta = Meta { dscp, ecn, ..Meta::new(row.len, row.flow) };
    Ok(Arrival { id, time: Time::from_nanos(row.time_ns), meta, is_wanted: true })
}
