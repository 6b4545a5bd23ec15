//! Each example of every `--help` works when it is copied: on a machine that has the files and devices
//! that it names, and on one that has none of them, where the error names what is missing.
//!
//! The examples come from the page of `docs/reference` that is the help of `underload`. They run in
//! networks of their own, without any other host. [`CANNOT`] lists those that cannot work there.

#![cfg(target_os = "linux")]
#![expect(clippy::print_stderr, reason = "tests print why they were skipped")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use underload_record::schema::{
    Distribution, FORMAT_VERSION, FlowDirection, FlowRecord, LatencySummary, Phase, PhaseWindow,
    RunRecord, TrialRecord, VariantRecord, World,
};
use underload_record::{LatencyPools, conclude};
use underload_store::{RunData, RunDir};

const PAGE: &str = include_str!("../../../docs/reference/commands.md");

/// Examples that cannot work in a network without other hosts: a part of them, what their error has
/// to name, and what they need.
const CANNOT: &[(&str, &str, &str)] = &[
    ("--when-quiet", "default route", "a network with a way out"),
    ("example.net", "example.net", "a public host"),
    ("measure ndt7 --accept-terms", "locate.measurementlab.net", "a public host"),
    ("measure ndt7", "--accept-terms", "a terminal for the question"),
    ("measure apple", "apple", "a public host"),
    ("[2001:db8::1]", "2001:db8::1", "an address of documentation"),
    ("192.0.2.1:862", "192.0.2.1", "an address of documentation"),
    ("survey servers.txt", "a.example", "public hosts"),
    ("survey a.example", "a.example", "public hosts"),
    ("--reflector 1.1.1.1", "1.1.1.1", "a public host"),
    ("shape off", "nothing to undo", "a shaper of another example"),
    ("shape confirm", "nothing to undo", "a shaper of another example"),
    ("--world live", "no trial is valid", "an idle machine"),
    ("--resume runs/first", "the run is complete", "an interrupted run"),
    ("HOST", "", "a name to replace"),
    ("kernel install", "target/kernel/linux", "a kernel that is built for an hour"),
    ("kernel status", "underload kernel install", "a kernel that is built for an hour"),
];
/// The number of these examples, which may not grow.
const CANNOT_MAX: usize = 34;

/// Examples that run until Ctrl-C, or for minutes: a part of them.
const ENDLESS: &[&str] = &[
    "underload serve ", "--every", "run comcast/upstream ", "underload figures",
    "docsis recommend", "shape auto", "watch ",
];

/// Returns the examples of each command, in their order.
fn sections() -> Vec<Vec<String>> {
    let section = |text: &'static str| {
        let (_, rest) = text.split_once("Examples:\n")?;
        let block = rest.split("\n```").next().unwrap_or_default().replace("\\\n", " ");
        // An explanation follows after several spaces.
        let typed = |line: &str| {
            let line = line.trim();
            let end =
                line.find("   ").filter(|_| !line.contains("--listen") && !line.contains("  --"));
            line[..end.unwrap_or(line.len())].to_owned()
        };
        let lines = block.lines().filter(|line| line.starts_with("  "));
        Some(lines.map(typed).collect())
    };
    PAGE.split("\n## ").skip(1).filter_map(section).collect()
}

/// The scenario and the sweep of the prepared machine.
const SCENARIO: &str = r#"
title = "An upload on a home line"
[path]
up = "10mbit"
rtt = "20ms"
[phases]
idle = "500ms"
ramp = "1s"
load = "6s"
drain = "0s"
[[flow]]
kind = "tcp"
name = "upload"
[[flow]]
kind = "probe"
interval = "10ms"
"#;
const VARIANTS: &str = r#"
[[variant]]
name = "codel"
path.up_queue = "codel"
[[variant]]
name = "docsis-pie"
path.up_queue = "docsis-pie"
"#;
const SWEEP: &str = r#"
title = "Round trips"
scenario = "my.toml"
repeats = 2
[[axis]]
key = "path.rtt"
values = ["10ms", "20ms"]
"#;
const IRTT: &str = r#"{"version":{"irtt":"0.9.0","protocol":1},
"config":{"params":{"dscp":0,"interval":10000000}},"stats":{"start_time":"2026-11-21T04:43:21Z"},
"round_trips":[{"seqno":0,"lost":"false","timestamps":{"client":{"send":{"wall":5,"monotonic":1000}}},
"delay":{"receive":40,"rtt":100,"send":60},"ipdv":{}}]}"#;

