//! BOLA (Spiteri, Urgaonkar and Sitaraman, INFOCOM 2016), BOLA-BASIC.
//!
//! The utility of a rung is the logarithm of its rate over the lowest rate. With `gp = 5` and `V`
//! such that the highest rung is chosen with a full buffer, the player chooses the rung that
//! maximises `(V (utility + gp) - buffer) / rate`, with the buffer in chunks. If every value is
//! negative, the player waits until one is not.

use underload_aqm::time::Span;

use super::view::{Choice, View};

pub(super) fn choose(view: &View<'_>) -> Choice {
    let lowest = view.ladder[0];
    let utility = |rate: f64| libm::log(rate / lowest);
    let capacity = view.buffer_max_s / view.chunk_s;
    let v = (capacity - 1.0) / (utility(view.highest()) + GP);
    let buffer = view.buffer_s / view.chunk_s;
    let mut best = (0, f64::NEG_INFINITY);
    for (rung, &rate) in view.ladder.iter().enumerate() {
        let score = (v * (utility(rate) + GP) - buffer) / rate;
        if score >= best.1 {
            best = (rung, score);
        }
    }
    let enough = v * (utility(view.ladder[best.0]) + GP);
    let wait_s = (buffer - enough).max(0.0) * view.chunk_s;
    Choice { rung: best.0, wait: Span::from_nanos((wait_s * 1e9) as u64) }
}
const GP: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::super::tests::view;
    use super::*;

    #[test]
    fn more_buffer_never_means_a_lower_rung_and_a_full_one_means_the_highest() {
        let mut last = 0;
        for tenths in 0..600 {
            let rung = choose(&view(f64::from(tenths) / 10.0, &[1.0], &[0])).rung;
            assert!(rung >= last, "{tenths}");
            last = rung;
        }
        assert_eq!(last, 5);
        assert_eq!(choose(&view(0.0, &[1.0], &[0])).rung, 0);
    }

    #[test]
    fn requests_wait_only_beyond_the_target_buffer() {
        assert_eq!(choose(&view(55.9, &[1.0], &[0])).wait, Span::ZERO);
        let choice = choose(&view(58.0, &[1.0], &[0]));
        assert_eq!(choice.rung, 5);
        // 14 chunks of 4 s are enough for the highest rung.
        assert!(choice.wait.as_nanos().abs_diff(2_000_000_000) < 1_000, "{choice:?}");
    }
}
