//! All that pages show, as snapshots: tags and text in order, a line per row, without the style
//! sheet and without what the plots draw.

use std::error::Error;

use underload_record::schema::{FlowRecord, Metric, VariantRecord, World};
use underload_report::render;

use crate::page::{conclude_all, run};
use underload_record::synthetic::{self, BUFFER_CONTROL, DOCSIS_PIE, FQ_CODEL, Queue};

/// Elements after which a line ends.
const ENDS: [&str; 14] = [
    "/title", "/p", "/h1", "/h2", "/h3", "/tr", "/svg", "/dd", "/summary", "/figcaption", "/pre",
    "/details", "/header", "/div",
];

/// Returns a page as a browser shows it, without plots: whitespace that has no effect is removed,
/// a visible space at the edge of a text is a `·`.
fn shape(html: &str) -> String {
    let mut shape = String::new();
    let html = without(&without(html, "<style>", "</style>"), "<script>", "</script>");
    let mut rest = without(&html, "<svg class=\"plot\"", "</svg>");
    rest = rest.replace("</line>", "").replace("/>", ">");
    for piece in rest.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').unwrap_or((piece, ""));
        shape.extend(["<", tag, ">", &shown(text)]);
        if ENDS.contains(&tag) {
            shape.push('\n');
        }
    }
    shape
}

fn without(html: &str, start: &str, end: &str) -> String {
    let mut parts = html.split(start);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.filter_map(|part| part.split_once(end)).fold(first, |kept, (_, after)| kept + after)
}

fn shown(text: &str) -> String {
    let edge = |text: &str| match text {
        "" => "",
        space if space.contains('\n') => "",
        _ => "·",
    };
    let inner = text.trim();
    let Some(start) = text.find(inner).filter(|_| !inner.is_empty()) else {
        return edge(text).to_owned();
    };
    let (before, after) = (edge(&text[..start]), edge(&text[start + inner.len()..]));
    let words: Vec<&str> = inner.split_ascii_whitespace().collect();
    format!("{before}{}{after}", words.join(" ").replace("&#39;", "'"))
}

/// A trial that does not count, loss of packets for several reasons, applications, remarks.
#[test]
fn a_run_of_three_queues() -> Result<(), Box<dyn Error>> {
    let queues = [BUFFER_CONTROL, DOCSIS_PIE, FQ_CODEL];
    let mut trials = synthetic::trials(&queues, 6, 20_000_000);
    trials[1].record.validity = synthetic::late();
    for trial in &mut trials {
        let metric = |name: &str, unit: &str, value| Metric {
            name: name.to_owned(),
            unit: unit.to_owned(),
            value: Some(value),
        };
        let score = 4.2 - f64::from(trial.record.index) / 10.0;
        trial.record.flows.push(FlowRecord {
            name: "call".to_owned(),
            kind: "voip".to_owned(),
            metrics: vec![metric("mos", "MOS", score), metric("frames_lost_up", "%", 0.125)],
            ..FlowRecord::default()
        });
    }
    let mut data = conclude_all(synthetic::record(World::Live, &queues), trials);
    data.left_out.push("trial 7's samples".to_owned());
    insta::assert_snapshot!(shape(&render(&[data])?));
    Ok(())
}

#[test]
fn two_worlds_side_by_side() -> Result<(), Box<dyn Error>> {
    let queues = [BUFFER_CONTROL, DOCSIS_PIE];
    let runs = [run(World::Live, &queues, 2, 20_000_000), run(World::Sim, &queues, 2, 20_000_000)];
    insta::assert_snapshot!(shape(&render(&runs)?));
    Ok(())
}

/// With enough variants, published numbers come first, numbers have a column each, and not all variants
/// have a plot over time.
#[test]
fn many_variants() -> Result<(), Box<dyn Error>> {
    const NAMES: [&str; 13] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"];
    let queues = NAMES.map(|name| Queue { name, ..DOCSIS_PIE });
    insta::assert_snapshot!(shape(&render(&[run(World::Sim, &queues, 1, 50_000_000)])?));
    Ok(())
}

#[test]
fn a_run_without_a_trial() -> Result<(), Box<dyn Error>> {
    let record = synthetic::record(World::Measured, &[BUFFER_CONTROL]);
    insta::assert_snapshot!(shape(&render(&[conclude_all(record, Vec::new())])?));
    Ok(())
}

/// Names in a `run.json` from a stranger may contain markup.
#[test]
fn a_hostile_run() -> Result<(), Box<dyn Error>> {
    let hostile = "<script>alert('x')</script>\"&\u{1b}[2J\u{7}";
    let name = || hostile.to_owned();
    let mut trials = synthetic::trials(&[DOCSIS_PIE], 2, 20_000_000);
    let mut record = synthetic::record(World::Live, &[DOCSIS_PIE]);
    record.scenario.title = name();
    record.scenario.name = name();
    record.scenario.text = format!("</pre>{hostile}");
    record.variants =
        vec![VariantRecord { name: name(), label: name(), factors: [(name(), name())].into() }];
    record.commit = name();
    record.tool_version = name();
    record.host.started = name();
    record.host.operating_system = name();
    for trial in &mut trials {
        trial.record.variant = name();
        let bottleneck = &mut trial.record.bottlenecks[0];
        (bottleneck.queue, bottleneck.link, bottleneck.hop) = (name(), name(), name());
        let dropped = bottleneck.drops.remove("early").unwrap_or_default();
        bottleneck.drops.insert(name(), dropped);
        for flow in &mut trial.record.flows {
            flow.name = name();
            for metric in &mut flow.metrics {
                (metric.name, metric.unit) = (name(), name());
            }
        }
        for latency in &mut trial.record.latencies {
            latency.probe = name();
        }
    }
    for expectation in &mut record.expectations {
        expectation.note = name();
        expectation.source = name();
        expectation.unit = name();
        (expectation.variant, expectation.metric) = (name(), name());
    }
    let mut data = conclude_all(record, trials);
    data.left_out.push(name());
    let html = render(&[data])?;
    assert_eq!(html.matches("<script").count(), 1, "the page's own");
    assert!(!html.contains("</pre><"), "markup from a name");
    let obeyed = |c: char| c.is_control() && c != '\n';
    assert!(!html.contains(obeyed), "a character that a terminal obeys");
    insta::assert_snapshot!(shape(&html));
    Ok(())
}
