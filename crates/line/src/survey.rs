//! The round trips of a survey: a table, and its distributions.

use std::fmt;
use std::net::SocketAddr;

use serde::Serialize;
use underload_probe::survey::{Answers, Survey};
use underload_record::stats::Ecdf;
use underload_record::text::count;
use underload_report::diagram::{Curve, Diagram, Panel, Scale};
use underload_report::plain_text;

/// The round trips of a survey, as a document and as text.
#[derive(Debug, Serialize)]
pub struct Table {
    version: u32,
    probe: &'static str,
    pause_s: f64,
    rows: Vec<Row>,
    all: Vec<Row>,
}

/// A host, or all hosts, over one address family.
#[derive(Debug, Serialize)]
struct Row {
    host: String,
    family: &'static str,
    sent: u32,
    answered: usize,
    min_ms: Option<f64>,
    p50_ms: Option<f64>,
    mean_ms: Option<f64>,
    max_ms: Option<f64>,
    /// Standard deviation. `None` for fewer than two answers.
    deviation_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

fn family(address: &SocketAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

const FAMILIES: &[&str] = &["IPv4", "IPv6"];

impl Table {
    pub fn new(survey: &Survey, answers: &[Answers]) -> Self {
        let rows = answers.iter().map(|it| {
            let (host, of) = (survey.hosts[it.host].name.clone(), std::slice::from_ref(it));
            let family = family(&it.address);
            let trouble = it.trouble.clone();
            Row { trouble, ..row(host, family, it.sent, round_trips_ms(of, family)) }
        });
        let all = FAMILIES.iter().copied().filter_map(|name| {
            let mut of = answers.iter().filter(|it| family(&it.address) == name).peekable();
            of.peek()?;
            let sent = of.map(|it| it.sent).sum();
            Some(row("all".to_owned(), name, sent, round_trips_ms(answers, name)))
        });
        Self {
            version: 1,
            probe: survey.asking.name(),
            pause_s: survey.pause.as_secs_f64(),
            rows: rows.collect(),
            all: all.collect(),
        }
    }

    /// Draws the distributions of the hosts' medians and of all round trips, a curve per family.
    /// Returns `None` if no host answered.
    pub fn picture(&self, survey: &Survey, answers: &[Answers]) -> Option<String> {
        let of_hosts = |name: &&str| {
            let rows = self.rows.iter().filter(|row| row.family == *name);
            rows.filter_map(|row| row.p50_ms).collect()
        };
        let panels = [
            (
                "median round trip of a host, ms",
                FAMILIES.iter().map(of_hosts).collect::<Vec<Vec<f64>>>(),
            ),
            ("round trip, ms", FAMILIES.iter().map(|name| round_trips_ms(answers, name)).collect()),
        ];
        let ecdf = Ecdf::new(panels[1].1.iter().flatten().copied())?;
        let (low, high) = (ecdf.sorted()[0], ecdf.sorted()[ecdf.sorted().len() - 1]);
        let panels = panels.map(|(axis, families)| {
            let curves = FAMILIES.iter().copied().zip(families).filter_map(|(name, values)| {
                let mut points = vec![];
                let mut share = 0.0;
                for (value, next) in Ecdf::new(values)?.steps() {
                    points.extend([(value, share), (value, next)]);
                    share = next;
                }
                Some(Curve::line(name, points))
            });
            let x = Scale::logarithmic(axis, (low / 1.2).max(1e-3)..(high * 1.2).max(2e-3));
            Panel { x, y: Scale::linear("share", 0.0..1.05), curves: curves.collect() }
        });
        let hosts = count(survey.hosts.len(), "host");
        let title = format!("Round trips to {hosts}, by {}", self.probe);
        Some(Diagram { name: "cdf".to_owned(), title, panels: panels.into() }.plot().svg())
    }
}

/// Returns the round trips over one address family.
fn round_trips_ms(answers: &[Answers], name: &str) -> Vec<f64> {
    let of = answers.iter().filter(|it| family(&it.address) == name);
    of.flat_map(|it| &it.round_trips_ns).map(|ns| *ns as f64 / 1e6).collect()
}

impl fmt::Display for Table {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = || self.rows.iter().chain(&self.all);
        let width = rows().map(|row| row.host.chars().count()).max().unwrap_or(0).clamp(4, 40);
        writeln!(text, "round trips by {}, ms", self.probe)?;
        writeln!(
            text,
            "{:<width$}  family  sent  lost     min     p50    mean     max     std",
            "host"
        )?;
        for row in rows() {
            let name: String = plain_text(&row.host).chars().take(width).collect();
            let lost = row.sent as usize - row.answered.min(row.sent as usize);
            write!(text, "{name:<width$}  {:<6} {:>5} {lost:>5}", row.family, row.sent)?;
            for value in [row.min_ms, row.p50_ms, row.mean_ms, row.max_ms, row.deviation_ms] {
                match value {
                    Some(value) => write!(text, " {value:>7.3}")?,
                    None => write!(text, " {:>7}", "-")?,
                }
            }
            let trouble = row.trouble.as_ref().map_or(String::new(), |it| format!("  {it}"));
            writeln!(text, "{}", plain_text(&trouble))?;
        }
        Ok(())
    }
}

fn row(host: String, family: &'static str, sent: u32, mut values: Vec<f64>) -> Row {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    let mean = (count > 0).then(|| values.iter().sum::<f64>() / count as f64);
    let deviation = mean.filter(|_| count > 1).map(|mean| {
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (squares / (count - 1) as f64).sqrt()
    });
    Row {
        host,
        family,
        sent,
        answered: count,
        min_ms: values.first().copied(),
        // The lower one of two values in the middle, because it was measured.
        p50_ms: values.get(count.saturating_sub(1) / 2).copied(),
        mean_ms: mean,
        max_ms: values.last().copied(),
        deviation_ms: deviation,
        trouble: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 3 of the guideline's Appendix I prints these columns.
    #[test]
    fn a_row_has_the_guideline_s_columns() {
        let row = row("a".to_owned(), "IPv4", 5, vec![4.0, 1.0, 3.0, 2.0]);
        let numbers = (row.min_ms, row.p50_ms, row.mean_ms, row.max_ms);
        assert_eq!(numbers, (Some(1.0), Some(2.0), Some(2.5), Some(4.0)));
        // statistics.stdev([1, 2, 3, 4])
        assert!((row.deviation_ms.unwrap() - 1.290_994_448_735_805_6).abs() < 1e-12);
        let silent = super::row("b".to_owned(), "IPv6", 5, Vec::new());
        assert_eq!((silent.p50_ms, silent.deviation_ms), (None, None));
        let table = Table {
            version: 1,
            probe: "tcp",
            pause_s: 30.0,
            rows: vec![row, Row { trouble: Some("no route \u{1b}[2J".to_owned()), ..silent }],
            all: Vec::new(),
        };
        let text = table.to_string();
        assert!(text.contains("a     IPv4       5     1   1.000   2.000   2.500   4.000   1.291"));
        assert!(text.contains("b     IPv6       5     5       -"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
