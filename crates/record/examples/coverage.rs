//! How often the intervals of a cohort study contain the simulated effect, and how often a study
//! finds a difference between equal cohorts: 500 fleets of lines with several tests each.
//!
//! A line's level is log-normal with a tail of slow lines, its tests vary around the level, and
//! each line has one to nine tests. Half of the lines have a tier that is twice as slow; for the
//! stratified comparison their share differs between the cohorts.

#![expect(clippy::print_stdout, reason = "an example that prints its table")]

use std::collections::BTreeMap;

use underload_aqm::rng::Rng;
use underload_record::cohorts::{Line, LineSeries, Lines, Rows, SeriesName, study};
use underload_record::schema::Estimate;
use underload_record::stats::{Alternative, mann_whitney};

/// The reference is slower by this factor.
const PLANTED: f64 = 3.0;
const BIN_RATIO: f64 = 1.02;
const BINS: usize = 932;

fn uniform(rng: &mut Rng) -> f64 {
    (f64::from(rng.next_u32()) + 0.5) / 4_294_967_296.0
}

/// Draws from the normal distribution (Box and Muller).
fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * uniform(rng).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(rng)).cos()
}

fn bin_of(us: f64) -> u16 {
    (us.ln() / BIN_RATIO.ln()).ceil() as u16
}

/// The single tests of a fleet, for each cohort.
fn fleet(rng: &mut Rng, devices: usize, ratio: f64, of_slow: [f64; 2]) -> (Lines, [Vec<f64>; 2]) {
    let series = SeriesName { step: "up".to_owned(), load: "upload", dscp: 0, is_inside: false };
    let mut lines = Lines {
        cohorts: vec!["treated".to_owned(), "control".to_owned()],
        reference: Some(1),
        series: vec![series],
        dimensions: vec![("tier".to_owned(), vec!["fast".to_owned(), "slow".to_owned()])],
        outcomes: vec!["measured".to_owned(), "refused".to_owned()],
        bin_ratio: BIN_RATIO,
        bins: BINS,
        moved: 0,
        planned: Vec::new(),
        change: None,
        rows: Rows::default(),
    };
    let mut tests = [Vec::new(), Vec::new()];
    for number in 0..devices {
        let cohort = number % 2;
        let is_slow = uniform(rng) < of_slow[cohort];
        let factor = if cohort == 1 { ratio } else { 1.0 } * if is_slow { 2.0 } else { 1.0 };
        let tail = if uniform(rng) < 0.1 { 4.0 } else { 1.0 };
        let level = 20_000.0 * factor * tail * (0.5 * normal(rng)).exp();
        let mut sums = LineSeries::default();
        let mut bins: BTreeMap<u16, u32> = BTreeMap::new();
        let count = 1 + rng.below(9);
        for _ in 0..count {
            let mean = level * (0.3 * normal(rng)).exp();
            sums.tests += 1;
            sums.means_us += mean;
            sums.maxima_us += mean;
            tests[cohort].push(mean);
            for _ in 0..10 {
                sums.sent += 1;
                *bins.entry(bin_of(mean * (0.2 * normal(rng)).exp())).or_default() += 1;
            }
        }
        sums.bins = bins.into_iter().collect();
        sums.strata.insert((0, usize::from(is_slow)), (sums.means_us, sums.tests));
        let refused = rng.below(4);
        lines.add(&Line {
            cohort,
            tests: count,
            outcomes: vec![count, refused],
            series: [(0, sums)].into(),
            ..Line::default()
        });
    }
    (lines, tests)
}

/// The number of intervals, and of those that contain the true value.
#[derive(Default)]
struct Coverage {
    held: u32,
    all: u32,
}

impl Coverage {
    fn note(&mut self, low: Option<f64>, high: Option<f64>, truth: f64) {
        if let Some((low, high)) = low.zip(high) {
            self.held += u32::from(low <= truth && truth <= high);
            self.all += 1;
        }
    }

