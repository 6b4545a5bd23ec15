//! The tables and queries for ClickHouse, run by the engine itself (chdb, a Python package) and
//! compared with what this program computes from the same results.

#![expect(clippy::print_stderr, reason = "tests print why they were skipped")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use underload_aqm::rng::Rng;
use underload_fleet::bins::{Bins, GAMMA};
use underload_fleet::device::{Attributes, DeviceId, Pseudonym};
use underload_fleet::outcome::{Outcome, RunResult, SeriesResult, StepResult};
use underload_fleet::plan::Kind;
use underload_fleet::store::StoredResult;
use underload_record::stats::binned_quantile;

const TABLES: &str = include_str!("../../../packaging/clickhouse/tables.sql");
const DAY: &str = include_str!("../../../packaging/clickhouse/day.sql");
const P99: &str = include_str!("../../../packaging/clickhouse/p99.sql");
const DEVICES: &str = include_str!("../../../packaging/clickhouse/devices.sql");

/// Reads statements, one JSON string a line, and prints the rows of each as a JSON list.
const ASK: &str = r#"
import json, sys
from chdb import session
s = session.Session()
for line in sys.stdin:
    rows = str(s.query(json.loads(line), "JSONEachRow")).splitlines()
    print(json.dumps([json.loads(row) for row in rows if row]))
"#;

