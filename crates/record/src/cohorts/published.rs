//! Published numbers of studies that a built-in plan repeats.
//!
//! The bands are the same as in the scenarios that simulate these studies, `comcast/study` and
//! `low-latency/ull`.

use crate::schema::{CohortSeries, CohortStudy, Expectation};

/// Returns the published numbers with the measured ones; empty if the plan repeats no study.
pub fn published(study: &CohortStudy) -> Vec<Expectation> {
    match study.plan.as_str() {
        "comcast-study" => aqm_study(study).unwrap_or_default(),
        "low-latency-trial" => trial(study),
        _ => Vec::new(),
    }
}

struct Published<'a> {
    metric: &'a str,
    value: Option<f64>,
    band: (Option<f64>, Option<f64>),
    unit: &'a str,
    source: &'a str,
}

impl Published<'_> {
    fn beside(self, variant: &str, measured: Option<f64>, note: &str) -> Expectation {
        let mut expectation = Expectation {
            metric: self.metric.to_owned(),
            variant: variant.to_owned(),
            value: self.value,
            low: self.band.0,
            high: self.band.1,
            unit: self.unit.to_owned(),
            source: self.source.to_owned(),
            note: note.to_owned(),
            ..Expectation::default()
        };
        expectation.judge(measured);
        expectation
    }
}

/// Assumes that the reference has the lines without AQM, and the only other cohort those with it.
fn aqm_study(study: &CohortStudy) -> Option<Vec<Expectation>> {
    let series = study.series.iter().find(|series| series.load == "upload")?;
    let [comparison] = series.comparisons.as_slice() else { return None };
    let of = |name: &str| series.cohorts.iter().find(|own| own.cohort == name);
    let (with, without) = (of(&comparison.cohort)?, of(&comparison.against)?);
    let mean = |own: &CohortSeries| own.mean.average.map(|average| average.mean);
    let within = |own: &CohortSeries, from: usize, until: usize| {
        Some(own.mean.histogram.get(from..until)?.iter().sum::<f64>())
    };
    let ratio = mean(without).zip(mean(with)).map(|(without, with)| without / with);
    let devices = "of devices, each the mean of its tests; the paper's are tests, about one each";
    let published =
        |metric, value, band, unit, source| Published { metric, value, band, unit, source };
    let bars = "Comcast 2021, Figure 5: 1 % of tests without AQM in 15 to 30 ms";
    let bars_with = "Comcast 2021, Figure 6: 77 % of tests with AQM in 15 to 30 ms";
    let grouped = "Comcast 2021, Figure 6: tightly grouped between 15 and 45 ms";
    let average = "Comcast 2021, abstract: without AQM roughly 250 ms on average";
    let most = "Comcast 2021, abstract: most tests with AQM in 15 to 30 ms";
    let times = "Comcast 2021, abstract: 8 to 16 times higher without AQM";
    let band = |low, high| (Some(low), Some(high));
    Some(vec![
        published("mean under upload", Some(250.0), band(200.0, 300.0), "ms", average).beside(
            &without.cohort,
            mean(without),
            "",
        ),
        published("mean from 15 to 30 ms", Some(1.0), band(-1.0, 3.0), "%", bars).beside(
            &without.cohort,
            within(without, 1, 2),
            devices,
        ),
        published("mean from 15 to 30 ms", Some(77.0), band(69.0, 85.0), "%", bars_with).beside(
            &with.cohort,
            within(with, 1, 2),
            devices,
        ),
        published("mean from 15 to 45 ms", None, (Some(90.0), None), "%", grouped).beside(
            &with.cohort,
            within(with, 1, 3),
            "the source gives no share; we read 'tightly grouped' as 90 %",
        ),
        published("mean under upload", None, band(15.0, 30.0), "ms", most).beside(
            &with.cohort,
            mean(with),
            "",
        ),
        published("ratio of means", None, band(8.0, 16.0), "1", times).beside(
            &format!("{} over {}", without.cohort, with.cohort),
            ratio,
            "",
        ),
    ])
}

fn trial(study: &CohortStudy) -> Vec<Expectation> {
    let classes = study.classes.iter().filter(|class| class.dscp == 45);
    let number = |class: &crate::schema::ClassStudy| {
        let published = Published {
            metric: "cut of lag, DSCP 45",
            value: None,
            band: (Some(50.0), None),
            unit: "%",
            source: "NANOG 90, LLD results: 50 % and more lag reduction",
        };
        let variant = if class.cohort.is_empty() { "all lines" } else { &class.cohort };
        let note = format!(
            "against DSCP {}; how many of the trial's homes keep markings is not given",
            class.against
        );
        published.beside(variant, class.cut_percent.as_ref().map(|cut| cut.mean), &note)
    };
    classes.map(number).collect()
}
