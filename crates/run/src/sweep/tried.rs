//! A few trials of a sweep, tried before all of them.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::Sweep;

/// Number of trials to compute, spread over the sweep.
const TRIED: u64 = 24;
/// Computes no further trial after this time.
const LONG_ENOUGH: Duration = Duration::from_secs(3);

/// The results of a few trials.
#[derive(Debug)]
pub struct Tried<'a> {
    /// Seconds of a trial on one worker.
    pub seconds: f64,
    /// Metrics that the sweep file names and none of the trials has.
    pub missing: Vec<&'a str>,
    /// The first error of a trial.
    pub error: Option<String>,
}

impl<'a> Tried<'a> {
    /// Computes trials from the first to the last.
    pub fn new(sweep: &'a Sweep) -> Self {
        let metrics = || sweep.manifest.columns.metrics.iter().map(String::as_str);
        let mut missing: Vec<&str> = metrics().filter(|metric| sweep.requests(metric)).collect();
        let (mut error, mut tried) = (None, 0);
        let (go_on, begun, trials) =
            (AtomicBool::new(false), Instant::now(), sweep.manifest.trials());
        while tried < TRIED.min(trials) && begun.elapsed() < LONG_ENOUGH {
            let trial = tried * (trials - 1) / (TRIED.min(trials) - 1).max(1);
            for row in sweep.compute(trial..trial + 1, &go_on) {
                let has = |name: &&str| {
                    metrics()
                        .zip(&row.metrics)
                        .any(|(known, value)| known == *name && value.is_some())
                };
                missing.retain(|name| !has(name));
                error = error.or(row.error);
            }
            tried += 1;
        }
        Self { seconds: begun.elapsed().as_secs_f64() / tried as f64, missing, error }
    }
}
