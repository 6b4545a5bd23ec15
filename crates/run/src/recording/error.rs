//! Why a recording cannot be read to its end.

use std::io;

use pcap_file::{DataLink, PcapError};
use underload_aqm::time::Span;

use super::{WINDOW, WINDOW_PACKETS};

#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the file is empty: expected CSV, pcap or pcapng")]
    Empty,
    #[error(
        "a capture in the modified pcap of old Linux (a1b2cd34) is not read: convert it with \
         `editcap -F pcap`"
    )]
    Modified,
    #[error("line {line}: {cause}")]
    Line { line: u64, cause: LineError },
    #[error("the file header: {0}")]
    FileHeader(PcapError),
    #[error("packet {packet}: {cause}")]
    Frame { packet: u64, cause: FrameError },
    #[error(
        "packet {packet}: it is {by} earlier than a packet that was replayed already; packets may \
         be {WINDOW} or {WINDOW_PACKETS} packets out of order: sort the input by time (a capture: \
         `reordercap`)"
    )]
    Late { packet: u64, by: Span },
}

/// Why a line is not a packet of a script.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("a line of more than {0} bytes")]
    Length(usize),
    #[error("expected text in UTF-8")]
    Text,
    #[error("expected the header `{0}`, or a pcap file")]
    Header(String),
    #[error("expected 5 fields, found {found}")]
    Fields { found: usize },
    #[error("`{column}` {found}: expected {expected}")]
    Value { column: &'static str, found: String, expected: &'static str },
}

/// Why a frame is not a packet of a capture.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("the file is truncated or corrupt ({0})")]
    Damaged(PcapError),
    #[error("no interface {0}")]
    Interface(u32),
    #[error("a block without usable time stamps; convert the file with `editcap -F pcap`")]
    NoTime,
    #[error("with its interface's `if_tsoffset` of {offset_s} s its time is before the year 1970")]
    Before1970 { offset_s: i64 },
    #[error("its time is beyond the year 2554")]
    After2554,
    #[error(
        "link type {0:?} is not read; expected Ethernet, raw IP, Linux SLL, PPP or Wi-Fi (802.11, \
         with radiotap or without)"
    )]
    LinkType(DataLink),
}
