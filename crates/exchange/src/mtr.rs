//! What `mtr` prints (mtr(8) of 0.95): a report as text (`--report`) or JSON (`--json`), with numbers
//! of each hop, and a line for each packet (`--raw`), from which each hop becomes a probe.
//!
//! Lines of `--raw` have no times: a hop's probes count as sent a second apart, the default of `mtr`.
//! The destination is the first hop with the address of the last hop that answered; its probe is the
//! headline.

use std::collections::BTreeMap;

use underload_record::schema::{FlowRecord, Sample};

use super::imported::{ImportError, Imported, numbers_flow, probe, probe_flow};
use super::numbers::{flow_index, number, trees};
use super::rows::ROWS_MAX;

const SECOND_NS: u64 = 1_000_000_000;
/// Maximum number of hops that `mtr` probes (`MaxHost`).
const HOPS_MAX: u16 = 256;

/// Returns the names of the columns, if the line is the head of a report.
fn head(line: &str) -> Option<Vec<&str>> {
    let columns: Vec<&str> = line.strip_prefix("HOST: ")?.split_whitespace().skip(1).collect();
    columns.contains(&"Loss%").then_some(columns)
}

/// Whether a line of the first ones is the head of a report.
pub(super) fn is_report(text: &str) -> bool {
    text.lines().take(20).any(|line| head(line).is_some())
}

pub(super) fn read_report(text: &str) -> Result<Imported, ImportError> {
    let mut lines = text.lines().skip_while(|line| head(line).is_none());
    let columns = lines.next().and_then(head).unwrap_or_default();
    // Lines of further addresses of a hop have no numbers.
    let hops = lines.filter_map(|line| {
        let (number, rest) = line.trim_start().split_once('.')?;
        let number = number.parse().ok()?;
        let cells: Vec<&str> = rest.trim_start_matches("|--").split_whitespace().collect();
        let (host, values) = cells.split_at_checked(cells.len().checked_sub(columns.len())?)?;
        Some(hop(number, &host.join(" "), &|name| {
            let place = columns.iter().position(|column| *column == name)?;
            values[place].trim_end_matches('%').parse().ok()
        }))
    });
    imported(hops.take(usize::from(HOPS_MAX)).collect(), Vec::new())
}

pub(super) fn read_json(text: &[u8]) -> Result<Imported, ImportError> {
    let trees = trees(text, "mtr")?;
    let hubs = trees.first().and_then(|tree| tree.pointer("/report/hubs")?.as_array());
    let hops = (1..HOPS_MAX).zip(hubs.into_iter().flatten()).map(|(place, hub)| {
        let host = hub["host"].as_str().unwrap_or("???");
        hop(place, host, &|name| number(hub, &format!("/{name}")))
    });
    imported(hops.collect(), Vec::new())
}

/// Returns the flow of a hop; `value` returns the number of a column, times in ms.
fn hop(number: u16, host: &str, value: &dyn Fn(&str) -> Option<f64>) -> FlowRecord {
    let lost = value("Loss%");
    // A hop that never answered has times of 0.
    let ms = |name| value(name).filter(|_| lost.is_none_or(|lost| lost < 100.0));
    let numbers = [
        ("mean", "ms", ms("Avg")),
        ("most", "ms", ms("Wrst")),
        ("lost", "%", lost),
        ("least", "ms", ms("Best")),
        ("deviation", "ms", ms("StDev")),
        ("sent", "", value("Snt")),
    ];
    numbers_flow(&format!("hop {number} {host}"), "hop", &numbers)
}

fn imported(flows: Vec<FlowRecord>, samples: Vec<Sample>) -> Result<Imported, ImportError> {
    if flows.is_empty() {
        return Err(ImportError::content("mtr", "it has no hop"));
    }
    Ok(Imported::of_probes("mtr", flows, samples))
}

/// Returns what a line of `--raw` is about, the hop, and its other words.
fn raw(line: &str) -> Option<(&str, u16, Vec<&str>)> {
    let mut words = line.split(' ');
    let (kind, hop) = (words.next()?, words.next()?.parse().ok()?);
    let is_known = matches!(kind, "x" | "h" | "p" | "d" | "m" | "t" | "y");
    (is_known && hop < HOPS_MAX).then(|| (kind, hop, words.collect()))
}

/// Whether the first lines are those of `--raw`.
pub(super) fn is_raw(text: &str) -> bool {
    text.starts_with(['x', 'h']) && text.lines().take(3).all(|line| raw(line).is_some())
}

/// The address of a hop, and the round trip of each packet; `None` if it was not answered.
type Hop = (Option<String>, Vec<Option<u64>>);

