//! The trials of a run, batch after batch, each recorded in its order as soon as it is finished.

use std::io::Write as _;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use anyhow::Context;
use underload_aqm::registry::LoadFile;
use underload_record::schema::{Sample, Series, TrialRecord};
use underload_report::RunDir;
use underload_run::scenario::{Arm, Conditions, Path, Scenario};

use super::Interrupt;
use super::cache::{Cache, Found, Key};
use super::packets::Wanted;
use super::progress::Progress;
use super::repeat_seed;
use super::world::World;
use crate::simulated::Setting;

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
    /// Whether curves over time are recorded; a study of thousands of trials goes without.
    pub keeps_curves: bool,
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

/// Everything that a run's trials come from.
pub struct Plan<'a> {
    /// The arms, and what is drawn for each trial of them.
    pub scenario: &'a Scenario,
    /// Where links find their files.
    pub load: &'a mut LoadFile<'a>,
    /// Where trials computed before are looked up.
    pub cache: Option<Cache>,
    /// See [`Trial::keeps_curves`].
    pub keeps_curves: bool,
    /// Packets to record.
    pub packets: Wanted,
    /// Simulated trials side by side; `None`: one per core.
    pub threads: Option<NonZeroUsize>,
}

/// One trial's place, and what a cohort drew for it.
struct Planned<'a> {
    index: u32,
    repeat: u32,
    arm: &'a Arm,
    drawn: Option<(Arm, Conditions)>,
}

/// Runs every arm once, then every arm again, so that a slow drift of the machine meets all arms
/// alike.
pub fn execute(
    mut plan: Plan<'_>,
    world: &mut World,
    directory: &mut RunDir,
    interrupt: &Interrupt,
) -> anyhow::Result<End> {
    let start = Instant::now();
    let of = plan.trials();
    let mut progress = Progress::start(of, world.estimate(plan.scenario));
    let mut size = world.batch_size();
    let mut done = 0;
    while done < of {
        let batch_start = Instant::now();
        let batch = plan.batch(done, size)?;
        let packets = plan.packets.clone();
        let setting = Setting { interrupt, directory, packets: &packets, threads: plan.threads };
        let show = &mut Shown { world, progress: &mut progress, setting };
        let finished = plan.run(&batch, show)?;
        // A trial is recorded in its place; those after an interrupted one are in the cache.
        for data in finished.into_iter().map_while(|data| data) {
            done += 1;
            directory
                .append_trial(&data.record, &data.samples, &data.series)
                .with_context(|| format!("recording trial {} of {of}", data.record.index + 1))?;
            keep_outputs(directory, data.record.index, &data.outputs)?;
            progress.finished(&data.record);
        }
        directory.sync()?;
        if interrupt.is_requested() && done < of {
            progress.end();
            return Ok(End::Interrupted { done, of });
        }
        size = next_size(size, world.batch_size(), batch_start.elapsed());
    }
    progress.end();
    Ok(End::Complete { duration_s: start.elapsed().as_secs_f64() })
}

/// Who runs a batch, and who hears of it.
struct Shown<'a> {
    world: &'a mut World,
    progress: &'a mut Progress,
    setting: Setting<'a>,
}

impl<'a> Plan<'a> {
    /// Trials of the whole run.
    pub fn trials(&self) -> usize {
        self.scenario.trials()
    }

