//! The tables as CSV (RFC 4180), with the columns of the Parquet files.

use std::borrow::Cow;
use std::io::{self, Write};

use underload_record::schema::{Marking, TrialRecord};

use super::read::RunData;
use super::rows;

/// Writes every sample; an empty field is a lost or unknown value.
///
/// # Errors
///
/// The error of the writer.
pub fn write_samples_csv(out: &mut impl Write, data: &RunData) -> io::Result<()> {
    header(out, rows::SAMPLES)?;
    for sample in &data.samples {
        let trial = data.record.trials.get(sample.trial as usize);
        let flow = trial.and_then(|trial| trial.flows.get(usize::from(sample.flow)));
        write!(
            out,
            "{},{},{},{},{},{},{},{},{},{},{}",
            sample.trial,
            field(arm(trial)),
            field(flow.map_or("", |flow| &flow.name)),
            sample.sequence,
            sample.phase,
            sample.closed_loop,
            sample.scheduled_ns,
            sample.sent_ns,
            optional(sample.rtt_ns),
            optional(sample.one_way_up_ns),
            optional(sample.one_way_down_ns),
        )?;
        for marking in [Some(sample.marking_sent), sample.marking_far, sample.marking_near] {
            let ecn = marking.map_or("", |marking: Marking| marking.ecn.name());
            write!(out, ",{},{ecn}", optional(marking.map(|marking| marking.dscp)))?;
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Writes every point of every series.
///
/// # Errors
///
/// The error of the writer.
pub fn write_series_csv(out: &mut impl Write, data: &RunData) -> io::Result<()> {
    header(out, rows::SERIES)?;
    for series in &data.series {
        let arm = field(arm(data.record.trials.get(series.trial as usize)));
        let (name, unit) = (field(&series.name), field(&series.unit));
        for point in &series.points {
            let (trial, time, value) = (series.trial, point.time_ns, point.value);
            writeln!(out, "{trial},{arm},{name},{unit},{time},{value}")?;
        }
    }
    Ok(())
}

pub(super) fn header(out: &mut impl Write, layout: &super::columns::Layout) -> io::Result<()> {
    let names: Vec<&str> = layout.iter().map(|(name, _)| *name).collect();
    writeln!(out, "{}", names.join(","))
}

fn arm(trial: Option<&TrialRecord>) -> &str {
    trial.map_or("", |trial| &trial.arm)
}

fn optional(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

pub(super) fn field(text: &str) -> Cow<'_, str> {
    if text.contains(['"', ',', '\n', '\r']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}
