//! The variant table for a terminal: plain text within 100 columns.

use underload_record::schema::{
    Direction, Finding, LatencyMeasure, LatencySummary, Phase, Quantile, Sanction,
    VariantBottleneck, VariantLatency,
};

use crate::measured::{LOCATION_HEADS, findings, location_rows};
use crate::study::table_lines;
use crate::subject::{Subject, subjects};
use crate::words::{
    count, mbit, metric_words, ms, one_line, plain_text, shares, significant, wrap,
};
use underload_store::RunData;

/// Widest line in a terminal.
pub(crate) const COLUMNS: usize = 100;
/// Maximum number of metrics of an application in the table, which shows the most important ones.
const SHOWN_METRICS: usize = 3;

/// Returns, for every variant, idle and working latency, throughput, drops and marks, and numbers of
/// its applications; then the groups of a study. Latencies are round trips of the first open-loop
/// probe (named if there are several), milliseconds, all valid trials of a variant pooled. Each line
/// ends with a newline.
pub fn table(runs: &[RunData]) -> String {
    let subjects = subjects(runs);
    let mut rows = Vec::new();
    for subject in &subjects {
        let title = format!("{}, {}{}", subject.title(), trials(subject), probe(subject));
        rows.push(Row::Title(one_line(&title)));
        let phases = [Phase::Idle, Phase::Load];
        let valid = phases.iter().filter_map(|phase| subject.summary.headline(*phase)).map(line);
        rows.extend(valid.map(Row::Cells));
        if subject.summary.trials_valid == 0 {
            rows.extend(invalid(subject));
        }
        for direction in [Direction::Up, Direction::Down] {
            rows.extend(carried(subject, direction).iter().flat_map(|line| notes(line)));
        }
        rows.extend(sent_away(subject).into_iter().map(Row::Note));
        for (flow, metrics) in subject.applications() {
            let shown = metrics.into_iter().take(SHOWN_METRICS).map(metric_words);
            rows.extend(notes(&format!("{flow:<5} {}", shown.collect::<Vec<_>>().join(", "))));
        }
    }
    // Without probes the latency table would be empty.
    let is_probed = rows.iter().any(|row| matches!(row, Row::Cells(_)));
    if is_probed {
        rows.insert(0, Row::Cells(head()));
    }
    for (title, lines) in runs.iter().filter_map(|run| table_lines(&run.record)) {
        rows.push(Row::Title(one_line(&title)));
        rows.extend(lines.iter().flat_map(|line| wrap(line, COLUMNS - 2)).map(Row::Note));
    }
    let mut text = String::from(if is_probed { "round-trip time, ms\n" } else { "" });
    text += &render(&rows);
    text += &render(&locations(runs));
    plain_text(&text)
}

/// Returns where the load of each step of a measured line adds delay.
fn locations(runs: &[RunData]) -> Vec<Row> {
    let of_step = |finding: Finding| {
        let rows = finding.location.as_deref().map(location_rows).unwrap_or_default();
        let title = format!("{}: delay that the load adds, ms", one_line(&finding.step));
        let cells = |cells: [String; 6]| Row::Cells(cells.map(|cell| one_line(&cell)).to_vec());
        let heads = cells(LOCATION_HEADS.map(str::to_owned));
        let is_empty = rows.is_empty();
        let all = [Row::Title(title), heads].into_iter().chain(rows.into_iter().map(cells));
        all.filter(|_| !is_empty).collect::<Vec<Row>>()
    };
    findings(runs).unwrap_or_default().into_iter().flat_map(of_step).collect()
}

pub(crate) enum Row {
    Title(String),
    Cells(Vec<String>),
    Note(String),
}

fn head() -> Vec<String> {
    let quantiles = Quantile::ALL.into_iter().map(|quantile| quantile.name().to_owned());
    let first = ["phase", "window", "samples", "lost"].map(str::to_owned);
    first.into_iter().chain(quantiles).collect()
}

fn line(latency: &VariantLatency) -> Vec<String> {
    let window_s = latency.window_ns as f64 / 1e9;
    let start = (latency.phase.name().to_owned(), window_s, latency.sent, latency.lost);
    latency_cells(start, |quantile| latency.told_ns(quantile))
}

/// Returns the cells of a latency: its phase, the length of its window, the probes sent and lost, and
/// its quantiles.
fn latency_cells(
    (phase, window_s, sent, lost): (String, f64, u64, u64),
    told_ns: impl Fn(Quantile) -> Option<i64>,
) -> Vec<String> {
    let window = format!("{} s", significant(window_s));
    let quantiles =
        Quantile::ALL.into_iter().map(|quantile| told_ns(quantile).map_or("-".to_owned(), ms));
    [phase, window, sent.to_string(), lost.to_string()].into_iter().chain(quantiles).collect()
}

