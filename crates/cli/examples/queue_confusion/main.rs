//! The test bench of `underload path`: which queue does it see, of all that there are?
//!
//! ```text
//! cargo run --release -p underload --example queue_confusion              the confusion matrix
//! cargo run --release -p underload --example queue_confusion -- --only codel  each cell of it
//! cargo run --release -p underload --example queue_confusion -- --learn FILE  makes the model
//! cargo run --release -p underload --example queue_confusion -- --record FILE evidence for tests
//! ```
//!
//! Every discipline, at several rates, round trips and congestion controls, goes through the same
//! two stages as a real line does, in virtual time, and through the same code from there on. The
//! cells that the model is learnt from (`--learn`) and those that it is judged by have no rate, no
//! round trip, no buffer and no seed in common.
#![expect(clippy::print_stderr, reason = "an example prints its progress")]
#![expect(clippy::print_stdout, reason = "the tables are the result of the program")]

mod cells;
#[path = "../../../probe/tests/support/learn.rs"]
mod learn;
mod simulate;
mod tables;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use underload_probe::path::{
    Component, Control, Evidence, FEATURES, FeatureVector, Model, QueueKind, classify_with,
    features,
};

use cells::{Cell, Set, cells};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => {
            judge(Model::built_in(), None);
            Ok(())
        }
        ["--only", name] => {
            judge(Model::built_in(), Some(name));
            Ok(())
        }
        ["--learn", file] => learn(file),
        ["--record", file] => record(file),
        _ => Err("expected nothing, --only DISCIPLINE, --learn FILE or --record FILE".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("queue_confusion: {error}");
            ExitCode::from(2)
        }
    }
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn learn(file: &str) -> Outcome {
    let observed = observe(&cells(Set::Learn));
    let cases = observed.iter().map(|(cell, evidence)| {
        (cell.discipline.kind, evidence.control, cell.discipline.name, features(evidence))
    });
    let model = learn::learn(cases);
    std::fs::write(file, learn::write(&model))?;
    println!("{} cases -> {file}; judged by what it was learnt from:", observed.len());
    tables::print(&model, &observed);
    println!("\nheld out:");
    judge(&model, None);
    Ok(())
}

/// Every 29th held-out cell as a line of JSON.
fn record(file: &str) -> Outcome {
    let cells: Vec<Cell> = cells(Set::Judge).into_iter().step_by(29).collect();
    let mut text = String::new();
    for (cell, evidence) in observe(&cells) {
        let line = serde_json::json!({
            "kind": cell.discipline.kind,
            "cell": cell.to_string(),
            "evidence": evidence,
        });
        text.push_str(&line.to_string());
        text.push('\n');
    }
    Ok(std::fs::write(file, text)?)
}

fn judge(model: &Model, only: Option<&str>) {
    let wanted = |cell: &Cell| only.is_none_or(|name| cell.discipline.name == name);
    let cells: Vec<Cell> = cells(Set::Judge).into_iter().filter(wanted).collect();
    let observed = observe(&cells);
    tables::print(model, &observed);
    if only.is_some() {
        for (cell, evidence) in &observed {
            let judged = classify_with(model, evidence);
            println!("{cell}\n    {evidence:?}\n    {judged:?}");
        }
    }
}

/// Simulates all cells on all processors; cells without evidence are reported and left out.
fn observe(cells: &[Cell]) -> Vec<(Cell, Evidence)> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(cell) = cells.get(index) else { break };
                    // A defect that one cell meets must not cost the others.
                    match std::panic::catch_unwind(|| simulate::observe(cell)) {
                        Ok(Ok(evidence)) => {
                            if let Ok(mut found) = found.lock() {
                                found.insert(index, (cell.clone(), evidence));
                            }
                        }
                        Ok(Err(error)) => eprintln!("{cell}: {error}"),
                        Err(_) => eprintln!("{cell}: the simulator panicked, left out"),
                    }
                }
            });
        }
    });
    found.into_inner().map(|found| found.into_values().collect()).unwrap_or_default()
}
