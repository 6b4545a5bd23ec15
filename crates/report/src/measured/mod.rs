//! A measured line in words, for a terminal and for the page.

mod grade;
mod lines;
mod location;
mod uses;

pub(crate) use grade::{Grade, graded};
pub use lines::finding_lines;
pub(crate) use lines::{advice, findings, opening, rates, worst};
pub(crate) use location::{HEADS as LOCATION_HEADS, rows as location_rows};
pub(crate) use uses::{Suits, of as uses_of};

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::Value;
    use underload_record::quality::{StepConditions, application_scores};
    use underload_record::schema::{
        ClassLatency, Direction, Finding, InsideReadings, Phase, Quantile,
    };

    use super::*;

    /// A step as the page of `serve --web` has it.
    #[derive(Deserialize)]
    struct LoadedStep {
        step: String,
        idle: f64,
        /// `lost` if the highest percentile of the probes sent is a lost probe.
        beside: Value,
        inside: Option<f64>,
        lost_percent: f64,
        rate: f64,
        is_held_back: bool,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Judged {
        opening: String,
        uses: Vec<String>,
        advice: Option<String>,
    }

    #[derive(Deserialize)]
    struct Case {
        steps: Vec<LoadedStep>,
        /// Lowest Quality of Outcome of each step, percent.
        quality: Vec<f64>,
        #[serde(flatten)]
        judged: Judged,
    }

    fn latency(phase: Phase, p50_ms: f64, lost_percent: f64) -> ClassLatency {
        ClassLatency {
            probe: "probe".to_owned(),
            phase,
            closed_loop: false,
            window_s: 7.0,
            sent: 500,
            lost_percent,
            p50_ms: Some(p50_ms),
            p90_ms: None,
            p95_ms: None,
            p99_ms: None,
            p999_ms: None,
            max_ms: None,
            of_sent_ms: BTreeMap::new(),
            up_variation_ms: None,
            down_variation_ms: None,
        }
    }

    fn finding(it: &LoadedStep) -> Finding {
        let is_up = it.step == "up";
        let direction = if is_up { Direction::Up } else { Direction::Down };
        let inside = it.inside.and_then(|ms| {
            InsideReadings::of_ms(direction, "readings", std::iter::repeat_n(ms, 500), None)
        });
        let mut load = latency(Phase::Load, it.idle, it.lost_percent);
        load.p99_ms = Some(it.beside.as_f64().unwrap_or(it.idle));
        if it.beside == "lost" {
            load.of_sent_ms = [(Quantile::P99, None)].into();
        }
        Finding {
            step: it.step.clone(),
            valid: true,
            latencies: vec![latency(Phase::Idle, it.idle, 0.0), load],
            inside: inside.into_iter().collect(),
            goodput_up_mbit_s: is_up.then_some(it.rate),
            goodput_down_mbit_s: (!is_up).then_some(it.rate),
            throttled_up: is_up && it.is_held_back,
            throttled_down: !is_up && it.is_held_back,
            ..Finding::default()
        }
    }

    /// `a_browser_judges_as_the_program_does` checks the page by the same cases.
    #[test]
    fn the_program_judges_as_the_page_in_a_browser_does() {
        let cases: Vec<Case> =
            serde_json::from_str(include_str!("../../../compat/tests/judged.json")).unwrap();
        assert!(cases.len() > 5);
        for case in cases {
            let findings: Vec<Finding> = case.steps.iter().map(finding).collect();
            let judged = Judged {
                opening: opening(&findings).unwrap(),
                uses: uses_of(&findings).iter().map(ToString::to_string).collect(),
                advice: advice(&findings),
            };
            assert_eq!(judged, case.judged);
            let quality: Vec<f64> = case.steps.iter().map(lowest_quality).collect();
            assert_eq!(quality, case.quality);
        }
    }

    fn lowest_quality(it: &LoadedStep) -> f64 {
        let scores = application_scores(&StepConditions {
            beside_p99_ms: Some(it.beside.as_f64().unwrap_or(f64::INFINITY)),
            inside_p99_ms: it.inside,
            loss_percent: it.lost_percent,
            mbit_s: [Some((it.rate, it.is_held_back)), None],
        });
        scores.into_iter().map(|it| it.score.round()).reduce(f64::min).unwrap()
    }
}
