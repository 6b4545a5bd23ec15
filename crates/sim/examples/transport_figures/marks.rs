//! DCTCP and Prague: their standing queue, and their response to random marks.

use std::error::Error;

use underload_aqm::time::Span;
use underload_record::schema::{Direction, SeriesKind};
use underload_report::diagram::{Curve, Panel, Scale};
use underload_sim::congestion::Algorithm;
use underload_sim::trial::run;

use crate::document::{Document, head, row, thin};
use crate::support::response::{of_connection, with_random_marks};
use crate::support::{config, flow, up_link};

const ALGORITHMS: [(&str, Algorithm); 2] =
    [("DCTCP", Algorithm::Dctcp), ("Prague", Algorithm::Prague)];

pub fn draw(document: &mut Document) -> Result<(), Box<dyn Error>> {
    queue(document)?;
    random_marks(document)
}

fn queue(document: &mut Document) -> Result<(), Box<dyn Error>> {
    let heads =
        ["", "sojourn, mean ms", "p50 ms", "p99 ms", "marked", "dropped", "throughput, Mbit/s"];
    let mut table = head(&heads).to_vec();
    let mut curves = Vec::new();
    for (name, algorithm) in ALGORITHMS {
        let flows = vec![flow("a", algorithm), flow("b", algorithm)];
        let queue = "codel:profile=linux,ecn=on,ce-threshold=1ms";
        let mut config = config(queue, "100mbit:delay=5ms", flows, 30);
        config.phases.ramp = Span::from_secs(10);
        config.sample_interval = Some(Span::from_millis(5));
        let outcome = run(config)?;
        let link = up_link(&outcome);
        let sojourn = link.sojourn.ok_or("nothing passed")?;
        let ms = |ns: i64| format!("{:.2}", ns as f64 / 1e6);
        let marked: u64 = link.marks.values().sum();
        table.push(row(&[
            name.to_owned(),
            ms(sojourn.mean_ns),
            ms(sojourn.p50_ns),
            ms(sojourn.p99_ns),
            format!("{:.1} %", marked as f64 * 100.0 / link.sent.packets as f64),
            link.dropped_packets().to_string(),
            format!("{:.1}", link.throughput_bit_per_s as f64 / 1e6),
        ]));
        let series_name = SeriesKind::Sojourn.name(Direction::Up);
        let series = outcome.series.iter().find(|series| series.name == series_name);
        let points = series.ok_or("no curve")?.points.iter();
        let points = points.map(|point| (point.time_ns as f64 / 1e9, point.value / 1e6));
        let points = points.filter(|(seconds, _)| (20.0..23.0).contains(seconds)).collect();
        curves.push(Curve::line(name, thin(points, 700)));
    }
    document.numbers("queue", &table)?;
    let x = Scale::linear("time, s", 20.0..23.0);
    let y = Scale::linear("largest sojourn in 5 ms, ms", 0.0..4.0);
    let title = "Queues of two DCTCP or two Prague flows: 100 Mbit/s, 25 ms, marks from 1 ms on";
    document.figure("queue", title, vec![Panel { x, y, curves }])
}

fn random_marks(document: &mut Document) -> Result<(), Box<dyn Error>> {
    let mut table = head(&["marked", "2/p", "DCTCP", "ratio", "Prague", "ratio"]).to_vec();
    let shares = [0.003, 0.01, 0.03, 0.1, 0.2];
    let mut rings = [Vec::new(), Vec::new()];
    for share in shares {
        let law = 2.0 / share;
        let mut cells = vec![format!("{} %", share * 100.0), format!("{law:.1}")];
        // DCTCP's window is constant while the transport answers a mark.
        let marks = format!("mark={}%", share * 100.0);
        let windows = [
            of_connection(Algorithm::Dctcp, &marks, 30, 600),
            with_random_marks(Algorithm::Prague, share, Span::from_millis(30), 20_000),
        ];
        for (window, rings) in windows.into_iter().zip(&mut rings) {
            rings.push((share, window));
            cells.push(format!("{window:.1}"));
            cells.push(format!("{:.2}", window / law));
        }
        table.push(row(&cells));
    }
    document.numbers("random-marks", &table)?;
    let [dctcp, prague] = rings;
    let law = shares.map(|share| (share, 2.0 / share)).to_vec();
    let curves =
        vec![Curve::rings("DCTCP", dctcp), Curve::rings("Prague", prague), Curve::line("2/p", law)];
    let x = Scale::logarithmic("probability of a mark", 2e-3..0.3);
    let y = Scale::logarithmic("mean window, segments", 5.0..2e3);
    let title = "Mean window under independent random marks";
    document.figure("random-marks", title, vec![Panel { x, y, curves }])
}
