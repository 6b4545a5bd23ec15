//! Exit statuses, and errors that are reported before the program waits for anything.

#![expect(clippy::print_stderr, reason = "tests print why they were skipped")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use underload_store::RunDir;

fn underload(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underload"));
    command.env("XDG_DATA_HOME", folder).env("XDG_CACHE_HOME", folder);
    command.args(arguments).current_dir(folder).output().expect("the program starts")
}

/// Exit status, standard output and standard error.
fn outcome(arguments: &[&str], folder: &Path) -> (Option<i32>, String, String) {
    let output = underload(arguments, folder);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder for the test")
}

/// Runs a scenario with two queues, or only the first of them, in front of a line of this rate.
fn run(folder: &Path, out: &str, rate: &str, more: &[&str]) {
    let scenario = format!(
        r#"
[path]
up = "{rate}"
rtt = "10ms"
[phases]
idle = "500ms"
ramp = "1s"
load = "6s"
[[flow]]
kind = "tcp"
name = "upload"
congestion_control = "reno"
[[flow]]
kind = "probe"
interval = "10ms"
[[variant]]
name = "plain"
path.up_queue = "fifo:limit=64KiB"
[[variant]]
name = "managed"
path.up_queue = "docsis-pie"
"#
    );
    std::fs::write(folder.join("x.toml"), scenario).unwrap();
    let arguments = [&["run", "x.toml", "--world", "sim", "--out", out], more].concat();
    let (status, _, errors) = outcome(&arguments, folder);
    assert_eq!(status, Some(0), "{errors}");
}

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

#[test]
fn a_program_stopped_by_a_signal_names_it_and_stores_finished_work() {
    let folder = folder();
    run(folder.path(), "whole", "10mbit", &[]);
    for (signal, expected) in [("-INT", 130), ("-TERM", 143)] {
        let out = folder.path().join(signal);
        let repeated = ["run", "x.toml", "--world", "sim", "--repeat", "100000"];
        let child = Command::new(env!("CARGO_BIN_EXE_underload"))
            .args(repeated)
            .args(["--threads", "1", "--no-cache", "--out"])
            .arg(&out)
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let journal = out.join("trials.jsonl");
        let start = Instant::now();
        while std::fs::metadata(&journal).map_or(0, |file| file.len()) == 0 {
            assert!(start.elapsed() < PATIENCE, "no trial was finished");
            std::thread::sleep(Duration::from_millis(20));
        }
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "the premise: {signal} was sent");
        let output = child.wait_with_output().expect("it ends");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(expected), "{errors}");
        assert!(errors.contains("interrupted after"), "{errors}");
        let record = RunDir::read_record(&out).expect("what it kept");
        assert!(!record.complete && !record.trials.is_empty(), "{errors}");
    }
}

