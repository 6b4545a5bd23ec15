//! The table of docs/home-lines.md.

use std::path::PathBuf;

use underload_record::metric_of;
use underload_run::Settings;
use underload_scenario::{Options, Scenario, builtin};

use super::repository;

/// A row's first cell, its scenario, and the variant that is compared with `as-installed`.
const ROWS: [(&str, &str, &str); 11] = [
    ("`home/adsl`", "home/adsl", "managed"),
    ("`home/vdsl`", "home/vdsl", "managed"),
    ("`home/cable`", "home/cable", "managed"),
    ("`home/cable-managed`, DOCSIS-PIE", "home/cable-managed", "managed"),
    ("`home/cable-managed`, low latency", "home/cable-managed", "low-latency"),
    ("`home/fibre`", "home/fibre", "managed"),
    ("`home/fibre-slow`", "home/fibre-slow", "managed"),
    ("`home/lte`", "home/lte", "managed"),
    ("`home/5g`", "home/5g", "managed"),
    ("`home/low-orbit`", "home/low-orbit", "managed"),
    ("`home/far-room`", "home/far-room", "managed"),
];
/// The metric of each column, its decimals and unit.
const COLUMNS: [(&str, usize, &str); 4] = [
    ("load.rtt.p99", 0, "ms"),
    ("call-sent/glass_to_glass_p99", 0, "ms"),
    ("game/round_trip_p99", 0, "ms"),
    ("pages/page_load", 1, "s"),
];
const HEAD: &str =
    "| scenario | working latency | call sent | game, p99 | page |\n|---|---|---|---|---|\n";

fn row((title, name, managed): (&str, &str, &str)) -> String {
    let text = builtin::find(name).expect("a built-in scenario").text;
    let mut load = builtin::load_file;
    let scenario = Scenario::parse_with(text, name, &Options::default(), &mut load);
    let scenario = scenario.expect("a scenario");
    let run = underload_run::run(&scenario, &Settings::default(), &mut ()).expect("a run");
    let cell = |(metric, decimals, unit): (&str, usize, &str)| {
        let value = |variant| match metric_of(&run.record, variant, metric) {
            Some(value) => format!("{value:.decimals$}"),
            // Only pages can take longer than the trial.
            None => {
                assert_eq!(unit, "s", "{name}: no {metric}");
                "none loaded".to_owned()
            }
        };
        format!(" {} → {} {unit} |", value("as-installed"), value(managed))
    };
    format!("| {title} |{}\n", COLUMNS.map(cell).concat())
}

/// Returns the stored page, and the page with the rows that its scenarios produce.
fn pages() -> (String, String) {
    let page = std::fs::read_to_string(path()).expect("the page");
    let (before, rest) = page.split_once(HEAD).expect("the table's head");
    let (_, after) = rest.split_once("\n\n").expect("a paragraph below the table");
    let rows: String = ROWS.into_iter().map(row).collect();
    let computed = format!("{before}{HEAD}{rows}\n{after}");
    (page, computed)
}

fn path() -> PathBuf {
    repository().join("docs/home-lines.md")
}

pub fn write() {
    std::fs::write(path(), pages().1).expect("written");
}

#[test]
fn the_table_of_home_lines_is_what_its_scenarios_give() {
    let (page, computed) = pages();
    assert_eq!(page, computed, "the ignored test of the pages writes it");
}
