//! The first page: delays by day, outcomes of runs, and servers.

use std::cmp::Reverse;

use underload_fleet::outcome::Outcome;
use underload_fleet::store::{Archive, Dimension, Filter, Outcomes, Sum};
use underload_report::diagram::{Curve, Diagram, Panel, Scale};
use underload_report::{capital, thousands};

use super::problem::Problem;
use super::question::{Ask, DAY_MS, date_text};
use super::servers;
use super::sheet::{Figure, Section, Sheet};
use super::summary::{self, Loaded, largest, quantile_ms};
use super::table::{Cell, Table, count, number, words};

/// Days that are shown by default.
const DAYS: u32 = 30;
pub(super) fn sheet(archive: &mut dyn Archive, ask: &Ask) -> Result<Sheet, Problem> {
    let mut filter = ask.question.filter.clone();
    if filter.from_day.is_none() && filter.until_day.is_none() {
        let latest = (ask.today() + 1).saturating_sub(DAYS);
        filter.from_day = Some(first_day(archive, &filter)?.map_or(latest, |day| day.max(latest)));
    }
    summary::check_group(archive, ask, &filter)?;
    let by = summary::dimensions(archive, ask)?;
    let whole = Loaded::read(archive, ask, &filter, &by)?;
    let mut of_days = vec![Dimension::Day];
    of_days.extend_from_slice(&by);
    let daily = Loaded::read(archive, ask, &filter, &of_days)?;
    let outcomes = archive.outcomes(&filter)?;
    let known = archive.servers()?;
    let mut sentences = vec![headline(ask, &whole, &by, &filter)];
    sentences.extend(whole.left_out_sentence());
    if whole.left_out.days == 0 || total(&outcomes) > 0 {
        sentences.push(runs_sentence(&outcomes));
    }
    sentences.push(servers::sentence(&known, ask.now_ms));
    let mut runs = Section::new("Runs by outcome", outcome_table(&outcomes));
    "Every run that was due ends in one of these.".clone_into(&mut runs.note);
    Ok(Sheet {
        title: "Overview".to_owned(),
        sentences,
        sections: vec![
            days_section(ask, &daily, &whole, &by),
            runs,
            Section::new("Why runs did not measure", reason_table(&outcomes, ask.least_devices)),
            Section::new("Servers now", servers::table(&known, ask)),
        ],
    })
}

/// Returns the day on which the plan of the filter was applied, or the first of all plans.
fn first_day(archive: &mut dyn Archive, filter: &Filter) -> Result<Option<u32>, Problem> {
    let plans = archive.plans()?.into_iter();
    let meant = plans.filter(|row| filter.plan.as_ref().is_none_or(|name| row.name == *name));
    let first_ms = meant.map(|row| row.applied_ms).min();
    Ok(first_ms.map(|ms| u32::try_from(ms / DAY_MS).unwrap_or(u32::MAX)))
}

pub(super) fn headline(ask: &Ask, whole: &Loaded, by: &[Dimension], filter: &Filter) -> String {
    let groups = largest(whole);
    if groups.is_empty() {
        return whole.nothing(ask, &period(filter));
    }
    let name = |sum: &Sum| summary::group_words(by, sum, 0);
    let mut known: Vec<(f64, String)> = groups
        .iter()
        .filter_map(|sum| Some((quantile_ms(&sum.bins, sum.lost, 0.99)?, name(sum))))
        .collect();
    known.sort_by(|one, other| one.0.total_cmp(&other.0));
    let is_lost = |sum: &&&Sum| quantile_ms(&sum.bins, sum.lost, 0.99).is_none();
    let lost: Vec<String> = groups.iter().filter(is_lost).map(|sum| name(sum)).collect();
    let part = |(p99, name): &(f64, String)| {
        format!("{} ms ({name})", underload_report::significant(*p99))
    };
    // Of three or more percentiles the lowest and the highest are shown.
    let (parts, between) = match known.as_slice() {
        [first, .., last] if known.len() > 2 => (vec![part(first), part(last)], " to "),
        few => (few.iter().map(part).collect(), " and "),
    };
    let took = format!("99 of 100 round trips took at most {}", parts.join(between));
    let said = match (parts.is_empty(), lost_words(&lost)) {
        (_, None) => took,
        (true, Some(lost)) => lost,
        (false, Some(lost)) => format!("{took}, and {lost}"),
    };
    let devices = groups.iter().map(|sum| sum.devices).max().unwrap_or(0);
    let tests = groups.iter().map(|sum| sum.tests).fold(0, u64::saturating_add);
    format!(
        "{}, {said} {}: {} series of up to {} devices.",
        capital(whole.words()),
        period(filter),
        thousands(tests),
        thousands(devices),
    )
}

