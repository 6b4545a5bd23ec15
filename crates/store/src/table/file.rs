//! Parquet files of tables, written and read some rows at a time. Headers of damaged files are not
//! trusted.

use std::cell::Cell as ThreadCell;
use std::fs::File;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::reader::ColumnReader;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnDescriptor, ColumnPath, SchemaDescriptor, Type, TypePtr};

use super::{Cell, Column, Kind, Layout, empty, push};

/// Rows of a row group, unless [`TableWriter::with_group_rows`] says otherwise.
const GROUP_ROWS: usize = 1 << 16;

/// Writes a file, either whole row groups or row by row.
pub struct TableWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    kinds: Vec<Kind>,
    /// Rows of the next row group, which has `group_rows`.
    pending: Vec<Column>,
    group_rows: usize,
}

impl<W: Write + Send> TableWriter<W> {
    pub fn new<S: AsRef<str>>(file: W, layout: &Layout<S>) -> Result<Self> {
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_created_by(concat!("underload ", env!("CARGO_PKG_VERSION")).to_owned());
        for (name, kind) in layout {
            if let Some(path) = kind.path_of_differences(name.as_ref()) {
                properties = properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
            }
        }
        let properties = Arc::new(properties.build());
        let writer = SerializedFileWriter::new(file, schema(layout)?, properties)?;
        let kinds = layout.iter().map(|(_, kind)| *kind).collect();
        Ok(Self { writer, kinds, pending: empty(layout), group_rows: GROUP_ROWS })
    }

    /// Writes a row group after `rows` calls of [`TableWriter::push`], which are in memory until
    /// then.
    #[must_use]
    pub fn with_group_rows(self, rows: usize) -> Self {
        Self { group_rows: rows, ..self }
    }

    /// Adds a row.
    pub fn push<'a>(&mut self, cells: impl Iterator<Item = Cell<'a>>) -> Result<()> {
        push(&mut self.pending, cells);
        if self.pending_rows() >= self.group_rows { self.write_pending() } else { Ok(()) }
    }

    /// Adds a row group of columns of equal length, after the rows so far.
    pub fn write(&mut self, columns: &[Column]) -> Result<()> {
        self.write_pending()?;
        self.write_group(columns)
    }

    pub fn finish(mut self) -> Result<W> {
        self.write_pending()?;
        self.writer.into_inner()
    }

    fn pending_rows(&self) -> usize {
        self.pending.first().map_or(0, Column::rows)
    }

    fn write_pending(&mut self) -> Result<()> {
        if self.pending_rows() == 0 {
            return Ok(());
        }
        let empty = self.kinds.iter().copied().map(Column::empty).collect();
        let columns = std::mem::replace(&mut self.pending, empty);
        self.write_group(&columns)
    }

    fn write_group(&mut self, columns: &[Column]) -> Result<()> {
        let mut group = self.writer.next_row_group()?;
        for column in columns {
            let Some(mut writer) = group.next_column()? else { break };
            column.write(&mut writer)?;
            writer.close()?;
        }
        group.close().map(drop)
    }

    /// Copies the row groups of a file with the same columns without decoding them.
    pub fn append_file(&mut self, input: &File) -> Result<()> {
        guarded(|| {
            let reader = SerializedFileReader::new(input.try_clone()?)?;
            for metadata in reader.metadata().row_groups() {
                let mut group = self.writer.next_row_group()?;
                for column in metadata.columns() {
                    let copied = ColumnCloseResult {
                        bytes_written: u64::try_from(column.compressed_size()).unwrap_or(0),
                        rows_written: u64::try_from(metadata.num_rows()).unwrap_or(0),
                        metadata: column.clone(),
                        bloom_filter: None,
                        column_index: None,
                        offset_index: None,
                    };
                    group.append_column(input, copied)?;
                }
                group.close()?;
            }
            Ok(())
        })
    }
}

