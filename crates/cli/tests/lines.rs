//! `report --lines`: a study of many lines, with one measured run per line.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const SCENARIO: &str = r#"title = "One line"
seed = SEED
[path]
up = "10mbit"
up_queue = "docsis-lld"
rtt = "20ms"
[phases]
idle = "500ms"
ramp = "2s"
load = "3s"
drain = "0s"
[[flow]]
name = "upload"
kind = "tcp"
direction = "up"
congestion_control = "cubic"
count = 2
[[flow]]
kind = "probe"
interval = "5ms"
classes = [{ dscp = 0 }, { dscp = 8 }, { dscp = 45 }]
"#;

const LIST: &str = r#"title = "Two lines"
class = "probe-dscp-45"
against = "probe-dscp-8"
by = ["model"]
[[line]]
name = "first"
facts = { model = "XB7" }
runs = ["a", "b"]
[[line]]
name = "second"
facts = { model = "XB8" }
runs = ["c"]
"#;

fn underload(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underload"));
    command.args(arguments).current_dir(folder).env("XDG_CACHE_HOME", folder);
    command.output().expect("the program starts")
}

#[test]
fn runs_of_several_lines_become_a_study() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for (seed, out) in [("1", "a"), ("2", "b"), ("3", "c")] {
        fs::write(folder.join("line.toml"), SCENARIO.replace("SEED", seed)).expect("a scenario");
        let arguments = ["run", "line.toml", "--world", "sim", "--no-cache", "--out", out];
        let output = underload(&arguments, folder);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    fs::write(folder.join("lines.toml"), LIST).expect("a list");
    let output = underload(&["report", "--lines", "lines.toml", "--out", "study"], folder);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let sentence = text.lines().find(|line| line.contains("less lag")).expect("a sentence");
    let words = "less lag than probe-dscp-8, with too few lines to be sure, over 2 lines";
    assert!(sentence.contains(words), "{sentence}");
    assert!(text.contains("all lines: 2 lines, 3 runs (0 void)"), "{text}");
    assert!(text.contains("model XB7: 1 line, 2 runs (0 void)"), "{text}");
    let page = fs::read_to_string(folder.join("study/report.html")).expect("a page");
    assert!(page.contains("Lines: probe-dscp-45 against probe-dscp-8"));

    let output = underload(&["report", "--lines", "lines.toml", "--json", "--out", "json"], folder);
    let records: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("a list of records");
    assert_eq!(records[0]["trials"][2]["conditions"]["name"], "second");
    assert_eq!(records[0]["study"]["groups"][0]["lines"], 2);

    std::os::unix::fs::symlink("a", folder.join("again")).expect("a link");
    for twice in ["./a", "again", "b/../a"] {
        let list = LIST.replace("\"c\"", &format!("{twice:?}"));
        fs::write(folder.join("lines.toml"), list).expect("a list");
        let output = underload(&["report", "--lines", "lines.toml"], folder);
        let problem = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{problem}");
        assert!(problem.contains(&format!("line.1.runs: {twice} occurs twice")), "{problem}");
    }

    let list = LIST.replace("probe-dscp-45", "probe-dscp-46");
    fs::write(folder.join("lines.toml"), list).expect("a list");
    let output = underload(&["report", "--lines", "lines.toml"], folder);
    let problem = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{problem}");
    let expected = "a has no valid trial with probe-dscp-46 and probe-dscp-8";
    assert!(problem.contains(expected), "{problem}");
    assert!(problem.contains("it probed probe, probe-dscp-45, probe-dscp-8"), "{problem}");
    let output = underload(&["report", "--lines", "lines.toml", "a"], folder);
    assert_eq!(output.status.code(), Some(2), "a list or runs, not both");
}
