//! `underload sweep`: runs a scenario over a grid of settings or over random settings.

mod estimate;
mod progress;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use underload_report::{SweepOutcome, one_line, write_sweep_report};
use underload_run::cache;
use underload_run::sweep::{self, Sweep, SweepSettings};
use underload_scenario::{builtin, source};

use crate::run::COMMIT;

use progress::Terminal;
use underload_terminal::console::{self, note, warning};
use underload_terminal::exit::{OrBadInput as _, bad_input, refuse};
use underload_terminal::interrupt::Interrupt;
use underload_terminal::quantity::threads;

#[derive(Debug, Args)]
#[command(after_help = "\
The same command continues a sweep that was stopped or killed: stored trials are not computed again.
The tables are trials.parquet, a row per trial, and cells.parquet, a row per cell. The order of rows
does not depend on the number of workers.

Exit status: 0 done, 1 failed, 2 bad input, 130 stopped by Ctrl-C, 143 by SIGTERM: finished trials
are stored.

Examples:
  underload sweep buffers.toml --dry-run
  underload sweep buffers.toml
  underload sweep buffers.toml --output /data/buffers --workers 16 --json")]
pub struct Arguments {
    /// A sweep file: a scenario and the axes to vary.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The sweep's directory: new, empty, or with the same sweep, to continue it
    /// [default: sweeps/NAME].
    #[arg(long, visible_alias = "out", value_name = "DIR")]
    output: Option<PathBuf>,
    /// Trials to simulate in parallel; does not change the result [default: one per core].
    #[arg(long, visible_alias = "threads", value_name = "N", value_parser = threads)]
    workers: Option<NonZeroUsize>,
    /// Prints only the number of cells and trials, and an estimate of the time.
    #[arg(long, conflicts_with = "json")]
    dry_run: bool,
    /// Prints one JSON document instead of the table.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub fn run(&self) -> anyhow::Result<()> {
        let name = self.file.to_string_lossy();
        if !self.file.exists() && builtin::find(&name).is_some() {
            refuse!("{name} is a scenario; expected a file with axes, see `underload docs sweep`");
        }
        let text = source::read_text(&name).or_bad_input()?;
        let program = cache::program(COMMIT).context("identifying this program")?;
        let sweep = Sweep::parse(&text, &name, None, &program, BTreeMap::new()).or_bad_input()?;
        if self.dry_run {
            return estimate::print(&sweep, self.workers);
        }
        let directory = self.directory();
        let interrupt = Interrupt::watch()?;
        let settings = SweepSettings {
            directory: directory.clone(),
            workers: self.workers,
            stop: interrupt.shared(),
        };
        note!("{}: {}", one_line(&name), one_line(sweep.title()));
        let bins = sweep.bins();
        let mut outcome = SweepOutcome::new(sweep.subject(&bins));
        let mut terminal = Terminal::new(&sweep);
        let is_complete = sweep::run(&sweep, &settings, &mut terminal, &mut |cell| {
            outcome.add(&cell, &bins.parts_of(&cell));
        });
        let is_complete = match is_complete {
            Ok(is_complete) => is_complete,
            Err(error) if error.is_occupied() => return Err(bad_input(error)),
            Err(error) => {
                if let Some(stored) = terminal.stored() {
                    let path = directory.display();
                    note!("{path}: {stored} are stored; the same command continues");
                }
                return interrupt.explain(Err(error.into()));
            }
        };
        self.present(&sweep, &outcome, &directory)?;
        if is_complete {
            return Ok(());
        }
        let stored = terminal.stored().unwrap_or_default();
        let reason = anyhow!("interrupted after {stored}; the same command continues");
        Err(interrupt.stopped(reason))
    }

    /// Returns the directory, which depends only on the command: the same command continues.
    fn directory(&self) -> PathBuf {
        let stem = || self.file.file_stem().unwrap_or_default().to_owned();
        self.output.clone().unwrap_or_else(|| Path::new("sweeps").join(stem()))
    }

    fn present(
        &self,
        sweep: &Sweep,
        outcome: &SweepOutcome,
        directory: &Path,
    ) -> anyhow::Result<()> {
        let page = write_sweep_report(directory, outcome).context("writing the report")?;
        if self.json {
            console::print(&(outcome.to_json(directory).context("writing JSON")? + "\n"))?;
        } else {
            console::print(&console::result(&outcome.table()))?;
        }
        for name in outcome.unknown_metrics() {
            warning!("warning: no cell has the metric `{}`", one_line(name));
        }
        if let Some(words) = sweep.doubtful_ranking() {
            warning!("warning: {words}");
        }
        note!("tables: {}", directory.display());
        note!("report: {}", page.display());
        Ok(())
    }
}
