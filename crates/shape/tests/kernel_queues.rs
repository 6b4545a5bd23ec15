//! The C files of the kernel's queues decide as the queues of `underload-aqm` do.
//!
//! Each C file is compiled for this machine and replays the calls that a queue of `underload-aqm`
//! received. Every answer must be equal: stored or dropped and why, dropped at the head, sent. The
//! scripts are those of `crates/aqm/tests/vectors`, whose fates of BoDe are its authors' own.

#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "tests compile, and run what they compiled")]

#[path = "../../aqm/tests/scripts/mod.rs"]
mod scripts;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use proptest::prelude::*;
use underload_aqm::config::LinkFacts;
use underload_aqm::packet::{Meta, Packet};
use underload_aqm::qdisc::{
    Admit, Backlog, BoxedQdisc, Dequeue, DropReason, Observer, Qdisc, Stats,
};
use underload_aqm::rate::Rate;
use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_shape::kernel_queue::{KernelQueue, Law};

/// Calls as lines that the C programs read, and the lines that they must answer.
#[derive(Default)]
struct Log {
    calls: String,
    answers: String,
    dropped_early: u32,
    dropped_late: u32,
    refused: u32,
    arrivals: usize,
    /// Whether packets were left at the end of the previous transmission.
    is_busy: bool,
}

/// A queue that logs its calls.
struct Logged {
    queue: BoxedQdisc<usize>,
    rng: Rng,
    log: Arc<Mutex<Log>>,
    /// Whether the C program shapes to the rate of the link behind this queue.
    is_shaped: bool,
}

/// An observer that collects the packets dropped in one call.
struct Drops<'a> {
    ids: Vec<(usize, DropReason)>,
    outer: &'a mut dyn Observer<usize>,
}

impl Observer<usize> for Drops<'_> {
    fn dropped(&mut self, now: Time, packet: Packet<usize>, reason: DropReason) {
        self.ids.push((packet.payload, reason));
        self.outer.dropped(now, packet, reason);
    }
}

impl Log {
    fn call(&mut self, call: &str, answer: &str) {
        let _ = writeln!(self.calls, "{call}");
        let _ = writeln!(self.answers, "{answer}");
    }
}

impl Logged {
    /// Returns the queue of a setup, whose random numbers the C program draws, too.
    fn new(setup: &QueueSetup, shaped: Option<Rate>) -> (Self, Arc<Mutex<Log>>) {
        let queue = KernelQueue::new(&setup.config, shaped).expect("a queue of the kernel");
        let words: Vec<String> = queue.words(0).iter().map(ToString::to_string).collect();
        let log = Arc::new(Mutex::new(Log::default()));
        lock(&log).call(&format!("settings {}", words.join(" ")), "ready");
        let root = Rng::new(1);
        let rng = root.child("queue").child("docsis-pie");
        let queue = setup.build(&root);
        (Self { queue, rng, log: Arc::clone(&log), is_shaped: shaped.is_some() }, log)
    }
}

