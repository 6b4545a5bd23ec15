//! The same lines before and after a change, beside lines without one: difference in differences.
//!
//! What happens to all lines on those days, such as a season, is in the ratios of both and cancels.

use super::compare::compare_pairs;
use super::line::Lines;
use crate::schema::{ChangeStudy, SeriesChange};

/// Returns the change with all series that lines of both kinds have.
pub(super) fn study(lines: &Lines) -> Option<ChangeStudy> {
    let change = lines.change.as_ref()?;
    let series = |(place, [p99, mean]): (&usize, &[super::line::Pairs; 2])| {
        let name = lines.series.get(*place)?;
        Some(SeriesChange {
            step: name.step.clone(),
            load: name.load.to_owned(),
            dscp: name.dscp,
            is_inside: name.is_inside,
            p99: compare_pairs(p99)?,
            mean: compare_pairs(mean)?,
        })
    };
    let series = lines.rows.pairs.iter().filter_map(series).collect();
    Some(ChangeStudy { series, ..change.clone() })
}
