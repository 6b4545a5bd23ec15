//! Reno and CUBIC against their response functions; Vivace and Westwood+ under random loss.

use std::error::Error;

use underload_aqm::time::Span;
use underload_report::diagram::{Curve, Panel, Scale};
use underload_sim::congestion::Algorithm;
use underload_sim::trial::{SimError, run};

use crate::document::{Document, head, row};
use crate::support::response::{
    RFC_9438, cubic_by_equations, cubic_with_periodic_loss, of_connection,
};
use crate::support::{config, flow, goodput};

const SEEDS: u64 = 5;
const LOSSES: [(&str, f64); 5] =
    [("1%", 1e-2), ("0.3%", 3e-3), ("0.1%", 1e-3), ("0.03%", 3e-4), ("0.01%", 1e-4)];

pub fn draw(document: &mut Document) -> Result<(), Box<dyn Error>> {
    independent_loss(document)?;
    periodic_loss(document)?;
    westwood(document)?;
    vivace(document)
}

fn independent_loss(document: &mut Document) -> Result<(), Box<dyn Error>> {
    let mut table =
        head(&["loss", "Reno", "1.31/sqrt(p)", "ratio", "CUBIC", "equations", "ratio"]).to_vec();
    let mut curves: [Vec<(f64, f64)>; 4] = Default::default();
    for (text, p) in LOSSES {
        let loss = format!("loss={text}");
        let reno = of_connection(Algorithm::Reno, &loss, 100, 3_000);
        let law = 1.309 / p.sqrt();
        let cubic = of_connection(Algorithm::Cubic, &loss, 100, 3_000);
        let equations = cubic_by_equations(p, 0.1, 1_000_000, false);
        for (curve, value) in curves.iter_mut().zip([law, reno, equations, cubic]) {
            curve.push((p, value));
        }
        let mut cells = vec![text.to_owned()];
        for (window, expected) in [(reno, law), (cubic, equations)] {
            cells.push(format!("{window:.1}"));
            cells.push(format!("{expected:.1}"));
            cells.push(format!("{:.3}", window / expected));
        }
        table.push(row(&cells));
    }
    document.numbers("response", &table)?;
    let [law, reno, equations, cubic] = curves;
    let curves = vec![
        Curve::line("Reno: 1.31/sqrt(p)", law),
        Curve::rings("Reno: 1.31/sqrt(p)", reno),
        Curve::line("CUBIC: equations of RFC 9438", equations),
        Curve::rings("CUBIC: equations of RFC 9438", cubic),
    ];
    let x = Scale::logarithmic("probability of loss; rings: simulated", 5e-5..2e-2);
    let y = Scale::logarithmic("mean window, segments", 5.0..500.0);
    let title = "Mean window under independent random loss, round trip 100 ms";
    document.figure("response", title, vec![Panel { x, y, curves }])
}

fn periodic_loss(document: &mut Document) -> Result<(), Box<dyn Error>> {
    let mut table =
        head(&["loss", "100 ms", "RFC 9438", "ratio", "10 ms", "RFC 9438", "ratio"]).to_vec();
    let mut curves: [Vec<(f64, f64)>; 4] = Default::default();
    for (loss, at_100_ms, at_10_ms) in RFC_9438 {
        let mut cells = vec![format!("{loss:.0e}")];
        for (at, (rtt_ms, published)) in [(100, at_100_ms), (10, at_10_ms)].into_iter().enumerate()
        {
            let window = cubic_with_periodic_loss(loss, Span::from_millis(rtt_ms), 60_000);
            curves[2 * at].push((loss, published));
            curves[2 * at + 1].push((loss, window));
            cells.push(format!("{window:.0}"));
            cells.push(format!("{published:.0}"));
            cells.push(format!("{:.3}", window / published));
        }
        table.push(row(&cells));
    }
    document.numbers("cubic-table", &table)?;
    let [published_100, ours_100, published_10, ours_10] = curves;
    let curves = vec![
        Curve::line("RFC 9438, 100 ms", published_100),
        Curve::rings("RFC 9438, 100 ms", ours_100),
        Curve::line("RFC 9438, 10 ms", published_10),
        Curve::rings("RFC 9438, 10 ms", ours_10),
    ];
    let x = Scale::logarithmic("losses per packet; rings: ours", 5e-8..2e-2);
    let y = Scale::logarithmic("mean window, segments", 5.0..1e5);
    let title = "CUBIC under periodic loss and the table of RFC 9438";
    document.figure("cubic-table", title, vec![Panel { x, y, curves }])
}

