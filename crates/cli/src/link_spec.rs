//! Links with the files that they name.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use underload_aqm::registry::LinkSetup;

/// Bytes of a trace, at most: a day of 1 Gbit/s takes less.
const MAX_TRACE_BYTES: u64 = 1 << 30;

/// Understands a link SPEC and reads the trace that it names.
pub fn load(spec: &str) -> anyhow::Result<LinkSetup> {
    Ok(LinkSetup::parse_with(spec, &mut read_file)?)
}

/// Reads a trace, gzipped or not.
pub fn read_file(path: &str) -> Result<Vec<u8>, String> {
    let say = |error: std::io::Error| format!("{path}: {error}");
    let file = File::open(path).map_err(say)?;
    let plain = BufReader::new(file);
    let gzipped = Path::new(path).extension().is_some_and(|extension| extension == "gz");
    let source: Box<dyn Read> =
        if gzipped { Box::new(MultiGzDecoder::new(plain)) } else { Box::new(plain) };
    let mut bytes = Vec::new();
    source.take(MAX_TRACE_BYTES + 1).read_to_end(&mut bytes).map_err(say)?;
    if bytes.len() as u64 > MAX_TRACE_BYTES {
        return Err(format!("{path}: a trace of more than 1 GiB"));
    }
    Ok(bytes)
}
