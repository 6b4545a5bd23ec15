//! The requests of ten million devices on an average day, at their rate.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::time::sleep_until;
use underload_fleet::message::{Heartbeat, Next, NextAnswer, Release};
use underload_fleet::store::{Device, Schedule};

use super::client::{Connection, Target};
use super::fleet::{self, SERVER, Sender, now_ms, result};
use super::host::{Host, Used};
use super::quantile;

/// Six runs a day of ten million devices, with three requests and four series per run.
const RUNS_PER_S: f64 = 10_000_000.0 * 6.0 / 86_400.0;
const CONNECTIONS: u32 = 256;
/// Time from the answer to the result.
const RUN_LASTS: Duration = Duration::from_secs(10);
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Interval of the lines of the table.
const EACH: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
struct Counts {
    next: AtomicU64,
    refused: AtomicU64,
    stored: AtomicU64,
    released: AtomicU64,
}

pub fn run(seconds: u32, devices: u32) -> anyhow::Result<()> {
    let scratch = underload_disk::faults::private_tempdir()?;
    let directory = scratch.path().join("fleet");
    let needed = (RUNS_PER_S * f64::from(seconds)) as u32 + CONNECTIONS;
    ensure!(devices >= needed, "{seconds} s need {needed} devices, which run once each");
    fleet::fill(&directory, devices, is_due)?;
    let host = Host::start("serve", &directory)?;
    let target = Target::new(host.address, &host.certificate)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    println!(
        "{RUNS_PER_S:.0} runs/s of {devices} devices for {seconds} s, {CONNECTIONS} TLS connections"
    );
    let counts = Arc::new(Counts::default());
    let begun = Instant::now() + Duration::from_secs(1);
    let ends = begun + Duration::from_secs(seconds.into());
    let server = runtime.spawn(heartbeats(target.clone(), ends + RUN_LASTS));
    let tasks: Vec<_> = (0..CONNECTIONS)
        .map(|place| {
            let counts = Arc::clone(&counts);
            runtime.spawn(line(target.clone(), counts, place, devices, begun, ends))
        })
        .collect();
    println!("{:>6}{:>14}{:>14}{:>14}", "s", "requests", "% of a core", "MiB");
    let before = watch(&host, &counts, begun, ends)?;
    let mut late_us = Vec::new();
    for task in tasks {
        late_us.extend(runtime.block_on(task)??);
    }
    runtime.block_on(server)??;
    late_us.sort_unstable();
    let (used, passed) = (host.used()?, begun.elapsed().as_secs_f64());
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (stored, refused) = (of(&counts.stored), of(&counts.refused));
    println!(
        "{} asked, {refused} refused, {stored} results of 4 series stored, {} given back",
        of(&counts.next),
        of(&counts.released)
    );
    println!(
        "{:.1} % of a core, {:.0} series/s; done {:.1} ms after it was due at p50, {:.1} at p99",
        (used.processor_s - before.processor_s) / passed * 100.0,
        stored as f64 * 4.0 / f64::from(seconds),
        f64::from(quantile(&late_us, 0.5)) / 1e3,
        f64::from(quantile(&late_us, 0.99)) / 1e3
    );
    host.stop()
}

/// The device's first run is due now.
fn is_due(device: &mut Device) {
    device.schedules.push(Schedule {
        plan: "load".to_owned(),
        run: 1,
        due_ms: now_ms(),
        held_back: None,
        refusals: 0,
        retry_ms: 0,
        own_ms: 0,
        open: Vec::new(),
    });
}

/// Prints the resources of the orchestrator. Returns those that it had used at the start.
fn watch(host: &Host, counts: &Counts, begun: Instant, ends: Instant) -> anyhow::Result<Used> {
    std::thread::sleep(begun.saturating_duration_since(Instant::now()));
    let first = host.used()?;
    let (mut last, mut at) = (first, begun);
    while at < ends {
        let next = (at + EACH).min(ends);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let used = host.used()?;
        let share = (used.processor_s - last.processor_s) / (next - at).as_secs_f64() * 100.0;
        let asked = [&counts.next, &counts.stored, &counts.released];
        let asked: u64 = asked.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        let passed = (next - begun).as_secs();
        println!("{passed:>6}{asked:>14}{share:>14.1}{:>14.0}", used.memory_mib);
        (last, at) = (used, next);
    }
    Ok(first)
}

/// A due request: when, and by which device.
type Due = Reverse<(Instant, u32, Option<(u64, u64)>)>;