    fn note_estimate(&mut self, estimate: Option<Estimate>, truth: f64) {
        if let Some(found) = estimate {
            self.note(found.low, found.high, truth);
        }
    }

    fn print(&self, what: &str, goal: &str) {
        let percent = f64::from(self.held) * 100.0 / f64::from(self.all.max(1));
        let told = if self.all > 0 { format!("{percent:.1} %") } else { "never told".to_owned() };
        println!("| {what} | {told} of {} | {goal} |", self.all);
    }
}

/// Quantiles of all round trips of a cohort, from a very large fleet.
fn true_quantiles() -> Vec<f64> {
    let (lines, _) = fleet(&mut Rng::new(7).child("truth"), 400_000, PLANTED, [0.5, 0.5]);
    let study = study(&lines, 1);
    study.series[0].cohorts[0].quantiles.iter().filter_map(|found| found.ms).collect()
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u32>());
    let studies = arguments.next().and_then(Result::ok).unwrap_or(500);
    let devices = arguments.next().and_then(Result::ok).unwrap_or(300) as usize;
    let truth = true_quantiles();
    let (mut ratio, mut like, mut missing) =
        (Coverage::default(), Coverage::default(), Coverage::default());
    let mut quantiles =
        [Coverage::default(), Coverage::default(), Coverage::default(), Coverage::default()];
    let (mut by_line, mut by_test) = (Coverage::default(), Coverage::default());
    for number in 0..studies {
        let rng = Rng::new(u64::from(number)).child("coverage");
        let (lines, _) = fleet(&mut rng.child("planted"), devices, PLANTED, [0.5, 0.5]);
        let found = study(&lines, u64::from(number));
        let compared = found.series[0].comparisons[0].mean.clone();
        ratio.note_estimate(compared.and_then(|mean| mean.ratio), PLANTED);
        for ((held, found), truth) in
            quantiles.iter_mut().zip(&found.series[0].cohorts[0].quantiles).zip(&truth)
        {
            held.note(found.low, found.high, *truth);
        }
        let row = found.outcomes.iter().find(|row| row.difference.is_some());
        missing.note_estimate(row.and_then(|row| row.difference), 0.0);
        let (lines, _) = fleet(&mut rng.child("unequal"), devices, PLANTED, [0.3, 0.7]);
        let found = study(&lines, u64::from(number));
        like.note_estimate(found.series[0].stratified[0].ratio, PLANTED);
        let (lines, tests) = fleet(&mut rng.child("nothing"), devices, 1.0, [0.5, 0.5]);
        let found = study(&lines, u64::from(number));
        let compared = found.series[0].comparisons[0].mean.clone();
        let excludes_one = |ratio: Estimate| ratio.low > Some(1.0) || ratio.high < Some(1.0);
        let line = compared.and_then(|mean| mean.ratio).map(excludes_one);
        let test = mann_whitney(&tests[0], &tests[1], Alternative::TwoSided);
        let test = test.map(|test| test.p_value < 0.05);
        for (alarms, is_shown) in [(&mut by_line, line), (&mut by_test, test)] {
            alarms.note(Some(0.0), is_shown.map(|it| if it { 1.0 } else { -1.0 }), 0.0);
        }
    }
    println!("{studies} fleets of {devices} lines, one to nine tests each\n");
    println!("| what | how often | goal |\n|---|---|---|");
    ratio.print("the interval of the ratio holds the planted 3", "93 to 97 %");
    like.print("the same within like lines, tiers unequal between cohorts", "93 to 97 %");
    for (held, share) in quantiles.iter().zip(["p50", "p90", "p95", "p99"]) {
        held.print(
            &format!("the interval of the {share} of all round trips holds it"),
            "93 to 97 %",
        );
    }
    missing.print("the interval of a difference of missing runs holds 0", "93 to 97 %");
    by_line.print("nothing planted: a difference of ranks at 5 %, by line", "about 5 %");
    by_test.print("nothing planted: a difference of ranks at 5 %, by test", "shows why by line");
}
