//! Opens an input file of any supported format.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, bail};
use flate2::bufread::MultiGzDecoder;

use crate::replay::arrival::{Arrival, Arrivals};
use crate::replay::filter::Filter;
use crate::replay::order::{from_zero, in_order};
use crate::replay::{capture, script};

/// Opens `path`, or stdin for `-`, detects the format, and returns the packets in order of time.
pub fn open(path: &Path, filter: &Filter) -> anyhow::Result<Arrivals> {
    let open = || -> anyhow::Result<Arrivals> {
        let source: Box<dyn Read> = if path.as_os_str() == "-" {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(path)?)
        };
        let mut source = BufReader::new(source);
        if source.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
            return read(BufReader::new(MultiGzDecoder::new(source)), filter);
        }
        read(source, filter)
    };
    open().with_context(|| path.display().to_string())
}

/// Reads the packets of an open input, whose format its first bytes tell.
pub fn read(mut bytes: impl BufRead + 'static, filter: &Filter) -> anyhow::Result<Arrivals> {
    let magic = bytes.fill_buf()?;
    if magic.is_empty() {
        bail!("the file is empty: expected CSV, pcap or pcapng");
    }
    match magic.first_chunk::<4>() {
        Some([0x0a, 0x0d, 0x0d, 0x0a]) => {
            return Ok(captured(capture::pcapng(bytes, filter.clone())?));
        }
        Some(
            [0xd4, 0xc3, 0xb2, 0xa1]
            | [0xa1, 0xb2, 0xc3, 0xd4]
            | [0x4d, 0x3c, 0xb2, 0xa1]
            | [0xa1, 0xb2, 0x3c, 0x4d],
        ) => return Ok(captured(capture::pcap(bytes, filter.clone())?)),
        _ => {}
    }
    if *filter != Filter::default() {
        bail!("--filter: only accepted for captures; a script has no packet headers");
    }
    Ok(in_order(script::packets(bytes)?))
}

/// Returns the packets that pass the filter, with times from zero on.
fn captured(all: Arrivals) -> Arrivals {
    let wanted =
        |packet: &anyhow::Result<Arrival>| packet.as_ref().map_or(true, |packet| packet.is_wanted);
    from_zero(in_order(Box::new(all.filter(wanted))))
}
