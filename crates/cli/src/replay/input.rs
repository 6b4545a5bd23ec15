//! Packets out of any supported file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, bail};
use flate2::bufread::MultiGzDecoder;

use crate::replay::arrival::{Arrival, Arrivals};
use crate::replay::filter::Filter;
use crate::replay::order::{from_zero, in_order};
use crate::replay::{capture, script};

/// Opens `path`, or the standard input for `-`, and finds out what it is by its first bytes. The
/// packets come in order of time.
pub fn open(path: &Path, filter: &Filter) -> anyhow::Result<Arrivals> {
    let source: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path).with_context(|| at(path))?)
    };
    let mut plain = BufReader::new(source);
    let magic = plain.fill_buf().with_context(|| at(path))?;
    if magic.starts_with(&[0x1f, 0x8b]) {
        let plain = BufReader::new(MultiGzDecoder::new(plain));
        return read(plain, filter).with_context(|| at(path));
    }
    read(plain, filter).with_context(|| at(path))
}

fn at(path: &Path) -> String {
    path.display().to_string()
}

/// Finds out what `bytes` are by the first of them; the packets come in order of time.
pub fn read(mut bytes: impl BufRead + 'static, filter: &Filter) -> anyhow::Result<Arrivals> {
    let magic = bytes.fill_buf()?;
    if magic.is_empty() {
        bail!("the file is empty: expected CSV, pcap or pcapng");
    }
    let boxed: Box<dyn Read> = match magic.first_chunk::<4>() {
        Some([0x0a, 0x0d, 0x0d, 0x0a]) => {
            return Ok(captured(capture::pcapng(bytes, filter.clone())?));
        }
        Some(
            [0xd4, 0xc3, 0xb2, 0xa1]
            | [0xa1, 0xb2, 0xc3, 0xd4]
            | [0x4d, 0x3c, 0xb2, 0xa1]
            | [0xa1, 0xb2, 0x3c, 0x4d],
        ) => return Ok(captured(capture::pcap(bytes, filter.clone())?)),
        _ => Box::new(bytes),
    };
    if *filter != Filter::default() {
        bail!("--filter looks at the headers of captured packets, and a script has none");
    }
    Ok(in_order(script::packets(boxed)?))
}

/// The packets wanted, from time zero on.
fn captured(all: Arrivals) -> Arrivals {
    let wanted = |it: &anyhow::Result<Arrival>| it.as_ref().map_or(true, |it| it.is_wanted);
    from_zero(in_order(Box::new(all.filter(wanted))))
}
