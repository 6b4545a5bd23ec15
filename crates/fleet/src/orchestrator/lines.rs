//! Requests of operators about lines.

use std::collections::BTreeSet;

use underload_aqm::rng::Rng;

use super::operate::{log, not_found};
use super::settle::RETIRED;
use super::{Answer, Kind, Orchestrator, answer, enrol, reject};
use crate::device::{Attributes, DeviceId};
use crate::line::{Line, LineUpdate};
use crate::operator::{LineState, ListLines, ListedLines, PutLines, PutLinesAnswer};
use crate::store::{Device, LineRow, StoreError, Tx};

/// Maximum number of lines of a request.
pub const LINES_MAX: usize = 1_000;
/// Maximum number of lines that a request for a list reads.
const READ_MAX: usize = 5_000;
/// Maximum number of faults that an answer names.
const FAULTS_MAX: usize = 20;
const DAY_MS: u64 = 86_400_000;

/// Returns the line of a device, if an operator recorded it.
pub(super) fn line_of(tx: Tx<'_>, device: &Device) -> Result<Option<Line>, StoreError> {
    Ok(tx.lines(&[&device.line])?.pop().flatten())
}

/// Returns the attributes of a device's line at an instant.
pub(super) fn attributes_at(
    tx: Tx<'_>,
    device: &Device,
    at_ms: u64,
) -> Result<Attributes, StoreError> {
    // A line without records has the attributes of its device.
    Ok(line_of(tx, device)?.unwrap_or_default().attributes_at(at_ms, &device.attributes))
}

/// Makes a device the one that measures a line, in place of the devices and lines of both before.
pub(super) fn join(tx: Tx<'_>, line: &mut Line, device: &mut Device) -> Result<(), StoreError> {
    let other = line_of(tx, device)?.filter(|it| it.external_id != line.external_id);
    if let Some(other) = other.filter(|it| it.device == Some(device.id)) {
        tx.put_line(&Line { device: None, ..other })?;
    }
    if let Some(id) = line.device.replace(device.id).filter(|id| *id != device.id)
        && let Some(before) = tx.device(id)?.filter(|it| it.line == line.external_id)
    {
        tx.put_device(&Device { line: String::new(), ..before })?;
    }
    line.external_id.clone_into(&mut device.line);
    tx.put_line(line)
}

impl Orchestrator {
    /// Records lines, all or none.
    pub fn put_lines(
        &self,
        tx: Tx<'_>,
        now_ms: u64,
        rng: &mut Rng,
        who: &str,
        put: &PutLines,
    ) -> Answer<PutLinesAnswer> {
        answer(|| {
            if !(1..=LINES_MAX).contains(&put.lines.len()) {
                return reject(Kind::BadRequest, "bad-lines", "1 to 1000 lines at once");
            }
            let ids: Vec<&str> = put.lines.iter().map(|it| it.external_id.as_str()).collect();
            let (mut answer, mut changed) = (PutLinesAnswer::default(), Vec::new());
            let (mut seen, mut faults) = (BTreeSet::new(), Vec::new());
            for (update, known) in put.lines.iter().zip(tx.lines(&ids)?) {
                let id = &update.external_id;
                let is_new = known.is_none();
                let before =
                    known.unwrap_or_else(|| Line { external_id: id.clone(), ..Line::default() });
                match updated(tx, now_ms, put, (update, is_new), before.clone())? {
                    Err(fault) => faults.push(format!("line `{id}`: {fault}")),
                    Ok(_) if !seen.insert(id) => faults.push(format!("line `{id}`: occurs twice")),
                    Ok((line, device)) => {
                        let is_changed = line != before || device != before.device;
                        answer.created += u32::from(is_new);
                        answer.changed += u32::from(!is_new && is_changed);
                        if is_changed || is_new || update.is_retired.is_some() {
                            changed.push((line, update));
                        }
                    }
                }
            }
            if !faults.is_empty() {
                faults.truncate(FAULTS_MAX);
                return reject(Kind::BadRequest, "bad-lines", faults.join("\n"));
            }
            if put.is_check {
                return Ok(answer);
            }
            for (line, update) in changed {
                self.put_line(tx, now_ms, rng, line, update)?;
            }
            let PutLinesAnswer { created, changed } = answer;
            let what = match &put.lines[..] {
                [line] => format!("set the line `{}`", line.external_id),
                _ => format!("recorded lines: {created} new, {changed} changed"),
            };
            log(tx, now_ms, who, what)?;
            Ok(answer)
        })
    }

