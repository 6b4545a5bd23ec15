//! The steps of CI, each of which can be run alone.

use std::fs;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};

use crate::cargo::{cargo, succeed, target};

/// A check and its name.
pub type Step = (&'static str, fn() -> anyhow::Result<()>);

/// All steps, the quickest first.
pub const ALL: [Step; 7] = [
    ("fmt", fmt),
    ("tidy", crate::tidy::check),
    ("commits", || crate::commits::check(None)),
    ("clippy", clippy),
    ("msrv", msrv),
    ("audit", crate::audit::run),
    ("test, doc, python, features", tests_and_others),
];
/// The steps that are part of another one in [`ALL`].
const ALONE: [Step; 2] = [("doc", doc), ("features", features)];

/// Returns the steps with these names; `None` if `names` is empty or has an unknown name.
pub fn named(names: &[&str]) -> Option<Vec<Step>> {
    let steps = || ALONE.into_iter().chain(ALL);
    let find = |name: &&str| steps().find(|(known, _)| known == name);
    names.iter().map(find).collect::<Option<Vec<_>>>().filter(|steps| !steps.is_empty())
}

/// Runs steps and prints how long each took.
pub fn run(steps: &[Step]) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut took = Vec::new();
    for (name, check) in steps {
        eprintln!("==> {name}");
        took.push(timed(name, *check)?);
    }
    eprintln!("all {:.0} s: {}", start.elapsed().as_secs_f64(), took.join(", "));
    Ok(())
}

/// Runs a check, and returns its name with the seconds that it took.
fn timed(name: &str, check: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<String> {
    let start = Instant::now();
    check().with_context(|| name.to_owned())?;
    let seconds = start.elapsed().as_secs_f64();
    eprintln!("    {name}: done in {seconds:.0} s");
    Ok(format!("{name} {seconds:.0}"))
}

/// Runs all tests. While they wait for clocks and for each other, builds the documentation, tests
/// the Python package and compiles each set of features; these share the tests' folder, so they
/// begin when the tests are built.
fn tests_and_others() -> anyhow::Result<()> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let mut others = None;
        let tested = crate::test_run::run(&[], &mut || {
            eprintln!("    building the tests: done in {:.0} s", start.elapsed().as_secs_f64());
            others = Some(scope.spawn(|| {
                let made = timed("doc", doc).map(drop);
                let tested = timed("python", crate::python::where_possible).map(drop);
                made.and(tested).and_then(|()| timed("features", features).map(drop))
            }));
        });
        let others = others.map(|others| others.join().expect("no step panics"));
        tested.and(others.unwrap_or(Ok(())))
    })
}

/// Compiles everything with the oldest Rust that `Cargo.toml` promises, unless all checks already
/// use that version. Without it, only clippy's `incompatible_msrv` has checked.
fn msrv() -> anyhow::Result<()> {
    let manifest = fs::read_to_string("Cargo.toml").context("Cargo.toml")?;
    let oldest = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'))
        .context("Cargo.toml has no rust-version")?;
    let toolchain = format!("+{oldest}");
    let is_oldest = |toolchain: &[&str]| {
        let output = Command::new("rustc").args(toolchain).arg("--version").output();
        let expected = format!("rustc {oldest}.");
        output.is_ok_and(|output| output.stdout.starts_with(expected.as_bytes()))
    };
    if is_oldest(&[]) {
        eprintln!("    this is Rust {oldest}");
        return Ok(());
    }
    if !is_oldest(&[&toolchain]) {
        let install = format!("rustup toolchain install {oldest} --profile minimal");
        crate::skips::report("msrv", &install);
        return Ok(());
    }
    let mut command = Command::new("cargo");
    command.args([&toolchain, "check", "--quiet", "--workspace", "--all-targets", "--locked"]);
    succeed(command.env("CARGO_TARGET_DIR", target().join("msrv")))
}

/// The packages and features that a user can choose: the programs that `dist` builds, the program
/// for macOS and Windows, the Python module, the page with sliders.
const FEATURE_SETS: [&[&str]; 6] = [
    &["--package", "underload", "--package", "underload-agent"],
    &["--package", "underload-fleet-cli"],
    &["--package", "underload", "--no-default-features"],
    &["--package", "underload", "--no-default-features", "--features", "whole"],
    &["--package", "underload-py"],
    &["--package", "underload-playground"],
];

/// Compiles each set of features by itself, without a warning. In the whole workspace, which the
/// other checks build, one package may use a library's feature that only another package enables.
fn features() -> anyhow::Result<()> {
    for set in FEATURE_SETS {
        let output = cargo("check").args(set).output()?;
        // A flag that denies warnings would build all libraries again.
        if !output.status.success() || !output.stderr.is_empty() {
            bail!("{}: {}", set.join(" "), String::from_utf8_lossy(&output.stderr));
        }
    }
    Ok(())
}

/// Checks that all code is formatted.
fn fmt() -> anyhow::Result<()> {
    succeed(Command::new("cargo").args(["fmt", "--all", "--check"]))
}

/// Runs the lints for every target, with warnings as errors.
fn clippy() -> anyhow::Result<()> {
    let lints = ["--workspace", "--all-targets", "--", "-Dwarnings"];
    succeed(cargo("clippy").args(lints))
}

/// Builds the documentation, with warnings such as broken links as errors.
fn doc() -> anyhow::Result<()> {
    let pages = ["--workspace", "--no-deps"];
    succeed(cargo("doc").args(pages).env("RUSTDOCFLAGS", "-Dwarnings"))
}
