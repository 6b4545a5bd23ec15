//! Runs a scenario and returns its record.

use underload_record::schema::{self, FORMAT_VERSION, RunRecord, ScenarioRecord, VariantRecord};
use underload_record::text::in_full;
use underload_scenario::simulation::configure;
use underload_scenario::source;
use underload_scenario::{Cohort, Scenario, Variant};
use underload_sim::trial::TrialLabel;
use underload_store::{Resumed, RunDir, host};

use crate::cache::Cache;
use crate::error::{Doing as _, Result, RunError};
use crate::packets;
use crate::progress::Progress;
use crate::results::{Results, Run};
use crate::settings::{Destination, Settings, WorldChoice};
use crate::trials::{End, Plan, execute};
use crate::world::{self, World};

/// Runs all trials of a scenario. A live run without root moves this process into a user namespace,
/// which only a process with one thread can enter: call this before threads start.
///
/// # Errors
/// Returns an error with [`RunError::is_refusal`] if the scenario or the settings are not possible;
/// then nothing has begun. After a later error, [`RunError::remains`] has the finished part of the
/// run.
pub fn run(scenario: &Scenario, settings: &Settings, progress: &mut dyn Progress) -> Result<Run> {
    let choice = world_choice(settings)?;
    // Before anything starts a thread, as a process with several cannot enter a user namespace.
    let world = world::choose(choice, scenario, &settings.own)?;
    check_own(scenario, settings)?;
    if !settings.captures.is_empty() {
        let config = |variant: &Variant| configure(variant, 0, TrialLabel::default()).of_world();
        let variants =
            scenario.variants.iter().map(|variant| Ok((variant.name.as_str(), config(variant)?)));
        packets::check(&settings.captures, variants, scenario.trials())?;
    }
    progress.world(scenario, world.reason());
    let mut results = begin(settings, record(scenario, settings, &*world), progress)?;
    let keeps_curves = keeps_samples(scenario);
    if !keeps_curves {
        results = results.summaries_only();
        if settings.destination != Destination::Memory {
            progress.say("this run stores only the table of its trials, and cannot be resumed");
        }
    }
    let cache = cache(scenario, settings, &*world, progress);
    let plan = Plan { scenario, settings, cache, keeps_curves };
    match execute(plan, &*world, &mut results, progress) {
        Ok(End::Complete { duration_s }) => results.finish(duration_s).doing("finishing the run"),
        Ok(End::Interrupted { trials }) => {
            Err(RunError::Interrupted { of: trials, remains: results.break_off() })
        }
        Err(error) => {
            Err(RunError::Failed { source: Box::new(error), remains: results.break_off() })
        }
    }
}

/// Whether a run stores samples and time series, and can be resumed. A run with a cohort or with
/// more than 2,000 trials stores only the table of its trials.
pub fn keeps_samples(scenario: &Scenario) -> bool {
    scenario.cohort.is_none() && scenario.trials() <= MOST_WITH_CURVES
}

/// Maximum number of trials of a run that stores samples and time series.
const MOST_WITH_CURVES: usize = 2_000;
/// Trials of a run that uses the cache, at least.
const WORTH_CACHING: usize = 32;

/// Returns the requested world; packets are captured in virtual time only.
fn world_choice(settings: &Settings) -> Result<WorldChoice> {
    match (settings.world, &settings.destination) {
        (world, _) if settings.captures.is_empty() => Ok(world),
        (WorldChoice::Live | WorldChoice::Kernel | WorldChoice::KernelTcp, _) => {
            Err(RunError::Refused(
                "packets are captured by the simulator only; expected the world sim; `underload \
                 link --log DIR` logs live packets"
                    .to_owned(),
            ))
        }
        (_, Destination::Resume(_)) => Err(RunError::Refused(
            "packets are captured of whole runs only; expected a run that is not resumed"
                .to_owned(),
        )),
        (_, Destination::Memory | Destination::Caller) => {
            Err(RunError::Refused("captures need a run directory; expected a directory".to_owned()))
        }
        (WorldChoice::Auto | WorldChoice::Sim, _) => Ok(WorldChoice::Sim),
    }
}

/// Rejects to resume a run with the caller's algorithms, whose code may have changed since.
fn check_own(scenario: &Scenario, settings: &Settings) -> Result<()> {
    match (&settings.destination, scenario.own()) {
        (Destination::Resume(_), Some(own)) => Err(RunError::Refused(format!(
            "{own}: a run with an algorithm in Python cannot be resumed, as its code may have \
             changed; expected a new directory"
        ))),
        _ => Ok(()),
    }
}

/// Opens the destination of the trials.
fn begin(settings: &Settings, record: RunRecord, progress: &mut dyn Progress) -> Result<Results> {
    let directory = match &settings.destination {
        Destination::Memory => return Ok(Results::in_memory(record, false)),
        Destination::Caller => return Ok(Results::in_memory(record, true)),
        Destination::Directory(path) => RunDir::create(path, record)?,
        Destination::Resume(path) => {
            let Resumed { directory, again } = RunDir::resume(path, &record)?;
            for line in &again {
                progress.say(line);
            }
            directory
        }
        Destination::NewIn(folder) => {
            // `comcast-upstream-20261121T013500Z`
            let time: String = record.host.started.chars().filter(|c| !"-:".contains(*c)).collect();
            let name = format!("{}-{time}", source::slug(&record.scenario.name));
            RunDir::create_unused(&folder.join(name), &record)?
        }
    };
    Ok(Results::Directory(Box::new(directory)))
}

/// Opens the cache, for a run that can use one. Without one the run only takes longer.
fn cache(
    scenario: &Scenario,
    settings: &Settings,
    world: &dyn World,
    progress: &mut dyn Progress,
) -> Option<Cache> {
    let is_simulated = world.name() == schema::World::Sim;
    // The cache has no packets, and the code of the caller's algorithms may have changed.
    let is_usable = settings.uses_cache
        && settings.captures.is_empty()
        && is_simulated
        && scenario.own().is_none();
    if !is_usable || scenario.trials() < WORTH_CACHING {
        return None;
    }
    match Cache::open(settings.commit) {
        Ok(cache) => Some(cache),
        Err(error) => {
            progress.warn(&format!("running without a cache: {}", in_full(&error)));
            None
        }
    }
}

/// Returns the record of a run that is about to begin.
fn record(scenario: &Scenario, settings: &Settings, world: &dyn World) -> RunRecord {
    let mut host = host::facts(world.name());
    host.kernel = world.kernel().unwrap_or(host.kernel);
    let variant = |variant: &Variant| VariantRecord {
        name: variant.name.clone(),
        label: match scenario.cohort {
            Some(_) => format!("typically {}", variant.label()),
            None => variant.label(),
        },
        factors: variant.factors.clone(),
    };
    RunRecord {
        format_version: FORMAT_VERSION,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: settings.commit.to_owned(),
        scenario: ScenarioRecord {
            name: scenario.name.clone(),
            title: scenario.title.clone(),
            text: scenario.text.clone(),
            headline: scenario.headline.clone(),
            plots: scenario.plots.clone(),
        },
        seed: scenario.seed,
        world: world.name(),
        variants: scenario.variants.iter().map(variant).collect(),
        study: scenario.cohort.as_ref().and_then(Cohort::study),
        expectations: scenario.published.clone(),
        host,
        ..RunRecord::default()
    }
}
