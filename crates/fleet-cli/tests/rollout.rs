//! Tests of `fleet rollout`: with a store of measured days, and a connector that is a command or a
//! provisioning server.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use underload_fleet::bins::Bins;
use underload_fleet::device::{Attributes, DeviceId, Pseudonym};
use underload_fleet::outcome::{Outcome, RunResult, SeriesResult, StepResult};
use underload_fleet::plan::{Kind, Plan};
use underload_fleet::rollout::{Event, LOTS, Phase, RolloutPlan, Row, State, append, load, lot};
use underload_fleet::store::{Device, Needs, PlanRow, Store as _, StoredResult};
use underload_orchestrator::store::SqlStore;

const DAY_MS: u64 = 86_400_000;
const LINES: u16 = 400;

fn device(number: u16) -> DeviceId {
    let mut id = [7; 16];
    id[..2].copy_from_slice(&number.to_be_bytes());
    DeviceId(id)
}

fn attributes(number: u16) -> Attributes {
    let model = if number.is_multiple_of(4) { "XB8" } else { "XB7" };
    Attributes { model: model.to_owned(), ..Attributes::default() }
}

fn result(number: u16, day: u32, ms: f64) -> StoredResult {
    let mut bins = Bins::default();
    (0..10).for_each(|_| bins.add(ms * 1e3));
    let us = Some((ms * 1e3) as u64);
    let series = SeriesResult {
        dscp: 0,
        sent: 10,
        lost: 0,
        bins,
        p50_us: us,
        p99_us: us,
        mean_us: us,
        max_us: us,
    };
    let step = StepResult {
        step: "up".to_owned(),
        inside: None,
        kind: Kind::Upload,
        goodput_bit_per_s: Some(35_000_000),
        tier_percent: Some(100.0),
        grade: None,
        series: vec![series],
    };
    let at_ms = u64::from(day) * DAY_MS + 1_000;
    StoredResult {
        device: device(number),
        epoch: 1,
        sequence: u64::from(day),
        stored_ms: at_ms,
        pseudonym: Pseudonym(device(number).0),
        cohort: String::new(),
        attributes: attributes(number),
        result: RunResult {
            plan: "comcast-study".to_owned(),
            run: 1,
            at_ms,
            outcome: Outcome::Measured,
            reason: String::new(),
            server: String::new(),
            version: String::new(),
            steps: vec![step],
        },
    }
}

/// A folder with a store, a plan and its configuration.
struct Folder {
    directory: tempfile::TempDir,
    plan: PathBuf,
    text: String,
}

impl Folder {
    fn new(connector: &str) -> Self {
        let directory = tempfile::tempdir().expect("a folder");
        let plan = directory.path().join("pie.toml");
        let text = format!(
            "name = 'pie'\nplan = 'comcast-study'\nstep = 'up'\nstages_percent = [25, 90]\nleast_days = 2\n\
             confirmers = ['ana']\n{connector}\n[[file]]\npath = 'pie.cm'\n"
        );
        std::fs::write(&plan, &text).expect("written");
        std::fs::write(directory.path().join("pie.cm"), [1, 2, 3]).expect("written");
        let folder = Self { directory, plan, text };
        let mut store = SqlStore::sqlite(&folder.store()).expect("a new store");
        let mut tx = store.begin(&Needs::default()).expect("a transaction");
        let plan = Plan::built_in("comcast-study").expect("a plan").to_owned();
        let name = "comcast-study".to_owned();
        let row = PlanRow { name, text: plan, applied_ms: 1, stopped_ms: None };
        tx.put_plan(&row).expect("put");
        for number in 0..LINES {
            let key = [number as u8; 32];
            tx.put_device(&Device::new(device(number), key, attributes(number), 1)).expect("put");
        }
        tx.commit().expect("committed");
        folder
    }

    fn store(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_underload-fleet"));
        command.arg("rollout").args(words).arg(&self.plan);
        command.arg("--store").arg(format!("sqlite:{}", self.store().display()));
        command.env("HOME", self.directory.path()).output().expect("it runs")
    }

