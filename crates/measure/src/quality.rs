//! Quality of Outcome (draft-ietf-ippm-qoo) of a step for three applications.
//!
//! The draft defines the formula and no application. The requirements here are the limits by which
//! the sentences judge (`docs/measure.md`), as round trips at p99. A call and a game are judged by
//! the probes beside the load, a page by the round trips inside it.

use underload_record::schema::{Finding, Phase, QualityOfOutcome, Quantile, Vantage};
use underload_record::stats::{Conditions, LatencyBound, Requirements, quality_of_outcome};

struct Application {
    name: &'static str,
    vantage: Vantage,
    needs: Requirements,
}

const fn p99(optimal_ms: f64, unacceptable_ms: f64) -> [LatencyBound; 1] {
    [LatencyBound { quantile: Quantile::P99, optimal_ms, unacceptable_ms }]
}

/// 1 % of lost packets goes unnoticed, 3 % is the limit of ITU-T G.1010 for speech.
const LOSS_PERCENT: (f64, f64) = (1.0, 3.0);
/// The 150 and 400 ms of ITU-T G.114 without the 50 ms in the devices, there and back.
const CALL: [LatencyBound; 1] = p99(200.0, 700.0);
/// Claypool and Claypool (2006), and twice the 200 ms of ITU-T G.1010.
const GAME: [LatencyBound; 1] = p99(100.0, 400.0);
/// The 2 and 4 s of ITU-T G.1010 for a page of 10 round trips.
const PAGE: [LatencyBound; 1] = p99(200.0, 400.0);

const APPLICATIONS: [Application; 3] = [
    Application { name: "call", vantage: Vantage::Beside, needs: requirements(&CALL, 0.1) },
    Application { name: "game", vantage: Vantage::Beside, needs: requirements(&GAME, 0.1) },
    Application { name: "web page", vantage: Vantage::Inside, needs: requirements(&PAGE, 1.0) },
];

const fn requirements(latency: &'static [LatencyBound], least_mbit_s: f64) -> Requirements {
    Requirements { latency, loss_percent: LOSS_PERCENT, least_mbit_s: Some(least_mbit_s) }
}

/// Returns the score of each application whose conditions the step measured.
pub(crate) fn scores(finding: &Finding) -> Vec<QualityOfOutcome> {
    APPLICATIONS.iter().filter_map(|application| score(finding, application)).collect()
}

fn score(finding: &Finding, application: &Application) -> Option<QualityOfOutcome> {
    let load = finding.headline(Phase::Load)?;
    let beside = |quantile| {
        let answered_ms = if quantile == Quantile::P99 { load.p99_ms? } else { return None };
        let of_sent = load.of_sent_ms.get(&quantile);
        Some(of_sent.map_or(answered_ms, |ms| ms.unwrap_or(f64::INFINITY)))
    };
    let inside = |quantile| match finding.worst_inside()?.highest_ms()? {
        (highest, ms) if highest == quantile => Some(ms),
        _ => None,
    };
    let latency_ms: &dyn Fn(Quantile) -> Option<f64> = match application.vantage {
        Vantage::Beside => &beside,
        Vantage::Inside => &inside,
    };
    let carried = [
        (finding.goodput_down_mbit_s, finding.is_held_back_down()),
        (finding.goodput_up_mbit_s, finding.is_held_back_up()),
    ];
    let least = application.needs.least_mbit_s.unwrap_or(0.0);
    // A load that was held back proves what the line carries, not what it cannot carry.
    let known = carried
        .into_iter()
        .filter_map(|(rate, is_held_back)| rate.filter(|rate| !is_held_back || *rate >= least));
    let mbit_s = known.reduce(f64::min);
    let conditions = Conditions { latency_ms, loss_percent: load.lost_percent, mbit_s };
    let found = quality_of_outcome(&application.needs, &conditions)?;
    Some(QualityOfOutcome {
        application: application.name.to_owned(),
        vantage: application.vantage,
        score: found.score,
        latency: found.latency,
        loss: found.loss,
        throughput: found.throughput,
    })
}

#[cfg(test)]
mod tests {
    use underload_record::schema::{ClassLatency, Direction, InsideReadings};

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
