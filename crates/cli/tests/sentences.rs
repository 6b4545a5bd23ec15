//! What the built-in scenarios' first sentences say, for a person to read whenever they change:
//! that each is true, and compares like with like. `INSTA_UPDATE=always` writes them anew.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use underload_report::{load, summary_lines};

fn underload(arguments: &[&str], folder: &Path) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underload"));
    command.args(arguments).current_dir(folder).env("XDG_CACHE_HOME", folder);
    command.output().expect("the program starts")
}

#[test]
fn every_built_in_scenario_says_what_is_true_of_it() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let listed = underload(&["scenarios", "--json"], folder.path());
    let rows: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("one document");
    let mut text = String::new();
    for (position, row) in rows.as_array().expect("a list").iter().enumerate() {
        let name = row["name"].as_str().expect("a name");
        let out = format!("run-{position}");
        let arguments = ["run", name, "--world", "sim", "--short", "--no-cache", "--out", &out];
        let output = underload(&arguments, folder.path());
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let runs = load(&[folder.path().join(&out)]).expect("a run directory");
        let _ = writeln!(text, "{name}");
        for line in summary_lines(&runs) {
            let _ = writeln!(text, "    {line}");
        }
    }
    insta::assert_snapshot!(text);
}
