//! Durable uploads at the maximum rate.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::runtime::Runtime;
use underload_fleet::message::Numbered;
use underload_fleet::outcome::RunResult;
use underload_fleet::store::{Device, OpenRun, Schedule};

use super::client::Target;
use super::fleet::{self, Sender, now_ms, result};
use super::host::{Host, used_by};
use super::{median, quantile};

const DEVICES: u32 = 200_000;
/// Scheduled runs of each device; its further results are unscheduled.
const GIVEN: u64 = 3;
const CONNECTIONS: usize = 256;
/// The number of results in a large request.
const MANY: usize = 16;

/// The server, and the results per request.
struct Side {
    name: &'static str,
    host: Host,
    results: usize,
    rounds: Vec<Round>,
    sent: Arc<AtomicU64>,
}

struct Round {
    per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// Processor time of the server per request.
    us: f64,
    /// Processor time per request of this process, which generates the load.
    load_us: f64,
    /// Processors that both used.
    busy: f64,
}

pub fn run(seconds: u32, rounds: u32) -> anyhow::Result<()> {
    let scratch = underload_disk::faults::private_tempdir()?;
    let (ours, plain) = (scratch.path().join("fleet"), scratch.path().join("bare"));
    fleet::fill(&ours, DEVICES, has_runs)?;
    let senders: Arc<Vec<Sender>> =
        Arc::new((0..DEVICES).map(Sender::new).collect::<Result<_, _>>()?);
    let side = |name, host, results| {
        let (rounds, sent) = (Vec::new(), Arc::default());
        Side { name, host, results, rounds, sent }
    };
    let mut sides = [
        side("orchestrator, a result each", Host::start("serve", &ours)?, 1),
        side("bare axum and SQLite", Host::start("serve-bare", &plain)?, 1),
    ];
    let body = fleet::results(1, vec![result(0, now_ms())]);
    println!("{CONNECTIONS} TLS connections, {DEVICES} devices, {} bytes a result", body.len());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let span = Duration::from_secs(seconds.into());
    for _ in 0..rounds {
        for side in &mut sides {
            side.round(&runtime, &senders, span)?;
        }
    }
    sides[0].results = MANY;
    let alone = std::mem::take(&mut sides[0].rounds);
    for _ in 0..rounds.div_ceil(2) {
        sides[0].round(&runtime, &senders, span)?;
    }
    let many = std::mem::replace(&mut sides[0].rounds, alone);
    println!(
        "{:<30}{:>12}{:>10}{:>10}{:>16}{:>12}{:>14}",
        "", "results/s", "p50 ms", "p99 ms", "us/request", "us of load", "cores of both"
    );
    for side in &sides {
        print_row(side.name, &side.rounds);
    }
    print_row("orchestrator, 16 results each", &many);
    let ratios = sides[0].rounds.iter().zip(&sides[1].rounds);
    let ratio = median(ratios.map(|(ours, bare)| ours.per_s / bare.per_s).collect());
    println!("orchestrator / bare: {:.0} % (median of {rounds} rounds)", ratio * 100.0);
    sides.into_iter().try_for_each(|side| side.host.stop())
}

fn print_row(name: &str, rounds: &[Round]) {
    let of = |value: fn(&Round) -> f64| median(rounds.iter().map(value).collect());
    let (per_s, us) = (of(|it| it.per_s), of(|it| it.us));
    let (p50, p99) = (of(|it| it.p50_ms), of(|it| it.p99_ms));
    let (load_us, busy) = (of(|it| it.load_us), of(|it| it.busy));
    println!("{name:<30}{per_s:>12.0}{p50:>10.1}{p99:>10.1}{us:>16.0}{load_us:>12.0}{busy:>14.2}");
}

