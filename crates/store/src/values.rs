//! Reads and writes values of Parquet columns, and does not trust the headers of damaged files.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::DataType;
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedColumnWriter;
use parquet::schema::types::ColumnPath;

/// Rows decoded at a time, which bounds the memory that a damaged header can allocate.
const BATCH_ROWS: usize = 1 << 16;

/// Reads the next `rows` values of a column that has one in each row.
pub fn required<T: DataType>(column: &mut ColumnReaderImpl<T>, rows: usize) -> Result<Vec<T::T>> {
    let mut values = Vec::new();
    while values.len() < rows {
        let batch = (rows - values.len()).min(BATCH_ROWS);
        let (read, _, _) = column.read_records(batch, None, None, &mut values)?;
        if read == 0 {
            return Err(ParquetError::EOF(format!("{} of {rows} rows", values.len())));
        }
    }
    Ok(values)
}

/// Reads the next `rows` rows of a column that may lack values.
pub fn optional<T: DataType>(
    column: &mut ColumnReaderImpl<T>,
    rows: usize,
) -> Result<Vec<Option<T::T>>> {
    let (mut levels, mut present) = (Vec::new(), Vec::new());
    while levels.len() < rows {
        let batch = (rows - levels.len()).min(BATCH_ROWS);
        let (read, _, _) = column.read_records(batch, Some(&mut levels), None, &mut present)?;
        if read == 0 {
            return Err(ParquetError::EOF(format!("{} of {rows} rows", levels.len())));
        }
    }
    let mut present = present.into_iter();
    let filled = levels.iter().map(|level| match level {
        0 => Ok(None),
        _ => present
            .next()
            .map(Some)
            .ok_or_else(|| ParquetError::General("fewer values than its levels say".to_owned())),
    });
    filled.collect()
}

/// Returns the values that exist, and for each row 1 if it has one or else 0.
fn with_levels<T: Clone>(values: &[Option<T>]) -> (Vec<T>, Vec<i16>) {
    let levels = values.iter().map(|value| i16::from(value.is_some())).collect();
    (values.iter().flatten().cloned().collect(), levels)
}

/// Writes a column that has a value in each row.
pub fn write_required<T: DataType>(
    values: &[T::T],
    writer: &mut SerializedColumnWriter<'_>,
) -> Result<usize> {
    writer.typed::<T>().write_batch(values, None, None)
}

/// Writes a column that may lack values.
pub fn write_optional<T: DataType>(
    values: &[Option<T::T>],
    writer: &mut SerializedColumnWriter<'_>,
) -> Result<usize> {
    let (present, levels) = with_levels(values);
    writer.typed::<T>().write_batch(&present, Some(&levels), None)
}

/// Returns the properties of all tables that this program writes.
pub fn compressed() -> Result<WriterPropertiesBuilder> {
    Ok(WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_created_by(concat!("underload ", env!("CARGO_PKG_VERSION")).to_owned()))
}

/// Stores the differences between the numbers of a column that rarely repeats and grows steadily.
pub fn as_differences(
    properties: WriterPropertiesBuilder,
    column: ColumnPath,
) -> WriterPropertiesBuilder {
    properties
        .set_column_dictionary_enabled(column.clone(), false)
        .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED)
}

thread_local! {
    /// Whether this thread is in [`guarded`].
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a step of the Parquet library. Some of its checks panic on damaged files: such a panic
/// becomes an error, and is not printed.
pub fn guarded<T>(step: impl FnOnce() -> Result<T>) -> Result<T> {
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

    use super::*;

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