/// Runs one connection with its share of the devices. Returns the delay of each answer,
/// microseconds.
async fn line(
    target: Target,
    counts: Arc<Counts>,
    place: u32,
    devices: u32,
    begun: Instant,
    ends: Instant,
) -> anyhow::Result<Vec<u32>> {
    let mut connection = target.connect(Ipv4Addr::LOCALHOST).await?;
    let pause = Duration::from_secs_f64(f64::from(CONNECTIONS) / RUNS_PER_S);
    let mut todo: BinaryHeap<Due> = BinaryHeap::new();
    todo.push(Reverse((
        begun + pause.mul_f64(f64::from(place) / f64::from(CONNECTIONS)),
        place,
        None,
    )));
    let mut late_us = Vec::new();
    while let Some(Reverse((at, number, run))) = todo.pop() {
        sleep_until(at.into()).await;
        // Devices of one segment are not consecutive.
        let sender = Sender::new((u64::from(number) * 7_919 % u64::from(devices)) as u32)?;
        match run {
            None => {
                let given = ask_next(&mut connection, &sender, &counts).await?;
                if let Some(given) = given {
                    todo.push(Reverse((at + RUN_LASTS, number, Some(given))));
                }
                if at + pause < ends {
                    todo.push(Reverse((at + pause, number + CONNECTIONS, None)));
                }
            }
            Some((run, lease_id)) => {
                hand_in(&mut connection, &sender, run, lease_id, &counts).await?;
            }
        }
        late_us.push(at.elapsed().as_micros() as u32);
    }
    Ok(late_us)
}

async fn ask_next(
    connection: &mut Connection,
    sender: &Sender,
    counts: &Counts,
) -> anyhow::Result<Option<(u64, u64)>> {
    let (is_busy, waiting, dropped, attributes) = (false, 0, 0, None);
    let next = Next { epoch: 0, request: 1, is_busy, waiting, dropped, attributes };
    let request = sender.request("/v1/next", &serde_json::to_string(&next)?, 0);
    let answer = connection.ask(&request).await?;
    ensure!(answer.status == 200, "{}: {}", answer.status, String::from_utf8_lossy(&answer.body));
    let answer: NextAnswer = serde_json::from_slice(&answer.body)?;
    counts.next.fetch_add(1, Ordering::Relaxed);
    let Some(run) = answer.run else {
        answer.refusal.context("a run that is due is given or refused")?;
        counts.refused.fetch_add(1, Ordering::Relaxed);
        return Ok(None);
    };
    Ok(Some((run.run, run.lease_id)))
}

async fn hand_in(
    connection: &mut Connection,
    sender: &Sender,
    run: u64,
    lease_id: u64,
    counts: &Counts,
) -> anyhow::Result<()> {
    let body = fleet::results(1, vec![result(run, now_ms())]);
    let answer = connection.ask(&sender.request("/v1/results", &body, 1)).await?;
    let text = String::from_utf8_lossy(&answer.body);
    ensure!(answer.status == 200 && text.contains("\"new\":1"), "{}: {text}", answer.status);
    counts.stored.fetch_add(1, Ordering::Relaxed);
    let release = serde_json::to_string(&Release { lease_id })?;
    let answer = connection.ask(&sender.request("/v1/release", &release, 1)).await?;
    let text = String::from_utf8_lossy(&answer.body);
    ensure!(answer.status == 200 && text.contains("true"), "{}: {text}", answer.status);
    counts.released.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Sends heartbeats of the measurement server.
async fn heartbeats(target: Target, ends: Instant) -> anyhow::Result<()> {
    let mut connection = target.connect(Ipv4Addr::LOCALHOST).await?;
    let sender = Sender::new(SERVER)?;
    let beat = Heartbeat {
        address: fleet::address(),
        up_bit_per_s: 1_000_000_000_000,
        down_bit_per_s: 1_000_000_000_000,
        sessions: 0,
        carried_up_bit_per_s: 0,
        carried_down_bit_per_s: 0,
        ended: Vec::new(),
        held: None,
        is_leaving: false,
    };
    let body = serde_json::to_string(&beat)?;
    while Instant::now() < ends {
        let answer = connection.ask(&sender.request("/v1/heartbeat", &body, 0)).await?;
        ensure!(answer.status == 200, "{}", String::from_utf8_lossy(&answer.body));
        tokio::time::sleep(HEARTBEAT).await;
    }
    Ok(())
}