/// Mean goodput over seeds at 20 Mbit/s and 40 ms, with a queue of `queue_bytes` and random loss.
fn rate(algorithm: Algorithm, queue_bytes: u32, loss: &str) -> Result<f64, SimError> {
    let link = format!("20mbit:delay=20ms,loss={loss}");
    let queue = format!("fifo:limit={queue_bytes}B");
    let mut total = 0.0;
    for seed in 1..=SEEDS {
        let mut config = config(&queue, &link, vec![flow("flow", algorithm)], 120);
        config.seed = seed;
        total += goodput(&run(config)?, 0);
    }
    Ok(total / SEEDS as f64)
}

/// Goodput against loss: a column and a curve for each of the algorithms.
fn against_loss(
    document: &mut Document,
    name: &str,
    title: &str,
    algorithms: &[Algorithm],
    losses: &[&str],
    queue_bytes: u32,
) -> Result<(), Box<dyn Error>> {
    let names: Vec<String> =
        algorithms.iter().map(|algorithm| format!("{}, Mbit/s", algorithm.name())).collect();
    let mut heads = vec!["loss"];
    heads.extend(names.iter().map(String::as_str));
    let mut table = head(&heads).to_vec();
    let mut curves = vec![Vec::new(); algorithms.len()];
    for loss in losses {
        let mut cells = vec![(*loss).to_owned()];
        let percent: f64 = loss.trim_end_matches('%').parse()?;
        for (algorithm, curve) in algorithms.iter().zip(&mut curves) {
            let rate = rate(*algorithm, queue_bytes, loss)?;
            curve.push((percent, rate));
            cells.push(format!("{rate:.2}"));
        }
        table.push(row(&cells));
    }
    document.numbers(name, &table)?;
    let lines = algorithms.iter().zip(curves);
    let curves = lines.map(|(algorithm, points)| Curve::line(algorithm.name(), points)).collect();
    let last: f64 = losses[losses.len() - 1].trim_end_matches('%').parse()?;
    let x = Scale::linear("random loss, %", 0.0..last);
    let y = Scale::linear("goodput, Mbit/s", 0.0..21.0);
    document.figure(name, title, vec![Panel { x, y, curves }])
}

fn westwood(document: &mut Document) -> Result<(), Box<dyn Error>> {
    let title = "Westwood+ beside Reno under random loss: 20 Mbit/s, 40 ms, queue of 100 kB";
    let losses = ["0%", "0.05%", "0.1%", "0.2%", "0.5%", "1%", "1.5%", "2%"];
    let algorithms = [Algorithm::Westwood, Algorithm::Reno];
    against_loss(document, "westwood", title, &algorithms, &losses, 100_000)
}

fn vivace(document: &mut Document) -> Result<(), Box<dyn Error>> {
    let title = "Vivace, BBR and CUBIC under random loss: 20 Mbit/s, 40 ms, queue of 1 MB";
    let losses = ["0%", "0.5%", "1%", "2%", "3%", "4%", "5%", "6%", "8%", "10%"];
    let algorithms = [Algorithm::Vivace, Algorithm::Bbr, Algorithm::Cubic];
    against_loss(document, "vivace", title, &algorithms, &losses, 1_000_000)
}
