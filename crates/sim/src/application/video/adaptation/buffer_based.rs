//! BB: a line from the reservoir to the end of the cushion (Huang et al., SIGCOMM 2014), with the
//! reservoir of 5 s and the cushion of 10 s that comparisons since Pensieve use.

use super::view::View;

pub(super) fn choose(view: &View<'_>) -> usize {
    let top = view.ladder.len() - 1;
    if view.buffer_s < RESERVOIR_S {
        0
    } else if view.buffer_s >= RESERVOIR_S + CUSHION_S {
        top
    } else {
        (top as f64 * (view.buffer_s - RESERVOIR_S) / CUSHION_S) as usize
    }
}

const RESERVOIR_S: f64 = 5.0;
const CUSHION_S: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::super::tests::view;
    use super::*;

    #[test]
    fn buffer_based_adaptation_ignores_throughput() {
        for (buffer, rung) in
            [(0.0, 0), (4.9, 0), (6.9, 0), (7.0, 1), (10.0, 2), (14.9, 4), (15.0, 5)]
        {
            assert_eq!(choose(&view(buffer, &[100.0], &[0])), rung, "{buffer} s");
        }
    }
}
