//! Ordinary questions, written by a person who has not read the code, and the sentences that
//! answer them. A person reads the snapshot whenever it changes: each answer has to be true, to the
//! question, and never empty.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use underload_report::{load, summary_lines};

/// Returns the files of the questions, in the order of their names.
fn questions() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ordinary");
    let entries = std::fs::read_dir(folder).expect("the questions are there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

#[test]
fn ordinary_questions_have_answers() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut text = String::new();
    let questions = questions();
    assert!(questions.len() >= 40, "{}", questions.len());
    for file in &questions {
        let name = file.file_stem().expect("a name").to_string_lossy();
        let scenario = std::fs::read_to_string(file).expect("a text");
        let question = scenario.lines().next().unwrap_or_default().trim_start_matches("# ");
        let mut command = Command::new(env!("CARGO_BIN_EXE_underload"));
        command.arg("run").arg(file).args(["--world", "sim", "--no-cache", "--out", &name]);
        let output = command.current_dir(folder.path()).output().expect("the program starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {errors}");
        let lines = summary_lines(&load(&[folder.path().join(&*name)]).expect("a run directory"));
        assert!(!lines.is_empty(), "{name}");
        let _ = writeln!(text, "{name}: {question}");
        for line in lines {
            let _ = writeln!(text, "    {line}");
        }
    }
    insta::assert_snapshot!(text);
}