#[test]
fn both_tables_are_exported_as_csv() {
    let folder = folder();
    run(folder.path(), "run", "10mbit", &[]);
    let arguments = ["export", "run", "--format", "csv", "--variant", "managed", "--out", "tables"];
    let (status, _, errors) = outcome(&arguments, folder.path());
    assert_eq!(status, Some(0), "{errors}");
    for (name, columns) in
        [("samples", "trial,variant,flow,sequence"), ("series", "trial,variant,name")]
    {
        let path = folder.path().join(format!("tables/x-managed-0-{name}.csv"));
        let text = std::fs::read_to_string(&path).expect(&errors);
        assert!(text.starts_with(columns), "{text:.80}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("1,managed,")), "{name}");
        assert!(text.lines().count() > 100, "{name}");
    }
}

#[test]
fn invalid_requests_are_refused_before_the_first_measurement() {
    let folder = folder();
    let measure = |more: &[&str]| {
        // No server listens at port 1, so an error for another reason was found before connecting.
        outcome(&[&["measure", "127.0.0.1:1"], more].concat(), folder.path())
    };
    let (status, _, errors) = measure(&["--every", "10s"]);
    assert_eq!(status, Some(2), "{errors}");
    assert!(errors.contains("at least 1min"), "{errors}");
    let (status, _, errors) = measure(&["--congestion-control", "no-such-thing"]);
    assert_eq!(status, Some(2), "{errors}");
    assert!(errors.contains("--congestion-control") && !errors.contains("refused"), "{errors}");
    let (status, _, errors) = outcome(&["measure", "https://"], folder.path());
    assert_eq!(status, Some(2), "{errors}");
    let closing = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = closing.local_addr().expect("an address").to_string();
    let closed = std::thread::spawn(move || {
        let (mut stream, _) = closing.accept()?;
        stream.shutdown(std::net::Shutdown::Write)?;
        std::io::copy(&mut stream, &mut std::io::sink())
    });
    let (status, _, errors) = outcome(&["measure", &address], folder.path());
    assert_eq!(status, Some(1), "{errors}");
    assert!(errors.contains("the other side closed the connection"), "{errors}");
    closed.join().expect("the thread").expect("the server closed first");
    let foreign = ["measure", "https://127.0.0.1:1", "--duration", "0s"];
    let (status, _, errors) = outcome(&foreign, folder.path());
    assert_eq!(status, Some(2), "{errors}");
    assert!(errors.contains("--duration: from 100ms to 1h"), "{errors}");
    let (status, _, errors) = outcome(&["path", "127.0.0.1:1"], folder.path());
    assert_eq!((status, errors.matches("no answer from").count()), (Some(1), 1), "{errors}");
    let (status, _, errors) = measure(&["--every", "1min", "--times", "1"]);
    assert_eq!(status, Some(1), "{errors}");
    assert!(errors.contains("of 1 measurements none succeeded"), "{errors}");
}

#[test]
fn a_server_without_its_keys_is_bad_input() {
    let folder = folder();
    let (status, _, errors) =
        outcome(&["serve", "--port", "0", "--token-keys", "none"], folder.path());
    assert_eq!(status, Some(2), "{errors}");
    assert!(errors.contains("token rotate --keys"), "{errors}");
}

/// Returns status, output and errors of `underload link`; `None` if this machine cannot emulate
/// links.
fn link(test: &str, arguments: &[&str]) -> Option<(Option<i32>, String, String)> {
    let folder = folder();
    let (status, output, errors) = outcome(&[&["link"], arguments].concat(), folder.path());
    let forbidden = ["refused", "cannot be created", "not permitted", "/dev/net/tun"];
    if status == Some(1) && forbidden.iter().any(|word| errors.contains(word)) {
        eprintln!("SKIPPED {test}: this machine forbids namespaces or TUN devices: {errors}");
        return None;
    }
    Some((status, output, errors))
}

#[test]
fn a_link_prints_only_its_result_to_a_script() {
    let name = "a_link_prints_only_its_result_to_a_script";
    let script = "echo hello; ping -q -c 2 -i 0.2 $UNDERLOAD_BASE; sleep 0.3; exit 7";
    let arguments = ["--up", "10mbit", "--json", "--", "sh", "-c", script];
    let Some((status, output, errors)) = link(name, &arguments) else { return };
    assert_eq!(status, Some(7), "{errors}");
    assert!(errors.contains("hello"), "the command's own output: {errors}");
    let told: serde_json::Value = serde_json::from_str(&output).expect(&output);
    assert_eq!((&told["exit_status"], &told["signal"]), (&7.into(), &serde_json::Value::Null));
    assert_eq!(told["command"], serde_json::json!(["sh", "-c", script]));
    assert!(told["duration_s"].as_f64().is_some_and(|seconds| seconds >= 0.3), "{output}");
    for (way, direction) in ["up", "down"].into_iter().enumerate() {
        let link = &told["links"][way];
        assert_eq!(
            (&link["direction"], &link["window"]["phase"]),
            (&direction.into(), &"whole".into())
        );
        // The folder of `ping`; without root no address can be reached.
        let sent = link["sent"]["packets"].as_u64().expect("a number");
        assert!(sent >= 2 || !errors.contains(", 0% packet loss"), "{output}\n{errors}");
    }
    // A command that a signal kills.
    let arguments = ["--json", "--", "sh", "-c", "kill -9 $$"];
    let Some((status, output, errors)) = link(name, &arguments) else { return };
    assert_eq!(status, Some(137), "{errors}");
    let told: serde_json::Value = serde_json::from_str(&output).expect(&output);
    assert_eq!((&told["exit_status"], &told["signal"]), (&137.into(), &9.into()));
    let nothing = ["--json", "--", "no-such-command-at-all"];
    let Some((status, output, _)) = link(name, &nothing) else { return };
    assert_eq!((status, output.as_str()), (Some(127), ""));
}

#[test]
fn a_command_that_does_not_exist_ends_a_link_as_it_ends_a_shell() {
    let name = "a_command_that_does_not_exist_ends_a_link_as_it_ends_a_shell";
    let Some((status, _, errors)) = link(name, &["--", "no-such-command-at-all"]) else { return };
    assert_eq!(status, Some(127), "{errors}");
    assert!(errors.contains("no-such-command-at-all"), "{errors}");
}

#[test]
fn a_closed_output_pipe_does_not_fail_the_command() {
    let folder = folder();
    run(folder.path(), "run", "10mbit", &[]);
    let run = ["run", "x.toml", "--world", "sim", "--json", "--out", "again"];
    for arguments in [
        &["queues", "--json"][..],
        &["scenarios", "--json"],
        &["report", "run", "--json", "--out", "page"],
        &run,
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_underload"))
            .args(arguments)
            .current_dir(folder.path())
            .env("XDG_CACHE_HOME", folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut first = [0; 1];
        let mut out = child.stdout.take().expect("a pipe");
        out.read_exact(&mut first).expect("at least one byte");
        // The program has more output than a pipe holds, or has already written all of it.
        drop(out);
        let output = child.wait_with_output().expect("it ends");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {errors}");
        assert!(!errors.contains("error:"), "{arguments:?}: {errors}");
    }
}

#[test]
fn text_of_imported_files_cannot_control_the_terminal() {
    let folder = folder();
    let text = r#"{"metadata":{"NAME":"a","TITLE":"\u001b]0;own\u0007\u001b[2J","LENGTH":1,
        "TOTAL_LENGTH":1},"x_values":[0.0],"results":{"Ping (ms) ICMP":[1.0]}}"#;
    std::fs::write(folder.path().join("x.flent"), text).unwrap();
    for arguments in [&["report", "x.flent"][..], &["report", "x.flent", "--json"]] {
        let (status, out, errors) = outcome(arguments, folder.path());
        assert_eq!(status, Some(0), "{errors}");
        let obeyed = |c: char| c.is_control() && c != '\n';
        assert!(!out.contains(obeyed) && !errors.contains(obeyed), "{out:?} {errors:?}");
    }
}

