//! The origin of a run: program, scenario, seed, machine.

use maud::{Markup, html};
use underload_record::schema::{HostFacts, World};

use super::parts::folded;
use crate::subject::run_suffix;
use crate::words::significant;
use underload_store::RunData;

pub(super) fn section(runs: &[RunData]) -> Markup {
    html! {
        @for (number, run) in runs.iter().enumerate() {
            @let suffix = run_suffix(runs, number);
            @if !suffix.is_empty() { h3 { (suffix.trim_matches([' ', '(', ')'])) } "\n" }
            (facts(run))
            (folded("The scenario", false, &html! { pre { (run.record.scenario.text) } "\n" }))
        }
    }
}

fn facts(run: &RunData) -> Markup {
    let (record, host) = (&run.record, &run.record.host);
    let took = match host.resumed.last() {
        Some(resumed) => format!("cut short, resumed {resumed}, from then on it took"),
        None => "took".to_owned(),
    };
    let facts = [
        ("Program", format!("underload {}, commit {}", record.tool_version, record.commit)),
        ("Scenario", record.scenario.name.clone()),
        ("World", format!("{} ({})", record.world.name(), record.world.description())),
        (SEED, record.seed.to_string()),
        ("Started", format!("{}, {took} {} s", host.started, significant(host.duration_s))),
        ("Machine", machine(host)),
    ];
    // A measurement of a real line has no seed.
    let has_seed = record.world != World::Measured;
    html! {
        dl {
            "\n"
            @for (name, value) in facts.iter().filter(|(name, _)| *name != SEED || has_seed) {
                dt { (name) } dd { (value) } "\n"
            }
        }
        "\n"
    }
}

const SEED: &str = "Seed";

fn machine(host: &HostFacts) -> String {
    let parts = [
        host.operating_system.clone(),
        format!("kernel {}", host.kernel),
        host.processor.clone(),
        format!("{} cores", host.cores),
        format!("clock {}", host.clock),
    ];
    let known: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    known.join(", ")
}