    /// Up to `size` trials from the first that is not done.
    fn batch(&mut self, done: usize, size: usize) -> anyhow::Result<Vec<Planned<'a>>> {
        let scenario = self.scenario;
        let (arms, of) = (scenario.arms.len(), self.trials());
        let planned = |index: usize| {
            let (arm, repeat) = (&scenario.arms[index % arms], (index / arms) as u32);
            let drawn = match scenario.cohort {
                Some(_) => Some(scenario.trial_arm(arm, repeat, self.load)?),
                None => None,
            };
            Ok(Planned { index: index as u32, repeat, arm, drawn })
        };
        (done..of.min(done + size)).map(planned).collect()
    }

    /// Finds trials in the cache and runs the others. Those that were interrupted are `None`.
    fn run(
        &mut self,
        batch: &[Planned<'_>],
        shown: &mut Shown<'_>,
    ) -> anyhow::Result<Vec<Option<TrialData>>> {
        let trials: Vec<Trial<'_>> = batch.iter().map(|planned| self.trial(planned)).collect();
        let keys: Vec<Option<Key>> =
            trials.iter().map(|trial| self.cache.as_ref().map(|cache| cache.key(trial))).collect();
        let mut results: Vec<Option<TrialData>> = Vec::with_capacity(batch.len());
        for (trial, key) in trials.iter().zip(&keys) {
            results.push(self.find(trial, key.as_ref(), shown.progress));
        }
        let pairs = trials.iter().zip(&results);
        let missing: Vec<Trial<'_>> =
            pairs.filter(|(_, result)| result.is_none()).map(|(trial, _)| *trial).collect();
        let progress = &*shown.progress;
        let computed = shown.world.run(&missing, &mut |what| progress.show(what), shown.setting)?;
        let mut computed = computed.into_iter();
        for (result, key) in results.iter_mut().zip(&keys).filter(|(result, _)| result.is_none()) {
            *result = computed.next().flatten();
            if let (Some(data), Some(key)) = (&*result, key) {
                self.keep(key, data, shown.progress);
            }
        }
        shown.progress.computed(missing.len());
        for (data, planned) in results.iter_mut().zip(batch) {
            let Some(data) = data else { continue };
            data.record.conditions = planned
                .drawn
                .as_ref()
                .map(|(_, conditions)| conditions.clone())
                .unwrap_or_default();
        }
        Ok(results)
    }

    fn trial<'b>(&self, planned: &'b Planned<'_>) -> Trial<'b> {
        let arm = planned.drawn.as_ref().map_or(planned.arm, |(arm, _)| arm);
        Trial {
            index: planned.index,
            arm,
            repeat: planned.repeat,
            seed: repeat_seed(self.scenario.seed, planned.repeat),
            keeps_curves: self.keeps_curves,
        }
    }

    fn find(
        &self,
        trial: &Trial<'_>,
        key: Option<&Key>,
        progress: &mut Progress,
    ) -> Option<TrialData> {
        match self.cache.as_ref()?.find(key?, trial) {
            Found::Trial(data) => Some(*data),
            Found::Nothing => None,
            Found::Damaged(why) => {
                progress.say(&format!("damaged cache entry, computed anew: {why}"));
                None
            }
        }
    }

    /// A cache that cannot be written is left alone from then on.
    fn keep(&mut self, key: &Key, data: &TrialData, progress: &Progress) {
        let kept = self.cache.as_mut().map_or(Ok(()), |cache| cache.keep(key, data));
        if let Err(error) = kept {
            progress.say(&format!("going on without a cache: {error:#}"));
            self.cache = None;
        }
    }
}

/// Batches of about half a second: short enough for Ctrl-C, long enough to keep every core busy.
fn next_size(size: usize, least: usize, took: Duration) -> usize {
    const MOST: usize = 256;
    match took.as_millis() {
        // A world that runs one trial at a time stays with that.
        _ if least == 1 => 1,
        0..250 => (size * 2).min(MOST),
        250..1_000 => size,
        _ => (size / 2).max(least),
    }
}

/// Leaves out the queue and curves of a direction whose link the scenario does not name: it is
/// wide, and its queue says nothing.
pub fn keep_bottlenecks(data: &mut TrialData, path: &Path) {
    for (direction, _) in path.lanes().filter(|(_, lane)| lane.is_wide) {
        let prefix = format!("{direction}.");
        data.series.retain(|curve| !curve.name.starts_with(&prefix));
        data.record.bottlenecks.retain(|queue| queue.direction != direction);
    }
}

/// Writes what commands printed as `exec/TRIAL-FLOW.txt`.
fn keep_outputs(directory: &RunDir, index: u32, outputs: &[Output]) -> anyhow::Result<()> {
    for output in outputs {
        let name = format!("{index:07}-{}.txt", output.name);
        let mut file = directory.begin_file("exec", &name)?;
        file.write_all(&output.text).with_context(|| format!("writing exec/{name}"))?;
    }
    Ok(())
}
