//! Benchmarks that are run by hand: the processor time of commands that shape, and the state of
//! the line after they are killed.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use underload_aqm::rng::Rng;
use underload_emu::machine::Process;

use super::{BOTH, FIFO, FOLLOWED, PROGRAM_PATH, World, kill, shaped_hour, terminate, text};

/// A far end behind `v0` that answers pings.
pub(super) const FAR_END: &str = "mkdir -p /run/netns && ip netns add far && \
     ip link set v1 netns far && ip addr add 10.9.0.1/24 dev v0 && \
     ip -n far addr add 10.9.0.2/24 dev v1 && ip -n far link set v1 up";

/// `cargo xtask bench shape-auto`: the processor time of `shape auto` with all that it starts,
/// while the line is idle and while a download fills it, at rates that alternate between 50 and
/// 100 Mbit/s.
#[test]
#[ignore = "prints a number within three minutes"]
fn following_a_line_costs_less_than_two_percent_of_a_core() {
    const SECONDS: u64 = 60;
    let Some(world) = World::new("following_a_line_costs") else { return };
    let folder = tempfile::tempdir().expect("a directory");
    world.shell(FAR_END);
    world.shell("tc -n far qdisc add dev v1 root tbf rate 100mbit burst 64k limit 2000000");
    let _server = serve_far(&world, folder.path());
    let words = ["--up-min", "20mbit", "--up-max", "150mbit", "--down-min", "20mbit", "--down-max"];
    let mut following = Command::new(PROGRAM_PATH);
    following.args(["shape", "auto", "--dev", "v0", "--reflector", "10.9.0.2", "--yes"]);
    following.args(words).args(["150mbit", "--queue", "fifo:limit=300p"]);
    following.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut following = world.namespace.spawn(following).expect("a program that starts");
    std::thread::sleep(Duration::from_secs(3));
    let process = following.child().id();
    let percent = |before_ms: u64| {
        (processor_ms(process) - before_ms) as f64 / (SECONDS * 1_000) as f64 * 100.0
    };
    let start_ms = processor_ms(process);
    std::thread::sleep(Duration::from_secs(SECONDS));
    let idle = percent(start_ms);
    let mut load = Command::new(PROGRAM_PATH);
    load.args(["measure", "10.9.0.2", "--down", "--idle", "1s", "--quiet", "--duration"]);
    load.arg(format!("{}s", SECONDS + 10)).env("HOME", folder.path()).current_dir(folder.path());
    let mut load = world.namespace.spawn(load).expect("a program that starts");
    std::thread::sleep(Duration::from_secs(5));
    let start_ms = processor_ms(process);
    let begin = Instant::now();
    for rate in ["50mbit", "100mbit"].iter().cycle() {
        world.shell(&format!(
            "tc -n far qdisc change dev v1 root tbf rate {rate} burst 64k limit 2000000"
        ));
        std::thread::sleep(Duration::from_secs(5));
        if begin.elapsed() >= Duration::from_secs(SECONDS) {
            break;
        }
    }
    let loaded = percent(start_ms) * SECONDS as f64 / begin.elapsed().as_secs_f64();
    eprintln!("of a core: {idle:.2} % idle, {loaded:.2} % loaded");
    let _ = load.wait();
    terminate(&mut following);
    assert_eq!(following.wait().expect("it ends").code(), Some(143));
    assert!(idle < 2.0 && loaded < 2.0, "{idle} % idle, {loaded} % loaded");
}

/// Returns the processor time of a process and its ended children, in ms.
fn processor_ms(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).expect("the process runs");
    let after_name = text.rsplit(") ").next().unwrap_or_default();
    // The kernel reports these times in hundredths of a second.
    let ticks = after_name.split(' ').skip(11).take(4);
    ticks.map(|it| it.parse::<u64>().expect("a number") * 10).sum()
}

/// Starts a server at the far end of [`FAR_END`].
fn serve_far(world: &World, home: &Path) -> Process {
    let mut server = Command::new("ip");
    server.args(["netns", "exec", "far", PROGRAM_PATH, "serve", "--bind", "10.9.0.2"]);
    server.args(["--anonymous", "--quota", "50GB", "--anonymous-quota", "50GB"]);
    server.env("HOME", home).stdout(Stdio::null()).stderr(Stdio::null());
    world.namespace.spawn(server).expect("a server")
}

