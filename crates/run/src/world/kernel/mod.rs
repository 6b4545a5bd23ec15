//! The worlds `kernel` and `kernel-tcp`: the live world in the virtual time of a guest kernel.
//!
//! Each trial runs in a fresh guest ([`underload_emu::guest`]): a User-Mode Linux whose first
//! process is this program again ([`guest`]). The guest runs the trial as the live world does, with
//! the kernel's own TCP in two network namespaces, but the clock moves only when every process
//! waits. So the same seed gives the same bytes on a machine that is slow or busy.
//!
//! Between the namespaces are Linux's own queues and links (world `kernel`), or ours (world
//! `kernel-tcp`).

pub mod guest;
mod shared;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use ring::digest::{SHA256, digest};
use underload_emu::guest::{Guest, Image, PROGRAM};
use underload_emu::qdisc;
use underload_record::schema;
use underload_record::text::in_full;
use underload_scenario::{Origin, Scenario};

use super::World;
use super::live::plan::{self, Queues};
use super::live::{check, linux};
use crate::error::{Doing as _, RunError};
use crate::trial::{Setting, Trial, TrialData};
use guest::{REPORT, REQUEST, Report, Request};
use shared::Shared;

/// A guest may take at most this time and this multiple of its trial's length.
const WALL_TIME: Duration = Duration::from_mins(3);
const WALL_TIME_FACTOR: u32 = 60;
/// Bytes that are shown of the digest of a kernel's configuration.
const DIGEST_BYTES: usize = 6;

/// A world of the kernel.
pub(super) struct Kernel {
    image: Image,
    program: PathBuf,
    /// The request of the first trial.
    request: Request,
    reason: String,
}

/// The directory of the installed kernel: `underload/kernel` in `$XDG_DATA_HOME` or
/// `~/.local/share`.
///
/// # Errors
/// Returns [`RunError::Refused`] if neither `XDG_DATA_HOME` nor `HOME` is set.
pub fn directory() -> Result<PathBuf, RunError> {
    let none = || {
        RunError::Refused(
            "neither XDG_DATA_HOME nor HOME is set: name the kernel by UNDERLOAD_KERNEL".to_owned(),
        )
    };
    Ok(underload_disk::folders::data().ok_or_else(none)?.join("kernel"))
}

/// The version of a kernel and the digest of its configuration, for records and users.
pub fn label(image: &Image) -> String {
    let digest = digest(&SHA256, image.configuration.as_bytes());
    let digest = data_encoding::HEXLOWER.encode(&digest.as_ref()[..DIGEST_BYTES]);
    format!("{image}, configuration {digest}")
}

impl Queues {
    /// The label of the kernel, and the version of the `tc` that sets up its queues.
    fn label(&self, image: &Image) -> String {
        match self {
            Self::Ours => label(image),
            Self::Linux { tc } => format!("{}, {}", label(image), underload_tc::run::version(tc)),
        }
    }
}

