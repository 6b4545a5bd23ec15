//! The JSON of Ookla's command line program `speedtest` (`-f json`, or a line for each test and its
//! progress, `-f jsonl`): rates in bytes per second, times in ms.
//!
//! The file has no single round trip, only statistics, so they are numbers of a flow. Under load
//! Ookla states the interquartile mean (`iqm`), which leaves out the slowest quarter.

use serde_json::Value;
use underload_record::schema::{Direction, Phase};
use underload_record::text::one_line;

use super::imported::{ImportError, Imported, load_flow, numbers_flow, window};
use super::numbers::{nanos, number, rate, trees};
use super::rows::NAMES_MAX;

const TOOL: &str = "speedtest";

/// Returns the tests of a file, as repeats of one variant.
pub(super) fn read(text: &[u8]) -> Result<Vec<Imported>, ImportError> {
    let lines = trees(text, TOOL)?;
    let tests: Vec<Imported> =
        lines.iter().filter(|line| line["type"] == "result").map(test).collect();
    match tests.len() {
        0 => {
            let said =
                |line: &Value| line.get("error").or(line.get("message"))?.as_str().map(one_line);
            Err(match lines.iter().rev().find_map(said) {
                Some(said) => ImportError::Failed { tool: TOOL, said },
                None => ImportError::content(TOOL, "it has no result of a test"),
            })
        }
        1..=NAMES_MAX => Ok(tests),
        _ => Err(ImportError::content(TOOL, "it has too many tests")),
    }
}

fn test(line: &Value) -> Imported {
    let of = |path| number(line, path);
    let ms = |path| nanos(of(path).unwrap_or(0.0) / 1e3).unwrap_or(0);
    let loaded = ["/download/latency/iqm", "/upload/latency/iqm"].map(of);
    let numbers = [
        // Sentences have the first number: the worse direction.
        ("latency_under_load", "ms", loaded.into_iter().flatten().reduce(f64::max)),
        ("down_latency", "ms", loaded[0]),
        ("up_latency", "ms", loaded[1]),
        ("idle_latency", "ms", of("/ping/latency")),
        ("idle_high", "ms", of("/ping/high")),
        ("down_high", "ms", of("/download/latency/high")),
        ("up_high", "ms", of("/upload/latency/high")),
        ("idle_jitter", "ms", of("/ping/jitter")),
        ("lost", "%", of("/packetLoss")),
    ];
    let load = |path, direction: Direction| {
        let goodput = rate(of(path)? * 8.0);
        Some(load_flow(direction.to_string(), "tcp", direction, goodput))
    };
    let down = load("/download/bandwidth", Direction::Down);
    let up = load("/upload/bandwidth", Direction::Up);
    Imported {
        tool: "Ookla's speedtest".to_owned(),
        name: TOOL.to_owned(),
        started: line["timestamp"].as_str().unwrap_or_default().to_owned(),
        phases: vec![window(Phase::Load, 0, ms("/download/elapsed") + ms("/upload/elapsed") + 1)],
        flows: [Some(numbers_flow(TOOL, TOOL, &numbers)), down, up].into_iter().flatten().collect(),
        ..Imported::default()
    }
}

#[cfg(test)]
mod tests {
    const TEST: &str = r#"{"type":"result","timestamp":"2026-11-29T21:00:00Z",
        "ping":{"jitter":0.1,"latency":18.0,"low":17.8,"high":18.1},
        "download":{"bandwidth":12500000,"bytes":150000000,"elapsed":8000,
            "latency":{"iqm":40.5,"low":19.8,"high":269.5,"jitter":3.8}},
        "upload":{"bandwidth":1250000,"elapsed":4000,"latency":{"iqm":251.5}},
        "packetLoss":0.5,"isp":"An ISP"}"#;

    #[test]
    fn tests_of_a_file_are_repeats_with_ooklas_numbers() {
        let ping = r#"{"type":"ping","ping":{"latency":17.9,"progress":0.2}}"#;
        let run = crate::import(format!("{ping}\n{TEST}\n{TEST}\n").as_bytes()).unwrap();
        let repeats: Vec<u32> = run.record.trials.iter().map(|trial| trial.repeat).collect();
        assert_eq!((run.record.variants.len(), repeats), (1, vec![0, 1]));
        assert_eq!(run.record.host.started, "2026-11-29T21:00:00Z");
        let flows = &run.record.trials[0].flows;
        let numbers: Vec<_> = flows[0].metrics.iter().filter_map(|it| it.value).collect();
        assert_eq!(numbers, [251.5, 40.5, 251.5, 18.0, 18.1, 269.5, 0.1, 0.5]);
        let rates = (flows[1].goodput_down_bit_per_s, flows[2].goodput_up_bit_per_s);
        assert_eq!(rates, (Some(100_000_000), Some(10_000_000)));
    }

    #[test]
    fn a_file_without_a_test_says_why() {
        let said = |text: &str| crate::import(text.as_bytes()).unwrap_err().to_string();
        let failed = r#"{"type":"log","level":"error","message":"Cannot open socket"}"#;
        assert!(said(failed).contains("the test failed, and says: Cannot open socket"));
        assert!(said(r#"{"type":"ping"}"#).contains("no result of a test"));
        assert!(said(r#"{"type":7}"#).contains("no result of a test"));
        assert!(said(r#"{"type":"result"} {"#).contains("not a file of speedtest"));
        let cut = TEST.split_once("\"low\":19").unwrap().0;
        assert!(said(cut).contains("looks like JSON of speedtest, but at line 4, column "));
    }
}
