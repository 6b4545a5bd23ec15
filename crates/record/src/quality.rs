//! Quality of Outcome (draft-ietf-ippm-qoo) of a step for three applications.
//!
//! The draft defines the formula and no application. The requirements here are limits of standards
//! (`docs/measure.md`), as round trips at p99; the verdict of a use has its own scale. A call and a
//! game are judged by the probes beside the load, a page by the round trips inside it.

use crate::schema::{QualityOfOutcome, Quantile, Vantage};
use crate::stats::{Conditions, LatencyBound, Requirements, quality_of_outcome};

/// The conditions of a step under load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepConditions {
    /// P99 of the probes beside the load, ms, infinite if lost; `None` with too few probes.
    pub beside_p99_ms: Option<f64>,
    /// 99th percentile of the round trips inside the load, ms; `None` with too few.
    pub inside_p99_ms: Option<f64>,
    /// Probes that were lost, percent.
    pub loss_percent: f64,
    /// The rate of each loaded direction, Mbit/s, and whether something other than the line limited
    /// it.
    pub mbit_s: [Option<(f64, bool)>; 2],
}

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
pub fn application_scores(found: &StepConditions) -> Vec<QualityOfOutcome> {
    APPLICATIONS.iter().filter_map(|application| score(found, application)).collect()
}

fn score(found: &StepConditions, application: &Application) -> Option<QualityOfOutcome> {
    let p99_ms = match application.vantage {
        Vantage::Beside => found.beside_p99_ms,
        Vantage::Inside => found.inside_p99_ms,
    };
    let least = application.needs.least_mbit_s.unwrap_or(0.0);
    // A load that was held back proves what the line carries, not what it cannot carry.
    let known = found.mbit_s.into_iter().flatten();
    let known = known.filter(|(rate, is_held_back)| !is_held_back || *rate >= least);
    let conditions = Conditions {
        latency_ms: &|quantile| p99_ms.filter(|_| quantile == Quantile::P99),
        loss_percent: found.loss_percent,
        mbit_s: known.map(|(rate, _)| rate).reduce(f64::min),
    };
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
