//! Queues, applications, published numbers, trials, provenance.

use std::fmt::Write as _;

use underload_record::schema::{
    ArmBottleneck, ArmMetric, Direction, Expectation, Interval, Phase, Quantile, TrialRecord,
    Validity, Verdict,
};

use super::latency::{Least, range};
use super::{arm_row, phase_words, table};
use crate::RunData;
use crate::plot::escape;
use crate::published;
use crate::subject::{Subject, run_suffix};
use crate::words::{mbit, ms, significant, thousands};

/// Trials listed one by one; more are in `run.json`.
const MOST_TRIALS: usize = 200;

/// Arms that have a column each; more have a row each.
const MOST_ARM_COLUMNS: usize = 5;

pub(super) fn queue_section(subjects: &[Subject<'_>]) -> String {
    let mut rows = String::new();
    for subject in subjects {
        let directions = [Direction::Up, Direction::Down].into_iter();
        let of_arm: String = directions.map(|direction| queue_rows(subject, direction)).collect();
        if !of_arm.is_empty() {
            rows += &arm_row(subject, 8);
            rows += &of_arm;
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let head = "<th class=\"text\">bottleneck</th>\
                <th>goodput<br><span class=\"unit\">Mbit/s</span></th>\
                <th>link<br><span class=\"unit\">Mbit/s</span></th>\
                <th>in use<br><span class=\"unit\">%</span></th>\
                <th>dropped<br><span class=\"unit\">packets, %</span></th>\
                <th>marked<br><span class=\"unit\">packets, %</span></th>\
                <th>sojourn p50<br><span class=\"unit\">ms</span></th>\
                <th>p99<br><span class=\"unit\">ms</span></th>";
    format!(
        "<h2>Throughput and queues</h2>\n<p class=\"note\">Goodput is the payload of all flows in \
         the load phase; link is what the bottleneck sent. Drops and marks are totals of all valid \
         trials with their share of the packets offered. Sojourn is the time in the queue, without \
         the packet's own transmission, mean over repeats.</p>\n{}",
        table(head, &rows)
    )
}

/// A row per hop of a direction; one where there is no queue.
fn queue_rows(subject: &Subject<'_>, direction: Direction) -> String {
    let hops = subject.summary.hops(direction);
    if hops.is_empty() {
        return queue_row(subject, direction, None);
    }
    hops.into_iter().map(|queue| queue_row(subject, direction, Some(queue))).collect()
}

fn queue_row(subject: &Subject<'_>, direction: Direction, queue: Option<&ArmBottleneck>) -> String {
    let carried = subject.summary.throughput(direction);
    if carried.is_none() && queue.is_none() {
        return String::new();
    }
    let rate = |rate: Option<Interval>| {
        rate.map_or("–".to_owned(), |rate| interval(&rate, 1e6, Least::Zero))
    };
    let described = queue.map_or_else(
        || format!("{direction}stream"),
        |queue| {
            let phase = phase_words(queue.phase);
            let gap = if queue.hop.is_empty() { "" } else { " " };
            let hop = &queue.hop;
            format!("{direction}{gap}{hop}: {} into {}, {phase}", queue.queue, queue.link)
        },
    );
    let sojourn = |quantile| {
        let of_load = |load: &&ArmBottleneck| {
            let hop = queue.map_or("", |queue| &queue.hop);
            (load.direction, load.phase, load.hop.as_str()) == (direction, Phase::Load, hop)
        };
        let load = subject.summary.bottlenecks.iter().find(of_load).or(queue);
        let found = load.and_then(|queue| queue.sojourn.get(&quantile));
        found.map_or("–".to_owned(), |found| interval(found, 1e6, Least::Zero))
    };
    let goodput = carried.and_then(|carried| carried.goodput_bit_per_s);
    let own = queue.filter(|queue| !queue.hop.is_empty());
    let link = own.map_or(carried.and_then(|it| it.link_bit_per_s), |own| own.link_bit_per_s);
    let used =
        own.map_or(carried.and_then(|it| it.utilisation_percent), |own| own.utilisation_percent);
    let counted = |part: &dyn Fn(&ArmBottleneck) -> u64| {
        queue.map_or("–".to_owned(), |queue| share(part(queue), queue.offered.packets))
    };
    format!(
        "<tr><td class=\"text wide\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        escape(&described),
        rate(goodput),
        rate(link),
        used.map_or("–".to_owned(), |used| interval(&used, 1.0, Least::Zero)),
        counted(&ArmBottleneck::dropped_packets),
        queue.map(reasons).unwrap_or_default(),
        counted(&ArmBottleneck::marked_packets),
        sojourn(Quantile::P50),
        sojourn(Quantile::P99),
    )
}

fn reasons(queue: &ArmBottleneck) -> String {
    let dropped: Vec<String> = queue
        .drops
        .iter()
        .filter(|(_, count)| count.packets > 0)
        .map(|(reason, count)| format!("{} {}", thousands(count.packets), escape(reason)))
        .collect();
    if dropped.is_empty() {
        return String::new();
    }
    format!("<br><span class=\"interval\">{}</span>", dropped.join("<br>"))
}

fn share(part: u64, whole: u64) -> String {
    let percent = part as f64 * 100.0 / (whole as f64).max(1.0);
    format!("{}, {}", thousands(part), significant(percent))
}

fn interval(interval: &Interval, divisor: f64, least: Least) -> String {
    let mean = significant(interval.mean / divisor);
    match range(interval, divisor, least) {
        Some(range) => format!("{mean}<br><span class=\"interval\">{range}</span>"),
        None => mean,
    }
}

/// Numbers in the applications' own terms; the probes' counters folded away.
pub(super) fn application_section(subjects: &[Subject<'_>]) -> String {
    let is_probe = |flow: &str| {
        let flows = subjects.iter().flat_map(Subject::trials).flat_map(|trial| &trial.flows);
        flows.into_iter().any(|known| known.name == flow && known.kind == "probe")
    };
    let mut names: Vec<MetricName<'_>> = Vec::new();
    for metric in subjects.iter().flat_map(|subject| &subject.summary.metrics) {
        let name = (metric.flow.as_str(), metric.name.as_str(), metric.unit.as_str());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let (probes, applications): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|(flow, _, _)| is_probe(flow));
    let mut html = String::new();
    if !applications.is_empty() {
        html += "<h2>What the applications felt</h2>\n";
        html += &metric_table(subjects, &applications);
    }
    if !probes.is_empty() {
        let table = metric_table(subjects, &probes);
        let _ = writeln!(html, "<details>\n<summary>Counters of the probes</summary>\n{table}");
        html += "</details>\n";
    }
    html
}

/// Flow, name and unit of a metric.
type MetricName<'a> = (&'a str, &'a str, &'a str);

fn metric_table(subjects: &[Subject<'_>], names: &[MetricName<'_>]) -> String {
    if subjects.len() <= MOST_ARM_COLUMNS {
        return metrics_by_row(subjects, names);
    }
    let mut html = String::new();
    let mut flows: Vec<&str> = names.iter().map(|(flow, _, _)| *flow).collect();
    flows.dedup();
    for flow in flows {
        let own: Vec<_> = names.iter().filter(|(of, _, _)| *of == flow).copied().collect();
        html += &metrics_by_column(subjects, flow, &own);
    }
    html
}

/// A column per arm, for few arms.
fn metrics_by_row(subjects: &[Subject<'_>], names: &[MetricName<'_>]) -> String {
    let mut head = "<th class=\"text\">flow</th><th class=\"text\">what</th>".to_owned();
    for subject in subjects {
        let (swatch, name) = (super::swatch(subject.position), escape(&subject.name));
        let _ = write!(head, "<th>{swatch}{name}</th>");
    }
    let mut rows = String::new();
    for name in names {
        let (flow, what, unit) = *name;
        let (flow, what) = (escape(flow), escape(&what.replace('_', " ")));
        let _ = write!(
            rows,
            "<tr><td class=\"text\">{flow}</td><td class=\"text\">{what} \
             <span class=\"interval\">{}</span></td>",
            escape(unit)
        );
        rows.extend(subjects.iter().map(|subject| metric_cell(subject, name)));
        rows += "</tr>\n";
    }
    table(&head, &rows)
}

/// A row per arm, for many arms.
fn metrics_by_column(subjects: &[Subject<'_>], flow: &str, names: &[MetricName<'_>]) -> String {
    let mut head = format!("<th class=\"text\">{}</th>", escape(flow));
    for (_, name, unit) in names {
        let (name, unit) = (escape(&name.replace('_', " ")), escape(unit));
        let _ = write!(head, "<th>{name}<br><span class=\"unit\">{unit}</span></th>");
    }
    let mut rows = String::new();
    for subject in subjects {
        let (swatch, name) = (super::swatch(subject.position), escape(&subject.name));
        let _ = write!(rows, "<tr><th class=\"text\">{swatch}{name}</th>");
        rows.extend(names.iter().map(|name| metric_cell(subject, name)));
        rows += "</tr>\n";
    }
    table(&head, &rows)
}

fn metric_cell(subject: &Subject<'_>, (flow, name, unit): &MetricName<'_>) -> String {
    let same =
        |metric: &&ArmMetric| metric.flow == *flow && metric.name == *name && metric.unit == *unit;
    let found = subject.summary.metrics.iter().find(same);
    let value = found.map_or("–".to_owned(), |metric| interval(&metric.value, 1.0, Least::None));
    format!("<td>{value}</td>")
}

pub(super) fn expectation_section(runs: &[RunData]) -> String {
    let mut rows = String::new();
    for (number, run) in runs.iter().enumerate() {
        let suffix = run_suffix(runs, number);
        for expected in &run.record.expectations {
            rows += &expectation_row(expected, &suffix);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let head = "<th class=\"text\">number</th><th>published</th>\
                <th>ours</th><th class=\"text\">unit</th><th class=\"text\">outcome</th>\
                <th class=\"text\">source and note</th>";
    format!(
        "<h2>Against published numbers</h2>\n<p class=\"note\">A miss stays a miss: bands come from \
         the source, not from this run.</p>\n{}",
        table(head, &rows)
    )
}

fn expectation_row(expected: &Expectation, suffix: &str) -> String {
    let class = match expected.verdict {
        Verdict::Met => "met",
        Verdict::NotMeasured => "unmeasured",
        Verdict::Missed { .. } => "missed",
    };
    let unit = if expected.unit == "1" { "" } else { &expected.unit };
    let mut source = escape(&expected.source);
    for remark in [&expected.note, &expected.cause].into_iter().filter(|text| !text.is_empty()) {
        let _ = write!(source, "<br><span class=\"interval\">{}</span>", escape(remark));
    }
    format!(
        "<tr><th class=\"text wide\">{}</th><td>{}</td>\
         <td><b>{}</b></td><td class=\"text\">{}</td><td class=\"text\">\
         <span class=\"{class}\">{}</span></td><td class=\"text wide\">{source}</td></tr>\n",
        escape(&format!("{}{suffix}", published::what(expected))),
        escape(&published::published(expected)),
        escape(&published::ours(expected)),
        escape(unit),
        escape(&published::outcome(expected)),
    )
}

pub(super) fn trial_section(runs: &[RunData]) -> String {
    let mut rows = String::new();
    for (number, run) in runs.iter().enumerate() {
        let suffix = run_suffix(runs, number);
        for trial in run.record.trials.iter().take(MOST_TRIALS) {
            rows += &trial_row(trial, &suffix);
        }
    }
    let head = "<th>trial</th><th class=\"text\">arm</th><th>repeat</th><th>seed</th>\
                <th>load p50<br><span class=\"unit\">ms</span></th>\
                <th>load p99<br><span class=\"unit\">ms</span></th>\
                <th>goodput up/down<br><span class=\"unit\">Mbit/s</span></th>\
                <th>lateness p99<br><span class=\"unit\">emulator/prober, ms</span></th>\
                <th class=\"text\">counts?</th>";
    let all: usize = runs.iter().map(|run| run.record.trials.len()).sum();
    let note = if runs.iter().any(|run| run.record.trials.len() > MOST_TRIALS) {
        format!("<p class=\"note\">The first {MOST_TRIALS} of each run; all are in run.json.</p>\n")
    } else {
        String::new()
    };
    // Where nothing counts, what was measured all the same is what the reader wants to see.
    let mut trials = runs.iter().flat_map(|run| &run.record.trials);
    let open = if trials.any(|trial| trial.validity.is_valid()) { "" } else { " open" };
    format!(
        "<h2>Trials and provenance</h2>\n<details{open}>\n<summary>All {} trials</summary>\n{note}{}\
         </details>\n",
        thousands(all as u64),
        table(head, &rows)
    )
}

fn trial_row(trial: &TrialRecord, suffix: &str) -> String {
    let mut latencies = trial.latencies.iter();
    let load = latencies
        .find(|latency| latency.window.phase == Phase::Load && !latency.closed_loop)
        .and_then(|latency| latency.distribution);
    let delay = |quantile: Quantile| {
        let told = load.filter(|load| load.count >= quantile.fewest_samples());
        told.map_or("–".to_owned(), |load| ms(quantile.of(&load)))
    };
    let sum = |rates: Vec<u64>| {
        if rates.is_empty() { "–".to_owned() } else { mbit(rates.iter().sum::<u64>() as f64) }
    };
    let up = trial.flows.iter().filter_map(|flow| flow.goodput_up_bit_per_s).collect();
    let down = trial.flows.iter().filter_map(|flow| flow.goodput_down_bit_per_s).collect();
    let late = |late: Option<underload_record::schema::Distribution>| {
        late.map_or("–".to_owned(), |late| ms(late.p99_ns))
    };
    let timeliness = &trial.timeliness;
    let verdict = match &trial.validity {
        Validity::Valid => "yes".to_owned(),
        Validity::Invalid { reasons } => {
            let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
            format!("<span class=\"missed\">no</span>: {}", escape(&reasons.join("; ")))
        }
    };
    format!(
        "<tr><td>{}</td><td class=\"text\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
         <td>{} / {}</td><td>{} / {}</td><td class=\"text\">{verdict}</td></tr>\n",
        trial.index,
        escape(&format!("{}{suffix}", trial.arm)),
        trial.repeat,
        trial.seed,
        delay(Quantile::P50),
        delay(Quantile::P99),
        sum(up),
        sum(down),
        late(timeliness.emulator_lateness),
        late(timeliness.prober_lateness),
    )
}

pub(super) fn provenance_section(runs: &[RunData]) -> String {
    let mut html = String::new();
    for (number, run) in runs.iter().enumerate() {
        let (record, host) = (&run.record, &run.record.host);
        let suffix = run_suffix(runs, number);
        if !suffix.is_empty() {
            let _ = writeln!(html, "<h3>{}</h3>", escape(suffix.trim_matches([' ', '(', ')'])));
        }
        html += "<dl>\n";
        let machine = [
            host.operating_system.clone(),
            format!("kernel {}", host.kernel),
            host.processor.clone(),
            format!("{} cores", host.cores),
            format!("clock {}", host.clock),
        ];
        let machine: Vec<String> = machine.into_iter().filter(|part| !part.is_empty()).collect();
        for (name, value) in [
            ("Program", format!("underload {}, commit {}", record.tool_version, record.commit)),
            ("Scenario", record.scenario.name.clone()),
            ("World", format!("{} ({})", record.world.name(), record.world.description())),
            ("Seed", record.seed.to_string()),
            ("Started", format!("{}, took {} s", host.started, significant(host.duration_s))),
            ("Machine", machine.join(", ")),
        ] {
            let _ = writeln!(html, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
        }
        html += "</dl>\n";
        let _ = writeln!(
            html,
            "<details>\n<summary>The scenario</summary>\n<pre>{}</pre>\n</details>",
            escape(&record.scenario.text)
        );
    }
    html
}
