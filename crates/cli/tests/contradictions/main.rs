//! Conclusions are checked by something that did not draw them: made-up runs and random simulated ones
//! go through a checker that reads only what a reader gets, the record and the sentences.
//!
//! `CONTRADICTIONS` is the number of made-up runs and `SCENARIOS` of simulated ones, if not those of
//! CI. `UNDERLOAD_BINARY` names another build of the program, whose printed text is checked.

mod checker;
mod made_up;
mod simulated;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use checker::{Told, contradictions};
use serde_json::Value;
use underload_report::{load, summary};
use underload_store::RunData;

/// Returns a number from the environment.
fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Contradictions of each kind: how many, and the first of them.
#[derive(Default)]
struct Tally(BTreeMap<&'static str, (u64, String)>);

impl Tally {
    fn add(&mut self, source: &str, run: &Value, told: &[Told]) {
        for (kind, shown) in contradictions(run, told) {
            let (count, _) =
                self.0.entry(kind).or_insert_with(|| (0, format!("{source}: {shown}")));
            *count += 1;
        }
    }

    fn text(&self) -> String {
        let line = |(kind, (count, first)): (&&str, &(u64, String))| {
            format!("{count} {kind}\n  {first}\n")
        };
        self.0.iter().map(line).collect()
    }
}

fn told(runs: &[RunData]) -> Vec<Told> {
    summary(runs).into_iter().map(|sentence| (sentence.claim, sentence.text)).collect()
}

#[test]
fn made_up_runs_have_no_contradiction() {
    let count = number("CONTRADICTIONS", 2_000);
    let mut tally = Tally::default();
    // A search of 100,000 runs found this seed: some variants lost all probes, and one has no
    // values.
    for seed in (0..count).chain([13_871]) {
        let run = made_up::run(seed);
        let record = serde_json::to_value(&run.record).expect("a record is JSON");
        tally.add(&seed.to_string(), &record, &told(&[run]));
    }
    eprintln!("{count} made-up runs\n{}", tally.text());
    assert!(tally.0.is_empty(), "{}", tally.text());
}

#[test]
fn simulated_runs_have_no_contradiction() {
    let count = number("SCENARIOS", 24);
    let other = std::env::var("UNDERLOAD_BINARY");
    let binary = other.clone().unwrap_or_else(|_| env!("CARGO_BIN_EXE_underload").to_owned());
    let repeats = match number("REPEATS", 0) {
        0 => vec![1, 3, 5, 6],
        repeats => vec![repeats as u32],
    };
    let mut tally = Tally::default();
    for seed in 0..count {
        let folder = tempfile::tempdir().expect("a folder");
        let text = simulated::scenario(seed, &repeats);
        std::fs::write(folder.path().join("random.toml"), &text).expect("a file");
        let printed = run(&binary, folder.path(), &text);
        let out = folder.path().join("out");
        let record = std::fs::read(out.join("run.json")).expect("a record");
        let record: Value = serde_json::from_slice(&record).expect("JSON");
        let told = match &other {
            Err(_) => told(&load(&[out]).expect("a run")),
            Ok(_) => {
                let (_, sentences) = printed.trim().rsplit_once("\n\n").unwrap_or(("", &printed));
                sentences.lines().map(|line| (None, line.to_owned())).collect()
            }
        };
        tally.add(&seed.to_string(), &record, &told);
    }
    eprintln!("{count} simulated runs\n{}", tally.text());
    assert!(tally.0.is_empty() || other.is_ok(), "{}", tally.text());
}

/// Runs a scenario in virtual time and returns what the program prints.
fn run(binary: &str, folder: &Path, text: &str) -> String {
    let mut command = Command::new(binary);
    command.args(["run", "random.toml", "--world", "sim", "--no-cache", "--out", "out"]);
    let output = command.current_dir(folder).output().expect("the program starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}\n{text}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
