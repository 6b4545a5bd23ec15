//! Idle and working latency: the overview plot and the table of every arm.

use std::fmt::Write as _;

use underload_record::schema::{ArmLatency, Interval, LatencyMeasure, Phase, Quantile};

use super::{Headings, arm_row, figures, phase_words, table};
use crate::plot::{Plot, escape};
use crate::subject::Subject;
use crate::words::{metric_words, significant, thousands};

/// Numbers of an application beside the latency: its users' first; another table has all.
const SHOWN_METRICS: usize = 3;

pub(super) fn section(subjects: &[Subject<'_>], overview: &[Plot]) -> String {
    let mut html = String::from("<h2>Idle and working latency</h2>\n");
    html += "<p class=\"note\">Round-trip time of a probe sent on a fixed schedule: idle before \
             the load begins, working while it is steady. Quantiles pool every sample of an arm's \
             valid trials (nearest rank). The small line is the 95 % interval of the mean of the \
             trials' own quantiles (Student's t).</p>\n";
    html += &figures(overview, Headings::Hidden);
    let mut rows = String::new();
    for subject in subjects {
        let phases = [Phase::Idle, Phase::Load];
        let latencies: Vec<&ArmLatency> =
            phases.into_iter().filter_map(|phase| subject.summary.headline(phase)).collect();
        rows += &arm_rows(subject, &latencies, |latency| phase_words(latency.phase).to_owned());
        rows += &application_rows(subject, latencies.is_empty());
    }
    html += &table(&head("phase"), &rows);
    html + &other_probes(subjects)
}

/// What each application felt, below the latency that it had.
fn application_rows(subject: &Subject<'_>, needs_arm: bool) -> String {
    let columns = 3 + Quantile::ALL.len();
    let mut rows = String::new();
    for (flow, metrics) in subject.applications() {
        let words: Vec<String> = metrics
            .into_iter()
            .take(SHOWN_METRICS)
            .enumerate()
            .map(|(position, metric)| {
                let text = escape(&metric_words(metric));
                let range = range(&metric.value, 1.0, Least::None).filter(|_| position == 0);
                let range = range.map(|range| format!(" <span class=\"interval\">{range}</span>"));
                let text = if position == 0 { format!("<b>{text}</b>") } else { text };
                text + &range.unwrap_or_default()
            })
            .collect();
        let (flow, words) = (escape(flow), words.join(", "));
        let _ = writeln!(
            rows,
            "<tr><td class=\"text\">{flow}</td><td class=\"text\" colspan=\"{columns}\">{words}</td></tr>"
        );
    }
    if needs_arm && !rows.is_empty() { arm_row(subject, columns + 1) + &rows } else { rows }
}

/// Every other probe, delay and phase, for those who look for it.
fn other_probes(subjects: &[Subject<'_>]) -> String {
    let mut rows = String::new();
    for subject in subjects {
        let headline = |latency: &ArmLatency| {
            subject.summary.headline(latency.phase).is_some_and(|headline| headline == latency)
                && matches!(latency.phase, Phase::Idle | Phase::Load)
        };
        let others: Vec<&ArmLatency> =
            subject.summary.latencies.iter().filter(|latency| !headline(latency)).collect();
        rows += &arm_rows(subject, &others, |latency| {
            let mut words = vec![latency.probe.as_str(), phase_words(latency.phase)];
            if latency.measure != LatencyMeasure::RoundTrip {
                words.push(latency.measure.name());
            }
            if latency.closed_loop {
                words.push("closed loop: its percentiles hide load");
            }
            words.join(", ")
        });
    }
    if rows.is_empty() {
        return String::new();
    }
    let table = table(&head("probe and phase"), &rows);
    format!("<details>\n<summary>Every probe, delay and phase</summary>\n{table}</details>\n")
}

fn head(what: &str) -> String {
    let mut html = format!("<th class=\"text\">{what}</th>");
    for quantile in Quantile::ALL {
        let _ = write!(html, "<th>{}<br><span class=\"unit\">ms</span></th>", quantile.name());
    }
    html + "<th>samples</th><th>lost</th><th>window<br><span class=\"unit\">s</span></th>"
}

fn arm_rows(
    subject: &Subject<'_>,
    latencies: &[&ArmLatency],
    describe: impl Fn(&ArmLatency) -> String,
) -> String {
    if latencies.is_empty() {
        return String::new();
    }
    let mut rows = arm_row(subject, 4 + Quantile::ALL.len());
    for latency in latencies {
        let _ = write!(rows, "<tr><td class=\"text\">{}</td>", escape(&describe(latency)));
        for quantile in Quantile::ALL {
            rows += &quantile_cell(latency, quantile);
        }
        let (sent, lost) = (thousands(latency.sent), thousands(latency.lost));
        let window = significant(latency.window_ns as f64 / 1e9);
        let _ = writeln!(rows, "<td>{sent}</td><td>{lost}</td><td>{window}</td></tr>");
        if !latency.time_weighted.is_empty() {
            rows += &time_weighted_row(latency);
        }
    }
    rows
}

/// What a closed-loop probe would say if it had watched the clock.
fn time_weighted_row(latency: &ArmLatency) -> String {
    let mut row = format!("<tr><td class=\"text\">{}, by time</td>", escape(&latency.probe));
    for quantile in Quantile::ALL {
        let interval = latency.time_weighted.get(&quantile);
        let mean = interval.map_or("–".to_owned(), |interval| significant(interval.mean / 1e6));
        let _ = write!(row, "<td>{mean}</td>");
    }
    row + "<td></td><td></td><td></td></tr>\n"
}

fn quantile_cell(latency: &ArmLatency, quantile: Quantile) -> String {
    let Some(value) = latency.told_ns(quantile) else { return "<td>–</td>".to_owned() };
    let value = crate::words::ms(value);
    let strong = matches!(quantile, Quantile::P50 | Quantile::P99);
    let value = if strong { format!("<b>{value}</b>") } else { value };
    let interval = latency.told_over_repeats(quantile);
    let interval = interval.and_then(|interval| range(interval, 1e6, Least::Zero));
    let interval = interval
        .map(|range| format!("<br><span class=\"interval\">{range}</span>"))
        .unwrap_or_default();
    format!("<td>{value}{interval}</td>")
}

/// What a quantity cannot be less than.
#[derive(Clone, Copy)]
pub(super) enum Least {
    /// A delay, a rate.
    Zero,
    /// A score may be negative.
    None,
}

/// `23.9–25.1`, in units of `divisor`; words between numbers below zero.
pub(super) fn range(interval: &Interval, divisor: f64, least: Least) -> Option<String> {
    let low = match least {
        Least::Zero => interval.low?.max(0.0),
        Least::None => interval.low?,
    };
    let (low, high) = (low / divisor, interval.high? / divisor);
    let between = if low < 0.0 { " to " } else { "–" };
    Some(format!("{}{between}{}", signed(low), signed(high)))
}

/// With the sign that typesetters use.
fn signed(value: f64) -> String {
    significant(value).replace('-', "−")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_below_zero_stays_there() {
        let interval = Interval {
            low: Some(-80.2),
            high: Some(-64.2),
            mean: -72.2,
            confidence: 0.95,
            repeats: 20,
        };
        assert_eq!(range(&interval, 1.0, Least::None).as_deref(), Some("−80.2 to −64.2"));
        let delay = Interval { low: Some(-1e6), high: Some(3e6), ..interval };
        assert_eq!(range(&delay, 1e6, Least::Zero).as_deref(), Some("0–3.00"));
    }
}
