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

mod check;
mod device;
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

#[cfg(test)]
mod tests {
    use super::*;

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

    const FLEETS: u64 = 2_000;
    const WORKERS: u64 = 2;
}
