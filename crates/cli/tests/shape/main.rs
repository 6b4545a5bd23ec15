//! `underload shape` with the machine's own `tc`, in a network namespace; and in a guest kernel
//! that has all queues, if one is built.

#![cfg(target_os = "linux")]
#![expect(clippy::print_stderr, reason = "tests print their tables, and why they were skipped")]

#[path = "../../../shape/examples/followed_lines/course.rs"]
#[expect(dead_code, reason = "the table of simulated lines uses all of it")]
mod course;
#[path = "../guest/mod.rs"]
mod guest;
mod kills;
#[path = "../../../shape/examples/followed_lines/lines.rs"]
mod lines;
mod newest_kernel;
mod others;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde_json::Value;
use underload_emu::guest::{Guest, Image, PROGRAM};
use underload_emu::machine::{Namespace, Process, privilege};
use underload_shape::trial::{Plan, Settings};

use kills::FAR_END;

const PROGRAM_PATH: &str = env!("CARGO_BIN_EXE_underload");
/// A queue that every kernel has, also one without AQM.
const FIFO: [&str; 2] = ["--queue", "fifo:limit=100p"];
const BOTH: [&str; 6] = ["--dev", "v0", "--up", "5mbit", "--down", "20mbit"];

/// A network with the devices `v0` and `v1`, which are connected.
struct World {
    namespace: Namespace,
}

impl World {
    fn new(test: &str) -> Option<Self> {
        if !privilege::can_create_namespaces() {
            eprintln!(
                "SKIPPED {test}: this process may not create network namespaces (run as root)"
            );
            return None;
        }
        let world = Self { namespace: Namespace::create(test).expect("a namespace") };
        // The records, and the devices of this network alone.
        world.shell("mount -t tmpfs none /run && mount -t sysfs none /sys");
        world.shell("ip link add v0 type veth peer name v1 && ip link set v0 up");
        world.shell("ip link set v1 up && ip link set lo up");
        let missing = [
            "tc qdisc add dev v0 root tbf rate 1mbit burst 5k latency 1s",
            "ip link add probe type ifb && ip link del probe",
            "tc qdisc del dev v0 root",
        ];
        for command in missing {
            let tried = world.output(Command::new("sh").args(["-c", command]));
            if !tried.status.success() {
                eprintln!("SKIPPED {test}: `{command}`: {}", text(&tried.stderr));
                return None;
            }
        }
        Some(world)
    }

    fn output(&self, command: &mut Command) -> Output {
        let mut owned = Command::new(command.get_program());
        owned.args(command.get_args());
        for (key, value) in command.get_envs() {
            owned.env(key, value.unwrap_or_default());
        }
        owned.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = self.namespace.spawn(owned).expect("a program that starts");
        let mut read = (String::new(), String::new());
        let child = process.child();
        let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        std::thread::scope(|scope| {
            use std::io::Read as _;
            scope.spawn(|| out.read_to_string(&mut read.0));
            scope.spawn(|| err.read_to_string(&mut read.1));
        });
        let status = process.wait().expect("it ends");
        Output { status, stdout: read.0.into_bytes(), stderr: read.1.into_bytes() }
    }

