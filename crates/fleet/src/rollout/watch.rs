//! Measured days of changed and untouched lines, as the effects that decide.

use std::collections::{BTreeMap, BTreeSet};

use underload_record::cohorts::{LINES_LEAST, LineDay, Panel};

use super::{Event, Exposure, Look, Measure, RolloutPlan, Row, day_of};
use crate::device::{Attributes, DeviceId};

/// Probability of a wrong interval, over all days, groups and measures of a rollout together.
const ALPHA: f64 = 0.05;
/// Attributes by whose values lines are grouped.
const GROUPED_BY: [&str; 3] = ["model", "firmware", "tier"];
/// Maximum number of groups, those with the most lines.
const GROUPS_MAX: usize = 50;
/// Bounds of a p99, ms: a day without an answer has the longer one.
const P99_MS: (f64, f64) = (0.1, 10_000.0);

/// A line that takes part.
#[derive(Debug, Clone)]
pub struct WatchedLine {
    pub device: DeviceId,
    pub attributes: Attributes,
}

/// Lines with the effects of a rollout on them.
#[derive(Debug, Clone)]
pub struct Watch {
    plan: RolloutPlan,
    lines: Vec<Watched>,
    start_day: u32,
    /// By [`Measure`].
    panels: [Panel; 2],
    /// Names of groups with their strata; first all lines.
    groups: Vec<(String, BTreeSet<usize>)>,
}

#[derive(Debug, Clone)]
struct Watched {
    device: DeviceId,
    /// The day on which it was changed.
    changed_day: Option<u32>,
    /// Sum and number of the logarithms of its p99s before the start.
    before: (f64, u32),
}

impl Watch {
    /// Creates the comparison of these lines. The numbers of lines in [`Watch::add_day`] are their
    /// positions in `lines`.
    pub fn new(plan: &RolloutPlan, log: &[Row], lines: &[WatchedLine]) -> Self {
        let start = log.iter().find(|row| matches!(row.event, Event::Started { .. }));
        let mut watch = Self {
            plan: plan.clone(),
            lines: Vec::with_capacity(lines.len()),
            start_day: start.map_or(0, |row| day_of(row.at_ms)),
            panels: Default::default(),
            groups: Vec::new(),
        };
        let mut strata: BTreeMap<[String; 3], usize> = BTreeMap::new();
        let mut values: BTreeMap<String, (u64, BTreeSet<usize>)> = BTreeMap::new();
        for WatchedLine { device, attributes } in lines {
            let own = GROUPED_BY.map(|name| attributes.get(name).unwrap_or_default());
            let next = strata.len();
            let stratum = *strata.entry(own.clone()).or_insert(next);
            for panel in &mut watch.panels {
                panel.add_line(stratum);
            }
            for (name, value) in GROUPED_BY.iter().zip(&own).filter(|(_, it)| !it.is_empty()) {
                let group = values.entry(format!("{name} {value}")).or_default();
                group.0 += 1;
                group.1.insert(stratum);
            }
            watch.lines.push(Watched { device: *device, changed_day: None, before: (0.0, 0) });
        }
        // A group of all lines is compared once.
        values.retain(|_, (count, _)| (LINES_LEAST..lines.len() as u64).contains(count));
        let mut groups: Vec<(String, (u64, BTreeSet<usize>))> = values.into_iter().collect();
        groups.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
        groups.truncate(GROUPS_MAX);
        let groups = groups.into_iter().map(|(name, (_, strata))| (name, strata));
        let all = (String::new(), (0..strata.len()).collect());
        watch.groups = std::iter::once(all).chain(groups).collect();
        watch.follow(log);
        watch
    }

    /// Reads from the log which lines were changed, and when.
    pub fn follow(&mut self, log: &[Row]) {
        let exposure = Exposure::of(log);
        for line in self.lines.iter_mut().filter(|line| line.changed_day.is_none()) {
            line.changed_day = exposure.since_ms(line.device).map(day_of);
        }
    }

    /// Adds a day with the p99 of each measured line, ms; `f64::INFINITY` if it is a lost probe.
    /// Days must ascend. A line counts if it was measured before the rollout began.
    pub fn add_day(&mut self, day: u32, p99s: &[(usize, f64)]) {
        let clamped = |p99: f64| p99.clamp(P99_MS.0, P99_MS.1).ln();
        if day < self.start_day {
            for (line, p99) in p99s.iter().filter(|_| day + self.plan.before_days >= self.start_day)
            {
                let before = &mut self.lines[*line].before;
                *before = (before.0 + clamped(*p99), before.1 + 1);
            }
            return;
        }
        let harmed_above = (self.plan.harmed_above_percent / 100.0).ln_1p();
        let mut days: [Vec<LineDay>; 2] = Default::default();
        for (line, p99) in p99s {
            let Watched { changed_day, before: (sum, count), .. } = self.lines[*line];
            // The day of the change itself is part of neither side.
            if count == 0 || changed_day == Some(day) {
                continue;
            }
            let is_changed = changed_day.is_some_and(|changed| day > changed);
            let value = clamped(*p99) - sum / f64::from(count);
            let harmed = f64::from(value > harmed_above);
            days[0].push(LineDay { line: *line, is_changed, value });
            days[1].push(LineDay { line: *line, is_changed, value: harmed });
        }
        for (panel, values) in self.panels.iter_mut().zip(&days) {
            panel.add_day(values);
        }
    }

    /// Returns the effects up to the last day that was added.
    pub fn looks(&self) -> Vec<Look> {
        let sequences = self.groups.len() * Measure::ALL.len();
        let alpha = ALPHA / sequences as f64;
        let mut looks = Vec::new();
        for (measure, panel) in Measure::ALL.into_iter().zip(&self.panels) {
            for (group, strata) in &self.groups {
                let limit = self.plan.limit(measure);
                let effect = panel.effect(|stratum| strata.contains(&stratum), alpha, limit);
                looks.extend(effect.map(|effect| Look { group: group.clone(), measure, effect }));
            }
        }
        looks
    }
}
