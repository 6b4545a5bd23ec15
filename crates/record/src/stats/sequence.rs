//! A confidence sequence: intervals that may be looked at after every day, all of which together
//! hold the truth with the stated probability.
//!
//! The boundary is the normal mixture of Robbins (1970), in the form of Howard, Ramdas, McAuliffe
//! and Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences" (Annals of
//! Statistics 2021, section 3.2). Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform
//! central limit theory and asymptotic confidence sequences" (Annals of Statistics 2024) show that
//! it holds for means of any distribution with an estimated variance, if the values are many.
//!
//! Time in the sequence is information: 1 over the variance of the estimate. Days of one line
//! resemble each other, so the number of days says little about the information. But the score of an
//! efficient estimate (the estimate times its information) has independent increments, whatever the days of a line have in common (Scharfstein, Tsiatis and
//! Robins, "Semiparametric efficiency and its implication on the design and analysis of
//! group-sequential studies", JASA 1997). The mean over equally measured lines is efficient, if
//! each line differs from the others by a constant and by noise of the day.

/// Returns half the width of a confidence sequence about an estimate with this variance: the truth
/// is outside of any of the intervals with a probability of at most `alpha`.
///
/// The sequence is nearly the narrowest where its half width is `resolution`, which must be chosen
/// before the first value is seen. Infinite without information.
pub fn sequence_half_width(variance: f64, alpha: f64, resolution: f64) -> f64 {
    // The ratio of information to `mixture` at which the boundary is nearly the narrowest.
    let narrowest = {
        let twice = 2.0 * (1.0 / alpha).ln();
        twice + twice.ln_1p()
    };
    let squared = alpha * alpha;
    let wanted = (1.0 + 1.0 / narrowest) * ((narrowest + 1.0) / squared).ln() / resolution.powi(2);
    let (information, mixture) = (1.0 / variance, wanted / narrowest);
    let sum = information + mixture;
    let half = (sum * (sum / (mixture * squared)).ln()).sqrt() / information;
    if half.is_nan() { f64::INFINITY } else { half }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `half(information)` with scipy: `r = brentq` of the mixture, then
    /// `sqrt((i + r) * log((i + r) / (r * a * a))) / i`.
    #[test]
    fn the_half_width_is_the_resolution_where_it_was_asked_to_be() {
        for (alpha, resolution) in [(0.05, 0.1), (0.001, 0.02)] {
            let narrow = |variance: f64| sequence_half_width(variance, alpha, resolution);
            // The variance whose half width is the resolution, by bisection.
            let (mut low, mut high) = (1e-12_f64, 1.0_f64);
            for _ in 0..200 {
                let middle = (low * high).sqrt();
                *(if narrow(middle) < resolution { &mut low } else { &mut high }) = middle;
            }
            let deviations = resolution / low.sqrt();
            // A single look needs 1.96 (3.29) standard deviations; all looks together need more.
            let (least, most) = if alpha > 0.01 { (2.7, 3.2) } else { (4.0, 4.5) };
            assert!((least..most).contains(&deviations), "{alpha}: {deviations}");
            // A sequence for another resolution is wider there.
            for other in [resolution / 10.0, resolution * 10.0] {
                assert!(sequence_half_width(low, alpha, other) > resolution);
            }
        }
    }

    #[test]
    fn a_sequence_without_information_is_infinitely_wide() {
        for variance in [f64::INFINITY, f64::NAN] {
            assert!(sequence_half_width(variance, 0.05, 0.1).is_infinite(), "{variance}");
        }
    }
}
