//! The steps of CI, each of which can be run alone.

use std::fs;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};

use crate::cargo::{succeed, target};

/// Runs every check, the quickest first, and prints how long each took.
pub fn all() -> anyhow::Result<()> {
    type Check = fn() -> anyhow::Result<()>;
    let steps: [(&str, Check); 8] = [
        ("fmt", fmt),
        ("tidy", crate::tidy::check),
        ("commits", || crate::commits::check(None)),
        ("clippy", clippy),
        ("msrv", msrv),
        ("audit", crate::audit::where_installed),
        ("test, doc, python, features", tests_and_others),
        ("fuzz-time", || fuzz_time(CI_SECONDS)),
    ];
    let start = Instant::now();
    let mut took = Vec::new();
    for (name, check) in steps {
        eprintln!("==> {name}");
        let start = Instant::now();
        check().with_context(|| name.to_string())?;
        took.push(format!("{name} {:.0}", start.elapsed().as_secs_f64()));
        eprintln!("    {name}: done in {:.0} s", start.elapsed().as_secs_f64());
    }
    eprintln!("all {:.0} s: {}", start.elapsed().as_secs_f64(), took.join(", "));
    Ok(())
}

/// Runs all tests. While they wait for clocks and for each other, builds the documentation, tests
/// the Python package and compiles each set of features; these share the tests' folder, so they
/// begin when the tests are built.
fn tests_and_others() -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        let mut others = None;
        let tested = crate::test_run::run(&[], &mut || {
            others = Some(scope.spawn(|| {
                let made = doc().context("doc");
                let tested = crate::python::where_possible().context("python");
                made.and(tested).and_then(|()| features().context("features"))
            }));
        });
        let others = others.map(|others| others.join().expect("no step panics"));
        tested.and(others.unwrap_or(Ok(())))
    })
}

/// Compiles everything with the oldest Rust that `Cargo.toml` promises, unless all checks already
/// use that version. Without it, only clippy's `incompatible_msrv` has checked.
pub fn msrv() -> anyhow::Result<()> {
    let manifest = fs::read_to_string("Cargo.toml").context("Cargo.toml")?;
    let oldest = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'))
        .context("Cargo.toml has no rust-version")?;
    let version = |toolchain: &[&str]| {
        let output = Command::new("rustc").args(toolchain).arg("--version").output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let is_oldest = |version: &String| version.starts_with(&format!("rustc {oldest}."));
    let toolchain = format!("+{oldest}");
    if version(&[]).is_some_and(|version| is_oldest(&version)) {
        eprintln!("    this is Rust {oldest}");
        return Ok(());
    }
    if !version(&[&toolchain]).is_some_and(|version| is_oldest(&version)) {
        let install = format!("rustup toolchain install {oldest} --profile minimal");
        crate::skips::report("msrv", &install);
        return Ok(());
    }
    let mut command = Command::new("cargo");
    command.args([&toolchain, "check", "--quiet", "--workspace", "--all-targets", "--locked"]);
    succeed(command.env("CARGO_TARGET_DIR", target().join("msrv")))
}

/// Sets of features beside those of `dist`: for macOS and Windows, which have no network
/// namespaces; of the Python module; of the book's page with sliders.
const FEATURE_SETS: [&[&str]; 3] = [
    &["--package", "underload", "--no-default-features", "--features", "whole"],
    &["--package", "underload-py"],
    &["--package", "underload-playground"],
];

/// Compiles each set of features by itself, without a warning. In the whole workspace, which the
/// other checks build, one package may use a library's feature that only another package enables.
pub fn features() -> anyhow::Result<()> {
    for set in crate::dist::STEPS.iter().map(|step| step.arguments).chain(FEATURE_SETS) {
        let mut command = Command::new("cargo");
        let output = command.args(["check", "--quiet", "--locked"]).args(set).output()?;
        // A flag that denies warnings would build all libraries again.
        if !output.status.success() || !output.stderr.is_empty() {
            bail!("{}: {}", set.join(" "), String::from_utf8_lossy(&output.stderr));
        }
    }
    Ok(())
}

const WINDOWS: &str = "x86_64-pc-windows-gnu";
/// The C compiler that some dependencies need for that target.
const WINDOWS_COMPILER: &str = "x86_64-w64-mingw32-gcc";

/// Compiles the program for Windows, with warnings as errors; reports a skip without the target or
/// its C compiler.
pub fn windows() -> anyhow::Result<()> {
    if !crate::targets::is_installed(WINDOWS) {
        crate::skips::report("windows", &format!("rustup target add {WINDOWS}"));
        return Ok(());
    }
    if !crate::process::is_installed(WINDOWS_COMPILER) {
        crate::skips::report("windows", "apt install gcc-mingw-w64-x86-64");
        return Ok(());
    }
    let mut command = Command::new("cargo");
    command.args(["check", "--quiet", "--locked", "--target", WINDOWS]).args(FEATURE_SETS[0]);
    command.env("CARGO_TARGET_DIR", target().join("windows"));
    succeed(command.env("RUSTFLAGS", "-Dwarnings"))
}

/// Seconds of [`fuzz_time`] by hand.
pub const SECONDS_BY_HAND: u64 = 60;
/// Seconds of [`fuzz_time`] in CI.
const CI_SECONDS: u64 = 10;

/// Runs conversations of a server with clients that pause at random, for `seconds`.
pub fn fuzz_time(seconds: u64) -> anyhow::Result<()> {
    let test = "front::conversation::tests::no_pauses_between_bytes_stretch_a_limit";
    let mut command = Command::new("cargo");
    // The whole workspace, as in the tests before: a single package would enable other features of
    // its dependencies and build everything a second time.
    command.args(["test", "--quiet", "--locked", "--workspace", "--lib"]);
    command.args(["--", "--exact", test]);
    let output = command.env("UNDERLOAD_FUZZ_SECONDS", seconds.to_string()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    // Cargo succeeds even if no test has the name.
    if !output.status.success() || !said.contains("test result: ok. 1 passed") {
        bail!("{test} did not run and pass:\n{said}");
    }
    Ok(())
}

/// Checks that all code is formatted.
pub fn fmt() -> anyhow::Result<()> {
    succeed(Command::new("cargo").args(["fmt", "--all", "--check"]))
}

/// Runs the lints for every target, with warnings as errors.
pub fn clippy() -> anyhow::Result<()> {
    let mut command = Command::new("cargo");
    command.args(["clippy", "--quiet", "--workspace", "--all-targets", "--locked"]);
    succeed(command.args(["--", "-Dwarnings"]))
}

/// Builds the documentation, with warnings such as broken links as errors.
pub fn doc() -> anyhow::Result<()> {
    let mut command = Command::new("cargo");
    command.args(["doc", "--quiet", "--workspace", "--no-deps", "--locked"]);
    succeed(command.env("RUSTDOCFLAGS", "-Dwarnings"))
}