/// Fills a folder with the files that the examples name.
const PREPARE: &str = "
underload run my.toml --world sim --repeat 2 --out runs/first
underload run my.toml --world sim --repeat 2 --out runs/second --seed 2
for run in before simulated live; do cp -a runs/first runs/$run; done
cp -a runs/second runs/after
underload run plain.toml --world sim --repeat 2 --out fifo/run
underload run plain.toml --world sim --repeat 2 --out cake/run --set path.up_queue=cake
underload export runs/first --out files && cp $(find files -name '*.flent.gz' | head -1) before.flent.gz
underload export runs/second --out files-2
cp $(find files-2 -name '*.flent.gz' | head -1) after.flent.gz
cp before.flent.gz tcp_upload.flent.gz
underload run plain.toml --world sim --repeat 1 --out captured --pcap client
cp $(find captured -name '*.pcapng' | head -1) all.pcap && cp all.pcap capture.pcap
mkdir scenarios && cp my.toml scenarios
for at in $(seq 1000); do echo $((at * 2)); done > cell.down
printf '#!/bin/sh\\n' > upload.sh && chmod +x upload.sh
underload serve token rotate --keys etc/underload/keys
echo secret > secret && chmod 600 secret
underload docsis encode cm.toml --out cm.bin --secret-file secret
underload docsis decode cm.bin --form main --out cm.txt
printf 'a.example\\n' > servers.txt
echo token > token && chmod 600 token
rm -rf files files-2 captured runs/second
";

/// Writes a measured run of the steps down and up.
fn write_measured(path: &Path, started: &str, p99_ms: f64) {
    let mut record = RunRecord {
        format_version: FORMAT_VERSION,
        world: World::Measured,
        complete: true,
        ..RunRecord::default()
    };
    "measure/quick".clone_into(&mut record.scenario.name);
    started.clone_into(&mut record.host.started);
    for (index, variant) in (0..).zip(["down", "up"]) {
        let distribution =
            Distribution { count: 600, p99_ns: (p99_ms * 1e6) as i64, ..Distribution::default() };
        let latency = LatencySummary {
            probe: "probe".to_owned(),
            window: PhaseWindow { phase: Phase::Load, start_ns: 0, end_ns: 1 },
            sent: 600,
            distribution: Some(distribution),
            ..LatencySummary::default()
        };
        let rate = Some(40_000_000);
        let direction = FlowDirection::Down;
        let flow = FlowRecord { direction, goodput_down_bit_per_s: rate, ..FlowRecord::default() };
        let variant = variant.to_owned();
        record.variants.push(VariantRecord { name: variant.clone(), ..VariantRecord::default() });
        let (latencies, flows) = (vec![latency], vec![flow]);
        record.trials.push(TrialRecord {
            index,
            variant,
            latencies,
            flows,
            ..TrialRecord::default()
        });
    }
    conclude(&mut record, &LatencyPools::default());
    let (samples, series, left_out) = (Vec::new(), Vec::new(), Vec::new());
    RunDir::write(path, &RunData { record, samples, series, left_out }).expect("a run directory");
}

/// Returns the files that a page of the documentation shows completely.
fn files(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let blocks = page.split("```toml\n# ").skip(1);
    let blocks = blocks.filter_map(|block| block.split_once("\n```")?.0.split_once('\n'));
    blocks.filter(|(name, _)| name.split_once('.').is_some_and(|(_, end)| end == "toml"))
}

