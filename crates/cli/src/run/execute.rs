//! The trials of a run, one after the other, each recorded as soon as it is finished.

use std::fs;
use std::time::Instant;

use anyhow::Context;
use underload_report::RunDir;
use underload_report::schema::{Direction, Sample, Series, TrialRecord};
use underload_sim::scenario::{Arm, Path, Scenario};

use super::interrupt::Interrupt;
use super::progress::Progress;
use super::trial_seed;
use super::world::World;

/// A trial to run.
#[derive(Debug, Clone, Copy)]
pub struct Trial<'a> {
    /// Position in the run, from 0.
    pub index: u32,
    /// What to run.
    pub arm: &'a Arm,
    /// Which repeat of the arm, from 0.
    pub repeat: u32,
    /// Its own seed.
    pub seed: u64,
}

/// What a trial recorded.
#[derive(Debug)]
pub struct TrialData {
    /// What happened.
    pub record: TrialRecord,
    /// Every probe packet.
    pub samples: Vec<Sample>,
    /// Curves over time.
    pub series: Vec<Series>,
    /// What commands of the scenario printed.
    pub outputs: Vec<Output>,
}

/// What a command printed, to stdout and stderr.
#[derive(Debug)]
pub struct Output {
    /// Its flow.
    pub name: String,
    /// As it was printed.
    pub text: Vec<u8>,
}

/// How a run ended.
#[derive(Debug)]
pub enum End {
    /// Every trial ran.
    Complete {
        /// The whole run, seconds.
        duration_s: f64,
    },
    /// The user stopped it.
    Interrupted {
        /// Trials completed.
        done: usize,
        /// Trials asked for.
        of: usize,
    },
}

/// Runs every arm once, then every arm again, so that a slow drift of the machine meets all arms
/// alike.
pub fn execute(
    scenario: &Scenario,
    world: &mut World,
    directory: &mut RunDir,
    interrupt: &Interrupt,
) -> anyhow::Result<End> {
    let start = Instant::now();
    let of = scenario.arms.len() * scenario.repeats as usize;
    let progress = Progress::start(of, world.estimate(scenario));
    let trials = trials(scenario);
    for batch in trials.chunks(world.batch_size()) {
        let done = batch.first().map_or(0, |trial| trial.index as usize);
        let finished = world.run(batch, &mut |what| progress.show(what), interrupt)?;
        let Some(finished) = finished.filter(|_| !interrupt.is_requested()) else {
            progress.end();
            return Ok(End::Interrupted { done, of });
        };
        for data in finished {
            directory
                .append_trial(&data.record, &data.samples, &data.series)
                .with_context(|| format!("recording trial {} of {of}", data.record.index + 1))?;
            keep_outputs(directory.path(), data.record.index, &data.outputs)?;
            progress.finished(&data.record);
        }
    }
    progress.end();
    Ok(End::Complete { duration_s: start.elapsed().as_secs_f64() })
}

/// Every arm once, then every arm again.
fn trials(scenario: &Scenario) -> Vec<Trial<'_>> {
    let rounds =
        (0..scenario.repeats).flat_map(|repeat| scenario.arms.iter().map(move |arm| (arm, repeat)));
    let trial = |(index, (arm, repeat)): (usize, (_, u32))| {
        let arm: &Arm = arm;
        let seed = trial_seed(scenario.seed, &arm.name, repeat);
        Trial { index: index as u32, arm, repeat, seed }
    };
    rounds.enumerate().map(trial).collect()
}

/// Leaves out the queue and curves of a direction whose link the scenario does not name: it is
/// wide, and its queue says nothing.
pub fn keep_bottlenecks(data: &mut TrialData, path: &Path) {
    let lanes = [(Direction::Up, path.up.is_wide), (Direction::Down, path.down.is_wide)];
    for (direction, _) in lanes.into_iter().filter(|(_, is_wide)| *is_wide) {
        let prefix = format!("{direction}.");
        data.series.retain(|curve| !curve.name.starts_with(&prefix));
        data.record.bottlenecks.retain(|queue| queue.direction != direction);
    }
}

/// Writes what commands printed as `exec/TRIAL-FLOW.txt`.
fn keep_outputs(directory: &std::path::Path, index: u32, outputs: &[Output]) -> anyhow::Result<()> {
    if outputs.is_empty() {
        return Ok(());
    }
    let folder = directory.join("exec");
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    for output in outputs {
        let path = folder.join(format!("{index:07}-{}.txt", output.name));
        fs::write(&path, &output.text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
