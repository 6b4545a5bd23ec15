//! The trade as a picture: latency against utilisation, and against the call's score.

use anyhow::Context;
use underload_report::Plot;
use underload_report::diagram::{Curve, Diagram, Panel, Scale};

use super::choose::{Outcome, front};

/// Both panels, with the front, the choice and the size of Table 2.
pub fn picture(
    title: String,
    outcomes: &[Outcome],
    choice: usize,
    table: &str,
) -> anyhow::Result<Plot> {
    let latencies = outcomes.iter().map(|outcome| outcome.added_p99_ms.max(0.1));
    let low = latencies.clone().fold(f64::INFINITY, f64::min);
    let high = latencies.fold(f64::NEG_INFINITY, f64::max);
    let x = Scale::logarithmic("added latency p99, ms", low / 1.3..high * 1.3);
    let score = |outcome: &Outcome| outcome.mos;
    let panels = vec![
        panel(
            &x,
            Scale::linear("link used, %", 0.0..105.0),
            outcomes,
            choice,
            table,
            Outcome::lowest_utilisation,
        ),
        panel(&x, Scale::linear("call, MOS", 1.0..4.6), outcomes, choice, table, score),
    ];
    let diagram = Diagram { name: "trade".to_owned(), title, panels };
    diagram.plot().context("drawing the trade")
}

fn panel(
    x: &Scale,
    y: Scale,
    outcomes: &[Outcome],
    choice: usize,
    table: &str,
    value: impl Fn(&Outcome) -> f64,
) -> Panel {
    let place = |outcome: &Outcome| (outcome.added_p99_ms.max(0.1), value(outcome));
    let mut best: Vec<(f64, f64)> =
        outcomes.iter().zip(front(outcomes)).filter(|(_, on)| *on).map(|(o, _)| place(o)).collect();
    best.sort_by(|a, b| a.0.total_cmp(&b.0));
    let upright = |outcome: &Outcome| {
        let at = outcome.added_p99_ms.max(0.1);
        vec![(at, y.range.start), (at, y.range.end)]
    };
    let of_table = outcomes.iter().find(|outcome| outcome.name == table);
    let chosen = &outcomes[choice];
    let curves = vec![
        Curve::line("Pareto front", best),
        Curve::rings("candidates", outcomes.iter().map(place).collect()),
        Curve::line(&format!("Table 2: {table}"), of_table.map(upright).unwrap_or_default()),
        Curve::line(&format!("recommended: {}", chosen.name), upright(chosen)),
    ];
    Panel { x: x.clone(), y, curves }
}
