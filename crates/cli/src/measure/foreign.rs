//! Functions that the tests against servers of other projects share (ndt7, responsiveness).

use std::time::Duration;

use anyhow::bail;
use underload_record::schema::{ArmRecord, Direction};

use super::arguments::Arguments;

/// Returns the directions to measure, in order.
pub fn directions(arguments: &Arguments) -> Vec<Direction> {
    match (arguments.up, arguments.down) {
        (true, _) => vec![Direction::Up],
        (_, true) => vec![Direction::Down],
        _ => vec![Direction::Down, Direction::Up],
    }
}

/// Returns an arm per direction.
pub fn arms(test: &str, directions: &[Direction]) -> Vec<ArmRecord> {
    let arm = |direction: &Direction| ArmRecord {
        name: direction.name().to_owned(),
        label: test.to_owned(),
        ..ArmRecord::default()
    };
    directions.iter().map(arm).collect()
}

/// Refuses an interval of less than `least`; `rule` names the reason.
pub fn check_every(arguments: &Arguments, least: Duration, rule: &str) -> anyhow::Result<()> {
    if arguments.every.is_some_and(|every| every < least) {
        bail!("--every: {rule}; expected at least {} h", least.as_secs() / 3_600)
    }
    Ok(())
}
