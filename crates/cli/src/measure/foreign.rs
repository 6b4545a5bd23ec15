//! Functions that the tests against servers of other projects share (ndt7, responsiveness).

use std::time::Duration;

use anyhow::bail;
use underload_record::schema::{ArmRecord, Direction};

use super::arguments::Arguments;

/// The directions that are asked for, in this order.
pub fn directions(arguments: &Arguments) -> Vec<Direction> {
    match (arguments.up, arguments.down) {
        (true, _) => vec![Direction::Up],
        (_, true) => vec![Direction::Down],
        _ => vec![Direction::Down, Direction::Up],
    }
}

/// An arm per direction.
pub fn arms(test: &str, directions: &[Direction]) -> Vec<ArmRecord> {
    let arm = |direction: &Direction| ArmRecord {
        name: direction.name().to_owned(),
        label: test.to_owned(),
        ..ArmRecord::default()
    };
    directions.iter().map(arm).collect()
}

/// Refuses what such a test could not be repeated with.
pub fn check_every(arguments: &Arguments, least: Duration, who: &str) -> anyhow::Result<()> {
    match arguments.every {
        Some(every) if every < least => {
            bail!("--every: {who}; at least {} h is accepted", least.as_secs() / 3_600)
        }
        _ => Ok(()),
    }
}
