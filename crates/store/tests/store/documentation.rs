//! The pages on the run directory name every field and column that its files have.

use std::collections::BTreeSet;
use std::error::Error;

use serde_json::Value;
use underload_record::schema::{CeAlarm, CeRule, Direction, World};
use underload_store::{RunDir, write_samples_csv, write_series_csv};

use underload_record::synthetic::{self, BUFFER_CONTROL, DOCSIS_PIE};

/// Keys of every object, except those of maps whose keys are data.
fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, inner) in fields {
                found.insert(key.clone());
                match inner {
                    Value::Object(_) if key == "conditions" || key == "factors" => {}
                    Value::Object(map) if key == "drops" || key == "marks" => {
                        map.values().for_each(|inner| keys(inner, found));
                    }
                    _ => keys(inner, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        _ => {}
    }
}

#[test]
fn the_format_page_names_every_field() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let queues = [BUFFER_CONTROL, DOCSIS_PIE];
    let mut run = RunDir::create(directory.path(), synthetic::record(World::Live, &queues))?;
    let mut trials = synthetic::trials(&queues, 2, 50_000_000);
    trials[0].record.validity = synthetic::late();
    trials[0].record.ce_alarms.push(CeAlarm {
        flow: "bulk".to_owned(),
        direction: Direction::Down,
        rule: CeRule::Loaded,
        start_ns: 0,
        end_ns: 1,
        ecn_packets: 2,
        ce_packets: 1,
        rate_bit_per_s: None,
        fair_share_bit_per_s: None,
    });
    for trial in &trials {
        run.append_trial(&trial.record, &trial.samples, &trial.series)?;
    }
    run.finish(1.0)?;
    let json: Value = serde_json::from_slice(&std::fs::read(directory.path().join("run.json"))?)?;
    let mut names = BTreeSet::new();
    keys(&json, &mut names);
    assert!(names.len() > 80, "only {} fields: {names:?}", names.len());
    let data = RunDir::read(directory.path())?;
    let mut csv = Vec::new();
    write_samples_csv(&mut csv, &data)?;
    let samples = String::from_utf8(std::mem::take(&mut csv))?;
    write_series_csv(&mut csv, &data)?;
    let series = String::from_utf8(csv)?;
    for header in [samples.lines().next(), series.lines().next()].into_iter().flatten() {
        names.extend(header.split(',').map(str::to_owned));
    }
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let pages = std::fs::read_to_string(format!("{docs}/run-format.md"))?
        + &std::fs::read_to_string(format!("{docs}/reference/run-json.md"))?;
    let missing: Vec<&String> =
        names.iter().filter(|name| !pages.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "neither run-format.md nor run-json.md names {missing:?}");
    Ok(())
}
