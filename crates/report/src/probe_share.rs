//! The warning that the probes alone take much of a link's rate.

use underload_record::schema::{BottleneckSummary, Phase, RunRecord};

use crate::words::significant;

/// Share of a link's rate above which its probes are named, percent.
const MOST_PERCENT: f64 = 10.0;

/// The warning for the link of which the probes take the largest share in an idle phase, in which
/// nothing else is sent; `None` if that is little.
pub(crate) fn line(record: &RunRecord, suffix: &str) -> Option<String> {
    let links = record.trials.iter().flat_map(|trial| &trial.bottlenecks);
    let shares = links.filter_map(|link| Some((percent(link)?, link)));
    let (percent, link) = shares.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let at = if link.hop.is_empty() { "" } else { " at " };
    (percent > MOST_PERCENT).then(|| {
        format!(
            "The probes alone{suffix} are {} % of the link's rate {}{at}{}: they delay each other \
             and everything else. Probes at a longer interval take less.",
            significant(percent),
            link.direction,
            link.hop
        )
    })
}

/// Returns the share of a link's rate that was offered to it in an idle phase.
fn percent(link: &BottleneckSummary) -> Option<f64> {
    let window = link.window;
    let length_ns = window.end_ns.checked_sub(window.start_ns).filter(|length| *length > 0)?;
    let capacity = link.capacity_bit_per_s.filter(|capacity| *capacity > 0)?;
    let bit_per_s = link.offered.bytes as f64 * 8e9 / length_ns as f64;
    (window.phase == Phase::Idle).then(|| bit_per_s * 100.0 / capacity as f64)
}

#[cfg(test)]
mod tests {
    use underload_record::schema::{PacketCount, PhaseWindow, TrialRecord};

    use super::*;

    #[test]
    fn probes_with_a_large_share_of_a_link_are_named() {
        let link = |phase, bytes| BottleneckSummary {
            window: PhaseWindow { phase, start_ns: 0, end_ns: 2_000_000_000 },
            offered: PacketCount { packets: bytes / 80, bytes },
            capacity_bit_per_s: Some(64_000),
            ..BottleneckSummary::default()
        };
        let line = |bytes| {
            let bottlenecks = vec![link(Phase::Idle, bytes), link(Phase::Load, 16_000)];
            let trials = vec![TrialRecord { bottlenecks, ..TrialRecord::default() }];
            line(&RunRecord { trials, ..RunRecord::default() }, "")
        };
        let said = line(9_920).expect("a warning");
        assert!(said.starts_with("The probes alone are 62.0 % of the link's rate up: "), "{said}");
        assert_eq!(line(1_600), None, "10 %");
    }
}
