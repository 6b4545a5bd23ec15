//! Quality of Outcome (draft-ietf-ippm-qoo-10, section 3.3): a score between the conditions at
//! which an application is unacceptable, 0 %, and those at which it is optimal, 100 %. The draft
//! defines the formula and no applications; the caller states the requirements.

use crate::schema::Quantile;

/// A bound of latency at one percentile, ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyBound {
    pub quantile: Quantile,
    /// Latency up to which the application is optimal (ROP).
    pub optimal_ms: f64,
    /// Latency from which the application is unacceptable (CPUP).
    pub unacceptable_ms: f64,
}

/// The requirements of an application: those for optimal performance (ROP), the conditions at the
/// point of unacceptable performance (CPUP), and a least throughput.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Requirements {
    /// Bounds of the round trip.
    pub latency: &'static [LatencyBound],
    /// Percent lost up to which the application is optimal, and from which it is unacceptable.
    pub loss_percent: (f64, f64),
    /// `None` if any throughput suffices.
    pub least_mbit_s: Option<f64>,
}

/// The conditions that were measured.
#[derive(Clone, Copy)]
pub struct Conditions<'a> {
    /// Returns a percentile of the round trips, ms, infinite if lost; `None` with too few.
    pub latency_ms: &'a dyn Fn(Quantile) -> Option<f64>,
    pub loss_percent: f64,
    /// `None` if the rate was not measured.
    pub mbit_s: Option<f64>,
}

/// The components of a score and their minimum, the score, percent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Components {
    pub score: f64,
    pub latency: f64,
    pub loss: f64,
    /// `None` if no throughput is required.
    pub throughput: Option<f64>,
}

/// Scores conditions against requirements; `None` if one of the required percentiles or the
/// required throughput was not measured.
pub fn quality_of_outcome(needs: &Requirements, found: &Conditions<'_>) -> Option<Components> {
    let mut latency = 100.0_f64;
    for bound in needs.latency {
        let measured_ms = (found.latency_ms)(bound.quantile)?;
        latency = latency.min(position(measured_ms, bound.optimal_ms, bound.unacceptable_ms));
    }
    let (optimal, unacceptable) = needs.loss_percent;
    let loss = position(found.loss_percent, optimal, unacceptable);
    let throughput = match needs.least_mbit_s {
        None => None,
        Some(least) => Some(if found.mbit_s? >= least { 100.0 } else { 0.0 }),
    };
    let score = latency.min(loss).min(throughput.unwrap_or(100.0));
    Some(Components { score, latency, loss, throughput })
}

/// Returns 100 at `optimal` or less, 0 at `unacceptable` or more, and interpolates between.
fn position(measured: f64, optimal: f64, unacceptable: f64) -> f64 {
    if measured <= optimal {
        return 100.0;
    }
    let share = 1.0 - (measured - optimal) / (unacceptable - optimal);
    // Returns 100 or 0 also for equal bounds, and 0 for infinity and what is not a number.
    if share > 0.0 { share.min(1.0) * 100.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn bound(quantile: Quantile, optimal_ms: f64, unacceptable_ms: f64) -> LatencyBound {
        LatencyBound { quantile, optimal_ms, unacceptable_ms }
    }

    /// Section 3.4 of the draft.
    const EXAMPLE: Requirements = Requirements {
        latency: &[bound(Quantile::P99, 200.0, 500.0), bound(Quantile::P999, 300.0, 600.0)],
        loss_percent: (1.0, 5.0),
        least_mbit_s: Some(4.0),
    };

    fn score(latency_ms: [Option<f64>; 2], loss_percent: f64, mbit_s: Option<f64>) -> Option<f64> {
        let latency_ms = |quantile| match quantile {
            Quantile::P99 => latency_ms[0],
            Quantile::P999 => latency_ms[1],
            _ => None,
        };
        let found = Conditions { latency_ms: &latency_ms, loss_percent, mbit_s };
        quality_of_outcome(&EXAMPLE, &found).map(|it| it.score)
    }

    #[expect(clippy::float_cmp, reason = "golden numbers")]
    #[test]
    fn the_example_of_the_draft_scores_50() {
        let latency_ms = |quantile| Some(if quantile == Quantile::P99 { 350.0 } else { 375.0 });
        let found = Conditions { latency_ms: &latency_ms, loss_percent: 2.0, mbit_s: Some(28.0) };
        let score = quality_of_outcome(&EXAMPLE, &found).unwrap();
        assert_eq!((score.latency, score.loss, score.throughput), (50.0, 75.0, Some(100.0)));
        assert_eq!(score.score, 50.0);
    }

    #[test]
    fn scores_end_at_0_and_100_and_need_every_number() {
        let good = [Some(1.0), Some(1.0)];
        assert_eq!(score(good, 0.0, Some(4.0)), Some(100.0));
        assert_eq!(score(good, 0.0, Some(3.9)), Some(0.0), "too slow");
        assert_eq!(score(good, 100.0, Some(4.0)), Some(0.0));
        assert_eq!(score([Some(f64::INFINITY), Some(1.0)], 0.0, Some(4.0)), Some(0.0));
        assert_eq!(score([Some(f64::NAN), Some(1.0)], 0.0, Some(4.0)), Some(0.0));
        assert_eq!(score([Some(1.0), None], 0.0, Some(4.0)), None);
        assert_eq!(score(good, 0.0, None), None);
        assert!(position(5.0, 5.0, 5.0) > 99.0 && position(5.1, 5.0, 5.0) < 1.0);
    }
}
