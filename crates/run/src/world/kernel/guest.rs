//! This program as the first process of a guest: one trial, then the end.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use underload_emu::guest::init;
use underload_record::text::in_full;
use underload_scenario::simulation::repeat_seed;
use underload_scenario::source::load_file;
use underload_scenario::{Origin, Scenario};

use crate::error::{Doing as _, RunError};
use crate::trial::{Trial, TrialData};
use crate::world::live::check;
use crate::world::live::plan::{Clockwork, Queues};
use crate::world::live::trial::run_trial;

/// Files of the directory that host and guest share.
pub(super) const REQUEST: &str = "request.json";
pub(super) const REPORT: &str = "report";

/// A request of the host to a guest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Request {
    pub name: String,
    pub origin: Origin,
    /// The current directory, from which files of a scenario are named.
    pub directory: PathBuf,
    /// The trial's position in the run.
    pub index: u32,
    pub queues: Queues,
    pub keeps_curves: bool,
}

/// An answer of a guest.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    Trial(Box<TrialData>),
    Failed(String),
}

/// Runs the trial that the host asked for, writes its report, and ends the guest. Returns only if
/// this process is not the first of a guest.
///
/// # Errors
/// Returns the error if the guest cannot be set up or its report cannot be written.
pub fn run() -> io::Result<()> {
    let shared = init::enter()?;
    let report = match trial(&shared) {
        Ok(data) => Report::Trial(Box::new(data)),
        Err(error) => Report::Failed(in_full(&error)),
    };
    let report = rmp_serde::to_vec_named(&report).map_err(io::Error::other)?;
    std::fs::write(shared.join(REPORT), report)?;
    init::power_off();
    Ok(())
}

fn trial(shared: &Path) -> Result<TrialData, RunError> {
    let request = std::fs::read(shared.join(REQUEST)).doing("reading the request")?;
    let request: Request = serde_json::from_slice(&request).doing("reading the request")?;
    std::env::set_current_dir(&request.directory)
        .doing("entering the current directory, in a guest that does not see the host's /run")?;
    let load = &mut |file: &str| load_file(&request.name, file);
    let Origin { text, options } = &request.origin;
    let scenario = Scenario::parse_with(text, &request.name, options, load)?;
    check::machine(&scenario)?;
    let place = request.index as usize;
    let repeat = (place / scenario.variants.len()) as u32;
    let (variant, _) = scenario.trial_variant(
        &scenario.variants[place % scenario.variants.len()],
        repeat,
        load,
    )?;
    let trial = Trial {
        index: request.index,
        variant: &variant,
        repeat,
        seed: repeat_seed(scenario.seed, repeat),
        keeps_curves: request.keeps_curves,
    };
    let (time, never) = (Clockwork::Virtual, AtomicBool::new(false));
    let data = run_trial(&trial, time, &request.queues, &mut |_| (), &never)?;
    data.ok_or("the trial was interrupted").of_world()
}
