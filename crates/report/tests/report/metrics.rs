//! Every name that an expectation may use, against numbers found another way.

use underload_report::metric;
use underload_report::schema::{Phase, Quantile, World};

use crate::page::run;
use crate::synthetic::DOCSIS_PIE;

#[test]
fn every_documented_metric_has_its_value_and_unit() {
    let data = run(World::Live, &[DOCSIS_PIE], 3, 10_000_000);
    let summary = &data.record.summaries[0];
    let load: Vec<u64> = data
        .samples
        .iter()
        .filter(|sample| sample.phase == Phase::Load)
        .filter_map(|sample| sample.rtt_ns)
        .collect();
    let sent = data.samples.iter().filter(|sample| sample.phase == Phase::Load).count();
    let mean_ms = load.iter().sum::<u64>() as f64 / load.len() as f64 / 1e6;
    let max_ms = load.iter().max().map_or(0.0, |max| *max as f64 / 1e6);
    for (name, want) in [
        ("load.rtt.mean", mean_ms),
        ("probe/load.rtt.mean", mean_ms),
        ("load.rtt.max", max_ms),
        ("load.loss", (sent - load.len()) as f64 * 100.0 / sent as f64),
        ("load.sojourn.up.p99", 8.0 * 1.3),
        ("goodput.up", (9.42 + 9.43 + 9.44) / 3.0),
        ("throughput.up", 9.9),
        ("utilisation.up", 99.0),
        ("drops.up", 4200.0 / 5842.0),
        ("marks.up", 700.0 / 5842.0),
        ("probe/mos", (4.1 + 4.11 + 4.12) / 3.0),
    ] {
        let found = metric(summary, name).unwrap_or(f64::NAN);
        assert!((found - want).abs() < 1e-5, "{name}: {found} is not {want}");
    }
    for quantile in Quantile::ALL {
        let name = format!("idle.rtt.{}", quantile.name());
        assert!(metric(summary, &name).is_some(), "{name}");
    }
}

#[test]
fn names_that_mean_nothing_have_no_value() {
    let data = run(World::Live, &[DOCSIS_PIE], 1, 50_000_000);
    for name in [
        "",
        ".",
        "/",
        "load",
        "load.rtt",
        "load.rtt.p51",
        "later.rtt.p50",
        "load.up.p50",
        "goodput.down",
        "goodput.sideways",
        "fairness.up",
        "nobody/load.rtt.p50",
        "probe/nothing",
        "load.sojourn.down.p50",
    ] {
        assert_eq!(metric(&data.record.summaries[0], name), None, "{name:?}");
    }
}
