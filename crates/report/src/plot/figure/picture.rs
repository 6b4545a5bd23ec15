//! The inputs that all kinds of pictures share.

use underload_record::schema::PlotRecord;
use underload_store::RunData;

/// The name, record and caption that a picture of any kind is painted with.
pub(super) struct Frame<'a> {
    pub(super) name: &'a str,
    pub(super) plot: &'a PlotRecord,
    pub(super) caption: String,
}

/// The inputs of a picture: its record and the run whose data it shows.
pub(super) struct Picture<'a> {
    pub(super) name: String,
    pub(super) plot: &'a PlotRecord,
    pub(super) run: &'a RunData,
}

/// Height of the tick names and the axis name below a panel, pixels.
pub(super) const X_ROWS: u32 = 36;
