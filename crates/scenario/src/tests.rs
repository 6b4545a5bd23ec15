//! Scenario files that are accepted, and how the others are refused.

use std::fmt::Write as _;

use proptest::prelude::*;
use underload_aqm::time::Span;
use underload_record::schema::{FlowDirection, World};

use super::*;

/// A scenario that is right, to be spoilt by each case.
const GOOD: &str = r#"
title = "One"
repeats = 2
seed = 7

[path]
up = "35mbit"
up_queue = "fifo:limit=256KiB"
rtt = "17ms"

[phases]
load = "7s"

[[flow]]
kind = "tcp"
name = "bulk"
congestion_control = "cubic"

[[flow]]
kind = "probe"
interval = "10ms"
"#;

fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse(text, "case.toml")
}

fn parse_with(text: &str, options: &Options) -> Result<Scenario, ScenarioError> {
    Scenario::parse_with(text, "case.toml", options, &mut builtin::load_file)
}

#[test]
fn defaults_are_filled_in() {
    let scenario = parse(GOOD).expect("the scenario is right");
    assert_eq!((scenario.repeats, scenario.seed), (2, 7));
    let [variant] = scenario.variants.as_slice() else {
        panic!("{} variants", scenario.variants.len())
    };
    assert_eq!(variant.name, "default");
    assert_eq!(variant.path.up[0].link.delay, Span::from_micros(8_500));
    assert_eq!(variant.path.base_round_trip(), Span::from_millis(17));
    assert_eq!(variant.path.down[0].link.label.name, "1gbit");
    assert_eq!(variant.phases.ramp, Ramp::Steady { limit: Span::from_secs(15) });
    let FlowKind::Tcp(bulk) = &variant.flows[0].kind else { panic!("{:?}", variant.flows[0]) };
    assert_eq!((bulk.count, bulk.direction), (1, FlowDirection::Up));
    let FlowKind::Probe(probe) = &variant.flows[1].kind else { panic!("{:?}", variant.flows[1]) };
    assert_eq!(probe.classes.len(), 1);
    assert_eq!(scenario.worlds(), [World::Sim, World::Live]);
}

#[test]
fn variants_and_sweeps_multiply_in_the_order_of_the_file() {
    let text = format!(
        "{GOOD}{}",
        r#"
[[variant]]
name = "fifo"
path.up_queue = "fifo:limit=64KiB"
[[variant]]
name = "pie"
path.up_queue = { name = "pie", profile = "rfc", target = "15ms" }
[[sweep]]
key = "path.up"
values = ["10mbit", "35mbit"]
[[sweep]]
[[sweep.point]]
name = "quiet"
flow.bulk.count = 0
[[sweep.point]]
name = "busy"
flow.bulk.count = 10
phases.load = "3s"
"#
    );
    let scenario = parse(&text).expect("the scenario is right");
    let names: Vec<&str> = scenario.variants.iter().map(|variant| variant.name.as_str()).collect();
    let expected = [
        "fifo/10mbit/quiet", "fifo/10mbit/busy", "fifo/35mbit/quiet", "fifo/35mbit/busy",
        "pie/10mbit/quiet", "pie/10mbit/busy", "pie/35mbit/quiet", "pie/35mbit/busy",
    ];
    assert_eq!(names, expected);
    let last = &scenario.variants[7];
    assert_eq!(last.path.up[0].queue.label().to_string(), "pie:profile=rfc,target=15ms");
    assert_eq!(last.phases.load, Span::from_secs(3));
    let FlowKind::Tcp(bulk) = &last.flows[0].kind else { panic!("{:?}", last.flows[0]) };
    assert_eq!(bulk.count, 10);
}

#[test]
fn the_short_form_and_the_command_line_override() {
    let text = format!(
        "{GOOD}{}",
        r#"
[[variant]]
name = "fifo"
path.up_queue = "fifo:limit=64KiB"
[[variant]]
name = "pie"
path.up_queue = "pie"
[[published]]
metric = "load.rtt.p50"
value = 20
tolerance = 2
variant = "pie"
unit = "ms"
source = "a paper"
[short]
repeats = 1
variants = ["fifo"]
phases.load = "1s"
"#
    );
    let short = parse_with(&text, &Options { short: true, ..Options::default() }).expect("short");
    assert_eq!((short.repeats, short.variants.len(), short.published.len()), (1, 1, 0));
    assert_eq!(short.variants[0].phases.load, Span::from_secs(1));
    let options = Options {
        set: vec!["path.up=5mbit".into(), "flow.bulk.count=3".into(), "path.rtt=40ms".into()],
        variants: vec!["pie".into()],
        repeats: Some(9),
        seed: Some(11),
        ..Options::default()
    };
    let set = parse_with(&text, &options).expect("set");
    assert_eq!((set.repeats, set.seed, set.variants.len(), set.published.len()), (9, 11, 1, 1));
    assert_eq!(set.variants[0].path.up[0].link.label.name, "5mbit");
    assert_eq!(set.variants[0].path.base_round_trip(), Span::from_millis(40));
    let FlowKind::Tcp(bulk) = &set.variants[0].flows[0].kind else { panic!("no tcp") };
    assert_eq!(bulk.count, 3);
}

