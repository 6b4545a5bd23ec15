//! `[[path.hop]]`: chains of links in scenario files, and what they do to packets.

use underload_aqm::time::Span;
use underload_record::schema::{BottleneckSummary, Direction, Phase, World};
use underload_scenario::simulation::configure;
use underload_scenario::{Options, Path, Scenario, ScenarioError, builtin};
use underload_sim::trial::{TrialLabel, TrialOutcome, run};

const CHAIN: &str = r#"[path]
rtt = "20ms"

[[path.hop]]
name = "wifi"
up = "60mbit:delay=1ms"
up_queue = "fifo:limit=1000p"
down = "60mbit"
down_queue = "fifo:limit=1000p"

[[path.hop]]
name = "modem"
up = "10mbit"
up_queue = "fifo:limit=125kB"
down = "100mbit"
down_queue = "fifo:limit=1000p"

[phases]
idle = "1s"
ramp = "3s"
load = "3s"

[[flow]]
kind = "tcp"
name = "bulk"
congestion_control = "cubic"

[[flow]]
kind = "probe"
interval = "10ms"
"#;

fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse(text, "chain.toml")
}

fn names(path: &Path, wanted: Direction) -> Vec<&str> {
    let lanes = path.lanes().filter(|(direction, _)| *direction == wanted);
    lanes.map(|(_, lane)| lane.name.as_str()).collect()
}

fn simulate(text: &str) -> TrialOutcome {
    let scenario = parse(text).expect("a valid scenario");
    run(configure(&scenario.variants[0], 1, TrialLabel::default()).expect("a plan"))
        .expect("a trial")
}

fn up<'a>(outcome: &'a TrialOutcome, hop: &str) -> &'a BottleneckSummary {
    let mut all = outcome.record.bottlenecks.iter();
    let is_it = |link: &&BottleneckSummary| {
        (link.hop.as_str(), link.direction, link.window.phase) == (hop, Direction::Up, Phase::Load)
    };
    all.find(is_it).expect("a record of the hop")
}

fn sojourn_p50_ms(link: &BottleneckSummary) -> f64 {
    link.sojourn.expect("packets passed").p50_ns as f64 / 1e6
}

#[test]
fn packets_pass_hops_in_the_order_of_the_path() {
    let scenario = parse(CHAIN).expect("a valid scenario");
    let path = &scenario.variants[0].path;
    assert_eq!(names(path, Direction::Up), ["wifi", "modem"]);
    assert_eq!(names(path, Direction::Down), ["modem", "wifi"]);
    // The path's delay is between the last hop and the server; the delay of the link there adds to
    // it.
    assert_eq!(path.up[1].link.delay, Span::from_millis(10));
    assert_eq!(path.down[0].link.delay, Span::from_millis(10));
    assert_eq!(path.base_round_trip(), Span::from_millis(21));
    assert_eq!(scenario.worlds(), [World::Sim]);
    let label = scenario.variants[0].label();
    assert!(label.contains("before 10mbit up at modem"), "{label}");
}

#[test]
fn a_direction_without_links_is_wide() {
    let text = CHAIN.replace("down", "#");
    let scenario = parse(&text).expect("a valid scenario");
    let path = &scenario.variants[0].path;
    assert_eq!(names(path, Direction::Up), ["wifi", "modem"]);
    assert!(path.down.iter().all(|lane| lane.is_wide));
    assert_eq!(path.base_round_trip(), Span::from_millis(21));
}

#[test]
fn variants_sweeps_and_the_command_line_override_hops() {
    let text = format!(
        "{CHAIN}\n[[variant]]\nname = \"pie\"\npath.hop.modem.up_queue = \"docsis-pie\"\n\
         [[variant]]\nname = \"fifo\"\npath.hop.modem.up_queue = \"fifo:limit=64KiB\"\n\
         [[sweep]]\nkey = \"path.hop.wifi.up\"\nvalues = [\"30mbit\", \"40mbit\"]\n\
         [short]\npath.hop.modem.down = \"50mbit\"\n"
    );
    let set = vec!["path.hop.wifi.down=90mbit".to_owned()];
    let options = Options { short: true, set, ..Options::default() };
    let scenario = Scenario::parse_with(&text, "chain.toml", &options, &mut builtin::load_file);
    let scenario = scenario.expect("a valid scenario");
    let variant =
        scenario.variants.iter().find(|variant| variant.name == "pie/40mbit").expect("the variant");
    let links: Vec<String> = variant.path.lanes().map(|(_, lane)| lane.link_label()).collect();
    assert_eq!(links, ["40mbit", "10mbit", "50mbit", "90mbit"]);
    assert_eq!(variant.path.up[1].queue.label().name, "docsis-pie");
    assert_eq!(variant.path.up[0].queue.label().name, "fifo");
}

