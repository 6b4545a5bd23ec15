//! The lines of a fleet: results in the Parquet files of its archive, or in a file with columns of the
//! same names that another program wrote.

use std::fs::File;
use std::path::Path;

use underload_record::history::Followed;
use underload_store::Kind;
use underload_store::table::{Cell, Layout, TableReader};

use super::{BeforeAfterError, Side};
use crate::history::Run;

/// The columns that are read. Each row of a result has a step with one series: round trips of probes
/// with a DSCP, or those inside the load, without one.
const COLUMNS: &Layout = &[
    ("device", Kind::Bytes),
    ("at_ms", Kind::Long),
    ("step", Kind::OptionalText),
    ("kind", Kind::OptionalText),
    ("firmware", Kind::OptionalText),
    ("dscp", Kind::OptionalLong),
    ("p50_us", Kind::OptionalLong),
    ("p99_us", Kind::OptionalLong),
    ("goodput_bit_per_s", Kind::OptionalLong),
];
/// The most rows of a file.
const ROWS_MAX: u64 = 50_000_000;
/// Rows to read at once.
const BATCH: usize = 4_096;

/// Adds the results in a file to the lines, each known by its device. `folder` names the group of
/// lines without a firmware.
pub(super) fn read(path: &Path, folder: &str, side: &mut Side) -> Result<(), BeforeAfterError> {
    let fault = |problem: String| {
        let known = COLUMNS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let problem = format!("{problem}; expected a fleet's results with the columns {known}");
        BeforeAfterError::Fleet { path: path.to_owned(), problem }
    };
    let file = File::open(path).map_err(|error| fault(error.to_string()))?;
    let rows = TableReader::new(file, COLUMNS, |_| true);
    let mut rows = rows.map_err(|error| fault(error.to_string()))?;
    if rows.rows_left() > ROWS_MAX {
        return Err(fault(format!("it has more than {ROWS_MAX} rows")));
    }
    let mut found = false;
    while let Some(columns) = rows.next(BATCH).map_err(|error| fault(error.to_string()))? {
        for row in 0..columns[0].rows() {
            let cells: Vec<Cell<'_>> = columns.iter().map(|column| column.cell(row)).collect();
            found |= add(&cells, folder, side).is_some();
        }
    }
    if found { Ok(()) } else { Err(fault("no row has a device, a time and a step".to_owned())) }
}

/// Adds a row. Returns `None` if it is not of a step of a device.
fn add(row: &[Cell<'_>], folder: &str, side: &mut Side) -> Option<()> {
    let [device, Cell::Long(at_ms), Cell::Text(step), Cell::Text(kind), more @ ..] = row else {
        return None;
    };
    let [firmware, dscp, p50_us, p99_us, rate] = more else { return None };
    let by = |cell: &Cell<'_>, unit: f64| match cell {
        Cell::Long(value) => Some(*value as f64 / unit),
        _ => None,
    };
    let (p50_ms, p99_ms, rate) = (by(p50_us, 1e3), by(p99_us, 1e3), by(rate, 1e6));
    let of_rate = if kind == "upload" { Followed::GoodputUp } else { Followed::GoodputDown };
    let values = match dscp {
        Cell::Absent => vec![(Followed::InsideP99, p99_ms)],
        _ if kind == "latency" => vec![(Followed::IdleP50, p50_ms)],
        _ => vec![(Followed::LoadP99, p99_ms), (Followed::LoadP50, p50_ms), (of_rate, rate)],
    };
    let name = Some(device.to_string()).filter(|name| !name.is_empty())?;
    let line = side.entry(name).or_default();
    line.group = match firmware {
        Cell::Text(firmware) if !firmware.is_empty() => firmware.to_string(),
        _ => folder.to_owned(),
    };
    let at_s = at_ms.div_euclid(1_000);
    if line.history.last().is_none_or(|run| run.at_s != at_s) {
        line.history.push(Run { at_s, label: String::new(), grade: None, steps: Vec::new() });
    }
    let steps = &mut line.history.last_mut()?.steps;
    if steps.last().is_none_or(|(name, _)| name != step) {
        steps.push((step.to_string(), Vec::new()));
    }
    let known = &mut steps.last_mut()?.1;
    for (followed, value) in values {
        // The first series of a step is that of the lowest DSCP.
        if known.iter().all(|(it, _)| *it != followed) {
            known.extend(value.map(|value| (followed, value)));
        }
    }
    Some(())
}
