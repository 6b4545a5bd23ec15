//! Packet scripts: CSV `time_ns,len,flow,dscp,ecn`.

use std::io::{BufRead, Read as _};

use underload_aqm::packet::{Dscp, Ecn, Meta};
use underload_aqm::time::Time;

use super::{LineError, RecordingError, Source};

/// Columns of a script, which may have any order.
const COLUMNS: [&str; 5] = ["time_ns", "len", "flow", "dscp", "ecn"];

/// Longest packet. Queues do not support IPv6 jumbograms.
const MAX_LEN: u32 = 65_535;

/// Longest accepted line. A line of numbers has about a hundred bytes; a line without an end would
/// fill the memory.
pub const LINE_MAX_BYTES: usize = 64 << 10;

/// The lines of a script that are not blank.
struct Lines<T> {
    text: T,
    /// Number of the line in `line`, from 1.
    number: u64,
    line: Vec<u8>,
}

impl<T: BufRead> Lines<T> {
    /// Returns the fields of the next line. `None` at the end of the file.
    fn fields(&mut self) -> Result<Option<[&str; COLUMNS.len()]>, LineError> {
        self.line.clear();
        while self.line.trim_ascii().is_empty() {
            self.number += 1;
            self.line.clear();
            let mut text = self.text.by_ref().take(LINE_MAX_BYTES as u64 + 1);
            if text.read_until(b'\n', &mut self.line)? == 0 {
                return Ok(None);
            }
            if self.line.len() > LINE_MAX_BYTES {
                return Err(LineError::Length(LINE_MAX_BYTES));
            }
        }
        let line = str::from_utf8(&self.line).map_err(|_| LineError::Text)?;
        let mut fields = [""; COLUMNS.len()];
        let mut found = 0;
        // No value of a script contains a comma, so one in quotes needs no attention.
        for field in line.trim_start_matches('\u{feff}').split(',') {
            let field = field.trim();
            let quoted = field.strip_prefix('"').and_then(|field| field.strip_suffix('"'));
            if let Some(place) = fields.get_mut(found) {
                *place = quoted.unwrap_or(field).trim();
            }
            found += 1;
        }
        if found == fields.len() { Ok(Some(fields)) } else { Err(LineError::Fields { found }) }
    }
}

pub fn packets(text: impl BufRead + 'static) -> Result<Source, RecordingError> {
    let mut lines = Lines { text, number: 0, line: Vec::new() };
    let header = match lines.fields() {
        Err(cause @ (LineError::Io(_) | LineError::Length(_))) => {
            return Err(RecordingError::Line { line: 1, cause });
        }
        header => header.ok().flatten(),
    };
    let positions = header.and_then(|header| {
        let positions = COLUMNS.map(|name| header.iter().position(|column| *column == name));
        positions.iter().all(Option::is_some).then(|| positions.map(Option::unwrap_or_default))
    });
    let positions = positions.ok_or_else(|| RecordingError::Line {
        line: 1,
        cause: LineError::Header(COLUMNS.join(",")),
    })?;
    Ok(Box::new(move |_| {
        let packet = lines.fields().and_then(|fields| {
            fields.map(|fields| packet(positions.map(|position| fields[position]))).transpose()
        });
        packet.map_err(|cause| RecordingError::Line { line: lines.number, cause })
    }))
}

/// Reads a packet from its fields, in the order of [`COLUMNS`].
fn packet(fields: [&str; COLUMNS.len()]) -> Result<(Time, Meta), LineError> {
    let [time_ns, len, flow, dscp, ecn] = fields;
    let refused = |column: usize, expected| {
        let (column, found) = (COLUMNS[column], fields[column].to_owned());
        LineError::Value { column, found, expected }
    };
    let time_ns = number(time_ns).ok_or_else(|| refused(0, "a whole number of nanoseconds"))?;
    let len = number(len).filter(|len| (1..=MAX_LEN).contains(len));
    let len = len.ok_or_else(|| refused(1, "1 to 65535 bytes"))?;
    let flow = number(flow).ok_or_else(|| refused(2, "0 to 4294967295"))?;
    let dscp = number(dscp).and_then(Dscp::new).ok_or_else(|| refused(3, "0 to 63"))?;
    let ecn = Ecn::from_name(ecn).ok_or_else(|| refused(4, "not-ect, ect0, ect1 or ce"))?;
    Ok((Time::from_nanos(time_ns), Meta { dscp, ecn, ..Meta::new(len, flow) }))
}

/// Reads a decimal number, or a hexadecimal one after `0x`.
fn number<T: TryFrom<u64>>(text: &str) -> Option<T> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.ok().and_then(|number| T::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Recording;
    use crate::replay::Arrival;

    fn read(text: impl Into<Vec<u8>>) -> Result<Vec<Arrival>, String> {
        let recording = Recording::read(std::io::Cursor::new(text.into()));
        recording.and_then(Iterator::collect).map_err(|error| error.to_string())
    }

    #[test]
    fn spreadsheets_write_quotes_blank_lines_and_marks() {
        let text = "\u{feff}len, \"time_ns\",ecn,dscp,flow\r\n\r\n\"1500\",7,ect0,0x2e, 3\r\n \n";
        let packets = read(text).expect("a script");
        let [packet] = packets.as_slice() else { panic!("{} packets", packets.len()) };
        let Meta { len, flow, dscp, ecn, .. } = packet.meta;
        let fields = (packet.time.as_nanos(), len, flow, dscp.value(), ecn);
        assert_eq!(fields, (7, 1500, 3, 46, Ecn::Ect0));
    }

    #[test]
    fn faults_are_reported_with_their_line() {
        let script = |row: &str| format!("time_ns,len,flow,dscp,ecn\n0,1,1,0,ce\n\n{row}\n");
        for (text, expected) in [
            (script("0,1,1,0"), "line 4: expected 5 fields, found 4"),
            (script("0,1,1,0,ce,"), "line 4: expected 5 fields, found 6"),
            (script("-1,1,1,0,ce"), "line 4: `time_ns` -1: expected a whole number of nanoseconds"),
            (script("0,0,1,0,ce"), "line 4: `len` 0: expected 1 to 65535 bytes"),
            (script("0,1,4294967296,0,ce"), "line 4: `flow` 4294967296: expected 0 to 4294967295"),
            (script("0,1,1,300,ce"), "line 4: `dscp` 300: expected 0 to 63"),
            (script("0,1,1,0,\"ect"), "line 4: `ecn` \"ect: expected not-ect, ect0, ect1 or ce"),
            (script(&"0".repeat(LINE_MAX_BYTES)), "line 4: a line of more than 65536 bytes"),
            ("\n\n".to_owned(), "line 1: expected the header `time_ns,len,flow,dscp,ecn`"),
            ("time_ns,len,flow,dscp,dscp\n".to_owned(), "line 1: expected the header"),
            ("time_ns,len,flow,dscp,ecn,id\n".to_owned(), "line 1: expected the header"),
        ] {
            let error = read(text).err().unwrap_or_default();
            assert!(error.starts_with(expected), "{error}\n{expected}");
        }
        let error = read(*b"time_ns,len,flow,dscp,ecn\n\xff\n").err().unwrap_or_default();
        assert!(error.starts_with("line 2: expected text in UTF-8"), "{error}");
    }
}
