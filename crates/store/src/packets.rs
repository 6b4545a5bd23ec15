//! `packets.parquet`: written during a trial, a row group once enough rows are in memory.

use std::path::PathBuf;

use underload_disk::{self as disk, GrowingFile};
use underload_record::schema::PacketSighting;

use crate::columns::Get::{Boolean, Long, OptionalLong, OptionalText, Text};
use crate::columns::{self, Column, Get, Schema};
use crate::error::StoreError;
use crate::table_file::TableWriter;

/// The columns of `packets.parquet`.
pub(crate) struct Packets;

impl Schema for Packets {
    type Row<'a> = &'a PacketSighting<'a>;

    const COLUMNS: &'static [(&'static str, Get<Self>)] = &[
        ("trial", Long(|it| it.trial.into())),
        ("time_ns", Long(|it| it.time_ns.into())),
        ("direction", Text(|it| it.direction.name().into())),
        ("hop", Text(|it| it.hop.into())),
        ("event", Text(|it| it.event.into())),
        ("reason", OptionalText(|it| it.reason.map(Into::into))),
        ("id", Long(|it| it.id.into())),
        ("flow", Text(|it| it.flow.into())),
        ("channel", Long(|it| it.channel.into())),
        ("kind", Text(|it| it.kind.into())),
        ("sequence", Long(|it| it.sequence.into())),
        ("retransmission", Boolean(|it| it.retransmission)),
        ("length", Long(|it| it.length.into())),
        ("dscp", Long(|it| it.dscp.into())),
        ("ecn", Text(|it| it.ecn.name().into())),
        ("sojourn_ns", OptionalLong(|it| it.sojourn_ns.map(Into::into))),
        ("end_ns", OptionalLong(|it| it.end_ns.map(Into::into))),
    ];
}

/// Maximum number of rows in memory: about 10 MB.
const GROUP_ROWS: usize = 1 << 15;

#[derive(Debug)]
pub struct PacketTable {
    path: PathBuf,
    writer: TableWriter<GrowingFile>,
    columns: Vec<Column>,
    rows: usize,
}

impl PacketTable {
    pub(crate) fn new(path: PathBuf, file: GrowingFile) -> Result<Self, StoreError> {
        let layout = Packets::layout();
        let writer = TableWriter::new(&path, file, &layout)?;
        Ok(Self { path, writer, columns: columns::empty(&layout), rows: 0 })
    }

    /// Adds a row. The rows of one point must be in order of time.
    pub fn push(&mut self, row: &PacketSighting<'_>) -> Result<(), StoreError> {
        columns::push(&mut self.columns, Packets::cells(&row));
        self.rows += 1;
        if self.rows.is_multiple_of(GROUP_ROWS) { self.flush() } else { Ok(()) }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Completes the file, or removes it after an error. The table belongs to the run once its
    /// trial is appended.
    pub fn finish(mut self) -> Result<(), StoreError> {
        let flushed = if self.rows.is_multiple_of(GROUP_ROWS) { Ok(()) } else { self.flush() };
        let written = flushed.and_then(|()| self.writer.finish().map(drop));
        if written.is_err() {
            // This error is ignored: the caller needs the first one.
            let _ = disk::remove(&self.path);
        }
        written
    }

    /// Removes the table of a trial that was not completed.
    pub fn discard(self) {
        // If this fails, nothing is lost: a part without its trial is never read.
        let _ = disk::remove(&self.path);
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        let empty = columns::empty(&Packets::layout());
        self.writer.write(&std::mem::replace(&mut self.columns, empty))
    }
}