fn lock(log: &Mutex<Log>) -> std::sync::MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Qdisc<usize> for Logged {
    fn enqueue(
        &mut self,
        now: Time,
        packet: Packet<usize>,
        observer: &mut dyn Observer<usize>,
    ) -> Admit {
        let (len, random) = (packet.meta.len, self.rng.next_u64());
        let mut drops = Drops { ids: Vec::new(), outer: observer };
        let admit = self.queue.enqueue(now, packet, &mut drops);
        let mut log = lock(&self.log);
        log.arrivals += 1;
        let answer = match drops.ids.first() {
            None => "stored",
            Some((_, DropReason::Overlimit)) => {
                log.refused += 1;
                "full"
            }
            Some((_, reason)) => {
                assert_eq!(*reason, DropReason::Early);
                log.dropped_early += 1;
                "early"
            }
        };
        log.call(&format!("arrive {} {len} {random}", now.as_nanos()), answer);
        admit
    }

    fn dequeue(&mut self, now: Time, observer: &mut dyn Observer<usize>) -> Dequeue<usize> {
        let mut drops = Drops { ids: Vec::new(), outer: observer };
        let taken = self.queue.dequeue(now, &mut drops);
        let mut log = lock(&self.log);
        let now = now.as_nanos();
        if self.is_shaped && log.is_busy {
            // The link is free from now on, and was not before.
            log.call(&format!("take {}", now - 1), &format!("wait {now}"));
        }
        let mut answer = String::new();
        for (id, _) in &drops.ids {
            let _ = write!(answer, "dropped {id} ");
            log.dropped_late += 1;
        }
        match &taken {
            Dequeue::Packet(packet) => {
                let _ = write!(answer, "sent {}", packet.payload);
            }
            _ => answer += "empty",
        }
        log.is_busy = matches!(taken, Dequeue::Packet(_)) && !self.queue.backlog().is_empty();
        log.call(&format!("take {now}"), &answer);
        let mut state = Vec::new();
        self.queue.gauges(&mut |_, value| state.push(value.to_string()));
        if !state.is_empty() {
            log.call("state", &state.join(" "));
        }
        taken
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn stats(&self) -> Stats {
        self.queue.stats()
    }
}

/// Compiles a C file, which stops at undefined behaviour, and returns the program.
fn compile(law: Law) -> PathBuf {
    let file = format!("{}.c", law.name().replace('-', "_"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("queues").join(&file);
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "{}-{}",
        law.kind(),
        std::process::id()
    ));
    let compiled = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined"])
        .args(["-fno-sanitize-recover=all", "-o"])
        .args([&program, &source])
        .status()
        .expect("a C compiler: ./setup installs gcc");
    assert!(compiled.success(), "{file} does not compile");
    program
}

/// Checks that the C program answers each call as logged.
fn check(law: Law, log: &Log, what: &str) {
    static BODE: LazyLock<PathBuf> = LazyLock::new(|| compile(Law::Bode));
    static DOCSIS_PIE: LazyLock<PathBuf> = LazyLock::new(|| compile(Law::DocsisPie));
    let program: &Path = match law {
        Law::Bode => &BODE,
        Law::DocsisPie => &DOCSIS_PIE,
    };
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut input = child.stdin.take().expect("a pipe");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(log.calls.as_bytes()));
        child.wait_with_output().expect("it ends")
    });
    assert!(output.status.success(), "{what}: the program failed");
    let actual = String::from_utf8(output.stdout).expect("text");
    let calls = log.calls.lines().count();
    let compared = actual.lines().count();
    let pairs = log.calls.lines().zip(actual.lines().zip(log.answers.lines()));
    for (number, (call, (actual, expected))) in pairs.enumerate() {
        let actual = state(actual).unwrap_or_else(|| actual.to_owned());
        assert_eq!(actual, expected, "{what}: call {number}, `{call}`");
    }
    assert_eq!(compared, calls, "{what}: answers");
}

/// Formats a state of DOCSIS-PIE in C as the gauges of `underload-aqm`: probability, delay, burst
/// allowance, activity. `None` for another answer.
fn state(answer: &str) -> Option<String> {
    let words = answer.strip_prefix("state ")?.split(' ');
    let words: Vec<f64> = words.take(4).map(|word| scripts::number(word) as f64).collect();
    let [probability_q56, delay_ns, burst_left_ns, activity] = words[..] else { return None };
    let probability = probability_q56 / 2_f64.powi(56);
    Some(format!("{probability} {delay_ns} {burst_left_ns} {activity}"))
}

/// The law of a setup.
fn law(setup: &QueueSetup) -> Law {
    KernelQueue::new(&setup.config, None).expect("a queue of the kernel").law
}

/// Sends a script through a queue before a link, and lets the C program replay the calls. Returns
/// early drops, late drops, and arrivals without room.
fn check_script(packets: &[(Time, Meta)], queue: &str, link: &str, is_shaped: bool) -> [u32; 3] {
    let what = format!("{queue} before {link}");
    let link = LinkSetup::parse(link).expect("a link");
    let setup = QueueSetup::parse(queue, &link.facts()).expect("a queue");
    let shaped = link.facts().rate.filter(|_| is_shaped);
    let (logged, log) = Logged::new(&setup, shaped);
    let mut link = link.build(Box::new(logged), &Rng::new(1));
    for (payload, &(arrival, meta)) in packets.iter().enumerate() {
        link.send(arrival, Packet { meta, payload }, &mut ());
    }
    while let Some(next) = link.next_event() {
        while link.poll(next, &mut ()).is_some() {}
    }
    let log = lock(&log);
    check(law(&setup), &log, &what);
    [log.dropped_early, log.dropped_late, log.refused]
}