impl Side {
    fn round(
        &mut self,
        runtime: &Runtime,
        senders: &Arc<Vec<Sender>>,
        span: Duration,
    ) -> anyhow::Result<()> {
        let target = Target::new(self.host.address, &self.host.certificate)?;
        let begun = Instant::now();
        let used = || -> anyhow::Result<(f64, f64)> {
            Ok((self.host.used()?.processor_s, used_by(std::process::id())?.processor_s))
        };
        let before = used()?;
        let ends = begun + span;
        let tasks: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                let (target, senders) = (target.clone(), Arc::clone(senders));
                let (sent, results) = (Arc::clone(&self.sent), self.results);
                runtime.spawn(upload(target, senders, sent, results, ends))
            })
            .collect();
        let mut took_us = Vec::new();
        for task in tasks {
            took_us.extend(runtime.block_on(task)??);
        }
        let passed = begun.elapsed().as_secs_f64();
        let after = used()?;
        let (used_s, load_s) = (after.0 - before.0, after.1 - before.1);
        took_us.sort_unstable();
        let requests = took_us.len() as f64;
        self.rounds.push(Round {
            per_s: requests * self.results as f64 / passed,
            p50_ms: f64::from(quantile(&took_us, 0.5)) / 1e3,
            p99_ms: f64::from(quantile(&took_us, 0.99)) / 1e3,
            us: used_s * 1e6 / requests,
            load_us: load_s * 1e6 / requests,
            busy: (used_s + load_s) / passed,
        });
        Ok(())
    }
}

/// Hands in results until `ends`. Returns the duration of each request in microseconds.
async fn upload(
    target: Target,
    senders: Arc<Vec<Sender>>,
    sent: Arc<AtomicU64>,
    results: usize,
    ends: Instant,
) -> anyhow::Result<Vec<u32>> {
    let mut connection = target.connect(Ipv4Addr::LOCALHOST).await?;
    let mut took_us = Vec::new();
    let template = Template::new();
    while Instant::now() < ends {
        let number = sent.fetch_add(1, Ordering::Relaxed);
        let sender = &senders[(number % u64::from(DEVICES)) as usize];
        let turn = number / u64::from(DEVICES);
        let run = if turn < GIVEN && results == 1 { turn + 1 } else { 0 };
        // Numbers continue after those that rounds of one result per request used.
        let first = turn * MANY as u64 + 1;
        let body = template.body(first, run, results);
        let request = sender.request("/v1/results", &body, first);
        let asked = Instant::now();
        let answer = connection.ask(&request).await?;
        took_us.push(asked.elapsed().as_micros() as u32);
        let text = String::from_utf8_lossy(&answer.body);
        let is_new = text.contains(&format!("\"new\":{results}"));
        ensure!(answer.status == 200 && is_new, "{}: {text}", answer.status);
    }
    Ok(took_us)
}

/// The JSON of a result, split where its numbers go.
struct Template([String; 3]);

impl Template {
    fn new() -> Self {
        let (sequence, run) = (u64::MAX, u64::MAX - 1);
        let shown = RunResult { run, ..result(0, now_ms()) };
        let numbered = Numbered { sequence, result: shown };
        let text = serde_json::to_string(&numbered).unwrap_or_default();
        let (head, rest) = text.split_once(&sequence.to_string()).unwrap_or_default();
        let (middle, tail) = rest.split_once(&run.to_string()).unwrap_or_default();
        Self([head, middle, tail].map(str::to_owned))
    }

    /// Returns a request with numbered results.
    fn body(&self, first: u64, run: u64, results: usize) -> String {
        let Self([head, middle, tail]) = self;
        let one = |sequence| format!("{head}{sequence}{middle}{run}{tail}");
        let list: Vec<String> = (first..).take(results).map(one).collect();
        format!("{{\"epoch\":0,\"results\":[{}]}}", list.join(","))
    }
}

fn has_runs(device: &mut Device) {
    let (due_ms, given_ms) = (device.enrolled_ms, device.enrolled_ms);
    let open = (1..=GIVEN).map(|run| OpenRun { run, due_ms, given_ms }).collect();
    device.schedules.push(Schedule {
        plan: "load".to_owned(),
        run: GIVEN + 1,
        due_ms: now_ms() + 3_600_000,
        held_back: None,
        refusals: 0,
        retry_ms: 0,
        own_ms: 0,
        open,
    });
}