    /// Runs a command that succeeds, and returns its output.
    fn ok(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {told}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    fn log(&self) -> Vec<Row> {
        let mut store = SqlStore::beside(&self.store()).expect("the store");
        let mut tx = store.begin(&Needs::default()).expect("a transaction");
        load(&mut |name| tx.setting(name), "pie").expect("read").expect("a rollout").log
    }

    fn state(&self) -> State {
        State::of(&RolloutPlan::parse(&self.text).expect("a plan"), &self.log())
    }

    /// Stores a rollout whose first stage was sent 5 days ago, and what its lines measured since
    /// then and in the week before. The file multiplies the latency by `times`.
    fn measured(&self, times: f64) {
        let plan = RolloutPlan::parse(&self.text).expect("a plan");
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_millis();
        let today = (now_ms as u64 / DAY_MS) as u32;
        let start = today - 5;
        let row = |event| Row { at_ms: u64::from(start) * DAY_MS, who: "test".to_owned(), event };
        let to = plan.lots_of(0);
        let devices = (0..LINES).map(device).filter(|it| lot("pie", *it) < to).collect();
        let (stage, is_former, failed, is_last) = (0, false, Vec::new(), true);
        let sent = Event::Sent { stage, is_former, devices, failed, is_last };
        let mut store = SqlStore::beside(&self.store()).expect("the store");
        let mut tx = store.begin(&Needs::default()).expect("a transaction");
        for (known, event) in [Event::Started { is_dry_run: false }, sent].into_iter().enumerate() {
            assert!(
                append(&mut *tx, "pie", &self.text, known, (&row(event), "")).expect("appended")
            );
        }
        let mut results = Vec::new();
        for day in today - 12..=today {
            for number in 0..LINES {
                let is_changed = lot("pie", device(number)) < to && day > start;
                let wobble = 1.0 + 0.02 * f64::from((u32::from(number) * 7 + day * 5) % 11);
                let factor = if is_changed { times } else { 1.0 };
                results.push(result(number, day, (20.0 + f64::from(number % 7)) * wobble * factor));
            }
        }
        tx.append(&results).expect("stored");
        tx.commit().expect("committed");
    }
}

fn lines(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A connector that appends what it receives to the file `sent`.
fn command(folder: &Path) -> String {
    let script = format!("cat >> '{0}' && echo >> '{0}'", folder.join("sent").display());
    format!("command = ['sh', '-c', \"{script}\"]")
}

#[test]
fn a_stage_gives_its_lines_the_file_and_waits_for_measurements() {
    let sent = tempfile::tempdir().expect("a folder");
    let folder = Folder::new(&command(sent.path()));
    let told = folder.ok(&["plan"]);
    assert!(told.contains("300 lines, model XB7") && told.contains("pie.cm"), "{told}");
    let told = folder.ok(&["start"]);
    assert!(told.contains("watches stage 1 of 2 (25 %)"), "{told}");
    let sent = lines(&sent.path().join("sent"));
    let of_stage = |number: &u16| lot("pie", device(*number)) < LOTS / 4;
    assert_eq!(sent.len(), (0..LINES).filter(of_stage).count());
    assert_eq!(sent[0]["configuration_base64"], "AQID");
    assert_eq!(sent[0]["action"], "set");
    // A second command has nothing to do, and other plans are refused.
    let rows = folder.log().len();
    folder.ok(&["start"]);
    assert_eq!(folder.log().len(), rows);
    std::fs::write(&folder.plan, folder.text.replace("25, 90", "26, 90")).expect("written");
    let refused = folder.run(&["start"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("another file"));
}

#[test]
fn lower_latency_pauses_for_a_person_and_goes_on() {
    let sent = tempfile::tempdir().expect("a folder");
    let folder = Folder::new(&command(sent.path()));
    folder.measured(0.5);
    let told = folder.ok(&["start"]);
    assert!(told.contains("is paused in stage 1") && told.contains("p99 0.5"), "{told}");
    // Days of a pause are judged, too.
    let is_look = |row: &&Row| matches!(row.event, Event::Looked { .. });
    assert_eq!(folder.log().iter().filter(is_look).count(), 4);
    assert_eq!(folder.run(&["confirm", "--by", "eve"]).status.code(), Some(2), "not listed");
    folder.ok(&["confirm", "--by", "ana"]);
    assert_eq!((folder.state().phase, folder.state().stage), (Phase::Watching, 1));
    let of_stage = |number: &u16| (LOTS / 4..LOTS / 10 * 9).contains(&lot("pie", device(*number)));
    assert_eq!(
        lines(&sent.path().join("sent")).len(),
        (0..LINES).filter(of_stage).count(),
        "the lines of the first stage keep their file"
    );
    let told = folder.ok(&["status"]);
    assert!(told.contains("ana: confirmed\n") && told.contains("watches stage 2 of 2"), "{told}");
}

#[test]
fn higher_latency_returns_the_lines() {
    let sent = tempfile::tempdir().expect("a folder");
    let folder = Folder::new(&command(sent.path()));
    folder.measured(1.5);
    let told = folder.ok(&["start"]);
    assert!(told.contains("back, because all lines was harmed") && told.contains("was taken back"));
    let former = lines(&sent.path().join("sent"));
    assert!(former.len() > 70 && former.iter().all(|it| it["action"] == "back"), "{former:?}");
    assert_eq!(former[0]["configuration_base64"], serde_json::Value::Null);
    assert_eq!(folder.state().phase, Phase::Returned);
}

#[test]
fn a_killed_command_continues() {
    let sent = tempfile::tempdir().expect("a folder");
    let path = sent.path().join("sent");
    // The 60th line kills the program that sends it.
    let count = format!("[ $(wc -l < '{0}') -ne 60 ] || kill -9 $PPID", path.display());
    let script = format!("cat >> '{0}' && echo >> '{0}' && ({count})", path.display());
    let folder = Folder::new(&format!("command = ['sh', '-c', \"{script}\"]"));
    assert!(!folder.run(&["start"]).status.success(), "it was killed");
    assert_eq!((lines(&path).len(), folder.log().len()), (60, 1));
    folder.ok(&["start"]);
    assert_eq!(folder.state().phase, Phase::Watching);
    let mut devices: Vec<String> = lines(&path).iter().map(|it| it["device"].to_string()).collect();
    let sent = devices.len();
    devices.sort();
    devices.dedup();
    let of_stage = |number: &u16| lot("pie", device(*number)) < LOTS / 4;
    assert_eq!(devices.len(), (0..LINES).filter(of_stage).count());
    assert_eq!(sent, devices.len() + 60, "the lines of one batch are sent twice");
}

#[test]
fn a_dry_run_logs_what_it_would_do_and_calls_nothing() {
    let sent = tempfile::tempdir().expect("a folder");
    let folder = Folder::new(&command(sent.path()));
    let told = folder.ok(&["start", "--dry-run"]);
    assert!(told.contains("dry run") && told.contains("sent the new file to"), "{told}");
    assert!(!sent.path().join("sent").exists());
    folder.ok(&["back", "--by", "ana"]);
    assert!(!sent.path().join("sent").exists());
    assert_eq!(folder.state().phase, Phase::Returned);
}

#[test]
fn a_provisioning_server_that_fails_pauses_the_rollout() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("an address");
    // Confirms the first three lines, and refuses all others.
    std::thread::spawn(move || {
        for (number, stream) in server.incoming().flatten().enumerate() {
            let mut reader = BufReader::new(stream);
            let mut length = 0;
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) < 3 {
                    break;
                }
                let line = line.to_ascii_lowercase();
                let value = line.strip_prefix("content-length:");
                length = value.map_or(length, |value| value.trim().parse().expect("a length"));
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("the body");
            let document: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
            assert_eq!(document["rollout"], "pie");
            let status = if number < 3 { "204 No Content" } else { "500 Broken" };
            let answer =
                format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _ = reader.get_mut().write_all(answer.as_bytes());
        }
    });
    let folder = Folder::new(&format!("url = 'http://{address}/hook'"));
    let told = folder.ok(&["start"]);
    assert!(told.contains("the connector failed on too many lines"), "{told}");
    let failed = folder.log().iter().find_map(|row| match &row.event {
        Event::Sent { devices, failed, .. } => Some((devices.len(), failed.len())),
        _ => None,
    });
    let (lines, failed) = failed.expect("a batch");
    assert_eq!((lines, failed), (13, 10), "the batch ends early");
    // A mistake does not start the rollout. Plain HTTP to another machine would show the files.
    let folder = Folder::new("url = 'http://example.com/hook'");
    assert_eq!(folder.run(&["start"]).status.code(), Some(2));
    std::fs::write(&folder.plan, folder.text.replace("'up'", "'upp'").replace("http:", "https:"))
        .expect("written");
    let refused = folder.run(&["start"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no such step"));
    std::fs::write(&folder.plan, folder.text.replace("http:", "https:")).expect("written");
    folder.ok(&["start", "--dry-run"]);
}
