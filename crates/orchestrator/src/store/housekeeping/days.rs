//! Days in files: merges small parts, and reduces old days to sums.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use underload_fleet::retention::{Fold, Form, Retention};
use underload_fleet::store::StoreError;

use super::work::{Work, go_on};
use crate::store::files::{
    self, Manifest, Numbered, Order, Part, PlanDay, Rows, RunsReader, RunsWriter, Sums,
};

/// Does the next piece of work on a day. Also returns the files that the manifest no longer names.
pub(super) fn step(
    folder: &Path,
    manifest: &mut Manifest,
    retention: Retention,
    today: u32,
    stop: &AtomicBool,
) -> Result<(Work, Vec<PathBuf>), StoreError> {
    let is_old = |day: &PlanDay| retention.form(day.day, today) == Form::Sums;
    let has_runs = |day: &PlanDay| day.parts.iter().any(|part| part.rows_are == Rows::Runs);
    let old = manifest.days.iter().find(|day| is_old(day) && has_runs(day)).cloned();
    if let Some(day) = old {
        return add_up(folder, manifest, &day, stop);
    }
    let small = manifest.days.iter().find_map(|day| Some((day.clone(), small_parts(day)?)));
    match small {
        Some((day, parts)) => merge(folder, manifest, &day, &parts, stop),
        None => Ok((Work::Nothing, Vec::new())),
    }
}

/// Returns parts of a day to merge: each has at most [`GROWTH`] times the rows of the smaller ones
/// together, so that a row is rewritten only a few times.
fn small_parts(day: &PlanDay) -> Option<Vec<Part>> {
    let runs = day.parts.iter().filter(|part| part.rows_are == Rows::Runs);
    let mut runs: Vec<&Part> = runs.collect();
    runs.sort_by_key(|part| part.rows);
    let mut sum = 0;
    let mut count = 0;
    for part in runs.iter().take(MERGED_AT_ONCE) {
        let is_near = count == 0 || part.rows <= sum * GROWTH;
        if !is_near || sum + part.rows > ROWS_MOST {
            break;
        }
        sum += part.rows;
        count += 1;
    }
    (count > 1).then(|| runs[..count].iter().map(|part| (*part).clone()).collect())
}

fn merge(
    folder: &Path,
    manifest: &mut Manifest,
    day: &PlanDay,
    parts: &[Part],
    stop: &AtomicBool,
) -> Result<(Work, Vec<PathBuf>), StoreError> {
    let file = manifest.name(&day.plan, day.day, Rows::Runs);
    let mut writer = RunsWriter::new(&folder.join(&file))?;
    in_order(folder, &day.plan, parts, &mut |kept| {
        go_on(stop)?;
        writer.add(kept)
    })?;
    let (of, written) = writer.finish()?;
    let merged = Part::new(file, Rows::Runs, of, written);
    replace(folder, manifest, day, parts, vec![merged])?;
    let gone = parts.iter().map(|part| part.path(folder)).collect();
    Ok((Work::Merged(parts.len()), gone))
}

fn add_up(
    folder: &Path,
    manifest: &mut Manifest,
    day: &PlanDay,
    stop: &AtomicBool,
) -> Result<(Work, Vec<PathBuf>), StoreError> {
    let of = (day.plan.as_str(), day.day);
    let (runs, sums): (Vec<Part>, Vec<Part>) =
        day.parts.iter().cloned().partition(|part| part.rows_are == Rows::Runs);
    let mut total = Sums::default();
    for part in &sums {
        files::verify(folder, part)?;
        match part.rows_are {
            Rows::Sums => total.read_sums(&part.path(folder), of)?,
            Rows::Ends => total.read_ends(&part.path(folder), of)?,
            Rows::Runs => {}
        }
    }
    let mut fold = Fold::default();
    in_order(folder, &day.plan, &runs, &mut |kept| {
        fold.add(&kept.result);
        go_on(stop)
    })?;
    total.add(&fold);
    let results = runs.iter().map(|part| part.results).sum();
    let before = sums.iter().map(|part| part.results).max().unwrap_or(0);
    let of_all = (before + results, day.up_to);
    let mut new = Vec::new();
    for rows_are in [Rows::Sums, Rows::Ends] {
        let file = manifest.name(&day.plan, day.day, rows_are);
        let path = folder.join(&file);
        let written = match rows_are {
            Rows::Sums => total.write_sums(&path)?,
            _ => total.write_ends(&path)?,
        };
        new.push(Part::new(file, rows_are, of_all, written));
    }
    replace(folder, manifest, day, &day.parts, new)?;
    let gone = day.parts.iter().map(|part| part.path(folder)).collect();
    Ok((Work::AddedUp(results), gone))
}

/// Replaces files of a day in the manifest.
fn replace(
    folder: &Path,
    manifest: &mut Manifest,
    day: &PlanDay,
    old: &[Part],
    new: Vec<Part>,
) -> Result<(), StoreError> {
    let known = manifest.day_mut(&day.plan, day.day);
    known.parts.retain(|part| !old.contains(part));
    known.parts.extend(new);
    manifest.write(folder)
}

/// Merges the results of all parts in their order. Verifies the parts first, so that damaged rows
/// are not rewritten with a valid hash.
fn in_order(
    folder: &Path,
    plan: &str,
    parts: &[Part],
    see: &mut dyn FnMut(&Numbered) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut readers = Vec::with_capacity(parts.len());
    let mut heads: BinaryHeap<Reverse<(Order, usize)>> = BinaryHeap::new();
    let mut next = Vec::with_capacity(parts.len());
    for (place, part) in parts.iter().enumerate() {
        files::verify(folder, part)?;
        let mut reader = RunsReader::open(&part.path(folder), plan)?;
        let first = reader.next()?;
        heads.extend(first.as_ref().map(|kept| Reverse((kept.order(), place))));
        next.push(first);
        readers.push(reader);
    }
    while let Some(Reverse((_, place))) = heads.pop() {
        if let Some(kept) = next[place].take() {
            see(&kept)?;
        }
        next[place] = readers[place].next()?;
        heads.extend(next[place].as_ref().map(|kept| Reverse((kept.order(), place))));
    }
    Ok(())
}

/// Maximum number of parts to merge at once.
const MERGED_AT_ONCE: usize = 16;
/// How many times larger a part may be than the smaller ones together.
const GROWTH: u64 = 4;
/// Maximum number of rows of a merged file.
const ROWS_MOST: u64 = 2_000_000;
