//! `underload sweep` as a user runs it: killed, stopped or refused, it ends with the same tables.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const LINE: &str = include_str!("../../run/tests/data/line.toml");

fn axes(samples: u32) -> String {
    format!(
        "scenario = \"line.toml\"\nrepeats = 2\ndesign = \"random\"\nsamples = {samples}\n\
         [[axis]]\nkey = \"path.up\"\nfrom = \"2mbit\"\nto = \"20mbit\"\nscale = \"log\"\n\
         [[axis]]\nkey = \"path.rtt\"\nfrom = \"2ms\"\nto = \"80ms\"\n"
    )
}

/// A folder with a scenario and a sweep of it.
fn folder(sweep: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("line.toml"), LINE).expect("a file");
    fs::write(folder.path().join("sweep.toml"), sweep).expect("a file");
    folder
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underload"));
    command.current_dir(folder).arg("sweep").args(arguments);
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn tables(folder: &Path) -> [Vec<u8>; 2] {
    ["trials.parquet", "cells.parquet"].map(|name| fs::read(folder.join(name)).expect("a table"))
}

/// The bytes of the journal of a sweep that is under way.
fn stored(folder: &Path) -> u64 {
    fs::metadata(folder.join("rows.jsonl")).map_or(0, |journal| journal.len())
}