/// Returns the last trial of a variant without valid trials, in brackets, with a note.
fn invalid(subject: &Subject<'_>) -> Vec<Row> {
    let mut trials = subject.run.record.trials.iter().rev();
    let Some(trial) = trials.find(|trial| trial.variant == subject.variant.name) else {
        return Vec::new();
    };
    let row = |phase: &Phase| {
        let mut latencies = trial.latencies.iter().filter(|it| it.window.phase == *phase);
        let is_headline = |it: &&LatencySummary| {
            it.measure == LatencyMeasure::RoundTrip && !it.closed_loop && it.sent > 0
        };
        let latency = latencies.find(is_headline)?;
        let window_s = latency.window.length_ns() as f64 / 1e9;
        let start = (format!("({})", phase.name()), window_s, latency.sent, latency.lost);
        Some(Row::Cells(latency_cells(start, |quantile| latency.told_ns(quantile))))
    };
    let rows: Vec<Row> = [Phase::Idle, Phase::Load].iter().filter_map(row).collect();
    let note = (!rows.is_empty()).then(|| Row::Note("in brackets: of an invalid trial".to_owned()));
    rows.into_iter().chain(note).collect()
}

/// Wraps a line behind the word in its margin.
fn notes(line: &str) -> Vec<Row> {
    if line.chars().count() <= COLUMNS - 2 {
        return vec![Row::Note(line.to_owned())];
    }
    let (mut margin, rest) = line.split_once(' ').unwrap_or(("", line));
    let room = COLUMNS.saturating_sub(3 + margin.chars().count().max(5)).max(COLUMNS / 4);
    let folded = wrap(rest, room).into_iter();
    folded.map(|line| Row::Note(format!("{:<5} {line}", std::mem::take(&mut margin)))).collect()
}

fn trials(subject: &Subject<'_>) -> String {
    let (valid, invalid) = (subject.summary.trials_valid, subject.summary.trials_invalid);
    match invalid {
        0 => count(valid, "trial"),
        _ => format!("{valid} of {} trials valid", valid + invalid),
    }
}

/// Returns `, round trips of probe-dscp-45` if a variant has several probes.
fn probe(subject: &Subject<'_>) -> String {
    let shown = subject.summary.headline(Phase::Load).map(|load| subject.of_probe(load));
    let named = shown.filter(|words| !words.is_empty());
    named.map_or(String::new(), |words| format!(", round trips{words}"))
}

fn carried(subject: &Subject<'_>, direction: Direction) -> Vec<String> {
    let carried = subject.summary.throughput(direction);
    let hops = subject.summary.hops(direction);
    let mut parts = Vec::new();
    if let Some(goodput) = carried.and_then(|carried| carried.goodput_bit_per_s) {
        parts.push(format!("goodput {} Mbit/s", mbit(goodput.mean)));
    }
    parts.extend(shares(carried));
    if let [_, _, ..] = hops.as_slice() {
        let mut lines = vec![parts.join(", ")];
        lines.retain(|line| !line.is_empty());
        lines.extend(hops.into_iter().map(hop));
        return lines.into_iter().map(|line| format!("{direction:<5} {line}")).collect();
    }
    if let Some(used) = carried.and_then(|carried| carried.utilisation_percent) {
        parts.push(format!("link {} % used", significant(used.mean)));
    }
    parts.extend(hops.into_iter().flat_map(lost_and_marked));
    if parts.is_empty() { Vec::new() } else { vec![format!("{direction:<5} {}", parts.join(", "))] }
}

/// Maximum number of flows in a line of the terminal; the report has more.
const SHOWN_FLOWS: usize = 3;

/// Returns lines for each queue whose protection moved flows to the classic queue.
fn sent_away(subject: &Subject<'_>) -> Vec<String> {
    let directions = [Direction::Up, Direction::Down].into_iter();
    let queues = directions.flat_map(|direction| subject.summary.hops(direction));
    let lines = |queue: &VariantBottleneck| {
        let sanctions = subject.summary.sanctions(queue.direction, &queue.hop);
        let words = |one: &Sanction| format!("{} ({})", one.flow, count(one.packets, "packet"));
        let mut flows: Vec<String> = sanctions.iter().take(SHOWN_FLOWS).map(words).collect();
        let more = sanctions.len().saturating_sub(SHOWN_FLOWS);
        flows.extend((more > 0).then(|| format!("{more} more")));
        if flows.is_empty() {
            return Vec::new();
        }
        let gap = if queue.hop.is_empty() { "" } else { ": " };
        let text = format!("{}{gap}queue protection sent away {}", queue.hop, flows.join(", "));
        let mut margin = queue.direction.to_string();
        let folded = wrap(&text, COLUMNS - 8).into_iter();
        folded.map(|line| format!("{:<5} {line}", std::mem::take(&mut margin))).collect()
    };
    queues.flat_map(lines).collect()
}

