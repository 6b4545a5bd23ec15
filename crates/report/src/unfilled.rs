//! The warning that no transfer of a run filled the line, so that its queues were hardly used.

use underload_record::schema::{BottleneckSummary, Direction, Phase, RunRecord};

use crate::words::significant;

/// Share of a link's rate that is used at least if the transfers fill it, percent.
const FILLED_PERCENT: f64 = 90.0;

/// The warning for the direction in which transfers used little of every link and met no congestion;
/// `None` if there is none.
pub(crate) fn line(record: &RunRecord, suffix: &str) -> Option<String> {
    [Direction::Up, Direction::Down].into_iter().find_map(|direction| {
        let flows = record.trials.iter().flat_map(|trial| &trial.flows);
        let mut transfers = flows.filter(|flow| flow.kind == "tcp");
        transfers.any(|flow| flow.direction.ways().contains(&direction)).then_some(())?;
        let links = record.trials.iter().flat_map(|trial| &trial.bottlenecks);
        let loaded: Vec<&BottleneckSummary> = links
            .filter(|link| link.direction == direction && link.window.phase == Phase::Load)
            .collect();
        let signals = |link: &&BottleneckSummary| link.dropped_packets() + link.marked_packets();
        let used: Option<Vec<f64>> = loaded.iter().map(|link| used_percent(link)).collect();
        let most = used?.into_iter().max_by(f64::total_cmp)?;
        let is_free = loaded.iter().map(signals).sum::<u64>() == 0;
        (most < FILLED_PERCENT && is_free).then(|| {
            format!(
                "No transfer{suffix} filled the line {direction}: at most {} % of a link was used, \
                 without a drop or a mark. More transfers may fill it.",
                significant(most)
            )
        })
    })
}

fn used_percent(link: &BottleneckSummary) -> Option<f64> {
    let capacity = link.capacity_bit_per_s.filter(|capacity| *capacity > 0)?;
    Some(link.throughput_bit_per_s as f64 * 100.0 / capacity as f64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use underload_record::schema::{
        FlowDirection, FlowRecord, PacketCount, PhaseWindow, TrialRecord,
    };

    use super::*;

    #[test]
    fn a_line_that_no_transfer_filled_is_named() {
        let line = |kind: &str, throughput_bit_per_s, drops| {
            let dropped = PacketCount { packets: drops, bytes: drops };
            let link = BottleneckSummary {
                direction: Direction::Up,
                window: PhaseWindow { phase: Phase::Load, start_ns: 0, end_ns: 1 },
                capacity_bit_per_s: Some(1_000_000_000),
                drops: BTreeMap::from([("overflow".to_owned(), dropped)]),
                throughput_bit_per_s,
                ..BottleneckSummary::default()
            };
            let kind = kind.to_owned();
            let flow = FlowRecord { kind, direction: FlowDirection::Up, ..FlowRecord::default() };
            let trial = TrialRecord {
                flows: vec![flow],
                bottlenecks: vec![link],
                ..TrialRecord::default()
            };
            line(&RunRecord { trials: vec![trial], ..RunRecord::default() }, "")
        };
        let said = line("tcp", 690_000_000, 0).expect("a warning");
        assert!(
            said.starts_with("No transfer filled the line up: at most 69.0 % of a link was used")
        );
        assert_eq!(line("tcp", 950_000_000, 0), None, "it is full");
        assert_eq!(line("tcp", 690_000_000, 1), None, "it was full for a moment");
        assert_eq!(line("web", 690_000_000, 0), None, "nothing was to fill it");
    }
}
