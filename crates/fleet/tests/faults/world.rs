//! The state of a fleet, time and the network.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ring::signature::Ed25519KeyPair;
use underload_aqm::rng::Rng;
use underload_aqm::time::Time;
use underload_fleet::agent::{Agent, Began, RemovalNotice, RunTask, Trouble, Usage};
use underload_fleet::device::{Attributes, DeviceId};
use underload_fleet::lease::{Claims, SKEW_MS};
use underload_fleet::message::{
    Heartbeat, HeartbeatAnswer, Move, Moved, Next, NextAnswer, Numbered, Release, Results,
    ServerAddress, Stored,
};
use underload_fleet::orchestrator::{Answer, Orchestrator, Settings};
use underload_fleet::store::{self, Memory, Needs, Store as _, StoreError, Transaction};

/// Milliseconds since 1970.
pub const START_MS: u64 = 1_800_000_000_000;
pub const MINUTE_MS: u64 = 60_000;
/// How long faults are injected.
const CHAOS_MS: u64 = 90 * MINUTE_MS;
/// A caller waits this long for an answer.
pub const TIMEOUT_MS: u64 = 10_000;
pub const CAPACITY: u64 = 202_000_000;

/// An error ends the play of the fleet: it describes the broken promise.
pub type Checked = Result<(), String>;

/// Counters of a fleet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests that reached an orchestrator.
    pub requests: u64,
    /// Messages that were lost, duplicated or delayed.
    pub mishaps: u64,
    /// Deaths of devices, servers and orchestrators.
    pub deaths: u64,
    pub begun: u64,
    /// Leases that moved to another server.
    pub moved: u64,
    pub outcomes: u64,
    /// Outcomes that orchestrators made.
    pub made: u64,
    /// Requests of hostile devices.
    pub attacks: u64,
}

impl Report {
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.mishaps += other.mishaps;
        self.deaths += other.deaths;
        self.begun += other.begun;
        self.moved += other.moved;
        self.outcomes += other.outcomes;
        self.made += other.made;
        self.attacks += other.attacks;
    }
}

/// A request to an orchestrator.
#[derive(Debug, Clone)]
pub enum Request {
    Next(Next),
    Move(Move),
    Release(Release),
    Results(Results),
    Heartbeat(Heartbeat),
}

#[derive(Debug, Clone)]
pub enum Reply {
    Next(Box<NextAnswer>),
    Moved(Moved),
    Released,
    Stored(Stored),
    Heartbeat(HeartbeatAnswer),
}

/// The sender of a request. An answer to an earlier life or an earlier call is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    pub is_server: bool,
    pub place: usize,
    pub life: u64,
    pub call: u64,
}

#[derive(Debug, Clone)]
pub enum Event {
    Request {
        orchestrator: usize,
        from: Caller,
        sent_ms: u64,
        request: Request,
    },
    Reply {
        to: Caller,
        reply: Result<Reply, Trouble>,
    },
    /// A device takes its next task.
    Wake {
        place: usize,
        life: u64,
    },
    DeviceStarts {
        place: usize,
    },
    Connect {
        place: usize,
        life: u64,
    },
    RunEnds {
        place: usize,
        life: u64,
    },
    Heartbeat {
        place: usize,
        life: u64,
    },
    /// A server checks whether it is cut off.
    CheckSilence {
        place: usize,
        life: u64,
    },
    ServerStarts {
        place: usize,
    },
    OrchestratorStarts {
        place: usize,
    },
    Settle,
    /// A device, a server or an orchestrator dies.
    Strike,
    /// A hostile device sends a request.
    Attack {
        place: usize,
    },
    /// An operator removes a device.
    Remove {
        place: usize,
    },
}

pub struct Process {
    pub orchestrator: Orchestrator,
    pub is_up: bool,
    /// How far its clock is ahead.
    pub ahead_ms: u64,
}

/// The state of a device that survives a power cut.
#[derive(Debug, Default)]
pub struct Disk {
    pub epoch: u32,
    pub sequence: u64,
    pub spool: VecDeque<(u32, Numbered)>,
    pub request: u64,
    pub began: Option<Began>,
    pub is_running: bool,
    pub dropped: u64,
    pub removal: Option<RemovalNotice>,
    pub usage: Usage,
}

/// The request or run of a device that is under way.
#[derive(Debug)]
pub enum Doing {
    Nothing,
    /// `batch` is the epoch and the last sequence number of the results in the request.
    Requests {
        batch: Option<(u32, u64)>,
    },
    Connects(Box<RunTask>),
    Runs {
        began: Time,
        has_load: bool,
    },
}

pub struct Device {
    pub id: DeviceId,
    pub segment: u32,
    pub is_removed: bool,
    /// Whether the device has vanished for good.
    pub is_gone: bool,
    /// Whether the disk was lost at least once.
    pub has_forgotten: bool,
    pub life: u64,
    /// `None` while the device is off.
    pub agent: Option<Agent>,
    pub started_ms: u64,
    pub disk: Disk,
    pub doing: Doing,
    pub call: u64,
}

