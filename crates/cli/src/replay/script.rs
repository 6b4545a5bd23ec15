//! Packet scripts: CSV `time_ns,len,flow,dscp,ecn`.

use std::io::Read;

use anyhow::{Context, anyhow, bail};
use serde::Deserialize;
use underload_aqm::packet::{Dscp, Ecn, Meta};
use underload_aqm::time::Time;

use crate::replay::input::{Arrival, Arrivals};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row<'a> {
    time_ns: u64,
    len: u32,
    flow: u32,
    dscp: u8,
    ecn: &'a str,
}

/// Bytes of a packet, at most; an IPv6 jumbogram could be larger, a queue's packet is not.
const MAX_LEN: u32 = 65_535;

/// The packets of a script.
pub fn packets(text: Box<dyn Read>) -> anyhow::Result<Arrivals> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text);
    let header = reader.headers().context("line 1")?.clone();
    for column in ["time_ns", "len", "flow", "dscp", "ecn"] {
        if !header.iter().any(|name| name == column) {
            bail!("line 1: expected the header `time_ns,len,flow,dscp,ecn`, or a pcap file");
        }
    }
    let mut failed = false;
    Ok(Box::new(std::iter::from_fn(move || {
        if failed {
            return None;
        }
        let mut record = csv::StringRecord::new();
        let arrival = match reader.read_record(&mut record) {
            Ok(false) => return None,
            Ok(true) => {
                let line = record.position().map_or(0, csv::Position::line);
                arrival(&record, &header).with_context(|| format!("line {line}"))
            }
            Err(error) => Err(error.into()),
        };
        failed = arrival.is_err();
        Some(arrival)
    })))
}

fn arrival(record: &csv::StringRecord, header: &csv::StringRecord) -> anyhow::Result<Arrival> {
    let row: Row<'_> = record.deserialize(Some(header)).map_err(|error| match error.kind() {
        // The crate's own message repeats the position that the caller adds.
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
    Ok(Arrival { time: Time::from_nanos(row.time_ns), meta })
}
