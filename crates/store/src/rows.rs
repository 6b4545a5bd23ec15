//! Converts samples and series to rows of tables, and back.

use parquet::data_type::ByteArray;
use underload_record::schema::{
    Ecn, FlowRecord, Marking, Phase, Sample, Series, SeriesPoint, TrialRecord,
};

use crate::table;
use crate::table::{Column, Table as _};

/// A sample with the names of its variant and its flow.
pub(crate) struct SampleRow<'a> {
    pub(crate) variant: &'a str,
    pub(crate) flow: &'a str,
    pub(crate) sample: &'a Sample,
}

table! {
    /// The columns of `samples.parquet`.
    pub(crate) struct Samples of row: SampleRow {
        trial: Long = row.sample.trial;
        variant: Text = row.variant;
        flow: Text = row.flow;
        sequence: Long = row.sample.sequence;
        phase: Text = row.sample.phase.name();
        closed_loop: Boolean = row.sample.closed_loop;
        scheduled_ns: Long = row.sample.scheduled_ns;
        sent_ns: Long = row.sample.sent_ns;
        rtt_ns: OptionalLong = row.sample.rtt_ns;
        one_way_up_ns: OptionalLong = row.sample.one_way_up_ns;
        one_way_down_ns: OptionalLong = row.sample.one_way_down_ns;
        dscp_sent: Long = row.sample.marking_sent.dscp;
        ecn_sent: Text = row.sample.marking_sent.ecn.name();
        dscp_far: OptionalLong = row.sample.marking_far.map(|marking| marking.dscp);
        ecn_far: OptionalText = row.sample.marking_far.map(|marking| marking.ecn.name());
        dscp_near: OptionalLong = row.sample.marking_near.map(|marking| marking.dscp);
        ecn_near: OptionalText = row.sample.marking_near.map(|marking| marking.ecn.name());
    }
}

/// A point of a series with the name of its variant.
pub(crate) struct PointRow<'a> {
    pub(crate) variant: &'a str,
    pub(crate) series: &'a Series,
    pub(crate) point: &'a SeriesPoint,
}

table! {
    /// The columns of `series.parquet`.
    pub(crate) struct Points of row: PointRow {
        trial: Long = row.series.trial;
        variant: Text = row.variant;
        name: Text = &row.series.name;
        unit: Text = &row.series.unit;
        time_ns: Long = row.point.time_ns;
        value: Double = row.point.value;
    }
}

/// Converts the samples of a trial to columns. Rejects samples of another trial or of an unknown
/// flow, and numbers beyond the range.
pub(crate) fn from_samples(trial: &TrialRecord, samples: &[Sample]) -> Result<Vec<Column>, String> {
    for sample in samples {
        if sample.trial != trial.index {
            return Err(format!("a sample of trial {} in trial {}", sample.trial, trial.index));
        }
        if usize::from(sample.flow) >= trial.flows.len() {
            return Err(format!("a sample of the unknown flow {}", sample.flow));
        }
        let Sample { sequence, scheduled_ns, sent_ns, rtt_ns, .. } = *sample;
        [sequence, scheduled_ns, sent_ns, rtt_ns.unwrap_or(0)]
            .into_iter()
            .try_for_each(in_range)?;
    }
    Ok(Samples::columns(samples.iter().map(|sample| SampleRow {
        variant: &trial.variant,
        flow: &trial.flows[usize::from(sample.flow)].name,
        sample,
    })))
}

/// Appends the rows of one row group to `samples`. Rejects rows that do not belong to `trials`.
pub(crate) fn to_samples(
    columns: &[Column],
    trials: &[TrialRecord],
    samples: &mut Vec<Sample>,
) -> Result<(), String> {
    let rows = Samples::view(columns).ok_or("other columns than those of samples")?;
    for row in 0..rows.trial.len() {
        let (index, record) = trial_of(rows.trial[row], trials)?;
        let is_named = |known: &FlowRecord| known.name.as_bytes() == rows.flow[row].data();
        let position = record.flows.iter().position(is_named);
        let flow = position.and_then(|position| u16::try_from(position).ok());
        samples.push(Sample {
            trial: index,
            flow: flow.ok_or_else(|| format!("row {row}: trial {index} has no such flow"))?,
            sequence: from_long(rows.sequence[row])?,
            phase: Phase::from_name(utf8(&rows.phase[row])?)
                .ok_or_else(|| format!("row {row}: no such phase"))?,
            closed_loop: rows.closed_loop[row],
            scheduled_ns: from_long(rows.scheduled_ns[row])?,
            sent_ns: from_long(rows.sent_ns[row])?,
            rtt_ns: rows.rtt_ns[row].map(from_long).transpose()?,
            one_way_up_ns: rows.one_way_up_ns[row],
            one_way_down_ns: rows.one_way_down_ns[row],
            marking_sent: marking(rows.dscp_sent[row], &rows.ecn_sent[row])?,
            marking_far: optional_marking(rows.dscp_far[row], rows.ecn_far[row].as_ref())?,
            marking_near: optional_marking(rows.dscp_near[row], rows.ecn_near[row].as_ref())?,
        });
    }
    Ok(())
}