impl Device {
    fn new(place: usize, segment: u32) -> Self {
        Self {
            id: id_of(1, place),
            segment,
            is_removed: false,
            is_gone: false,
            has_forgotten: false,
            life: 0,
            agent: None,
            started_ms: START_MS,
            disk: Disk::default(),
            doing: Doing::Nothing,
            call: 0,
        }
    }

    pub fn attributes(&self) -> Attributes {
        Attributes { segment: format!("segment-{}", self.segment), ..Attributes::default() }
    }

    /// Time since the device started.
    pub fn now(&self, now_ms: u64) -> Time {
        Time::from_millis(now_ms - self.started_ms)
    }
}

pub struct Server {
    pub id: DeviceId,
    pub name: String,
    pub ahead_ms: u64,
    pub cut_off_until_ms: u64,
    pub is_up: bool,
    pub life: u64,
    pub call: u64,
    /// When the last heartbeat that was answered was sent.
    pub answered_ms: u64,
    pub keys: Vec<[u8; 32]>,
    /// The lease of each run under way, by the place of its device; `None` for a run without lease.
    pub sessions: BTreeMap<usize, Option<Claims>>,
    /// Leases that have ended since the last answered heartbeat.
    pub ended: Vec<u64>,
    /// Call, time and number of `ended` leases of the last heartbeat.
    pub reported: Option<(u64, u64, usize)>,
    /// Used leases, on disk.
    pub used: BTreeSet<u64>,
}

impl Server {
    fn new(place: usize, rng: &mut Rng) -> Self {
        Self {
            id: id_of(2, place),
            name: format!("server-{place}"),
            ahead_ms: u64::from(rng.below(SKEW_MS as u32)),
            cut_off_until_ms: 0,
            is_up: false,
            life: 0,
            call: 0,
            answered_ms: 0,
            keys: Vec::new(),
            sessions: BTreeMap::new(),
            ended: Vec::new(),
            reported: None,
            used: BTreeSet::new(),
        }
    }

    pub fn address(&self) -> ServerAddress {
        ServerAddress {
            name: self.name.clone(),
            address: format!("{}.example:9000", self.name),
            fingerprint: format!("sha256:{}", "0".repeat(64)),
        }
    }

    /// Numbers of the leases of runs under way.
    pub fn leases(&self) -> Vec<u64> {
        self.sessions.values().flatten().map(|claims| claims.id).collect()
    }
}

/// An enrolled device under an attacker's control, which sends forged requests.
#[derive(Debug, Clone)]
pub struct Hostile {
    pub id: DeviceId,
    pub request: u64,
    pub sequence: u64,
    /// Number and lease of the last run that was assigned to it.
    pub run: u64,
    pub lease_id: u64,
}

/// Events that the final checks compare with the store. Devices are given by their places.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Device and run of each assignment.
    pub assigned: BTreeSet<(usize, u64)>,
    pub began: BTreeSet<(usize, u64)>,
    /// Devices with runs that began after the faults had ended.
    pub ran_in_calm: BTreeSet<usize>,
    /// Device, epoch, sequence and run of each acknowledged result.
    pub acknowledged: Vec<(usize, u32, u64, u64)>,
    /// The first run of each device that may not have been due.
    pub next: BTreeMap<usize, u64>,
}

pub struct World {
    pub now_ms: u64,
    pub rng: Rng,
    pub report: Report,
    pub ledger: Ledger,
    /// Whether the time of faults has ended.
    pub is_calm: bool,
    pub is_stopped: bool,
    pub devices: Vec<Device>,
    pub servers: Vec<Server>,
    pub hostile: Vec<Hostile>,
    pub store: Memory,
    pub chaos_ms: u64,
    pub processes: Vec<Process>,
    pub events: BTreeMap<(u64, u64), Event>,
    added: u64,
}

pub fn orchestrator() -> Orchestrator {
    let key = Ed25519KeyPair::from_seed_unchecked(&[5; 32]).expect("any seed is a key");
    // Devices learn of new plans within minutes.
    let settings = Settings { poll_ms: 5 * MINUTE_MS, ..Settings::default() };
    Orchestrator::new(settings, key, [6; 32])
}

impl World {
    pub fn new(mut rng: Rng) -> Self {
        let devices = 2 + rng.below(5) as usize;
        let servers = 1 + rng.below(3) as usize;
        let segments = 1 + rng.below(3);
        Self::sized([devices, servers, 0], segments, CHAOS_MS, rng)
    }

    /// Eighteen honest devices, and two hostile ones if `is_attacked`.
    pub fn with_hostile(rng: Rng, hours: u64, is_attacked: bool) -> Self {
        let hostile = if is_attacked { 2 } else { 0 };
        Self::sized([18, 6, hostile], 18, hours * 60 * MINUTE_MS, rng)
    }

