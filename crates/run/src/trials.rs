//! The trials of a run, batch after batch, each recorded in its order as soon as it is finished.

use std::io::Write as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use underload_store::RunDir;

use crate::cache::{Cache, Found, Key};
use crate::error::{Doing as _, RunError, chain};
use crate::progress::Progress;
use crate::results::Results;
use crate::scenario::{Arm, Conditions, Scenario};
use crate::settings::Settings;
use crate::source;
use crate::trial::{Output, Setting, Trial, TrialData, repeat_seed};
use crate::world::World;

/// The reason why a run ended.
#[derive(Debug)]
pub(crate) enum End {
    /// All trials were run.
    Complete {
        /// The whole run, seconds.
        duration_s: f64,
    },
    /// The caller stopped it.
    Interrupted {
        /// Trials asked for.
        of: usize,
    },
}

/// Everything that a run's trials come from.
pub(crate) struct Plan<'a> {
    /// The arms, and what is drawn for each trial of them.
    pub scenario: &'a Scenario,
    pub settings: &'a Settings,
    /// The cache of trials that were simulated before.
    pub cache: Option<Cache>,
    /// Whether curves are recorded, see [`Trial::keeps_curves`].
    pub keeps_curves: bool,
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
pub(crate) fn execute(
    mut plan: Plan<'_>,
    world: &dyn World,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<End, RunError> {
    let start = Instant::now();
    let of = plan.scenario.trials();
    let mut done = results.trials();
    if done > 0 {
        progress.say(&format!("{done} of {of} trials are there already"));
    }
    let left = of.saturating_sub(done);
    let share = left as f64 / of.max(1) as f64;
    progress.start(left, world.estimate(plan.scenario).map(|whole| whole.mul_f64(share)));
    let mut size = world.batch_size();
    while done < of {
        let batch_start = Instant::now();
        let batch = plan.batch(done, size)?;
        let finished = plan.run(&batch, world, results.directory(), progress)?;
        // A trial is recorded in its place; those after an interrupted one are in the cache.
        for data in finished.into_iter().map_while(|data| data) {
            done += 1;
            data.notes.iter().for_each(|note| progress.say(note));
            results
                .append(&data.record, &data.samples, &data.series)
                .doing(format!("recording trial {} of {of}", data.record.index + 1))?;
            if let Some(directory) = results.directory() {
                keep_outputs(directory, data.record.index, &data.outputs)?;
            }
            progress.finished(&data.record);
        }
        results.sync()?;
        if plan.settings.stop.load(Ordering::Relaxed) && done < of {
            progress.end();
            return Ok(End::Interrupted { of });
        }
        size = next_size(size, world.batch_size(), batch_start.elapsed());
    }
    progress.end();
    Ok(End::Complete { duration_s: start.elapsed().as_secs_f64() })
}

impl<'a> Plan<'a> {
    /// Up to `size` trials from the first that is not done.
    fn batch(&self, done: usize, size: usize) -> Result<Vec<Planned<'a>>, RunError> {
        let scenario = self.scenario;
        let (arms, of) = (scenario.arms.len(), scenario.trials());
        let load = &mut |file: &str| source::load_file(&scenario.name, file);
        let mut planned = |index: usize| {
            let (arm, repeat) = (&scenario.arms[index % arms], (index / arms) as u32);
            let drawn = match scenario.cohort {
                Some(_) => Some(scenario.trial_arm(arm, repeat, load)?),
                None => None,
            };
            Ok(Planned { index: index as u32, repeat, arm, drawn })
        };
        (done..of.min(done + size)).map(&mut planned).collect()
    }

    /// Finds trials in the cache and runs the others. Those that were interrupted are `None`.
    fn run(
        &mut self,
        batch: &[Planned<'_>],
        world: &dyn World,
        directory: Option<&RunDir>,
        progress: &mut dyn Progress,
    ) -> Result<Vec<Option<TrialData>>, RunError> {
        let trials: Vec<Trial<'_>> = batch.iter().map(|planned| self.trial(planned)).collect();
        let keys: Vec<Option<Key>> =
            trials.iter().map(|trial| self.cache.as_ref().map(|cache| cache.key(trial))).collect();
        let mut results: Vec<Option<TrialData>> = Vec::with_capacity(batch.len());
        for (trial, key) in trials.iter().zip(&keys) {
            results.push(self.find(trial, key.as_ref(), progress));
        }
        let pairs = trials.iter().zip(&results);
        let missing: Vec<Trial<'_>> =
            pairs.filter(|(_, result)| result.is_none()).map(|(trial, _)| *trial).collect();
        let Settings { stop, packets, threads, own, .. } = self.settings;
        let setting = Setting { stop, directory, packets, threads: *threads, own };
        let computed = world.run(&missing, &mut |what| progress.show(what), setting)?;
        let mut computed = computed.into_iter();
        for (result, key) in results.iter_mut().zip(&keys).filter(|(result, _)| result.is_none()) {
            *result = computed.next().flatten();
            if let (Some(data), Some(key)) = (&*result, key) {
                self.keep(key, data, progress);
            }
        }
        progress.computed(missing.len());
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
        progress: &mut dyn Progress,
    ) -> Option<TrialData> {
        match self.cache.as_ref()?.find(key?, trial) {
            Found::Trial(data) => Some(*data),
            Found::Nothing => None,
            Found::Damaged(why) => {
                progress.warn(&format!("damaged cache entry, computed anew: {why}"));
                None
            }
        }
    }

    /// A cache that cannot be written is left alone from then on.
    fn keep(&mut self, key: &Key, data: &TrialData, progress: &mut dyn Progress) {
        let kept = self.cache.as_mut().map_or(Ok(()), |cache| cache.keep(key, data));
        if let Err(error) = kept {
            progress.warn(&format!("going on without a cache: {}", chain(&error)));
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

/// Writes what commands printed as `exec/TRIAL-FLOW.txt`.
fn keep_outputs(directory: &RunDir, index: u32, outputs: &[Output]) -> Result<(), RunError> {
    for output in outputs {
        let name = format!("{index:07}-{}.txt", output.name);
        let mut file = directory.begin_file("exec", &name)?;
        file.write_all(&output.text).doing(format!("writing exec/{name}"))?;
    }
    Ok(())
}
