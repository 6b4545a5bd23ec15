//! Flows with too many congestion marks, a line for each variant, flow and direction.

use std::collections::BTreeMap;

use underload_record::schema::{CeAlarm, CeRule, Direction, RunRecord, TrialRecord};

use crate::words::count;

/// Maximum number of alarms in the list; the run's record has all.
const MOST_ALARMS: usize = 5;

/// Alarms with equal keys share a line.
type Key<'a> = (&'a str, &'a str, Direction, CeRule);

/// Returns a line for each kind of alarm in the valid trials of a run, with the first one as the
/// example.
pub(crate) fn lines(record: &RunRecord, suffix: &str) -> Vec<String> {
    // The verdict of a measurement already includes its alarms.
    if !record.verdict.is_empty() {
        return Vec::new();
    }
    let mut groups: BTreeMap<Key<'_>, (u64, &CeAlarm)> = BTreeMap::new();
    let valid = |trial: &&TrialRecord| trial.validity.is_valid();
    for trial in record.trials.iter().filter(valid) {
        for alarm in &trial.ce_alarms {
            let key = (trial.variant.as_str(), alarm.flow.as_str(), alarm.direction, alarm.rule);
            groups.entry(key).or_insert((0, alarm)).0 += 1;
        }
    }
    let trials_of = |variant: &str| {
        let own = |trial: &&TrialRecord| trial.variant == variant;
        record.trials.iter().filter(valid).filter(own).count() as u64
    };
    let line = |(key, (trials, example)): (&Key<'_>, &(u64, &CeAlarm))| {
        let all = count(trials_of(key.0), "trial");
        format!("{example}; so in {trials} of {all} of {}{suffix}.", key.0)
    };
    let mut lines: Vec<String> = groups.iter().take(MOST_ALARMS).map(line).collect();
    let more = groups.len().saturating_sub(MOST_ALARMS);
    if more > 0 {
        lines.push(format!("There are {more} more CE alarms{suffix}; the run's record has them."));
    }
    lines
}

#[cfg(test)]
mod tests {
    use underload_record::schema::{TrialRecord, World};
    use underload_record::synthetic::{self, BUFFER_CONTROL};

    use super::*;

    fn alarm(flow: &str) -> CeAlarm {
        CeAlarm {
            flow: flow.to_owned(),
            direction: Direction::Down,
            rule: CeRule::Loaded,
            start_ns: 0,
            end_ns: 30_000_000_000,
            ecn_packets: 1_000,
            ce_packets: 620,
            rate_bit_per_s: Some(1_000_000),
            fair_share_bit_per_s: Some(4_000_000),
        }
    }

    fn record(alarms: &[&[CeAlarm]]) -> RunRecord {
        let mut record = synthetic::record(World::Sim, &[BUFFER_CONTROL]);
        let trial = |(index, alarms): (usize, &&[CeAlarm])| TrialRecord {
            index: index as u32,
            variant: BUFFER_CONTROL.name.to_owned(),
            ce_alarms: alarms.to_vec(),
            ..TrialRecord::default()
        };
        record.trials = alarms.iter().enumerate().map(trial).collect();
        record
    }

    #[test]
    fn an_alarm_names_a_flow_once_with_its_count() {
        let alarms = [alarm("game")];
        let lines = lines(&record(&[&alarms, &[], &alarms]), " (run 2)");
        assert_eq!(
            lines,
            [format!(
                "CE alarm: 62.0 % of 1000 ECN packets of game down arrived marked in 30 s at 1.00 \
                 Mbit/s, below the flow's share of 4.00: the marks are out of proportion to its \
                 rate; so in 2 of 3 trials of {} (run 2).",
                BUFFER_CONTROL.name
            )]
        );
    }

    #[test]
    fn alarms_skip_invalid_trials_and_summarise_many_flows() {
        let many: Vec<CeAlarm> = (0..9).map(|number| alarm(&format!("game-{number}"))).collect();
        let mut record = record(&[&many]);
        let told = lines(&record, "");
        assert_eq!(told.len(), 6);
        assert_eq!(told[5], "There are 4 more CE alarms; the run's record has them.");
        record.trials[0].validity = synthetic::late();
        assert_eq!(lines(&record, ""), Vec::<String>::new());
    }
}
