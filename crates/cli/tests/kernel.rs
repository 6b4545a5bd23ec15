//! The worlds `kernel` and `kernel-tcp`: Linux's own TCP in virtual time, before its own queues or
//! ours. Each test that starts a guest needs a kernel: `cargo xtask kernel` builds one, and the
//! variable `UNDERLOAD_KERNEL` names it.

mod guest;

use std::fs;
use std::path::Path;
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

fn underload(folder: &Path, kernel: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underload"));
    command.args(arguments).current_dir(folder).env("UNDERLOAD_KERNEL", kernel);
    command.env("XDG_DATA_HOME", folder.join("data"));
    command
}

fn run(folder: &Path, kernel: &Path, (world, out): (&str, &str), more: &[&str]) -> Output {
    run_text(SCENARIO, folder, kernel, (world, out), more)
}

fn run_text(
    text: &str,
    folder: &Path,
    kernel: &Path,
    (world, out): (&str, &str),
    more: &[&str],
) -> Output {
    fs::write(folder.join("scenario.toml"), text).expect("a scenario");
    let arguments = ["run", "scenario.toml", "--world", world, "--out", out];
    let mut command = underload(folder, kernel, &[&arguments[..], more].concat());
    command.output().expect("the program starts")
}

/// Returns the record without the fields that differ between two runs with the same seed: the time
/// of the start and the duration.
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
    let Some(kernel) = guest::kernel("the_same_seed_gives_the_same_bytes_also_on_a_busy_machine")
    else {
        return;
    };
    let folder = tempfile::tempdir().expect("a directory");
    let busy: Vec<_> = (0..3)
        .map(|_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell"))
        .collect();
    let worlds = [("kernel", World::Kernel), ("kernel-tcp", World::KernelTcp)];
    let first = worlds.map(|(world, _)| {
        run(folder.path(), &kernel, (world, &format!("first-{world}")), &["--repeat", "4"])
    });
    for mut loop_forever in busy {
        loop_forever.kill().expect("it runs");
        loop_forever.wait().expect("it ends");
    }
    for ((name, world), output) in worlds.into_iter().zip(first) {
        assert!(output.status.success(), "{}", text(&output.stderr));
        let outs = ["first", "again"].map(|out| format!("{out}-{name}"));
        let again = run(folder.path(), &kernel, (name, &outs[1]), &["--repeat", "4"]);
        assert!(again.status.success(), "{}", text(&again.stderr));
        let [first, again] = outs.each_ref().map(|out| record(folder.path(), out));
        assert_eq!(first.world, world);
        assert_eq!(first.trials.len(), 4);
        assert_eq!(first, again);
        for table in ["samples.parquet", "series.parquet"] {
            let [first, again] = outs
                .each_ref()
                .map(|out| fs::read(folder.path().join(out).join(table)).expect("a table"));
            assert!(first == again, "{name}: {table}");
        }
    }
}