/// A command that shapes, and the time in which it is killed: `suggest` shapes after it measured.
struct Killed {
    name: &'static str,
    words: Vec<String>,
    moments_ms: [u32; 2],
    /// Whether the command's change lasts until `off`.
    stays: bool,
}

/// Returns the commands that shape, with a server behind a full buffer for `suggest`, and a trial
/// whose first hour is shaped.
fn killed_commands(folder: &Path) -> [Killed; 4] {
    let words = |parts: &[&[&str]]| parts.concat().into_iter().map(str::to_owned).collect();
    let out = folder.display().to_string();
    let suggest = ["suggest", "10.9.0.2", "--dev", "v0", "--duration", "1s", "--budget", "2GB"];
    [
        ("apply", words(&[&["apply"], &BOTH, &FIFO, &["--within", "1s"]]), [0, 1_000], false),
        ("auto", words(&[&FOLLOWED, &FIFO]), [0, 3_000], true),
        ("suggest", words(&[&suggest, &FIFO]), [14_000, 40_000], false),
        (
            "trial",
            words(&[&["trial", "127.0.0.1:1", "--out", &out], &BOTH, &FIFO]),
            [0, 1_000],
            false,
        ),
    ]
    .map(|(name, words, moments_ms, stays)| Killed { name, words, moments_ms, stays })
}

impl World {
    fn start_shape(&self, words: &[String], home: &Path) -> Process {
        let mut command = Command::new(PROGRAM_PATH);
        command.arg("shape").args(words).env("HOME", home).current_dir(home);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.namespace.spawn(command).expect("a program that starts")
    }

