//! Every arm that differs from the first in one thing against it, trial by trial: is it slower, by
//! how much, and how sure is that?

use std::fmt::Write as _;

use underload_record::CONFIDENCE;
use underload_record::schema::{Phase, Quantile};
use underload_record::stats::{
    Alternative, Shift, hodges_lehmann_ratio, hodges_lehmann_shift, mann_whitney,
};

use super::{arm_row, table};
use crate::likeness;
use crate::plot::escape;
use crate::subject::Subject;
use crate::words::significant;

/// Trials per arm from which a comparison says something.
const FEWEST_TRIALS: usize = 5;

pub(super) fn section(subjects: &[Subject<'_>]) -> String {
    let Some((first, others)) = subjects.split_first() else { return String::new() };
    let mut rows = String::new();
    for other in others.iter().filter(|other| likeness::is_like(first, other)) {
        let of_arm: String = [Quantile::P50, Quantile::P99, Quantile::Mean]
            .into_iter()
            .filter_map(|quantile| row(first, other, quantile))
            .collect();
        if !of_arm.is_empty() {
            rows += &arm_row(other, 5);
            rows += &of_arm;
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let head = "<th class=\"text\">working latency</th>\
                <th>difference<br><span class=\"unit\">ms</span></th>\
                <th>ratio</th>\
                <th>pairs slower<br><span class=\"unit\">%</span></th>\
                <th>p-value</th>";
    format!(
        "<h2>Compared with {}</h2>\n<p class=\"note\">The arms that differ from it in one thing. One \
         value per valid trial. Difference and \
         ratio are Hodges-Lehmann estimates (the median over all pairs of trials) with 95 % \
         intervals; the p-value is Mann and Whitney's, two-sided. Slower: the share of pairs in \
         which this arm's trial is the slower one.</p>\n{}",
        escape(&first.title()),
        table(head, &rows)
    )
}

fn row(first: &Subject<'_>, other: &Subject<'_>, quantile: Quantile) -> Option<String> {
    let (ours, base) = (values(other, quantile), values(first, quantile));
    if ours.len().min(base.len()) < FEWEST_TRIALS {
        return None;
    }
    let difference = hodges_lehmann_shift(&ours, &base, CONFIDENCE)?;
    let ratio = hodges_lehmann_ratio(&ours, &base, CONFIDENCE)?;
    let test = mann_whitney(&ours, &base, Alternative::TwoSided)?;
    let p_value =
        if test.p_value < 0.001 { "&lt; 0.001".to_owned() } else { format!("{:.3}", test.p_value) };
    let mut html = String::new();
    let _ = writeln!(
        html,
        "<tr><td class=\"text\">{}</td><td>{}</td><td>{}</td><td>{:.0}</td><td>{p_value}</td></tr>",
        quantile.name(),
        cell(&difference),
        cell(&ratio),
        test.superiority * 100.0
    );
    Some(html)
}

fn values(subject: &Subject<'_>, quantile: Quantile) -> Vec<f64> {
    let latencies = subject.latencies(Phase::Load).into_iter();
    let distributions = latencies.filter_map(|(_, summary)| summary.distribution);
    let told = distributions.filter(|all| all.count >= quantile.fewest_samples());
    told.map(|distribution| quantile.of(&distribution) as f64 / 1e6).collect()
}

fn cell(shift: &Shift) -> String {
    let estimate = signed(shift.estimate);
    match (shift.low, shift.high) {
        (Some(low), Some(high)) => {
            let (low, high) = (signed(low), signed(high));
            format!("<b>{estimate}</b><br><span class=\"interval\">{low} to {high}</span>")
        }
        _ => format!("<b>{estimate}</b>"),
    }
}

fn signed(value: f64) -> String {
    significant(value).replace('-', "−")
}
