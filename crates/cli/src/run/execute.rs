//! The trials of a run, one after the other, each recorded as soon as it is finished.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use underload_report::RunDir;
use underload_report::schema::{Sample, Series, TrialRecord};
use underload_sim::scenario::{Arm, Scenario};

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
    let rounds =
        (0..scenario.repeats).flat_map(|repeat| scenario.arms.iter().map(move |arm| (arm, repeat)));
    for (index, (arm, repeat)) in rounds.enumerate() {
        let seed = trial_seed(scenario.seed, &arm.name, repeat);
        let trial = Trial { index: index as u32, arm, repeat, seed };
        let data = world
            .run(&trial, &mut |phase| progress.show(&arm.name, phase), interrupt)
            .with_context(|| format!("arm {}, repeat {}", arm.name, repeat + 1))?;
        let Some(data) = data else {
            progress.end();
            return Ok(End::Interrupted { done: index, of });
        };
        directory
            .append_trial(&data.record, &data.samples, &data.series)
            .with_context(|| format!("recording trial {} of {of}", index + 1))?;
        keep_outputs(directory.path(), index, &data.outputs)?;
        progress.finished(&data.record);
    }
    progress.end();
    Ok(End::Complete { duration_s: start.elapsed().as_secs_f64() })
}

/// Writes what commands printed as `exec/TRIAL-FLOW.txt`.
fn keep_outputs(directory: &Path, index: usize, outputs: &[Output]) -> anyhow::Result<()> {
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