    fn shell(&self, script: &str) -> String {
        let output = self.output(Command::new("sh").args(["-c", script]));
        assert!(output.status.success(), "{script}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn shape(&self, arguments: &[&str]) -> Output {
        self.output(Command::new(PROGRAM_PATH).arg("shape").args(arguments))
    }

    fn apply(&self, more: &[&str]) -> Output {
        self.shape(&[&["apply"], &BOTH[..], &FIFO[..], more].concat())
    }

    /// Starts `shape apply` and does not wait for it.
    fn start(&self, more: &[&str]) -> underload_emu::machine::Process {
        let mut command = Command::new(PROGRAM_PATH);
        command.args(["shape", "apply"]).args(BOTH).args(FIFO).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.namespace.spawn(command).expect("a program that starts")
    }

    /// Queues, filters and devices.
    fn state(&self) -> String {
        self.shell(
            "tc -j -d qdisc show; tc -j filter show dev v0 ingress 2>/dev/null; \
             ip -j link | grep -o '\"ifname\":\"[^\"]*\"'",
        )
    }

    fn is_shaped(&self) -> bool {
        let state = self.state();
        state.contains("756c:") || state.contains("ul-up")
    }

    /// Waits until the network has the state `state` again.
    fn wait_for(&self, state: &str, what: &str) {
        let start = Instant::now();
        while self.state() != state {
            assert!(start.elapsed() < Duration::from_secs(20), "{what}: {}", self.state());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the change runs to its end or is about to.
    fn wait_until_shaped(&self) {
        let start = Instant::now();
        while !text(&self.shape(&["show"]).stdout).contains("undone in") || !self.is_shaped() {
            assert!(start.elapsed() < Duration::from_secs(20), "{}", self.state());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn records(&self) -> String {
        self.shell("ls /run/underload 2> /dev/null || true")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn assert_fails(output: &Output, status: i32, expected: &str) {
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{errors}");
    assert!(errors.contains(expected), "expected {expected}: {errors}");
}

#[test]
fn a_confirmed_change_lasts_until_off_which_restores_the_queues() {
    let Some(world) = World::new("a_confirmed_change_lasts_until_off_which_restores_the_queues")
    else {
        return;
    };
    for root in ["", "tc qdisc replace dev v0 root handle 5: pfifo limit 77"] {
        world.shell(root);
        let before = world.state();
        let mut applying = world.start(&["--within", "60s"]);
        world.wait_until_shaped();
        assert!(world.state().contains(r#""kind":"pfifo","handle":"756d:","dev":"ifb-u"#));
        assert!(world.shape(&["confirm"]).status.success());
        assert!(applying.wait().expect("it ends").success());
        let shown = text(&world.shape(&["show"]).stdout);
        assert!(shown.contains("v0: fifo:limit=100p, confirmed\n  up    5.00 Mbit/s: "), "{shown}");
        let numbers = text(&world.shape(&["show", "--json"]).stdout);
        let numbers: Value = serde_json::from_str(&numbers).expect("one document");
        assert_eq!(numbers["devices"][0]["down"]["limit_bit_per_s"], 20_000_000, "{numbers}");
        assert_fails(&world.apply(&[]), 2, "v0 is already shaped by underload");
        let off = world.shape(&["off"]);
        assert!(off.status.success(), "{}", text(&off.stderr));
        assert_eq!(world.state(), before);
        assert_eq!(world.records(), "");
    }
    assert_fails(&world.shape(&["off"]), 2, "underload shapes no device");
}

#[test]
fn an_unconfirmed_change_is_undone() {
    let Some(world) = World::new("an_unconfirmed_change_is_undone") else { return };
    let before = world.state();
    let output = world.apply(&["--within", "1s"]);
    assert_fails(&output, 1, "v0 is as it was before: the change was not confirmed");
    assert_eq!(world.state(), before);
    assert_eq!(world.records(), "");
    // Ctrl-C does not wait for the deadline.
    let mut applying = world.start(&["--within", "60s"]);
    world.wait_until_shaped();
    terminate(&mut applying);
    assert_eq!(applying.wait().expect("it ends").code(), Some(143));
    assert_eq!(world.state(), before);
}

/// The watchers of this network: processes whose arguments end with one of its records.
fn watchers(applier: u32) -> Vec<i32> {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let watchers = processes.filter_map(|entry| {
        let number: i32 = entry.file_name().to_str()?.parse().ok()?;
        let words = text(&fs::read(entry.path().join("cmdline")).ok()?);
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let is_child = status.contains(&format!("\nPPid:\t{applier}\n"));
        (is_child && words.contains("\0watch\0")).then_some(number)
    });
    watchers.collect()
}

fn kill(process: i32) {
    use nix::sys::signal::{Signal, kill};
    kill(nix::unistd::Pid::from_raw(process), Signal::SIGKILL).expect("a process of this test");
}

/// Sends SIGTERM to the group of a program of this test.
fn terminate(process: &mut Process) {
    use nix::sys::signal::{Signal, killpg};
    let group = nix::unistd::Pid::from_raw(process.child().id() as i32);
    killpg(group, Signal::SIGTERM).expect("a running program");
}

#[test]
fn the_network_is_restored_after_any_kill() {
    let Some(world) = World::new("the_network_is_restored_after_any_kill") else { return };
    let before = world.state();
    for moment in 0..25 {
        let mut applying = world.start(&["--within", "1s"]);
        std::thread::sleep(Duration::from_millis(moment * 4));
        let process = applying.child().id();
        kill(process as i32);
        applying.wait().expect("it ends");
        world.wait_for(&before, &format!("killed after {} ms", moment * 4));
    }
    // Kills only the watcher: the process that applied the change undoes it.
    let mut applying = world.start(&["--within", "1s"]);
    world.wait_until_shaped();
    let own = watchers(applying.child().id());
    assert_eq!(own.len(), 1, "the premise: one watcher");
    own.into_iter().for_each(kill);
    assert_eq!(applying.wait().expect("it ends").code(), Some(1));
    assert_eq!(world.state(), before);
    // Kills watcher and process: the next command undoes the change, also `off` without a name.
    let own_change = || world.apply(&["--within", "1s"]);
    let off = || world.shape(&["off"]);
    let told = "v0: an earlier change was not confirmed, and is now undone";
    let next: &[(&dyn Fn() -> Output, &str)] =
        &[(&own_change, told), (&off, "not shaped any more")];
    for (next, expected) in next {
        let mut applying = world.start(&["--within", "1s"]);
        world.wait_until_shaped();
        let own = watchers(applying.child().id());
        kill(applying.child().id() as i32);
        own.into_iter().for_each(kill);
        applying.wait().expect("it ends");
        assert!(world.is_shaped(), "the premise: nobody undid it");
        std::thread::sleep(Duration::from_millis(4_500));
        let output = next();
        let said = text(&output.stderr) + &text(&output.stdout);
        assert!(said.contains(*expected), "{said}");
        assert_eq!(world.state(), before);
        assert_eq!(world.records(), "");
    }
}

#[test]
fn a_command_that_fails_in_the_middle_changes_nothing() {
    let Some(world) = World::new("a_command_that_fails_in_the_middle_changes_nothing") else {
        return;
    };
    let before = world.state();
    let folder = tempfile::tempdir().expect("a directory");
    let count = folder.path().join("count");
    let mut failed = 0;
    for number in 1..20 {
        for tool in ["tc", "ip"] {
            let real = world.shell(&format!("PATH=$PATH:/usr/sbin:/sbin command -v {tool}"));
            let path = folder.path().join(tool);
            // Commands that read may fail as well; only the chosen one fails.
            let script = format!(
                "#!/bin/sh\necho >> {0}\n[ $(wc -l < {0}) = {number} ] && {{ echo broken >&2; exit \
                 2; }}\nexec {1} \"$@\"\n",
                count.display(),
                real.trim()
            );
            fs::write(&path, script).expect("a script");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
        }
        let _ = fs::remove_file(&count);
        let paths = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(PROGRAM_PATH);
        command.args(["shape", "apply", "--yes"]).args(BOTH).args(FIFO).env("PATH", paths);
        let output = world.output(&mut command);
        if output.status.success() {
            assert!(world.shape(&["off"]).status.success());
            break;
        }
        failed += 1;
        assert_fails(&output, 1, "broken");
        assert_eq!(world.state(), before, "command {number}: {}", text(&output.stderr));
        assert_eq!(world.records(), "");
    }
    assert!(failed >= 8, "the premise: most commands failed once ({failed})");
}

#[test]
fn a_device_that_vanishes_leaves_nothing_behind() {
    let Some(world) = World::new("a_device_that_vanishes_leaves_nothing_behind") else { return };
    let mut applying = world.start(&["--within", "1s"]);
    world.wait_until_shaped();
    world.shell("ip link del v0");
    assert_eq!(applying.wait().expect("it ends").code(), Some(1));
    assert!(!world.state().contains("ifb-u"), "{}", world.state());
    assert_eq!(world.records(), "");
    // A confirmed change, after which another device gets the shaped device's name.
    world.shell("ip link add v0 type veth peer name v1 && ip link set v0 up");
    assert!(world.apply(&["--yes"]).status.success());
    world.shell("ip link del v0 && ip link add v0 type veth peer name v1 && ip link set v0 up");
    let output = world.apply(&["--yes"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // The device is replaced, as when a PPP connection is established again.
    world.shell("ip link del v0 && ip link add v0 type veth peer name v1 && ip link set v0 up");
    let off = world.shape(&["off"]);
    assert!(off.status.success(), "{}", text(&off.stderr));
    assert_eq!(text(&off.stdout), "v0: not shaped any more\n");
    assert!(!world.state().contains("ifb-u"), "{}", world.state());
    assert_eq!(world.records(), "");
    assert_eq!(world.shape(&["off"]).status.code(), Some(2));
}

#[test]
fn devices_that_cannot_be_shaped_are_refused_with_advice() {
    let Some(world) = World::new("devices_that_cannot_be_shaped_are_refused_with_advice") else {
        return;
    };
    let before = world.state();
    let apply = |words: &[&str]| world.shape(&[&["apply", "--yes"], words].concat());
    for (words, status, expected) in [
        (&["--dev", "vv", "--up", "5mbit"][..], 2, "no device `vv`; this machine has v1, v0"),
        (&["--dev", "v0", "--up", "0mbit"], 2, "expected more than 0"),
        (&["--dev", "v0", "--up", "1bit"], 2, "expected at least 8kbit"),
        (&["--dev", "v0", "--up", "50gbit"], 2, "v0 passes 10gbit at most"),
        (&["--dev", "v0"], 2, "--up RATE, --down RATE, or both"),
        (
            &["--dev", "v0", "--up", "5mbit", "--queue", "bode"],
            2,
            "no Linux queue `bode`; `underload kernel-queue` has bode and docsis-pie",
        ),
        (&["--dev", "v0", "--up", "5mbit", "--queue", "x"], 2, "red, sfb, cake_mq"),
        (&["--dev", "lo", "--up", "5mbit", "--queue", "cake_mq"], 2, "lo has one transmit queue"),
    ] {
        assert_fails(&apply(words), status, expected);
        assert_eq!(world.state(), before, "{words:?}");
    }
    let cake = apply(&["--dev", "v0", "--up", "5mbit"]);
    if cake.status.success() {
        assert!(world.shape(&["off"]).status.success());
    } else {
        assert_fails(&cake, 1, "this kernel has no queue `cake`");
    }
    assert_eq!(world.state(), before);
    world.shell("tc qdisc add dev v0 root tbf rate 1mbit burst 5k latency 1s");
    assert_fails(&world.apply(&["--yes"]), 2, "underload did not set up: `tbf ");
    world.shell("tc qdisc del dev v0 root; tc qdisc add dev v0 clsact");
    world.shell("tc filter add dev v0 ingress protocol all pref 7 u32 match u32 0 0 classid 1:1");
    assert_fails(&world.apply(&["--yes"]), 2, "`u32` with pref 7");
}

#[test]
fn a_full_disk_and_missing_rights_change_nothing() {
    let Some(world) = World::new("a_full_disk_and_missing_rights_change_nothing") else { return };
    let before = world.state();
    let mut stranger = Command::new(PROGRAM_PATH);
    stranger.args(["shape", "apply"]).args(BOTH).args(FIFO).uid(65_534).gid(65_534);
    stranger.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = stranger.output().expect("it starts");
    assert_fails(&output, 2, "run it as root (`sudo underload shape apply ...`)");
    world.shell("mount -t tmpfs -o size=4k none /run && mkdir -p /run/underload");
    world.shell("head -c 4096 /dev/zero > /run/fill || true");
    let output = world.apply(&["--yes"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(world.state(), before);
}

/// Arguments of `shape auto` towards [`FAR_END`], with 1 Mbit/s as the geometric mean of the rates.
const FOLLOWED: [&str; 14] = [
    "auto", "--dev", "v0", "--reflector", "10.9.0.2", "--up-min", "500kbit", "--up-max", "2mbit",
    "--down-min", "500kbit", "--down-max", "2mbit", "--yes",
];

/// Starts `shape auto`, and waits until the device is shaped.
fn start_following(world: &World) -> underload_emu::machine::Process {
    let mut command = Command::new(PROGRAM_PATH);
    command.arg("shape").args(FOLLOWED).args(FIFO);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let following = world.namespace.spawn(command).expect("a program that starts");
    let start = Instant::now();
    while !text(&world.shape(&["show"]).stdout).contains(", confirmed") {
        assert!(start.elapsed() < Duration::from_mins(1), "{}", world.state());
        std::thread::sleep(Duration::from_millis(20));
    }
    following
}

#[test]
fn the_rates_of_a_followed_line_change_and_its_end_restores_the_queues() {
    let Some(world) =
        World::new("the_rates_of_a_followed_line_change_and_its_end_restores_the_queues")
    else {
        return;
    };
    world.shell(FAR_END);
    let before = world.state();
    let mut following = start_following(&world);
    assert_fails(&world.apply(&["--yes"]), 2, "v0 is already shaped by underload");
    // The load grows until the rates follow, even on a busy machine.
    let rate = || world.shell("tc qdisc show dev v0 | grep -o 'rate [0-9A-Za-z]*'");
    let (first, start, mut loads) = (rate(), Instant::now(), Vec::new());
    while rate() == first {
        assert!(start.elapsed() < Duration::from_mins(2), "the rate stays {first}");
        let mut load = Command::new("ping");
        load.args(["-q", "-i", "0.02", "-s", "1400", "10.9.0.2"]).stdout(Stdio::null());
        loads.push(world.namespace.spawn(load).expect("ping"));
        std::thread::sleep(Duration::from_secs(3));
    }
    let shown = text(&world.shape(&["show"]).stdout);
    assert!(shown.contains("v0: fifo:limit=100p, confirmed"), "{shown}");
    assert!(world.state().contains("756d:"), "the queue below stays: {}", world.state());
    terminate(&mut following);
    assert_eq!(following.wait().expect("it ends").code(), Some(143));
    assert_eq!((world.state(), world.records()), (before.clone(), String::new()));

    // After a kill the line stays shaped until `off`.
    let mut following = start_following(&world);
    kill(following.child().id() as i32);
    following.wait().expect("it ends");
    assert!(world.is_shaped());
    assert!(world.shape(&["off"]).status.success());
    assert_eq!((world.state(), world.records()), (before.clone(), String::new()));

    // `off` in another process ends the follower, which then makes no further change.
    let mut following = start_following(&world);
    assert!(world.shape(&["off"]).status.success());
    assert_eq!(following.wait().expect("it ends").code(), Some(0));
    assert_eq!((world.state(), world.records()), (before, String::new()));
    drop(loads);
}

#[test]
fn lines_that_cannot_be_followed_are_refused() {
    let Some(world) = World::new("lines_that_cannot_be_followed_are_refused") else { return };
    let before = world.state();
    let follow = |words: &[&str]| world.shape(&[&["auto", "--yes", "--dev", "v0"], words].concat());
    let rates = ["--up-min", "5mbit", "--up-max", "9mbit"];
    for (words, status, expected) in [
        (&["--reflector", "127.0.0.1"][..], 2, "nothing to follow: expected --up-min"),
        (&["--reflector", "127.0.0.1", "--up-min", "5mbit"], 2, "--up-max"),
        (
            &["--reflector", "127.0.0.1", "--up-min", "9mbit", "--up-max", "5mbit"],
            2,
            "--up-min is above --up-max",
        ),
        (&rates, 2, "--reflector"),
        (&[&["--reflector", "no such host"][..], &rates].concat(), 2, "--reflector no such host"),
    ] {
        assert_fails(&follow(words), status, expected);
        assert_eq!(world.state(), before, "{words:?}");
    }
}

#[test]
fn a_search_or_a_trial_that_cannot_begin_is_refused_and_changes_nothing() {
    let Some(world) =
        World::new("a_search_or_a_trial_that_cannot_begin_is_refused_and_changes_nothing")
    else {
        return;
    };
    let folder = tempfile::tempdir().expect("a directory");
    let foreign = folder.path().join("foreign");
    fs::create_dir(&foreign).expect("a directory");
    fs::write(foreign.join("letter"), "dear").expect("a file");
    let (path, file) = (|path: &Path| path.display().to_string(), foreign.join("letter"));
    let trial = folder.path().join("trial");
    let before = world.state();
    let queue = ["--queue", FIFO[1]];
    let up = ["--up", "5mbit", "--queue", FIFO[1]];
    for (words, status, expected) in [
        (&[&["suggest", "127.0.0.1:1", "--dev", "vv"][..], &queue].concat(), 2, "vv"),
        (&["suggest", "127.0.0.1:1", "--dev", "v0", "--limit", "0s"].to_vec(), 2, "--limit"),
        (&["suggest", "a", "--dev", "v0", "--queue", "bode"].to_vec(), 2, "no Linux queue `bode`"),
        // The command has tried the queue by then.
        (&[&["suggest", "127.0.0.1:1", "--dev", "v0"][..], &queue].concat(), 1, "127.0.0.1:1"),
        (&[&["trial", "a", "--dev", "v0", "--length", "5h"][..], &up].concat(), 2, "expected 12h"),
        (&["trial", "a", "--dev", "v0", "--length", "7d"].to_vec(), 2, "--up RATE, --down RATE"),
        (
            &[&["trial", "a", "--dev", "v0", "--not", "0:00-24:00"][..], &up].concat(),
            2,
            "whole day",
        ),
        (
            &[&["trial", "a", "--dev", "v0", "--out", &path(&foreign)][..], &up].concat(),
            2,
            "foreign",
        ),
        (&[&["trial", "a", "--dev", "vv", "--out", &path(&trial)][..], &up].concat(), 2, "vv"),
    ] {
        let mut command = Command::new(PROGRAM_PATH);
        command.arg("shape").args(words).env("HOME", folder.path());
        let output = world.output(&mut command);
        assert_fails(&output, status, expected);
        assert_eq!((world.state(), world.records()), (before.clone(), String::new()), "{words:?}");
    }
    assert_eq!(fs::read_to_string(file).expect("a file"), "dear");
    assert!(!trial.exists(), "a plan that was never begun");
}

/// No measurement runs yet: measurements begin two minutes after the hour.
#[test]
fn a_trial_ends_with_its_process_and_is_continued_by_one() {
    let Some(world) = World::new("a_trial_ends_with_its_process_and_is_continued_by_one") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a directory");
    let directory = folder.path().join("trial");
    let (out, before) = (directory.display().to_string(), world.state());
    shaped_hour(&directory);
    let words = [&["shape", "trial", "127.0.0.1:1", "--out", &out], &BOTH[..], &FIFO].concat();
    let start = || {
        let mut command = Command::new(PROGRAM_PATH);
        command.args(&words).env("HOME", folder.path()).stdin(Stdio::null());
        let process = world.namespace.spawn(command).expect("a program that starts");
        let begin = Instant::now();
        // The command first shapes the device for an instant, at most 5 min: a kill before the
        // hour's own change has a watcher leaves a record, which only the next command removes.
        let hour_s = || -> Option<f64> {
            let shown = text(&world.shape(&["show"]).stdout);
            let (_, left) = shown.split_once("undone in ")?;
            let (seconds, _) = left.split_once(" s, or with the command that measures")?;
            seconds.parse().ok()
        };
        while hour_s().is_none_or(|left_s| left_s < 1_000.0) {
            assert!(begin.elapsed() < Duration::from_secs(20), "{}", world.state());
            std::thread::sleep(Duration::from_millis(10));
        }
        process
    };
    let mut trial = start();
    let second = world.output(Command::new(PROGRAM_PATH).args(&words));
    assert_fails(&second, 1, "another process runs this trial");
    kill(trial.child().id() as i32);
    trial.wait().expect("it ends");
    world.wait_for(&before, "killed");
    // The watcher removes the record last; until then `show` would show the killed trial's.
    let killed = Instant::now();
    while !world.records().is_empty() {
        assert!(killed.elapsed() < Duration::from_secs(20), "{}", world.records());
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut trial = start();
    terminate(&mut trial);
    assert_eq!(trial.wait().expect("it ends").code(), Some(143));
    assert_eq!((world.state(), world.records()), (before.clone(), String::new()));
    let other = [&words[..], &["--overhead", "docsis"]].concat();
    let other = world.output(Command::new(PROGRAM_PATH).args(&other));
    assert_fails(&other, 2, "choose another --out");
    assert_eq!(world.state(), before);
}

/// Writes the plan of a trial whose present hour is shaped.
fn shaped_hour(out: &Path) {
    let _ = fs::remove_dir_all(out);
    fs::create_dir(out).expect("a directory");
    let start_s = UNIX_EPOCH.elapsed().expect("a clock").as_secs() as i64;
    let plan = |seed: u64| Plan { start_s, slots: 12, seed };
    let plan = (0..64).map(plan).find(|plan| plan.is_shaped(0)).expect("half of all seeds");
    let shaping = "sudo underload shape apply --dev v0 --up 5mbit --down 20mbit --queue \
                   fifo:limit=100p";
    let settings = Settings::new(plan, "127.0.0.1:1".to_owned(), shaping.to_owned());
    let line = serde_json::to_string(&settings).expect("a line") + "\n";
    fs::write(out.join("trial.jsonl"), line).expect("a file");
}

/// Runs a script in a guest kernel, which has all queues, and returns what it prints.
fn in_guest(kernel: &Path, script: &str) -> String {
    in_guest_within(Duration::from_mins(5), kernel, script)
}

fn in_guest_within(limit: Duration, kernel: &Path, script: &str) -> String {
    let folder = tempfile::tempdir().expect("a directory");
    let init = folder.path().join(PROGRAM);
    let text = format!(
        "#!/bin/sh\nexport PATH=/usr/sbin:/usr/bin:/sbin:/bin\nmount -t proc proc /proc\n\
         mount -t sysfs sysfs /sys\nmount -t tmpfs tmpfs /run\nmkdir /run/shared\n\
         mount -t hostfs -o /proc/self/cwd hostfs /run/shared\n\
         exec > /run/shared/out 2>&1 < /dev/null\n\
         ip link add v0 type veth peer name v1\nip link set v0 up\nip link set v1 up\n\
         underload() {{ {PROGRAM_PATH} \"$@\"; }}\n{script}\necho end of script\n"
    );
    fs::write(&init, text).expect("a script");
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).expect("a mode");
    let image = Image::open(kernel).expect("a kernel");
    let guest = Guest::start(&image, folder.path(), &[], 1, 0).expect("a guest");
    // The kernel panics when its first process ends.
    let ended = guest.wait(limit, &false.into());
    let out = fs::read_to_string(folder.path().join("out")).unwrap_or_default();
    assert!(out.ends_with("end of script\n"), "{ended:?}: {out}");
    out
}

#[test]
fn queues_of_all_kinds_are_restored_with_their_options() {
    let Some(kernel) = guest::kernel("queues_of_all_kinds_are_restored_with_their_options") else {
        return;
    };
    let kinds = [
        "pfifo limit 55",
        "pfifo_fast",
        "fq_codel",
        "fq_codel target 7777us interval 123456us noecn quantum 300 ce_threshold 2ms",
        "codel target 128us ecn",
        "pie target 15003us tupdate 30ms ecn bytemode",
        "fq_pie flows 64 ecn_prob 20 ecn",
        "fq limit 100 flow_limit 10 horizon_cap",
        "cake",
        "handle 1: cake bandwidth 20mbit besteffort pppoe-ptm ether-vlan wash",
        "cake bandwidth 1234567bit ack-filter-aggressive no-split-gso diffserv8 fwmark 0xff00",
    ];
    let steps = kinds.map(|kind| {
        format!(
            "tc qdisc replace dev v0 root {kind}\nbefore=$(tc -j -d qdisc show dev v0)\n\
             underload shape apply --dev v0 --up 20mbit --down 30mbit --replace --yes > /run/said \
             || cat /run/said\n\
             tc qdisc show dev v0 | grep -q 'cake 756c:' || echo 'not shaped: {kind}'\n\
             underload shape off > /run/said || cat /run/said\n\
             [ \"$before\" = \"$(tc -j -d qdisc show dev v0)\" ] || echo 'differs: {kind}'\n"
        )
    });
    assert_eq!(in_guest(&kernel, &steps.concat()), "end of script\n");
}

#[test]
fn every_queue_shapes_in_the_guest_and_cake_shows_its_classes() {
    let Some(kernel) = guest::kernel("every_queue_shapes_in_the_guest_and_cake_shows_its_classes")
    else {
        return;
    };
    let out = in_guest(
        &kernel,
        "for queue in cake fq-codel fq-pie codel pie sfb fifo cake:tins=diffserv4; do\n\
         underload shape apply --dev v0 --up 20mbit --down 30mbit --queue $queue --overhead vdsl2 \
         --yes\nunderload shape show --json | grep -c limit_bit_per_s\nunderload shape off\ndone\n\
         underload shape apply --dev v0 --up 20mbit --yes\nip addr add 10.0.0.1/24 dev v0\n\
         ping -c 1 -W 1 10.0.0.2\nunderload shape show\n\
         underload shape off\nunderload shape apply --dev v0 --up 20mbit\n\
         tc qdisc show dev v0\n",
    );
    assert_eq!(out.matches("\n2\nv0: not shaped any more\n").count(), 8, "{out}");
    assert!(out.contains("v0: cake, confirmed\n  up    20.00 Mbit/s: "), "{out}");
    assert!(out.contains("    best effort  0.0 MB, 0 dropped, 0 marked, "), "{out}");
    // The guest's virtual time passes without a real wait of 30 s.
    let undone = "v0 is as it was before: the change was not confirmed\nqdisc noqueue 0: ";
    assert!(out.contains(undone), "{out}");
}

/// A home, a modem with full buffers (312,500 and 500,000 bytes at 10 and 20 Mbit/s), and a server
/// 20 ms away.
const BLOATED_MODEM: &str = "
export HOME=/run XDG_RUNTIME_DIR=/run
ip link del v0
mkdir /run/netns
ip netns add modem
ip netns add far
ip link add v0 type veth peer name v1 netns modem
ip -n modem link add m0 type veth peer name s0 netns far
ip addr add 10.0.0.1/24 dev v0
ip link set v0 up
ip route add default via 10.0.0.2
ip -n modem addr add 10.0.0.2/24 dev v1
ip -n modem link set v1 up
ip -n modem addr add 10.0.1.1/24 dev m0
ip -n modem link set m0 up
ip netns exec modem sysctl -qw net.ipv4.ip_forward=1
ip -n far addr add 10.0.1.2/24 dev s0
ip -n far link set s0 up
ip -n far link set lo up
ip -n far route add default via 10.0.1.1
tc -n modem qdisc add dev m0 root tbf rate 10mbit burst 5k limit 312500
tc -n modem qdisc add dev v1 root tbf rate 20mbit burst 5k limit 500000
tc -n far qdisc add dev s0 root netem delay 20ms limit 10000
cd /run
serve() { ip netns exec far \"$program\" serve --bind 10.0.1.2 --anonymous --quota 50GB \\
  --anonymous-quota 50GB; }
serve > /run/server 2>&1 &
sleep 3
measure() { underload measure 10.0.1.2 --duration 4s --idle 1s -q | grep -E 'adds .* grade'; }
";

/// Returns the milliseconds that the load adds, down and up, for each printed measurement.
fn added_ms(out: &str) -> Vec<u32> {
    let values = out.split("The load adds ").skip(1).map(|rest| rest.split(' ').next());
    values.map(|value| value.unwrap_or_default().parse().expect("milliseconds")).collect()
}

#[test]
fn a_bloated_modem_is_cured() {
    let Some(kernel) = guest::kernel("a_bloated_modem_is_cured") else { return };
    let cures = ["cake", "fq-codel"].map(|queue| {
        format!(
            "echo {queue}\nunderload shape apply --dev v0 --up 9500kbit --down 19mbit --queue \
             {queue} --yes > /run/said || cat /run/said\nmeasure\nunderload shape off > /run/said\n"
        )
    });
    let cures = cures.concat();
    let script = format!("program={PROGRAM_PATH}\n{BLOATED_MODEM}echo before\nmeasure\n{cures}");
    let out = in_guest(&kernel, &script);
    let added = added_ms(&out);
    let [before_down, before_up, after @ ..] = added.as_slice() else { panic!("{out}") };
    assert!(*before_down > 150 && *before_up > 150, "the premise: full buffers: {out}");
    assert_eq!(after.len(), 4, "{out}");
    assert!(after.iter().all(|added| *added <= 10), "{out}");
}

/// Measures before and after, applies what is suggested, and ends a search in three ways.
#[test]
fn the_suggestion_cures_a_bloated_modem_and_an_aborted_search_leaves_nothing() {
    let test = "the_suggestion_cures_a_bloated_modem_and_an_aborted_search_leaves_nothing";
    let Some(kernel) = guest::kernel(test) else { return };
    let script = format!(
        "program={PROGRAM_PATH}\n{BLOATED_MODEM}{SEARCHES}\
         suggest > /run/said 2> /run/notes || cat /run/said /run/notes\n\
         cat /run/said\n\
         eval \"$(sed -n 's/^  \\(underload shape write .*\\)/\\1/p' /run/said)\"\nsame whole\n\
         eval \"$(sed -n 's/^  sudo \\(underload shape apply .*\\)/\\1 --yes/p' /run/said)\"\n\
         measure\nunderload shape off\nsame off\n\
         begin\nkill -TERM $search\nwait $search\nsame Ctrl-C\n\
         begin\nkill -KILL $search\nwait $search\nsleep 3\nsame kill\n\
         begin\nip link del v0\nwait $search\ntail -1 /run/notes\nip link | grep ifb-u\n\
         ls /run/underload\n"
    );
    let out = in_guest(&kernel, &script);
    eprintln!("{out}");
    for way in ["down", "up"] {
        let line = out.lines().find(|line| line.starts_with(&format!("{way} ")));
        let line = line.unwrap_or_else(|| panic!("{way}: {out}"));
        let added = added_ms(&line.replace("the load adds", "The load adds"));
        assert!(added.len() == 2 && added[0] > 150 && added[1] <= 32, "{line}");
        assert!(line.contains("; shaped to "), "{line}");
    }
    assert!(out.contains("  sudo underload shape apply --dev v0 --up "), "{out}");
    assert!(out.contains("[Install]\nWantedBy=sys-subsystem-net-devices-v0.device"), "{out}");
    let applied = &out[out.find("\nwhole: as before\n").expect("the search ended")..];
    assert!(applied.contains("v0: shaped by cake, up "), "{applied}");
    let after = added_ms(applied);
    assert!(after.len() == 2 && after.iter().all(|added| *added <= 12), "{applied}");
    for end in ["off", "Ctrl-C", "kill"] {
        assert!(out.contains(&format!("\n{end}: as before\n")), "{end}: {out}");
    }
    let last = out.lines().rev().nth(1).expect("lines");
    assert!(last.starts_with("error: "), "nothing is left of the device: {out}");
}

/// Shell functions that start a search and compare the network with what it was before.
const SEARCHES: &str = "
state() { tc -j -d qdisc show; tc -j filter show dev v0 ingress; ip -j link; }
state > /run/before
suggest() { \"$program\" shape suggest 10.0.1.2 --dev v0 --queue cake \"$@\"; }
same() { state > /run/now; cmp -s /run/before /run/now && echo \"$1: as before\" || \
  { echo \"$1: differs\"; cat /run/now; }; ls /run/underload; }
begin() { \"$program\" shape suggest 10.0.1.2 --dev v0 --queue cake --duration 1s > /run/said \
  2> /run/notes & search=$!; until grep -q trying /run/notes; do sleep 0.1; done; sleep 1
  underload shape show | grep -q 'or with the command' || echo 'nothing is tried'; }
";

#[test]
fn a_line_that_becomes_slower_is_followed() {
    let Some(kernel) = guest::kernel("a_line_that_becomes_slower_is_followed") else { return };
    let script = format!(
        "program={PROGRAM_PATH}\n{BLOATED_MODEM}\
         underload shape auto --dev v0 --reflector 10.0.1.2 --up-min 2mbit --up-max 20mbit \
         --down-min 4mbit --down-max 40mbit --yes > /run/followed 2>&1 &\nsleep 2\n\
         measure() {{ underload measure 10.0.1.2 --duration 12s --idle 1s -q | \
         grep -E 'adds .* grade|Mbit/s'; }}\nmeasure\n\
         tc -n modem qdisc change dev m0 root tbf rate 5mbit burst 5k limit 312500\n\
         tc -n modem qdisc change dev v1 root tbf rate 8mbit burst 5k limit 500000\n\
         echo slower\nmeasure\ntc qdisc show dev v0\nunderload shape off\ncat /run/followed\n"
    );
    let out = in_guest(&kernel, &script);
    let added = added_ms(&out);
    assert_eq!(added.len(), 4, "{out}");
    // Without `shape auto`, the modem's buffers would add 200 ms at the first rates and 500 ms at
    // the lower ones. The fall from 20 to 8 Mbit/s is within the third value.
    for (added, limit) in added.iter().zip([60, 60, 300, 60]) {
        assert!(*added <= limit, "{added} of {limit} ms: {out}");
    }
    assert!(out.contains("cake 756c: root"), "the premise: the kernel's CAKE: {out}");
}