/// Describes the groups whose 99th percentile is a lost probe; `None` without names.
fn lost_words(names: &[String]) -> Option<String> {
    let of = match names {
        [] => return None,
        [first, others @ ..] if others.len() > 1 => {
            format!("{first} and {} other groups", others.len())
        }
        few => few.join(" and "),
    };
    Some(format!("more than 1 of 100 probes was lost ({of})"))
}

/// `from 2026-11-01 to 2026-11-22`
fn period(filter: &Filter) -> String {
    let last = filter.until_day.map(|day| date_text(day.saturating_sub(1)));
    match (filter.from_day.map(date_text), last) {
        (Some(from), Some(last)) => format!("from {from} to {last}"),
        (Some(from), None) => format!("since {from}"),
        (None, Some(last)) => format!("until {last}"),
        (None, None) => "since the beginning".to_owned(),
    }
}

fn runs_sentence(outcomes: &Outcomes) -> String {
    let all = total(outcomes);
    if all == 0 {
        return "No run was due.".to_owned();
    }
    let measured = of_outcome(outcomes, Outcome::Measured);
    format!(
        "{} runs were due; {} of them measured ({} %).",
        thousands(all),
        thousands(measured),
        underload_report::significant(measured as f64 * 100.0 / all as f64)
    )
}

fn total(outcomes: &Outcomes) -> u64 {
    outcomes.counts.iter().map(|of| of.count).fold(0, u64::saturating_add)
}

fn of_outcome(outcomes: &Outcomes, outcome: Outcome) -> u64 {
    let found = outcomes.counts.iter().filter(|of| of.outcome == outcome);
    found.map(|of| of.count).fold(0, u64::saturating_add)
}

fn days_section(ask: &Ask, daily: &Loaded, whole: &Loaded, by: &[Dimension]) -> Section {
    let day_of = |sum: &Sum| sum.key.first().and_then(|day| day.parse::<u32>().ok());
    let mut rows: Vec<(u32, String, &Sum)> = daily
        .sums
        .iter()
        .filter_map(|sum| {
            let words = by.iter().cloned();
            let all: Vec<Dimension> = std::iter::once(Dimension::Day).chain(words).collect();
            Some((day_of(sum)?, summary::group_words(&all, sum, 1), sum))
        })
        .collect();
    rows.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    let table = Table {
        name: "days",
        columns: [words("day", "Day, UTC"), words("group", "Group")]
            .into_iter()
            .chain(summary::columns())
            .collect(),
        rows: rows
            .iter()
            .map(|(day, group, sum)| {
                let mut row = vec![Cell::Text(date_text(*day)), Cell::text(group)];
                row.extend(summary::cells(sum));
                row
            })
            .collect(),
    };
    let heading = format!("99th percentile of the round-trip time, day by day, {}", daily.words());
    let mut section = Section::new(heading, table);
    section.figure = days_figure(ask, &rows, whole, by);
    section
}

