//! The published crates are complete: the packages of this crate and of what it
//! depends on are made and unpacked, and a new crate outside of the workspace is built with them.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The published crates, each after those that it depends on.
const ORDER: [&str; 3] = ["underload-spec", "underload-aqm", "underload-laws"];

/// A crate that uses the packages in the folder above, as it would use those of a registry.
const MANIFEST: &str = r#"
    [package]
    name = "stranger"
    edition = "2024"
    [dependencies]
    underload-aqm = "0.1"
    [patch.crates-io]
    underload-spec.path = "../underload-spec-0.1.0"
    underload-aqm.path = "../underload-aqm-0.1.0"
    [workspace]
"#;

/// Runs cargo without a network and returns what it prints.
fn cargo(folder: &Path, target: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).args(["--offline", "--quiet", "--target-dir"]).arg(target);
    let output = command.current_dir(folder).output().expect("cargo starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_stranger_builds_a_simulator_with_the_published_packages() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("package");
    let _ = fs::remove_dir_all(&folder);
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut package = vec!["package", "--no-verify", "--allow-dirty", "--locked"];
    package.extend(ORDER.iter().flat_map(|name| ["--package", name]));
    cargo(own, &folder, &package);
    for name in ORDER {
        let archive = folder.join(format!("package/{name}-0.1.0.crate"));
        let mut tar = Command::new("tar");
        assert!(tar.arg("-xzf").arg(archive).current_dir(&folder).status().expect("tar").success());
        let unpacked = folder.join(format!("{name}-0.1.0"));
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(unpacked.join(file).is_file(), "{name} has no {file}");
        }
    }
    let stranger = folder.join("stranger");
    fs::create_dir_all(stranger.join("src")).expect("made");
    fs::write(stranger.join("Cargo.toml"), MANIFEST).expect("written");
    let example = folder.join("underload-aqm-0.1.0/examples/codel_in_my_simulator.rs");
    fs::copy(example, stranger.join("src/main.rs")).expect("copied");
    let printed = cargo(&stranger, &folder.join("build"), &["run"]);
    assert!(printed.lines().any(|line| line.starts_with("codel  ")), "{printed}");
    fs::remove_dir_all(&folder).expect("removed");
}