    /// Waits at most five seconds until the queues are as before the command. Returns whether they
    /// are.
    fn is_restored(&self, before: &str) -> bool {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(5) {
            if self.state() == before && self.records().is_empty() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }

    /// Returns whether one of several pings is answered: full buffers drop some pings.
    fn line_works(&self) -> bool {
        let ping = ["-c", "5", "-i", "0.2", "-W", "2", "10.9.0.2"];
        self.output(Command::new("ping").args(ping)).status.success()
    }
}

/// `cargo xtask bench shape-kills`: kills each command that shapes at ten random moments, and
/// prints what was left.
#[test]
#[ignore = "prints a table within ten minutes"]
fn ten_kills_at_random_moments_leave_a_line_that_works() {
    let Some(world) = World::new("ten_kills") else { return };
    let folder = tempfile::tempdir().expect("a directory");
    world.shell(FAR_END);
    world.shell(BLOAT);
    let _server = serve_far(&world, folder.path());
    let before = world.state();
    let mut random = Rng::new(31).child("moments of kills");
    eprintln!("| command | killed after | shaped then | line works | after 5 s | after `off` |");
    eprintln!("|---|---:|---|---|---|---|");
    for killed in killed_commands(&folder.path().join("trial")) {
        for _ in 0..10 {
            shaped_hour(&folder.path().join("trial"));
            let [from_ms, until_ms] = killed.moments_ms;
            let moment_ms = from_ms + random.below(until_ms - from_ms);
            let mut process = world.start_shape(&killed.words, folder.path());
            std::thread::sleep(Duration::from_millis(u64::from(moment_ms)));
            kill(process.child().id() as i32);
            process.wait().expect("it ends");
            let (was_shaped, works) = (world.is_shaped(), world.line_works());
            let restored = world.is_restored(&before);
            // A process that was killed before its watcher started leaves a record of no change.
            let is_same = world.state() == before;
            let later = match (restored, is_same) {
                (true, _) => "as before",
                (false, true) => "as before, a record",
                (false, false) => "shaped",
            };
            let _ = world.shape(&["off"]);
            let end = if world.is_restored(&before) { "as before" } else { "DIFFERS" };
            let yes = |is: bool| if is { "yes" } else { "no" };
            eprintln!(
                "| {} | {moment_ms} ms | {} | {} | {later} | {end} |",
                killed.name,
                yes(was_shaped),
                yes(works)
            );
            assert!(works && end == "as before", "{}", world.state());
            assert!(is_same || killed.stays, "only a confirmed change stays: {}", world.state());
        }
    }
}

/// Buffers of 200 ms at both ends of the line, behind the shaper's device.
const BLOAT: &str = "tc -n far qdisc add dev v1 root tbf rate 20mbit burst 5k limit 500000 && \
     (ip -n far link add slow type ifb || true) && ip -n far link set slow up && \
     tc -n far qdisc replace dev slow root tbf rate 10mbit burst 5k limit 250000 && \
     tc -n far qdisc add dev v1 clsact && tc -n far filter add dev v1 ingress protocol all pref 1 \
     u32 match u32 0 0 action mirred egress redirect dev slow";

/// `cargo xtask bench shape-kills`, second table: a full disk, a second process and a device that
/// vanishes, for each command that shapes.
#[test]
#[ignore = "prints a table within five minutes"]
fn other_faults_leave_a_line_that_works() {
    let Some(world) = World::new("other_faults") else { return };
    let folder = tempfile::tempdir().expect("a directory");
    world.shell(FAR_END);
    world.shell(BLOAT);
    let _server = serve_far(&world, folder.path());
    let (home, before) = (folder.path(), world.state());
    let trial = home.join("trial");
    eprintln!("\n| command | fault | exit status | said | after |\n|---|---|---:|---|---|");
    for mut killed in killed_commands(&trial) {
        // Time for a second process, while the first waits to be confirmed.
        if let Some(place) = killed.words.iter().position(|word| word == "--within") {
            "8s".clone_into(&mut killed.words[place + 1]);
        }
        shaped_hour(&trial);
        full_disk(&world, &killed, home, &before);
        let mut first = world.start_shape(&killed.words, home);
        second_process(&world, &killed);
        vanished_device(&world, &killed, &mut first);
        world.shell(
            "ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 netns \
             far && ip addr add 10.9.0.1/24 dev v0 && ip -n far addr add 10.9.0.2/24 dev v1 && \
             ip -n far link set v1 up",
        );
        world.shell(BLOAT);
    }
}

/// Prints a row of the table of faults.
fn row(killed: &Killed, fault: &str, status: Option<i32>, said: &str, after: &str) {
    let status = status.map_or("-".to_owned(), |status| status.to_string());
    let said = said.lines().last().unwrap_or_default().replace('|', "/");
    eprintln!("| {} | {fault} | {status} | {said} | {after} |", killed.name);
}

fn full_disk(world: &World, killed: &Killed, home: &Path, before: &str) {
    world
        .shell("mkdir -p /run/underload && mount -t tmpfs -o size=4k,mode=700 none /run/underload");
    world.shell("head -c 4096 /dev/zero > /run/underload/fill || true");
    let mut command = Command::new(PROGRAM_PATH);
    command.arg("shape").args(&killed.words).env("HOME", home).current_dir(home);
    let full = world.output(&mut command);
    world.shell("umount /run/underload");
    let is_same = world.is_restored(before);
    let after = if is_same { "as before" } else { "DIFFERS" };
    row(killed, "/run is full", full.status.code(), &text(&full.stderr), after);
    assert!(is_same && !full.status.success(), "{}", world.state());
}

/// Starts a second process while the first one shapes.
fn second_process(world: &World, killed: &Killed) {
    // `suggest` and `trial` shape for an instant at first, to see whether they can.
    std::thread::sleep(Duration::from_millis(u64::from(killed.moments_ms[0].max(1_500))));
    let start = Instant::now();
    while !world.is_shaped() && start.elapsed() < Duration::from_mins(2) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let second = world.shape(&[&["apply", "--yes"], &BOTH[..], &FIFO].concat());
    row(
        killed,
        "a second process",
        second.status.code(),
        &text(&second.stderr),
        "the first goes on",
    );
    assert_eq!(second.status.code(), Some(2), "{}", text(&second.stderr));
}

fn vanished_device(world: &World, killed: &Killed, first: &mut Process) {
    world.shell("ip link del v0");
    // A trial waits for its next hour.
    if killed.name == "trial" {
        terminate(first);
    }
    let status = first.wait().expect("it ends").code();
    let start = Instant::now();
    let is_left = || world.state().contains("ifb-u");
    while is_left() && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = world.shape(&["off"]);
    let is_clean = !is_left() && world.records().is_empty();
    let after = if is_clean { "nothing" } else { "SOMETHING" };
    row(killed, "the device vanishes", status, "", after);
    assert!(is_clean, "{} {}", world.state(), world.records());
}
