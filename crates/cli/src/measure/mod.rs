//! `underload measure`: latency under load between here and a server.
//!
//! - [`arguments`]: the command line, and what of a preset it changes.
//! - [`target`]: from HOST to addresses.
//! - [`session`]: one measurement through a session at the server, step by step.
//! - [`view`]: what the user sees meanwhile.
//! - [`record`]: the run's record.

mod arguments;
mod record;
pub mod session;
pub mod target;
mod view;

use std::path::PathBuf;

use anyhow::{Context, bail};
use underload_report::{RunDir, StoreError};

pub use arguments::Arguments;

use crate::exit::OrBadInput;
use crate::present;
use crate::run::Interrupt;

/// Measures once.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let knobs = arguments.knobs().or_bad_input()?;
    let target = target::resolve(&arguments.host, arguments.family()).or_bad_input()?;
    let interrupt = Interrupt::watch()?;
    let session = session::Session::open(arguments, &target, &knobs)?;
    let record = record::new(arguments, &session);
    let path = arguments.out.clone().unwrap_or_else(|| default_directory(arguments, &record));
    let mut directory = match RunDir::create(&path, record) {
        Err(error @ StoreError::Exists { .. }) => return Err(error).or_bad_input(),
        created => created?,
    };
    let start = std::time::Instant::now();
    let measured = session.measure(&mut directory, &interrupt);
    let trials = directory.record().trials.len();
    if trials == 0 {
        drop(directory);
        std::fs::remove_dir_all(&path)
            .with_context(|| format!("removing {}, which holds nothing", path.display()))?;
        measured?;
        bail!("interrupted before anything was measured");
    }
    directory.finish(start.elapsed().as_secs_f64()).context("finishing the run")?;
    present::run(&path, arguments.json)?;
    measured?;
    if interrupt.is_requested() {
        bail!("interrupted; what was measured until then is in {}", path.display());
    }
    Ok(())
}

/// `runs/measure-quick-20261121T013500Z`; the time makes it new.
fn default_directory(
    arguments: &Arguments,
    record: &underload_report::schema::RunRecord,
) -> PathBuf {
    let time: String = record.host.started.chars().filter(|c| !"-:".contains(*c)).collect();
    PathBuf::from("runs").join(format!("measure-{}-{time}", arguments.preset))
}
