//! How many runs a second PostgreSQL admits: `cargo xtask bench fleet-admission [SECONDS]`.
//!
//! Sixteen workers, each with its own connection, request the next run of one device after the
//! other, get a lease and release it: two transactions per run, each acknowledged when it is on
//! disk. First with one request per transaction; then as the orchestrator does it, where waiting
//! requests share a transaction. For comparison, two statements `UPDATE .. WHERE` per run without
//! devices, schedules, segments, leases or reasons. At the end 64 devices compete for 10 places.

#![expect(clippy::print_stderr, reason = "an example prints its progress")]
#![expect(clippy::print_stdout, reason = "a benchmark tells what it found")]

#[expect(dead_code, reason = "tests use all of it")]
#[path = "../tests/support/postgres.rs"]
mod scratch;

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::scope;
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};
use ring::signature::Ed25519KeyPair;
use underload_aqm::rng::Rng;
use underload_fleet::device::{Attributes, DeviceId};
use underload_fleet::message::{Next, Release, ServerAddress};
use underload_fleet::orchestrator::{Orchestrator, Settings};
use underload_fleet::plan::Plan;
use underload_fleet::store::{Device, Needs, PlanRow, Schedule, Server, Store};
use underload_orchestrator::http::batch::{Clock, Tell, Turn, Writers};
use underload_orchestrator::store::SqlStore;

use scratch::Scratch;

const PLAN: &str = "low-latency-trial";
const NOW_MS: u64 = 1_795_348_800_000;
const WORKERS: usize = 16;
/// Devices that are inserted per transaction.
const BATCH: u64 = 2_000;
/// Connections of the competing devices: fewer than the server's limit.
const CONNECTIONS: usize = 48;
/// Concurrent requests when requests share transactions.
const WAITING: usize = 256;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let seconds = std::env::args().nth(1).map_or(Ok(5), |text| text.parse())?;
    let lasts = Duration::from_secs(seconds);
    let Some(server) = Scratch::start("fleet-admission") else { return Ok(()) };
    println!("per second       runs admitted and given back, {seconds} s each");
    let url = server.database("plain");
    println!("{:>10.0}       plain UPDATE .. WHERE, twice", plain(&url, lasts)?);
    let url = server.database("alone");
    println!("{:>10.0}       next and release, {WORKERS} workers, each alone", alone(&url, lasts)?);
    let url = server.database("shared");
    let rate = shared(&url, lasts)?;
    println!("{rate:>10.0}       next and release, {WAITING} wait, as the orchestrator does it");
    let url = server.database("race");
    let (places, racers) = (10, 64);
    let got = race(&url, places, racers)?;
    println!("{got:>10}       of {racers} that raced for {places} places");
    if got == places { Ok(()) } else { Err("admitted sessions and places differ".into()) }
}

/// Counts the pairs of transactions that the threads complete before `ends`.
fn count(
    lasts: Duration,
    work: impl Fn(usize, &AtomicBool, &AtomicU64) -> Result<(), Failure> + Sync,
) -> Result<f64, Failure> {
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = Instant::now();
    let ended: Result<Vec<()>, Failure> = scope(|threads| {
        let (work, is_over, done) = (&work, &is_over, &done);
        let workers: Vec<_> =
            (0..WORKERS).map(|worker| threads.spawn(move || work(worker, is_over, done))).collect();
        std::thread::sleep(lasts);
        is_over.store(true, Ordering::Relaxed);
        workers.into_iter().map(|it| it.join().map_err(|_| "a worker panicked")?).collect()
    });
    ended?;
    Ok(done.into_inner() as f64 / start.elapsed().as_secs_f64())
}

fn plain(url: &str, lasts: Duration) -> Result<f64, Failure> {
    let mut client = Client::connect(url, NoTls)?;
    client.batch_execute(
        "CREATE TABLE places (server bigint PRIMARY KEY, used bigint NOT NULL,
             room bigint NOT NULL);
         INSERT INTO places SELECT n, 0, 1000000 FROM generate_series(0, 3) n",
    )?;
    count(lasts, |worker, is_over, done| {
        let mut client = Client::connect(url, NoTls)?;
        let take = client
            .prepare("UPDATE places SET used = used + 1 WHERE server = $1 AND used < room")?;
        let give = client.prepare("UPDATE places SET used = used - 1 WHERE server = $1")?;
        let server = worker as i64 % 4;
        while !is_over.load(Ordering::Relaxed) {
            client.execute(&take, &[&server])?;
            client.execute(&give, &[&server])?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })
}

