//! Values of keys that a scenario leaves out.

use underload_aqm::time::Span;
use underload_record::schema::FlowDirection;

use super::*;

fn parse_with(text: &str, options: &Options) -> Result<Scenario, ScenarioError> {
    Scenario::parse_with(text, "case.toml", options, &mut builtin::load_file)
}

fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    parse_with(text, &Options::default())
}

#[test]
fn a_line_and_a_flow_are_a_scenario() {
    let text = "[path]\nup = \"10mbit\"\ndown = \"50mbit\"\n[[flow]]\nkind = \"tcp\"\n";
    let scenario = parse(text).expect("a scenario");
    let [variant] = scenario.variants.as_slice() else {
        panic!("{} variants", scenario.variants.len())
    };
    assert_eq!(variant.label(), "fifo before 10mbit up; fifo before 50mbit down");
    let expected = [Span::from_secs(2), Span::from_secs(15), Span::from_secs(1)];
    assert_eq!([variant.phases.idle, variant.phases.load, variant.phases.drain], expected);
    let FlowKind::Tcp(bulk) = &variant.flows[0].kind else { panic!("{:?}", variant.flows[0]) };
    assert_eq!((&*bulk.congestion_control, bulk.direction), ("cubic", FlowDirection::Up));
    let FlowKind::Probe(probe) = &variant.flows[1].kind else { panic!("{:?}", variant.flows[1]) };
    assert_eq!((&*variant.flows[1].name, probe.interval), ("probe", Span::from_millis(10)));
}

#[test]
fn a_difference_from_a_default_has_both_values() {
    let variants = "[[variant]]\nname = \"today\"\n[[variant]]\nname = \"other\"\n\
                path.up_queue = \"pie\"\nflow.tcp.congestion_control = \"bbr\"\n\
                phases.load = \"9s\"\n";
    let text = format!("[path]\nup = \"10mbit\"\n[[flow]]\nkind = \"tcp\"\n{variants}");
    let scenario = parse(&text).expect("a scenario");
    let of = |variant: usize| {
        let factors = scenario.variants[variant].factors.iter();
        factors.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()
    };
    let today = ["flow.tcp.congestion_control=cubic", "path.up_queue=fifo", "phases.load=15s"];
    assert_eq!(of(0), today);
    let other = ["flow.tcp.congestion_control=bbr", "path.up_queue=pie", "phases.load=9s"];
    assert_eq!(of(1), other);
}

#[test]
fn repeats_start_at_random_times_unless_the_file_has_times() {
    let text = "[path]\nup = \"10mbit\"\n[[flow]]\nkind = \"tcp\"\n[[flow]]\nname = \"late\"\n\
                kind = \"tcp\"\nstart = \"4s\"\n";
    let jitters = |text: &str, repeats: Option<u32>| {
        let options = Options { repeats, ..Options::default() };
        let scenario = parse_with(text, &options).expect("a scenario");
        let jitter = |flow: &Flow| match &flow.kind {
            FlowKind::Tcp(_) => Some(flow.activity.start_jitter),
            _ => None,
        };
        scenario.variants[0].flows.iter().filter_map(jitter).collect::<Vec<_>>()
    };
    let (none, second) = (Span::ZERO, Span::from_secs(1));
    assert_eq!(jitters(text, None), [none, none]);
    assert_eq!(jitters(text, Some(5)), [second, none]);
    assert_eq!(jitters(&format!("repeats = 2\n{text}"), None), [second, none]);
    assert_eq!(jitters(&format!("repeats = 2\n{text}"), Some(1)), [none, none]);
    let given = format!("{text}start_jitter = \"0s\"\n");
    assert_eq!(jitters(&given, Some(5)), [none, none], "the file has a jitter");
    let variant = "[[variant]]\nname = \"a\"\nflow.tcp.stop = \"500ms\"\n";
    assert_eq!(
        jitters(&format!("{text}{variant}"), Some(5)),
        [none, none],
        "a variant ends the flow"
    );
}
