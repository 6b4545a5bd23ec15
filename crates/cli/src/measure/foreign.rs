//! Functions that the tests against servers of other projects share (ndt7, responsiveness).

use std::time::Duration;

use anyhow::bail;
use underload_record::schema::{Direction, VariantRecord};

use super::arguments::Arguments;

/// Returns the directions to measure, in order.
pub fn directions(arguments: &Arguments) -> Vec<Direction> {
    match (arguments.up, arguments.down) {
        (true, _) => vec![Direction::Up],
        (_, true) => vec![Direction::Down],
        _ => vec![Direction::Down, Direction::Up],
    }
}

/// Returns a variant per direction.
pub fn variants(test: &str, directions: &[Direction]) -> Vec<VariantRecord> {
    let variant = |direction: &Direction| VariantRecord {
        name: direction.name().to_owned(),
        label: test.to_owned(),
        ..VariantRecord::default()
    };
    directions.iter().map(variant).collect()
}

/// Refuses an interval of less than `least`; `rule` names the reason.
pub fn check_every(arguments: &Arguments, least: Duration, rule: &str) -> anyhow::Result<()> {
    if arguments.every.is_some_and(|every| every < least) {
        bail!("--every: {rule}; expected at least {} h", least.as_secs() / 3_600)
    }
    Ok(())
}
