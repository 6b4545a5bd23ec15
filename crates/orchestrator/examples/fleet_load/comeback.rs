//! Agents that return after an outage, each with the results that it measured meanwhile.
//!
//! Each agent has its own address and connection, opens a session, hands in its results, requests a
//! run, and disconnects. After `Retry-After` or without an answer it retries as an agent does. All
//! return within a minute, which is harder than reality: after an hour without an answer agents
//! spread over an hour.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use data_encoding::HEXLOWER;
use rusqlite::{Connection as Database, OpenFlags};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use underload_aqm::rng::Rng;
use underload_fleet::device::DeviceId;
use underload_fleet::message::{Next, NextAnswer, OpenSession, Session, Stored};
use underload_fleet::schedule::retry_after;

use super::client::{Answer, Connection, Target};
use super::fleet::{self, Sender, key, now_ms, result};
use super::host::Host;
use super::quantile;

/// Maximum number of connections of this process, by its descriptors: more than an orchestrator
/// accepts.
const AT_ONCE: usize = 10_000;
/// Timeouts of connecting, and of an answer.
const PATIENCE: Duration = Duration::from_secs(30);
const HOUR_MS: u64 = 3_600_000;

#[derive(Debug, Default)]
struct Tally {
    /// Number of answers by request and status.
    answers: BTreeMap<(&'static str, u16), u64>,
    no_answer: u64,
    /// Statuses above 499 without `Retry-After`.
    faults: u64,
    stored_new: u64,
    /// When each agent had handed in its results, milliseconds after the first one connected.
    done_ms: Vec<u32>,
}

type Shared = Arc<Mutex<Tally>>;

/// Results of an agent: one to three.
fn spooled(number: u32) -> u64 {
    1 + u64::from(number % 3)
}

pub fn run(agents: u32, within_s: u32) -> anyhow::Result<()> {
    let scratch = underload_disk::faults::private_tempdir()?;
    let directory = scratch.path().join("fleet");
    fleet::fill(&directory, agents, |_| {})?;
    let host = Host::start("serve", &directory)?;
    let target = Target::new(host.address, &host.certificate)?;
    let expected: u64 = (0..agents).map(spooled).sum();
    println!("{agents} agents with {expected} results come back within {within_s} s");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (told, places) = (Shared::default(), Arc::new(Semaphore::new(AT_ONCE)));
    let begun = Instant::now();
    let before = host.used()?;
    let tasks: Vec<_> = (0..agents)
        .map(|number| {
            let (target, told, places) = (target.clone(), Arc::clone(&told), Arc::clone(&places));
            let agent = Agent { number, rng: Rng::new(u64::from(number)), target, told, places };
            runtime.spawn(agent.come_back(begun, within_s))
        })
        .collect();
    for task in tasks {
        runtime.block_on(task)??;
    }
    let used = host.used()?;
    host.stop()?;
    let mut told = lock(&told);
    told.done_ms.sort_unstable();
    for (share, what) in [(0.5, "half"), (0.99, "99 %"), (1.0, "all")] {
        let seconds = f64::from(quantile(&told.done_ms, share)) / 1e3;
        println!("{what} had handed in after {seconds:.1} s");
    }
    for ((request, status), count) in &told.answers {
        println!("{request} {status}: {count}");
    }
    println!(
        "without an answer: {}; above 499 without Retry-After: {}",
        told.no_answer, told.faults
    );
    println!(
        "the orchestrator took {:.0} s of a processor and {:.0} MiB",
        used.processor_s - before.processor_s,
        used.memory_mib
    );
    let (kept, different) = kept(&directory)?;
    println!("stored: {kept} results, of {different} devices; told as new: {}", told.stored_new);
    ensure!(kept == expected && told.stored_new == expected, "{expected} were handed in");
    ensure!(different == u64::from(agents), "of {agents} devices");
    ensure!(told.faults == 0, "faults");
    Ok(())
}

fn lock(told: &Shared) -> std::sync::MutexGuard<'_, Tally> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the stored results, and the devices of which all results are stored.
fn kept(directory: &std::path::Path) -> anyhow::Result<(u64, u64)> {
    let database = Database::open_with_flags(
        directory.join("fleet.sqlite"),
        OpenFlags::SQLITE_OPEN_READ_ONLY,
    )?;
    let one = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0));
    let of = |sql: &str| anyhow::Ok(u64::try_from(one(sql)?)?);
    let kept = of("SELECT count(*) FROM results")?;
    Ok((kept, of("SELECT count(DISTINCT device) FROM results")?))
}