/// Reads columns of a file in batches of rows.
pub struct TableReader<R: ChunkReader + 'static = File> {
    file: SerializedFileReader<R>,
    /// Kinds of all columns, and their positions in the file; `None` for columns that are not read.
    columns: Vec<(Kind, Option<usize>)>,
    /// Positions of the row groups to read, last one first.
    groups: Vec<usize>,
    /// The columns of the current row group; `None` for a column that is not read.
    open: Vec<Option<ColumnReader>>,
    /// Unread rows of the current row group.
    rows_left: usize,
}

impl<R: ChunkReader + 'static> TableReader<R> {
    /// Opens a file, which any program may have written: its columns are found by their names, in
    /// any order and beside others. Columns whose names `is_read` rejects are not read: their
    /// numbers are 0 or `None`, and their texts are empty; a missing optional column is `None`, too.
    ///
    /// # Errors
    /// Returns an error if the file is damaged, or if a column is missing or has another type.
    pub fn new<S: AsRef<str>>(
        file: R,
        layout: &Layout<S>,
        is_read: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        let file = guarded(|| SerializedFileReader::new(file))?;
        let found = file.metadata().file_metadata().schema_descr();
        let expected = SchemaDescriptor::new(schema(layout)?);
        // Each column of a layout is one column of a file.
        let columns = layout.iter().zip(expected.columns()).map(|((name, kind), column)| {
            let position = position(found, name.as_ref(), column)?;
            Ok((*kind, position.filter(|_| is_read(name.as_ref()))))
        });
        let columns = columns.collect::<Result<_>>()?;
        let groups = (0..file.num_row_groups()).rev().collect();
        Ok(Self { file, columns, groups, open: Vec::new(), rows_left: 0 })
    }

    /// Skips row groups that have one number in the first column, which `is_wanted` rejects.
    pub fn skip_groups(&mut self, is_wanted: impl Fn(i64) -> bool) {
        let metadata = self.file.metadata();
        let Some((_, Some(first))) = self.columns.first() else { return };
        let only = |group: &usize| only_number(metadata.row_group(*group).column(*first));
        self.groups.retain(|group| only(group).is_none_or(&is_wanted));
    }

    /// Returns the number of unread rows.
    pub fn rows_left(&self) -> u64 {
        let rows = |group: &usize| self.file.metadata().row_group(*group).num_rows();
        let in_groups = self.groups.iter().map(|group| u64::try_from(rows(group)).unwrap_or(0));
        in_groups.fold(self.rows_left as u64, u64::saturating_add)
    }

    /// Reads the columns of the next rows of a row group, `most` at most; `None` at the end.
    pub fn next(&mut self, most: usize) -> Result<Option<Vec<Column>>> {
        guarded(|| {
            while self.rows_left == 0 {
                let Some(group) = self.groups.pop() else { return Ok(None) };
                self.open_group(group)?;
            }
            let rows = self.rows_left.min(most);
            self.rows_left -= rows;
            let columns = self.open.iter_mut().zip(&self.columns);
            let schema = self.file.metadata().file_metadata().schema_descr();
            let columns = columns.map(|(open, (kind, position))| match (open, position) {
                (Some(open), Some(position)) => {
                    let column = schema.column(*position);
                    let named = |error| named(column.path(), error);
                    Column::read(*kind, open, rows, column.max_def_level()).map_err(named)
                }
                _ => Ok(Column::absent(*kind, rows)),
            });
            columns.collect::<Result<_>>().map(Some)
        })
    }

    fn open_group(&mut self, group: usize) -> Result<()> {
        let group = self.file.get_row_group(group)?;
        let rows = usize::try_from(group.metadata().num_rows());
        self.rows_left =
            rows.map_err(|_| ParquetError::General("a row group of an invalid size".to_owned()))?;
        self.open.clear();
        for (_, position) in &self.columns {
            let column = position.map(|position| group.get_column_reader(position));
            self.open.push(column.transpose()?);
        }
        Ok(())
    }
}

