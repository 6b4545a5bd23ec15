//! Converts samples and series to rows of tables, and back.

use std::borrow::Cow;

use parquet::data_type::ByteArray;
use underload_record::schema::{
    Ecn, FlowRecord, Marking, Phase, Sample, Series, SeriesPoint, TrialRecord,
};

use crate::columns::Get::{Boolean, Double, Long, OptionalLong, OptionalText, Text};
use crate::columns::{Column, Get, Group, Schema, utf8};

/// The columns of `samples.parquet`.
pub(crate) struct Samples;

/// A sample with the names of its variant and its flow.
pub(crate) struct SampleRow<'a> {
    pub(crate) variant: &'a str,
    pub(crate) flow: &'a str,
    pub(crate) sample: &'a Sample,
}

impl Schema for Samples {
    type Row<'a> = SampleRow<'a>;

    const COLUMNS: &'static [(&'static str, Get<Self>)] = &[
        ("trial", Long(|row| row.sample.trial.into())),
        ("variant", Text(|row| row.variant.into())),
        ("flow", Text(|row| row.flow.into())),
        ("sequence", Long(|row| row.sample.sequence.into())),
        ("phase", Text(|row| row.sample.phase.name().into())),
        ("closed_loop", Boolean(|row| row.sample.closed_loop)),
        ("scheduled_ns", Long(|row| row.sample.scheduled_ns.into())),
        ("sent_ns", Long(|row| row.sample.sent_ns.into())),
        ("rtt_ns", OptionalLong(|row| row.sample.rtt_ns.map(Into::into))),
        ("one_way_up_ns", OptionalLong(|row| row.sample.one_way_up_ns.map(Into::into))),
        ("one_way_down_ns", OptionalLong(|row| row.sample.one_way_down_ns.map(Into::into))),
        ("dscp_sent", Long(|row| row.sample.marking_sent.dscp.into())),
        ("ecn_sent", Text(|row| row.sample.marking_sent.ecn.name().into())),
        ("dscp_far", OptionalLong(|row| dscp(row.sample.marking_far))),
        ("ecn_far", OptionalText(|row| ecn(row.sample.marking_far))),
        ("dscp_near", OptionalLong(|row| dscp(row.sample.marking_near))),
        ("ecn_near", OptionalText(|row| ecn(row.sample.marking_near))),
    ];
}

/// The columns of `series.parquet`.
pub(crate) struct Points;

/// A point of a series with the name of its variant.
pub(crate) struct PointRow<'a> {
    pub(crate) variant: &'a str,
    pub(crate) series: &'a Series,
    pub(crate) point: &'a SeriesPoint,
}

impl Schema for Points {
    type Row<'a> = PointRow<'a>;

    const COLUMNS: &'static [(&'static str, Get<Self>)] = &[
        ("trial", Long(|row| row.series.trial.into())),
        ("variant", Text(|row| row.variant.into())),
        ("name", Text(|row| (&row.series.name).into())),
        ("unit", Text(|row| (&row.series.unit).into())),
        ("time_ns", Long(|row| row.point.time_ns.into())),
        ("value", Double(|row| row.point.value)),
    ];
}

fn dscp(marking: Option<Marking>) -> Option<i128> {
    marking.map(|marking| marking.dscp.into())
}

fn ecn(marking: Option<Marking>) -> Option<Cow<'static, str>> {
    marking.map(|marking| marking.ecn.name().into())
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
    let group = Group { layout: &Samples::layout(), columns };
    let trial: &[i64] = group.get("trial")?;
    let flow: &[ByteArray] = group.get("flow")?;
    let sequence = group.get("sequence")?;
    let phase = group.get("phase")?;
    let closed_loop = group.get("closed_loop")?;
    let (scheduled, sent) = (group.get("scheduled_ns")?, group.get("sent_ns")?);
    let rtt: &[Option<i64>] = group.get("rtt_ns")?;
    let (up, down) = (group.get("one_way_up_ns")?, group.get("one_way_down_ns")?);
    let sent_with = (group.get("dscp_sent")?, group.get("ecn_sent")?);
    let far = (group.get("dscp_far")?, group.get::<Option<ByteArray>>("ecn_far")?);
    let near = (group.get("dscp_near")?, group.get::<Option<ByteArray>>("ecn_near")?);
    for row in 0..trial.len() {
        let (index, record) = trial_of(trial[row], trials)?;
        let is_named = |known: &FlowRecord| known.name.as_bytes() == flow[row].data();
        let position = record.flows.iter().position(is_named);
        let flow = position.and_then(|position| u16::try_from(position).ok());
        samples.push(Sample {
            trial: index,
            flow: flow.ok_or_else(|| format!("row {row}: trial {index} has no such flow"))?,
            sequence: from_long(sequence[row])?,
            phase: Phase::from_name(utf8(&phase[row])?)
                .ok_or_else(|| format!("row {row}: no such phase"))?,
            closed_loop: closed_loop[row],
            scheduled_ns: from_long(scheduled[row])?,
            sent_ns: from_long(sent[row])?,
            rtt_ns: rtt[row].map(from_long).transpose()?,
            one_way_up_ns: up[row],
            one_way_down_ns: down[row],
            marking_sent: marking(sent_with.0[row], &sent_with.1[row])?,
            marking_far: optional_marking(far.0[row], far.1[row].as_ref())?,
            marking_near: optional_marking(near.0[row], near.1[row].as_ref())?,
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
    let group = Group { layout: &Points::layout(), columns };
    let (trial, time) = (group.get::<i64>("trial")?, group.get("time_ns")?);
    let (name, unit) = (group.get("name")?, group.get("unit")?);
    let value = group.get("value")?;
    for row in 0..trial.len() {
        let (index, _) = trial_of(trial[row], trials)?;
        let point = SeriesPoint { time_ns: from_long(time[row])?, value: value[row] };
        let (name, unit) = (utf8(&name[row])?, utf8(&unit[row])?);
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