fn prepare(folder: &Path) {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("a file");
    for (name, text) in files(&fs::read_to_string(docs.join("docsis.md")).expect("the page")) {
        write(name, text);
    }
    write("plain.toml", SCENARIO);
    write("my.toml", &format!("{SCENARIO}{VARIANTS}"));
    write("buffers.toml", SWEEP);
    write("irtt.json", IRTT);
    for day in 10..24 {
        let at = |folder_name: &str| folder.join(format!("{folder_name}/2026-11-{day}"));
        write_measured(&at("runs/history"), &format!("2026-11-{day}T20:00:00Z"), 90.0);
    }
    for (name, day, ms) in [
        ("runs/monday", 2, 90.0),
        ("runs/friday", 6, 30.0),
        ("old/lake", 2, 90.0),
        ("old/hill", 2, 80.0),
        ("new/lake", 6, 30.0),
        ("new/hill", 6, 20.0),
    ] {
        write_measured(&folder.join(name), &format!("2026-11-0{day}T20:00:00Z"), ms);
    }
    let output = Machine { devices: "" }.run(&format!("set -e; {PREPARE}"), folder);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A machine in a network of its own.
#[derive(Clone, Copy)]
struct Machine {
    /// A command that adds its devices.
    devices: &'static str,
}

/// Devices of the prepared machine, each connected to another one.
const DEVICES: &str = "for dev in eth0 wan wwan0; do
ip link add $dev type veth peer name p-$dev; ip link set $dev up; ip link set p-$dev up; done";

impl Machine {
    fn is_possible() -> bool {
        let tried = Command::new("unshare").args(["-r", "-n", "-m", "true"]).output();
        tried.is_ok_and(|output| output.status.success())
    }

    /// Runs a line of a shell in a folder, which is also its home.
    fn run(self, line: &str, folder: &Path) -> Output {
        let program = Path::new(env!("CARGO_BIN_EXE_underload"));
        let beside = program.parent().expect("a folder").display();
        let programs = folder.join("programs");
        fs::create_dir_all(&programs).expect("a folder");
        let sudo = programs.join("sudo");
        fs::write(&sudo, "#!/bin/sh\nexec \"$@\"\n").expect("a program");
        fs::set_permissions(&sudo, fs::Permissions::from_mode(0o755)).expect("it may run");
        let devices = self.devices;
        let script = format!(
            "mount -t tmpfs none /run; mount -t sysfs none /sys; ip link set lo up; {devices}\n\
             set -o pipefail\n{line}"
        );
        let path = std::env::var("PATH").unwrap_or_default();
        // No example may hold up the others for ever.
        let mut command = Command::new("timeout");
        command.args(["--signal", "KILL", "300", "unshare", "-r", "-n", "-m"]);
        command.args(["bash", "-c", &script]);
        command.current_dir(folder);
        command.env("PATH", format!("{}:{beside}:{path}", programs.display()));
        command.env("HOME", folder).env("NO_COLOR", "1").stdin(Stdio::null());
        for variable in ["XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"] {
            command.env_remove(variable);
        }
        command.output().expect("unshare and bash")
    }
}

/// Returns the line with the folders of the system below `folder`, and, of an endless one, an end.
fn line(example: &str, folder: &Path) -> String {
    // In real time, and with the usual trials, they would take minutes.
    let mut line = example.replace("run my.toml", "run my.toml --world sim");
    line = line.replace("underload try", "underload try --load 2s --repeat 1");
    // tcpdump becomes another user before it writes, which a user namespace forbids.
    line = line.replace("tcpdump -r all.pcap -w - src 192.0.2.7", "cat all.pcap");
    for of_system in ["/etc/underload", "/var/lib/", "/root/", "/data/"] {
        line = line.replace(of_system, &format!("{}{of_system}", folder.display()));
    }
    if example.contains("completions zsh") {
        return format!("zsh -fc 'autoload -U compinit; compinit -D; {line}'");
    }
    if example.contains("completions fish") {
        return format!("fish -c '{line}'");
    }
    if ENDLESS.iter().any(|part| format!("{example} ").contains(part)) {
        let program = if example.contains("watch ") { "watch " } else { "underload " };
        line = line.replacen(program, &format!("timeout --signal INT 2 {program}"), 1);
    }
    line
}

/// Returns a program that the line needs and this machine lacks.
fn missing(example: &str) -> Option<&'static str> {
    let has = |name: &str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {name}")]).output();
        found.is_ok_and(|output| output.status.success())
    };
    let programs = ["jq", "less", "man", "iperf3", "zsh", "fish", "watch"];
    let is_named = |name: &str| example.split([' ', ')']).any(|word| word == name);
    programs.into_iter().find(|name| is_named(name) && !has(name))
}

/// Copies the prepared folder.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from.join(".")).arg(to).status();
    assert!(copied.is_ok_and(|status| status.success()));
}

/// Runs every example on a machine, each command's in one folder, and passes each to `judge`.
fn run_all(
    machine: Machine,
    prepared: Option<&Path>,
    is_tried: impl Fn(&str) -> bool,
    mut judge: impl FnMut(&str, &Output),
) {
    let (mut seen, mut count) = (BTreeSet::new(), 0);
    for examples in sections() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut is_ready = false;
        for example in examples {
            if !is_tried(&example) || !seen.insert(example.clone()) {
                continue;
            }
            if example.contains("underload fleet") {
                // Another program, which needs an orchestrator.
                continue;
            }
            if let Some(program) = missing(&example) {
                eprintln!("SKIPPED examples that call {program}: not installed: {example}");
                continue;
            }
            if let Some(prepared) = prepared.filter(|_| !is_ready) {
                copy(prepared, folder.path());
                is_ready = true;
            }
            // A folder in which the shell writes the output exists; what is written there may be new.
            for of_system in ["etc", "var/lib/node_exporter", "root", "data"] {
                fs::create_dir_all(folder.path().join(of_system)).expect("a folder");
            }
            // An example that makes a run or a history is the first to do it.
            for (part, made) in [("--out runs/first", "runs/first"), ("--every", "runs/history")] {
                if example.contains(part) {
                    let _ = fs::remove_dir_all(folder.path().join(made));
                }
            }
            count += 1;
            judge(&example, &machine.run(&line(&example, folder.path()), folder.path()));
        }
    }
    assert!(count >= 20, "only {count} examples were found");
}