/// Converts the series of a trial to columns. Rejects series of another trial, and times beyond the
/// range.
pub(crate) fn from_series(trial: &TrialRecord, series: &[Series]) -> Result<Vec<Column>, String> {
    for series in series {
        if series.trial != trial.index {
            return Err(format!("a series of trial {} in trial {}", series.trial, trial.index));
        }
        series.points.iter().try_for_each(|point| in_range(point.time_ns))?;
    }
    Ok(Points::columns(series.iter().flat_map(|series| points(&trial.variant, series))))
}

pub(crate) fn points<'a>(
    variant: &'a str,
    series: &'a Series,
) -> impl Iterator<Item = PointRow<'a>> {
    series.points.iter().map(move |point| PointRow { variant, series, point })
}

/// Appends the rows of one row group to `all`. Rows of one series are consecutive. Rejects rows
/// that do not belong to `trials`.
pub(crate) fn to_series(
    columns: &[Column],
    trials: &[TrialRecord],
    all: &mut Vec<Series>,
) -> Result<(), String> {
    let rows = Points::view(columns).ok_or("other columns than those of series")?;
    for row in 0..rows.trial.len() {
        let (index, _) = trial_of(rows.trial[row], trials)?;
        let point = SeriesPoint { time_ns: from_long(rows.time_ns[row])?, value: rows.value[row] };
        let (name, unit) = (utf8(&rows.name[row])?, utf8(&rows.unit[row])?);
        match all.last_mut() {
            Some(last) if last.trial == index && last.name == name => last.points.push(point),
            _ => all.push(Series {
                trial: index,
                name: name.to_owned(),
                unit: unit.to_owned(),
                points: vec![point],
            }),
        }
    }
    Ok(())
}

fn in_range(value: u64) -> Result<(), String> {
    let long = i64::try_from(value);
    long.map(drop).map_err(|_| format!("{value} exceeds 63 bits"))
}

fn from_long(value: i64) -> Result<u64, String> {
    u64::try_from(value).map_err(|_| format!("{value} is negative"))
}

fn trial_of(value: i64, trials: &[TrialRecord]) -> Result<(u32, &TrialRecord), String> {
    let index = u32::try_from(value).ok();
    let trial = index.and_then(|index| {
        // The index may differ from the position in an incomplete run, because trials may be
        // missing.
        let at = trials.get(index as usize).filter(|trial| trial.index == index);
        let find = || trials.binary_search_by_key(&index, |trial| trial.index).ok();
        Some((index, at.or_else(|| trials.get(find()?))?))
    });
    trial.ok_or_else(|| format!("a row of trial {value}, which run.json does not have"))
}

fn marking(dscp: i64, ecn: &ByteArray) -> Result<Marking, String> {
    let dscp = u8::try_from(dscp).ok().filter(|dscp| *dscp < 64);
    let dscp = dscp.ok_or_else(|| "a DSCP that is not in 0..=63".to_owned())?;
    let ecn = Ecn::from_name(utf8(ecn)?).ok_or_else(|| "no such ECN codepoint".to_owned())?;
    Ok(Marking { dscp, ecn })
}

fn optional_marking(dscp: Option<i64>, ecn: Option<&ByteArray>) -> Result<Option<Marking>, String> {
    match (dscp, ecn) {
        (Some(dscp), Some(ecn)) => marking(dscp, ecn).map(Some),
        (None, None) => Ok(None),
        _ => Err("a DSCP without ECN, or ECN without DSCP".to_owned()),
    }
}

fn utf8(value: &ByteArray) -> Result<&str, String> {
    value.as_utf8().map_err(|_| "text that is not UTF-8".to_owned())
}