/// Returns the position of a column in a file; `None` if it is missing and optional. Whether a
/// column of the file may lack values does not matter.
fn position(
    found: &SchemaDescriptor,
    name: &str,
    expected: &ColumnDescriptor,
) -> Result<Option<usize>> {
    let is_list = expected.max_rep_level() > 0;
    let has_name = |position: &usize| {
        found.column(*position).path().parts().first().is_some_and(|own| own == name)
    };
    let mut of_name = (0..found.num_columns()).filter(has_name);
    let (Some(position), None) = (of_name.next(), of_name.next()) else {
        if !is_list && expected.max_def_level() > 0 {
            return Ok(None);
        }
        return Err(ParquetError::General(format!("it has no column `{name}`")));
    };
    let column = found.column(position);
    let is_as_expected = column.physical_type() == expected.physical_type()
        && column.max_rep_level() == expected.max_rep_level()
        && (is_list || column.path().parts().len() == 1);
    if is_as_expected {
        return Ok(Some(position));
    }
    let (list, kind) = (if is_list { "a list of " } else { "" }, expected.physical_type());
    let problem = format!("its column `{name}` has another type; expected {list}{kind}");
    Err(ParquetError::General(problem))
}

/// Adds the name of a column to an error.
fn named(path: &ColumnPath, error: ParquetError) -> ParquetError {
    match error {
        ParquetError::General(problem) => {
            ParquetError::General(format!("its column `{}`: {problem}", path.string()))
        }
        other => other,
    }
}

fn only_number(column: &ColumnChunkMetaData) -> Option<i64> {
    let Some(Statistics::Int64(statistics)) = column.statistics() else { return None };
    let (min, max) = (statistics.min_opt()?, statistics.max_opt()?);
    (min == max).then_some(*min)
}

fn schema<S: AsRef<str>>(layout: &Layout<S>) -> Result<TypePtr> {
    let fields = layout.iter().map(|(name, kind)| kind.field(name.as_ref()).map(Arc::new));
    let fields = fields.collect::<Result<_>>()?;
    Ok(Arc::new(Type::group_type_builder("underload").with_fields(fields).build()?))
}
thread_local! {
    /// Whether this thread is in [`guarded`].
    static IS_GUARDED: ThreadCell<bool> = const { ThreadCell::new(false) };
}

/// Runs a step of the Parquet library. Some of its checks panic on damaged files: such a panic
/// becomes an error, and is not printed.
fn guarded<T>(step: impl FnOnce() -> Result<T>) -> Result<T> {
    static HOOK: Once = Once::new();
    if !std::thread::panicking() {
        HOOK.call_once(print_unless_guarded);
    }
    let is_within_another = IS_GUARDED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(step));
    IS_GUARDED.set(is_within_another);
    done.unwrap_or_else(|panic| {
        let reason = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(ParquetError::General(reason.unwrap_or("unreadable").to_owned()))
    })
}

