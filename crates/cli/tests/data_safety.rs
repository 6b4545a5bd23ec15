//! No file of the user is lost or changed: every subcommand that writes runs among other files, on
//! a disk that fills up at any point, and is interrupted and killed.

#![expect(clippy::print_stderr, reason = "tests print why they were skipped")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use underload_disk::faults::{Tree, tree};
use underload_store::RunDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_underload");
/// A program that has not started or ended after this time counts as hung.
const PATIENCE: Duration = Duration::from_mins(2);

const TINY: &str = r#"
title = "A tiny trial"
repeats = 2
[path]
up = "5mbit"
up_queue = "fifo:limit=64KiB"
rtt = "10ms"
[phases]
idle = "100ms"
ramp = "100ms"
load = "200ms"
drain = "0s"
[[flow]]
name = "bulk"
kind = "tcp"
congestion_control = "reno"
[[flow]]
kind = "probe"
interval = "20ms"
"#;

/// Packets for `replay`.
const SCRIPT: &str = "time_ns,len,flow,dscp,ecn\n0,1500,1,0,not-ect\n0,1500,1,0,ect0\n";

/// Returns a folder with the program's inputs, and with files of the user under names that the
/// program also uses.
fn workplace() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let at = folder.path();
    for (name, text) in [
        ("tiny.toml", TINY),
        ("endless.toml", &TINY.replace("200ms", "3000s").replace("5mbit", "1gbit")),
        ("script.csv", SCRIPT),
        ("foreign/chapter.txt", "important"),
        ("foreign/photos/a.jpg", "a picture"),
        ("foreign/report.html", "<title>mine</title>"),
        ("foreign/plots/mine.svg", "<svg>mine</svg>"),
        ("foreign/parts/0000000-samples.parquet", "mine"),
        ("foreign/findings.json", "{}"),
        ("foreign/uplink.log", "mine"),
        ("foreign/keys", "not a key"),
        ("foreign/fates.csv", "older fates"),
        ("foreign/.underload-mine", "mine"),
    ] {
        let path = at.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    }
    folder
}

fn underload(at: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).current_dir(at);
    command.env("XDG_DATA_HOME", at.join("data")).env("XDG_CACHE_HOME", at.join("cache"));
    command
}

