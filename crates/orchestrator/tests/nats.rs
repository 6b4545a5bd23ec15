//! Results by way of a real NATS server: no result is lost or duplicated when the server or a
//! feeder is killed.

use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::stream::{Config, RetentionPolicy};
use ring::signature::Ed25519KeyPair;
use tokio_stream::StreamExt as _;
use underload_fleet::bins::{Bins, value_of};
use underload_fleet::device::{Attributes, DeviceId};
use underload_fleet::message::{Numbered, Results};
use underload_fleet::orchestrator::{Orchestrator, Settings};
use underload_fleet::outcome::{Outcome, RunResult, SeriesResult, StepResult};
use underload_fleet::plan::{Kind, Plan};
use underload_fleet::store::{Archive as _, Device, Filter, Needs, Schedule, Store as _};
use underload_orchestrator::nats::{FEEDERS, Fed, Feeder, Inbox, STREAM, SUBJECT};
use underload_orchestrator::store::{SqlArchive, SqlStore};

const PLAN: &str = "low-latency-trial";
/// 2026-01-01.
const NOW_MS: u64 = 1_767_225_600_000;
const DEVICE: DeviceId = DeviceId([7; 16]);
const PATIENCE: Duration = Duration::from_mins(1);

/// A server that is killed when this is dropped, or when the test's process ends for any reason.
struct Server {
    shell: Child,
    alive: Option<ChildStdin>,
    url: String,
}

impl Server {
    /// Starts a server with the files in a folder. Prints a report of the skip and returns `None`
    /// if it is not installed.
    fn start(test: &str, folder: &Path) -> Option<Self> {
        let of = |name| std::env::var(name).unwrap_or_default();
        // The paths at which the package installs it, and at which `./setup` unpacks it.
        let unpacked = format!("{}/.cache/underload/nats-server/usr/sbin", of("HOME"));
        let path = format!("{}:/usr/sbin:{unpacked}", of("PATH"));
        let found = Command::new("nats-server").arg("--version").env("PATH", &path).output();
        if found.is_err() {
            eprintln!("SKIPPED {test}: there is no nats-server (./setup unpacks one)");
            return None;
        }
        let ports = folder.join("ports");
        // The files of the previous server contain its address.
        let _ = std::fs::remove_dir_all(&ports);
        std::fs::create_dir_all(&ports).expect("a folder");
        let script = "nats-server -a 127.0.0.1 -p -1 -js -sd \"$1/data\" \
            --ports_file_dir \"$1/ports\" > \"$1/log\" 2>&1 < /dev/null & \
            server=$!; cat > /dev/null; kill -9 $server; wait $server 2> /dev/null";
        let mut shell = Command::new("sh")
            .args(["-c", script, "server"])
            .arg(folder)
            .env("PATH", &path)
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell");
        let alive = shell.stdin.take();
        let start = Instant::now();
        loop {
            let url = std::fs::read_dir(&ports).expect("a folder").flatten().find_map(|entry| {
                let text = std::fs::read_to_string(entry.path()).ok()?;
                let ports: serde_json::Value = serde_json::from_str(&text).ok()?;
                Some(ports.get("nats")?.get(0)?.as_str()?.to_owned())
            });
            match url {
                Some(url) => return Some(Self { shell, alive, url }),
                None if start.elapsed() < PATIENCE => sleep(Duration::from_millis(20)),
                None => panic!("{}", std::fs::read_to_string(folder.join("log")).expect("a log")),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.alive.take());
        let _ = self.shell.wait();
    }
}

fn results(sequences: std::ops::RangeInclusive<u64>) -> Results {
    let series = |sequence: u64| {
        let mut bins = Bins::default();
        let bin = 300 + sequence as u16 % 600;
        bins.add_to(bin, 100);
        let us = Some(value_of(bin) as u64);
        SeriesResult {
            dscp: 0,
            sent: 100,
            lost: 0,
            bins,
            p50_us: us,
            p99_us: us,
            mean_us: us,
            max_us: us,
        }
    };
    let result = |sequence| RunResult {
        plan: PLAN.to_owned(),
        run: 0,
        at_ms: NOW_MS - 1_000 + sequence,
        outcome: Outcome::Measured,
        reason: String::new(),
        server: "one".to_owned(),
        version: String::new(),
        steps: vec![StepResult {
            step: "idle".to_owned(),
            inside: None,
            kind: Kind::Latency,
            goodput_bit_per_s: None,
            tier_percent: None,
            series: vec![series(sequence)],
        }],
    };
    let results = sequences.map(|sequence| Numbered { sequence, result: result(sequence) });
    Results { epoch: 1, results: results.collect() }
}

/// A store with a device and a plan.
fn store(folder: &Path) -> SqlStore {
    let mut store = SqlStore::sqlite(&folder.join("store")).expect("it opens");
    let mut tx = store.begin(&Needs::default()).expect("it begins");
    let text = Plan::built_in(PLAN).expect("it is built in");
    let applied_ms = NOW_MS - 86_400_000;
    let applied = rules().apply_plan(&mut *tx, applied_ms, "test", text, &[3; 32]);
    applied.expect("it is kept").expect("it is a plan");
    let device = Device {
        id: DEVICE,
        public_key: [1; 32],
        attributes: Attributes::default(),
        enrolled_ms: applied_ms,
        seen_ms: applied_ms,
        is_removed: false,
        epoch: 1,
        request: 1,
        waiting: 0,
        dropped: 0,
        schedules: vec![Schedule {
            plan: PLAN.to_owned(),
            run: 1,
            due_ms: NOW_MS + 86_400_000,
            held_back: None,
            refusals: 0,
            retry_ms: 0,
            own_ms: 0,
            open: Vec::new(),
        }],
        settle_ms: u64::MAX,
        made: 0,
    };
    tx.put_device(&device).expect("it is put");
    tx.commit().expect("it is on disk");
    store
}

fn rules() -> Arc<Orchestrator> {
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a key");
    Arc::new(Orchestrator::new(Settings::default(), key, [9; 32]))
}

/// Returns the numbers of all stored results.
fn stored(folder: &Path) -> Vec<u64> {
    let mut sequences = Vec::new();
    let mut archive = SqlArchive::sqlite(&folder.join("store")).expect("an archive");
    let mut see = |kept: &underload_fleet::store::StoredResult| {
        sequences.push(kept.sequence);
        true
    };
    archive.visit(&Filter::default(), &mut see).expect("it shows all");
    sequences.sort_unstable();
    sequences
}

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime")
}