/// `None`, with a report of the skip, if the engine is not installed.
fn python(test: &str) -> Option<String> {
    let python = std::env::var("UNDERLOAD_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = Command::new(&python).args(["-c", "import chdb"]).output();
    if found.is_ok_and(|found| found.status.success()) {
        return Some(python);
    }
    eprintln!("SKIPPED {test}: chdb is not installed (python3 -m venv, pip install chdb, then");
    eprintln!("        UNDERLOAD_PYTHON=VENV/bin/python)");
    None
}

fn ask(python: &str, statements: &[String]) -> Vec<Vec<serde_json::Value>> {
    let mut child = Command::new(python)
        .args(["-c", ASK])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = String::new();
    for statement in statements {
        lines += &serde_json::to_string(statement).expect("a text");
        lines.push('\n');
    }
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(lines.as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "a statement failed, see above");
    let text = String::from_utf8(output.stdout).expect("JSON");
    text.lines().map(|line| serde_json::from_str(line).expect("a list")).collect()
}

/// Returns the statements of a file, with values in place of the names in braces.
fn statements(file: &str, values: &[(&str, &str)]) -> Vec<String> {
    let lines = file.lines().filter(|line| !line.starts_with("--"));
    let text = lines.collect::<Vec<_>>().join("\n");
    let text = values.iter().fold(text, |text, (from, to)| text.replace(from, to));
    let statements = text.split(";\n").map(|one| one.trim().trim_end_matches(';').to_owned());
    statements.filter(|one| !one.is_empty()).collect()
}

/// 2020-09-13 12:26:40.
const AT_MS: u64 = 1_600_000_000_000;

fn result(device: u8, sequence: u64, rng: &mut Rng) -> StoredResult {
    let mut bins = Bins::default();
    let delays: Vec<u64> = (0..50).map(|_| u64::from(10_000 + rng.below(90_000))).collect();
    for us in &delays {
        bins.add(*us as f64);
    }
    let lost = u64::from(rng.below(2));
    let series = SeriesResult {
        dscp: 45,
        sent: 50 + lost,
        lost,
        bins,
        p50_us: None,
        p99_us: None,
        mean_us: Some(delays.iter().sum::<u64>() / 50),
        max_us: delays.iter().max().copied(),
    };
    StoredResult {
        device: DeviceId([device; 16]),
        epoch: 1,
        sequence,
        stored_ms: AT_MS,
        pseudonym: Pseudonym([device; 16]),
        cohort: if device.is_multiple_of(2) { "it's" } else { "control" }.to_owned(),
        attributes: Attributes { model: "a \"b\"".to_owned(), ..Attributes::default() },
        result: RunResult {
            plan: "trial".to_owned(),
            run: sequence,
            at_ms: AT_MS + sequence * 60_000,
            outcome: Outcome::Measured,
            reason: String::new(),
            server: String::new(),
            version: String::new(),
            steps: vec![StepResult {
                step: "up".to_owned(),
                inside: None,
                kind: Kind::Upload,
                goodput_bit_per_s: Some(1),
                tier_percent: None,
                grade: None,
                series: vec![series],
            }],
        },
    }
}

fn assert_alike(name: &str, found: Option<f64>, want: Option<f64>) {
    match (found, want) {
        (Some(found), Some(want)) => {
            assert!((found / want - 1.0).abs() < 1e-9, "{name}: {found} is not {want}");
        }
        (found, want) => assert_eq!(found, want, "{name}"),
    }
}

#[test]
fn clickhouse_sums_results_once_and_reads_the_same_quantiles() {
    let test = "clickhouse_sums_results_once_and_reads_the_same_quantiles";
    let Some(python) = python(test) else { return };
    let mut rng = Rng::new(1);
    let mut results: Vec<StoredResult> = (0..20_u8)
        .flat_map(|device| (1..=3).map(move |sequence| (device, sequence)))
        .map(|(device, sequence)| result(device, sequence, &mut rng))
        .collect();
    let mut refused = result(1, 9, &mut rng);
    refused.result.outcome = Outcome::Refused;
    let mut own = result(2, 8, &mut rng);
    own.result.run = 0;
    let mut lines = String::from("INSERT INTO inbox FORMAT LineAsString\n");
    for result in results.iter().chain([&refused, &own]) {
        lines += &serde_json::to_string(result).expect("JSON");
        lines.push('\n');
    }
    let day = [("{day:Date}", "'2020-09-13'")];
    // Equal results arrive again, before and after the day is folded.
    let mut all = statements(TABLES, &[]);
    all.extend([lines.clone(), lines.clone()]);
    all.extend(statements(DAY, &day));
    all.push(lines);
    all.extend(statements(DAY, &day));
    all.extend(statements(P99, &[]));
    all.extend(statements(DEVICES, &[("{plan:String}", "'trial'")]));
    let mut answers = ask(&python, &all);
    let (devices, p99) = (answers.pop().expect("rows"), answers.pop().expect("rows"));

    results.sort_by(|a, b| a.cohort.cmp(&b.cohort));
    let mut cohorts: BTreeMap<String, (Bins, u64, u64)> = BTreeMap::new();
    for result in &results {
        let series = &result.result.steps[0].series[0];
        let sums = cohorts.entry(result.cohort.clone()).or_default();
        sums.0.merge(&series.bins);
        sums.1 += series.lost;
        sums.2 += 1;
    }
    assert_eq!(p99.len(), cohorts.len(), "{p99:?}");
    for (row, (cohort, (bins, lost, tests))) in p99.iter().zip(&cohorts) {
        assert_eq!(row["cohort"], cohort.as_str());
        assert_eq!((row["tests"].as_u64(), row["devices"].as_u64()), (Some(*tests), Some(10)));
        for (name, share) in [("p50_ms", 0.5), ("p99_ms", 0.99)] {
            let counts = bins.iter().map(|(bin, count)| (i64::from(bin), count));
            let want =
                binned_quantile(GAMMA, counts, bins.count() + lost, share).map(|us| us / 1e3);
            assert_alike(name, row[name].as_f64(), want);
        }
    }
    let counted: u64 = devices.iter().filter_map(|row| row["devices"].as_u64()).sum();
    let percent: f64 = devices.iter().filter_map(|row| row["percent"].as_f64()).sum();
    assert_eq!(counted, 20, "{devices:?}");
    assert!((percent - 200.0).abs() < 1e-6, "of two cohorts: {devices:?}");
}