fn run(at: &Path, arguments: &[&str]) -> Output {
    underload(at, arguments).output().expect("the program starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A process that is killed when its test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(mut command: Command) -> Self {
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"))
    }

    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().expect("kill").success());
    }

    fn end(&mut self) {
        let start = Instant::now();
        while self.0.try_wait().expect("its state").is_none() {
            assert!(start.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn wait_until(&mut self, is_there: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_there() && self.0.try_wait().expect("its state").is_none() {
            assert!(start.elapsed() < PATIENCE, "it does not begin");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Returns whether a process has installed a handler for SIGINT.
fn asks_for_interrupts(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & 1 << (2 - 1) != 0)
}

#[test]
fn a_directory_with_other_files_is_refused_first() {
    let folder = workplace();
    let at = folder.path();
    let made = run(at, &["run", "tiny.toml", "--world", "sim", "--out", "done"]);
    assert!(made.status.success(), "{}", said(&made));
    let before = tree(&at.join("foreign"));
    // The scenario is missing, and no server answers at the port: the folder is checked first.
    let cases: [(&[&str], &str); 11] = [
        (&["run", "missing.toml", "--out", "foreign"], "not empty"),
        (&["run", "tiny.toml", "--world", "sim", "--out", "foreign/../foreign"], "not empty"),
        (&["run", "tiny.toml", "--out", "done"], "has a run already"),
        (&["measure", "127.0.0.1:1", "--out", "foreign"], "not empty"),
        (&["measure", "127.0.0.1:1", "--out", "done"], "has a run already"),
        (&["measure", "127.0.0.1:1", "--every", "1h", "--times", "1", "--out", "foreign"], "not"),
        (
            &["docsis", "recommend", "--rate", "5mbit", "--out", "foreign"],
            "expected the name of a new folder",
        ),
        (&["serve", "token", "rotate", "--keys", "foreign/keys"], "foreign/keys"),
        (
            &["replay", "script.csv", "--queue", "fifo", "--link", "5mbit", "--out", "script.csv"],
            "this is the input",
        ),
        (&["docsis", "encode", "script.csv", "--out", "script.csv"], "this is the input"),
        (&["docsis", "decode", "script.csv", "--out", "./script.csv"], "this is the input"),
    ];
    for (arguments, words) in cases {
        let output = run(at, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(words), "{arguments:?}: {}", said(&output));
        assert_eq!(tree(&at.join("foreign")), before, "{arguments:?}");
    }
    let here = run(&at.join("foreign"), &["run", "../tiny.toml", "--world", "sim", "--out", "."]);
    assert_eq!(here.status.code(), Some(2), "{}", said(&here));
    let report = run(at, &["report", "done", "--out", "foreign"]);
    assert!(said(&report).contains("foreign/report.html: already there"), "{}", said(&report));
    assert_eq!(tree(&at.join("foreign")), before, "a report over another's page");
    assert_eq!(std::fs::read_to_string(at.join("script.csv")).expect("the input"), SCRIPT);

    let export = run(at, &["export", "done", "--out", "foreign"]);
    assert!(export.status.success(), "{}", said(&export));
    let all = tree(&at.join("foreign"));
    let added: Vec<&PathBuf> = all.keys().filter(|path| !before.contains_key(*path)).collect();
    assert_eq!(added.len(), 2, "{added:?}");
    assert!(before.iter().all(|(path, content)| all.get(path) == Some(content)));
    // An existing file with equal content is accepted; one with other content is an error, and is
    // not replaced.
    assert!(run(at, &["export", "done", "--out", "foreign"]).status.success());
    std::fs::write(at.join("foreign").join(added[0]), "mine").expect("written");
    let again = run(at, &["export", "done", "--out", "foreign"]);
    assert_eq!(again.status.code(), Some(2), "{}", said(&again));
    assert_eq!(std::fs::read(at.join("foreign").join(added[0])).expect("it"), b"mine");
}

#[test]
fn two_runs_without_a_name_in_one_second_are_two_runs() {
    let folder = workplace();
    let at = folder.path();
    let start = || Running::start(underload(at, &["run", "tiny.toml", "--world", "sim"]));
    let mut all: Vec<Running> = (0..4).map(|_| start()).collect();
    for running in &mut all {
        running.end();
        assert!(running.0.wait().expect("its end").success());
    }
    let runs = std::fs::read_dir(at.join("runs")).expect("runs");
    let complete = |path: &Path| RunDir::read(path).is_ok_and(|data| data.record.complete);
    assert_eq!(runs.filter(|run| complete(&run.as_ref().expect("a run").path())).count(), 4);
}

#[test]
fn interrupted_and_killed_runs_leave_the_folder_around_them_alone() {
    let folder = workplace();
    let at = folder.path();
    let before = tree(&at.join("foreign"));
    let out = at.join("foreign/run");
    let begun: [fn(&Path) -> bool; 3] =
        [|_| true, |out| out.exists(), |out| out.join("trials.jsonl").exists()];
    for signal in ["-INT", "-KILL"] {
        for has_begun in begun {
            for file in ["endless.toml", "tiny.toml"] {
                let arguments = ["run", file, "--world", "sim", "--out", "foreign/run"];
                let mut running = Running::start(underload(at, &arguments));
                let pid = running.0.id();
                // A program that was started in the background of a shell ignores interrupts until
                // it installs a handler.
                running.wait_until(|| signal == "-KILL" || asks_for_interrupts(pid));
                running.wait_until(|| has_begun(&out));
                running.signal_if_alive(signal);
                running.end();
                let mut left = tree(&at.join("foreign"));
                left.retain(|path, _| !path.starts_with("run"));
                assert_eq!(left, before, "{signal} {file}");
                // The directory is a run, and its finished trials can be read.
                if out.join("run.json").exists() {
                    RunDir::read(&out).expect("a run");
                }
                if signal == "-INT" && file == "endless.toml" && has_begun(&out) {
                    assert!(!out.exists(), "a run without a trial is left");
                }
                let _ = std::fs::remove_dir_all(&out);
            }
        }
    }
    // A folder that the user created for the run still exists, and is empty again.
    std::fs::create_dir(at.join("empty")).expect("made");
    let arguments = ["run", "endless.toml", "--world", "sim", "--out", "empty"];
    let mut running = Running::start(underload(at, &arguments));
    running.wait_until(|| at.join("empty/trials.jsonl").exists());
    running.signal("-INT");
    running.end();
    assert_eq!(tree(&at.join("empty")), Tree::new());
}

impl Running {
    fn signal_if_alive(&mut self, name: &str) {
        if self.0.try_wait().expect("its state").is_none() {
            self.signal(name);
        }
    }
}

#[test]
fn an_interrupted_measurement_deletes_no_other_file() {
    let folder = workplace();
    let at = folder.path();
    let mut command = underload(at, &["serve", "--bind", "127.0.0.1", "--port", "0"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Running(command.spawn().expect("the server"));
    let mut line = String::new();
    let pipe = server.0.stdout.take().expect("piped");
    BufReader::new(pipe).read_line(&mut line).expect("its address");
    let address = line.split_whitespace().nth(1).expect("an address").to_owned();
    let before = tree(&at.join("foreign"));
    std::fs::create_dir(at.join("empty")).expect("made");
    for out in ["foreign/run", "empty"] {
        let arguments = ["measure", &address, "--idle", "20s", "--out", out];
        let mut running = Running::start(underload(at, &arguments));
        running.wait_until(|| at.join(out).join("trials.jsonl").exists());
        // The first step is not finished, so the run has no result to keep.
        running.signal_if_alive("-INT");
        running.end();
        assert_eq!(tree(&at.join("foreign")), before, "{out}");
        assert_eq!(tree(&at.join("empty")), Tree::new(), "{out}");
    }
}

/// Free space on a disk, in addition to the space of the user's files.
#[derive(Clone, Copy, Debug)]
struct Room {
    pages: usize,
    files: usize,
}

/// Runs a command with the folder `disk` on a separate disk, which has `room` in addition to a copy
/// of the user's files. Returns the exit status and the files on the disk afterwards; `None` if
/// this machine cannot create a disk.
fn on_small_disk(at: &Path, room: Room, arguments: &str) -> Option<(i32, Tree)> {
    let foreign = tree(&at.join("foreign"));
    // Each of the files takes a page; the root is an inode as well.
    let pages = foreign.values().filter(|content| content.is_some()).count() + room.pages;
    let inodes = 1 + foreign.len() + room.files;
    let script = format!(
        "mount -t tmpfs -o size={}k,nr_inodes={inodes} none disk || exit 90\n\
         cp -r foreign/. disk || exit 91; chmod 600 disk/keys\n\
         \"$P\" {arguments} >/dev/null 2>said; echo $? >status; rm -rf copy; cp -r disk copy",
        4 * pages,
    );
    std::fs::create_dir_all(at.join("disk")).expect("made");
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &script]).current_dir(at).env("P", PROGRAM);
    command.env("XDG_DATA_HOME", at.join("data")).env("XDG_CACHE_HOME", at.join("cache"));
    let output = command.output().expect("unshare of util-linux");
    assert_ne!(output.status.code(), Some(91), "the premise: room for the foreign files");
    if !output.status.success() {
        eprintln!("no disk of its own: {}", said(&output));
        return None;
    }
    let status = std::fs::read_to_string(at.join("status")).expect("its status");
    Some((status.trim().parse().expect("a number"), tree(&at.join("copy"))))
}

#[test]
fn on_a_disk_that_fills_up_at_any_point_nothing_foreign_changes() {
    let test = "on_a_disk_that_fills_up_at_any_point_nothing_foreign_changes";
    let folder = workplace();
    let at = folder.path();
    std::fs::remove_file(at.join("foreign/keys")).expect("made");
    for arguments in [
        &["run", "tiny.toml", "--world", "sim", "--out", "done"][..],
        &["serve", "token", "rotate", "--keys", "foreign/keys"],
    ] {
        assert!(run(at, arguments).status.success(), "{arguments:?}");
    }
    let before = tree(&at.join("foreign"));
    // Files that each command may add, and files that it may replace as a whole.
    let commands = [
        ("run tiny.toml --world sim --no-cache --out disk/run", "run", ""),
        ("report done --out disk/new", "new", ""),
        ("export done --out disk/new", "new", ""),
        ("replay script.csv --queue fifo --link 5mbit --out disk/fates.csv", "-", "fates.csv"),
        ("serve token rotate --keys disk/keys", "-", "keys"),
    ];
    for (arguments, added, changed) in commands {
        let mut endings = BTreeMap::new();
        let pages = [0, 1, 2, 3, 4, 6, 8, 12, 20, 60, 2_000];
        let few_pages = pages.map(|pages| Room { pages, files: 2_000 });
        let few_files = (0..12).map(|files| Room { pages: 2_000, files });
        for room in few_pages.into_iter().chain(few_files) {
            let Some((status, left)) = on_small_disk(at, room, arguments) else {
                eprintln!("SKIPPED {test}: this machine forbids mounts in a namespace");
                return;
            };
            *endings.entry(status).or_insert(0) += 1;
            for (path, content) in &before {
                let is_same = left.get(path) == Some(content);
                assert!(
                    is_same || (status == 0 && path == Path::new(changed)),
                    "{arguments}, {room:?}: {}",
                    path.display()
                );
            }
            let stray =
                left.keys().find(|path| !before.contains_key(*path) && !path.starts_with(added));
            assert_eq!(stray, None, "{arguments}, {room:?}");
        }
        let words = std::fs::read_to_string(at.join("said")).expect("what it said");
        // The test requires that some sizes are too small and others are not.
        assert!(endings.len() > 1 && endings.contains_key(&0), "{arguments}: {endings:?}: {words}");
    }
}
