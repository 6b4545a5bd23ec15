//! Sweeps: a scenario over a million settings, in bounded memory.
//!
//! A [`Sweep`] varies a scenario over axes. A *cell* is one of its variants at one point of the axes,
//! and has up to `repeats` trials; each is computed from its number, so that none is in
//! memory. [`Sweep::compute`] maps numbers of trials to rows, which depend on nothing else.
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
//! | `compute` | computes the rows of trials |
//! | `tried` | a few trials, for an estimate of the time |
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
mod tried;

use std::collections::BTreeMap;

use underload_scenario::Scenario;
use underload_scenario::keys::Fault;
use underload_scenario::vary::Varied;
use underload_store::sweep::{AxisValue, SweepManifest, SweepPlot};

pub use bins::Bins;
pub use execute::{SweepProgress, SweepSettings, run};
pub use file::{Design, SweepFile};
pub use tried::Tried;

use axis::{Axis, Level};
use compute::Files;
use points::Points;

/// A scenario and the axes over which it is varied.
#[derive(Debug)]
pub struct Sweep {
    /// The keys of its file, with defaults filled in.
    pub file: SweepFile,
    pub scenario: Scenario,
    /// The identity of the sweep, for a [`SweepDir`](underload_store::sweep::SweepDir).
    pub manifest: SweepManifest,
    axes: Vec<Axis>,
    points: Points,
    files: Files,
    plots: Vec<SweepPlot>,
    /// Metrics that its file names; the others are defaults.
    requested: Vec<String>,
}

/// Whether a file is a sweep and not a scenario: it names a scenario, or has axes.
pub fn is_sweep(text: &str) -> bool {
    let table = text.parse::<toml::Table>();
    table.is_ok_and(|table| ["scenario", "axis"].iter().any(|key| table.contains_key(*key)))
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

    /// Returns name and number of values of each axis; `None` for any value of a range.
    pub fn axes(&self) -> impl Iterator<Item = (&str, Option<u64>)> {
        self.axes.iter().map(|axis| (axis.name.as_str(), axis.levels()))
    }

    /// Returns the values of the axes of a cell.
    pub fn values(&self, cell: u64) -> Vec<AxisValue> {
        self.place(cell).0.into_iter().map(|level| level.value).collect()
    }

    /// Returns the files that its scenario and axes name, by name, for [`Sweep::parse`] on
    /// another machine. Files that exceed 256 MiB in all are missing.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = self.files.contents();
        files.retain(|name, _| self.manifest.files.contains_key(name));
        files
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
