//! Samples and series as columns, and back.

use parquet::data_type::ByteArray;
use underload_record::schema::{Ecn, Marking, Phase, Sample, Series, SeriesPoint, TrialRecord};

use super::columns::{Column, Kind, Layout};

/// Columns of `samples.parquet`.
pub(super) const SAMPLES: &Layout = &[
    ("trial", Kind::Long),
    ("arm", Kind::Text),
    ("flow", Kind::Text),
    ("sequence", Kind::Long),
    ("phase", Kind::Text),
    ("closed_loop", Kind::Boolean),
    ("scheduled_ns", Kind::Long),
    ("sent_ns", Kind::Long),
    ("rtt_ns", Kind::OptionalLong),
    ("one_way_up_ns", Kind::OptionalLong),
    ("one_way_down_ns", Kind::OptionalLong),
    ("dscp_sent", Kind::Long),
    ("ecn_sent", Kind::Text),
    ("dscp_far", Kind::OptionalLong),
    ("ecn_far", Kind::OptionalText),
    ("dscp_near", Kind::OptionalLong),
    ("ecn_near", Kind::OptionalText),
];

/// Columns of `series.parquet`.
pub(super) const SERIES: &Layout = &[
    ("trial", Kind::Long),
    ("arm", Kind::Text),
    ("name", Kind::Text),
    ("unit", Kind::Text),
    ("time_ns", Kind::Long),
    ("value", Kind::Double),
];

/// The samples of a trial as columns, or what is wrong with one of them.
pub(super) fn from_samples(trial: &TrialRecord, samples: &[Sample]) -> Result<Vec<Column>, String> {
    let flows: Vec<ByteArray> = trial.flows.iter().map(|flow| text(&flow.name)).collect();
    let mut names = Vec::with_capacity(samples.len());
    for sample in samples {
        if sample.trial != trial.index {
            return Err(format!("a sample of trial {} in trial {}", sample.trial, trial.index));
        }
        let unknown = || format!("a sample of flow {}, which the trial has not", sample.flow);
        names.push(flows.get(usize::from(sample.flow)).ok_or_else(unknown)?.clone());
    }
    let long = |value: fn(&Sample) -> u64| longs(samples.iter().map(value));
    let dscp = |value: fn(&Sample) -> Option<Marking>| {
        let dscps = samples.iter().map(|sample| value(sample).map(|m| i64::from(m.dscp)));
        Column::OptionalLong(dscps.collect())
    };
    let ecn = |value: fn(&Sample) -> Option<Marking>| {
        let names = samples.iter().map(|sample| value(sample).map(|m| text(m.ecn.name())));
        Column::OptionalText(names.collect())
    };
    let rtts: Result<Vec<Option<i64>>, String> =
        samples.iter().map(|sample| sample.rtt_ns.map(to_long).transpose()).collect();
    Ok(vec![
        long(|sample| u64::from(sample.trial))?,
        Column::Text(vec![text(&trial.arm); samples.len()]),
        Column::Text(names),
        long(|sample| sample.sequence)?,
        Column::Text(samples.iter().map(|sample| text(sample.phase.name())).collect()),
        Column::Boolean(samples.iter().map(|sample| sample.closed_loop).collect()),
        long(|sample| sample.scheduled_ns)?,
        long(|sample| sample.sent_ns)?,
        Column::OptionalLong(rtts?),
        Column::OptionalLong(samples.iter().map(|sample| sample.one_way_up_ns).collect()),
        Column::OptionalLong(samples.iter().map(|sample| sample.one_way_down_ns).collect()),
        long(|sample| u64::from(sample.marking_sent.dscp))?,
        Column::Text(samples.iter().map(|sample| text(sample.marking_sent.ecn.name())).collect()),
        dscp(|sample| sample.marking_far),
        ecn(|sample| sample.marking_far),
        dscp(|sample| sample.marking_near),
        ecn(|sample| sample.marking_near),
    ])
}

