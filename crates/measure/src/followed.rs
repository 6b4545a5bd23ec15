//! The numbers of a line that are compared from run to run.

use underload_record::history::Followed;
use underload_record::judgement::LoadedStep;
use underload_record::schema::{Judged, LatencySummary, Phase, Quantile, TrialRecord};

/// Value of a percentile that falls on a lost probe: a probe is lost after this time.
const LOST_MS: f64 = 2_000.0;

/// Returns the numbers of a trial in the units of [`Followed`]. Percentiles are of all probes sent;
/// one that falls on a lost probe counts as two seconds.
pub fn followed(trial: &TrialRecord) -> Vec<(Followed, f64)> {
    let (idle, load) = (trial.headline(Phase::Idle), trial.headline(Phase::Load));
    let ms = |found: Option<&LatencySummary>, quantile| match found?.judged(quantile)? {
        Judged::Answered(ns) => Some(ns as f64 / 1e6),
        Judged::Lost => Some(LOST_MS),
    };
    let sum = |rates: Vec<u64>| (!rates.is_empty()).then(|| rates.iter().sum::<u64>() as f64 / 1e6);
    let up = trial.flows.iter().filter_map(|flow| flow.goodput_up_bit_per_s).collect();
    let down = trial.flows.iter().filter_map(|flow| flow.goodput_down_bit_per_s).collect();
    let found = [
        (Followed::LoadP99, ms(load, Quantile::P99)),
        (Followed::LoadP50, ms(load, Quantile::P50).or_else(|| of_foreign(trial))),
        (Followed::StatedLoad, stated(trial)),
        (Followed::InsideP99, inside_p99_ms(trial)),
        (Followed::IdleP50, ms(idle, Quantile::P50)),
        (
            Followed::Qoo,
            trial
                .finding
                .as_deref()
                .and_then(|finding| LoadedStep::from(finding).judge().lowest_qoo()),
        ),
        (Followed::GoodputUp, sum(up)),
        (Followed::GoodputDown, sum(down)),
    ];
    found.into_iter().filter_map(|(followed, value)| Some((followed, value?))).collect()
}

/// Returns the latency under load that a file of another tool states, ms.
fn stated(trial: &TrialRecord) -> Option<f64> {
    let mut metrics = trial.flows.iter().flat_map(|flow| &flow.metrics);
    metrics.find(|metric| metric.name == "latency_under_load")?.value
}

/// Returns the p99 of the round trips inside the load in the worse direction.
fn inside_p99_ms(trial: &TrialRecord) -> Option<f64> {
    let told = trial.inside.iter().filter_map(|it| it.distribution.told_ns(Quantile::P99));
    told.max().map(|ns| ns as f64 / 1e6)
}

/// Returns the median under load, ms, of a test against a server of another kind. Such a test sends
/// no probes and reports no 99th percentile. `None` for any other trial.
fn of_foreign(trial: &TrialRecord) -> Option<f64> {
    let foreign = trial.finding.as_ref()?.foreign.as_ref()?;
    foreign.loaded.first().map(|readings| readings.distribution.p50_ns as f64 / 1e6)
}
