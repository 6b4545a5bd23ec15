//! The lines of a fleet: results in the Parquet files of its archive, or in a file with columns of the
//! same names that another program wrote.

use std::fs::File;
use std::path::Path;

use underload_record::history::Followed;
use underload_store::table::{Cell, rows_by_name};

use super::{BeforeAfterError, Side};
use crate::history::Run;

/// The columns that are read. Each row of a result has a step with one series: round trips of probes
/// with a DSCP, or those inside the load, without one.
const COLUMNS: [&str; 9] = [
    "device", "at_ms", "step", "kind", "firmware", "dscp", "p50_us", "p99_us", "goodput_bit_per_s",
];
/// The most rows of a file.
const ROWS_MAX: i64 = 50_000_000;

/// Adds the results in a file to the lines, each known by its device. `folder` names the group of
/// lines without a firmware.
pub(super) fn read(path: &Path, folder: &str, side: &mut Side) -> Result<(), BeforeAfterError> {
    let fault = |problem: String| {
        let known = COLUMNS.join(", ");
        let problem = format!("{problem}; expected a fleet's results with the columns {known}");
        BeforeAfterError::Fleet { path: path.to_owned(), problem }
    };
    let file = File::open(path).map_err(|error| fault(error.to_string()))?;
    let mut found = false;
    let add = |row: &[Cell<'_>]| found |= add(row, folder, side).is_some();
    rows_by_name(file, &COLUMNS, ROWS_MAX, add).map_err(|error| fault(error.to_string()))?;
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
    line.group =
        Some(firmware.to_string()).filter(|it| !it.is_empty()).unwrap_or(folder.to_owned());
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