fn alone(url: &str, lasts: Duration) -> Result<f64, Failure> {
    let devices = fill(url, u64::MAX / 4, lasts.as_secs().max(1) * 8_000)?;
    let (rules, next_device) = (rules()?, AtomicU64::new(0));
    count(lasts, |worker, is_over, done| {
        let mut store = SqlStore::postgres(url)?;
        let mut rng = Rng::new(worker as u64);
        while !is_over.load(Ordering::Relaxed) {
            let number = next_device.fetch_add(1, Ordering::Relaxed);
            if number >= devices {
                return Err("too few devices were made for so fast a machine".into());
            }
            if !admit(&rules, &mut store, &mut rng, number)? {
                return Err("a device was refused".into());
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })
}

/// Requests a run of a device and releases it. Returns false if the run was refused.
fn admit(
    rules: &Orchestrator,
    store: &mut SqlStore,
    rng: &mut Rng,
    number: u64,
) -> Result<bool, Failure> {
    let device = id(number);
    let needs = Needs { devices: vec![device], leases: Vec::new(), admits: true };
    let mut tx = store.begin(&needs)?;
    let answer = rules.next(&mut *tx, NOW_MS, rng, device, &ask())??;
    tx.commit()?;
    let Some(run) = answer.run else { return Ok(false) };
    let needs = Needs { devices: vec![device], leases: vec![run.lease_id], admits: true };
    let mut tx = store.begin(&needs)?;
    rules.release(&mut *tx, device, &Release { lease_id: run.lease_id })??;
    tx.commit()?;
    Ok(true)
}

fn shared(url: &str, lasts: Duration) -> Result<f64, Failure> {
    let devices = fill(url, u64::MAX / 4, lasts.as_secs().max(1) * 20_000)?;
    let rules = Arc::new(rules()?);
    let mut stores: Vec<Box<dyn Store>> = Vec::new();
    for _ in 0..4 {
        stores.push(Box::new(SqlStore::postgres(url)?));
    }
    let clock: Clock = Arc::new(|| NOW_MS);
    let tell: Tell = Arc::new(|words| eprintln!("{words}"));
    let writers = Arc::new(Writers::start(stores, 2 * WAITING, &clock, &tell)?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (next, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
    let start = Instant::now();
    let failed = runtime.block_on(async {
        let tasks: Vec<_> = (0..WAITING)
            .map(|_| {
                let (rules, writers) = (Arc::clone(&rules), Arc::clone(&writers));
                let (next, done) = (Arc::clone(&next), Arc::clone(&done));
                tokio::spawn(async move {
                    while start.elapsed() < lasts {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= devices {
                            return Err("too few devices were made for so fast a machine");
                        }
                        admit_shared(&rules, &writers, number).await?;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        let mut failed = None;
        for task in tasks {
            failed = failed.or(task.await.map_or(Some("a task panicked"), Result::err));
        }
        failed
    });
    let rate = done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    failed.map_or(Ok(rate), |failed| Err(failed.into()))
}

async fn admit_shared(
    rules: &Arc<Orchestrator>,
    writers: &Writers,
    number: u64,
) -> Result<(), &'static str> {
    let device = id(number);
    let needs = Needs { devices: vec![device], leases: Vec::new(), admits: true };
    let of = Arc::clone(rules);
    let work = move |turn: &mut Turn<'_>| of.next(turn.tx, turn.now_ms, turn.rng, device, &ask());
    let answer = writers.ask(number, needs, work).await.map_err(|_| "it was not done")?;
    let answer = answer.map_err(|_| "a device was rejected")?;
    let lease_id = answer.run.ok_or("a device was refused")?.lease_id;
    let needs = Needs { devices: vec![device], leases: vec![lease_id], admits: true };
    let of = Arc::clone(rules);
    let work = move |turn: &mut Turn<'_>| of.release(turn.tx, device, &Release { lease_id });
    let released = writers.ask(number, needs, work).await.map_err(|_| "it was not done")?;
    released.map(drop).map_err(|_| "a lease was not given back")
}

/// Returns how many of the devices that request a run at once get one.
fn race(url: &str, places: u64, racers: u64) -> Result<u64, Failure> {
    let text = Plan::built_in(PLAN).ok_or("no such plan")?;
    let plan = Plan::parse(text)?;
    let (up, _) = plan.peak_bit_per_s(plan.tiers.first().ok_or("no tier")?);
    fill(url, up * places + up / 2, racers)?;
    let (rules, got, start) = (rules()?, AtomicU64::new(0), Barrier::new(CONNECTIONS));
    let next = AtomicU64::new(0);
    let ended: Result<Vec<()>, Failure> = scope(|threads| {
        let (rules, got, start, next) = (&rules, &got, &start, &next);
        let race = move || -> Result<(), Failure> {
            let store = SqlStore::postgres(url);
            start.wait();
            let mut store = store?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= racers {
                    return Ok(());
                }
                let (device, mut rng) = (id(number), Rng::new(number));
                let needs = Needs { devices: vec![device], leases: Vec::new(), admits: true };
                let mut tx = store.begin(&needs)?;
                let answer = rules.next(&mut *tx, NOW_MS, &mut rng, device, &ask())??;
                tx.commit()?;
                got.fetch_add(u64::from(answer.run.is_some()), Ordering::Relaxed);
            }
        };
        let racing: Vec<_> = (0..CONNECTIONS).map(|_| threads.spawn(race)).collect();
        racing.into_iter().map(|it| it.join().map_err(|_| "a racer panicked")?).collect()
    });
    ended?;
    Ok(got.into_inner())
}

fn rules() -> Result<Orchestrator, Failure> {
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).map_err(|error| error.to_string())?;
    Ok(Orchestrator::new(Settings::default(), key, [9; 32]))
}

fn ask() -> Next {
    Next { epoch: 1, request: 1, is_busy: false, waiting: 0, dropped: 0, attributes: None }
}

fn id(number: u64) -> DeviceId {
    let mut id = [0x5a; 16];
    id[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    DeviceId(id)
}

/// Inserts a plan, servers of that capacity, and devices with a due run, each in its own segment.
/// Returns the number of devices.
fn fill(url: &str, up_bit_per_s: u64, devices: u64) -> Result<u64, Failure> {
    let mut store = SqlStore::postgres(url)?;
    let mut tx = store.begin(&Needs::default())?;
    let text = Plan::built_in(PLAN).ok_or("no such plan")?.to_owned();
    let applied_ms = NOW_MS - 86_400_000;
    tx.put_plan(&PlanRow { name: PLAN.to_owned(), text, applied_ms, stopped_ms: None })?;
    tx.put_server(&Server {
        address: ServerAddress {
            name: "one".to_owned(),
            address: "one.example:9090".to_owned(),
            fingerprint: format!("sha256:{}", "0".repeat(64)),
        },
        device: DeviceId([0; 16]),
        public_key: [0; 32],
        is_removed: false,
        up_bit_per_s,
        down_bit_per_s: u64::MAX / 4,
        reserved_up_bit_per_s: 0,
        reserved_down_bit_per_s: 0,
        carried_up_bit_per_s: 0,
        carried_down_bit_per_s: 0,
        sessions: 0,
        heard_ms: NOW_MS,
    })?;
    tx.commit()?;
    for from in (0..devices).step_by(BATCH as usize) {
        let mut tx = store.begin(&Needs::default())?;
        for number in from..devices.min(from + BATCH) {
            tx.put_device(&device(number))?;
        }
        tx.commit()?;
    }
    Client::connect(url, NoTls)?.batch_execute("ANALYZE")?;
    Ok(devices)
}

fn device(number: u64) -> Device {
    let attributes = Attributes {
        tier_up_bit_per_s: 35_000_000,
        tier_down_bit_per_s: 800_000_000,
        segment: format!("segment-{number}"),
        ..Attributes::default()
    };
    Device {
        seen_ms: NOW_MS - 3_600_000,
        epoch: 1,
        schedules: vec![Schedule {
            plan: PLAN.to_owned(),
            run: 1,
            due_ms: NOW_MS - 1_000,
            held_back: None,
            refusals: 0,
            retry_ms: 0,
            own_ms: 0,
            open: Vec::new(),
        }],
        settle_ms: NOW_MS + 86_400_000,
        ..Device::new(id(number), [0; 32], attributes, NOW_MS - 86_400_000)
    }
}