struct Agent {
    number: u32,
    rng: Rng,
    target: Target,
    told: Shared,
    places: Arc<Semaphore>,
}

/// Why an agent disconnects before it has handed in its results.
enum Away {
    Later(u64),
    NoAnswer,
}

impl Agent {
    async fn come_back(mut self, begun: Instant, within_s: u32) -> anyhow::Result<()> {
        let share = f64::from(self.rng.next_u32()) / f64::from(u32::MAX);
        sleep(Duration::from_secs_f64(f64::from(within_s) * share)).await;
        let mut rounds = 0;
        loop {
            let away = {
                let places = Arc::clone(&self.places);
                let _place = places.acquire_owned().await?;
                self.hand_in(begun).await?
            };
            match away {
                None => return Ok(()),
                Some(Away::Later(seconds)) => {
                    let ms = u64::from(self.rng.below(1_000)) * seconds;
                    sleep(Duration::from_secs(seconds) + Duration::from_millis(ms)).await;
                }
                Some(Away::NoAnswer) => {
                    lock(&self.told).no_answer += 1;
                    let wait = retry_after(&mut self.rng, rounds);
                    rounds += 1;
                    sleep(Duration::from_nanos(wait.as_nanos())).await;
                }
            }
        }
    }

    async fn hand_in(&self, begun: Instant) -> anyhow::Result<Option<Away>> {
        let [_, high, middle, low] = self.number.to_be_bytes();
        let from = Ipv4Addr::new(127, 1 + high, middle, low);
        let Ok(Ok(mut connection)) = timeout(PATIENCE, self.target.connect(from)).await else {
            return Ok(Some(Away::NoAnswer));
        };
        let (key, at_ms) = (key(self.number)?, now_ms());
        let public: [u8; 32] = ring::signature::KeyPair::public_key(&key).as_ref().try_into()?;
        let device = DeviceId::of_key(&public);
        let signature =
            HEXLOWER.encode(key.sign(OpenSession::signed(device, at_ms).as_bytes()).as_ref());
        let open = fleet::plain("/v1/session", &OpenSession { device, at_ms, signature })?;
        let session: Session = match self.ask(&mut connection, "session", &open).await? {
            Ok(session) => session,
            Err(away) => return Ok(Some(away)),
        };
        let sender = Sender::of_session(device, &session.session, &session.key)?;
        let measured = (0..spooled(self.number)).map(|place| result(0, at_ms - HOUR_MS + place));
        let body = fleet::results(1, measured.collect());
        let results = sender.request("/v1/results", &body, 1);
        let stored: Stored = match self.ask(&mut connection, "results", &results).await? {
            Ok(stored) => stored,
            Err(away) => return Ok(Some(away)),
        };
        {
            let mut told = lock(&self.told);
            told.stored_new += u64::from(stored.new);
            told.done_ms.push(begun.elapsed().as_millis() as u32);
        }
        let (is_busy, waiting, dropped, attributes) = (false, 0, 0, None);
        let next = Next { epoch: 0, request: 1, is_busy, waiting, dropped, attributes };
        let next = sender.request("/v1/next", &serde_json::to_string(&next)?, 1);
        // The outcome of the request for a run is not measured by this example.
        let _: Result<NextAnswer, Away> = self.ask(&mut connection, "next", &next).await?;
        Ok(None)
    }

    async fn ask<A: DeserializeOwned>(
        &self,
        connection: &mut Connection,
        what: &'static str,
        request: &[u8],
    ) -> anyhow::Result<Result<A, Away>> {
        let Ok(Ok(answer)) = timeout(PATIENCE, connection.ask(request)).await else {
            return Ok(Err(Away::NoAnswer));
        };
        let Answer { status, retry_after_s, body } = answer;
        {
            let mut told = lock(&self.told);
            *told.answers.entry((what, status)).or_default() += 1;
            told.faults += u64::from(status > 499 && retry_after_s.is_none());
        }
        if status == 200 {
            return Ok(Ok(serde_json::from_slice(&body)?));
        }
        let is_later = matches!(status, 429 | 503);
        ensure!(is_later, "{what} {status}: {}", String::from_utf8_lossy(&body));
        let seconds = retry_after_s.context("the answer has no Retry-After")?;
        Ok(Err(Away::Later(seconds)))
    }
}
