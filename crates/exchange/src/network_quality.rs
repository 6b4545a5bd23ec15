//! The JSON of Apple's `networkQuality -c` (networkQuality(8) of macOS): rates in bit/s, round trips
//! in ms, and responsiveness in round trips per minute (RPM).
//!
//! Both directions are loaded together, or with `-s` one after the other, as a variant each. Probes
//! are HTTP exchanges on new connections (`il_h2_req_resp` without load, `lud_foreign_…` under it);
//! the file has no times, so they count as 100 ms apart. Exchanges on the loaded connections
//! (`lud_self_…`) are round trips inside the load, if their direction is known.

use serde_json::Value;
use underload_record::schema::{Direction, InsideLatency, Phase, Sample};
use underload_record::stats::distribution;
use underload_record::text::one_line;

use super::imported::{ImportError, Imported, load_flow, numbers_flow, probe, probe_flow, window};
use super::numbers::{nanos, number, rate, trees};

const STEP_NS: u64 = 100_000_000;
const TOOL: &str = "networkQuality";
/// The directions, with the beginnings of their keys.
const WAYS: &[(Direction, &str)] = &[(Direction::Down, "dl_"), (Direction::Up, "ul_")];

/// Returns the test, or with `-s` that of each direction.
pub(super) fn read(text: &[u8]) -> Result<Vec<Imported>, ImportError> {
    let trees = trees(text, TOOL)?;
    let nothing = || ImportError::content(TOOL, "it has neither responsiveness nor round trips");
    let tree = trees.first().ok_or_else(nothing)?;
    if let Some(code) = number(tree, "/error_code").filter(|code| *code != 0.0) {
        let domain = tree["error_domain"].as_str().unwrap_or("error");
        return Err(ImportError::Failed {
            tool: TOOL,
            said: one_line(&format!("{domain} {code}")),
        });
    }
    let apart = WAYS.iter().filter_map(|way| part(tree, way.1, std::slice::from_ref(way)));
    let apart: Vec<Imported> = apart.collect();
    match part(tree, "", WAYS) {
        _ if !apart.is_empty() => Ok(apart),
        together => Ok(vec![together.ok_or_else(nothing)?]),
    }
}

/// Returns the round trips in a list, ns.
fn trips_ns(tree: &Value, name: &str) -> Vec<u64> {
    let list = tree[name].as_array().map_or(&[][..], Vec::as_slice);
    list.iter().filter_map(|ms| nanos(ms.as_f64()? / 1e3)).collect()
}

/// Returns the test of some directions, whose keys have a beginning; `None` if the file lacks it.
fn part(tree: &Value, of: &str, ways: &[(Direction, &str)]) -> Option<Imported> {
    let rpm = number(tree, &format!("/{of}responsiveness"));
    let idle = trips_ns(tree, "il_h2_req_resp");
    let loaded = trips_ns(tree, &format!("lud_foreign_{of}h2_req_resp"));
    rpm.or(loaded.first().map(|_| 0.0))?;
    let start = idle.len() as u64;
    let samples = (0..).zip(idle.iter().chain(&loaded)).map(|(place, rtt_ns)| Sample {
        phase: if place < start { Phase::Idle } else { Phase::Load },
        ..probe(place, place * STEP_NS, Some(*rtt_ns))
    });
    let samples: Vec<Sample> = samples.collect();
    let (start_ns, end_ns) = (start * STEP_NS, samples.len() as u64 * STEP_NS + 1);
    let numbers =
        [("responsiveness", "RPM", rpm), ("idle_latency", "ms", number(tree, "/base_rtt"))];
    let numbers = numbers_flow(TOOL, "responsiveness", &numbers);
    let loads = ways.iter().filter_map(|(direction, of)| {
        let goodput = rate(number(tree, &format!("/{of}throughput"))?);
        Some(load_flow(direction.to_string(), "tcp", *direction, goodput))
    });
    let alone = ways.first().filter(|_| ways.len() == 1).map(|way| way.0);
    let inside = alone.and_then(|direction| {
        let distribution = distribution(&mut trips_ns(tree, &format!("lud_self_{of}h2_req_resp")))?;
        Some(InsideLatency { direction, distribution, ..InsideLatency::default() })
    });
    Some(Imported {
        tool: "Apple's networkQuality".to_owned(),
        name: TOOL.to_owned(),
        variant: alone.map(|direction| direction.to_string()).unwrap_or_default(),
        phases: vec![window(Phase::Idle, 0, start_ns), window(Phase::Load, start_ns, end_ns)],
        flows: [probe_flow("new connections"), numbers].into_iter().chain(loads).collect(),
        samples,
        inside: inside.into_iter().collect(),
        ..Imported::default()
    })
}