#[test]
fn an_option_may_set_a_key_that_other_variants_override() {
    let text = format!(
        "{GOOD}{}",
        r#"
[[variant]]
name = "slow"
path.up = "1mbit"
path.up_queue = "fifo:limit=64KiB"
[[variant]]
name = "pie"
path.up_queue = "pie"
[short]
variants = ["pie"]
"#
    );
    let with = |variants: &[&str], short| Options {
        set: vec!["path.up=20mbit".into()],
        variants: variants.iter().map(|variant| (*variant).to_owned()).collect(),
        short,
        ..Options::default()
    };
    for options in [with(&["pie"], false), with(&["slow"], false), with(&[], true)] {
        let scenario = parse_with(&text, &options).expect("nothing stands against it");
        let [variant] = scenario.variants.as_slice() else { panic!("one variant") };
        assert_eq!(variant.path.up[0].link.label.name, "20mbit", "{}", variant.name);
    }
    // The other overrides of the selected variant remain in force.
    let slow = parse_with(&text, &with(&["slow"], false)).expect("a scenario");
    assert_eq!(slow.variants[0].path.up[0].queue.label().name, "fifo");
    let error = parse_with(&text, &with(&[], false)).expect_err("all variants run");
    assert!(error.problem.contains("`slow` overrides this key itself"), "{error}");
}

/// Two queues on two links.
const LINKS: &str = r#"
[[variant]]
name = "fifo"
path.up_queue = "fifo:limit=100p"
[[variant]]
name = "codel"
path.up_queue = "codel:profile=rfc"
[[sweep]]
key = "path.up"
values = ["35mbit", "cellular:preset=subway"]
names = ["cable", "subway"]
[[published]]
metric = "load.sojourn.up.p99"
variant = "codel/*"
relative_to = "fifo/*"
high = 1
unit = "1"
source = "arithmetic"
[[published]]
metric = "load.sojourn.up.p99"
variant = "codel/cable"
high = 100
unit = "ms"
source = "arithmetic"
"#;

#[test]
fn links_given_as_options_replace_the_swept_links() {
    let text = format!("{GOOD}{LINKS}");
    let own = parse(&text).expect("a star stands for both links");
    assert_eq!((own.variants.len(), own.published.len()), (4, 2));
    let link = |name: &str, spec: &str| (name.to_owned(), spec.to_owned());
    let links = vec![link("a", "1mbit"), link("b", "2mbit"), link("c", "3mbit")];
    let options = Options { links: links.clone(), ..Options::default() };
    let other = parse_with(&text, &options).expect("three other links");
    let names: Vec<&str> = other.variants.iter().map(|variant| variant.name.as_str()).collect();
    assert_eq!(names, ["fifo/a", "fifo/b", "fifo/c", "codel/a", "codel/b", "codel/c"]);
    assert_eq!(other.variants[5].path.up[0].link.label.to_string(), "3mbit:delay=8500us");
    let published: Vec<&str> = other.published.iter().map(|it| it.variant.as_str()).collect();
    assert_eq!(published, ["codel/*"], "a number about a link that is gone is left out");
    let unswept = parse_with(GOOD, &options).expect_err("nothing to stand in for");
    assert!(unswept.to_string().contains("need one [[sweep]] over `path.up`"), "{unswept}");
    let twice = Options { links: vec![links[0].clone(), links[0].clone()], ..Options::default() };
    let twice = parse_with(&text, &twice).expect_err("two of a name");
    assert!(twice.to_string().contains("a second one is named `a`"), "{twice}");
    let unknown = text.replace("\"fifo/*\"", "\"fifo/*/x\"");
    let unknown = parse(&unknown).expect_err("no such variant").to_string();
    assert!(unknown.contains("no variant is named `fifo/*/x`"), "{unknown}");
}

