//! The world `kernel`: the kernel's own TCP in virtual time. Each test that starts a guest needs a
//! kernel: `cargo xtask kernel` builds one, the variable `UNDERLOAD_KERNEL` names it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use underload_record::schema::{Phase, RunRecord, World};

const SCENARIO: &str = r#"
[path]
up = "20mbit"
up_queue = "fifo:limit=128KiB"
rtt = "20ms"
[phases]
idle = "500ms"
ramp = "1s"
load = "2s"
[[flow]]
name = "bulk"
kind = "tcp"
congestion_control = "cubic"
[[flow]]
kind = "probe"
interval = "10ms"
"#;

/// The kernel to test with: that of the variable, else the one that was built here.
fn image(test: &str) -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/kernel/linux");
    let named = std::env::var_os("UNDERLOAD_KERNEL").map(PathBuf::from);
    let found = named.or_else(|| built.is_file().then_some(built));
    if found.is_none() {
        eprintln!("SKIPPED {test}: no kernel (`cargo xtask kernel` builds one)");
    }
    found
}

fn underload(folder: &Path, kernel: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underload"));
    command.args(arguments).current_dir(folder).env("UNDERLOAD_KERNEL", kernel);
    command.env("XDG_DATA_HOME", folder.join("data"));
    command
}

fn run(folder: &Path, kernel: &Path, out: &str, more: &[&str]) -> Output {
    fs::write(folder.join("scenario.toml"), SCENARIO).expect("a scenario");
    let arguments = ["run", "scenario.toml", "--world", "kernel", "--out", out];
    let mut command = underload(folder, kernel, &[&arguments[..], more].concat());
    command.output().expect("the program starts")
}

/// The record without what differs between two runs of the same seed: the hour and the duration.
fn record(folder: &Path, out: &str) -> RunRecord {
    let text = fs::read_to_string(folder.join(out).join("run.json")).expect("a record");
    let mut record: RunRecord = serde_json::from_str(&text).expect("a record");
    record.host.started.clear();
    record.host.duration_s = 0.0;
    record
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_same_seed_gives_the_same_bytes_also_on_a_busy_machine() {
    let Some(kernel) = image("the_same_seed_gives_the_same_bytes_also_on_a_busy_machine") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a directory");
    let busy: Vec<_> = (0..3)
        .map(|_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell"))
        .collect();
    let first = run(folder.path(), &kernel, "first", &["--repeat", "4"]);
    for mut loop_forever in busy {
        loop_forever.kill().expect("it runs");
        loop_forever.wait().expect("it ends");
    }
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert!(run(folder.path(), &kernel, "again", &["--repeat", "4"]).status.success());
    let [first, again] = ["first", "again"].map(|out| record(folder.path(), out));
    assert_eq!(first.world, World::Kernel);
    assert_eq!(first.trials.len(), 4);
    assert_eq!(first, again);
    let samples =
        |out: &str| fs::read(folder.path().join(out).join("samples.parquet")).expect("samples");
    assert_eq!(samples("first"), samples("again"));
}

#[test]
fn the_simulator_and_the_kernel_agree() {
    let Some(kernel) = image("the_simulator_and_the_kernel_agree") else { return };
    let folder = tempfile::tempdir().expect("a directory");
    let output = run(folder.path(), &kernel, "kernel", &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let simulated = ["run", "scenario.toml", "--world", "sim", "--out", "sim", "--no-cache"];
    assert!(underload(folder.path(), &kernel, &simulated).status().expect("it starts").success());
    let median = |out: &str| {
        let record = record(folder.path(), out);
        let load = record.trials[0].latencies.iter().find(|it| it.window.phase == Phase::Load);
        load.and_then(|load| Some(load.distribution.as_ref()?.p50_ns as f64 / 1e6))
            .expect("a median")
    };
    let (kernel, sim) = (median("kernel"), median("sim"));
    assert!((kernel - sim).abs() < 2.0, "p50 of {kernel} ms and {sim} ms");
}

#[test]
fn a_killed_run_leaves_no_guest() {
    let Some(kernel) = image("a_killed_run_leaves_no_guest") else { return };
    let folder = tempfile::tempdir().expect("a directory");
    // A copy has a name that no other process has.
    let copy = folder.path().join("linux");
    fs::copy(&kernel, &copy).expect("a copy");
    fs::write(folder.path().join("scenario.toml"), SCENARIO.replace("2s", "600s"))
        .expect("written");
    let arguments = ["run", "scenario.toml", "--world", "kernel", "--out", "killed"];
    let mut command = underload(folder.path(), &copy, &arguments);
    let mut running = command.env("TMPDIR", folder.path()).spawn().expect("the program starts");
    let has_started = is_soon(|| guests(&copy) > 0);
    running.kill().expect("it runs");
    running.wait().expect("it ends");
    assert!(has_started, "a guest runs");
    assert!(is_soon(|| guests(&copy) == 0), "no guest is left");
}

#[test]
fn what_is_no_kernel_is_refused() {
    let folder = tempfile::tempdir().expect("a directory");
    let missing = folder.path().join("missing");
    let output = run(folder.path(), &missing, "out", &[]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("no kernel at") && error.contains("cargo xtask kernel"), "{error}");
    for (name, bytes) in [("text", &b"no program"[..]), ("script", b"#!/bin/sh\necho 7.2\n")] {
        let file = folder.path().join(name);
        fs::write(&file, bytes).expect("written");
        let made = Command::new("chmod").arg("+x").arg(&file).status().expect("chmod");
        assert!(made.success());
        let arguments = ["kernel", "install", name];
        let output = underload(folder.path(), &missing, &arguments).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{name}: {}", text(&output.stderr));
        assert!(!folder.path().join("data/underload/kernel/linux").exists());
    }
}

/// Processes of the host that run this program.
fn guests(program: &Path) -> usize {
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    processes
        .filter(|process| fs::read_link(process.path().join("exe")).is_ok_and(|it| it == program))
        .count()
}

/// Whether something becomes true within a minute.
fn is_soon(is_so: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !is_so() && start.elapsed() < Duration::from_mins(1) {
        sleep(Duration::from_millis(20));
    }
    is_so()
}
