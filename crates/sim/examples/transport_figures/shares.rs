//! How Prague and CUBIC share a bottleneck, over rates, round trips and queues.

use std::error::Error;

use underload_aqm::time::Span;
use underload_sim::congestion::Algorithm;

use crate::document::{Document, head, row};
use crate::heat_map::{Cell, HeatMap, Panel, share};
use crate::support::shares::Contest;

/// Trials of a cell; their flows start at different times.
const SEEDS_OF_A_CELL: u64 = 3;
/// Trials of a published share.
const SEEDS_OF_AN_ANCHOR: u64 = 5;
const MBIT: [u64; 6] = [200, 100, 50, 25, 10, 4];
const RTT_MS: [u64; 7] = [5, 10, 20, 30, 60, 80, 100];

const RFC: &str = "dualpi2:profile=rfc";
const LINUX: &str = "dualpi2:profile=linux";
const LLD: &str = "docsis-lld";
const PIE: &str = "pie:profile=rfc,ecn=on";
const FQ_CODEL: &str = "fq-codel:flows=1";

const QUEUES: [(&str, &str); 4] = [
    (RFC, "dualpi2 (rfc)"),
    (LINUX, "dualpi2:profile=linux"),
    (LLD, "docsis-lld"),
    (PIE, "one queue: pie:ecn=on"),
];

/// A published share of Prague beside another flow.
struct Anchor {
    contest: Contest,
    published: f64,
    /// Tolerance relative to the published share.
    within: f64,
    source: &'static str,
}

impl Anchor {
    fn new(contest: Contest, published: f64, within: f64, source: &'static str) -> Self {
        Self { contest, published, within, source }
    }

    fn of_2020(&self) -> bool {
        self.contest.prague.rtt_target == Span::ZERO
    }
}

fn anchors() -> Vec<Anchor> {
    let new = Contest::new;
    let reno = |queue| Contest { rival: Algorithm::Reno, ..new(queue, 50, 25) };
    let of_2020 = |mbit, rtt_ms, published| {
        let source = "P. Heist, L4S tests, scenario 1";
        Anchor::new(new(LINUX, mbit, rtt_ms).dependent(), published, published / 4.0, source)
    };
    let two_kinds = Contest { rival: Algorithm::Prague, longer_ms: 10, ..new(LINUX, 50, 10) };
    let testbed = "arXiv 2603.20166, Linux testbed";
    let roughly = "RFC 9332, appendix C, as a factor of two";
    vec![
        of_2020(50, 10, 2.73),
        of_2020(50, 20, 2.17),
        of_2020(50, 80, 1.66),
        of_2020(10, 10, 2.12),
        of_2020(10, 20, 1.81),
        of_2020(10, 80, 1.70),
        Anchor::new(new(LINUX, 10, 30), 0.31, 0.06, testbed),
        Anchor::new(new(LINUX, 100, 5), 1.32, 0.3, testbed),
        Anchor::new(new(LINUX, 100, 60), 2.2, 0.5, "L4STeam's Linux, issue 21"),
        Anchor::new(new(PIE, 50, 20), 23.0, 12.0, "P. Heist, L4S tests, scenario 6"),
        Anchor::new(new(FQ_CODEL, 50, 20), 25.0, 13.0, "P. Heist, L4S tests, scenario 6"),
        Anchor::new(two_kinds.dependent(), 0.51, 0.13, "P. Heist, L4S tests, scenario 1"),
        Anchor::new(reno(LINUX), 1.25, 0.75, roughly),
        Anchor::new(reno(RFC), 1.25, 0.75, roughly),
    ]
}

