//! `--fail-on`: whether a number that is missed ends the program as a failure.

use anyhow::bail;
use clap::ValueEnum;
use underload_record::schema::{Expectation, Verdict};
use underload_terminal::console::count;

/// What ends with status 1 though all was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// A number outside its band.
    Miss,
    /// Nothing.
    Never,
}

/// Fails on published numbers that are missed, where that was asked for.
pub fn judge<'a>(
    fail_on: FailOn,
    numbers: impl Iterator<Item = &'a Expectation>,
) -> anyhow::Result<()> {
    let missed = numbers.filter(|number| matches!(number.verdict, Verdict::Missed { .. })).count();
    if fail_on == FailOn::Miss && missed > 0 {
        let are = if missed == 1 { "is" } else { "are" };
        bail!("{} {are} missed", count(missed, "published number"));
    }
    Ok(())
}
