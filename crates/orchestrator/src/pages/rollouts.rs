//! Rollouts: their stages, the effect day by day with its confidence sequence, and their logs.

use underload_fleet::rollout::{
    Event, Look, Measure, RolloutPlan, Row, State, StoredRollout, load, names,
};
use underload_fleet::store::{Archive, StoreError};
use underload_report::diagram::{Curve, Diagram, Mark, Panel, Scale};

use super::problem::Problem;
use super::question::Ask;
use super::sheet::{Figure, Section, Sheet};
use super::summary::extent;
use super::table::Table;
use crate::rollout::{event_words, state_words};

pub(super) fn sheet(archive: &mut dyn Archive, _: &Ask) -> Result<Sheet, Problem> {
    let names = names(&mut |name| archive.setting(name))?;
    let mut sheet = Sheet { title: "Rollouts".to_owned(), ..Sheet::default() };
    // The newest first.
    for name in names.iter().rev() {
        let stored = load(&mut |name| archive.setting(name), name)?;
        let Some(StoredRollout { text, log: rows }) = stored else { continue };
        let plan = RolloutPlan::parse(&text)
            .map_err(|error| StoreError::broken(format!("rollout `{name}`")).because(error))?;
        sheet.sentences.push(state_words(&plan, &State::of(&plan, &rows)));
        let log = rows.iter().rev().map(|it| (it.at_ms, it.who.clone(), event_words(&it.event)));
        let mut section = Section::new(format!("Rollout {name}"), Table::log(log));
        section.figure = figure(&plan, &rows);
        sheet.sections.push(section);
    }
    if names.is_empty() {
        sheet.sentences.push("No rollout has been started.".to_owned());
    }
    Ok(sheet)
}

/// Draws the effects on all lines, in percent. `None` before the first judged day.
fn figure(plan: &RolloutPlan, log: &[Row]) -> Option<Figure> {
    let days: Vec<(f64, &[Look])> = log
        .iter()
        .filter_map(|row| match &row.event {
            Event::Looked { day, looks, .. } => Some((f64::from(*day), looks.as_slice())),
            _ => None,
        })
        .collect();
    let panel = |(measure, name): (Measure, &str)| {
        let percent = |value: f64| match measure {
            Measure::P99 => value.exp_m1() * 100.0,
            Measure::Harmed => value * 100.0,
        };
        let curve = |of: fn(&Look) -> f64| -> Vec<(f64, f64)> {
            let of_all = |look: &&Look| look.group.is_empty() && look.measure == measure;
            let point = |(day, looks): &(f64, &[Look])| {
                looks.iter().find(of_all).map(|look| (*day, percent(of(look))))
            };
            days.iter().filter_map(point).collect()
        };
        let (low, high) = (curve(|look| look.effect.low), curve(|look| look.effect.high));
        let (first, last) = (low.first()?.0 - 0.5, low.last()?.0 + 0.5);
        let limit = percent(plan.limit(measure));
        let outline = low.iter().copied().chain(high.iter().rev().copied()).collect();
        let curves = vec![
            Curve { name: "confidence sequence".to_owned(), mark: Mark::Area, points: outline },
            Curve::rings("changed lines beside untouched ones", curve(|look| look.effect.value)),
            Curve::line("harm from here on", vec![(first, limit), (last, limit)]),
        ];
        let (.., most) = extent(&curves)?;
        let least = low.iter().map(|(_, value)| *value).fold(0.0, f64::min);
        let y = Scale::linear(name, least * 1.06..most * 1.06 + 0.1);
        Some(Panel { x: Scale::dates("day, UTC", first..last), y, curves })
    };
    let measures = [(Measure::P99, "p99, %"), (Measure::Harmed, "lines harmed, %")];
    let panels: Vec<Panel> = measures.into_iter().filter_map(panel).collect();
    (!panels.is_empty()).then(|| Figure {
        diagram: Diagram {
            name: "rollout".to_owned(),
            title: format!("Rollout {}: changed lines beside untouched ones", plan.name),
            panels,
        },
        caption: "Above: how much higher the 99th percentile of changed lines is. Below: the share \
                  of lines that are harmed beyond that of untouched lines. All intervals of all days \
                  together hold the truth with a probability of 95 %."
            .to_owned(),
        zoom: ("from", "until"),
        point_notes: Vec::new(),
    })
}
