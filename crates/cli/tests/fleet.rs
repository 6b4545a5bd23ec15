//! `underload fleet`: the program that it starts, the arguments, and the exit status.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

/// Puts a program of that name into a folder; it prints its name, its arguments and who started it.
fn stand_in(folder: &Path, says: &str, end: &str) {
    fs::create_dir_all(folder).expect("a folder");
    let path = folder.join("underload-fleet");
    let script = format!("#!/bin/sh\necho \"{says} $* by $UNDERLOAD_STARTED_BY\"\n{end}\n");
    fs::write(&path, script).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it may run");
}

/// Runs a copy of the program in `folder` with that `PATH`.
fn underload(folder: &Path, path: &Path, words: &[&str]) -> Output {
    let program = folder.join("underload");
    if !program.exists() {
        fs::copy(env!("CARGO_BIN_EXE_underload"), &program).expect("a copy");
    }
    Command::new(&program).args(words).env("PATH", path).output().expect("it starts")
}

#[test]
fn the_fleet_program_in_our_folder_precedes_the_path_and_its_status_is_returned() {
    let folder = tempfile::tempdir().expect("a folder");
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    fs::create_dir(&here).expect("a folder");
    let run = |words: &[&str]| {
        let output = underload(&here, &there, words);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (status, _, errors) = run(&["fleet", "demo"]);
    assert!(status == Some(1) && errors.contains("docs/install.md"), "{errors}");
    stand_in(&there, "in the path", "exit 7");
    let (status, said, _) = run(&["--quiet", "fleet", "plan", "check", "--help", "-v", "x y"]);
    assert_eq!(status, Some(7));
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!("in the path --quiet plan check --help -v x y by {version} (");
    assert!(said.starts_with(&expected), "{said}");
    stand_in(&here, "beside", "kill -TERM $$");
    let (status, said, _) = run(&["fleet", "--version"]);
    assert!(status.is_none() && said.starts_with("beside --version by "), "{said}");
}
