//! Kills every part of a fleet with `kill -9` while it works. Afterwards each assigned run has
//! exactly one outcome.
//!
//! Orchestrator, measurement servers and agents are separate processes on loopback, PostgreSQL too
//! if it is the store. `cargo xtask bench fleet-kill` runs it for longer.

#![expect(clippy::print_stderr, reason = "the seeds and counts of a run that is killed at random")]

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use underload_aqm::rng::Rng;
use underload_fleet::outcome::Outcome;
use underload_fleet::store::{Archive, Filter};
use underload_orchestrator::store::Place;

#[path = "../../orchestrator/tests/support/postgres.rs"]
mod scratch;

use scratch::Scratch;

/// The program beside `underload-fleet`, which it starts.
static PROGRAM: LazyLock<PathBuf> =
    LazyLock::new(|| Path::new(env!("CARGO_BIN_EXE_underload-fleet")).with_file_name("underload"));

/// A latency plan and a loaded one, each with a run about every ten seconds.
const PLANS: [&str; 2] = [
    r#"
name = "idle"
title = "Latency alone"
runs_per_day = 8_640
start_within = "20s"
[lines]
count = 100
[[tier]]
up = "20mbit"
down = "50mbit"
[[step]]
name = "idle"
kind = "latency"
duration = "1s"
[servers]
count = 2
capacity = "100mbit"
"#,
    r#"
name = "loaded"
title = "Beside an upload"
runs_per_day = 8_640
start_within = "20s"
[lines]
count = 100
per_segment = 2
[[tier]]
up = "20mbit"
down = "50mbit"
[[step]]
name = "up"
kind = "upload"
duration = "1s"
[servers]
count = 2
capacity = "100mbit"
"#,
];
const AGENTS: usize = 16;
const SERVERS: [&str; 2] = ["east", "west"];

/// A process that can be killed and restarted.
struct Part {
    command: Command,
    child: Option<Child>,
    kills: u32,
}

impl Part {
    fn new(name: &str, home: &Path, arguments: &[String]) -> Self {
        let mut command = Command::new(&*PROGRAM);
        command.env("XDG_DATA_HOME", home.join(name)).current_dir(home).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { command, child: None, kills: 0 }
    }

    fn start(&mut self) {
        self.child = Some(self.command.spawn().expect("it starts"));
    }

    fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        child.kill().expect("it is killed");
        child.wait().expect("it is over");
        self.kills += 1;
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Fleet {
    home: tempfile::TempDir,
    port: u16,
    place: Place,
    orchestrator: Part,
    servers: Vec<Part>,
    agents: Vec<Part>,
    database: Option<(Scratch, u32)>,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address").port()
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

impl Fleet {
    fn start(database: Option<Scratch>) -> Self {
        let home = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let store = match &database {
            Some(database) => database.database("fleet"),
            None => format!("sqlite:{}", home.path().join("store").display()),
        };
        let listen = format!("--listen 127.0.0.1:{port}");
        let arguments =
            words(&format!("fleet orchestrator --store {store} --state state {listen}"));
        let mut orchestrator = Part::new("orchestrator", home.path(), &arguments);
        orchestrator.start();
        let place = store.parse().expect("a place");
        let database = database.map(|it| (it, 0));
        let (servers, agents) = (Vec::new(), Vec::new());
        let mut fleet = Self { home, port, place, orchestrator, servers, agents, database };
        fleet.wait_until_it_listens();
        for (number, plan) in PLANS.iter().enumerate() {
            let file = format!("plan-{number}.toml");
            std::fs::write(fleet.home.path().join(&file), plan).expect("written");
            fleet.operate(&format!("fleet plan apply {file}"));
        }
        fleet.start_servers();
        fleet.start_agents();
        fleet
    }

    fn start_servers(&mut self) {
        for name in SERVERS {
            let code = self.operate("fleet code --server");
            let port = free_port();
            let at = format!("--bind 127.0.0.1 --port {port} --public 127.0.0.1:{port}");
            let capacity = "--capacity-up 100mbit --capacity-down 100mbit --sessions 64";
            let fleet = format!("--fleet http://127.0.0.1:{} --enrol {code}", self.port);
            let arguments = words(&format!("serve --name {name} {at} {capacity} {fleet}"));
            let mut part = Part::new(name, self.home.path(), &arguments);
            part.start();
            self.servers.push(part);
        }
    }

    fn start_agents(&mut self) {
        for number in 0..AGENTS {
            let code = self.operate(&format!("fleet code --segment segment-{}", number / 2));
            let name = format!("agent-{number}");
            let fleet = format!("--orchestrator http://127.0.0.1:{} --enrol {code}", self.port);
            let line = "--interface none --start-within 0 --tier-up 20 --tier-down 50";
            let arguments = words(&format!("fleet agent --state {name}/state {line} {fleet}"));
            let mut part = Part::new(&name, self.home.path(), &arguments);
            part.start();
            self.agents.push(part);
        }
    }

    fn wait_until_it_listens(&self) {
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(start.elapsed() < PATIENCE, "the orchestrator does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the output of an operator's command.
    fn operate(&self, command: &str) -> String {
        let reach =
            format!("--orchestrator http://127.0.0.1:{} --token state/admin.token", self.port);
        let start = Instant::now();
        loop {
            let mut program = Command::new(&*PROGRAM);
            program.current_dir(self.home.path()).args(words(&format!("{command} {reach}")));
            let output = program.output().expect("it runs");
            if output.status.success() {
                return String::from_utf8(output.stdout).expect("a text").trim().to_owned();
            }
            // After a kill the database is unavailable for a moment.
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(start.elapsed() < PATIENCE, "{command}: {said}");
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Kills one part and restarts it; each kind in turn.
    fn strike(&mut self, turn: u32, rng: &mut Rng) {
        let pause = Duration::from_millis(u64::from(rng.below(1_500)));
        if let (5, Some((database, kills))) = (turn % 12, &mut self.database) {
            database.kill_and_restart();
            *kills += 1;
            return;
        }
        // Agents without an orchestrator wait before they retry, so the orchestrator is not killed
        // too often.
        let part = match turn % 12 {
            1 => &mut self.orchestrator,
            3 | 9 => one_of(&mut self.servers, rng),
            _ => one_of(&mut self.agents, rng),
        };
        part.kill();
        std::thread::sleep(pause);
        part.start();
    }

    /// Stops all plans, so that no run is due, and restarts the devices, so that those that were
    /// asked to return later return now.
    fn come_to_an_end(&mut self) {
        self.wait_until_it_listens();
        for plan in ["idle", "loaded"] {
            self.operate(&format!("fleet plan stop {plan}"));
        }
        for agent in &mut self.agents {
            agent.kill();
            agent.start();
        }
    }

    fn archive(&self) -> Box<dyn Archive> {
        let start = Instant::now();
        loop {
            match self.place.archive() {
                Ok(archive) => return archive,
                Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

const PATIENCE: Duration = Duration::from_mins(1);

fn one_of<'a>(parts: &'a mut [Part], rng: &mut Rng) -> &'a mut Part {
    let place = rng.below(parts.len() as u32) as usize;
    &mut parts[place]
}

/// Counts the runs in two ways.
#[derive(Debug, Default)]
struct Account {
    /// Runs that were due and have ended, by the schedules of devices.
    begun: u64,
    /// Runs whose results devices have not sent yet.
    owed: u64,
    /// Results of each run of each device in each study.
    results: BTreeMap<(String, String), BTreeMap<u64, u32>>,
    outcomes: BTreeMap<Outcome, u64>,
}

impl Account {
    fn take(archive: &mut dyn Archive) -> Self {
        let mut account = Self::default();
        for device in archive.devices(&Filter::default(), None, 1_000).expect("the devices") {
            for schedule in &device.schedules {
                account.begun += schedule.run - 1;
                account.owed += schedule.open.len() as u64;
            }
        }
        let seen = archive.visit(&Filter::default(), &mut |kept| {
            // Runs with number 0 were made without an assignment, while no orchestrator answered.
            if kept.result.run > 0 {
                let device = (kept.result.plan.clone(), kept.pseudonym.to_string());
                let runs = account.results.entry(device).or_default();
                *runs.entry(kept.result.run).or_default() += 1;
                *account.outcomes.entry(kept.result.outcome).or_default() += 1;
            }
            true
        });
        seen.expect("the results");
        account
    }

    /// Returns the number of runs that have an outcome.
    fn over(&self) -> u64 {
        self.results.values().map(|runs| runs.len() as u64).sum()
    }

    /// Returns the number of runs that have two outcomes.
    fn twice(&self) -> usize {
        self.results.values().flat_map(BTreeMap::values).filter(|count| **count > 1).count()
    }

    /// Returns the number of runs without an outcome whose successors have one: runs are numbered
    /// from 1.
    fn missing(&self) -> u64 {
        let last = |runs: &BTreeMap<u64, u32>| *runs.keys().next_back().unwrap_or(&0);
        self.results.values().map(|runs| last(runs) - runs.len() as u64).sum()
    }
}

fn run(name: &str, database: Option<Scratch>, lasts: Duration, seed: u64) {
    let mut fleet = Fleet::start(database);
    let (mut rng, mut turn) = (Rng::new(seed), 0);
    let start = Instant::now();
    while start.elapsed() < lasts {
        std::thread::sleep(Duration::from_millis(1_000 + u64::from(rng.below(2_000))));
        fleet.strike(turn, &mut rng);
        turn += 1;
    }
    // With agents and orchestrator killed, both counts are of the same instant.
    fleet.agents.iter_mut().for_each(Part::kill);
    fleet.orchestrator.kill();
    let mut archive = fleet.archive();
    let still = Account::take(archive.as_mut());
    assert_eq!(still.begun, still.over() + still.owed, "{still:?}");
    fleet.orchestrator.start();
    fleet.come_to_an_end();
    let start = Instant::now();
    let account = loop {
        let account = Account::take(archive.as_mut());
        if account.owed == 0 || start.elapsed() > PATIENCE * 2 {
            break account;
        }
        std::thread::sleep(Duration::from_millis(500));
    };
    let kills = |parts: &[Part]| parts.iter().map(|part| part.kills).sum::<u32>();
    eprintln!("{name}, seed {seed}, {} s", lasts.as_secs());
    eprintln!(
        "  killed: orchestrator {} times, servers {}, agents {}, database {}",
        fleet.orchestrator.kills,
        kills(&fleet.servers),
        kills(&fleet.agents),
        fleet.database.as_ref().map_or(0, |(_, kills)| *kills)
    );
    eprintln!(
        "  when all stood still: {} runs were due, {} had an outcome, {} were owed one",
        still.begun,
        still.over(),
        still.owed
    );
    eprintln!(
        "  in the end: {} runs have an outcome, {} have two, {} have none",
        account.over(),
        account.twice(),
        account.missing() + account.owed
    );
    for (outcome, count) in &account.outcomes {
        eprintln!("    {}: {count}", outcome.name());
    }
    assert_eq!((account.twice(), account.owed, account.missing()), (0, 0, 0), "{account:?}");
    assert!(account.over() >= still.begun && still.begun > 0, "{account:?}");
}

/// Long enough that every part is killed.
const SHORT: Duration = Duration::from_secs(15);
const LONG: Duration = Duration::from_mins(2);

#[test]
fn each_run_has_one_outcome_after_any_kill() {
    run("SQLite", None, SHORT, 1);
}

#[test]
fn each_run_has_one_outcome_after_any_kill_with_postgresql() {
    let Some(database) = Scratch::start("each_run_has_one_outcome_after_any_kill_with_postgresql")
    else {
        return;
    };
    run("PostgreSQL", Some(database), SHORT, 2);
}

#[test]
#[ignore = "two minutes; `cargo xtask bench fleet-kill`"]
fn two_minutes_of_kills_with_sqlite() {
    run("SQLite", None, LONG, 3);
}

#[test]
#[ignore = "two minutes; `cargo xtask bench fleet-kill`"]
fn two_minutes_of_kills_with_postgresql() {
    if let Some(database) = Scratch::start("two_minutes_of_kills_with_postgresql") {
        run("PostgreSQL", Some(database), LONG, 4);
    }
}