/// Every packet script of the vectors.
const SCRIPTS: [&str; 9] = [
    "bursts_3", "burstslong_3", "cbr_1", "hosts_9", "mix_7", "mixlow_21", "outage_1", "pie_5",
    "trickle_4",
];
/// A link that stands still for a second.
const OUTAGE: &str = "steps:0s=10mbit,1s=0bit,2s=10mbit";

/// Replays all scripts through all queues before all links. Returns sums as [`check_script`] does.
fn check_all(queues: &[&str], links: &[&str], is_shaped: bool) -> [u32; 3] {
    let mut sums = [0; 3];
    for script in SCRIPTS {
        let packets = scripts::packets(script);
        for queue in queues {
            for link in links {
                let drops = check_script(&packets, queue, link, is_shaped);
                sums.iter_mut().zip(drops).for_each(|(sum, drops)| *sum += drops);
            }
        }
    }
    sums
}

const BODES: [&str; 4] = [
    "bode:bound=20ms",
    "bode:profile=patch,bound=20ms",
    "bode:profile=patch,bound=5ms,exempt=1p,limit=30KB",
    "bode:bound=3ms,exempt=0p,limit=40p",
];

#[test]
fn bode_in_c_gives_the_fates_of_every_script() {
    let [early, late, refused] = check_all(&BODES, &["10mbit", OUTAGE], false);
    assert_eq!(early, 0);
    assert!(late > 1_000 && refused > 1_000, "{late} late, {refused} refused");
}

#[test]
fn docsis_pie_in_c_gives_the_fates_of_every_script() {
    let queues = [
        "docsis-pie",
        "docsis-pie:target=2ms,limit=20KB",
        "docsis-pie:rate=8mbit,peak=12mbit,burst=40KiB,limit=300KB",
        "docsis-pie:rate=500kbit,limit=1s",
    ];
    let links = ["10mbit", "1mbit", "docsis:rate=10mbit,burst=40KiB,peak=12mbit"];
    let [early, late, refused] = check_all(&queues, &links, false);
    assert_eq!(late, 0);
    assert!(early > 1_000 && refused > 1_000, "{early} early, {refused} refused");
}

/// A queue that shapes sends each packet at the nanosecond at which a link of the rate would.
#[test]
fn shaping_in_c_has_the_times_of_a_link() {
    let links = ["10mbit", "1mbit", "7777777bit"];
    let bode = check_all(&BODES[..2], &links, true);
    let pie = check_all(&["docsis-pie", "docsis-pie:target=3ms"], &links, true);
    assert!(bode[1] > 100 && pie[0] > 100, "{bode:?} {pie:?}");
}

/// After a flood, 63 quiet updates put DOCSIS-PIE to sleep, in C at the same one.
#[test]
fn docsis_pie_in_c_becomes_inactive_after_the_same_quiet_second() {
    let setup = QueueSetup::parse("docsis-pie:rate=10mbit,limit=60KB", &LinkFacts::default());
    let setup = setup.expect("a queue");
    let (mut logged, log) = Logged::new(&setup, None);
    let update = Span::from_millis(16);
    let mut now = Time::ZERO;
    for payload in 0..40 {
        logged.enqueue(now, Packet { meta: Meta::new(1_500, 0), payload }, &mut ());
    }
    while !logged.backlog().is_empty() {
        let _ = logged.dequeue(now, &mut ());
    }
    for _ in 0..200 {
        now += update;
        let _ = logged.dequeue(now, &mut ());
    }
    let log = lock(&log);
    let states = log.answers.lines().filter(|line| line.starts_with("0 0 0 "));
    let awake = states.filter(|state| !state.ends_with(" 0")).count();
    assert!((60..200).contains(&awake), "awake for {awake} updates: the premise");
    check(Law::DocsisPie, &log, "a quiet second");
}