pub(super) fn read_raw(text: &str) -> Result<Imported, ImportError> {
    let mut hops: BTreeMap<u16, Hop> = BTreeMap::new();
    // The latest packet with each number, as its hop and its place; numbers start over.
    let mut latest: BTreeMap<&str, (u16, usize)> = BTreeMap::new();
    for (kind, number, words) in text.lines().take(ROWS_MAX).filter_map(raw) {
        let (address, trips_ns) = hops.entry(number).or_default();
        match (kind, words.as_slice()) {
            ("x", [sequence]) => {
                latest.insert(sequence, (number, trips_ns.len()));
                trips_ns.push(None);
            }
            ("h", [host]) => *address = Some((*host).to_owned()),
            ("p", [micros, sequence]) => {
                let place = latest.get(sequence).filter(|(hop, _)| *hop == number);
                let trip_ns = micros.parse::<u32>().ok().map(|us| u64::from(us) * 1_000);
                if let Some((_, place)) = place {
                    trips_ns[*place] = trip_ns;
                }
            }
            _ => {}
        }
    }
    let last = hops.values().rev().find_map(|hop| hop.0.clone());
    let destination = hops.iter().find(|(_, hop)| hop.0 == last).map_or(0, |(number, _)| *number);
    let mut path: Vec<(u16, Hop)> = hops.into_iter().take_while(|it| it.0 <= destination).collect();
    path.retain(|(_, hop)| !hop.1.is_empty());
    let far = path.len().min(1);
    path.rotate_right(far);
    let (mut flows, mut samples) = (Vec::new(), Vec::new());
    for (place, (number, (address, trips_ns))) in path.into_iter().enumerate() {
        flows.push(probe_flow(&format!(
            "hop {} {}",
            number + 1,
            address.as_deref().unwrap_or("???")
        )));
        let Some(flow) = flow_index(place) else { break };
        samples.extend((0..).zip(trips_ns).map(|(sequence, rtt_ns)| Sample {
            flow,
            ..probe(sequence, sequence * SECOND_NS, rtt_ns)
        }));
    }
    imported(flows, samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "Start: 2026-11-29T21:00:00+0000\n\
        HOST: here                        Loss%   Snt   Last   Avg  Best  Wrst StDev\n  \
        1.|-- 192.0.2.1                  0.0%    10    0.3   0.4   0.2   0.9   0.2\n    \
        |  `|-- 192.0.2.9\n  \
        2.|-- ???                       100.0    10    0.0   0.0   0.0   0.0   0.0\n  \
        3.|-- a.example (198.51.100.7)  10.0%    10   12.0  12.5  11.0  30.0   5.0\n";

    fn number(flow: &FlowRecord, name: &str) -> Option<f64> {
        flow.metrics.iter().find(|metric| metric.name == name)?.value
    }

    #[test]
    fn a_report_has_the_numbers_of_each_hop_as_text_and_as_json() {
        assert!(is_report(REPORT) && !is_report("HOST: a table\n"));
        let read = read_report(REPORT).unwrap();
        let names: Vec<&str> = read.flows.iter().map(|flow| flow.name.as_str()).collect();
        assert_eq!(names, ["hop 1 192.0.2.1", "hop 2 ???", "hop 3 a.example (198.51.100.7)"]);
        let facts = |flow: &FlowRecord| ["mean", "most", "lost", "sent"].map(|it| number(flow, it));
        assert_eq!(facts(&read.flows[2]), [12.5, 30.0, 10.0, 10.0].map(Some));
        assert_eq!(facts(&read.flows[1]), [None, None, Some(100.0), Some(10.0)]);
        let json = br#"{"report": {"mtr": {"src": "here", "tests": "10"}, "hubs": [
            {"count": "1", "host": "192.0.2.1", "Loss%": 0.00, "Snt": 10, "Avg": 0.40},
            {"count": 2, "host": "a.example", "Loss%": 10.0, "Snt": 10, "Avg": 12.5,
             "Wrst": 30.0, "Last": "?"}]}}"#;
        let read = read_json(json).unwrap();
        assert_eq!(facts(&read.flows[1]), [12.5, 30.0, 10.0, 10.0].map(Some));
        assert!(read_json(br#"{"report": {"hubs": []}}"#).is_err());
    }

    #[test]
    fn packets_of_raw_lines_are_probes_and_the_destination_comes_first() {
        let raw = "x 0 33000\nx 1 33001\nh 0 192.0.2.1\np 0 400 33000\nx 2 33002\n\
            h 1 198.51.100.7\np 1 12500 33001\nh 2 198.51.100.7\np 2 13000 33002\n\
            d 1 a.example\nx 0 33003\nx 1 33004\np 0 500 33003\np 0 9 77\np 9 9 33004\n";
        assert!(is_raw(raw) && !is_raw("x marks\n"));
        let read = read_raw(raw).unwrap();
        let names: Vec<&str> = read.flows.iter().map(|flow| flow.name.as_str()).collect();
        assert_eq!(names, ["hop 2 198.51.100.7", "hop 1 192.0.2.1"]);
        let facts = |it: &Sample| (it.flow, it.sent_ns / SECOND_NS, it.rtt_ns);
        let trips: Vec<_> = read.samples.iter().map(facts).collect();
        let (far, near) = ([Some(12_500_000), None], [Some(400_000), Some(500_000)]);
        assert_eq!(trips, [(0, 0, far[0]), (0, 1, far[1]), (1, 0, near[0]), (1, 1, near[1])]);
        assert!(read_raw("h 0 192.0.2.1\nh 1 192.0.2.2\nh 2 192.0.2.3\n").is_err());
    }
}
