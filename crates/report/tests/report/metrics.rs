//! Every name that an expectation may use, against numbers found another way.

use underload_record::schema::{
    Expectation, FlowRecord, Phase, Quantile, RunRecord, Sample, World,
};
use underload_record::{LatencyPools, conclude, metric, trial_latencies};
use underload_report::{render, warnings};
use underload_store::RunData;

use crate::page::{conclude_all, run};
use underload_record::synthetic::{self, BUFFER_CONTROL, DOCSIS_PIE};

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
        ("load.queuing.up.p99", 8.0 * 1.3 + 1.2),
        ("power.up", 9.9 / ((8.0 * 1.3 + 1.2) / 1e3)),
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
fn different_clocks_are_reported() {
    let import = |(up_ns, down_ns): (i64, i64)| {
        let trip = |number: u64| {
            format!(
                r#"{{"seqno":{number},"timestamps":{{"client":{{"send":{{"monotonic":{number}}}}}}},
                "delay":{{"rtt":950000,"send":{up_ns},"receive":{down_ns}}}}}"#
            )
        };
        let trips: Vec<String> = (0..100).map(trip).collect();
        let file = format!(
            r#"{{"version":{{"irtt":"0.9.1"}},"config":{{"params":{{}}}},
            "stats":{{"start_time":{{"wall":1,"monotonic":1}}}},"round_trips":[{}]}}"#,
            trips.join(",")
        );
        underload_exchange::import(file.as_bytes()).expect("a file of irtt")
    };
    let apart = import((10_309_000, -9_359_000));
    let summary = &apart.record.summaries[0];
    for (name, want) in [("idle.up.p50", 10.309), ("idle.down.p50", -9.359), ("idle.rtt.p50", 0.95)]
    {
        assert_eq!(metric(summary, name), Some(want), "{name}");
    }
    let clocks = |run: &RunData| {
        let all = warnings(std::slice::from_ref(run));
        all.into_iter().filter(|line| line.contains("clocks")).collect::<Vec<_>>()
    };
    let said = clocks(&apart);
    assert_eq!(
        said,
        ["The clocks of the two ends differ by more than the path takes: the smallest one-way \
          delay is -9.36 ms down. Round trips, and how much a one-way delay varies, are not \
          affected."]
    );
    let page = render(std::slice::from_ref(&apart)).expect("a page");
    assert!(page.contains(">−9.36<") && page.contains(&said[0]), "{page}");
    assert_eq!(clocks(&import((500_000, 450_000))), [] as [&str; 0]);
}

#[test]
fn an_expectation_of_several_variants_is_their_mean_ratio() {
    let mut record = run(World::Sim, &[DOCSIS_PIE, BUFFER_CONTROL], 1, 50_000_000).record;
    let of = |record: &RunRecord, variant: usize| {
        metric(&record.summaries[variant], "load.sojourn.up.p99").expect("it has a queue")
    };
    let ratio = of(&record, 1) / of(&record, 0);
    let expected = |variant: &str, other: Option<&str>| Expectation {
        metric: "load.sojourn.up.p99".to_owned(),
        variant: variant.to_owned(),
        relative_to: other.map(str::to_owned),
        ..Expectation::default()
    };
    let pie = Some("docsis-pie");
    record.expectations = vec![
        expected("*", pie),
        expected("*", Some("*")),
        expected("*", None),
        expected("x/*", pie),
    ];
    record.expectations.push(expected("docsis-pie", Some("nobody")));
    conclude(&mut record, &LatencyPools::default());
    let found: Vec<f64> =
        record.expectations.iter().map(|expected| expected.measured.unwrap_or(f64::NAN)).collect();
    let mean = f64::midpoint(of(&record, 0), of(&record, 1));
    for (found, want) in found.iter().zip([f64::midpoint(1.0, ratio), 1.0, mean]) {
        assert!((found / want - 1.0).abs() < 1e-9, "{found} is not {want}");
    }
    assert!(found[3..].iter().all(|value| value.is_nan()), "{found:?}");
}

#[test]
fn unknown_metric_names_have_no_value() {
    let data = run(World::Live, &[DOCSIS_PIE], 1, 50_000_000);
    for name in [
        "", ".", "/", "load", "load.rtt", "load.rtt.p51", "later.rtt.p50", "load.up.p50",
        "goodput.down", "goodput.sideways", "fairness.up", "nobody/load.rtt.p50", "probe/nothing",
        "load.sojourn.down.p50",
    ] {
        assert_eq!(metric(&data.record.summaries[0], name), None, "{name:?}");
    }
}

/// A request-response probe that sends the next request as soon as the answer arrives: 1 ms while
/// the line is idle, 100 ms in the second half of the load phase.
fn closed_loop(trial: u32, flow: u16, from_ns: u64, to_ns: u64) -> Vec<Sample> {
    let middle_ns = from_ns.midpoint(to_ns);
    let mut samples: Vec<Sample> = Vec::new();
    let mut time_ns = from_ns;
    while time_ns < to_ns {
        let rtt_ns = if time_ns < middle_ns { 1_000_000 } else { 100_000_000 };
        samples.push(Sample {
            trial,
            flow,
            sequence: samples.len() as u64,
            phase: Phase::Load,
            closed_loop: true,
            scheduled_ns: time_ns,
            sent_ns: time_ns,
            rtt_ns: Some(rtt_ns),
            ..Sample::default()
        });
        time_ns += rtt_ns;
    }
    samples
}

#[test]
fn a_closed_loop_probe_hides_load_unless_weighted_by_time() {
    let mut trial = synthetic::trials(&[DOCSIS_PIE], 1, 10_000_000).swap_remove(0);
    // Listed first, and yet never the headline.
    let name = "request-response".to_owned();
    trial.record.flows.insert(0, FlowRecord { name: name.clone(), ..FlowRecord::default() });
    trial.samples.iter_mut().for_each(|sample| sample.flow += 1);
    let load = trial.record.phases[2];
    let mut samples = closed_loop(0, 0, load.start_ns, load.end_ns);
    samples.append(&mut trial.samples);
    trial.samples = samples;
    let record = &mut trial.record;
    record.latencies = trial_latencies(&trial.samples, &record.flows, &record.phases);

    let data = conclude_all(synthetic::record(World::Live, &[DOCSIS_PIE]), vec![trial]);
    let summary = &data.record.summaries[0];
    let headline = summary.headline(Phase::Load).expect("an open-loop probe");
    assert_eq!((headline.probe.as_str(), headline.closed_loop), ("probe", false));
    assert!(headline.time_weighted.is_empty());

    let closed = summary.latencies.iter().find(|latency| latency.probe == name).expect("recorded");
    assert!(closed.closed_loop);
    assert_eq!(closed.value_ns(Quantile::P90), Some(1_000_000));
    let by_time = |quantile| closed.time_weighted[&quantile].mean / 1e6;
    assert!((by_time(Quantile::P50) - 1.0).abs() < 1e-9, "half the time was idle");
    assert!((by_time(Quantile::P90) - 100.0).abs() < 1e-9, "half the time was not");
    let html = render(&[data]).expect("a page");
    assert!(html.contains("closed loop: its percentiles hide load"));
    assert!(html.contains("request-response, by time"));
}
