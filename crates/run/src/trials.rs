//! Runs the trials of a run in batches, and records them in order as soon as they are finished.

use std::io::Write as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use underload_record::text::in_full;
use underload_scenario::simulation::repeat_seed;
use underload_scenario::source;
use underload_scenario::{Conditions, Scenario, Variant};
use underload_store::RunDir;

use crate::cache::{Cache, Found, Key};
use crate::error::{Doing as _, RunError};
use crate::progress::Progress;
use crate::results::Results;
use crate::settings::Settings;
use crate::trial::{Output, Setting, Trial, TrialData};
use crate::world::World;

pub(crate) enum End {
    /// All trials are recorded.
    Complete { duration_s: f64 },
    /// The caller stopped the run of `trials` trials.
    Interrupted { trials: usize },
}

pub(crate) struct Plan<'a> {
    pub scenario: &'a Scenario,
    pub settings: &'a Settings,
    pub cache: Option<Cache>,
    pub keeps_curves: bool,
}

/// A trial, and the variant and conditions that a cohort drew for it.
struct Planned<'a> {
    index: u32,
    repeat: u32,
    variant: &'a Variant,
    drawn: Option<(Variant, Conditions)>,
}

/// Runs every variant once, then again, so that a slow drift of the machine affects all equally.
pub(crate) fn execute(
    mut plan: Plan<'_>,
    world: &dyn World,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<End, RunError> {
    let start = Instant::now();
    let trials = plan.scenario.trials();
    let mut done = results.trials();
    if done > 0 {
        progress.say(&format!("{done} of {trials} trials were finished before"));
    }
    let left = trials.saturating_sub(done);
    let share = left as f64 / trials.max(1) as f64;
    progress.start(left, world.estimate(plan.scenario).map(|whole| whole.mul_f64(share)));
    let mut size = world.batch_size();
    while done < trials {
        let batch_start = Instant::now();
        let batch = plan.batch(done, size)?;
        let finished = plan.run(&batch, world, results.directory(), progress)?;
        // Trials are recorded in order; those after an interrupted one are in the cache.
        for data in finished.into_iter().map_while(|data| data) {
            done += 1;
            data.notes.iter().for_each(|note| progress.say(note));
            results
                .append(&data.record, &data.samples, &data.series)
                .doing(format!("recording trial {} of {trials}", data.record.index + 1))?;
            if let Some(directory) = results.directory() {
                write_outputs(directory, data.record.index, &data.outputs)?;
            }
            progress.finished(&data.record);
        }
        results.sync()?;
        if plan.settings.stop.load(Ordering::Relaxed) && done < trials {
            progress.end();
            return Ok(End::Interrupted { trials });
        }
        size = next_size(size, world.batch_size(), batch_start.elapsed());
    }
    progress.end();
    Ok(End::Complete { duration_s: start.elapsed().as_secs_f64() })
}

impl<'a> Plan<'a> {
    /// Returns up to `size` trials from number `done` on.
    fn batch(&self, done: usize, size: usize) -> Result<Vec<Planned<'a>>, RunError> {
        let scenario = self.scenario;
        let variants = scenario.variants.len();
        let load = &mut |file: &str| source::load_file(&scenario.name, file);
        let mut planned = |index: usize| {
            let (variant, repeat) =
                (&scenario.variants[index % variants], (index / variants) as u32);
            let drawn = match scenario.cohort {
                Some(_) => Some(scenario.trial_variant(variant, repeat, load)?),
                None => None,
            };
            Ok(Planned { index: index as u32, repeat, variant, drawn })
        };
        (done..scenario.trials().min(done + size)).map(&mut planned).collect()
    }

    /// Finds trials in the cache and runs the others. Interrupted trials are `None`.
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
        let Settings { stop, captures, threads, own, .. } = self.settings;
        let setting = Setting { stop, directory, captures, threads: *threads, own };
        let computed = world.run(&missing, &mut |what| progress.show(what), setting)?;
        let mut computed = computed.into_iter();
        for (result, key) in results.iter_mut().zip(&keys).filter(|(result, _)| result.is_none()) {
            *result = computed.next().flatten();
            if let (Some(data), Some(key)) = (&*result, key) {
                self.store(key, data, progress);
            }
        }
        progress.computed(missing.len());
        for (data, planned) in results.iter_mut().zip(batch) {
            let Some(data) = data else { continue };
            let drawn = planned.drawn.as_ref().map(|(_, conditions)| conditions.clone());
            data.record.conditions = drawn.unwrap_or_default();
        }
        Ok(results)
    }

    fn trial<'b>(&self, planned: &'b Planned<'_>) -> Trial<'b> {
        let variant = planned.drawn.as_ref().map_or(planned.variant, |(variant, _)| variant);
        Trial {
            index: planned.index,
            variant,
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
                progress.warn(&format!("damaged cache entry, computed again: {why}"));
                None
            }
        }
    }

    /// Stores a trial in the cache, which is no longer used after an error.
    fn store(&mut self, key: &Key, data: &TrialData, progress: &mut dyn Progress) {
        let stored = self.cache.as_mut().map_or(Ok(()), |cache| cache.store(key, data));
        if let Err(error) = stored {
            progress.warn(&format!("continuing without a cache: {}", in_full(&error)));
            self.cache = None;
        }
    }
}

/// Aims at batches of about half a second: short enough for Ctrl-C, long enough to use every core.
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

/// Writes the texts of browsers' flows to `flows/TRIAL-FLOW.txt`.
fn write_outputs(directory: &RunDir, index: u32, outputs: &[Output]) -> Result<(), RunError> {
    for output in outputs {
        let name = format!("{index:07}-{}.txt", output.name);
        let mut file = directory.begin_file("flows", &name)?;
        file.write_all(&output.text).doing(format!("writing flows/{name}"))?;
    }
    Ok(())
}
