//! Simulated days compared with formulas.

use super::*;
use crate::blocking::tests::erlang_b;
use crate::plan::Load;

const SETTINGS: Settings = Settings {
    seed: 1,
    days: 1,
    vanishing: 0.0,
    rules: Rules {
        loaded_per_segment: None,
        lease_grace: Span::from_secs(15),
        heartbeat_timeout: Span::from_secs(30),
    },
};

const ONE_PER_SEGMENT: Settings =
    Settings { rules: Rules { loaded_per_segment: Some(1), ..SETTINGS.rules }, ..SETTINGS };

/// Uploads of 10 s at 100 Mbit/s, six a day of each line.
fn plan(lines: &str, servers: &str) -> Plan {
    let text = format!(
        "title = \"\"\nruns_per_day = 6\n[lines]\n{lines}\n[servers]\n{servers}\n\
         [[tier]]\nup = \"100mbit\"\ndown = \"1gbit\"\n\
         [[step]]\nname = \"upload\"\nkind = \"upload\"\nduration = \"7s\"\nwarm_up = \"3s\"\n"
    );
    Plan::parse(&text).expect("a plan")
}

fn run(plan: &Plan, settings: &Settings) -> Outcome {
    let outcome = simulate(plan, settings, &mut |_| ());
    let given_up: u64 = outcome.given_up.values().sum();
    assert_eq!(outcome.scheduled, outcome.done + outcome.vanished + given_up, "{outcome:?}");
    assert_eq!(outcome.leases_left, 0);
    outcome
}

#[test]
fn every_scheduled_run_has_one_outcome_and_the_load_is_as_planned() {
    let plan = plan("count = 20_000", "count = 10\ncapacity = \"10gbit\"");
    let outcome = run(&plan, &SETTINGS);
    let load = Load::of(&plan);
    // 120,000 runs have a standard deviation of 346.
    assert!(outcome.scheduled.abs_diff(120_000) < 1_500, "{outcome:?}");
    assert!(outcome.refusals.keys().all(|reason| reason == "line busy"), "{outcome:?}");
    let near = |found: f64, want: f64| assert!((found / want - 1.0).abs() < 0.02, "{found} {want}");
    near(outcome.requests_per_s, load.requests_per_s);
    near(outcome.servers_reserved_percent, load.servers_reserved_percent.up);
    assert!(outcome.requests_per_s_p999 <= outcome.requests_per_s_max);
    assert_eq!(run(&plan, &SETTINGS), outcome, "the same seed");
    assert_ne!(run(&plan, &Settings { seed: 2, ..SETTINGS }).scheduled, outcome.scheduled);
}

#[test]
fn segments_overlap_as_poisson_says_unless_one_waits_for_the_other() {
    let plan = plan("count = 30_000\nper_segment = 300", "count = 10\ncapacity = \"100gbit\"");
    let predicted = Load::of(&plan).segment_overlap_percent.expect("it loads");
    let free = run(&plan, &SETTINGS);
    assert!((free.overlap_percent - predicted).abs() < 0.5, "{free:?}, {predicted}");
    let ruled = run(&plan, &ONE_PER_SEGMENT);
    assert!(ruled.overlap_percent <= 0.0, "{ruled:?}");
    // Within the hour nearly all runs find a free minute.
    assert!(ruled.refusals["segment busy"] > 25_000, "{ruled:?}");
    assert!(ruled.done as f64 > 0.999 * ruled.scheduled as f64, "{ruled:?}");
}

#[test]
fn a_full_pool_blocks_as_erlang_says() {
    // 10 slots for 4.46 erlang: 6,422 lines, 6 runs a day of 10 s.
    let plan = plan("count = 6_422", "count = 1\ncapacity = \"1gbit\"");
    let settings = Settings { days: 10, ..SETTINGS };
    let outcome = run(&plan, &settings);
    let predicted = erlang_b(4.46, 10) * 100.0;
    assert!((Load::of(&plan).blocked_percent - predicted).abs() < 0.01);
    // Refused runs are retried, unlike Erlang's callers: a little more than 1 %.
    assert!((0.9..1.4).contains(&outcome.blocked_percent), "{outcome:?}, {predicted}");
}

#[test]
fn busy_homes_and_lines_that_vanish_are_counted() {
    let plan = plan("count = 2_000\nbusy_percent = 50", "count = 10\ncapacity = \"10gbit\"");
    let outcome = run(&plan, &Settings { vanishing: 0.1, ..ONE_PER_SEGMENT });
    let started = outcome.done + outcome.vanished;
    let vanished = outcome.vanished as f64 / started as f64;
    assert!((vanished - 0.1).abs() < 0.01, "{outcome:?}");
    // Each run is refused once on average: 1/2 + 1/4 + ...
    let refused = outcome.refusals["home busy"] as f64 / outcome.scheduled as f64;
    assert!((refused - 1.0).abs() < 0.05, "{outcome:?}");
    // About seven requests fit into the hour: 1/128.
    let given_up = outcome.given_up["home busy"] as f64 / outcome.scheduled as f64;
    assert!((0.003..0.012).contains(&given_up), "{outcome:?}");
    let never = Plan { lines: crate::plan::Lines { busy: 1.0, ..plan.lines }, ..plan };
    let outcome = run(&never, &SETTINGS);
    assert_eq!((outcome.done, outcome.given_up["home busy"]), (0, outcome.scheduled));
}

#[test]
fn a_sample_has_neighbour_overlap_in_proportion_to_its_size() {
    let servers = "count = 10\ncapacity = \"100gbit\"";
    let plan = plan("count = 600_000\nsample = 20_000\nper_segment = 300", servers);
    let predicted = Load::of(&plan).segment_overlap_percent.expect("it loads");
    let outcome = run(&plan, &SETTINGS);
    assert!(predicted < 0.8 && (outcome.overlap_percent - predicted).abs() < 0.15, "{outcome:?}");
}
