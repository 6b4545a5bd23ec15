//! `underload check`, and the errors of `run` for a file with mistakes.

use std::path::Path;
use std::process::{Command, Output};

/// Five mistakes, one of them in a variant.
const WRONG: &str = r#"#:schema scenario.schema.json
titel = "Two queues"
repeats = 0
[path]
up = "10 Mbit"
rtt = "17"
[phases]
laod = "7s"
[[flow]]
kind = "tcp"
congestion_control = "cubic"
[[flow]]
kind = "probe"
interval = "10ms"
[[variant]]
name = "fifo"
path.up_queue = "fifo:limit=64KiB"
[[variant]]
name = "codel"
path.up_queue = "codle"
"#;

fn underload(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underload"));
    command.args(arguments).current_dir(folder).output().expect("the program starts")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn all_mistakes_of_a_file_are_printed_with_their_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("my.toml"), WRONG).expect("a file");
    for arguments in [&["check", "my.toml"][..], &["run", "my.toml", "--world", "sim"]] {
        let output = underload(arguments, folder.path());
        let told = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{told}");
        for expected in [
            "my.toml:2:1: titel: unknown key",
            "did you mean `title`?\n  |\n2 | titel = \"Two queues\"\n  | ^^^^^\n",
            "my.toml:3:11: repeats: 0 is out of range",
            "my.toml:6:7: path.rtt: ",
            "6 | rtt = \"17\"\n  |       ^^^^\n",
            "my.toml:8:1: phases.laod: unknown key",
            "my.toml:20:17: path.up_queue: there is no queue `codle`; did you mean `codel`?",
            "20 | path.up_queue = \"codle\"\n   |                 ^^^^^^^\n",
        ] {
            assert!(told.contains(expected), "{expected}\nis not in\n{told}");
        }
        let count = told.matches("error: my.toml:").count();
        assert_eq!(count, 5, "each once, and nothing that follows from another:\n{told}");
    }
    let output = underload(&["check", "my.toml", "comcast/upstream", "--json"], folder.path());
    assert_eq!(output.status.code(), Some(2));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(json[0]["errors"].as_array().map(Vec::len), Some(5), "{json}");
    assert_eq!(json[0]["errors"][1]["line"], 3);
    assert_eq!((&json[1]["errors"], &json[1]["variants"]), (&serde_json::json!([]), &4.into()));
}

/// Mistakes of every kind: keys, shapes, values, what is missing, names of variants, flows and metrics.
const MANY: &str = r#"title = 7
[path]
up = "10mbit"
rtt = "17"
overhead = 14
[phases]
laod = "7s"
[[flow]]
kind = "tcp"
congestion_control = "cubic"
intervall = "1s"
[[flow]]
kind = "probe"
interval = "10ms"
[[flow]]
kind = "prob"
interval = "10"
[[flow]]
name = "call"
direction = "up"
[[variant]]
name = "today"
path.up_queue = "codel:targt=5ms,interval=1"
[[variant]]
name = "sqm"
flow.bulkk.count = 2
path.up_queue = "cake"
[[variant]]
name = "sqm"
pth.up_queue = "pie"
[headline]
baseline = "todday"
[[published]]
metric = "load.rtt.p99"
variant = "nobody"
low = 1
unit = "ms"
source = "s"
[[published]]
metric = "lod.rtt.p99"
variant = "sqm"
low = 1
unit = "ms"
source = "s"
[[plot]]
kind = "bars"
metric = "goodput.up"
"#;

#[test]
fn mistakes_of_every_kind_are_printed_in_one_pass_with_their_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("my.toml"), MANY).expect("a file");
    let told = errors(&underload(&["check", "my.toml"], folder.path()));
    let expected = [
        "my.toml:1:9: title: expected a text in quotes",
        "my.toml:4:7: path.rtt: `17` has no unit; expected a time such as 5ms",
        "my.toml:5:12: path.overhead: `14` has no unit; expected a size such as 256KiB",
        "my.toml:7:1: phases.laod: unknown key",
        "my.toml:11:1: flow.tcp.intervall: unknown key",
        "my.toml:16:8: flow.prob.kind: `prob` is no kind of flow",
        "my.toml:17:12: flow.prob.interval: `10` has no unit; expected a time such as 5ms",
        "my.toml:18:1: flow[3]: `kind` is missing",
        "my.toml:23:17: path.up_queue: `codel` has no parameter `targt`; did you mean `target`?",
        "my.toml:23:17: path.up_queue: `codel`: `interval=1`: expected a time such as 5ms",
        "my.toml:26:20: flow.bulkk.count: no flow is named `bulkk`",
        "my.toml:28:1: variant[2]: a second one is named `sqm`; names must differ",
        "my.toml:30:1: variant[2].pth: unknown key; expected name, path, phases or flow; did you",
        "my.toml:32:12: headline.baseline: no variant is named `todday`; expected today or sqm",
        "my.toml:35:11: published[0].variant: no variant is named `nobody`; expected today or sqm\n",
        "my.toml:40:10: published[1].metric: `lod.rtt.p99` is not a metric",
        "my.toml:45:1: plot[0].title: is missing",
        "my.toml:45:1: plot[0].variants: is missing",
    ];
    for expected in expected {
        assert!(told.contains(&format!("error: {expected}")), "{expected}\nis not in\n{told}");
    }
    assert_eq!(told.matches("error: my.toml:").count(), expected.len(), "no others:\n{told}");
}