#[test]
fn no_key_code_or_token_leaves_the_machine_without_tls() {
    let folder = folder();
    let token = folder.path().join("token");
    underload_disk::write_new(&token, b"secret\n", underload_disk::Access::Owner).unwrap();
    for url in ["http://localhost@192.0.2.2:1", "http://127.evil.example", "http://192.0.2.2"] {
        for command in [
            format!("fleet plan stop x --token token --orchestrator {url}"),
            format!("fleet agent --state agent --enrol CODE --orchestrator {url}"),
            format!("serve --port 0 --enrol CODE --name a --public 192.0.2.1:1 --fleet {url}"),
        ] {
            let arguments: Vec<&str> = command.split(' ').collect();
            let (status, _, errors) = outcome(&arguments, folder.path());
            assert!(status == Some(2) && errors.contains(url), "{command}: {errors}");
            assert!(errors.contains("expected https://HOST[:PORT]"), "{command}: {errors}");
        }
    }
    assert!(!folder.path().join("agent").exists(), "not even begun");
}

#[test]
fn a_plan_beyond_its_budget_fails_and_a_wrong_one_is_bad_input() {
    let folder = folder();
    let check = |text: &str| {
        std::fs::write(folder.path().join("plan.toml"), text).unwrap();
        outcome(&["fleet", "plan", "check", "plan.toml"], folder.path())
    };
    let (status, plan, _) = outcome(&["fleet", "plan", "show", "comcast-study"], folder.path());
    assert_eq!(status, Some(0));
    let (status, load, _) = check(&plan);
    assert!(status == Some(0) && load.contains("1.43 GB in 30 days"), "{load}");
    let (status, load, errors) = check(&plan.replace("\"2GB\"", "\"1GB\""));
    assert!(status == Some(1) && load.contains("1.43 GB"), "{load}");
    assert!(errors.contains("line_per_month (GB) is 1.43, at most 1.00 is allowed"), "{errors}");
    let (status, load, errors) = check(&format!("until = \"2020-01-01\"\n{plan}"));
    assert!(status == Some(1) && load.contains("1.43 GB"), "{load}");
    assert!(errors.contains("the plan's last day is over"), "{errors}");
    let (status, _, errors) = check(&plan.replace("35mbit", "35MBps"));
    assert_eq!(status, Some(2));
    let line = plan.lines().position(|line| line.contains("35mbit")).unwrap() + 1;
    let told = format!("plan.toml: line {line}: `35MBps`: expected a rate");
    assert!(errors.contains(&told), "{errors}");
    for wrong in ["nothing", "nothing.toml", "/dev/zero", "."] {
        let (status, out, errors) = outcome(&["fleet", "plan", "check", wrong], folder.path());
        assert!(status == Some(2) && out.is_empty() && errors.contains(wrong), "{errors}");
    }
}