#[test]
fn published_numbers_become_bands() {
    let variants = r#"
[[variant]]
name = "a"
path.up_queue = "pie"
[[variant]]
name = "b"
path.up_queue = "codel"
[[published]]
metric = "load.rtt.p50"
values = { a = 50.0, b = 40.0 }
tolerance_percent = 10
unit = "ms"
source = "a table"
[[published]]
metric = "throughput.up"
variant = "a"
low = 19
unit = "Mbit/s"
source = "a table"
[[published]]
metric = "load.rtt.p99"
values = { a = 70.0, b = 60.0 }
values_are = "high"
unit = "ms"
source = "a table"
[[published]]
metric = "load.rtt.p99"
pairs = [["a", "b"], ["b", "a"]]
low = 0.9
unit = "1"
source = "a table"
"#;
    let text = format!("{GOOD}{variants}");
    let scenario = parse(&text).expect("the scenario is right");
    let bands: Vec<_> = scenario
        .published
        .iter()
        .map(|band| (band.variant.as_str(), band.low, band.high))
        .collect();
    let expected = [
        ("a", Some(45.0), Some(55.0)),
        ("b", Some(36.0), Some(44.0)),
        ("a", Some(19.0), None),
        ("a", None, Some(70.0)),
        ("b", None, Some(60.0)),
        ("a", Some(0.9), None),
        ("b", Some(0.9), None),
    ];
    assert_eq!(bands, expected);
    assert_eq!(scenario.published[5].relative_to.as_deref(), Some("b"));
    for (from, to, expected) in [
        ("low = 0.9", "low = 0.9\nvariant = \"a\"", "expected `variant`, or `values`"),
        ("low = 0.9", "low = 0.9\nvalues_are = \"low\"", "needs `values`"),
        ("\"high\"", "\"high\"\nlow = 1", "excludes a tolerance"),
    ] {
        let error = parse(&text.replacen(from, to, 1)).expect_err(to).to_string();
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn published_values_are_sorted_by_the_numbers_in_variant_names() {
    let variants = r#"
[[sweep]]
key = "path.up"
values = ["10mbit", "1mbit", "2mbit"]
[[published]]
metric = "load.rtt.p50"
values = { "10mbit" = 3, "2mbit" = 2, "1mbit" = 1 }
tolerance = 0
unit = "ms"
source = "arithmetic"
"#;
    let scenario = parse(&format!("{GOOD}{variants}")).expect("the scenario is right");
    let values: Vec<_> = scenario.published.iter().map(|published| published.value).collect();
    assert_eq!(values, [Some(1.0), Some(2.0), Some(3.0)]);
}

#[test]
fn published_numbers_may_refer_to_several_variants() {
    let variants = r#"
[[sweep]]
key = "path.up"
values = ["1mbit", "2mbit"]
[[sweep]]
key = "path.rtt"
values = ["40ms", "100ms"]
[[published]]
metric = "load.rtt.mean"
shape = "trough"
variant = "{}/*"
among = { "1mbit" = 1, "2mbit" = 2 }
value = 2
tolerance = 0
unit = "Mbit/s"
source = "arithmetic"
[[published]]
metric = "load.rtt.mean"
variant = "1mbit/*"
relative_to = "2mbit/*"
low = 1
unit = "1"
source = "arithmetic"
cause = "none"
"#;
    let text = format!("{GOOD}{variants}");
    let scenario = parse(&text).expect("the scenario is right");
    let [choice, ratio] = scenario.published.as_slice() else { panic!("two numbers") };
    assert_eq!(choice.variant_patterns(), ["1mbit/*", "2mbit/*"]);
    assert_eq!((choice.value, ratio.cause.as_str()), (Some(2.0), "none"));
    let round_trip = |variant: &str| variant.starts_with('1').then_some(30.0).or(Some(20.0));
    let variants: Vec<&str> =
        scenario.variants.iter().map(|variant| variant.name.as_str()).collect();
    let measured = [choice, ratio].map(|published| published.measure(&variants, round_trip));
    assert_eq!(measured, [Some(2.0), Some(1.5)]);
    // A mean over variants of which one is left out is not the mean that was published.
    let options =
        Options { variants: vec!["1mbit/40ms".into(), "2mbit/40ms".into()], ..Options::default() };
    let some = parse_with(&text, &options).expect("the variants are there");
    assert_eq!(some.published.len(), 0);
    for (from, to, expected) in [
        ("\"{}/*\"", "\"1mbit/*\"", "published[0].shape: a curve has `shape`"),
        ("shape = \"trough\"\n", "", "published[0].shape: a curve has `shape`"),
        ("\"{}/*\"", "\"{}\"", "no variant is named `1mbit`; expected 1mbit/40ms"),
        ("\"trough\"", "\"best\"", "published[0].shape"),
        ("tolerance = 0", "tolerance = 0\nwithin = -1", "`within` of at least 0"),
        ("\"2mbit/*\"", "\"3mbit/*\"", "no variant is named `3mbit/*`"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = parse(&text.replacen(from, to, 1)).expect_err(to).to_string();
        assert!(error.contains(expected), "{to}: {error}");
    }
}

/// Two fleets of lines, for [`GOOD`] with the link and delay that they draw.
const COHORT: &str = r#"
[cohort]
per = "repeat"
[[cohort.draw]]
name = "tier"
choice = { values = ["5mbit", "10mbit"], weights = [1, 3] }
[[cohort.draw]]
name = "rtt"
log_normal = { median = "17ms", sigma = 0.3, low = "8ms", high = "60ms" }
[[cohort.draw]]
name = "flows"
quantiles = { at = [0, 1], values = ["1", "4"] }
[[cohort.draw]]
name = "limit"
uniform = { low = "24KiB", high = "256KiB" }
[[variant]]
name = "fifo"
path.up_queue = "fifo:limit={limit}"
[[variant]]
name = "pie"
path.up_queue = { name = "pie", limit = "{limit}" }
"#;

fn cohort_text() -> String {
    let lines = GOOD
        .replace("\"35mbit\"", "\"{tier}\"")
        .replace("\"17ms\"", "\"{rtt}\"")
        .replace("name = \"bulk\"", "name = \"bulk\"\ncount = \"{flows}\"");
    format!("{lines}{COHORT}")
}

fn drawn(scenario: &Scenario, variant: usize, repeat: u32) -> (Variant, Conditions) {
    let variant = &scenario.variants[variant];
    scenario
        .trial_variant(variant, repeat, &mut builtin::load_file)
        .expect("every draw makes a variant")
}

#[test]
fn a_cohort_draws_every_trial_and_pairs_the_variants() {
    let scenario = parse(&cohort_text()).expect("the scenario is right");
    assert_eq!(scenario.variants[0].path.up[0].link.label.name, "10mbit");
    assert_eq!(scenario.variants[0].path.base_round_trip(), Span::from_millis(17));
    let (variant, conditions) = drawn(&scenario, 1, 5);
    let rtt = conditions["rtt"].clone();
    assert_eq!(variant.path.base_round_trip().to_string(), rtt);
    assert_eq!(variant.path.up[0].link.label.name, conditions["tier"]);
    let limit: u64 = conditions["limit"].trim_end_matches('B').parse().expect("bytes");
    let queue = variant.path.up[0].queue.label().to_string();
    assert!((24 << 10..=256 << 10).contains(&limit) && queue.starts_with("pie"), "{queue}");
    let FlowKind::Tcp(bulk) = &variant.flows[0].kind else { panic!("no tcp") };
    assert_eq!(bulk.count.to_string(), conditions["flows"]);
    assert_eq!(drawn(&scenario, 0, 5).1, conditions, "one line for both variants");
    assert_ne!(drawn(&scenario, 0, 6).1, conditions, "another line for the next repeat");
    assert_eq!(drawn(&scenario, 1, 5).0.identity, variant.identity, "the same again");
    let own_lines = cohort_text().replace("\"repeat\"", "\"trial\"");
    let own_lines = parse(&own_lines).expect("the scenario is right");
    assert_ne!(drawn(&own_lines, 0, 5).1["rtt"], drawn(&own_lines, 1, 5).1["rtt"]);
}

#[test]
fn an_added_draw_does_not_change_the_others() {
    let scenario = parse(&cohort_text()).expect("the scenario is right");
    let more = cohort_text().replace(
        "[[cohort.draw]]\nname = \"rtt\"",
        "[[cohort.draw]]\nname = \"load\"\nuniform = { low = \"1s\", high = \"9s\" }\n\
         [[cohort.draw]]\nname = \"rtt\"",
    );
    let more = parse(&more.replace("load = \"7s\"", "load = \"{load}\"")).expect("right");
    let (mut with, without) = (drawn(&more, 0, 3).1, drawn(&scenario, 0, 3).1);
    assert!(with.remove("load").is_some());
    assert_eq!(with, without);
}

/// Replacements in [`cohort_text`], applied one at a time, that each cause a fault.
const COHORT_FAULTS: &[(&str, &str)] = &[
    ("per = \"repeat\"", "per = \"day\""),
    ("weights = [1, 3]", "weights = [1]"),
    ("weights = [1, 3]", "weight = [1, 3]"),
    ("\"10mbit\"]", "\"10MBps\"]"),
    ("median = \"17ms\"", "median = \"17\""),
    ("median = \"17ms\"", "median = \"170ms\""),
    ("sigma = 0.3", "sigma = -1.0"),
    ("median = \"17ms\"", "median = \"soon\""),
    ("at = [0, 1]", "at = [0, 0.5]"),
    ("low = \"24KiB\"", "low = \"0B\""),
    ("uniform = { low = \"24KiB\", high = \"256KiB\" }", ""),
    ("name = \"limit\"", "name = \"rtt\""),
    ("name = \"limit\"", "name = \"other\""),
    ("count = \"{flows}\"", "count = 2"),
];

#[test]
fn every_fault_of_a_cohort_names_its_place() {
    let mut messages = String::new();
    for (from, to) in COHORT_FAULTS {
        let text = cohort_text();
        assert!(text.contains(from), "{from}");
        let error = parse(&text.replacen(from, to, 1)).expect_err(to).to_string();
        // The list of known links grows, so the test only checks that a list is offered.
        let message = match error.split_once("known: ") {
            Some((message, _)) => format!("{message}known: ..."),
            None => error,
        };
        let _ = writeln!(messages, "{from} -> {to}\n    {message}");
    }
    insta::assert_snapshot!(messages);
}

/// What a case does to [`GOOD`]: replaces the first text by the second, or appends the second.
const FAULTS: &[(&str, &str)] = &[
    ("title = \"One\"", "title = \"One"),
    ("title = \"One\"", "titel = \"One\""),
    ("title = \"One\"", "title = 1"),
    ("repeats = 2", "repeats = 0"),
    ("repeats = 2", "repeats = \"2\""),
    ("repeats = 2", "repeats = -1"),
    ("up = \"35mbit\"", "upp = \"35mbit\""),
    ("up = \"35mbit\"", "up = 35"),
    ("up = \"35mbit\"", "up = \"\""),
    ("up = \"35mbit\"", "up = \"0mbit\""),
    ("up = \"35mbit\"", "up = \"35MBps\""),
    ("up = \"35mbit\"", "down = \"35mbit\""),
    ("up = \"35mbit\"\n", ""),
    ("\"fifo:limit=256KiB\"", "\"fifo:limt=250ms\""),
    ("\"fifo:limit=256KiB\"", "\"fifo:limit=250\""),
    ("\"fifo:limit=256KiB\"", "\"fifo:limit=0p\""),
    ("\"fifo:limit=256KiB\"", "\"fivo\""),
    ("\"fifo:limit=256KiB\"", "{ limit = \"64KiB\" }"),
    ("rtt = \"17ms\"", "rtt = \"17\""),
    ("rtt = \"17ms\"", "rtt = \"-17ms\""),
    ("rtt = \"17ms\"", "rtt = 17"),
    ("rtt = \"17ms\"", "rtt = \"17ms\"\nup_delay = \"1ms\""),
    ("rtt = \"17ms\"", "rtt = \"1week\""),
    ("rtt = \"17ms\"", "rtt = \"5h\""),
    ("rtt = \"17ms\"", "down_delay = \"5h\""),
    ("rtt = \"17ms\"", "rtt = \"5h\"\nup_loss = \"150%\""),
    ("up = \"35mbit\"", "up = \"35mbit:delay=5h\""),
    ("rtt = \"17ms\"", "up_loss = \"150%\""),
    ("rtt = \"17ms\"", "overhead = \"2KiB\""),
    ("load = \"7s\"", "lod = \"7s\""),
    ("load = \"7s\"", "load = \"7\""),
    ("load = \"7s\"", "load = \"0s\"\nidle = \"0s\""),
    ("load = \"7s\"", "load = \"7s\"\nramp = \"soon\""),
    ("load = \"7s\"", "load = \"7s\"\nramp = \"2s\"\nramp_limit = \"3s\""),
    ("kind = \"tcp\"", "kind = \"tpc\""),
    ("kind = \"tcp\"\n", ""),
    ("congestion_control = \"cubic\"", "congestion_control = \"cu bic\""),
    ("name = \"bulk\"", "name = \"probe\""),
    ("name = \"bulk\"", "name = \"a/b\""),
    ("name = \"bulk\"", "count = 1_000_000"),
    ("name = \"bulk\"", "direction = \"upstream\""),
    ("name = \"bulk\"", "dscp = 64"),
    ("name = \"bulk\"", "start = \"3s\"\nstop = \"2s\""),
    ("name = \"bulk\"", "start = \"22s\""),
    ("name = \"bulk\"", "start = \"23s\"\nstop = \"24s\""),
    ("interval = \"10ms\"", "interval = \"1us\""),
    ("interval = \"10ms\"", "interval = \"10ms\"\ntimeout = \"1us\""),
    ("interval = \"10ms\"", "interval = \"10ms\"\nclasses = [{ dscp = 45, ecn = \"ect2\" }]"),
    ("interval = \"10ms\"", "interval = \"10ms\"\nclasses = [{}, { dscp = 0 }]"),
    ("kind = \"probe\"\ninterval = \"10ms\"", "name = \"probe\"\nkind = \"udp\"\nrate = \"1mbit\""),
    ("name = \"bulk\"", "extra_rtt = \"11s\""),
    ("name = \"bulk\"", "receive_window = \"1kB\""),
    ("name = \"bulk\"", "rtt_target = \"10ms\""),
    ("name = \"bulk\"", "rtt_transition = 4"),
    ("name = \"bulk\"", "start_jitter = \"61s\""),
    ("name = \"bulk\"", "start_jitter = \"2\""),
    ("name = \"bulk\"", "start = \"1s\"\nstart_jitter = \"2s\"\nstop = \"3s\""),
    ("congestion_control = \"cubic\"", "congestion_control = \"prague\"\nrtt_target = \"101ms\""),
    ("kind = \"probe\"\ninterval = \"10ms\"", "kind = \"browser\"\nextra_rtt = \"1ms\""),
    ("", "[[variant]]\nname = \"a\"\n[[variant]]\nname = \"b\""),
    ("", "[[variant]]\npath.up = \"1mbit\""),
    ("", "[[variant]]\nname = \"a\"\npath.upp = \"1mbit\""),
    ("", "[[variant]]\nname = \"a\"\npath = \"1mbit\""),
    ("", "[[variant]]\nname = \"a\"\nseed = 2"),
    ("", "[[variant]]\nname = \"a\"\nflow.bulc.count = 2"),
    ("", "[[variant]]\nname = \"a\"\nflow.bulk.kind = \"udp\""),
    (
        "",
        "[[variant]]\nname = \"a\"\npath.up = \"1mbit\"\n[[variant]]\nname = \"a\"\npath.up = \"2mbit\"",
    ),
    (
        "",
        "[[variant]]\nname = \"a\"\npath.up = \"1mbit\"\n[[variant]]\nname = \"b\"\npath.up = \"1mbit\"",
    ),
    ("", "[[sweep]]\nkey = \"path.up\""),
    ("", "[[sweep]]\nkey = \"path.up\"\nvalues = []"),
    ("", "[[sweep]]\nkey = \"path.up\"\nvalues = [\"1mbit\"]\nnames = []"),
    ("", "[[sweep]]\nkey = \"path.up\"\nvalues = [\"1 mbit\"]"),
    ("", "[[sweep]]\nkey = \"up\"\nvalues = [\"1mbit\"]"),
    (
        "",
        "[[variant]]\nname = \"a\"\npath.up = \"1mbit\"\n[[sweep]]\nkey = \"path.up\"\n\
         values = [\"2mbit\"]",
    ),
    ("", "[short]\nphases.lod = \"1s\""),
    ("", "[short]\nvariants = [\"b\"]"),
    ("", "[[published]]\nmetric = \"load.rtt.p50\"\nunit = \"ms\"\nsource = \"s\"\nvalue = 1"),
    (
        "",
        "[[published]]\nmetric = \"load.rtt.p50\"\nunit = \"ms\"\nsource = \"s\"\nvalue = 1\n\
         tolerance = 1\nvariant = \"b\"",
    ),
    (
        "",
        "[[published]]\nmetric = \"load.rtt.p50\"\nunit = \"ms\"\nsource = \"s\"\nlow = 2\n\
         high = 1\nvariant = \"default\"",
    ),
];

#[test]
fn every_fault_names_its_place_and_what_is_accepted() {
    let mut messages = String::new();
    for (from, to) in FAULTS {
        assert!(GOOD.contains(from), "{from}");
        let text =
            if from.is_empty() { format!("{GOOD}{to}\n") } else { GOOD.replacen(from, to, 1) };
        let message = match parse(&text) {
            Ok(_) => "ACCEPTED".to_owned(),
            // The list of known disciplines grows, so the test only checks that a list is offered.
            Err(error) => match error.to_string().split_once("known: ") {
                Some((message, _)) => format!("{message}known: ..."),
                None => error.to_string(),
            },
        };
        let case = if to.is_empty() { format!("without {from}") } else { (*to).to_owned() };
        let _ = writeln!(messages, "{}\n    {message}", case.trim().replace('\n', " | "));
    }
    assert!(!messages.contains("ACCEPTED"), "{messages}");
    insta::assert_snapshot!(messages);
}

#[test]
fn every_fault_of_the_command_line_names_it() {
    let variants = "[[variant]]\nname = \"a\"\npath.up = \"1mbit\"\n";
    let mut messages = String::new();
    for options in [
        Options { set: vec!["path.up".into()], ..Options::default() },
        Options { set: vec!["path.up=2mbit".into()], ..Options::default() },
        Options { set: vec!["path.rtt=2".into()], ..Options::default() },
        Options { set: vec!["seed=2".into()], ..Options::default() },
        Options { variants: vec!["b".into()], ..Options::default() },
        Options { repeats: Some(0), ..Options::default() },
        Options { short: true, ..Options::default() },
    ] {
        let error =
            parse_with(&format!("{GOOD}{variants}"), &options).expect_err("must be refused");
        let _ = writeln!(messages, "{error}");
    }
    insta::assert_snapshot!(messages);
}

#[test]
fn too_large_a_grid_is_refused_before_it_is_made() {
    let values: Vec<String> = (1..=200).map(|rate| format!("\"{rate}mbit\"")).collect();
    let sweep =
        |key: &str| format!("[[sweep]]\nkey = \"{key}\"\nvalues = [{}]\n", values.join(","));
    let text = format!("{GOOD}{}{}{}", sweep("path.up"), sweep("path.down"), sweep("phases.x"));
    let error = parse(&text).expect_err("8,000,000 variants");
    assert!(error.problem.contains("more than 50000 variants"), "{error}");
}

#[test]
fn every_built_in_scenario_is_valid() {
    let mut count = 0;
    for scenario in builtin::scenarios() {
        let parsed = Scenario::parse(scenario.text, scenario.name);
        let parsed = parsed.unwrap_or_else(|error| panic!("{error}"));
        assert!(!parsed.title.is_empty(), "{} has no title", scenario.name);
        assert!(parsed.headline.is_some(), "{} does not say what it is about", scenario.name);
        count += 1;
    }
    assert!(count >= 1, "no scenario is built in");
}

proptest! {
    /// Any file gives a scenario or an error, without a panic or endless work.
    #[test]
    fn any_text_is_accepted_or_refused_without_a_panic(text in "\\PC{0,200}") {
        let _ = parse(&text);
    }

    /// Checks files that are nearly right: lines of a good file removed, doubled or swapped.
    #[test]
    fn shuffled_lines_are_accepted_or_refused_without_a_panic(order in prop::collection::vec(0_usize..24, 0..40)) {
        let lines: Vec<&str> = GOOD.lines().collect();
        let text: Vec<&str> = order.iter().filter_map(|n| lines.get(*n).copied()).collect();
        let _ = parse(&text.join("\n"));
    }

    /// Reading a value and writing it again gives the same value.
    #[test]
    fn rates_and_delays_are_kept_exactly(
        kbit in 1_u64..1_000_000, delay_us in 0_u64..1_000_000, count in 0_u32..100,
    ) {
        let text = GOOD
            .replacen("35mbit", &format!("{kbit}kbit"), 1)
            .replacen("17ms", &format!("{delay_us}us"), 1)
            .replacen("name = \"bulk\"", &format!("count = {count}"), 1);
        let scenario = parse(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let variant = &scenario.variants[0];
        prop_assert_eq!(variant.path.base_round_trip(), Span::from_micros(delay_us));
        prop_assert_eq!(&variant.path.up[0].link.label.name, &format!("{kbit}kbit"));
        let FlowKind::Tcp(flow) = &variant.flows[0].kind else { panic!("no tcp") };
        prop_assert_eq!(flow.count, count);
    }
}

#[test]
fn faults_of_a_study_of_lines_name_their_place() {
    let text = builtin::find("low-latency/ull").expect("it is built in").text;
    assert!(parse(text).is_ok());
    for (from, to, key, problem) in [
        (
            "class = \"probe-dscp-45\"", "class = \"probe-dscp-44\"", "cohort.lines.class",
            "no probe",
        ),
        ("count = 40\ndays = 2", "count = 9999\ndays = 9", "cohort.lines", "at most 100000"),
        ("\"6.5\" }", "\"9\" }", "cohort.lines.eligible", "no line is eligible"),
        ("\"home\"]", "\"others\"]", "cohort.lines.by", "drawn for every run"),
        ("seed = 90", "repeats = 3", "repeats", "conflicts with [cohort.lines]"),
        ("name = \"others\"\nof", "name = \"day\"\nof", "cohort.draw[5].name", "is set by"),
        ("of = \"run\"", "of = \"fleet\"", "cohort.draw[5].of", "fleet"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = parse(&text.replacen(from, to, 1)).expect_err(to);
        assert_eq!(error.key, key, "{error}");
        assert!(error.problem.contains(problem), "{error}");
    }
    let days = text.replacen("days = 2", "days = 300", 1);
    let options = Options { repeats: Some(7), ..Options::default() };
    let load = &mut builtin::load_file;
    let few = Scenario::parse_with(&days, "ull", &options, load).expect("a part of it");
    assert_eq!(few.repeats, 7);
}

#[test]
fn a_headline_that_names_an_unknown_variant_is_refused() {
    let with = |variant: &str, baseline: &str| {
        format!(
            "{GOOD}[headline]\nmetric = \"load.rtt.p99\"\nsays = \"wait\"\nvariant = \"{variant}\"\n\
             baseline = \"{baseline}\"\n"
        )
    };
    let error = parse(&with("nobody", "fifo")).expect_err("there is no such variant");
    assert!(error.problem.starts_with("no variant is named `nobody`"), "{error}");
    assert_eq!(error.key, "headline.variant");
    assert!(error.line.is_some(), "{error}");
}

#[test]
fn a_headline_may_name_its_baseline_alone() {
    let variants =
        "[[variant]]\nname = \"sqm\"\npath.up_queue = \"cake\"\n[[variant]]\nname = \"today\"\n";
    let headline = |keys: &str| parse(&format!("{GOOD}{variants}[headline]\n{keys}\n"));
    let of = |keys: &str| {
        let headline = headline(keys).expect(keys).headline.expect(keys);
        [headline.metric, headline.says, headline.variant, headline.baseline].join("|")
    };
    assert_eq!(of("baseline = \"today\""), "|||today");
    let latency = "load.rtt.p99|working latency|sqm|today";
    assert_eq!(of("baseline = \"today\"\nvariant = \"sqm\""), latency);
    assert_eq!(of("metric = \"goodput.up\"\nvariant = \"sqm\""), "goodput.up|goodput up|sqm|");
    let of_probe = "probe/load.rtt.p50|working latency of probe||";
    assert_eq!(of("metric = \"probe/load.rtt.p50\""), of_probe);
    let error = headline("baseline = \"todday\"").expect_err("no such variant");
    assert_eq!(error.key, "headline.baseline");
    assert!(error.problem.ends_with("did you mean `today`?"), "{error}");
    let error = headline("").expect_err("says nothing");
    assert_eq!(error.key, "headline.metric");
    assert!(error.problem.contains("`baseline`"), "{error}");
}

#[test]
fn a_baseline_may_be_a_variant_that_overrides_nothing() {
    let today = "[[variant]]\nname = \"today\"\n";
    let sqm = "[[variant]]\nname = \"sqm\"\npath.up_queue = \"fq_codel\"\n";
    let scenario = parse(&format!("{GOOD}{today}{sqm}")).expect("two variants");
    let queues: Vec<&str> =
        scenario.variants.iter().map(|variant| variant.factors["path.up_queue"].as_str()).collect();
    assert_eq!(queues, ["fifo:limit=256KiB", "fq-codel"], "by the name that we print");
    let twice = format!("{GOOD}{today}{}", today.replace("today", "now"));
    let error = parse(&twice).expect_err("the same variant twice");
    assert!(error.problem.contains("`today` and `now` are the same"), "{error}");
}

#[test]
fn a_number_without_a_unit_is_refused_in_one_way() {
    for (set, told) in [
        ("path.up=20", "--set path.up: `20` has no unit; expected a rate such as 20mbit"),
        ("path.up=2.5", "--set path.up: `2.5` has no unit; expected a rate such as 20mbit"),
        ("path.up=\"20\"", "--set path.up: `20` has no unit; expected a rate such as 20mbit"),
        ("path.rtt=20", "--set path.rtt: `20` has no unit; expected a time such as 5ms"),
        ("path.rtt=\"20\"", "--set path.rtt: `20` has no unit; expected a time such as 5ms"),
        ("path.overhead=14", "--set path.overhead: `14` has no unit; expected a size such as"),
        ("path.up_queue=7", "--set path.up_queue: `7`: expected a queue in quotes, such as"),
        ("phases.load=7", "--set phases.load: `7` has no unit; expected a time such as 5ms"),
        ("flow.probe.interval=10", "`10` has no unit; expected a time such as 5ms"),
        ("flow.bulk.start=1", "--set flow.bulk.start: `1` has no unit; expected a time such as"),
    ] {
        let options = Options { set: vec![set.to_owned()], ..Options::default() };
        let error = parse_with(GOOD, &options).expect_err(set).to_string();
        assert!(error.contains(told), "{set}: {error}");
    }
}