/// Feeds until at least one result was stored.
async fn feed(feeder: &mut Feeder) -> Fed {
    let start = Instant::now();
    loop {
        let fed = feeder.feed(Duration::from_millis(200)).await.expect("it feeds");
        if fed.messages > 0 {
            return fed;
        }
        assert!(start.elapsed() < PATIENCE, "nothing came");
    }
}

#[test]
fn what_was_acknowledged_is_stored_once_when_the_broker_is_killed() {
    runtime().block_on(the_broker_is_killed());
}

async fn the_broker_is_killed() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let test = "what_was_acknowledged_is_stored_once_when_the_broker_is_killed";
    let Some(server) = Server::start(test, folder.path()) else { return };
    let inbox = Inbox::connect(&server.url, 1).await.expect("it connects");
    for _ in 0..2 {
        inbox.hand_in(DEVICE, NOW_MS, &results(1..=50)).await.expect("it is handed in");
    }
    drop((inbox, server));
    let server = Server::start(test, folder.path()).expect("it starts again");
    let inbox = Inbox::connect(&server.url, 1).await.expect("it connects");
    let mut feeder = Feeder::new(inbox, rules(), Box::new(store(folder.path())));
    let first = Fed { messages: 1, new: 50, ..Fed::default() };
    assert_eq!(feed(&mut feeder).await, first, "the second time is known by its name");
    // Sends some results again, together with others: JetStream sees a different message.
    let inbox = Inbox::connect(&server.url, 1).await.expect("another one connects");
    inbox.hand_in(DEVICE, NOW_MS, &results(41..=60)).await.expect("it is handed in");
    let stranger = DeviceId([8; 16]);
    inbox.hand_in(stranger, NOW_MS, &results(1..=5)).await.expect("it is handed in");
    let client = async_nats::connect(&server.url).await.expect("it connects");
    client.publish(SUBJECT, "nonsense".into()).await.expect("it is sent");
    client.flush().await.expect("it is sent");
    let mut sum = Fed::default();
    while sum.messages < 3 {
        let fed = feed(&mut feeder).await;
        sum.messages += fed.messages;
        sum.new += fed.new;
        sum.known += fed.known;
        sum.refused += fed.refused;
        sum.unreadable += fed.unreadable;
    }
    assert_eq!(sum, Fed { messages: 3, new: 10, known: 10, refused: 5, unreadable: 1 });
    let fed = feeder.feed(Duration::from_millis(100)).await.expect("it feeds");
    assert_eq!(fed, Fed::default(), "all is acknowledged");
    drop(feeder);
    assert_eq!(stored(folder.path()), (1..=60).collect::<Vec<_>>());
}

