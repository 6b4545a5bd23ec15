//! What every picture has.

use underload_record::schema::PlotRecord;
use underload_store::RunData;

/// What every picture has.
pub(super) struct Frame<'a> {
    pub(super) name: &'a str,
    pub(super) plot: &'a PlotRecord,
    pub(super) caption: String,
}

/// What a picture is drawn from.
pub(super) struct Picture<'a> {
    pub(super) name: String,
    pub(super) plot: &'a PlotRecord,
    pub(super) run: &'a RunData,
}

/// Rows that the ticks of an axis to the right and its name take.
pub(super) const X_ROWS: u32 = 36;
