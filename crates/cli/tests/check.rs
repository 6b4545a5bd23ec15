//! `underload check`, and what `run` says of a file with mistakes.

use std::path::Path;
use std::process::{Command, Output};

/// Five mistakes, one of them in an arm.
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
[[arm]]
name = "fifo"
path.up_queue = "fifo:limit=64KiB"
[[arm]]
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
fn all_mistakes_of_a_file_are_told_at_once_with_their_lines() {
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
    assert_eq!((&json[1]["errors"], &json[1]["arms"]), (&serde_json::json!([]), &4.into()));
}

#[test]
fn a_file_that_is_no_toml_and_one_that_is_right() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("no.toml"), "[path\nup = 1\n[phases]\nload = 7s\n").unwrap();
    let output = underload(&["check", "no.toml"], folder.path());
    let told = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("no.toml:1:") && told.contains("\n1 | [path\n"), "{told}");
    let output = underload(&["check", "comcast/upstream"], folder.path());
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(text.starts_with("comcast/upstream: right: 4 arms, "), "{text}");
}

#[test]
fn the_schemas_in_the_documentation_are_those_of_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    for kind in ["scenario", "sweep"] {
        let printed = underload(&["check", "--schema", kind], folder.path());
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        let kept = std::fs::read_to_string(format!("{docs}/{kind}.schema.json"));
        let is_same = String::from_utf8_lossy(&printed.stdout) == kept.unwrap_or_default();
        let made = format!("underload check --schema {kind} > docs/{kind}.schema.json");
        assert!(is_same, "`{made}` makes it new");
    }
    let usual = underload(&["check", "--schema"], folder.path()).stdout;
    assert!(!usual.is_empty() && usual.ends_with(b"\n"));
    assert_eq!(usual, underload(&["check", "--schema", "scenario"], folder.path()).stdout);
}