impl Kernel {
    /// Finds the kernel and checks what can be checked outside of a guest. `has_own_queues`:
    /// Linux's queues, not ours.
    pub(super) fn new(scenario: &Scenario, has_own_queues: bool) -> Result<Self, RunError> {
        check::model(scenario)?;
        check::virtual_time(scenario)?;
        let refused = |error: &(dyn std::error::Error + 'static)| RunError::Refused(in_full(error));
        let kinds = if has_own_queues { linux::check(scenario)? } else { BTreeSet::new() };
        let image = Image::find(&directory()?).map_err(|error| refused(&error))?;
        let queues = if has_own_queues {
            let kinds = || kinds.iter().map(String::as_str);
            let options: Vec<String> = kinds().flat_map(qdisc::kernel_options).collect();
            image.require(&options).map_err(|error| refused(&error))?;
            Queues::Linux { tc: underload_tc::run::find(kinds()).map_err(|error| refused(&error))? }
        } else {
            Queues::Ours
        };
        // The guest runs exactly this program, whatever its name is.
        let program = std::env::current_exe().doing("finding this program's own file")?;
        shared::remove_left(&std::env::temp_dir());
        let (world, whose) = match queues {
            Queues::Linux { .. } => ("kernel", "its own TCP and queues"),
            Queues::Ours => ("kernel-tcp", "its own TCP before our queues"),
        };
        let label = queues.label(&image);
        let reason = format!("{world}: {label}: {whose} in virtual time");
        let request = Request {
            name: scenario.name.clone(),
            origin: Origin::clone(&scenario.origin),
            directory: std::env::current_dir().doing("finding the current directory")?,
            index: 0,
            queues,
            keeps_curves: true,
        };
        Ok(Self { image, program, request, reason })
    }

    /// Runs a trial in a guest of its own. `None`: interrupted.
    fn trial(
        &self,
        trial: &Trial<'_>,
        setting: Setting<'_>,
        core: usize,
    ) -> Result<Option<TrialData>, RunError> {
        let shared = Shared::create().doing("creating a directory for the guest")?;
        let shared = shared.path();
        let (index, keeps_curves) = (trial.index, trial.keeps_curves);
        let request = Request { index, keeps_curves, ..self.request.clone() };
        let request = serde_json::to_vec(&request).of_world()?;
        std::fs::write(shared.join(REQUEST), request).doing("writing the guest's request")?;
        std::os::unix::fs::symlink(&self.program, shared.join(PROGRAM))
            .doing("linking the guest's program")?;
        let guest =
            Guest::start(&self.image, shared, &["kernel", "guest"], trial.seed, core).of_world()?;
        let limit = WALL_TIME + plan::duration(trial.variant.phases.longest()) * WALL_TIME_FACTOR;
        let ended = guest.wait(limit, setting.stop);
        let report = read(&shared.join(REPORT));
        match (ended, report) {
            (Ok(false), _) => Ok(None),
            (_, Some(Report::Failed(error))) => Err(RunError::Refused(error)),
            (Err(error), _) => Err(error).of_world(),
            (Ok(true), Some(Report::Trial(data))) => Ok(Some(*data)),
            (Ok(true), None) => Err("the guest ended without a report").of_world(),
        }
    }
}

/// The guest's report; `None` if it wrote none, or not all of it.
fn read(path: &Path) -> Option<Report> {
    rmp_serde::from_slice(&std::fs::read(path).ok()?).ok()
}

impl World for Kernel {
    fn name(&self) -> schema::World {
        match self.request.queues {
            Queues::Linux { .. } => schema::World::Kernel,
            Queues::Ours => schema::World::KernelTcp,
        }
    }

    fn kernel(&self) -> Option<String> {
        Some(self.request.queues.label(&self.image))
    }

    fn reason(&self) -> &str {
        &self.reason
    }

    /// Runs trials side by side, a guest on each core.
    fn run(
        &self,
        trials: &[Trial<'_>],
        show: &mut dyn FnMut(&str),
        setting: Setting<'_>,
    ) -> Result<Vec<Option<TrialData>>, RunError> {
        let cores = setting.threads.map_or_else(|| self.batch_size(), NonZeroUsize::get);
        let names: Vec<&str> = trials.iter().map(|trial| trial.variant.name.as_str()).collect();
        show(&names.join(", "));
        let next = AtomicUsize::new(0);
        // Two programs with one trial each are likely to begin with different cores.
        let first_core = std::process::id() as usize;
        let work = &|worker: usize| {
            let core = first_core + worker;
            let mut done = Vec::new();
            while let Some((place, trial)) = {
                let place = next.fetch_add(1, Ordering::Relaxed);
                trials.get(place).map(|trial| (place, trial))
            } {
                let step = format!("variant {}, repeat {}", trial.variant.name, trial.repeat + 1);
                done.push((place, self.trial(trial, setting, core).doing(step)));
            }
            done
        };
        let mut done: Vec<_> = thread::scope(|scope| {
            let spawn = |worker| scope.spawn(move || work(worker));
            let threads: Vec<_> = (0..cores.min(trials.len())).map(spawn).collect();
            let join = |thread: ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| resume_unwind(panic))
            };
            threads.into_iter().flat_map(join).collect()
        });
        done.sort_by_key(|(place, _)| *place);
        done.into_iter().map(|(_, data)| data).collect()
    }
}
