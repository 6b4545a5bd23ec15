//! The quality of a G.711 call as callers perceive it, computed from delay and loss.
//!
//! Two methods that share the step from R to MOS (ITU-T G.107 Annex B):
//!
//! - **E-model** (ITU-T G.107): `R = 93.2 - Idd - Ie,eff`. 93.2 is `Ro - Is` with every other
//!   parameter at its default; `Idd` (section 3.5) is the impairment by delay and `Ie,eff`
//!   (section 3.6) that by frames not heard, with G.711's parameters from G.113 Appendix I. Echo is
//!   assumed to be fully cancelled (`Idte = Idle = 0`).
//! - **Cole and Rosenbluth** (2001): the reduced form `R = 94.2 - 0.024 d - 0.11 (d - 177.3)
//!   H(d - 177.3) - 30 ln(1 + 15 e)`, which the DOCSIS buffer control guideline uses.

/// The impairments of one direction of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Impairment {
    pub delay_ms: f64,
    /// Share of the frames not heard, 0 to 1.
    pub loss: f64,
    /// Mean length of loss bursts over that of random loss of the same share; 1 for random loss.
    /// G.107 was verified for ratios up to 2; beyond that the E-model extrapolates, and a long burst
    /// lowers the rating further than its share of lost frames suggests.
    pub burst_ratio: f64,
    /// Whether the receiver conceals lost frames (G.711 Appendix I).
    pub concealment: bool,
}

/// Returns the transmission rating factor R of the E-model.
pub fn e_model(impairment: &Impairment) -> f64 {
    let Impairment { delay_ms, loss, burst_ratio, concealment } = *impairment;
    let robustness = if concealment { 25.1 } else { 4.3 };
    let loss_percent = 100.0 * loss;
    let equipment = 95.0 * loss_percent / (loss_percent / burst_ratio.max(1.0) + robustness);
    93.2 - delay_impairment(delay_ms) - equipment
}

/// Returns `Idd` of G.107.
fn delay_impairment(delay_ms: f64) -> f64 {
    if delay_ms <= 100.0 {
        return 0.0;
    }
    let x = libm::log2(delay_ms / 100.0);
    let bend = |x: f64| libm::pow(1.0 + libm::pow(x, 6.0), 1.0 / 6.0);
    25.0 * (bend(x) - 3.0 * bend(x / 3.0) + 2.0)
}

/// Returns the transmission rating factor R of Cole and Rosenbluth's reduced form, for random loss.
pub fn cole_rosenbluth(impairment: &Impairment) -> f64 {
    let delay = impairment.delay_ms;
    94.2 - 0.024 * delay
        - 0.11 * (delay - 177.3).max(0.0)
        - 30.0 * libm::log(1.0 + 15.0 * impairment.loss)
}

/// Returns the mean opinion score, 1 to 4.5, of a rating.
pub fn mean_opinion_score(rating: f64) -> f64 {
    if rating <= 0.0 {
        return 1.0;
    }
    if rating >= 100.0 {
        return 4.5;
    }
    // The cubic dips below 1 for ratings under 6.5.
    (1.0 + 0.035 * rating + 7e-6 * rating * (rating - 60.0) * (100.0 - rating)).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(delay_ms: f64, loss: f64) -> Impairment {
        Impairment { delay_ms, loss, burst_ratio: 1.0, concealment: true }
    }

    #[test]
    fn cole_and_rosenbluth_give_the_published_scores() {
        let vectors = [
            (0.0, 0.0, 4.43),
            (150.0, 0.0, 4.35),
            (250.0, 0.0, 4.03),
            (400.0, 0.0, 3.10),
            (100.0, 0.025, 4.11),
        ];
        for (delay, loss, expected) in vectors {
            let score = mean_opinion_score(cole_rosenbluth(&call(delay, loss)));
            // Two decimals, not always rounded: 400 ms give 3.105.
            assert!((score - expected).abs() < 0.006, "{delay} ms, {loss}: {score}");
        }
    }

    #[test]
    fn the_e_model_gives_its_published_values() {
        // The default of G.107: R = 93.2, MOS 4.41.
        assert!((mean_opinion_score(e_model(&call(0.0, 0.0))) - 4.41).abs() < 0.005);
        assert!((e_model(&call(100.0, 0.0)) - 93.2).abs() < 1e-12);
        // Idd by hand: X = 2 gives 25 (65^(1/6) - 3 (1 + (2/3)^6)^(1/6) + 2).
        assert!(
            (e_model(&call(400.0, 0.0)) - 69.13).abs() < 0.02,
            "{}",
            e_model(&call(400.0, 0.0))
        );
        // Ie,eff at 1 % random loss: 95 / 26.1 with concealment, 95 / 5.3 without.
        assert!((e_model(&call(0.0, 0.01)) - (93.2 - 95.0 / 26.1)).abs() < 1e-9);
        let bare = Impairment { concealment: false, ..call(0.0, 0.01) };
        assert!((e_model(&bare) - (93.2 - 95.0 / 5.3)).abs() < 1e-9);
    }

    #[test]
    fn bursts_are_worse_than_random_loss() {
        let bursty = Impairment { burst_ratio: 3.0, ..call(0.0, 0.05) };
        assert!(e_model(&bursty) < e_model(&call(0.0, 0.05)));
    }

    #[test]
    fn scores_stay_between_1_and_4_5() {
        for rating in -20..=120 {
            let score = mean_opinion_score(f64::from(rating));
            assert!((1.0..=4.5).contains(&score), "{rating}: {score}");
        }
    }
}
