//! The newest numbers in Prometheus' text format.

use std::fmt::Write as _;

use underload_record::history::{Followed, Trend};
use underload_record::text::prometheus_label;

use super::Collected;

/// Writes the newest run of each step in Prometheus' text format. Steps that are no longer measured
/// are omitted, because Prometheus would assign the time of collection to their old numbers.
pub fn prometheus(collected: &Collected, trends: &[Trend]) -> String {
    let mut text = String::new();
    let latest: Vec<(&str, f64, Followed)> = trends
        .iter()
        .filter(|trend| trend.is_current)
        .filter_map(|trend| Some((trend.step.as_str(), trend.points.last()?.value, trend.followed)))
        .collect();
    let mut family = |name: &str, help: &str, rows: Vec<(String, f64)>| {
        if rows.is_empty() {
            return;
        }
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in rows {
            let _ = writeln!(text, "{name}{{{labels}}} {value}");
        }
    };
    let latency = latest.iter().filter_map(|(step, value, followed)| {
        let (phase, quantile) = match followed {
            Followed::LoadP99 => ("load", "0.99"),
            Followed::LoadP50 => ("load", "0.5"),
            Followed::InsideP99 => ("inside", "0.99"),
            Followed::IdleP50 => ("idle", "0.5"),
            _ => return None,
        };
        let step = prometheus_label(step);
        let labels = format!("step=\"{step}\",phase=\"{phase}\",quantile=\"{quantile}\"");
        Some((labels, value / 1e3))
    });
    family("underload_latency_seconds", "Round trip in the latest valid run.", latency.collect());
    let goodput = latest.iter().filter_map(|(step, value, followed)| {
        let direction = match followed {
            Followed::GoodputUp => "up",
            Followed::GoodputDown => "down",
            _ => return None,
        };
        Some((
            format!("step=\"{}\",direction=\"{direction}\"", prometheus_label(step)),
            value * 1e6,
        ))
    });
    family(
        "underload_goodput_bits_per_second",
        "Payload in the latest valid run.",
        goodput.collect(),
    );
    let change = trends.iter().filter_map(|trend| {
        let labels = format!(
            "step=\"{}\",metric=\"{}\"",
            prometheus_label(&trend.step),
            trend.followed.name()
        );
        Some((labels, trend.comparison.range?.middle?))
    });
    let help = "Latest runs by the baseline's at the same hours.";
    family("underload_change_ratio", help, change.collect());
    let time = collected.latest_s().map(|at_s| (String::new(), at_s as f64)).into_iter();
    let help = "When the latest run began, seconds since 1970.";
    family("underload_run_timestamp_seconds", help, time.collect());
    text.replace("{}", "")
}

#[cfg(test)]
mod tests {
    use underload_record::history::Windows;

    use super::super::Run;
    use super::*;

    fn collected() -> Collected {
        let steps = vec![(
            "loaded, \"up\"\n".to_owned(),
            vec![(Followed::LoadP99, 42.5), (Followed::GoodputUp, 9.5)],
        )];
        let label = "wifi, kitchen".to_owned();
        let runs = vec![Run { at_s: 1_790_000_000, label, grade: None, steps }];
        Collected { runs, ..Collected::default() }
    }

    #[test]
    fn foreign_names_cannot_leave_their_labels() {
        let collected = collected();
        let trends = collected.trends(Windows { baseline_s: 60, recent_s: 60 });
        let text = prometheus(&collected, &trends);
        let row = "underload_latency_seconds{step=\"loaded, \\\"up\\\"\u{fffd}\",phase=\"load\",\
                   quantile=\"0.99\"} 0.0425";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("direction=\"up\"} 9500000"), "{text}");
        assert!(text.contains("underload_run_timestamp_seconds 1790000000"), "{text}");
        assert!(text.lines().all(|line| line.starts_with('#') || line.starts_with("underload_")));
    }

    #[test]
    fn numbers_of_steps_no_longer_measured_are_not_exported_as_current() {
        let mut collected = collected();
        let steps = vec![("down".to_owned(), vec![(Followed::LoadP99, 20.0)])];
        collected.runs.push(Run {
            at_s: 1_790_000_000 + 61,
            label: String::new(),
            grade: None,
            steps,
        });
        let trends = collected.trends(Windows { baseline_s: 60, recent_s: 60 });
        let text = prometheus(&collected, &trends);
        assert!(text.contains("step=\"down\"") && !text.contains("step=\"loaded"), "{text}");
    }

    /// The dashboard queries only metrics that are written.
    #[test]
    fn every_metric_of_the_dashboard_exists() {
        let text = include_str!("../../../../packaging/grafana-history.json");
        let dashboard: serde_json::Value = serde_json::from_str(text).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let known = [
            "underload_latency_seconds",
            "underload_goodput_bits_per_second",
            "underload_change_ratio",
            "underload_run_timestamp_seconds",
        ];
        let mut asked = 0;
        for target in panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()) {
            let expression = target["expr"].as_str().unwrap();
            let name = expression
                .split(|it: char| !it.is_ascii_alphanumeric() && it != '_')
                .find(|word| word.starts_with("underload_"));
            assert!(known.contains(&name.unwrap()), "{expression}");
            asked += 1;
        }
        assert!(asked >= known.len(), "{asked}");
    }
}