    /// Stores a line and its device.
    fn put_line(
        &self,
        tx: Tx<'_>,
        now_ms: u64,
        rng: &mut Rng,
        mut line: Line,
        update: &LineUpdate,
    ) -> Result<(), StoreError> {
        // Its device may have joined another line of the same request.
        let stored = tx.lines(&[&line.external_id])?.pop().flatten();
        line.device = stored.and_then(|line| line.device);
        tx.put_line(&line)?;
        let device = update.device.or(line.device).map(|id| tx.device(id)).transpose()?.flatten();
        let Some(mut device) = device else { return Ok(()) };
        join(tx, &mut line, &mut device)?;
        device.attributes = line.attributes_at(now_ms, &device.attributes);
        let was_retired = device.is_retired;
        device.is_retired = update.is_retired.unwrap_or(was_retired);
        if device.is_retired && !was_retired {
            return self.leave_plans(tx, now_ms, rng, device, RETIRED);
        }
        tx.put_device(&device)
    }

    /// Lists lines.
    pub fn list_lines(
        &self,
        tx: Tx<'_>,
        now_ms: u64,
        who: &str,
        list: &ListLines,
    ) -> Answer<ListedLines> {
        answer(|| {
            if let Some(name) =
                list.attributes.keys().find(|it| !Attributes::NAMES.contains(&&***it))
            {
                let message = format!("expected an attribute, not `{name}`");
                return reject(Kind::BadRequest, "bad-filter", message);
            }
            if let Some(id) = &list.external_id {
                let Some(line) = tx.lines(&[id])?.pop().flatten() else {
                    return not_found(format!("no line `{id}`"));
                };
                log(tx, now_ms, who, format!("looked at the line `{id}`"))?;
                let device = line.device.map(|id| tx.device(id)).transpose()?.flatten();
                return Ok(ListedLines { lines: vec![state((line, device), now_ms)], next: None });
            }
            let rows = tx.lines_after(&list.after, READ_MAX)?;
            let last = rows.last().filter(|_| rows.len() == READ_MAX);
            let mut next = last.map(|(line, _)| line.external_id.clone());
            let mut lines = Vec::new();
            for row in rows {
                let state = state(row, now_ms);
                if is_listed(&state, list, now_ms) {
                    lines.push(state);
                }
                if lines.len() == LINES_MAX {
                    next = lines.last().map(|last| last.line.external_id.clone());
                    break;
                }
            }
            Ok(ListedLines { lines, next })
        })
    }
}

/// Returns a line after its update, with its device, or what is wrong.
fn updated(
    tx: Tx<'_>,
    now_ms: u64,
    put: &PutLines,
    (update, is_new): (&LineUpdate, bool),
    mut line: Line,
) -> Result<Result<(Line, Option<DeviceId>), String>, StoreError> {
    let device = update.device.or(line.device);
    if device != line.device
        && let Some(id) = device
    {
        match tx.device(id)? {
            Some(_) => line.fill(&enrol::of_operator(tx, id)?),
            None => return Ok(Err(format!("there is no device {id}"))),
        }
    }
    let done = update.check().and_then(|()| line.update(update, put.from_ms, now_ms));
    Ok(match done {
        Err(error) => Err(error.to_string()),
        Ok(()) if is_new && !put.is_import => Err("is unknown".to_owned()),
        Ok(()) if update.is_retired == Some(true) && device.is_none() => {
            Err("no device measures it".to_owned())
        }
        Ok(()) => Ok((line, device)),
    })
}

fn state((line, device): LineRow, now_ms: u64) -> LineState {
    let reported = device.as_ref().map(|device| device.attributes.clone()).unwrap_or_default();
    LineState {
        attributes: line.attributes_at(now_ms, &reported),
        seen_ms: device.as_ref().map(|device| device.seen_ms),
        is_retired: device.is_some_and(|device| device.is_retired),
        line,
    }
}

fn is_listed(state: &LineState, list: &ListLines, now_ms: u64) -> bool {
    let LineState { line, attributes, seen_ms, is_retired } = state;
    let text = list.text.to_lowercase();
    let has_text = |of: &str| of.to_lowercase().contains(&text);
    let since_ms = |days: u32| now_ms.saturating_sub(u64::from(days) * DAY_MS);
    let is_silent = |days| !is_retired && seen_ms.is_some_and(|seen_ms| seen_ms < since_ms(days));
    (has_text(&line.name) || has_text(&line.external_id))
        && list.silent_days.is_none_or(is_silent)
        && list.attributes.iter().all(|(name, value)| attributes.get(name).as_ref() == Some(value))
}