/// Whether an example was stopped, as the test does with an endless one.
fn is_stopped(output: &Output) -> bool {
    matches!(output.status.code(), Some(124 | 130 | 143))
}

#[test]
fn every_example_works_where_its_files_and_devices_are() {
    if !Machine::is_possible() {
        eprintln!("SKIPPED examples: this process may not create network namespaces");
        return;
    }
    let prepared = tempfile::tempdir().expect("a folder");
    prepare(prepared.path());
    let (mut cannot, mut wrong) = (0, String::new());
    run_all(
        Machine { devices: DEVICES },
        Some(prepared.path()),
        |_| true,
        |example, output| {
            let errors = text(&output.stderr);
            let reason = CANNOT.iter().find(|(part, ..)| example.contains(part));
            cannot += usize::from(reason.is_some());
            let is_right = match reason {
                _ if output.status.success() || is_stopped(output) => true,
                // The error names the module of a queue that the kernel lacks.
                _ if errors.contains("this kernel ") => {
                    eprintln!("SKIPPED examples that need another kernel: {example}: {errors}");
                    true
                }
                Some((_, named, _)) => errors.contains(named),
                None => false,
            };
            if !is_right {
                let _ = writeln!(wrong, "{example}\n{:?} {errors}", output.status.code());
            }
        },
    );
    assert!(wrong.is_empty(), "{wrong}");
    assert!(cannot <= CANNOT_MAX, "{cannot} examples cannot be tried");
}

#[test]
fn an_example_without_its_files_and_devices_names_what_is_missing() {
    if !Machine::is_possible() {
        eprintln!("SKIPPED examples: this process may not create network namespaces");
        return;
    }
    // Simulations need nothing.
    let needs_nothing = ["try", "figures", "run comcast", "run bode", "docsis recommend"];
    let is_tried = |example: &str| {
        let rest = example.split("underload ").nth(1).unwrap_or_default();
        !needs_nothing.iter().any(|start| rest.starts_with(start))
    };
    // What a machine without a device, network, kernel, terminal or history says.
    let others = [
        "this kernel ", "no kernel at", "default route", "nothing to undo", "--accept-terms",
        "asking locate", "runs/history", "cat: all.pcap",
    ];
    let mut wrong = String::new();
    run_all(Machine { devices: "" }, None, is_tried, |example, output| {
        let (status, errors) = (output.status.code(), text(&output.stderr));
        // The command behind `--` has its own errors.
        if output.status.success() || is_stopped(output) || example.contains(" -- ") {
            return;
        }
        let (_, device) = example.split_once("--dev ").unwrap_or_default();
        let device = device.split(' ').next().unwrap_or_default();
        let words =
            example.split_once("underload ").map_or("", |it| it.1).split([' ', '=']).skip(1);
        let mut words = words.filter(|word| !word.starts_with('-') && word.len() > 2);
        let is_named = words.any(|word| errors.contains(word));
        let is_named = is_named || others.iter().any(|part| errors.contains(part));
        let is_documented = matches!(status, Some(1..=3)) && errors.contains("error: ");
        if !is_documented || !is_named || !(errors.contains(device) || errors.contains("undo")) {
            let _ = writeln!(wrong, "{example}\n{status:?} {errors}");
        }
    });
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_manual_page_on_a_terminal_is_shown_by_man() {
    let folder = tempfile::tempdir().expect("a folder");
    let man = folder.path().join("man");
    fs::write(&man, "#!/bin/sh\necho \"shown by man $*: $(head -c 2)\"\ncat > /dev/null\n")
        .expect("a program");
    fs::set_permissions(&man, fs::Permissions::from_mode(0o755)).expect("it may run");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap_or_default());
    let typed = format!("{} man try", env!("CARGO_BIN_EXE_underload"));
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &typed, "/dev/null"]).env("PATH", &path).stdin(Stdio::null());
    let Ok(output) = terminal.output() else {
        eprintln!("SKIPPED a page on a terminal: `script` is not installed (package bsdutils)");
        return;
    };
    assert!(text(&output.stdout).contains("shown by man -l -: .i"), "{}", text(&output.stdout));
    let mut piped = Command::new(env!("CARGO_BIN_EXE_underload"));
    piped.args(["man", "try"]).env("PATH", path);
    assert!(text(&piped.output().expect("it starts").stdout).contains(".TH underload-try"));
}