#[test]
fn a_simulated_day_of_a_fleet_accounts_for_every_run() {
    let folder = folder();
    let simulate = |more: &[&str]| {
        let start = ["fleet", "simulate", "--plan", "low-latency-trial", "--json"];
        let (status, json, errors) = outcome(&[&start, more].concat(), folder.path());
        assert_eq!(status, Some(0), "{errors}");
        serde_json::from_str::<serde_json::Value>(&json).expect("JSON")
    };
    let day = simulate(&["--devices", "1k", "--servers", "0", "--vanishing", "2"]);
    for run in [&day["admitted"], &day["without_segment_limit"]] {
        let sum = |map: &serde_json::Value| {
            map.as_object().unwrap().values().filter_map(serde_json::Value::as_u64).sum::<u64>()
        };
        let number = |key: &str| run[key].as_u64().unwrap_or_else(|| panic!("{key} of {run}"));
        let outcomes = number("done") + number("vanished") + sum(&run["given_up"]);
        assert_eq!(outcomes, number("scheduled"), "{run}");
        assert!(number("scheduled") > 5_500 && number("leases_left") == 0, "{run}");
    }
    assert_eq!(simulate(&["--devices", "1k"]), simulate(&["--devices", "1k"]), "the same seed");
    for wrong in [["--devices", "0"], ["--days", "0"], ["--days", "367"], ["--vanishing", "nan"]] {
        let arguments = [&["fleet", "simulate", "--plan", "comcast-study"], &wrong[..]].concat();
        assert_eq!(outcome(&arguments, folder.path()).0, Some(2), "{wrong:?}");
    }
}

#[test]
fn a_row_per_trial_is_in_the_run_and_in_its_exports() {
    let folder = folder();
    run(folder.path(), "run", "10mbit", &[]);
    assert!(folder.path().join("run/trials.parquet").is_file());
    let export = |format, more: &[&str]| {
        let arguments = [&["export", "run", "--format", format, "--out", format], more].concat();
        let (status, out, errors) = outcome(&arguments, folder.path());
        assert_eq!(status, Some(0), "{errors}");
        out
    };
    export("csv", &[]);
    let rows = std::fs::read_to_string(folder.path().join("csv/x-trials.csv")).unwrap();
    assert_eq!(rows.lines().count(), 3, "{rows}");
    assert!(rows.starts_with("trial,variant,repeat,seed,valid,"), "{rows}");
    assert!(rows.contains("\n0,plain,0,") && rows.contains("\n1,managed,0,"), "{rows}");
    std::fs::remove_dir_all(folder.path().join("csv")).unwrap();
    let files = export("csv", &["--json", "--variant", "managed"]);
    let files: serde_json::Value = serde_json::from_str(&files).expect("one document");
    assert_eq!(files.as_array().map(Vec::len), Some(3), "{files}");
    assert_eq!((&files[0]["trial"], &files[1]["trial"]), (&serde_json::Value::Null, &1.into()));
    std::fs::write(folder.path().join("run/samples.parquet"), "damaged").expect("a file");
    for format in ["flent", "csv"] {
        let arguments = ["export", "run", "--format", format, "--out", "none"];
        assert_eq!(outcome(&arguments, folder.path()).0, Some(2), "{format}");
        assert!(!folder.path().join("none").exists(), "{format}");
    }
}

#[test]
fn a_missed_published_number_fails_only_on_request() {
    let folder = folder();
    let published = |high: &str, more: &[&str]| {
        run(folder.path(), high, "10mbit", &["--variant", "plain"]);
        let text = std::fs::read_to_string(folder.path().join("x.toml")).unwrap();
        let number = format!(
            "[[published]]\nmetric = \"load.rtt.p50\"\nvariant = \"plain\"\nhigh = {high}\n\
             unit = \"ms\"\nsource = \"nobody\"\n"
        );
        std::fs::write(folder.path().join("x.toml"), text + &number).unwrap();
        let out = format!("{high}-{}", more.len());
        let arguments = [&["run", "x.toml", "--world", "sim", "--out", &out], more].concat();
        outcome(&arguments, folder.path())
    };
    assert_eq!(published("1", &[]).0, Some(0));
    let (status, _, errors) = published("2", &["--fail-on", "miss"]);
    assert_eq!(status, Some(1), "{errors}");
    assert!(errors.contains("missed: 1 published number"), "{errors}");
    assert_eq!(published("9000", &["--fail-on", "miss"]).0, Some(0));
}