pub fn draw(document: &mut Document) -> Result<(), Box<dyn Error>> {
    let anchors = anchors();
    against_published(document, &anchors)?;
    let mut panels = Vec::new();
    for (queue, title) in QUEUES {
        let cells = |mbit: u64| RTT_MS.map(|rtt_ms| cell(queue, mbit, rtt_ms, &anchors));
        let rows: Vec<Vec<Cell>> = MBIT.map(|mbit| cells(mbit).to_vec()).to_vec();
        let mut heads = vec!["Mbit/s".to_owned()];
        heads.extend(RTT_MS.map(|rtt_ms| format!("{rtt_ms} ms")));
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        let mut table = head(&heads).to_vec();
        for (mbit, cells) in MBIT.iter().zip(&rows) {
            let mut texts = vec![mbit.to_string()];
            texts.extend(cells.iter().map(|cell| share(cell.ratio)));
            table.push(row(&texts));
        }
        println!("{title}\n{}\n", table.join("\n"));
        panels.push(Panel {
            title: title.to_owned(),
            columns: RTT_MS.map(|rtt_ms| rtt_ms.to_string()).to_vec(),
            rows: MBIT.iter().map(u64::to_string).zip(rows).collect(),
        });
    }
    let map = HeatMap {
        title: "Goodput of a Prague flow over that of a CUBIC flow beside it",
        note: "Framed where a share was published: ours above, theirs below, * of Prague in 2020.",
        column_name: "base round trip, ms",
        row_name: "Mbit/s",
        panels,
    };
    document.picture("shares", map.svg())
}

/// The ratio of a cell, and its published value.
fn cell(queue: &'static str, mbit: u64, rtt_ms: u64, anchors: &[Anchor]) -> Cell {
    let contest = Contest::new(queue, mbit, rtt_ms);
    let is_here = |anchor: &&Anchor| {
        let of = &anchor.contest;
        (of.queue, of.mbit, of.rtt_ms, of.longer_ms) == (queue, mbit, rtt_ms, 0)
            && of.rival == contest.rival
    };
    let note = anchors.iter().find(is_here).map(|anchor| {
        let star = if anchor.of_2020() { "*" } else { "" };
        format!("{}{star}", share(Some(anchor.published)))
    });
    Cell { ratio: mean_ratio(&contest, SEEDS_OF_A_CELL), note }
}

/// Mean over the seeds of Prague's goodput over the other's; `None` if the other got nothing.
fn mean_ratio(contest: &Contest, seeds: u64) -> Option<f64> {
    let of = |seed| {
        let (prague, rival) = contest.rates(seed);
        (rival > 0.0).then_some(prague / rival)
    };
    let ratios: Vec<f64> = (1..=seeds).map(of).collect::<Option<_>>()?;
    Some(ratios.iter().sum::<f64>() / ratios.len() as f64)
}

fn against_published(document: &mut Document, anchors: &[Anchor]) -> Result<(), Box<dyn Error>> {
    let heads =
        ["queue", "Mbit/s", "ms", "Prague of", "beside", "published", "ours", "outcome", "source"];
    let mut table = head(&heads).to_vec();
    for anchor in anchors {
        let Contest { queue, mbit, rtt_ms, longer_ms, rival, .. } = &anchor.contest;
        let ratio = mean_ratio(&anchor.contest, SEEDS_OF_AN_ANCHOR);
        let ratio = ratio.ok_or("the other flow got nothing")?;
        let off = ratio - anchor.published;
        let verdict = match off.abs() - anchor.within {
            by if by <= 0.0 => "met".to_owned(),
            by => format!("missed by {by:.2}"),
        };
        let name = rival.name();
        let beside = match longer_ms {
            0 => name.to_owned(),
            longer => format!("{name} of {rtt_ms} ms, itself of {}", rtt_ms + longer),
        };
        let band = format!("{:.2} ± {:.2}", anchor.published, anchor.within);
        table.push(row(&[
            format!("`{queue}`"),
            mbit.to_string(),
            rtt_ms.to_string(),
            if anchor.of_2020() { "2020" } else { "today" }.to_owned(),
            beside,
            band,
            format!("{ratio:.2}"),
            verdict,
            anchor.source.to_owned(),
        ]));
    }
    document.numbers("shares", &table)
}
