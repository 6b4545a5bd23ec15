//! Quality of Outcome (draft-ietf-ippm-qoo) of a step.

use underload_record::quality::{StepConditions, application_scores};
use underload_record::schema::{Finding, InsideReadings, Phase, QualityOfOutcome, Quantile};

/// Returns the score of each application whose conditions the step measured.
pub(crate) fn scores(finding: &Finding) -> Vec<QualityOfOutcome> {
    let Some(load) = finding.headline(Phase::Load) else { return Vec::new() };
    let inside = finding.worst_inside().and_then(InsideReadings::highest_ms);
    application_scores(&StepConditions {
        beside_p99_ms: load.judged_at_ms(Quantile::P99),
        inside_p99_ms: inside.filter(|(highest, _)| *highest == Quantile::P99).map(|(_, ms)| ms),
        loss_percent: load.lost_percent,
        mbit_s: [
            finding.goodput_down_mbit_s.map(|rate| (rate, finding.is_held_back_down())),
            finding.goodput_up_mbit_s.map(|rate| (rate, finding.is_held_back_up())),
        ],
    })
}

#[cfg(test)]
mod tests {
    use underload_record::schema::{ClassLatency, Direction};

    use super::*;

    fn finding(beside_p99_ms: f64, inside_p99_ms: f64) -> Finding {
        let load = ClassLatency {
            probe: "probe".to_owned(),
            phase: Phase::Load,
            closed_loop: false,
            window_s: 5.0,
            sent: 500,
            lost_percent: 0.0,
            p50_ms: Some(20.0),
            p90_ms: Some(beside_p99_ms),
            p95_ms: Some(beside_p99_ms),
            p99_ms: Some(beside_p99_ms),
            p999_ms: None,
            max_ms: None,
            of_sent_ms: std::collections::BTreeMap::default(),
            up_variation_ms: None,
            down_variation_ms: None,
        };
        let values = std::iter::repeat_n(inside_p99_ms, 500);
        let inside = InsideReadings::of_ms(Direction::Down, "readings", values, None);
        Finding {
            latencies: vec![load],
            inside: inside.into_iter().collect(),
            goodput_down_mbit_s: Some(40.0),
            ..Finding::default()
        }
    }

    fn rounded(finding: &Finding) -> Vec<(String, f64)> {
        scores(finding).into_iter().map(|it| (it.application, it.score.round())).collect()
    }

    #[test]
    fn a_page_is_scored_inside_the_load_and_a_call_beside_it() {
        let of = |call, game, page| {
            [("call", call), ("game", game), ("web page", page)]
                .map(|(name, score): (&str, f64)| (name.to_owned(), score))
        };
        assert_eq!(rounded(&finding(250.0, 250.0)), of(90.0, 50.0, 75.0));
        assert_eq!(rounded(&finding(20.0, 400.0)), of(100.0, 100.0, 0.0));
        let mut lossy = finding(20.0, 20.0);
        lossy.latencies[0].lost_percent = 2.0;
        lossy.latencies[0].of_sent_ms = [(Quantile::P99, None)].into();
        assert_eq!(rounded(&lossy), of(0.0, 0.0, 50.0), "a lost probe is at the 99th percentile");
    }

    #[test]
    fn what_was_not_measured_has_no_score() {
        let mut few = finding(20.0, 20.0);
        few.latencies[0].p99_ms = None;
        few.inside.clear();
        assert!(rounded(&few).is_empty());
        let mut slow = finding(20.0, 20.0);
        slow.goodput_down_mbit_s = Some(0.5);
        assert_eq!(rounded(&slow)[2].1.to_bits(), 0.0_f64.to_bits(), "too slow for a page");
        slow.throttled_down = true;
        assert_eq!(rounded(&slow).len(), 2, "the line may carry more than the server granted");
    }
}
