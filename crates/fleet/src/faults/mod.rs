//! Fleets in which everything goes wrong, in virtual time, by a seed.
//!
//! Two orchestrators on one store, a few servers, and devices that decide with the code of
//! [`crate::agent`]. Messages are lost, doubled, late and out of order; orchestrators die before
//! and after they commit, the store fails; devices die between any two things that they do, some
//! lose their disk; servers die, or do not hear of anybody for a while; clocks are off. After an
//! hour and a half of it everything works, an hour later the plan is stopped, a few devices are
//! never heard of again, and what was kept is held against what happened. What is checked:
//!
//! - No server, segment or line carries more than it may, whatever the store says.
//! - What is reserved is the sum of what is leased, and no more than there is.
//! - No lease is there after its expiry once anybody looked, no run goes on after its lease.
//! - No result that was acknowledged is lost, or kept twice.
//! - Runs of a device are numbered without a gap, and each has exactly one outcome.
//! - No run is made twice.
//! - Who was refused or cut off runs again once all is well.
//! - Hostile devices neither keep others from running nor outweigh them.

mod check;
mod device;
mod hostile;
mod server;
mod world;

use underload_aqm::rng::Rng;

use world::World;

/// What happened in a fleet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests that reached an orchestrator.
    pub requests: u64,
    /// Messages that were lost, doubled or late.
    pub mishaps: u64,
    /// Devices, servers and orchestrators that died, and disks that were lost.
    pub deaths: u64,
    /// Runs that began.
    pub begun: u64,
    /// Leases that went to another server.
    pub moved: u64,
    /// Outcomes that were kept.
    pub outcomes: u64,
    /// Those of them that orchestrators made.
    pub made: u64,
    /// Requests of hostile devices.
    pub attacks: u64,
}

impl Report {
    /// Adds what happened in another fleet.
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

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what}\nagain: cargo run -p underload-fleet --features conformance --example faults 1 {seed}"
)]
pub struct Broken {
    /// The fleet's seed.
    pub seed: u64,
    /// Which promise, and how.
    pub what: String,
}

/// A fleet's hours, from a seed.
///
/// # Errors
/// The first promise that was broken.
pub fn run(seed: u64) -> Result<Report, Broken> {
    let mut world = World::new(Rng::new(seed).child("faults"));
    world.pass().map_err(|what| Broken { seed, what })?;
    Ok(world.report)
}

/// The results of a fleet with hostile devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endured {
    /// Requests of honest devices and of servers.
    pub requests: u64,
    /// Requests of hostile devices.
    pub attacks: u64,
    /// Results stored of each honest device.
    pub honest_runs: Vec<u64>,
    /// Results stored of each hostile device.
    pub hostile_results: Vec<u64>,
    /// Probes in pooled numbers.
    pub pooled_probes: u64,
    /// Probes in pooled numbers that hostile devices handed in.
    pub hostile_probes: u64,
}

/// Plays `hours` in which everything goes wrong and, if `is_attacked`, one device in ten is
/// hostile.
///
/// # Errors
/// Returns the first promise that was broken.
pub fn endure(seed: u64, hours: u64, is_attacked: bool) -> Result<Endured, Broken> {
    let broken = |what| Broken { seed, what };
    let mut world = World::with_hostile(Rng::new(seed).child("endurance"), hours, is_attacked);
    world.pass().map_err(broken)?;
    world.endured().map_err(broken)
}

#[cfg(test)]
mod tests {
    use super::hostile::PROBES;
    use super::*;
    use crate::outcome::RunResult;

    #[test]
    fn one_hostile_device_in_ten_neither_blocks_nor_outweighs_the_others() {
        let [calm, attacked] = [false, true].map(|is_attacked| {
            endure(1, HOURS, is_attacked).unwrap_or_else(|broken| panic!("{broken}"))
        });
        assert!(attacked.attacks > 150_000, "{attacked:?}");
        assert_eq!(calm.hostile_probes, 0);
        let runs = |it: &Endured| it.honest_runs.iter().sum::<u64>();
        assert!(runs(&attacked) * 10 > runs(&calm) * 9, "{calm:?}\n{attacked:?}");
        // Each run that is due counts once, with at most twice the probes that its steps send.
        let due = 288 * (HOURS + 4) / 24;
        let probes_max = 2 * due * RunResult::PROBES_EXCESS * PROBES.iter().sum::<u64>();
        assert!((1..=probes_max).contains(&attacked.hostile_probes), "{attacked:?}");
        // Runs that a device makes without being asked are stored at twice that rate, and are not
        // in pooled numbers.
        let most = 3 * due + 100;
        assert!(attacked.hostile_results.iter().all(|stored| *stored < most), "{attacked:?}");
    }

    /// As many again as one likes: `cargo run --release -p underload-fleet --features conformance
    /// --example faults 10000`.
    #[test]
    fn promises_hold_whatever_goes_wrong() {
        let share = |worker: u64| {
            let mut sum = Report::default();
            for seed in (worker..FLEETS).step_by(WORKERS as usize) {
                sum.add(&run(seed).unwrap_or_else(|broken| panic!("{broken}")));
            }
            sum
        };
        let mut all = Report::default();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS).map(|it| scope.spawn(move || share(it))).collect();
            for worker in workers {
                let sum = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                all.add(&sum);
            }
        });
        // It happened at all.
        assert!(all.deaths > 20 * FLEETS && all.mishaps > 100 * FLEETS, "{all:?}");
        assert!(all.begun > 20 * FLEETS && all.moved > FLEETS, "{all:?}");
        assert!(all.made > 4 * FLEETS && all.outcomes > all.made + 20 * FLEETS, "{all:?}");
    }

    /// Calm and draining take less than 4 hours more.
    const HOURS: u64 = 24;
    const FLEETS: u64 = 2_000;
    const WORKERS: u64 = 2;
}