    fn sized(
        [devices, servers, hostile]: [usize; 3],
        segments: u32,
        chaos_ms: u64,
        mut rng: Rng,
    ) -> Self {
        // The clocks of the two orchestrators differ by at most half a second.
        let processes = [0, u64::from(rng.below(500))].map(|ahead_ms| Process {
            orchestrator: orchestrator(),
            is_up: true,
            ahead_ms,
        });
        let mut world = Self {
            now_ms: START_MS,
            report: Report::default(),
            ledger: Ledger::default(),
            is_calm: false,
            is_stopped: false,
            devices: (0..devices).map(|place| Device::new(place, rng.below(segments))).collect(),
            servers: (0..servers).map(|place| Server::new(place, &mut rng)).collect(),
            hostile: (0..hostile)
                .map(|place| Hostile {
                    id: id_of(3, place),
                    request: 0,
                    sequence: 0,
                    run: 0,
                    lease_id: 0,
                })
                .collect(),
            store: Memory::new(),
            chaos_ms,
            processes: processes.into(),
            events: BTreeMap::new(),
            added: 0,
            rng,
        };
        world.enrol();
        world
    }

    /// Stores the rows of all devices and servers.
    fn enrol(&mut self) {
        let mut tx = self.store.begin(&Needs::default()).expect("memory");
        let honest = self.devices.iter().map(|device| (device.id, device.attributes()));
        let hostile = self.hostile.iter().map(|hostile| (hostile.id, Attributes::default()));
        for (id, attributes) in honest.chain(hostile) {
            let row = store::Device::new(id, [0; 32], attributes, START_MS);
            tx.put_device(&row).expect("memory");
        }
        for server in &self.servers {
            let row = store::Server::new(server.address(), server.id, [0; 32]);
            tx.put_server(&row).expect("memory");
        }
        tx.commit().expect("memory");
    }

    pub fn after(&mut self, wait_ms: u64, event: Event) {
        self.added += 1;
        self.events.insert((self.now_ms + wait_ms, self.added), event);
    }

    /// Whether a fault with this probability happens.
    pub fn mishap(&mut self, per_mille: u32) -> bool {
        !self.is_calm && self.rng.below(1_000) < per_mille
    }

    pub fn chance(&mut self, percent: u32) -> bool {
        self.rng.below(100) < percent
    }

    /// Sends a message that may be lost, duplicated, delayed or overtaken.
    pub fn send(&mut self, event: Event) {
        if self.mishap(30) {
            self.report.mishaps += 1;
            return;
        }
        if self.mishap(30) {
            self.report.mishaps += 1;
            let late = self.late_ms();
            self.after(late, event.clone());
        }
        let wait = if self.mishap(20) {
            self.report.mishaps += 1;
            self.late_ms()
        } else {
            10 + u64::from(self.rng.below(100))
        };
        self.after(wait, event);
    }

    fn late_ms(&mut self) -> u64 {
        let most = [1_000, 20_000, 120_000, 400_000][self.rng.below(4) as usize];
        u64::from(self.rng.below(most))
    }

    pub fn change<T>(
        &mut self,
        at: usize,
        by: impl FnOnce(&Orchestrator, &mut dyn Transaction, u64, &mut Rng) -> Answer<T>,
    ) -> Answer<T> {
        self.change_unless(at, false, by)
    }

    /// Runs a transaction, and drops it if it fails or `is_lost`.
    pub fn change_unless<T>(
        &mut self,
        at: usize,
        is_lost: bool,
        by: impl FnOnce(&Orchestrator, &mut dyn Transaction, u64, &mut Rng) -> Answer<T>,
    ) -> Answer<T> {
        let process = &self.processes[at];
        let now_ms = self.now_ms + process.ahead_ms;
        let mut tx = self.store.begin(&Needs::default())?;
        let done = by(&process.orchestrator, &mut *tx, now_ms, &mut self.rng)?;
        if is_lost {
            return Err(StoreError::temporary("the disk is full"));
        }
        tx.commit()?;
        Ok(done)
    }

    pub fn must<T>(
        &mut self,
        by: impl FnOnce(&Orchestrator, &mut dyn Transaction, u64, &mut Rng) -> Answer<T>,
    ) -> Checked {
        match self.change(0, by) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(rejection)) => Err(rejection.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The clock of a server, which is wrong by less than leases allow for.
    pub fn server_clock_ms(&self, place: usize) -> u64 {
        (self.now_ms + self.servers[place].ahead_ms).saturating_sub(SKEW_MS / 2)
    }
}

pub fn id_of(kind: u8, place: usize) -> DeviceId {
    let mut id = [kind; 16];
    id[0] = place as u8;
    DeviceId(id)
}