/// Starts the sweep and waits until it has stored more results, or has ended.
fn until_stored(folder: &Path, arguments: &[&str]) -> (Child, bool) {
    let before = stored(&folder.join("out"));
    let mut child = command(folder, arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let begun = Instant::now();
    loop {
        if stored(&folder.join("out")) > before {
            return (child, true);
        }
        if child.try_wait().expect("its status").is_some() {
            return (child, false);
        }
        assert!(begun.elapsed() < Duration::from_mins(10), "nothing is stored");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_sweep_that_is_killed_three_times_has_the_same_tables() {
    let folder = folder(&axes(800));
    let folder = folder.path();
    let whole = run(folder, &["sweep.toml", "--output", "whole"]);
    assert!(whole.status.success(), "{}", text(&whole.stderr));
    // With one worker the sweep takes some seconds on any machine.
    let arguments = ["sweep.toml", "--output", "out", "--workers", "1"];
    let mut kills = 0;
    for _ in 0..3 {
        let (mut child, is_running) = until_stored(folder, &arguments);
        kills += u32::from(is_running);
        // On Unix that is SIGKILL.
        let _ = child.kill();
        child.wait().expect("it ends");
    }
    assert!(kills > 0, "the premise: it was killed with something stored");
    let last = run(folder, &["sweep.toml", "--output", "out"]);
    let said = text(&last.stderr);
    assert!(last.status.success() && said.contains("continuing after"), "{said}");
    assert_eq!(tables(&folder.join("whole")), tables(&folder.join("out")));
    assert!(!folder.join("out/rows.jsonl").exists());
    assert_eq!(text(&last.stdout), text(&whole.stdout));
    // A repeated command has nothing to compute and prints the same table.
    let again = run(folder, &["sweep.toml", "--output", "out"]);
    assert_eq!(text(&again.stdout), text(&whole.stdout));
}

#[test]
fn ctrl_c_stores_finished_cells_and_prints_how_to_resume() {
    let folder = folder(&axes(2_000));
    let folder = folder.path();
    let (mut child, is_running) =
        until_stored(folder, &["sweep.toml", "--output", "out", "--workers", "1"]);
    assert!(is_running, "the premise: it is under way");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("a signal");
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(said.contains("the same command continues"), "{said}");
    assert!(stored(&folder.join("out")) > 0 && folder.join("out/report.html").exists());
}

#[test]
fn a_result_is_a_table_or_a_document() {
    let folder = folder(&axes(3));
    let folder = folder.path();
    let dry = run(folder, &["sweep.toml", "--dry-run"]);
    let told = text(&dry.stdout);
    assert!(dry.status.success(), "{}", text(&dry.stderr));
    assert!(told.contains("axis path.up: drawn from a range"), "{told}");
    assert!(told.contains("cells: 6, each of 2 trials: 12 in all"), "{told}");
    assert!(!folder.join("sweeps").exists(), "a dry run leaves nothing");

    let json = run(folder, &["sweep.toml", "--json"]);
    assert!(json.status.success(), "{}", text(&json.stderr));
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((&json["complete"], &json["cells"]), (&true.into(), &6.into()));
    assert_eq!(json["directory"], "sweeps/sweep");
    assert_eq!(json["best"].as_array().map(Vec::len), Some(6));
    let page = fs::read_to_string(folder.join("sweeps/sweep/report.html")).expect("a page");
    assert!(page.matches("<svg").count() == 2, "a picture for each axis");
}

#[test]
fn mistakes_are_reported_before_the_sweep_starts() {
    let folder = folder(&axes(3).replace("path.rtt", "path.rtd"));
    let folder = folder.path();
    let wrong = run(folder, &["sweep.toml"]);
    let said = text(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(2), "{said}");
    assert!(said.contains("sweep.toml:11:7: axis[1].key: path.rtd: unknown key"), "{said}");
    assert!(said.contains("did you mean `rtt`?") && said.contains("^^^"), "{said}");
    assert!(!folder.join("sweeps").exists());
    let checked = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_underload"));
        command.current_dir(folder).args(["check", name]).output().expect("it runs")
    };
    let told = checked("sweep.toml");
    assert_eq!(told.status.code(), Some(2));
    assert!(text(&told.stderr).contains("axis[1].key"), "{}", text(&told.stderr));
    fs::write(folder.join("right.toml"), axes(3)).expect("a file");
    let told = text(&checked("right.toml").stdout);
    assert_eq!(
        told,
        "right.toml: OK (a sweep of 6 cells, 2 variants, 12 trials; simulator only)\n"
    );

    let right = run(folder, &["right.toml", "--output", "out"]);
    assert!(right.status.success(), "{}", text(&right.stderr));
    fs::write(folder.join("right.toml"), axes(4)).expect("a file");
    let other = run(folder, &["right.toml", "--output", "out"]);
    assert_eq!(other.status.code(), Some(2));
    let said = text(&other.stderr);
    assert!(said.contains("out: has another sweep: the sweep file differs"), "{said}");
    fs::write(folder.join("out/sweep.json"), "{").expect("a file");
    let damaged = run(folder, &["right.toml", "--output", "out"]);
    assert_eq!(damaged.status.code(), Some(2));
    let damaged = text(&damaged.stderr);
    assert!(damaged.contains("damaged: ") && !damaged.contains("continues"), "{damaged}");
    let missing = run(folder, &["none.toml"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("none.toml"), "{}", text(&missing.stderr));
}

#[test]
fn an_unknown_metric_is_reported() {
    let folder = folder(&format!("metrics = [\"load.queuing.up.p99\"]\n{}", axes(2)));
    let dry = run(folder.path(), &["sweep.toml", "--dry-run"]);
    let said = text(&dry.stderr);
    assert!(said.contains("has the metric `load.queuing.up.p99`"), "{said}");
    let done = run(folder.path(), &["sweep.toml"]);
    assert!(done.status.success());
    assert!(text(&done.stderr).contains("no cell has the metric `load.queuing.up.p99`"));
}

/// 80 probes in each trial.
#[test]
fn a_ranking_by_a_percentile_of_too_few_samples_is_reported() {
    let said = |best: &str| {
        let folder = folder(&format!("{best}{}", axes(2)));
        text(&run(folder.path(), &["sweep.toml"]).stderr)
    };
    let few = said("");
    assert!(
        few.contains("ranked by load.rtt.p99, of about 80 samples in each trial: p99 needs 500")
    );
    assert!(few.contains("or rank by load.rtt.p90"), "{few}");
    let known = said("best = { metric = \"load.rtt.p90\" }\n");
    assert!(!known.contains("samples in each trial"), "{known}");
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let folder = folder(&axes(2));
    fs::write(folder.path().join("file"), "mine").expect("a file");
    let refused = run(folder.path(), &["sweep.toml", "--output", "file/out"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("file"), "{said}");
    assert_eq!(fs::read_to_string(folder.path().join("file")).expect("mine"), "mine");
    let refused = run(folder.path(), &["sweep.toml", "--output", "file"]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(!said.contains("is kept"), "nothing of it is there: {said}");
}

#[test]
fn a_full_disk_is_reported_with_the_number_of_stored_trials() {
    let folder = folder(&axes(40));
    let folder = folder.path();
    // No file may have more than 16 blocks. Ignored, the signal of a longer one is an error.
    let limited = "trap '' XFSZ; ulimit -f 16; exec \"$0\" sweep sweep.toml --output out";
    let program = env!("CARGO_BIN_EXE_underload");
    let full = Command::new("sh").args(["-c", limited, program]).current_dir(folder).output();
    let full = full.expect("the program runs");
    let said = text(&full.stderr);
    assert_eq!(full.status.code(), Some(1), "{said}");
    let journal = fs::read_to_string(folder.join("out/rows.jsonl")).expect("a journal");
    let stored = journal.lines().count();
    let note = format!("out: {stored} of 160 trials are stored; the same command continues");
    assert!(said.contains(&note), "{note}: {said}");

    let whole = run(folder, &["sweep.toml", "--output", "out"]);
    assert_eq!(whole.status.code(), Some(0), "{}", text(&whole.stderr));
}

#[test]
fn a_sweep_has_the_plots_of_its_file_and_is_redrawn_without_computing() {
    let plot = |kind: &str, rest: &str| {
        format!(
            "[[plot]]\nkind = \"{kind}\"\ntitle = \"As {kind}\"\n\
             metric = \"load.rtt.p99\"\n{rest}\n"
        )
    };
    let folder = folder(&(axes(12) + &plot("sweep", "x = \"path.up\"\nsays = \"delay, ms\"")));
    let folder = folder.path();
    let page = |said: &str| {
        let output = run(folder, &["sweep.toml", "--output", "out"]);
        let told = text(&output.stderr);
        assert!(output.status.success() && told.contains(said), "{told}");
        fs::read_to_string(folder.join("out/report.html")).expect("a page")
    };
    let first = page("48 trials");
    assert!(first.contains("What this sweep shows") && first.contains("As sweep"), "{first}");
    // The file has other pictures, one of half the cells; the stored rows are reused.
    let rest = [
        plot("heat", "x = \"path.up\"\nline = \"path.rtt\""),
        plot("box", "x = \"variant\""),
        plot("scatter", "x_metric = \"goodput.up\"\nonly = { variant = \"codel\" }"),
    ];
    fs::write(folder.join("sweep.toml"), axes(12) + &rest.concat()).expect("a file");
    let second = page("continuing after 48 of 48 trials");
    for title in ["As heat", "As box", "As scatter"] {
        assert!(second.contains(title), "{title}");
    }
    assert!(!second.contains("As sweep"));
    assert!(second.contains("Each box is of 12 cells") && second.contains("A ring for each cell"));
    // A metric without a stored column needs another sweep.
    let new = plot("box", "x = \"variant\"").replace("load.rtt.p99", "load.rtt.p90");
    fs::write(folder.join("sweep.toml"), axes(12) + &new).expect("a file");
    let refused = run(folder, &["sweep.toml", "--output", "out"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("its columns have other metrics"),
        "{}",
        text(&refused.stderr)
    );
    fs::write(folder.join("sweep.toml"), axes(12) + &plot("heat", "")).expect("a file");
    let refused = run(folder, &["sweep.toml", "--output", "out"]);
    let said = text(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("plot[0].x: is missing"), "{said}");
}
