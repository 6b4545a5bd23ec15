//! `packets.parquet`: written while a trial runs, a row group whenever enough rows are there.

use std::path::{Path, PathBuf};

use parquet::data_type::ByteArray;
use underload_disk::{self as disk, GrowingFile};
use underload_record::schema::PacketSighting;

use super::columns::{Column, Kind, Layout, TableWriter};
use crate::StoreError;

/// Columns of `packets.parquet`.
pub(super) const PACKETS: &Layout = &[
    ("trial", Kind::Long),
    ("time_ns", Kind::Long),
    ("direction", Kind::Text),
    ("hop", Kind::Text),
    ("event", Kind::Text),
    ("reason", Kind::OptionalText),
    ("id", Kind::Long),
    ("flow", Kind::Text),
    ("channel", Kind::Long),
    ("kind", Kind::Text),
    ("sequence", Kind::Long),
    ("retransmission", Kind::Boolean),
    ("length", Kind::Long),
    ("dscp", Kind::Long),
    ("ecn", Kind::Text),
    ("sojourn_ns", Kind::OptionalLong),
    ("end_ns", Kind::OptionalLong),
];

/// Rows kept in memory, at most: about 10 MB.
const GROUP_ROWS: usize = 1 << 15;

/// The packets of one trial, on their way to disk.
#[derive(Debug)]
pub struct PacketTable {
    path: PathBuf,
    writer: Option<TableWriter>,
    columns: Vec<Column>,
    /// Text of the row before, column by column: text that repeats shares its bytes.
    texts: [ByteArray; 6],
    rows: usize,
    /// Number of rows that are not written yet.
    pending: usize,
}

impl PacketTable {
    pub(super) fn new(path: PathBuf, file: GrowingFile) -> Result<Self, StoreError> {
        let writer = Some(TableWriter::new(&path, file, PACKETS)?);
        let texts = std::array::from_fn(|_| ByteArray::from(""));
        Ok(Self { path, writer, columns: empty(), texts, rows: 0, pending: 0 })
    }

    /// Keeps a row. The rows of one place come in the order of time.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    pub fn push(&mut self, row: &PacketSighting<'_>) -> Result<(), StoreError> {
        let long = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let texts = [row.direction.name(), row.hop, row.event, row.flow, row.kind, row.ecn.name()];
        for (shared, text) in self.texts.iter_mut().zip(texts) {
            if shared.data() != text.as_bytes() {
                *shared = ByteArray::from(text);
            }
        }
        let [direction, hop, event, flow, kind, ecn] = &self.texts;
        let values = [
            Value::Long(long(row.trial.into())),
            Value::Long(long(row.time_ns)),
            Value::Text(direction),
            Value::Text(hop),
            Value::Text(event),
            Value::OptionalText(row.reason),
            Value::Long(long(row.id.into())),
            Value::Text(flow),
            Value::Long(long(row.channel.into())),
            Value::Text(kind),
            Value::Long(long(row.sequence.into())),
            Value::Boolean(row.retransmission),
            Value::Long(long(row.length.into())),
            Value::Long(long(row.dscp.into())),
            Value::Text(ecn),
            Value::OptionalLong(row.sojourn_ns.map(long)),
            Value::OptionalLong(row.end_ns.map(long)),
        ];
        for (column, value) in self.columns.iter_mut().zip(values) {
            value.append_to(column);
        }
        self.rows += 1;
        self.pending += 1;
        if self.pending == GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    /// Rows kept so far.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Writes what is left. The table belongs to the run once its trial is appended.
    ///
    /// # Errors
    ///
    /// The error of the system call; the file is gone then.
    pub fn finish(mut self) -> Result<(), StoreError> {
        let written = self.flush().and_then(|()| match self.writer.take() {
            Some(writer) => writer.close(),
            None => Ok(()),
        });
        if written.is_err() {
            // What failed first is what the caller must hear of.
            let _ = disk::remove(&self.path);
        }
        written
    }

    /// Removes the table of a trial that was not completed.
    pub fn discard(mut self) {
        self.writer = None;
        // A part without its trial is never read; it is only in the way.
        let _ = disk::remove(&self.path);
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        let columns = std::mem::replace(&mut self.columns, empty());
        match &mut self.writer {
            Some(writer) if self.pending > 0 => {
                self.pending = 0;
                writer.write_group(&columns)
            }
            _ => Ok(()),
        }
    }
}

fn empty() -> Vec<Column> {
    PACKETS.iter().map(|(_, kind)| Column::empty(*kind)).collect()
}

/// One cell of a row.
enum Value<'a> {
    Long(i64),
    OptionalLong(Option<i64>),
    Text(&'a ByteArray),
    OptionalText(Option<&'static str>),
    Boolean(bool),
}

impl Value<'_> {
    fn append_to(self, column: &mut Column) {
        match (column, self) {
            (Column::Long(values), Value::Long(value)) => values.push(value),
            (Column::OptionalLong(values), Value::OptionalLong(value)) => values.push(value),
            (Column::Text(values), Value::Text(value)) => values.push(value.clone()),
            (Column::OptionalText(values), Value::OptionalText(value)) => {
                values.push(value.map(ByteArray::from));
            }
            (Column::Boolean(values), Value::Boolean(value)) => values.push(value),
            _ => debug_assert!(false, "a row's values are those of the layout"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_page_names_every_column() {
        let page = include_str!("../../../docs/run-format.md");
        for (name, _) in PACKETS {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }
}
