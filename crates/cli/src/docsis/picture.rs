//! The candidates as a diagram: latency against utilisation, and against the call's score.

use underload_docsis::recommend::{Outcome, Recommendation, rate_name};
use underload_report::Plot;
use underload_report::diagram::{Curve, Diagram, Panel, Scale};

/// Draws both panels with the Pareto front, the choice and the size of Table 2.
pub fn trade(recommendation: &Recommendation) -> Plot {
    let Recommendation { outcomes, pareto, table_2, .. } = recommendation;
    let latency = |outcome: &Outcome| outcome.added_p99_ms.max(0.1);
    let low = outcomes.iter().map(latency).fold(f64::INFINITY, f64::min);
    let high = outcomes.iter().map(latency).fold(f64::NEG_INFINITY, f64::max);
    let x = Scale::logarithmic("added latency p99, ms", low / 1.3..high * 1.3);
    let panel = |y: Scale, value: fn(&Outcome) -> f64| {
        let point = |outcome: &Outcome| (latency(outcome), value(outcome));
        let vertical = |outcome: &Outcome| {
            vec![(latency(outcome), y.range.start), (latency(outcome), y.range.end)]
        };
        let on_front = outcomes.iter().zip(pareto).filter(|(_, on)| **on);
        let mut best: Vec<(f64, f64)> = on_front.map(|(outcome, _)| point(outcome)).collect();
        best.sort_by(|a, b| a.0.total_cmp(&b.0));
        let of_table = outcomes.iter().find(|outcome| Some(&outcome.name) == table_2.as_ref());
        let chosen = recommendation.chosen();
        let curves = [
            Curve::line("Pareto front", best),
            Curve::rings("candidates", outcomes.iter().map(point).collect()),
            Curve::line(&format!("recommended: {}", chosen.name), vertical(chosen)),
        ];
        let of_table =
            of_table.map(|it| Curve::line(&format!("Table 2: {}", it.name), vertical(it)));
        let curves = curves.into_iter().chain(of_table).collect();
        Panel { x: x.clone(), y, curves }
    };
    let panels = vec![
        panel(Scale::linear("link used, %", 0.0..105.0), Outcome::lowest_utilisation),
        panel(Scale::linear("call, MOS", 1.0..4.6), |outcome| outcome.mos),
    ];
    let title = format!(
        "{:?} of {}: latency against utilisation and call quality",
        recommendation.service.direction,
        rate_name(recommendation.service.sustained_bit_per_s)
    );
    let diagram = Diagram { name: "trade".to_owned(), title, panels };
    diagram.plot()
}