#[test]
fn large_messages_are_fetched_a_few_at_a_time_and_meet_the_same_rules() {
    runtime().block_on(large_messages_are_fetched());
}

async fn large_messages_are_fetched() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let test = "large_messages_are_fetched_a_few_at_a_time_and_meet_the_same_rules";
    let Some(server) = Server::start(test, folder.path()) else { return };
    let inbox = Inbox::connect(&server.url, 1).await.expect("it connects");
    // Each request is as large as a device may send: steps that no plan has, with 64 series each.
    let lost = SeriesResult {
        dscp: 0,
        sent: 1,
        lost: 1,
        bins: underload_fleet::bins::Bins::default(),
        p50_us: None,
        p99_us: None,
        mean_us: None,
        max_us: None,
    };
    for request in 0..30 {
        let mut handed_in = results(6 * request + 1..=6 * request + 6);
        for Numbered { sequence, result } in &mut handed_in.results {
            let series = (0..64).map(|dscp| SeriesResult { dscp, ..lost.clone() }).collect();
            let step = StepResult { series, ..result.steps[0].clone() };
            let name = |number| format!("{sequence}.{number}");
            result.steps =
                (0..64).map(|it| StepResult { step: name(it), ..step.clone() }).collect();
        }
        inbox.hand_in(DEVICE, NOW_MS, &handed_in).await.expect("it is handed in");
    }
    let mut feeder = Feeder::new(inbox, rules(), Box::new(store(folder.path())));
    let mut sum = Fed::default();
    while sum.new < 180 {
        let fed = feed(&mut feeder).await;
        assert!(fed.messages <= 40, "at most 4 MiB: {fed:?}");
        sum = Fed { messages: sum.messages + fed.messages, new: sum.new + fed.new, ..fed };
    }
    assert!(sum.messages > 40, "the premise: {sum:?}");
    let mut archive = SqlArchive::sqlite(&folder.path().join("store")).expect("an archive");
    let mut steps = 0;
    let mut see = |kept: &underload_fleet::store::StoredResult| {
        steps += kept.result.steps.len();
        true
    };
    archive.visit(&Filter::default(), &mut see).expect("it shows all");
    assert_eq!((stored(folder.path()).len(), steps), (180, 0));
}

#[test]
fn what_a_feeder_committed_and_did_not_acknowledge_changes_nothing() {
    runtime().block_on(a_feeder_does_not_acknowledge());
}

async fn a_feeder_does_not_acknowledge() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let test = "what_a_feeder_committed_and_did_not_acknowledge_changes_nothing";
    let Some(server) = Server::start(test, folder.path()) else { return };
    // The stream and the feeders are as in production, except for the time until a message is
    // delivered again.
    let client = async_nats::connect(&server.url).await.expect("it connects");
    let context = async_nats::jetstream::new(client);
    let stream = context.create_stream(Config {
        name: STREAM.to_owned(),
        subjects: vec![SUBJECT.to_owned()],
        retention: RetentionPolicy::WorkQueue,
        ..Config::default()
    });
    let feeders = pull::Config {
        durable_name: Some(FEEDERS.to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: Duration::from_secs(1),
        ..pull::Config::default()
    };
    let stream = stream.await.expect("a stream");
    let consumer = stream.create_consumer(feeders).await.expect("a consumer");
    let inbox = Inbox::connect(&server.url, 1).await.expect("it connects");
    let handed_in = results(1..=20);
    inbox.hand_in(DEVICE, NOW_MS, &handed_in).await.expect("it is handed in");
    // A feeder that commits and is killed before it acknowledges.
    let mut fetched = consumer.batch().max_messages(1).messages().await.expect("it fetches");
    assert!(fetched.next().await.is_some_and(|message| message.is_ok()));
    let mut store = store(folder.path());
    let mut tx = store.begin(&Needs::default()).expect("it begins");
    let rules = rules();
    let answer = rules.results(&mut *tx, NOW_MS, DEVICE, &handed_in).expect("it is kept");
    assert_eq!(answer.expect("it is a device").new, 20);
    tx.commit().expect("it is on disk");
    let mut feeder = Feeder::new(inbox, rules, Box::new(store));
    let again = Fed { messages: 1, known: 20, ..Fed::default() };
    assert_eq!(feed(&mut feeder).await, again);
    drop(feeder);
    assert_eq!(stored(folder.path()), (1..=20).collect::<Vec<_>>());
}
