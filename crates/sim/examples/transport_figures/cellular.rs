//! Sprout and C2TCP on cellular links, beside BBR and CUBIC.

use std::error::Error;

use underload_record::schema::{Direction, SeriesKind};
use underload_report::diagram::{Curve, Panel, Scale};
use underload_sim::congestion::Algorithm;
use underload_sim::flow::FlowKind;

use crate::document::{Document, head, row, thin};
use crate::support::cellular::{BASE_RTT_MS, LTE, Outcome, outcome, tcp};

const SEEDS: u64 = 5;

pub fn draw(document: &mut Document, traces: &[String]) -> Result<(), Box<dyn Error>> {
    figures(document)?;
    let mut links: Vec<String> = LTE.map(str::to_owned).to_vec();
    links.extend(["cellular:preset=3g".to_owned(), "cellular:preset=evdo".to_owned()]);
    document.numbers("cellular", &table(&links, SEEDS))?;
    if !traces.is_empty() {
        let links: Vec<String> = traces.iter().map(|trace| format!("trace:{trace}")).collect();
        document.numbers("recorded", &table(&links, 1))?;
    }
    Ok(())
}

fn table(links: &[String], seeds: u64) -> Vec<String> {
    let heads = [
        "link", "rate, Mbit/s", "Sprout: p95 of packets, ms", "over time, ms", "uses",
        "C2TCP: mean round trip, ms", "p95 of packets, ms", "uses", "CUBIC: p95 of packets, ms",
    ];
    let mut table = head(&heads).to_vec();
    for link in links {
        let runs: Vec<[Outcome; 3]> = (1..=seeds)
            .map(|seed| {
                [FlowKind::Sprout, tcp(Algorithm::C2tcp), tcp(Algorithm::Cubic)]
                    .map(|kind| outcome(link, kind, seed))
            })
            .collect();
        let mean = |of: &dyn Fn(&[Outcome; 3]) -> f64| {
            runs.iter().map(of).sum::<f64>() / runs.len() as f64
        };
        let name = link.rsplit(['/', '=']).next().unwrap_or(link);
        table.push(row(&[
            format!("`{name}`"),
            format!("{:.2}", mean(&|[_, _, cubic]| cubic.rate) / 1e6),
            range(&runs, |[sprout, ..]| sprout.p95()),
            range(&runs, |[sprout, ..]| sprout.p95_over_time()),
            format!("{:.0} %", mean(&|[sprout, _, cubic]| sprout.rate / cubic.rate) * 100.0),
            range(&runs, |[_, c2tcp, _]| BASE_RTT_MS + c2tcp.mean()),
            range(&runs, |[_, c2tcp, _]| c2tcp.p95()),
            format!("{:.0} %", mean(&|[_, c2tcp, cubic]| c2tcp.rate / cubic.rate) * 100.0),
            format!("{:.0}", mean(&|[_, _, cubic]| cubic.p95())),
        ]));
    }
    table
}

/// The smallest and the largest value over the runs.
fn range(runs: &[[Outcome; 3]], of: impl Fn(&[Outcome; 3]) -> f64) -> String {
    let values = runs.iter().map(of);
    let (least, most) = values
        .fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
    if runs.len() == 1 { format!("{most:.0}") } else { format!("{least:.0} - {most:.0}") }
}

fn figures(document: &Document) -> Result<(), Box<dyn Error>> {
    let link = LTE[0];
    let runs = [
        ("Sprout", outcome(link, FlowKind::Sprout, 1)),
        ("C2TCP", outcome(link, tcp(Algorithm::C2tcp), 1)),
        ("BBR", outcome(link, tcp(Algorithm::Bbr), 1)),
        ("CUBIC", outcome(link, tcp(Algorithm::Cubic), 1)),
    ];
    let mut curves: Vec<Curve> = runs.iter().map(|(name, run)| distribution(name, run)).collect();
    curves.push(Curve::line("", vec![(100.0, 0.0), (100.0, 1.0)]));
    curves.push(Curve::line("", vec![(1.0, 0.95), (1e5, 0.95)]));
    let x = Scale::logarithmic("self-inflicted delay, ms", 1.0..1e5);
    let y = Scale::linear("share of packets", 0.0..1.0);
    let title = "Self-inflicted delay on cellular:preset=lte-driving";
    document.figure("cellular-delay", title, vec![Panel { x, y, curves }])?;
    let seconds = 40.0..80.0;
    let mut rates: Vec<Curve> = runs[..2].iter().map(|(name, run)| throughput(name, run)).collect();
    rates.push(throughput("the link", &runs[3].1));
    let delays = runs[..2].iter().map(|(name, run)| {
        let points = run.added.iter().copied();
        let points = points.filter(|(at, _)| seconds.contains(at)).collect();
        Curve::line(name, thin(points, 700))
    });
    let panels = vec![
        Panel {
            x: Scale::linear("time, s", seconds.clone()),
            y: Scale::linear("throughput, Mbit/s", 0.0..12.0),
            curves: rates,
        },
        Panel {
            x: Scale::linear("time, s", seconds.clone()),
            y: Scale::linear("self-inflicted delay, ms", 0.0..400.0),
            curves: delays.collect(),
        },
    ];
    let title = "Sprout and C2TCP on cellular:preset=lte-driving over time";
    document.figure("cellular-time", title, panels)
}

fn distribution(name: &str, run: &Outcome) -> Curve {
    let sorted = &run.packets;
    let count = sorted.len() as f64;
    let points = sorted.iter().enumerate().map(|(at, added)| (*added, at as f64 / count));
    let points = points.filter(|(added, _)| *added >= 1.0).collect();
    Curve::line(name, thin(points, 400))
}

fn throughput(name: &str, run: &Outcome) -> Curve {
    let series_name = SeriesKind::Throughput.name(Direction::Up);
    let series = run.busy.series.iter().find(|series| series.name == series_name);
    let points = series.map_or(&[][..], |series| &series.points);
    let points = points.iter().map(|point| (point.time_ns as f64 / 1e9, point.value / 1e6));
    Curve::line(name, points.collect())
}
