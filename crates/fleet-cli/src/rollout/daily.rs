//! The 99th percentile of each line and day, which a rollout compares.

use std::collections::BTreeMap;

use underload_fleet::bins::Bins;
use underload_fleet::device::DeviceId;
use underload_fleet::rollout::RolloutPlan;
use underload_fleet::store::{Archive, Filter, Result};

use underload_orchestrator::pages::quantile_ms;
use underload_orchestrator::study::{SORTED_IN_MEMORY, Sorter};

/// Lines with their p99 of a day, ms; `f64::INFINITY` if it is a lost probe.
pub(super) type Day = Vec<(usize, f64)>;

/// Returns the days from `from_day` to before `until_day`, days since 1970, with the lines that
/// were measured on them. A line's runs of a day are pooled; as in a study, only scheduled runs
/// count.
pub(super) fn p99s_by_day(
    archive: &mut dyn Archive,
    rollout: &RolloutPlan,
    (from_day, until_day): (u32, u32),
    lines: &BTreeMap<DeviceId, usize>,
) -> Result<BTreeMap<u32, Day>> {
    let filter = Filter {
        plan: Some(rollout.plan.clone()),
        from_day: Some(from_day),
        until_day: Some(until_day),
        ..Filter::default()
    };
    let mut sorter = Sorter::new(SORTED_IN_MEMORY);
    let mut sorted = Ok(());
    archive.visit_measured(&filter, &[], &mut |kept| {
        if lines.contains_key(&kept.device) {
            sorted = sorter.add(kept);
        }
        sorted.is_ok()
    })?;
    sorted?;
    let mut days: BTreeMap<u32, Day> = BTreeMap::new();
    for first in 0..=Sorter::RANGES {
        let mut open: BTreeMap<(u32, usize), (Bins, u64)> = BTreeMap::new();
        sorter.visit(first, |kept| {
            let Some(line) = lines.get(&kept.device) else { return };
            for (step, series) in kept.result.pooled_series() {
                if step.step == rollout.step && series.dscp == rollout.dscp {
                    let (bins, lost) = open.entry((kept.day(), *line)).or_default();
                    bins.merge(&series.bins);
                    *lost = lost.saturating_add(series.lost);
                }
            }
        })?;
        for ((day, line), (bins, lost)) in open {
            if bins.count() + lost > 0 {
                let p99 = quantile_ms(&bins, lost, 0.99).unwrap_or(f64::INFINITY);
                days.entry(day).or_default().push((line, p99));
            }
        }
    }
    Ok(days)
}