#[test]
fn colour_and_quiet_options_are_respected() {
    let folder = folder();
    let (status, out, errors) = outcome(&["--color=always", "queues", "codle"], folder.path());
    assert_eq!((status, out.as_str()), (Some(2), ""));
    assert!(errors.starts_with("\u{1b}[1;31merror:\u{1b}[0m there is no queue"), "{errors:?}");
    assert!(errors.contains("did you mean `codel`?"), "{errors}");
    let (_, _, errors) = outcome(&["queues", "codle", "--color", "never"], folder.path());
    assert!(errors.starts_with("error: "), "{errors:?}");
    run(folder.path(), "loud", "10mbit", &[]);
    let run = ["run", "x.toml", "--world", "sim", "--out"];
    let (status, out, errors) = outcome(&[&run[..], &["still", "-q"]].concat(), folder.path());
    assert_eq!((status, errors.as_str()), (Some(0), ""));
    assert!(out.contains("managed"), "{out}");
    let (_, _, errors) = outcome(&[&run[..], &["told", "-v"]].concat(), folder.path());
    assert!(errors.contains("managed: docsis-pie"), "{errors}");
    let (_, version, _) = outcome(&["--version"], folder.path());
    assert!(version.starts_with("underload 0.1.0 ("), "{version}");
}

/// The history of a line that became worse: a run every six hours for fifteen days, the last five
/// of which are bad.
fn write_worse_line(folder: &Path) {
    let now = jiff::Timestamp::now();
    let line = |number: i64| {
        let started = now - jiff::SignedDuration::from_hours(6 * (60 - number));
        let started = started.strftime("%Y-%m-%dT%H:%M:%SZ");
        let value = if number < 40 { 40 } else { 90 } + number % 5;
        format!(
            r#"{{"run":"r{number}","started":"{started}","name":"measure/quick",{}}}"#,
            format_args!(r#""steps":[{{"step":"up","values":{{"load-p99":{value}}}}}]"#)
        )
    };
    let lines: Vec<String> = (0..60).map(|number| line(number) + "\n").collect();
    std::fs::create_dir(folder).expect("a folder");
    std::fs::write(folder.join("removed-runs.jsonl"), lines.concat()).expect("its numbers");
}

#[test]
fn an_unwritable_page_does_not_suppress_alerts() {
    let folder = folder();
    write_worse_line(&folder.path().join("line"));
    let history = ["history", "line", "--alert", "50"];
    assert_eq!(outcome(&history, folder.path()).0, Some(3));
    let nowhere = ["--out", "missing/history.html", "--prometheus", "missing/line.prom"];
    let (status, out, errors) = outcome(&[history, nowhere].concat(), folder.path());
    assert_eq!(status, Some(1), "{errors}");
    assert!(out.contains("up: p99 of latency under load is 92"), "{out}");
    assert!(errors.contains("ALERT: ") && errors.contains("missing/history.html"), "{errors}");
}

#[test]
fn a_quiet_survey_prints_only_its_table() {
    let folder = folder();
    let asked = ["survey", "127.0.0.1:1", "--probes", "1", "--out", "kept", "--quiet"];
    let (_, out, errors) = outcome(&asked, folder.path());
    assert_eq!(errors, "");
    assert!(out.contains("127.0.0.1:1"), "{out}");
    assert!(folder.path().join("kept/survey.json").is_file());
}

#[test]
fn a_survey_whose_folder_is_gone_prints_its_table() {
    let folder = folder();
    let asked = ["survey", "127.0.0.1:1", "--probes", "2", "--out", "kept"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_underload"))
        .args(asked)
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut errors = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut line = String::new();
    while !line.starts_with("1 of 2 probes") {
        line.clear();
        assert!(errors.read_line(&mut line).expect("a line") > 0, "it ends before a probe");
    }
    std::fs::remove_dir(folder.path().join("kept")).expect("it is empty");
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "the premise: a signal was sent");
    let mut said = String::new();
    errors.read_to_string(&mut said).expect("text");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("kept/survey.json"), "{said}");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("127.0.0.1:1"), "{table}");
}
