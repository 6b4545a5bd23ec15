//! Tables for libraries of data frames, by the Arrow C data interface.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchIterator,
    RecordBatchReader as _,
};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use underload_store::{Column, Kind, RunData, Table, table_columns, table_groups};

use crate::errors::{OrRaise, raise};

/// A table in memory.
#[pyclass(frozen, module = "underload._underload")]
pub struct Frame {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

#[pymethods]
impl Frame {
    /// Returns a capsule of an `ArrowArrayStream`. The requested type is ignored, as the interface
    /// allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let batches = self.batches.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, Arc::clone(&self.schema));
        debug_assert_eq!(reader.schema(), self.schema);
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// Returns a capsule of an `ArrowSchema`.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.schema).or_raise(py, "Error")?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Returns the names of the columns and their Arrow types, in order.
    fn columns(&self) -> Vec<(String, String)> {
        let fields = self.schema.fields().iter();
        fields.map(|field| (field.name().clone(), field.data_type().to_string())).collect()
    }

    /// Returns the values of a column, `None` for a missing value.
    fn column<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let Ok(position) = self.schema.index_of(name) else {
            return Err(raise(py, "NoSuchColumn", (name, self.names())));
        };
        let mut values = Vec::with_capacity(self.__len__());
        for batch in &self.batches {
            add_values(py, batch.column(position), &mut values)?;
        }
        Ok(values)
    }
}

impl Frame {
    /// Returns a table of a run.
    pub fn of_run(py: Python<'_>, table: Table, data: &RunData) -> PyResult<Self> {
        let schema = schema(table_columns(table));
        let batches = py.detach(|| {
            let batch = |columns: Result<Vec<Column>, String>| {
                let columns = columns?.into_iter().map(array).collect::<Result<_, _>>();
                let batch = columns.and_then(|it| RecordBatch::try_new(Arc::clone(&schema), it));
                batch.map_err(|error| error.to_string())
            };
            table_groups(table, data).map(batch).collect::<Result<Vec<_>, String>>()
        });
        let batches = batches.map_err(|problem| raise(py, "StoreError", (problem,)))?;
        Ok(Self { schema, batches })
    }

    /// Returns a table of groups of rows.
    pub fn of_columns(
        py: Python<'_>,
        columns: &[(String, Kind)],
        groups: Vec<Vec<Column>>,
    ) -> PyResult<Self> {
        let columns: Vec<(&str, Kind)> =
            columns.iter().map(|(name, kind)| (name.as_str(), *kind)).collect();
        let schema = schema(&columns);
        let batch = |group: Vec<Column>| {
            let columns = group.into_iter().map(array).collect::<Result<_, _>>()?;
            RecordBatch::try_new(Arc::clone(&schema), columns)
        };
        let batches = groups
            .into_iter()
            .map(batch)
            .collect::<Result<_, ArrowError>>()
            .or_raise(py, "Error")?;
        Ok(Self { schema, batches })
    }

    /// Returns a table of one batch.
    pub fn of_arrays(py: Python<'_>, arrays: Vec<(&str, ArrayRef)>) -> PyResult<Self> {
        let batch = RecordBatch::try_from_iter(arrays).or_raise(py, "Error")?;
        Ok(Self { schema: batch.schema(), batches: vec![batch] })
    }

    fn names(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }
}

fn schema(columns: &[(&str, Kind)]) -> SchemaRef {
    let field = |(name, kind): &(&str, Kind)| {
        let (kind, is_optional) = match kind {
            Kind::Long => (DataType::Int64, false),
            Kind::OptionalLong => (DataType::Int64, true),
            Kind::Text => (DataType::Utf8, false),
            Kind::OptionalText => (DataType::Utf8, true),
            Kind::Boolean => (DataType::Boolean, false),
            Kind::Double => (DataType::Float64, false),
            Kind::OptionalDouble => (DataType::Float64, true),
            Kind::Bytes => (DataType::Binary, false),
            Kind::Longs | Kind::Counts => (DataType::new_list(DataType::Int64, false), false),
        };
        Field::new(*name, kind, is_optional)
    };
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

fn array(column: Column) -> Result<ArrayRef, ArrowError> {
    Ok(match column {
        Column::Long(values) => Arc::new(Int64Array::from(values)),
        Column::OptionalLong(values) => Arc::new(Int64Array::from(values)),
        Column::Boolean(values) => Arc::new(BooleanArray::from(values)),
        Column::Double(values) => Arc::new(Float64Array::from(values)),
        Column::OptionalDouble(values) => Arc::new(Float64Array::from(values)),
        Column::Text(values) => {
            let mut array = StringBuilder::with_capacity(values.len(), values.len() * 8);
            for value in &values {
                array.append_value(text(value.data())?);
            }
            Arc::new(array.finish())
        }
        Column::OptionalText(values) => {
            let mut array = StringBuilder::with_capacity(values.len(), values.len() * 8);
            for value in &values {
                array.append_option(value.as_ref().map(|value| text(value.data())).transpose()?);
            }
            Arc::new(array.finish())
        }
        Column::Bytes(_) | Column::Longs(_) | Column::Counts(_) => {
            let problem = "no table of a run has bytes or lists".to_owned();
            return Err(ArrowError::NotYetImplemented(problem));
        }
    })
}

fn text(bytes: &[u8]) -> Result<&str, ArrowError> {
    let text = std::str::from_utf8(bytes);
    text.map_err(|error| ArrowError::InvalidArgumentError(error.to_string()))
}

/// Appends the values of an array of a table.
fn add_values<'py>(
    py: Python<'py>,
    array: &ArrayRef,
    values: &mut Vec<Bound<'py, PyAny>>,
) -> PyResult<()> {
    use arrow_array::cast::AsArray as _;
    use arrow_array::types::{Float64Type, Int64Type, UInt8Type, UInt32Type, UInt64Type};

    fn add<'py, T: IntoPyObject<'py>>(
        py: Python<'py>,
        of: impl Iterator<Item = Option<T>>,
        values: &mut Vec<Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        for value in of {
            values.push(value.into_pyobject(py).map_err(Into::into)?.into_any());
        }
        Ok(())
    }
    match array.data_type() {
        DataType::Int64 => add(py, array.as_primitive::<Int64Type>().iter(), values),
        DataType::UInt64 => add(py, array.as_primitive::<UInt64Type>().iter(), values),
        DataType::UInt32 => add(py, array.as_primitive::<UInt32Type>().iter(), values),
        DataType::UInt8 => add(py, array.as_primitive::<UInt8Type>().iter(), values),
        DataType::Float64 => add(py, array.as_primitive::<Float64Type>().iter(), values),
        DataType::Boolean => add(py, array.as_boolean().iter(), values),
        DataType::Utf8 => add(py, array.as_string::<i32>().iter(), values),
        DataType::Dictionary(_, _) => {
            let words = array.as_dictionary::<UInt8Type>();
            let texts = words.values().as_string::<i32>();
            let word = |key: Option<u8>| key.map(|key| texts.value(usize::from(key)));
            add(py, words.keys().iter().map(word), values)
        }
        other => Err(raise(py, "Error", (format!("a column of {other} has no list"),))),
    }
}
