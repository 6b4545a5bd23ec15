//! Tests of `underload fleet demo`: measures a small fleet in real time, and checks what is left
//! after a kill.

#![expect(clippy::print_stderr, reason = "tests print why they were skipped")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use underload_fleet::outcome::Outcome;
use underload_fleet::store::Filter;
use underload_orchestrator::store::Place;

const PROGRAM: &str = env!("CARGO_BIN_EXE_underload-fleet");

/// Starts a demo with temporary files below `folder`. Prints a report of the skip and returns
/// `None` if the machine cannot run one.
fn demo(test: &str, folder: &Path, arguments: &[&str]) -> Option<(Child, Vec<String>)> {
    let mut command = Command::new(PROGRAM);
    command.args(["demo", "--listen", "127.0.0.1:0"]).args(arguments);
    command.env("TMPDIR", folder).current_dir(folder).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut said = Vec::new();
    while said.len() < 2 {
        let Some(line) = lines.next() else { break };
        said.push(line.expect("a text"));
    }
    if said.len() < 2 {
        let mut errors = String::new();
        child.stderr.take().expect("its errors").read_to_string(&mut errors).expect("a text");
        child.wait().expect("it is over");
        let refused = ["refused", "network namespace", "/dev/net/tun", "not permitted"];
        assert!(refused.iter().any(|word| errors.contains(word)), "{errors}");
        eprintln!("SKIPPED {test}: this machine forbids namespaces or TUN devices: {errors}");
        return None;
    }
    // If its output is not read, the demo blocks when it writes.
    let mut errors = child.stderr.take().expect("its errors");
    std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
    if arguments.contains(&"--exit") {
        said.extend(rest.join().expect("it is read"));
    }
    Some((child, said))
}

/// Returns the address in the first line of its output.
fn address(said: &[String]) -> String {
    let url = said[0].strip_prefix("pages: http://").unwrap_or_else(|| panic!("{said:?}"));
    url.split('/').next().expect("an address").to_owned()
}

#[test]
fn a_small_fleet_measures_and_its_account_adds_up() {
    let name = "a_small_fleet_measures_and_its_account_adds_up";
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["--lines", "9", "--seconds", "75", "--keep", "kept", "--exit"];
    let Some((mut child, said)) = demo(name, folder.path(), &arguments) else { return };
    assert!(child.wait().expect("it is over").success(), "{said:?}");
    assert!(said[1].starts_with("token: ulo1."), "{said:?}");
    assert!(said.iter().any(|line| line.contains("exactly one outcome")), "{said:?}");
    let place = Place::Sqlite(folder.path().join("kept/store"));
    let mut archive = place.archive().expect("the store is there");
    assert_eq!(archive.plans().expect("plans").len(), 2);
    assert_eq!(archive.servers().expect("servers").len(), 2);
    assert_eq!(archive.count_devices(&Filter::default()).expect("devices"), 9);
    let mut loaded = 0;
    let see = archive.visit(&Filter::default(), &mut |kept| {
        // Runs are invalid on a busy machine, but are stored with their results.
        if [Outcome::Measured, Outcome::Invalid].contains(&kept.result.outcome) {
            let series = kept.result.steps.iter().flat_map(|step| &step.series);
            loaded += u64::from(series.map(|it| it.sent).sum::<u64>() > 0);
        }
        true
    });
    see.expect("results");
    assert!(loaded > 0, "no line was measured: {said:?}");
}

#[test]
fn a_killed_demo_leaves_nothing_behind() {
    let name = "a_killed_demo_leaves_nothing_behind";
    let folder = tempfile::tempdir().expect("a folder");
    let Some((mut child, said)) = demo(name, folder.path(), &["--lines", "3"]) else { return };
    let address = address(&said);
    let mut page = TcpStream::connect(&address).expect("the pages are there");
    page.set_read_timeout(Some(Duration::from_mins(1))).expect("a time");
    page.write_all(b"GET /login HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    page.read_to_string(&mut answer).expect("a page");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let group = child.id();
    child.kill().expect("it is killed");
    child.wait().expect("it is over");
    assert!(TcpStream::connect(&address).is_err(), "the port is free");
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("the folder").collect();
    assert!(left.is_empty(), "{left:?}");
    let start = Instant::now();
    while processes_of(group) > 0 {
        assert!(start.elapsed() < Duration::from_mins(1), "processes are left");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the number of living processes in a process group.
fn processes_of(group: u32) -> usize {
    let is_member = |stat: String| {
        // The fields after the name, which may contain any character: state, parent, group.
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        let state = fields.next()?;
        let found: u32 = fields.nth(1)?.parse().ok()?;
        (found == group && state != "Z").then_some(())
    };
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let stats = processes.filter_map(|it| std::fs::read_to_string(it.path().join("stat")).ok());
    stats.filter_map(is_member).count()
}

#[test]
fn impossible_demos_are_refused_before_files_are_created() {
    let refused = |arguments: &[&str]| {
        let output = Command::new(PROGRAM).args(["demo"]).args(arguments).output();
        let output = output.expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        said
    };
    assert!(refused(&["--listen", "0.0.0.0:0"]).contains("loopback"));
    assert!(refused(&["--lines", "2"]).contains("--lines"));
    assert!(refused(&["--seconds", "1"]).contains("--seconds"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = taken.local_addr().expect("an address").to_string();
    assert!(refused(&["--listen", &at]).contains(&at));
}