/// Any settings of BoDe or DOCSIS-PIE, as a SPEC. Their times are so short that packets are
/// dropped.
fn any_queue() -> impl Strategy<Value = String> {
    let bode = (any::<bool>(), 1_000_u64..30_000, 0_u32..6, 1_u32..60).prop_map(
        |(is_patch, bound_us, exempt, limit)| {
            let profile = if is_patch { "patch" } else { "paper" };
            format!("bode:profile={profile},bound={bound_us}us,exempt={exempt}p,limit={limit}p")
        },
    );
    let pie = (1_u64..100, 100_u64..100_000, 1_u64..4, 0_u64..300_000, 2_000_u64..400_000);
    let pie = pie.prop_map(|(target_ms, rate_kbit, factor, burst, limit)| {
        let peak_kbit = rate_kbit * factor;
        format!(
            "docsis-pie:target={target_ms}ms,rate={rate_kbit}kbit,peak={peak_kbit}kbit,\
             burst={burst}B,limit={limit}B"
        )
    });
    prop_oneof![bode, pie]
}

/// A call after a pause in nanoseconds: the arrival of a packet of a length, or a take.
fn any_call() -> impl Strategy<Value = (u64, Option<u32>)> {
    let pause = prop_oneof![
        4 => Just(0),
        8 => 0_u64..2_000_000,
        2 => 0_u64..60_000_000,
        1 => 0_u64..60_000_000_000,
    ];
    // 1,504 bytes are what BoDe's authors exempt behind a head.
    let exempt = prop_oneof![Just(1_504_u32), Just(752)];
    let len = prop_oneof![3 => Just(1_514_u32), 1 => 1_u32..70_000, 1 => Just(64), 1 => exempt];
    (pause, prop_oneof![3 => len.prop_map(Some), 2 => Just(None)])
}

proptest! {
    #[test]
    fn any_calls_in_c_have_the_answers_of_the_library(
        queue in any_queue(),
        // A queue that is unused for an hour has missed thousands of updates.
        is_idle_hour in any::<bool>(),
        calls in prop::collection::vec(any_call(), 1..400),
    ) {
        let setup = QueueSetup::parse(&queue, &LinkFacts::default()).expect("a queue");
        let (mut logged, log) = Logged::new(&setup, None);
        let mut now = Time::ZERO;
        for (id, (pause, len)) in calls.into_iter().enumerate() {
            now += Span::from_nanos(pause);
            if is_idle_hour && logged.backlog().is_empty() && id % 50 == 0 {
                now += Span::from_secs(3_600);
            }
            let Some(len) = len else {
                let _ = logged.dequeue(now, &mut ());
                continue;
            };
            let payload = lock(&log).arrivals;
            logged.enqueue(now, Packet { meta: Meta::new(len, 0), payload }, &mut ());
        }
        check(law(&setup), &lock(&log), &queue);
    }
}

fn queues() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("queues")
}

fn output(script: &str, folder: &Path) -> String {
    let output = Command::new("sh").args(["-c", script]).current_dir(folder).output();
    let output = output.expect("a shell");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The program includes objects that were compiled from these sources and not changed since.
#[test]
fn the_objects_were_built_from_these_sources() {
    let listed = std::fs::read_to_string(queues().join("objects.txt")).expect("objects.txt");
    let actual = output(
        "cat law.h queue.h kernel.h bode.c docsis_pie.c | cksum; cksum < bode.bpf.o; \
         cksum < docsis_pie.bpf.o",
        &queues(),
    );
    let hint = "compile them again: crates/shape/queues/build";
    assert!(listed.ends_with(&actual), "objects.txt is not of these files; {hint}");
}

/// Compiling the sources gives the objects again, byte by byte.
#[test]
fn compiling_reproduces_the_objects() {
    let listed = std::fs::read_to_string(queues().join("objects.txt")).expect("objects.txt");
    let compilers = listed.lines().take(3).collect::<Vec<_>>().join("\n");
    let versions = Command::new("sh")
        .args(["-c", "clang-19 --version | sed -n 1p; bpftool version | sed -n 1,2p"])
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        .output()
        .expect("a shell");
    if versions.stdout.trim_ascii() != compilers.as_bytes() {
        let needs = compilers.replace('\n', ", ");
        eprintln!("SKIPPED compiling_reproduces_the_objects: needs {needs}");
        return;
    }
    let name = format!("objects-{}", std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("a directory");
    output(&format!("./build '{}'", folder.display()), &queues());
    for file in ["bode.bpf.o", "docsis_pie.bpf.o"] {
        let built = std::fs::read(folder.join(file)).expect(file);
        assert_eq!(built, std::fs::read(queues().join(file)).expect(file), "{file} differs");
    }
}
