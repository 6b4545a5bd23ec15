//! A flow that a program outside of this one makes.

use underload_record::schema::{FlowDirection, FlowRecord, Metric};

use crate::error::Result;

/// A flow that a program outside of this one makes.
pub(super) trait Task {
    fn begin(&mut self) -> Result<()>;

    /// Ends the traffic of the flow. Does nothing if it has ended.
    fn stop(&mut self);

    /// Ends the programs, and returns the records of the flow.
    fn finish(&mut self) -> Result<Outcome>;
}

/// The results of a flow that has ended.
pub(super) struct Outcome {
    pub records: Vec<FlowRecord>,
    /// Why the record is incomplete; `None` if it is complete.
    pub problem: Option<String>,
    /// Stored beside the record.
    pub text: Vec<u8>,
}

/// Returns the record of a flow of the kind `kind`.
pub(super) fn record(
    name: String,
    kind: &str,
    direction: FlowDirection,
    metrics: Vec<Metric>,
) -> FlowRecord {
    FlowRecord { name, kind: kind.to_owned(), direction, metrics, ..FlowRecord::default() }
}