#[test]
fn a_mistake_is_printed_once_without_internal_attempts() {
    let folder = tempfile::tempdir().expect("a folder");
    let right = "[path]\nup = \"10mbit\"\nup_queue = \"codel\"\n[phases]\nload = \"7s\"\n\
                 [[flow]]\nkind = \"probe\"\ninterval = \"10ms\"\n";
    for (from, to, told) in [
        ("\"codel\"", "\"codel:targt=5ms\"", "`codel` has no parameter `targt`"),
        ("[path]", "[headline]\nmetric = \"\"\n[path]", "headline.metric: expected a metric"),
        ("[path]", "[headline]\nbaseline = \"today\"\n[path]", "no variant is named `today`"),
        ("load = \"7s\"", "laod = \"7s\"", "phases.laod: unknown key"),
        ("up = \"10mbit\"\n", "", "path.up: expected a link in at least one direction"),
        ("kind = \"probe\"", "kind = \"prob\"", "`prob` is no kind of flow"),
        ("[[flow]]", "[flow]", "flow: expected tables: [[flow]]"),
        (
            "[path]",
            "[[variant]]\npath.up = \"1mbit\"\n[headline]\nbaseline = \"a\"\n[path]",
            "variant[0].name",
        ),
    ] {
        std::fs::write(folder.path().join("my.toml"), right.replace(from, to)).expect("a file");
        let all = errors(&underload(&["check", "my.toml"], folder.path()));
        assert!(all.contains(told), "{told}\nis not in\n{all}");
        assert_eq!(all.matches("error: my.toml").count(), 1, "{all}");
    }
    let text = right.replace("up = \"10mbit\"", "up = 10 mbit").replace("\"7s\"", "7");
    std::fs::write(folder.path().join("my.toml"), text).expect("a file");
    let all = errors(&underload(&["check", "my.toml"], folder.path()));
    assert!(all.contains("more errors may show"), "{all}");
}

#[test]
fn invalid_toml_fails_and_a_valid_file_passes() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("no.toml"), "[path\nup = 1\n[phases]\nload = 7s\n").unwrap();
    let output = underload(&["check", "no.toml"], folder.path());
    let told = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("no.toml:1:") && told.contains("\n1 | [path\n"), "{told}");
    let output = underload(&["check", "comcast/upstream"], folder.path());
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(text.starts_with("comcast/upstream: OK (4 variants, "), "{text}");
}

#[test]
fn the_schemas_in_the_documentation_are_those_of_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    for kind in ["scenario", "sweep"] {
        let printed = underload(&["check", "--schema", kind], folder.path());
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        let kept = std::fs::read_to_string(format!("{docs}/{kind}.schema.json"));
        let is_same = String::from_utf8_lossy(&printed.stdout) == kept.unwrap_or_default();
        assert!(is_same, "`cargo xtask reference` writes docs/{kind}.schema.json again");
    }
    let usual = underload(&["check", "--schema"], folder.path()).stdout;
    assert!(!usual.is_empty() && usual.ends_with(b"\n"));
    assert_eq!(usual, underload(&["check", "--schema", "scenario"], folder.path()).stdout);
}

#[test]
fn a_file_or_option_in_the_wrong_place_is_answered_with_the_right_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = "[path]\nup = \"10mbit\"\n[phases]\nload = \"1s\"\n[[flow]]\nkind = \"probe\"\n";
    let tcp = format!("{line}[[flow]]\nkind = \"tcp\"\ncongestion_control = \"no-such-control\"\n");
    let chain = line.replace("[path]\n", "[[path.hop]]\nname = \"modem\"\ndown = \"10mbit\"\n");
    for (name, text) in [("tcp.toml", &tcp), ("chain.toml", &chain)] {
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    for (arguments, status, expected) in [
        (&["sweep", "tcp.toml"][..], 2, "this is a scenario, for `underload run tcp.toml`"),
        (&["try", "--live", "--call"], 2, "only the simulator has calls, games, pages and films"),
        (&["man", "no-such-command"], 2, "`underload no-such-command` is no command"),
        (&["man", "docsis", "check"], 0, ".TH underload-docsis-check"),
        // Only a live run could have this congestion control, and this kernel lacks it.
        (&["check", "tcp.toml"], 0, "  not on this machine: "),
        (&["run", "chain.toml"], 0, "because of path.hop.modem: only the simulator has chains"),
        (&["run", "chain.toml", "--world", "live"], 2, "; --world sim runs it"),
        (&["docs", "second", "queue"], 0, "second queue for games"),
    ] {
        let output = underload(arguments, folder.path());
        let told = String::from_utf8_lossy(&output.stdout).into_owned() + &errors(&output);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {told}");
        assert!(told.contains(expected), "{arguments:?}: {expected}\nis not in\n{told}");
    }
}