/// The rows of one row group as samples, appended to `samples`.
pub(super) fn to_samples(
    columns: Vec<Column>,
    trials: &[TrialRecord],
    samples: &mut Vec<Sample>,
) -> Result<(), String> {
    let columns: Result<[Column; 17], _> = columns.try_into();
    let Ok(
        [
            Column::Long(trial),
            Column::Text(_),
            Column::Text(flow),
            Column::Long(sequence),
            Column::Text(phase),
            Column::Boolean(closed_loop),
            Column::Long(scheduled),
            Column::Long(sent),
            Column::OptionalLong(rtt),
            Column::OptionalLong(up),
            Column::OptionalLong(down),
            Column::Long(dscp_sent),
            Column::Text(ecn_sent),
            Column::OptionalLong(dscp_far),
            Column::OptionalText(ecn_far),
            Column::OptionalLong(dscp_near),
            Column::OptionalText(ecn_near),
        ],
    ) = columns
    else {
        return Err("its columns are of another kind".to_owned());
    };
    for row in 0..trial.len() {
        let (index, record) = trial_of(trial[row], trials)?;
        let named = |candidate: &underload_record::schema::FlowRecord| {
            candidate.name.as_bytes() == flow[row].data()
        };
        let position = record.flows.iter().position(named);
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
            marking_sent: marking(dscp_sent[row], &ecn_sent[row])?,
            marking_far: optional_marking(dscp_far[row], ecn_far[row].as_ref())?,
            marking_near: optional_marking(dscp_near[row], ecn_near[row].as_ref())?,
        });
    }
    Ok(())
}

/// The series of a trial as columns, or what is wrong with one of them.
pub(super) fn from_series(trial: &TrialRecord, series: &[Series]) -> Result<Vec<Column>, String> {
    let rows = series.iter().map(|series| series.points.len()).sum();
    let (mut names, mut units) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    for series in series {
        if series.trial != trial.index {
            return Err(format!("a series of trial {} in trial {}", series.trial, trial.index));
        }
        names.resize(names.len() + series.points.len(), text(&series.name));
        units.resize(units.len() + series.points.len(), text(&series.unit));
    }
    let points = || series.iter().flat_map(|series| &series.points);
    Ok(vec![
        Column::Long(vec![i64::from(trial.index); rows]),
        Column::Text(vec![text(&trial.arm); rows]),
        Column::Text(names),
        Column::Text(units),
        longs(points().map(|point| point.time_ns))?,
        Column::Double(points().map(|point| point.value).collect()),
    ])
}

/// The rows of one row group as series, appended to `all`. Rows of one series stand together.
pub(super) fn to_series(
    columns: Vec<Column>,
    trials: &[TrialRecord],
    all: &mut Vec<Series>,
) -> Result<(), String> {
    let columns: Result<[Column; 6], _> = columns.try_into();
    let Ok(
        [
            Column::Long(trial),
            Column::Text(_),
            Column::Text(name),
            Column::Text(unit),
            Column::Long(time),
            Column::Double(value),
        ],
    ) = columns
    else {
        return Err("its columns are of another kind".to_owned());
    };
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

fn text(value: &str) -> ByteArray {
    ByteArray::from(value)
}

fn longs(values: impl Iterator<Item = u64>) -> Result<Column, String> {
    Ok(Column::Long(values.map(to_long).collect::<Result<_, _>>()?))
}

fn to_long(value: u64) -> Result<i64, String> {
    i64::try_from(value).map_err(|_| format!("{value} is beyond the largest number kept"))
}

fn from_long(value: i64) -> Result<u64, String> {
    u64::try_from(value).map_err(|_| format!("{value} where only zero or more can be"))
}

fn utf8(value: &ByteArray) -> Result<&str, String> {
    std::str::from_utf8(value.data()).map_err(|_| "text that is not UTF-8".to_owned())
}

fn trial_of(value: i64, trials: &[TrialRecord]) -> Result<(u32, &TrialRecord), String> {
    let index = u32::try_from(value).ok();
    let trial = index.and_then(|index| {
        // Of an incomplete run some may be missing: then the index is not the position.
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