/// Prints panics as the previous hook does, except those in [`guarded`].
fn print_unless_guarded() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !IS_GUARDED.get() {
            print(panic);
        }
    }));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use parquet::column::writer::ColumnWriter;

    use super::*;
    use crate::table::Table as _;

    struct Sample<'a>(&'a str, Vec<i64>);

    crate::table! {
        struct Own of row: Sample {
            at: Long = 7_i64;
            note: OptionalText = row.0;
            bins: Longs = row.1.clone();
        }
    }

    /// Reads a file of three rows as another program writes it: its root has another name, and all
    /// columns may lack values. Numbers are present where `present` is 1.
    fn read_foreign(columns: &[&str], present: [i16; 3]) -> Result<Vec<Column>> {
        let schema = format!("message schema {{ {} }}", columns.join(" "));
        let schema = Arc::new(parquet::schema::parser::parse_message_type(&schema)?);
        let file = tempfile::tempfile()?;
        let mut writer = SerializedFileWriter::new(file.try_clone()?, schema, Arc::default())?;
        let mut group = writer.next_row_group()?;
        while let Some(mut column) = group.next_column()? {
            match column.untyped() {
                // The lists [1, 2], none and [].
                ColumnWriter::Int64ColumnWriter(it) if it.get_descriptor().max_rep_level() > 0 => {
                    it.write_batch(&[1, 2], Some(&[3, 3, 0, 1]), Some(&[0, 1, 0, 0]))?;
                }
                ColumnWriter::Int64ColumnWriter(it) => {
                    it.write_batch(&[5, 6, 7], Some(&present), None)?;
                }
                ColumnWriter::ByteArrayColumnWriter(it) => {
                    it.write_batch(&["a".into(), "b".into()], Some(&[1, 0, 1]), None)?;
                }
                _ => panic!("a type that this test does not write"),
            }
            column.close()?;
        }
        group.close()?;
        writer.into_inner()?;
        let mut reader = TableReader::new(file, Own::LAYOUT, |_| true)?;
        reader.next(9).map(|columns| columns.expect("three rows"))
    }

    const AT: &str = "optional int64 at;";
    const NOTE: &str = "optional binary note (UTF8);";
    const BINS: &str =
        "optional group bins (LIST) { repeated group list { optional int64 item; } }";

    #[test]
    fn columns_of_other_programs_are_found_by_name() {
        let more = "optional int64 other; optional group more { optional int64 at; }";
        let columns = read_foreign(&[BINS, more, NOTE, AT], [1; 3]).expect("it reads");
        let read = Own::view(&columns).expect("they are as declared");
        assert_eq!(read.at, [5, 6, 7]);
        let notes: Vec<_> = (0..3).map(|row| columns[1].text(row)).collect();
        assert_eq!(notes, [Some("a"), None, Some("b")]);
        assert_eq!(
            [0, 1, 2].map(|row| read.bins.get(row)),
            [Some(&[1, 2][..]), Some(&[]), Some(&[])]
        );
        let columns = read_foreign(&[AT, BINS], [1; 3]).expect("it reads");
        assert_eq!(Own::view(&columns).expect("they are as declared").note, [None, None, None]);
    }

    #[test]
    fn missing_columns_and_values_and_other_types_are_errors_with_the_column() {
        let number = "optional int64 note;";
        for (columns, present, expected) in [
            (&[BINS, NOTE][..], [1; 3], "no column `at`"),
            (&[AT, NOTE], [1; 3], "no column `bins`"),
            (&[AT, BINS, NOTE], [1, 0, 1], "its column `at`: a row has no value"),
            (&[AT, BINS, number], [1; 3], "`note` has another type; expected BYTE_ARRAY"),
            (
                &[AT, "optional int64 bins;"],
                [1; 3],
                "`bins` has another type; expected a list of INT64",
            ),
            (&["required group at { optional int64 at; }", BINS], [1; 3], "`at` has another type"),
        ] {
            let said = read_foreign(columns, present).expect_err("it is refused").to_string();
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn a_check_of_the_library_that_fails_is_an_error_and_prints_nothing() {
        let printed = Arc::new(AtomicUsize::new(0));
        let (count, this) = (Arc::clone(&printed), std::thread::current().id());
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().id() == this {
                count.fetch_add(1, Ordering::Relaxed);
            } else {
                print(panic);
            }
        }));
        print_unless_guarded();
        let error = guarded::<()>(|| {
            let nested = guarded::<()>(|| panic!("the length is negative"));
            assert!(nested.is_err(), "an error");
            panic!("so is the start")
        });
        let said = error.expect_err("it panics").to_string();
        assert!(said.contains("so is the start"), "{said}");
        assert_eq!(printed.load(Ordering::Relaxed), 0);
        assert!(catch_unwind(|| panic!("ours")).is_err());
        assert_eq!(printed.load(Ordering::Relaxed), 1, "others are printed as before");
    }
}
