//! Whole fleets under injected faults, in virtual time, each repeatable by its seed.
//!
//! Two orchestrators share one store. There are a few servers, and devices that decide with the
//! code of [`underload_fleet::agent`]. For an hour and a half messages are lost, duplicated,
//! delayed and reordered; orchestrators die before and after they commit; the store fails; devices
//! die between any two steps, and some lose their disk; servers die or are cut off; clocks differ.
//! Then an hour passes without faults, the plan is stopped, and a few devices vanish for good.
//! Checked are:
//!
//! - No server, segment or line carries more than its limit, whatever the store contains.
//! - Reservations are the sum of the leases and within the capacity.
//! - No lease exists after its expiry once expired leases were freed, and no run outlasts its
//!   lease.
//! - No acknowledged result is lost or stored twice.
//! - Runs of a device are numbered without gaps, and each has exactly one outcome.
//! - No run is made twice.
//! - Devices that were refused or cut off run again once the faults have ended.
//! - Hostile devices neither keep others from running nor outweigh them.

mod check;
mod device;
mod hostile;
mod play;
mod server;
mod world;

use std::env;

use underload_aqm::rng::Rng;
use underload_fleet::outcome::RunResult;

use device::PROBES;
use hostile::Endured;
use world::{Report, World};

fn run(seed: u64) -> Report {
    let mut world = World::new(Rng::new(seed).child("faults"));
    let again = format!("again: FLEETS=1 SEED={seed} cargo test -p underload-fleet --test faults");
    world.play().unwrap_or_else(|broken| panic!("{broken}\n{again}"));
    world.report
}

/// Plays `hours` with faults. If `is_attacked`, one device in ten is hostile.
fn endure(seed: u64, hours: u64, is_attacked: bool) -> Endured {
    let mut world = World::with_hostile(Rng::new(seed).child("endurance"), hours, is_attacked);
    let endured = world.play().and_then(|()| world.endured());
    endured.unwrap_or_else(|broken| panic!("{broken}"))
}

#[test]
fn one_hostile_device_in_ten_neither_blocks_nor_outweighs_the_others() {
    let [calm, attacked] = [false, true].map(|is_attacked| endure(1, HOURS, is_attacked));
    assert!(attacked.attacks > 150_000, "{attacked:?}");
    assert_eq!(calm.hostile_probes, 0);
    let runs = |endured: &Endured| endured.honest_runs.iter().sum::<u64>();
    assert!(runs(&attacked) * 10 > runs(&calm) * 9, "{calm:?}\n{attacked:?}");
    // Each due run counts once, with at most twice the probes of its steps.
    let due = 288 * (HOURS + 4) / 24;
    let probes_max = 2 * due * RunResult::PROBES_EXCESS * PROBES.iter().sum::<u64>();
    assert!((1..=probes_max).contains(&attacked.hostile_probes), "{attacked:?}");
    // The premise: hostile devices submitted results of runs that were assigned to them; only these
    // results are checked.
    assert!(attacked.hostile_assigned > due / 10, "{attacked:?}");
    // Runs without an assignment are stored at up to twice the plan's rate, and are not in pooled
    // numbers.
    let most = 3 * due + 100;
    assert!(attacked.hostile_results.iter().all(|stored| *stored < most), "{attacked:?}");
}

/// Plays `FLEETS` fleets (800 without this variable) from the seed `SEED` (0) on.
#[test]
#[expect(clippy::disallowed_methods, reason = "a developer chooses the fleets")]
fn promises_hold_under_faults() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse().expect(name));
    let (first, fleets): (u64, u64) =
        (number("SEED").unwrap_or(0), number("FLEETS").unwrap_or(800));
    let share = |worker: u64| {
        let mut sum = Report::default();
        (first + worker..first + fleets)
            .step_by(WORKERS as usize)
            .for_each(|seed| sum.add(&run(seed)));
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
    eprintln!("{fleets} fleets, no promise broken: {all:?}");
    if fleets < 500 {
        return;
    }
    // The premise: faults happened.
    assert!(all.deaths > 20 * fleets && all.mishaps > 100 * fleets, "{all:?}");
    assert!(all.begun > 20 * fleets && all.moved > fleets, "{all:?}");
    assert!(all.made > 4 * fleets && all.outcomes > all.made + 20 * fleets, "{all:?}");
}

/// Simulated hours with faults; fewer than 4 hours without faults follow.
const HOURS: u64 = 24;
const WORKERS: u64 = 2;
