//! `--fail-on`: whether a missed number makes the program fail.

use anyhow::{Result, bail};
use clap::ValueEnum;
use underload_record::schema::{Expectation, Verdict};
use underload_terminal::console::count;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// If a number is outside its band.
    Miss,
    Never,
}

/// Fails if published numbers are missed and `fail_on` is [`FailOn::Miss`].
pub fn judge<'a>(fail_on: FailOn, numbers: impl Iterator<Item = &'a Expectation>) -> Result<()> {
    let missed = numbers.filter(|number| matches!(number.verdict, Verdict::Missed { .. })).count();
    if fail_on == FailOn::Miss && missed > 0 {
        bail!("missed: {}", count(missed, "published number"));
    }
    Ok(())
}