#[test]
fn faults_of_hops_name_their_place_and_what_is_accepted() {
    let modem = "up = \"10mbit\"\nup_queue = \"fifo:limit=125kB\"\n\
                 down = \"100mbit\"\ndown_queue = \"fifo:limit=1000p\"\n";
    let variant = |line: &str| format!("interval = \"10ms\"\n[[variant]]\nname = \"a\"\n{line}\n");
    let interval = "interval = \"10ms\"\n";
    let cases = [
        (modem, String::new(), ":11: path.hop.modem.up: expected a link in at least one"),
        ("name = \"modem\"", "name = \"wifi\"".into(), "the name `wifi` is taken"),
        ("name = \"modem\"\n", String::new(), ":11: path.hop[1]: `name` is missing"),
        ("rtt =", "up = \"1mbit\"\nrtt =".into(), ":2: path.up: excludes [[path.hop]]"),
        ("rtt =", "up_loss = \"1%\"\nrtt =".into(), "path.up_loss: excludes [[path.hop]]"),
        ("up = \"10mbit\"", "up = \"fast\"".into(), ":13: path.hop.modem.up: "),
        ("up = \"10mbit\"\n", String::new(), "path.hop.modem.up_queue: has no link"),
        ("up = \"10mbit\"", "rate = \"1mbit\"\nup = \"10mbit\"".into(), "modem.rate: unknown key"),
        (
            interval,
            variant("path.hop.cmts.up = \"1mbit\""),
            "no hop is named `cmts`; expected wifi",
        ),
        (
            interval,
            variant("path.hop.modem.name = \"x\""),
            "path.hop.modem.name: cannot be overridden",
        ),
        (interval, variant("path.hop = []"), "expected a table of keys to override"),
    ];
    for (from, to, expected) in cases {
        assert!(CHAIN.contains(from), "{from}");
        let error = parse(&CHAIN.replacen(from, &to, 1)).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}\nhas no\n{expected}");
    }
    let plain = "[phases]\nload = \"1s\"\n[path]\nup = \"1mbit\"\nup_queue = \"fifo:limit=64KiB\"\n\
         [[flow]]\nkind = \"probe\"\n";
    let text = format!("{plain}{}", variant("path.hop.modem.up = \"2mbit\""));
    let error = parse(&text).expect_err("there are no hops").to_string();
    assert!(error.contains("the scenario has no [[path.hop]]"), "{error}");
}

#[test]
fn packets_wait_at_the_narrowest_link_of_a_chain() {
    let outcome = simulate(&CHAIN.replace("load = \"3s\"", "load = \"8s\""));
    let (wifi, modem) = (up(&outcome, "wifi"), up(&outcome, "modem"));
    // 125 kB at 10 Mbit/s are 100 ms; CUBIC keeps most of it full.
    assert!((50.0..=101.0).contains(&sojourn_p50_ms(modem)), "{modem:?}");
    assert!(sojourn_p50_ms(wifi) < 5.0, "{wifi:?}");
    let dropped = |link: &BottleneckSummary| link.drops.values().map(|d| d.packets).sum::<u64>();
    assert!(dropped(modem) > 0 && dropped(wifi) == 0, "{modem:?}, {wifi:?}");
    assert!(modem.throughput_bit_per_s > 9_000_000, "{modem:?}");
    assert_eq!(wifi.capacity_bit_per_s, Some(60_000_000));
    assert_eq!(modem.capacity_bit_per_s, Some(10_000_000));
    assert!(outcome.series.iter().any(|curve| curve.name == "up.sojourn.modem"));
}

#[test]
fn an_aqm_helps_only_at_the_narrowest_link() {
    let on_wifi = CHAIN.replacen("up_queue = \"fifo:limit=1000p\"", "up_queue = \"fq-codel\"", 1);
    assert_ne!(on_wifi, CHAIN);
    let in_modem = CHAIN.replace("fifo:limit=125kB", "docsis-pie");
    let outcome = simulate(&on_wifi);
    assert!(sojourn_p50_ms(up(&outcome, "modem")) > 50.0);
    let outcome = simulate(&in_modem);
    assert!(sojourn_p50_ms(up(&outcome, "modem")) < 30.0);
}