/// Formats a link of a chain, with its sojourn, which shows where packets waited.
fn hop(queue: &VariantBottleneck) -> String {
    let mut parts = Vec::new();
    if let Some(used) = queue.utilisation_percent {
        parts.push(format!("link {} % used", significant(used.mean)));
    }
    if let Some(sojourn) = queue.sojourn.get(&Quantile::P99) {
        parts.push(format!("sojourn p99 {} ms", ms(sojourn.mean as i64)));
    }
    parts.extend(lost_and_marked(queue));
    format!("{}: {}", queue.hop, parts.join(", "))
}

fn lost_and_marked(queue: &VariantBottleneck) -> Vec<String> {
    let share = |part: u64| part as f64 * 100.0 / (queue.offered.packets as f64).max(1.0);
    let (dropped, marked) = (queue.dropped_packets(), queue.marked_packets());
    let mut parts = vec![
        format!("{dropped} dropped ({} %)", significant(share(dropped))),
        format!("{marked} marked ({} %)", significant(share(marked))),
    ];
    for (rule, changed) in &queue.remarked {
        parts.push(format!("{changed} remarked by {rule} ({} %)", significant(share(*changed))));
    }
    parts
}

/// Formats rows with aligned columns.
pub(crate) fn render(rows: &[Row]) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        let Row::Cells(cells) = row else { continue };
        widths.resize(widths.len().max(cells.len()), 0);
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let line = match row {
            Row::Title(title) => title_lines(title).join("\n"),
            Row::Note(note) => format!("  {note}"),
            Row::Cells(cells) => {
                let mut line = String::from("  ");
                for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                    let gap = if column == 0 { "" } else { "  " };
                    let padded = if column == 0 {
                        format!("{cell:<width$}")
                    } else {
                        format!("{cell:>width$}")
                    };
                    line = line + gap + &padded;
                }
                line
            }
        };
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Wraps a title. Further lines are indented, and its count, such as `1 trial`, is not broken.
fn title_lines(title: &str) -> Vec<String> {
    // Joins the words as `wrap` does, so that the first line is the beginning of the text.
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut lines = wrap(&title, COLUMNS);
    if lines.len() < 2 {
        return lines;
    }
    lines.truncate(1);
    let mut rest = title[lines[0].len()..].trim_start().to_owned();
    if let Some((first, count)) = lines[0].rsplit_once(", ")
        && count.starts_with(|c: char| c.is_ascii_digit())
    {
        rest = format!("{count} {rest}");
        lines[0] = format!("{first},");
    }
    lines.extend(wrap(&rest, COLUMNS - 4).into_iter().map(|line| format!("    {line}")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_broken_before_its_count_and_indented() {
        let label = "x".repeat(COLUMNS - 12);
        assert_eq!(title_lines("fifo (10mbit up), 1 trial"), ["fifo (10mbit up), 1 trial"]);
        let [first, second] = &title_lines(&format!("fifo ({label}), 1 trial"))[..] else {
            panic!("{:?}", title_lines(&label));
        };
        assert_eq!(first, &format!("fifo ({label}),"));
        assert_eq!(second, "    1 trial");
        let (first, second) = ("y".repeat(60), "y".repeat(50));
        let broken = title_lines(&format!("fifo (cellular:{first},{second} up), 1 trial"));
        let expected = [format!("fifo (cellular:{first},"), format!("    {second} up), 1 trial")];
        assert_eq!(broken, expected);
        let spaced =
            title_lines(&format!(" a \u{3000} {} ééé  ({second}), 1 trial", "é".repeat(70)));
        assert_eq!(
            spaced,
            [format!("a {} ééé", "é".repeat(70)), format!("    ({second}), 1 trial")]
        );
    }

    #[test]
    fn long_lines_wrap_with_their_indent() {
        let told = |line: &str| render(&notes(line));
        assert_eq!(told("up    goodput 9.43 Mbit/s"), "  up    goodput 9.43 Mbit/s\n");
        let long = format!("up    {}", ["84 dropped (0.719 %)"; 8].join(", "));
        let told = told(&long);
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines.len(), 2, "{told}");
        assert!(lines[0].starts_with("  up    84 dropped"), "{told}");
        assert!(lines[1].starts_with("        "), "{told}");
        assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS), "{told}");
    }
}