#[test]
fn the_simulator_and_the_kernel_agree() {
    let Some(kernel) = guest::kernel("the_simulator_and_the_kernel_agree") else { return };
    let folder = tempfile::tempdir().expect("a directory");
    for world in ["kernel", "kernel-tcp"] {
        let output = run(folder.path(), &kernel, (world, world), &[]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let simulated = ["run", "scenario.toml", "--world", "sim", "--out", "sim", "--no-cache"];
    assert!(underload(folder.path(), &kernel, &simulated).status().expect("it starts").success());
    let median = |out: &str| {
        let record = record(folder.path(), out);
        let load = record.trials[0].latencies.iter().find(|it| it.window.phase == Phase::Load);
        load.and_then(|load| Some(load.distribution.as_ref()?.p50_ns as f64 / 1e6))
            .expect("a median")
    };
    let medians = ["kernel", "kernel-tcp", "sim"].map(median);
    let [kernel, kernel_tcp, sim] = medians;
    assert!((kernel - sim).abs() < 2.0 && (kernel_tcp - sim).abs() < 2.0, "p50 in ms: {medians:?}");
}

#[test]
fn dctcp_receives_each_mark_beside_a_flow_without_ecn() {
    let Some(kernel) = guest::kernel("dctcp_receives_each_mark_beside_a_flow_without_ecn") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a directory");
    let dctcp = "[[flow]]\nname = \"dctcp\"\nkind = \"tcp\"\ncongestion_control = \"dctcp\"\n";
    for direction in ["up", "down"] {
        let path = format!("{direction} = \"20mbit\"\n{direction}_queue = \"fq-codel\"");
        let scenario = SCENARIO
            .replace("load = \"2s\"", "load = \"8s\"")
            .replace("up = \"20mbit\"\nup_queue = \"fifo:limit=128KiB\"", &path)
            .replace("kind = \"tcp\"\n", &format!("kind = \"tcp\"\ndirection = \"{direction}\"\n"))
            + &dctcp.replace("\"tcp\"\n", &format!("\"tcp\"\ndirection = \"{direction}\"\n"));
        for world in ["kernel", "kernel-tcp"] {
            let name = &format!("{world} {direction}");
            let output = run_text(&scenario, folder.path(), &kernel, (world, name), &[]);
            assert!(output.status.success(), "{name}: {}", text(&output.stderr));
            let trial = record(folder.path(), name).trials.remove(0);
            let flow = |name: &str| trial.flows.iter().find(|flow| flow.name == name).expect(name);
            // The name of a connection that fell back is `dctcp-reno`.
            assert_eq!(flow("dctcp").congestion_control.as_deref(), Some("dctcp"), "{name}");
            assert_eq!(flow("bulk").congestion_control.as_deref(), Some("cubic"), "{name}");
            let counted = flow("dctcp").metrics.iter().find(|it| it.name == "segments_marked");
            let counted = counted.and_then(|it| it.value).expect("a count");
            let marks = trial.bottlenecks.iter().flat_map(|queue| queue.marks.values());
            let marks = marks.sum::<u64>() as f64;
            // The last count is some tenths of a second older than the queue's.
            assert!(marks > 100.0, "{name}: {marks} marks");
            assert!((0.9 * marks..=marks).contains(&counted), "{name}: {counted} of {marks}");
        }
    }
}

/// The server's reports on the connection of an upload must not delay its acknowledgements.
#[test]
fn an_upload_by_bbr_waits_no_longer_than_a_download() {
    let Some(kernel) = guest::kernel("an_upload_by_bbr_waits_no_longer_than_a_download") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a directory");
    let medians_ms = ["up", "down"].map(|direction| {
        let queue = format!("{direction}_queue = \"fifo:limit=312500B\"\nrtt = \"17ms\"");
        let scenario = SCENARIO
            .replace("up_queue = \"fifo:limit=128KiB\"\nrtt = \"20ms\"", &queue)
            .replace("up = \"20mbit\"", &format!("{direction} = \"10mbit\""))
            .replace("\"tcp\"\n", &format!("\"tcp\"\ndirection = \"{direction}\"\n"))
            .replace("\"cubic\"", "\"bbr\"")
            .replace("load = \"2s\"", "load = \"7s\"");
        let output = run_text(&scenario, folder.path(), &kernel, ("kernel-tcp", direction), &[]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let record = record(folder.path(), direction);
        assert!(record.trials[0].bottlenecks.iter().all(|link| link.direction.name() == direction));
        let mut latencies = record.trials[0].latencies.iter();
        let load = latencies.find(|it| it.window.phase == Phase::Load).expect("a load phase");
        load.distribution.as_ref().expect("answers").p50_ns as f64 / 1e6
    });
    let [up, down] = medians_ms;
    assert!((up - down).abs() < 3.0, "p50 in ms: {medians_ms:?}");
}

/// Every kind that the oldest supported `tc` knows (dualpi2 needs a newer one).
const QUEUES: [&str; 9] = [
    "fifo:limit=64KiB",
    "head-drop:limit=50p",
    "codel",
    "fq-codel",
    "pie",
    "fq-pie",
    "cake:rate=9mbit",
    "red:limit=400000B,min=30000B,max=90000B,weight=3.125%,gentle=off",
    "sfb",
];

#[test]
fn every_queue_of_linux_carries_the_load_and_is_counted() {
    let Some(kernel) = guest::kernel("every_queue_of_linux_carries_the_load_and_is_counted") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a directory");
    let variants = QUEUES.iter().enumerate().map(|(index, queue)| {
        format!("[[variant]]\nname = \"a{index}\"\npath.up_queue = \"{queue}\"\n")
    });
    let path = SCENARIO
        .replace("up = \"20mbit\"\nup_queue = \"fifo:limit=128KiB\"", "up = \"10mbit:loss=0.5%\"");
    let scenario = path + &variants.collect::<String>();
    let output = run_text(&scenario, folder.path(), &kernel, ("kernel", "out"), &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let record = record(folder.path(), "out");
    assert!(record.host.kernel.contains("iproute2"), "{}", record.host.kernel);
    assert_eq!(record.trials.len(), QUEUES.len());
    for (trial, queue) in record.trials.iter().zip(QUEUES) {
        assert!(trial.validity.is_valid(), "{queue}: {:?}", trial.validity);
        let load = trial.bottlenecks.iter().find(|link| link.window.phase == Phase::Load);
        let load = load.expect(queue);
        let (rate, capacity) = (load.throughput_bit_per_s, load.capacity_bit_per_s);
        // SFB holds a single flow far below the link's rate.
        assert!(capacity == Some(10_000_000), "{queue}: {capacity:?}");
        assert!((500_000..10_100_000).contains(&rate), "{queue}: {rate}");
        assert!(load.drops.contains_key("loss"), "{queue}: {:?}", load.drops);
        assert!(load.sojourn.is_none(), "{queue}");
    }
}

#[test]
fn a_queue_or_link_that_linux_lacks_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a directory");
    let missing = folder.path().join("missing");
    for (from, to, expected) in [
        ("fifo:limit=128KiB", "bode", "path.up_queue: there is no Linux queue `bode`"),
        ("fifo:limit=128KiB", "pie:profile=rfc", "`profile=rfc`: expected linux, the only one"),
        ("20mbit", "docsis:rate=10mbit,peak=12mbit", "Linux has only links of constant rate"),
        ("20mbit", "20mbit:jitter=5ms", "have delay, loss and overhead only"),
    ] {
        let scenario = SCENARIO.replace(from, to);
        let output = run_text(&scenario, folder.path(), &missing, ("kernel", "out"), &[]);
        assert_eq!(output.status.code(), Some(2), "{to}");
        let error = text(&output.stderr);
        assert!(error.contains(expected) && error.contains("--world kernel-tcp"), "{error}");
    }
}

#[test]
fn a_killed_run_leaves_no_guest() {
    let Some(kernel) = guest::kernel("a_killed_run_leaves_no_guest") else { return };
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
fn a_file_other_than_a_kernel_is_refused() {
    let folder = tempfile::tempdir().expect("a directory");
    let missing = folder.path().join("missing");
    let output = run(folder.path(), &missing, ("kernel", "out"), &[]);
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

/// Waits up to a minute for a condition. Returns whether it became true.
fn is_soon(is_so: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !is_so() && start.elapsed() < Duration::from_mins(1) {
        sleep(Duration::from_millis(20));
    }
    is_so()
}
