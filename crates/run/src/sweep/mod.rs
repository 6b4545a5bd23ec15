//! Sweeps: a scenario over a million settings, in bounded memory.
//!
//! A [`Sweep`] is a scenario and the axes that are varied in it. A *cell* is one of its arms at one
//! point of the axes, and has up to so many trials; each is found by its number, so that none is
//! kept. [`Sweep::compute`] is a function of numbers alone: units of work in, rows out, the same
//! wherever it is called. [`run`] calls it on every core and keeps the rows in a
//! [`SweepDir`](underload_store::sweep::SweepDir), which goes on where it was killed; whoever has
//! other workers calls it there and appends what comes back.
//!
//! A trial is the one that `underload run` would compute of the same arm with the same keys
//! overridden: all cells have the seeds of the scenario's repeats, so that what they differ in is
//! the cell and not the luck.
//!
//! | module | what it holds |
//! |---|---|
//! | `file` | the keys of a sweep file |
//! | `read` | from a file to a sweep, with the line of what is wrong |
//! | `plots` | which pictures its report has |
//! | `axis`, `points` | what is varied, and the points that it makes |
//! | `compute` | from units to rows |
//! | `bins` | an axis in few parts |
//! | `execute` | every core, Ctrl-C, the directory |

mod axis;
mod bins;
mod compute;
mod execute;
mod file;
mod plots;
mod points;
mod read;

use std::collections::BTreeMap;
use std::ops::Range;

use underload_store::sweep::{AxisValue, SweepColumns, SweepManifest};

use crate::cache::{self, CacheError};
use crate::keys::Fault;
use crate::scenario::Scenario;
use crate::scenario::vary::Varied;

pub use bins::AxisBins;
pub use execute::{FlushTimes, SweepEnd, SweepError, SweepProgress, SweepSettings, run};
pub use file::{AxisKeys, BestKeys, Design, Scale, StopKeys, SweepFile};
pub use plots::{Dimension, PlotForm, PlotKeys};

use axis::{Axis, Level};
use compute::Files;
use points::Points;

/// A scenario and what is varied in it.
#[derive(Debug)]
pub struct Sweep {
    name: String,
    text: String,
    file: SweepFile,
    scenario: Scenario,
    axes: Vec<Axis>,
    points: Points,
    repeats: u64,
    columns: SweepColumns,
    program: String,
    /// Digest of what in its file the rows depend on.
    content: String,
    files: Files,
    /// Metrics that its file names; the others are usual.
    asked: Vec<String>,
}

/// Where a cell lies.
#[derive(Debug, Clone, PartialEq)]
pub struct CellPlace {
    /// Its value of each axis.
    pub values: Vec<AxisValue>,
    /// Name of its arm.
    pub arm: String,
}

/// Whether a file is one of a sweep and not of a scenario: it names a scenario, or has axes.
pub fn is_sweep(text: &str) -> bool {
    let table = text.parse::<toml::Table>();
    table.is_ok_and(|table| ["scenario", "axis"].iter().any(|key| table.contains_key(*key)))
}

/// What distinguishes this program's results from another's: its version and commit, or the bytes
/// of the running program where that is unknown.
///
/// # Errors
/// The program's own file cannot be read.
pub fn program(commit: &str) -> Result<String, CacheError> {
    cache::program(commit)
}

impl Sweep {
    /// The file's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The keys of its file, with what was left out filled in.
    pub fn file(&self) -> &SweepFile {
        &self.file
    }

    /// Whether its file names a metric itself: that no cell has it is then worth saying.
    pub fn asks_for(&self, metric: &str) -> bool {
        self.asked.iter().any(|asked| asked == metric)
    }

    /// The scenario that is varied.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Number of cells: points times arms.
    pub fn cells(&self) -> u64 {
        self.points.count * self.scenario.arms.len() as u64
    }

    /// Trials of a cell; with [`SweepFile::stop`] at most.
    pub fn repeats(&self) -> u64 {
        self.repeats
    }

    /// Trials of the whole sweep; with [`SweepFile::stop`] at most.
    pub fn trials(&self) -> u64 {
        self.cells() * self.repeats
    }

    /// Number of units that [`Sweep::compute`] knows, from 0: cells where each decides how many
    /// trials it needs, else trials.
    pub fn units(&self) -> u64 {
        if self.file.stop.is_some() { self.cells() } else { self.trials() }
    }

    /// The cells that some units are of, or are.
    pub fn cells_of(&self, units: Range<u64>) -> Range<u64> {
        if self.file.stop.is_some() {
            return units;
        }
        units.start / self.repeats..units.end.div_ceil(self.repeats)
    }

    /// The columns of its rows.
    pub fn columns(&self) -> &SweepColumns {
        &self.columns
    }

    /// How many values each axis has, by name; `None`: any between two.
    pub fn axes(&self) -> impl Iterator<Item = (&str, Option<u64>)> {
        self.axes.iter().map(|axis| (axis.name.as_str(), axis.levels()))
    }

    /// Where a cell lies.
    pub fn cell(&self, cell: u64) -> CellPlace {
        let (levels, arm) = self.place(cell);
        let values = levels.into_iter().map(|level| level.value).collect();
        CellPlace { values, arm: arm.to_owned() }
    }

    /// What identifies it, for a [`SweepDir`](underload_store::sweep::SweepDir).
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

    /// The files that its scenario and axes name, by the names that these give them: what
    /// [`Sweep::parse_with`] takes where they are not. Beyond 256 MiB in all some are left out.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        self.files.contents()
    }

    /// The values of a cell and its arm: arms vary faster than points.
    fn place(&self, cell: u64) -> (Vec<Level>, &str) {
        let arms = self.scenario.arms.len() as u64;
        let arm = &self.scenario.arms[(cell % arms) as usize];
        (self.points.levels(&self.axes, cell / arms), &arm.name)
    }

    /// The tables of an arm at these values.
    fn varied(&self, levels: &[Level], arm: &str) -> Result<Varied, Fault> {
        self.scenario.varied(arm, levels.iter().flat_map(|level| &level.changes))
    }

    /// The axis that a key's value came from.
    fn axis_of(&self, key: &str) -> Option<usize> {
        let is_in = |own: &String| {
            key.strip_prefix(own.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.axes.iter().position(|axis| axis.keys().iter().any(is_in))
    }
}

/// Digests by name of file.
type Digests = BTreeMap<String, String>;
