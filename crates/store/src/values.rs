//! Values of Parquet columns, one by one and checked: what a damaged file says of itself is not
//! believed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::DataType;
use parquet::errors::{ParquetError, Result};

/// Rows decoded at a time. Also bounds what a damaged header can make us allocate.
const BATCH_ROWS: usize = 1 << 16;

/// The next so many values of a column that has one in each row.
///
/// # Errors
/// There are fewer, or they cannot be read.
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

/// The next so many rows of a column that has no value in some.
///
/// # Errors
/// As [`required`].
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

/// The values that are there, and for each row whether one is.
pub fn with_levels<T: Clone>(values: &[Option<T>]) -> (Vec<T>, Vec<i16>) {
    let levels = values.iter().map(|value| i16::from(value.is_some())).collect();
    (values.iter().flatten().cloned().collect(), levels)
}

/// Runs a step of the Parquet library. On damaged files some of its internal checks panic; the file
/// is what is wrong, so that becomes an error like any other.
///
/// # Errors
/// The step's, or what the check said.
pub fn guarded<T>(step: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|panic| {
        let reason = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(ParquetError::General(reason.unwrap_or("unreadable").to_owned()))
    })
}
