//! `underload docsis` as a user meets it: files, exit status, messages.

use std::path::Path;
use std::process::{Command, Output};

const TEXT: &str = "
NetworkAccessControl = 1
[[UpstreamServiceFlow]]
ServiceFlowReference = 1
QosParameterSetType = 7
MaximumSustainedTrafficRate = 10_000_000
BufferControl = { TargetBuffer = 51200 }
[[DownstreamServiceFlow]]
ServiceFlowReference = 2
QosParameterSetType = 7
";

fn docsis(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_underload"))
        .arg("docsis")
        .args(arguments)
        .current_dir(directory)
        .env_remove("UNDERLOAD_DOCSIS_SECRET")
        .output()
        .expect("the program runs")
}

fn said(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn prepared() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("cm.toml"), TEXT).expect("the text");
    std::fs::write(directory.path().join("secret"), "bufferbloat\n").expect("the secret");
    directory
}

#[test]
fn text_becomes_a_file_and_the_file_the_same_file_again() {
    let directory = prepared();
    let at = directory.path();
    let encode = ["encode", "cm.toml", "--out", "cm.bin", "--secret-file", "secret"];
    assert_eq!(docsis(at, &encode).status.code(), Some(0));
    assert_eq!(docsis(at, &["decode", "cm.bin", "--out", "again.toml"]).status.code(), Some(0));
    let again = docsis(at, &["encode", "again.toml", "--out", "again.bin"]);
    assert_eq!(again.status.code(), Some(0), "unchanged text needs no secret: {again:?}");
    let read = |name: &str| std::fs::read(at.join(name)).expect("a file");
    assert_eq!(read("cm.bin"), read("again.bin"));

    let checked = docsis(at, &["check", "cm.bin", "--secret-file", "secret"]);
    assert_eq!(said(&checked), (Some(0), "cm.bin: 0 errors, 0 warnings, 0 notes\n".into()));
    let modem = docsis(at, &["modem", "cm.bin", "--json"]);
    assert!(String::from_utf8_lossy(&modem.stdout).contains("\"buffer_bytes\": 51200"));
}

#[test]
fn without_a_secret_nothing_is_written() {
    let directory = prepared();
    let (code, message) = said(&docsis(directory.path(), &["encode", "cm.toml", "--out", "x"]));
    assert_eq!(code, Some(2));
    assert!(message.contains("--secret-file or UNDERLOAD_DOCSIS_SECRET"), "{message}");
    assert!(!directory.path().join("x").exists());
}

#[test]
fn a_file_that_breaks_rules_is_not_written_and_its_check_fails() {
    let directory = prepared();
    let at = directory.path();
    let bad = TEXT.replace("TargetBuffer = 51200", "MinimumBuffer = 2, MaximumBuffer = 1");
    std::fs::write(at.join("bad.toml"), bad).expect("the text");
    let encode = ["encode", "bad.toml", "--out", "bad.bin", "--secret-file", "secret"];
    let (code, message) = said(&docsis(at, &encode));
    assert_eq!(code, Some(2));
    assert!(message.contains("D301") && message.contains("fix:"), "{message}");
    assert!(!at.join("bad.bin").exists());
    assert_eq!(docsis(at, &[&encode[..], &["--force"]].concat()).status.code(), Some(0));
    assert_eq!(docsis(at, &["check", "bad.bin"]).status.code(), Some(1));
    assert_eq!(docsis(at, &["modem", "bad.bin"]).status.code(), Some(1));
}

#[test]
fn what_is_not_a_configuration_file_is_bad_input() {
    let directory = prepared();
    for arguments in [["decode", "cm.toml"], ["decode", "absent"], ["modem", "cm.toml"]] {
        let (code, message) = said(&docsis(directory.path(), &arguments));
        assert_eq!(code, Some(2), "{arguments:?}");
        assert!(message.contains(arguments[1]), "{message}");
    }
}
