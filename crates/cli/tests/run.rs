//! `underload run`, `scenarios` and `report` as a user runs them: their output, their files and
//! their exit status. Some tests send traffic, between namespaces of their own.

#![expect(clippy::print_stderr, reason = "tests print why they were skipped")]

mod browsers;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use underload_record::schema::{Direction, LatencyMeasure, Phase, RunRecord, World};
use underload_store::RunDir;

/// A run that has not ended after this time counts as hung.
const PATIENCE: Duration = Duration::from_mins(1);

/// A live trial of about two seconds, with a command beside the load.
const TINY: &str = r#"
title = "A tiny trial"
[path]
up = "20mbit"
up_queue = "fifo:limit=64KiB"
rtt = "10ms"
[phases]
idle = "400ms"
ramp = "500ms"
load = "800ms"
drain = "100ms"
[[flow]]
name = "bulk"
kind = "tcp"
congestion_control = "reno"
[[flow]]
kind = "probe"
interval = "10ms"
"#;

fn underload(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underload"));
    command.args(arguments).current_dir(folder).output().expect("the program starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A home line without variants.
const HOME: &str = r#"
repeats = 5
[path]
up = "10mbit"
up_queue = "fifo:limit=256KiB"
down = "40mbit"
down_queue = "fifo:limit=512KiB"
rtt = "20ms"
[phases]
ramp = "3s"
load = "6s"
[[flow]]
name = "backup"
kind = "tcp"
direction = "up"
congestion_control = "cubic"
start_jitter = "1s"
[[flow]]
kind = "probe"
interval = "10ms"
"#;

/// Returns the sentences of a run after its table.
fn said(text: &str) -> String {
    let folder = folder();
    std::fs::write(folder.path().join("my.toml"), text).expect("a file");
    let output = underload(&["run", "my.toml", "--world", "sim", "--out", "run"], folder.path());
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

#[test]
fn the_most_ordinary_questions_get_an_answer() {
    let sqm = "[[variant]]\nname = \"sqm\"\npath.up_queue = \"cake\"\npath.down_queue = \"cake\"\n";
    let today = "[[variant]]\nname = \"today\"\n";
    let answer = "With sqm (both queues: cake instead of fifo) the latency under load is ";
    for (variants, headline) in
        [([today, sqm], ""), ([sqm, today], "[headline]\nbaseline = \"today\"\n")]
    {
        let said = said(&format!("{HOME}{}{headline}", variants.concat()));
        assert!(said.contains(answer) && said.contains(" ms with today: "), "{said}");
        assert!(said.contains(" times lower") && said.contains("is within the range"), "{said}");
    }
    let mesh = HOME.replace(
        "up = \"10mbit\"\nup_queue = \"fifo:limit=256KiB\"\ndown = \"40mbit\"\n\
         down_queue = \"fifo:limit=512KiB\"\nrtt = \"20ms\"\n",
        "rtt = \"20ms\"\n[[path.hop]]\nname = \"mesh\"\nup = \"10mbit\"\ndown = \"40mbit\"\n\
         up_queue = \"fifo:limit=256KiB\"\ndown_queue = \"fifo:limit=512KiB\"\n",
    );
    let said = said(&format!("{mesh}{today}{}", sqm.replace("path.", "path.hop.mesh.")));
    assert!(said.contains("With sqm (both queues at mesh: cake instead of fifo) the"), "{said}");
}

#[test]
fn a_video_call_beside_an_upload_suffers_where_the_upload_goes() {
    let call = "[[flow]]\nname = \"call\"\nkind = \"interactive-video\"\n";
    let variants =
        "[[variant]]\nname = \"today\"\n[[variant]]\nname = \"sqm\"\npath.up_queue = \"cake\"\n";
    let said = said(&format!("{HOME}{call}{variants}"));
    let line = |flow: &str| {
        let start = format!("{flow}: camera-to-screen delay");
        said.lines().find(|line| line.trim_start().starts_with(&start)).unwrap_or_default()
    };
    assert!(line("call-up").contains(" ms) with today, "), "{said}");
    assert!(line("call-down").contains("camera-to-screen delay"), "{said}");
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder for the test")
}

/// Returns whether this machine permits live runs; prints a skip if it does not.
fn is_skipped(test: &str, output: &Output) -> bool {
    let text = stderr(output);
    let refused = ["refused", "cannot be created", "not permitted", "/dev/net/tun"];
    let is_skipped =
        output.status.code() != Some(0) && refused.iter().any(|word| text.contains(word));
    if is_skipped {
        eprintln!("SKIPPED {test}: this machine forbids namespaces or TUN devices: {text}");
    }
    is_skipped
}

#[test]
fn built_in_scenarios_are_listed_and_printed_as_they_are() {
    let folder = folder();
    let listed = underload(&["scenarios"], folder.path());
    assert!(listed.status.success(), "{}", stderr(&listed));
    for name in [
        "comcast/upstream",
        "buffer-control/figure-04-ping-line",
        "bode/step",
        "bode/trace",
        "kernel/20mbit",
    ] {
        assert!(stdout(&listed).contains(name), "{name} is not in\n{}", stdout(&listed));
        let printed = underload(&["scenarios", name], folder.path());
        let path = format!("{}/../../scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let file = std::fs::read_to_string(path).expect("the file is in the repository");
        assert_eq!(stdout(&printed), file);
    }
    let json = underload(&["scenarios", "--json"], folder.path());
    let rows: serde_json::Value = serde_json::from_slice(&json.stdout).expect("one JSON document");
    assert!(rows.as_array().is_some_and(|rows| rows.len() >= 5));
}

#[test]
fn published_numbers_are_listed_beside_ours() {
    let folder = folder();
    let arguments = ["figures", "kernel", "--short"];
    let table = underload(&arguments, folder.path());
    assert!(table.status.success(), "{}", stderr(&table));
    let text = stdout(&table);
    assert!(text.contains("\nkernel/20mbit: Linux"), "{text}");
    assert!(text.contains("load.rtt.p50 of codel/1-flow"), "{text}");
    assert!(text.contains("In all 11 numbers: "), "{text}");
    assert!(!text.contains("not measured"), "{text}");
    let left = std::fs::read_dir(folder.path()).expect("the folder").count();
    assert_eq!(left, 0, "it leaves nothing behind");
}

#[test]
fn bad_input_ends_with_status_2_and_names_its_place() {
    let folder = folder();
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("writing the case");
    };
    write("misspelt.toml", &TINY.replace("rtt", "rrt"));
    write("trace.toml", &TINY.replace("20mbit", "trace:missing.trace"));
    write("control.toml", &TINY.replace("reno", "no_such_control"));
    let sweep = "[[sweep]]\nkey = \"path.down\"\nvalues = [";
    let values: Vec<String> = (1..=11).map(|rate| format!("\"{rate}mbit\"")).collect();
    let text = TINY.replace("rtt =", "down_queue = \"fifo\"\nrtt =");
    write("large.toml", &format!("{text}{sweep}{}]", values.join(",")));
    write("nothing.toml", &format!("{text}{sweep}]"));
    let large: &[&str] = &["run", "large.toml", "--repeat", "100000"];
    write("empty.trace", "");
    write("silent.toml", &TINY.replace("20mbit", "trace:empty.trace"));
    write("idle.toml", &TINY[..TINY.find("[[flow]]").expect("it has flows")]);
    write("far.toml", &TINY.replace("kind = \"tcp\"", "kind = \"tcp\"\nextra_rtt = \"30ms\""));
    let cases: [(&[&str], &str); 13] = [
        (&["figures", "no/such"], "no scenario with published numbers begins with no/such"),
        (large, "1100000 trials are more than 1000000: confirm with --yes"),
        (&["run", "nothing.toml"], "sweep[0]: has no values"),
        (
            &["run", "far.toml", "--world", "live"],
            "far.toml: flow.bulk.extra_rtt: only the simulator",
        ),
        (&["run", "silent.toml"], "silent.toml:4:6: path.up: "),
        (&["run", "idle.toml"], "flow: is missing; expected [[flow]] tables"),
        (&["run", "no/such"], "no/such: neither a scenario file"),
        (&["run", "misspelt.toml"], "misspelt.toml:6:1: path.rrt: unknown key; expected up, down"),
        (&["run", "trace.toml"], "missing.trace"),
        (&["run", "control.toml", "--world", "sim"], "no_such_control"),
        (&["run", "comcast/upstream", "--variant", "pie"], "no variant is named `pie`; expected"),
        (&["run", "comcast/upstream", "--set", "path.up=1MBps"], "--set path.up"),
        (&["report", "nowhere"], "nowhere"),
    ];
    assert_refused(&cases, folder.path());
}

#[test]
fn scenarios_that_a_world_cannot_run_are_refused_before_the_run() {
    let cases: [(&[&str], &str); 5] = [
        (
            &["run", "page/browser", "--world", "sim"],
            "page/browser: variant fifo/new-connections: flow 'page': kind 'browser' is not",
        ),
        (
            &["run", "page/browser", "--world", "kernel-tcp"],
            "page/browser: flow.page.kind: a browser runs in real time only; expected --world live",
        ),
        (
            &["run", "home/wifi-and-modem", "--world", "live"],
            "home/wifi-and-modem: path.hop.wifi: only the simulator",
        ),
        (
            &["run", "bode/users", "--world", "live"],
            "bode/users: flow.first.host: only the simulator",
        ),
        (
            &["link", "--down", "radio:1=20mbit", "--", "true"],
            "radio:1=20mbit: only `underload run` has users of one radio",
        ),
    ];
    assert_refused(&cases, folder().path());
}

fn assert_refused(cases: &[(&[&str], &str)], folder: &Path) {
    for (arguments, expected) in cases {
        let output = underload(arguments, folder);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}: {}", stdout(&output));
    }
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let folder = folder();
    std::fs::write(folder.path().join("tiny.toml"), TINY).expect("writing the scenario");
    std::fs::write(folder.path().join("file"), "").expect("writing a file");
    let output = underload(&["run", "tiny.toml", "--out", "file/run"], folder.path());
    if is_skipped("a_directory_that_cannot_be_made_is_named", &output) {
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("file/run"), "{}", stderr(&output));
}

#[test]
fn a_live_trial_leaves_a_whole_record() {
    let folder = folder();
    std::fs::write(folder.path().join("tiny.toml"), TINY).expect("writing the scenario");
    let arguments = ["run", "tiny.toml", "--world", "live", "--out", "out"];
    let output = underload(&arguments, folder.path());
    if is_skipped("a_live_trial_leaves_a_whole_record", &output) {
        return;
    }
    // On a busy machine the trial is invalid, and a run without a valid trial ends with 1.
    let data = RunDir::read(folder.path().join("out")).expect("the record can be read");
    let [trial] = data.record.trials.as_slice() else { panic!("{}", stderr(&output)) };
    let expected = i32::from(!trial.validity.is_valid());
    assert_eq!(output.status.code(), Some(expected), "{}", stderr(&output));
    assert_eq!((data.record.world, data.record.complete), (World::Live, true));
    let names: Vec<&str> = trial.flows.iter().map(|flow| flow.name.as_str()).collect();
    assert_eq!(names, ["probe", "bulk"]);
    assert_eq!(trial.flows[1].congestion_control.as_deref(), Some("reno"));
    assert!(data.samples.iter().any(|sample| sample.phase == Phase::Load));
    let up = trial.bottlenecks.iter().find(|queue| queue.window.phase == Phase::Load);
    let up = up.expect("the queue was watched in the load phase");
    assert_eq!((up.direction, up.queue.as_str()), (Direction::Up, "fifo:limit=64KiB"));
    assert!(up.sent.packets > 100, "{up:?}");
    let html = std::fs::read_to_string(folder.path().join("out/report.html")).expect("a report");
    assert!(html.contains("A tiny trial"));
    let again = underload(&arguments, folder.path());
    assert_eq!(again.status.code(), Some(2), "{}", stderr(&again));
    assert!(stderr(&again).contains("has a run already"), "{}", stderr(&again));
    let report = underload(&["report", "out", "out", "--out", "both"], folder.path());
    assert!(report.status.success(), "{}", stderr(&report));
    assert!(folder.path().join("both/report.html").exists());
}

#[test]
fn an_interrupted_run_keeps_its_completed_trials() {
    let folder = folder();
    std::fs::write(folder.path().join("tiny.toml"), TINY).expect("writing the scenario");
    let mut child = Command::new(env!("CARGO_BIN_EXE_underload"))
        .args(["run", "tiny.toml", "--world", "live"])
        .args(["--repeat", "50", "--out", "out"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let journal = folder.path().join("out/trials.jsonl");
    let start = Instant::now();
    let has_a_trial = || std::fs::metadata(&journal).is_ok_and(|file| file.len() > 0);
    while !has_a_trial() && start.elapsed() < PATIENCE {
        if child.try_wait().expect("its state").is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let pid = child.id().to_string();
    let _ = Command::new("kill").args(["-INT", &pid]).status();
    let output = child.wait_with_output().expect("it ends");
    if is_skipped("an_interrupted_run_keeps_its_completed_trials", &output) {
        return;
    }
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("interrupted after"), "{}", stderr(&output));
    let data = RunDir::read(folder.path().join("out")).expect("the record can be read");
    assert!(!data.record.complete && !data.record.trials.is_empty());
    assert!(folder.path().join("out/report.html").exists());
}

/// Returns `run.json` without the fields that depend on the machine and the time.
fn without_provenance(run: &Path) -> String {
    let text = std::fs::read_to_string(run.join("run.json")).expect("a record");
    let mut record: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let host = record.as_object_mut().and_then(|record| record.remove("host"));
    assert!(host.is_some_and(|host| host["clock"] == "virtual"));
    record.to_string()
}

#[test]
fn the_simulated_world_gives_the_same_bytes_again_on_any_number_of_threads() {
    let folder = folder();
    let scenario = TINY.replace("\"20mbit\"", "\"20mbit:loss=0.1%\"");
    std::fs::write(folder.path().join("tiny.toml"), scenario).expect("writing the scenario");
    let runs = [("first", "1"), ("second", "1"), ("third", "3")].map(|(out, threads)| {
        let arguments = ["run", "tiny.toml", "--world", "sim", "--out", out, "--repeat", "6"];
        let packets = ["--threads", threads, "--pcap", "client"];
        let output = underload(&[&arguments[..], &packets[..]].concat(), folder.path());
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stdout(&output).contains("fifo"), "{}", stdout(&output));
        folder.path().join(out)
    });
    let [first, others @ ..] = &runs;
    let bytes = |run: &Path, file: &str| std::fs::read(run.join(file)).expect("a file of the run");
    let capture = "captures/0000005-client.pcapng";
    assert_ne!(bytes(first, capture), bytes(first, "captures/0000004-client.pcapng"));
    for other in others {
        assert!(without_provenance(first) == without_provenance(other), "records differ");
        for file in ["samples.parquet", "series.parquet", capture] {
            assert!(bytes(first, file) == bytes(other, file), "{file} differs");
        }
    }
}

#[test]
fn an_interrupted_simulation_stops_in_the_middle_of_a_trial_and_keeps_the_others() {
    let folder = folder();
    // The second variant would take far longer than the test may.
    let variants = "[[variant]]\nname = \"short\"\npath.up_queue = \"pie\"\nphases.load = \"10ms\"\n\
                [[variant]]\nname = \"endless\"\npath.up = \"1gbit\"\nphases.load = \"3500s\"\n";
    let scenario = TINY.to_owned() + variants;
    std::fs::write(folder.path().join("tiny.toml"), scenario).expect("writing the scenario");
    let child = Command::new(env!("CARGO_BIN_EXE_underload"))
        .args(["run", "tiny.toml", "--world", "sim", "--threads", "2", "--out", "out"])
        .args(["--pcap", "up.drop"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let captures = folder.path().join("out/captures");
    let start = Instant::now();
    while !captures.join("0000001-up.drop.pcapng").exists() && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    // The short trial takes some milliseconds.
    std::thread::sleep(Duration::from_secs(1));
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("interrupted after 1 of 2"), "{}", stderr(&output));
    let record = RunDir::read(folder.path().join("out")).expect("the record can be read").record;
    assert_eq!(record.trials.len(), 1);
    assert!(captures.join("0000000-up.drop.pcapng").exists());
    assert!(!captures.join("0000001-up.drop.pcapng").exists(), "half a capture was left");
}

/// A study of lines that is small enough for a test, with more trials than the cache requires.
const COHORT: &str = r#"
title = "Lines"
repeats = 20
[cohort]
[[cohort.draw]]
name = "rtt"
uniform = { low = "5ms", high = "50ms" }
[path]
up = "20mbit"
rtt = "{rtt}"
[phases]
idle = "0s"
ramp = "300ms"
load = "500ms"
drain = "0s"
[[flow]]
name = "bulk"
kind = "tcp"
congestion_control = "cubic"
[[flow]]
kind = "probe"
interval = "10ms"
[[variant]]
name = "fifo"
path.up_queue = "fifo:limit=64KiB"
[[variant]]
name = "pie"
path.up_queue = "pie"
[[published]]
metric = "load.rtt.mean.within.20-45"
variant = "pie"
low = 0
unit = "%"
source = "arithmetic"
"#;

fn simulate(folder: &Path, out: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underload"));
    command.args(["run", "lines.toml", "--world", "sim", "--out", out]).args(more);
    command.env("XDG_CACHE_HOME", folder.join("cache")).current_dir(folder);
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

fn cache_entries(folder: &Path) -> Vec<std::path::PathBuf> {
    let groups = std::fs::read_dir(folder.join("cache/underload/trials")).expect("a cache");
    let files = groups
        .flat_map(|group| std::fs::read_dir(group.expect("a folder").path()).expect("its entries"));
    files.map(|file| file.expect("an entry").path()).collect()
}

/// Returns the share of a variant's trials whose mean round trip under load is 20 to 40 ms, percent.
fn share_between_20_and_45_ms(record: &RunRecord, variant: &str) -> f64 {
    let means: Vec<i64> = record
        .trials
        .iter()
        .filter(|trial| trial.variant == variant)
        .flat_map(|trial| &trial.latencies)
        .filter(|latency| latency.window.phase == Phase::Load)
        .filter(|latency| latency.measure == LatencyMeasure::RoundTrip)
        .filter_map(|latency| Some(latency.distribution?.mean_ns))
        .collect();
    let inside = means.iter().filter(|mean| (20_000_000..45_000_000).contains(*mean)).count();
    inside as f64 * 100.0 / means.len() as f64
}

#[test]
fn a_cohort_is_recorded_resumed_from_the_cache_and_never_believes_a_damaged_entry() {
    let folder = folder();
    std::fs::write(folder.path().join("lines.toml"), COHORT).expect("writing the scenario");
    let trials = |out: &str| {
        let mut record = RunDir::read(folder.path().join(out)).expect("the record").record;
        record.host = underload_record::schema::HostFacts::default();
        serde_json::to_string(&record.trials).expect("JSON") + &format!("{:?}", record.summaries)
    };
    // The run directory has the state of an interruption after 16 of the 20 repeats.
    let part = simulate(folder.path(), "part", &["--repeat", "16"]);
    assert!(!stderr(&part).contains("cache"), "{}", stderr(&part));
    let whole = simulate(folder.path(), "whole", &[]);
    assert!(stderr(&whole).contains("32 of 40 trials came from the cache"), "{}", stderr(&whole));
    let fresh = simulate(folder.path(), "fresh", &["--no-cache"]);
    assert!(!stderr(&fresh).contains("cache"), "{}", stderr(&fresh));
    assert!(trials("whole") == trials("fresh"), "the cache changed a trial");
    let entries = cache_entries(folder.path());
    assert_eq!(entries.len(), 40);
    let mut bytes = std::fs::read(&entries[0]).expect("an entry");
    *bytes.last_mut().expect("a byte") ^= 1;
    std::fs::write(&entries[0], bytes).expect("spoilt");
    let again = simulate(folder.path(), "again", &[]);
    assert!(stderr(&again).contains("damaged cache entry, computed again"), "{}", stderr(&again));
    assert!(stderr(&again).contains("39 of 40 trials came from"), "{}", stderr(&again));
    assert!(trials("again") == trials("fresh"), "a damaged entry was believed");
    std::fs::write(&entries[0], "spoilt").expect("spoilt");
    let quiet = stderr(&simulate(folder.path(), "quiet", &["--quiet"]));
    assert!(quiet.starts_with("damaged cache entry, computed again"), "a warning: {quiet}");
    assert_eq!(quiet.lines().count(), 1, "{quiet}");
    let record = RunDir::read(folder.path().join("whole")).expect("the record").record;
    let of = |index: usize| record.trials[index].conditions["rtt"].clone();
    assert_eq!(of(0), of(1), "both variants of a repeat have the same line");
    assert_ne!(of(0), of(2));
    let share = share_between_20_and_45_ms(&record, "pie");
    assert!((1.0..=99.0).contains(&share), "{share} % says nothing about the bounds");
    assert_eq!(record.expectations[0].measured, Some(share));
    let page = std::fs::read_to_string(folder.path().join("whole/report.html")).expect("a report");
    for part in ["id=\"compared\"", "range of pairs", "bins of ", "share of trials"] {
        assert!(page.contains(part), "the report does not say `{part}`");
    }
}

#[test]
fn a_killed_sweep_resumes_and_repeats_nothing() {
    let folder = folder();
    let longer = COHORT.replace("load = \"500ms\"", "load = \"4s\"").replace("= 20\n", "= 40\n");
    let sweep = "\n[[sweep]]\nkey = \"path.up\"\nvalues = [\"20mbit\", \"30mbit\"]\n";
    let text = longer[..longer.find("[[published]]").expect("it has some")].to_owned() + sweep;
    std::fs::write(folder.path().join("lines.toml"), text).expect("writing the scenario");
    let mut child = Command::new(env!("CARGO_BIN_EXE_underload"))
        .args(["run", "lines.toml", "--world", "sim", "--out", "killed"])
        .env("XDG_CACHE_HOME", folder.path().join("cache"))
        .current_dir(folder.path())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let cached = || {
        let groups = std::fs::read_dir(folder.path().join("cache/underload/trials"));
        groups.map_or(0, Iterator::count)
    };
    let start = Instant::now();
    while cached() < 10 && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("it is killed");
    child.wait().expect("it ended");
    // The entry that was being written at the kill has another name and does not count.
    let is_entry = |path: &&std::path::PathBuf| path.extension().is_some_and(|it| it == "trial");
    let kept = cache_entries(folder.path()).iter().filter(is_entry).count();
    assert!((1..160).contains(&kept), "the premise: killed in the middle, {kept} trials kept");
    let killed = RunDir::read(folder.path().join("killed")).expect("what it finished").record;
    assert!(!killed.complete && killed.trials.len() <= kept);
    let resumed = simulate(folder.path(), "resumed", &[]);
    let expected = format!("{kept} of 160 trials came from the cache");
    assert!(stderr(&resumed).contains(&expected), "{kept}: {}", stderr(&resumed));
    let fresh = simulate(folder.path(), "fresh", &["--no-cache"]);
    assert!(!stderr(&fresh).contains("cache"), "{}", stderr(&fresh));
    let [resumed, fresh] = ["resumed", "fresh"].map(|run| folder.path().join(run));
    assert!(without_provenance(&resumed) == without_provenance(&fresh), "records differ");
}

/// Trials that are not in `run.json` are included in every output.
#[test]
fn a_run_of_many_trials_has_a_small_record_and_is_read_by_every_command() {
    let folder = folder();
    let text = "repeats = 1001\n[path]\nup = \"1mbit\"\nrtt = \"4ms\"\n\
                [phases]\nidle = \"0s\"\nramp = \"0s\"\nload = \"60ms\"\ndrain = \"0s\"\n\
                [[flow]]\nkind = \"probe\"\ninterval = \"20ms\"\n\
                [[variant]]\nname = \"fifo\"\npath.up_queue = \"fifo:limit=64KiB\"\n\
                [[variant]]\nname = \"codel\"\npath.up_queue = \"codel:profile=linux\"\n";
    std::fs::write(folder.path().join("many.toml"), text).expect("a file");
    let done = |arguments: &[&str]| {
        let output = underload(arguments, folder.path());
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        output
    };
    done(&["run", "many.toml", "--world", "sim", "--no-cache", "--out", "out"]);
    let record = std::fs::metadata(folder.path().join("out/run.json")).expect("a record");
    assert!(record.len() < 100_000, "{} bytes", record.len());
    assert_eq!(RunDir::read_record(folder.path().join("out")).expect("a run").trials.len(), 2_002);
    assert!(stdout(&done(&["report", "out"])).contains("1001 trials"));
    let told: serde_json::Value =
        serde_json::from_slice(&done(&["report", "out", "--json"]).stdout).expect("JSON");
    assert_eq!(told[0]["trials"].as_array().map(Vec::len), Some(2_002));
    // There are no files per trial, because the run stored no samples or series.
    let exported = done(&["export", "out", "--format", "csv", "--out", "tables"]);
    assert!(stderr(&exported).contains("stored no samples or series"), "{}", stderr(&exported));
    let files: Vec<_> =
        std::fs::read_dir(folder.path().join("tables")).expect("a folder").collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let table = files[0].as_ref().expect("a file").path();
    assert_eq!(std::fs::read_to_string(table).expect("a table").lines().count(), 2_003);
}