fn days_figure(
    ask: &Ask,
    rows: &[(u32, String, &Sum)],
    whole: &Loaded,
    by: &[Dimension],
) -> Option<Figure> {
    let groups = largest(whole);
    let (mut curves, mut point_notes, mut is_lost) = (Vec::new(), Vec::new(), false);
    for group in &groups {
        let name = summary::group_words(by, group, 0);
        let mut known: Vec<(f64, f64, String)> = Vec::new();
        for (day, _, sum) in rows.iter().filter(|(_, found, _)| *found == name) {
            let note =
                format!("{} series, {} devices", thousands(sum.tests), thousands(sum.devices));
            match quantile_ms(&sum.bins, sum.lost, 0.99) {
                Some(p99) => known.push((f64::from(*day), p99, note)),
                None => is_lost = true,
            }
        }
        let points: Vec<(f64, f64)> = known.iter().map(|(day, p99, _)| (*day, *p99)).collect();
        point_notes.push(known.into_iter().map(|(_, _, note)| note).collect());
        // A line needs two days.
        let rings = Curve::rings(&name, points.clone());
        curves.push(if points.len() > 1 { Curve::line(&name, points) } else { rings });
    }
    let (first, last, most) = summary::extent(&curves)?;
    let x = Scale::dates("day, UTC", first - 0.5..last + 0.5);
    let y = Scale::linear("99th percentile of the round-trip time, ms", 0.0..most * 1.06 + 0.1);
    let lost = if is_lost { " There is no point where that percentile was lost." } else { "" };
    Some(Figure {
        diagram: Diagram {
            name: "days".to_owned(),
            title: "99th percentile of the round-trip time, day by day".to_owned(),
            panels: vec![Panel { x, y, curves }],
        },
        caption: format!(
            "All round trips of a day together, lost probes as longer than all others.{lost} {}",
            summary::made_of(ask, whole, by, &groups)
        ),
        zoom: ("from", "until"),
        point_notes,
    })
}

fn outcome_table(outcomes: &Outcomes) -> Table {
    let all = total(outcomes);
    let row = |outcome: Outcome| {
        let count = of_outcome(outcomes, outcome);
        vec![Cell::text(outcome.name()), Cell::Count(count), share(count, all)]
    };
    Table {
        name: "outcomes",
        columns: vec![
            words("outcome", "Outcome"),
            count("runs", "Runs"),
            number("share_percent", "Share", "%"),
        ],
        rows: if all == 0 { Vec::new() } else { Outcome::ALL.into_iter().map(row).collect() },
    }
}

fn share(count: u64, all: u64) -> Cell {
    Cell::Share(count as f64 * 100.0 / all.max(1) as f64)
}

/// Maximum number of reasons; the others are one row.
const REASONS: usize = 20;

/// Reasons of fewer devices than `least_devices` are in the last row.
fn reason_table(outcomes: &Outcomes, least_devices: u64) -> Table {
    let all = total(outcomes);
    let mut reasons = outcomes.kinds_of_reasons();
    reasons.sort_by_key(|of| (of.devices < least_devices, Reverse(of.count)));
    let told = reasons.iter().take(REASONS).filter(|of| of.devices >= least_devices).count();
    let row = |outcome: &str, reason: &str, count| {
        let reason = if reason.is_empty() { Cell::Nothing } else { Cell::text(reason) };
        vec![Cell::text(outcome), reason, Cell::Count(count), share(count, all)]
    };
    let (told, others) = reasons.split_at(told);
    let mut rows: Vec<Vec<Cell>> =
        told.iter().map(|of| row(of.outcome.name(), &of.reason, of.count)).collect();
    if !others.is_empty() {
        let count = others.iter().map(|of| of.count).fold(0, u64::saturating_add);
        rows.push(row("", "all others", count));
    }
    Table {
        name: "reasons",
        columns: vec![
            words("outcome", "Outcome"),
            words("reason", "Reason"),
            count("runs", "Runs"),
            number("share_percent", "of all runs", "%"),
        ],
        rows,
    }
}