#[cfg(test)]
mod tests {
    use underload_record::judgement::LoadedStep;

    use super::*;
    use underload_record::schema::Unmeasured;

    #[test]
    fn directions_tested_together_are_one_variant_and_separately_two() {
        let together = r#"{"base_rtt":17.8,"dl_throughput":361439456,"ul_throughput":319803552,
            "il_h2_req_resp":[12.5,14.5],"lud_foreign_h2_req_resp":[40,62,31],
            "lud_self_h2_req_resp":[29,66],"responsiveness":215.5}"#;
        let run = crate::import(together.as_bytes()).unwrap();
        assert_eq!(run.record.variants[0].name, "networkQuality");
        let trial = &run.record.trials[0];
        let rates: Vec<_> = trial.flows[2..].iter().map(|it| it.name.as_str()).collect();
        assert_eq!((rates, trial.inside.len()), (vec!["down", "up"], 0));
        let counts: Vec<_> = trial.latencies.iter().map(|it| (it.window.phase, it.sent)).collect();
        assert_eq!(counts, [(Phase::Idle, 2), (Phase::Load, 3)]);
        let apart = r#"{"dl_throughput":441000000,"ul_throughput":136000000,
            "dl_responsiveness":600,"ul_responsiveness":150,"il_h2_req_resp":[42],
            "lud_foreign_dl_h2_req_resp":[40,80],"lud_foreign_ul_h2_req_resp":[44],
            "lud_self_ul_h2_req_resp":[250,300,350]}"#;
        let run = crate::import(apart.as_bytes()).unwrap();
        let names: Vec<_> = run.record.variants.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["down", "up"]);
        let up = &run.record.trials[1];
        assert_eq!(up.flows[1].metrics[0].value, Some(150.0));
        let inside = up.inside[0].distribution;
        assert_eq!((up.inside[0].direction, inside.p50_ns), (Direction::Up, 300_000_000));
    }

    /// By hand: 100 values support a p95, the 95th of 101 to 200 ms, and 195 - 20 ms are grade C.
    #[test]
    fn a_file_with_enough_round_trips_is_graded() {
        let grades = |loaded: std::ops::RangeInclusive<u32>, idle: &str| {
            let loaded = loaded.map(|ms| ms.to_string()).collect::<Vec<_>>().join(",");
            let text = format!(
                r#"{{"dl_throughput":40000000,"il_h2_req_resp":{idle},
                    "lud_foreign_h2_req_resp":[{loaded}],"responsiveness":300}}"#
            );
            let run = crate::import(text.as_bytes()).unwrap();
            let finding = run.record.trials[0].finding.as_deref()?;
            let unknown = [Unmeasured::OneWay, Unmeasured::Markings, Unmeasured::Timeliness];
            assert_eq!(finding.cannot_tell, unknown);
            let added = LoadedStep::from(finding).judge().beside?;
            Some((added.quantile.name(), added.added_ns?, added.grade.name()))
        };
        assert_eq!(grades(101..=200, "[20,20,30]"), Some(("p95", 175_000_000, "C")));
        assert_eq!(grades(101..=110, "[20]"), Some(("p50", 85_000_000, "C")));
        assert_eq!(grades(101..=109, "[20]"), None, "too few");
        assert_eq!(grades(101..=200, "[]"), None, "nothing without load");
    }

    #[test]
    fn a_failed_or_empty_test_says_so() {
        let said = |text: &str| crate::import(text.as_bytes()).unwrap_err().to_string();
        let failed = r#"{"error_code":-1009,"error_domain":"NSURLErrorDomain","dl_throughput":0}"#;
        assert!(said(failed).ends_with("says: NSURLErrorDomain -1009"));
        assert!(said(r#"{"dl_throughput":5}"#).contains("neither responsiveness nor round trips"));
        assert!(said(r#"{"ul_throughput":5,"il_h2_req_resp":7}"#).contains("networkQuality"));
        let long = format!(r#"{{"dl_throughput":5,"x":"{}"}}"#, "x".repeat(8 << 20));
        assert!(said(&long).contains("more than 8 MiB"));
    }
}
