//! Sweeps: a scenario over a million settings, in bounded memory.
//!
//! A [`Sweep`] varies a scenario over axes. A *cell* is one of its variants at one point of the axes,
//! and has up to [`Sweep::repeats`] trials; each is computed from its number, so that none is in
//! memory. [`Sweep::compute`] maps numbers of units of work to rows, which depend on nothing else.
//! [`run`] calls it on every core and stores the rows in a
//! [`SweepDir`](underload_store::sweep::SweepDir), which continues after a kill; a caller with
//! other workers calls it there and appends the rows.
//!
//! A trial is the one that `underload run` computes of the same variant with the same overrides: all
//! cells have the seeds of the scenario's repeats, so that cells do not differ in luck.
//!
//! | module | content |
//! |---|---|
//! | `file` | the keys of a sweep file |
//! | `read` | reads a sweep file, and reports faults with their lines |
//! | `plots` | the pictures of its report |
//! | `axis`, `points` | the axes and their points |
//! | `compute` | computes the rows of units |
//! | `bins` | axes divided into few parts |
//! | `execute` | every core, Ctrl-C, the directory |

mod axis;
mod bins;
mod compute;
mod execute;
mod explain;
mod file;
mod plots;
mod points;
mod read;

use std::collections::BTreeMap;

use underload_scenario::Scenario;
use underload_scenario::keys::Fault;
use underload_scenario::vary::Varied;
use underload_store::sweep::{AxisValue, SweepColumns, SweepManifest};

use crate::cache::{self, CacheError};

pub use bins::AxisBins;
pub use execute::{SweepEnd, SweepError, SweepProgress, SweepSettings, run};
pub use file::{AxisKeys, BestKeys, Design, PlotForm, PlotKeys, Scale, StopKeys, SweepFile};
pub use plots::Dimension;

use axis::{Axis, Level};
use compute::Files;
use points::Points;

/// A scenario and the axes over which it is varied.
#[derive(Debug)]
pub struct Sweep {
    pub name: String,
    text: String,
    /// The keys of its file, with defaults filled in.
    pub file: SweepFile,
    pub scenario: Scenario,
    axes: Vec<Axis>,
    points: Points,
    /// The trials of a cell; with [`SweepFile::stop`] at most.
    pub repeats: u64,
    pub columns: SweepColumns,
    program: String,
    /// Digest of the parts of its file on which the rows depend.
    content: String,
    files: Files,
    /// Metrics that its file names; the others are defaults.
    requested: Vec<String>,
}

/// The values of the axes and the variant of a cell.
#[derive(Debug, Clone, PartialEq)]
pub struct CellPlace {
    pub values: Vec<AxisValue>,
    pub variant: String,
}

/// Whether a file is a sweep and not a scenario: it names a scenario, or has axes.
pub fn is_sweep(text: &str) -> bool {
    let table = text.parse::<toml::Table>();
    table.is_ok_and(|table| ["scenario", "axis"].iter().any(|key| table.contains_key(*key)))
}

/// Identifies the program that computes results: by version and commit, or its file's digest.
pub fn program(commit: &str) -> Result<String, CacheError> {
    cache::program(commit)
}

/// Reads the keys of a table from TOML.
#[cfg(test)]
fn keys_of<S: underload_scenario::keys::Section>(text: &str) -> Result<S, Fault> {
    let table: toml::Table = text.parse().expect("TOML");
    let mut faults = underload_scenario::keys::Faults::default();
    let keys = underload_scenario::keys::read_table(&table, &mut faults);
    faults.result(keys)
}

impl Sweep {
    /// Whether its file names a metric, so that a warning is due if no cell has it.
    pub fn requests(&self, metric: &str) -> bool {
        self.requested.iter().any(|requested| requested == metric)
    }

    /// Returns the number of cells: points times variants.
    pub fn cells(&self) -> u64 {
        self.points.count * self.scenario.variants.len() as u64
    }

    /// Returns the trials of the whole sweep; with [`SweepFile::stop`] at most.
    pub fn trials(&self) -> u64 {
        self.cells() * self.repeats
    }

    /// Returns the number of units that [`Sweep::compute`] accepts, from 0: with
    /// [`SweepFile::stop`] cells, or else trials.
    pub fn units(&self) -> u64 {
        if self.file.stop.is_some() { self.cells() } else { self.trials() }
    }

    /// Returns the cell to which a unit belongs.
    fn cell_of(&self, unit: u64) -> u64 {
        if self.file.stop.is_some() { unit } else { unit / self.repeats }
    }

    /// Returns name and number of values of each axis; `None` for any value of a range.
    pub fn axes(&self) -> impl Iterator<Item = (&str, Option<u64>)> {
        self.axes.iter().map(|axis| (axis.name.as_str(), axis.levels()))
    }

    pub fn cell(&self, cell: u64) -> CellPlace {
        let (levels, variant) = self.place(cell);
        let values = levels.into_iter().map(|level| level.value).collect();
        CellPlace { values, variant: variant.to_owned() }
    }

    /// Returns the identity of the sweep, for a [`SweepDir`](underload_store::sweep::SweepDir).
    pub fn manifest(&self) -> SweepManifest {
        SweepManifest {
            format_version: 0,
            program: self.program.clone(),
            name: self.name.clone(),
            text: self.text.clone(),
            content: self.content.clone(),
            scenario: self.scenario.name.clone(),
            scenario_text: self.scenario.text.clone(),
            files: self.files.digests(),
            seed: self.scenario.seed,
            cells: self.cells(),
            repeats: self.repeats,
            whole_cells: self.file.stop.is_some(),
            columns: self.columns.clone(),
            complete: false,
        }
    }

    /// Returns the files that its scenario and axes name, by name, for [`Sweep::parse_with`] on
    /// another machine. Files that exceed 256 MiB in all are missing.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        self.files.contents()
    }

    /// Returns the values and the variant of a cell: variants vary faster than points.
    fn place(&self, cell: u64) -> (Vec<Level>, &str) {
        let variants = self.scenario.variants.len() as u64;
        let variant = &self.scenario.variants[(cell % variants) as usize];
        (self.points.levels(&self.axes, cell / variants), &variant.name)
    }

    fn varied(&self, levels: &[Level], variant: &str) -> Result<Varied, Fault> {
        self.scenario.varied(variant, levels.iter().flat_map(|level| &level.changes))
    }

    /// Returns the axis that overrides a key, or a table around it.
    fn axis_of(&self, key: &str) -> Option<usize> {
        let is_in = |own: &&str| {
            let rest = key.strip_prefix(own);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.axes.iter().position(|axis| axis.keys().iter().any(is_in))
    }
}

type Digests = BTreeMap<String, String>;
