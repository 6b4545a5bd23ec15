//! `underload sweep`: runs a scenario over a grid of settings or over random settings.

mod estimate;
mod progress;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use underload_record::schema::{PlotKind, PlotRecord};
use underload_report::{
    SweepDimension, SweepOutcome, SweepPlot, SweepSubject, one_line, thousands, write_sweep_report,
};
use underload_run::sweep::{self, Dimension, PlotForm, PlotKeys, Sweep, SweepEnd, SweepSettings};
use underload_scenario::source;

use crate::run::COMMIT;

use progress::Terminal;
use underload_terminal::console::{self, note, warning};
use underload_terminal::exit::{OrBadInput as _, bad_input};
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
    #[arg(long)]
    dry_run: bool,
    /// Prints one JSON document instead of the table.
    #[arg(long)]
    json: bool,
}

/// An axis has at most this number of parts in a picture.
const MOST_PARTS: usize = 16;

impl Arguments {
    pub fn run(&self) -> anyhow::Result<()> {
        let name = self.file.to_string_lossy();
        let text = source::read_text(&name).or_bad_input()?;
        let program = sweep::program(COMMIT).context("identifying this program")?;
        let sweep = Sweep::parse(&text, &name, None, &program).or_bad_input()?;
        if self.dry_run {
            return estimate::print(&sweep, self.workers, self.json);
        }
        let directory = self.directory();
        let interrupt = Interrupt::watch()?;
        let settings = SweepSettings {
            directory: directory.clone(),
            workers: self.workers,
            stop: interrupt.shared(),
        };
        note!("{}: {}", one_line(&name), one_line(sweep.title()));
        let bins = sweep.bins(MOST_PARTS);
        let parts = bins.iter().map(|bins| bins.labels.clone()).collect();
        let mut outcome = SweepOutcome::new(subject(&sweep, parts));
        let mut terminal = Terminal::new(&sweep);
        let end = sweep::run(&sweep, &settings, &mut terminal, &mut |cell| {
            let values = bins.iter().zip(&cell.values);
            let parts: Vec<Option<usize>> = values.map(|(bins, value)| bins.place(value)).collect();
            outcome.add(&cell, &parts);
        });
        let end = match end {
            Ok(end) => end,
            Err(error) if error.is_refusal() => return Err(bad_input(error)),
            Err(error) => {
                if error.can_continue()
                    && let Some(stored) = terminal.stored()
                {
                    let path = directory.display();
                    note!("{path}: {stored} are stored; the same command continues");
                }
                return interrupt.explain(Err(error.into()));
            }
        };
        self.present(&sweep, &outcome, &directory)?;
        match end {
            SweepEnd::Complete => Ok(()),
            SweepEnd::Interrupted { stored } => {
                let (stored, units) = (thousands(stored), thousands(sweep.units()));
                let what = if sweep.file.stop.is_some() { "cells" } else { "trials" };
                Err(interrupt.stopped(anyhow!(
                    "interrupted after {stored} of {units} {what}; the same command continues"
                )))
            }
        }
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

fn subject(sweep: &Sweep, parts: Vec<Vec<String>>) -> SweepSubject {
    let file = &sweep.file;
    let best = file.best.as_ref();
    let ranked = best.and_then(|best| file.metrics.iter().position(|name| *name == best.metric));
    let title = sweep.title();
    let axes: Vec<String> = sweep.axes().map(|(name, _)| name.to_owned()).collect();
    SweepSubject {
        title: if title.is_empty() { &sweep.name } else { title }.to_owned(),
        scenario: sweep.scenario.name.clone(),
        plots: file.plot.iter().filter_map(|keys| plot(keys, &axes, &file.metrics)).collect(),
        axes,
        parts,
        metrics: file.metrics.clone(),
        asked: file.metrics.iter().map(|metric| sweep.requests(metric)).collect(),
        ranked_by: ranked.unwrap_or_default(),
        best: best.map_or(underload_record::schema::Extreme::Smallest, |best| best.order),
        cells: sweep.cells(),
    }
}

/// Converts a picture of the sweep file. `None` for a metric without a column.
fn plot(keys: &PlotKeys, axes: &[String], metrics: &[String]) -> Option<SweepPlot> {
    let metric = |wanted: &String| metrics.iter().position(|name| name == wanted);
    let dimension = |dimension| match dimension {
        Dimension::Variant => SweepDimension::Variant,
        Dimension::Axis(axis) => SweepDimension::Axis(axis),
    };
    let kind = match keys.kind {
        PlotForm::Sweep => PlotKind::Sweep,
        PlotForm::Scatter => PlotKind::Scatter,
        PlotForm::Box => PlotKind::Box,
        PlotForm::Heat => PlotKind::Heat,
    };
    let or = |own: &String, usual: Option<&String>| {
        if own.is_empty() { usual.cloned().unwrap_or_default() } else { own.clone() }
    };
    let right = keys.x.as_ref().or(keys.x_metric.as_ref());
    Some(SweepPlot {
        picture: PlotRecord {
            kind,
            title: keys.title.clone(),
            says: or(&keys.says, Some(&keys.metric)),
            x_says: or(&keys.x_says, right),
            log: keys.log.clone(),
            ..PlotRecord::default()
        },
        line: keys.line(axes).map(dimension),
        x: keys.x(axes).map(dimension),
        metric: metric(&keys.metric)?,
        x_metric: keys.x_metric.as_ref().and_then(metric),
        only: keys.only(axes).into_iter().map(|(of, value)| (dimension(of), value)).collect(),
    })
}
