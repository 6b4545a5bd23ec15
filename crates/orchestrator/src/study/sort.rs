//! Sorts results by lines: in memory or, beyond that, in a temporary file.

use std::fs::File;
use std::io::{Read as _, Result, Seek as _, SeekFrom, Write as _};

use underload_fleet::device::DeviceId;
use underload_fleet::store::{StoreError, StoredResult};

use crate::store::{Encoded, encode};

/// Results by the first byte of their pseudonyms, which are random.
pub struct Sorter {
    ranges: Vec<Range>,
    /// Bytes in memory, and the number of them from which they are moved to the file.
    waiting: usize,
    waiting_max: usize,
    /// A file without a name, which ends with the process.
    file: Option<File>,
}

#[derive(Default)]
struct Range {
    /// Encoded results that are not in the file yet.
    buffer: Vec<u8>,
    /// Places and lengths of earlier results in the file.
    chunks: Vec<(u64, u64)>,
}

impl Sorter {
    pub const RANGES: u8 = u8::MAX;

    pub fn new(waiting_max: usize) -> Self {
        let ranges = (0..=Self::RANGES).map(|_| Range::default()).collect();
        Self { ranges, waiting: 0, waiting_max, file: None }
    }

    pub fn add(&mut self, kept: &StoredResult) -> std::result::Result<(), StoreError> {
        let body = encode(kept);
        let buffer = &mut self.ranges[usize::from(kept.pseudonym.0[0])].buffer;
        let before = buffer.len();
        buffer.extend(kept.device.0);
        buffer.extend((body.len() as u64).to_le_bytes());
        buffer.extend(body);
        self.waiting += buffer.len() - before;
        if self.waiting < self.waiting_max { Ok(()) } else { self.write().map_err(failed) }
    }

    fn write(&mut self) -> Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => tempfile::tempfile()?,
        };
        for Range { buffer, chunks } in &mut self.ranges {
            chunks.push((file.stream_position()?, buffer.len() as u64));
            file.write_all(buffer)?;
            buffer.clear();
        }
        (self.file, self.waiting) = (Some(file), 0);
        Ok(())
    }

    /// Calls `see` with the results whose pseudonyms begin with `first`, in the order in which they
    /// were added, and forgets them.
    pub fn visit(
        &mut self,
        first: u8,
        mut see: impl FnMut(&StoredResult),
    ) -> std::result::Result<(), StoreError> {
        let Range { buffer, chunks } = std::mem::take(&mut self.ranges[usize::from(first)]);
        for (place, length) in chunks {
            visit(&self.read(place, length).map_err(failed)?, &mut see)?;
        }
        visit(&buffer, &mut see)
    }

    fn read(&mut self, place: u64, length: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(length as usize);
        if let Some(file) = &mut self.file {
            file.seek(SeekFrom::Start(place))?;
            file.take(length).read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    }
}

fn visit(
    mut bytes: &[u8],
    see: &mut impl FnMut(&StoredResult),
) -> std::result::Result<(), StoreError> {
    while let Some((device, rest)) = bytes.split_first_chunk::<16>()
        && let Some((length, rest)) = rest.split_first_chunk()
        && let Some((body, rest)) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)
    {
        let (device, body) = (DeviceId(*device), body.to_vec());
        see(&Encoded { number: 0, device, body }.decode()?);
        bytes = rest;
    }
    Ok(())
}

fn failed(error: std::io::Error) -> StoreError {
    let folder = std::env::temp_dir();
    let step = "sorting results in a temporary file; TMPDIR names another folder than";
    StoreError::temporary(format!("{step} {}", folder.display())).because(error)
}
