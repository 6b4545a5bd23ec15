//! `underload measure` against servers of other projects stores runs in the same form as against
//! `underload serve`.

#[path = "../../compat/tests/ndt7_server/mod.rs"]
mod ndt7_server;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use ndt7_server::{Manner, server};

const PROGRAM: &str = env!("CARGO_BIN_EXE_underload");

fn underload(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env("XDG_DATA_HOME", home).current_dir(home).args(arguments);
    command
}

fn run(home: &Path, arguments: &[&str]) -> Output {
    underload(home, arguments).output().unwrap()
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// A process that is killed when its test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_ndt7_test_leaves_a_run_that_reports_read() {
    let home = tempfile::tempdir().unwrap();
    let (address, fingerprint) = server(Manner::Honest);
    let (host, trust) = (format!("ndt7://{address}"), fingerprint.to_string());
    let base = ["measure", host.as_str(), "--trust", trust.as_str(), "--duration", "2s"];
    let long = [&base[..5], &["4s", "--json", "--out", "run"]].concat();
    let output = run(home.path(), &long);
    let said = words(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["run"]["scenario"]["name"], "measure/ndt7");
    assert_eq!(document["details"]["results"][0]["direction"], "down");
    for (at, step) in ["down", "up"].into_iter().enumerate() {
        let finding = &document["findings"][at];
        assert_eq!(finding["step"], step);
        assert!(finding[format!("goodput_{step}_mbit_s")].as_f64().unwrap() > 1.0, "{finding}");
        // Quantities that such a server cannot measure are absent, not zero.
        for absent in ["rpm", "clock_offset_ns", "buffer_kib"] {
            assert!(finding[absent].is_null(), "{absent}: {finding}");
        }
        assert_eq!(finding["markings"], serde_json::json!([]));
        assert_eq!(finding["latencies"], serde_json::json!([]));
    }
    let foreign = &document["findings"][0]["foreign"];
    let detail = &document["details"]["results"][0];
    assert_eq!(foreign["smallest_ns"], detail["round_trip_smallest_ns"]);
    assert_eq!(foreign["loaded"][0]["distribution"]["p50_ns"], 42_000_000);
    // The sentences are equal in the output, on the page, and in every later report.
    let verdict: Vec<&str> =
        document["verdict"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    let count = |step: usize| {
        document["findings"][step]["foreign"]["loaded"][0]["distribution"]["count"].as_u64()
    };
    let is_enough = count(0).max(count(1)) >= Some(10);
    assert_eq!(verdict[0].starts_with("Grade "), is_enough, "{verdict:?}");
    assert!(!is_enough || verdict[0].contains("Graded by the p"), "{verdict:?}");
    assert!(verdict[0].ends_with("and what another sender would add down."), "{verdict:?}");
    let page = std::fs::read_to_string(home.path().join("run/report.html")).unwrap();
    assert!(page.contains("Over time") && !page.contains("Idle and working latency"));
    let shown = words(&run(home.path(), &["report", "run"]).stdout);
    // Uses are a list with marks on the page.
    let page = page.replace("&gt;", ">");
    let is_use = |line: &str| line.starts_with("Video") || line.starts_with("Web pages");
    for line in verdict.iter().filter(|line| !is_use(line)) {
        assert!(page.contains(&line.replace('\'', "&#39;")) || page.contains(line), "{line}");
        assert!(shown.contains(line), "{line}\n{shown}");
    }
    assert_eq!(json(&home.path().join("run/findings.json"))["verdict"], document["verdict"]);

    let again = run(home.path(), &[&base[..], &["--out", "run"]].concat());
    assert_eq!(again.status.code(), Some(2), "{}", words(&again.stderr));

    // A condition that holds, one that does not, and one on a number that was not measured.
    for (out, condition, status, said) in [
        ("worse", "goodput-down < 900gbit", 3, "--fail-if: goodput-down is "),
        ("good", "goodput-down < 1kbit", 0, ""),
        ("unknown", "loss > 1%", 1, "error: --fail-if: loss was not measured"),
    ] {
        let fail_if = ["--down", "--fail-if", condition, "--out", out];
        let judged = run(home.path(), &[&base[..], &fail_if].concat());
        let errors = words(&judged.stderr);
        assert_eq!(judged.status.code(), Some(status), "{condition}: {errors}");
        assert!(errors.contains(said), "{condition}: {errors}");
        assert!(home.path().join(out).join("run.json").is_file(), "the run is stored");
    }
}

#[test]
fn ndt7_tests_in_a_series_are_removed_and_history_knows_them() {
    let home = tempfile::tempdir().unwrap();
    let (address, fingerprint) = server(Manner::Honest);
    let (host, trust) = (format!("ndt7://{address}"), fingerprint.to_string());
    let base = ["measure", host.as_str(), "--trust", trust.as_str(), "--duration", "2s"];
    let several = ["--every", "1min", "--times", "1", "--out", "line", "--per-day", "900GB"];
    let output = run(home.path(), &[&base[..], &several].concat());
    assert_eq!(output.status.code(), Some(0), "{}", words(&output.stderr));
    // The next measurement looks for old runs, and leaves what is not of the series.
    let runs = || -> Vec<String> {
        let folders = std::fs::read_dir(home.path().join("line")).unwrap().flatten();
        let folders = folders.filter(|it| it.path().join("run.json").is_file());
        folders.map(|it| it.file_name().into_string().unwrap()).collect()
    };
    std::fs::create_dir(home.path().join("line/mine")).unwrap();
    let damaged = home.path().join("line/damaged");
    std::fs::create_dir(&damaged).unwrap();
    std::fs::write(damaged.join("run.json"), "{").unwrap();
    let output = run(home.path(), &[&base[..], &several, &["--keep", "1d"]].concat());
    let said = words(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("line/mine: not removed"), "{said}");
    std::fs::remove_dir_all(&damaged).unwrap();
    assert!(runs().len() == 2 && home.path().join("line/mine").is_dir());
    // Both directions of both measurements, of 2 s each, are in the account.
    let used = json(&home.path().join("line/account.json"))["day_bytes"].as_u64().unwrap();
    assert!(used > 1_000_000, "{used}");
    let small = ["--every", "1min", "--times", "1", "--out", "line", "--per-day", "1MB"];
    let output = run(home.path(), &[&base[..], &small].concat());
    let said = words(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("the budget per day: 1.0 MB are less than a measurement to this server"),
        "{said}"
    );
    let history = run(home.path(), &["history", "line", "--metric", "load-p50"]);
    assert!(words(&history.stdout).contains("2 runs were read."), "{history:?}");
    let told = words(&history.stdout);
    assert!(told.contains("down: median latency under load is 42"), "{told}");
}

#[test]
fn a_connection_that_breaks_leaves_a_run_without_a_verdict() {
    let home = tempfile::tempdir().unwrap();
    let (address, fingerprint) = server(Manner::Breaks);
    let (host, trust) = (format!("ndt7://{address}"), fingerprint.to_string());
    let output = run(
        home.path(),
        &["measure", &host, "--trust", &trust, "--down", "--duration", "5s", "--out", "run"],
    );
    assert_eq!(output.status.code(), Some(1), "{}", words(&output.stderr));
    let told = words(&output.stdout);
    assert!(told.contains("down: INVALID, no verdict: the connection broke"), "{told}");
    let record = json(&home.path().join("run/run.json"));
    assert_eq!(record["trials"][0]["validity"]["verdict"], "invalid");
    // A peer other than an ndt7 server leaves no run directory.
    let (address, fingerprint) = server(Manner::Forbids);
    let (host, trust) = (format!("ndt7://{address}"), fingerprint.to_string());
    let output = run(home.path(), &["measure", &host, "--trust", &trust, "--out", "none"]);
    assert_eq!(output.status.code(), Some(1), "{}", words(&output.stderr));
    assert!(!home.path().join("none").exists());
}

#[test]
fn a_responsiveness_test_leaves_a_run_too() {
    let home = tempfile::tempdir().unwrap();
    let serve = ["serve", "--bind", "127.0.0.1", "--port", "0", "--compat", "nq:0"];
    let mut child = underload(home.path(), &serve)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let running = Running(child);
    let mut lines = BufReader::new(err).lines().map_while(Result::ok);
    let at =
        lines.find_map(|line| line.strip_prefix("responsiveness clients at ").map(str::to_owned));
    let mut listening = String::new();
    BufReader::new(out).read_line(&mut listening).unwrap();
    let trust = listening.split_whitespace().last().unwrap();
    let host = format!("https://{}", at.unwrap());
    // The test does not read the program's output from here on; the program must not block on it.
    let reader = std::thread::spawn(move || lines.for_each(drop));
    let output = run(
        home.path(),
        &["measure", &host, "--trust", trust, "--down", "--duration", "5s", "--out", "run"],
    );
    let (told, said) = (words(&output.stdout), words(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        told.contains("Grade ") && told.contains(" handshakes of fresh connections; not known: ")
    );
    assert!(told.contains("handshakes of fresh connections"), "{told}");
    assert!(told.contains("RPM by draft-09") && told.contains("from HTTP exchanges"), "{told}");
    let record = json(&home.path().join("run/run.json"));
    assert_eq!(record["scenario"]["name"], "measure/responsiveness");
    assert_eq!(record["complete"], true);
    let text = record["scenario"]["text"].as_str().unwrap();
    assert!(!text.contains("--preset"), "{text}");
    drop(running);
    reader.join().unwrap();
}

/// A command that M-Lab's rules forbid is refused without a request to a server.
#[test]
fn m_labs_rules_for_repeated_tests_are_respected() {
    let home = tempfile::tempdir().unwrap();
    let output = run(home.path(), &["measure", "ndt7", "--every", "30min", "--accept-terms"]);
    let said = words(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("six hours on average") && said.contains("at least 6 h"), "{said}");
    let output = run(home.path(), &["measure", "ndt7", "--every", "6h"]);
    let said = words(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("the terms are not accepted yet"), "{said}");

    let data = home.path().join("underload");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("mlab-terms-accepted"), "accepted\n").unwrap();
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    std::fs::write(data.join("mlab-last-test"), now).unwrap();
    let mut child = underload(home.path(), &["measure", "ndt7", "--every", "6h", "--out", "line"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let id = child.id().to_string();
    let running = Running(child);
    let next = lines.into_iter().find_map(|line| line.strip_prefix("next in ").map(str::to_owned));
    let seconds: f64 = next.unwrap().trim_end_matches(" s").parse().unwrap();
    assert!((1_000.0..=2_160.0).contains(&seconds), "{seconds}");
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let mut running = running;
    assert_eq!(running.0.wait().unwrap().code(), Some(130));
}
