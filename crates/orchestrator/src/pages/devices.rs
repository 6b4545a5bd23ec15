//! Single devices, for operators.

use maud::html;
use underload_fleet::device::{Attributes, DeviceId};
use underload_fleet::outcome::{SeriesResult, StepResult};
use underload_fleet::plan::Kind;
use underload_fleet::store::{Archive, Device, Filter, StoredResult};
use underload_record::schema::Quantile;
use underload_report::diagram::{Curve, Diagram, Panel, Scale};
use underload_report::thousands;

use super::problem::Problem;
use super::question::{Ask, DAY_MS};
use super::sheet::{Figure, Section, Sheet};
use super::summary::{extent, quantile_ms};
use super::table::{Cell, Table, count, number, words};
use crate::study::lowest_score;

const PAGE: usize = 50;
/// Maximum number of devices in a CSV file or JSON document; `after` continues.
const FILE: usize = 10_000;
/// Maximum number of results of a device.
const RESULTS: usize = 100;

pub(super) fn list(archive: &mut dyn Archive, ask: &Ask) -> Result<Sheet, Problem> {
    use super::question::Format;
    let silent_ms = ask.question.silent_days()?.map(|days| u64::from(days) * DAY_MS);
    let filter = Filter {
        attributes: ask.question.filter.attributes.clone(),
        silent_since_ms: silent_ms.map(|silent_ms| ask.now_ms.saturating_sub(silent_ms)),
        ..Filter::default()
    };
    let is_page = matches!(ask.question.format, Format::Html | Format::Fragment);
    let limit = if is_page { PAGE } else { FILE };
    let after = ask.question.after()?;
    let mut devices = archive.devices(&filter, after, limit + 1)?;
    let there_are = archive.count_devices(&filter)?;
    let has_more = devices.len() > limit;
    devices.truncate(limit);
    let next = devices.last().filter(|_| has_more).map(|last| last.id.to_string());
    let mut section = Section::new("Devices", table(&devices));
    section.more = html! {
        nav.pages aria-label="More devices" {
            @if after.is_some() {
                a href=(ask.question.address("/devices", &[("after", "")])) { "From the start" }
            }
            @if let Some(next) = &next {
                a rel="next" href=(ask.question.address("/devices", &[("after", next)])) {
                    "The next " (PAGE)
                }
            }
        }
    };
    let words = ask.question.words();
    let of = if words.is_empty() { "enrolled".to_owned() } else { format!("with {words}") };
    let sentence = format!("{} devices {of}.", thousands(there_are));
    Ok(Sheet { title: "Devices".to_owned(), sentences: vec![sentence], sections: vec![section] })
}

fn table(devices: &[Device]) -> Table {
    let state = |device: &Device| match (device.is_removed, device.is_retired) {
        (true, _) => "removed",
        (_, true) => "retired",
        _ => "in use",
    };
    Table::of(
        "devices",
        devices,
        &[
            (words("id", "Device"), &|it| Cell::Device(it.id)),
            (words("line", "Line"), &|it| Cell::text(&it.line)),
            (words("state", "State"), &|it| Cell::text(state(it))),
            (words("model", "Model"), &|it| Cell::text(&it.attributes.model)),
            (words("firmware", "Firmware"), &|it| Cell::text(&it.attributes.firmware)),
            (words("tier", "Tier, Mbit/s"), &|it| {
                Cell::Text(it.attributes.get("tier").unwrap_or_default())
            }),
            (words("region", "Region"), &|it| Cell::text(&it.attributes.region)),
            (words("segment", "Segment"), &|it| Cell::text(&it.attributes.segment)),
            (words("configured", "Configured"), &|it| Cell::text(&it.attributes.configured)),
            (words("measured", "Measured"), &|it| Cell::text(&it.attributes.measured)),
            (words("seen", "Last request, UTC"), &|it| Cell::When(it.seen_ms)),
            (count("waiting", "Results waiting"), &|it| Cell::Count(it.waiting)),
            (count("dropped", "lost"), &|it| Cell::Count(it.dropped)),
        ],
    )
}

/// A device: its attributes, schedules and results.
pub(super) fn one(archive: &mut dyn Archive, ask: &Ask, id: DeviceId) -> Result<Sheet, Problem> {
    let before = u128::from_be_bytes(id.0).checked_sub(1);
    let before = before.map(|before| DeviceId(before.to_be_bytes()));
    let found = archive.devices(&Filter::default(), before, 1)?;
    let device = found.into_iter().find(|found| found.id == id);
    let device = device.ok_or(Problem::NotFound("There is no such device."))?;
    let results = archive.results_of(id, RESULTS)?;
    let mut line = Section::new("Line", line_table(&device));
    if !device.is_removed {
        line.more = ask.visitor.act_form(
            "/devices/remove",
            "Remove this device for good?",
            ("device", &id.to_string()),
            ["Remove this device", "The device stops for good. Its results stay: `underload fleet lines forget` deletes them."],
        );
    }
    let mut newest = Section::new("Newest results", result_table(&results));
    newest.figure = figure(&results);
    let state = match (device.is_removed, device.is_retired) {
        (true, _) => "It has been removed.",
        (_, true) => "Its line is retired.",
        _ => "It is in use.",
    };
    let sentence = format!(
        "{state} {} results wait on it, and {} were lost because too many waited.",
        thousands(device.waiting),
        thousands(device.dropped)
    );
    Ok(Sheet {
        title: format!("Device {id}"),
        sentences: vec![sentence],
        sections: vec![line, Section::new("Schedule", schedule_table(&device)), newest],
    })
}

fn line_table(device: &Device) -> Table {
    let attributes = Attributes::NAMES.into_iter().map(|name| {
        let value = device.attributes.get(name).unwrap_or_default();
        let unit = if name == "tier" { " Mbit/s" } else { "" };
        vec![Cell::text(name), Cell::text(format!("{value}{unit}"))]
    });
    let mut rows: Vec<Vec<Cell>> = attributes.collect();
    rows.push(vec![Cell::text("line"), Cell::text(&device.line)]);
    rows.push(vec![Cell::text("enrolled"), Cell::When(device.enrolled_ms)]);
    rows.push(vec![Cell::text("asked last"), Cell::When(device.seen_ms)]);
    rows.push(vec![Cell::text("epoch"), Cell::text(device.epoch.to_string())]);
    Table {
        name: "line",
        columns: vec![words("attribute", "Attribute"), words("value", "Value")],
        rows,
    }
}

fn schedule_table(device: &Device) -> Table {
    Table::of(
        "schedule",
        &device.schedules,
        &[
            (words("plan", "Plan"), &|it| Cell::text(&it.plan)),
            (count("run", "Next run"), &|it| Cell::Count(it.run)),
            (words("due", "Due, UTC"), &|it| Cell::When(it.due_ms)),
            (count("refusals", "Refused so far"), &|it| Cell::Count(u64::from(it.refusals))),
            (words("retry", "Not before, UTC"), &|it| match it.retry_ms {
                0 => Cell::Nothing,
                retry_ms => Cell::When(retry_ms),
            }),
        ],
    )
}

fn ms(micros: Option<u64>) -> Cell {
    Cell::number(micros.map(|us| us as f64 / 1e3))
}

fn series_cells(step: &StepResult, series: &SeriesResult, name: Cell) -> [Cell; 10] {
    let mbit = step.goodput_bit_per_s.map(|rate| rate as f64 / 1e6);
    [
        Cell::text(&step.step),
        name,
        ms(series.p50_us),
        ms(series.p99_us.filter(|_| Quantile::P99.is_told_by(series.sent))),
        ms(series.max_us),
        Cell::Number(series.lost as f64 * 100.0 / series.sent.max(1) as f64),
        Cell::number(mbit),
        Cell::number(step.tier_percent),
        step.grade.map_or(Cell::Nothing, |grade| Cell::text(grade.name())),
        Cell::number(lowest_score(step)),
    ]
}

fn result_table(results: &[StoredResult]) -> Table {
    let mut rows = Vec::new();
    for stored in results {
        let result = &stored.result;
        let start = [
            Cell::When(result.at_ms),
            Cell::text(&result.plan),
            Cell::Count(result.run),
            Cell::text(result.outcome.name()),
            Cell::text(&result.reason),
            Cell::text(&result.server),
        ];
        let series = result.steps.iter().flat_map(|step| {
            let beside = step.series.iter().map(|it| (it, Cell::Count(u64::from(it.dscp))));
            let inside = step.inside.iter().map(|it| (it, Cell::text("inside the load")));
            beside.chain(inside).map(move |(series, name)| (step, series, name))
        });
        let before = rows.len();
        for (step, series, name) in series {
            rows.push(start.iter().cloned().chain(series_cells(step, series, name)).collect());
        }
        if rows.len() == before {
            let mut row = start.to_vec();
            row.resize(RESULT_COLUMNS, Cell::Nothing);
            rows.push(row);
        }
    }
    Table {
        name: "results",
        columns: vec![
            words("at", "Began, UTC"),
            words("plan", "Plan"),
            count("run", "Run"),
            words("outcome", "Outcome"),
            words("reason", "Reason"),
            words("server", "Server"),
            words("step", "Step"),
            count("dscp", "DSCP"),
            number("p50_ms", "p50", "ms"),
            number("p99_ms", "p99", "ms"),
            number("max_ms", "Longest", "ms"),
            number("lost_percent", "Lost", "%"),
            number("goodput_mbit_per_s", "Goodput", "Mbit/s"),
            number("tier_percent", "of the tier", "%"),
            words("grade", "Grade"),
            number("qoo_percent", "lowest QoO", "%"),
        ],
        rows,
    }
}

const RESULT_COLUMNS: usize = 16;

const CURVES: usize = 8;

/// The highest percentile for which at least half of the series have enough probes.
fn usual_highest(results: &[StoredResult]) -> Option<Quantile> {
    let steps = results.iter().flat_map(|stored| &stored.result.steps);
    let sent = steps.flat_map(|step| &step.series).map(|series| series.sent);
    let mut told: Vec<Quantile> =
        sent.filter(|sent| *sent > 0).map(Quantile::highest_told_by).collect();
    told.sort_unstable();
    told.get(told.len() / 2).copied()
}

fn figure(results: &[StoredResult]) -> Option<Figure> {
    let quantile = usual_highest(results)?;
    let share = quantile.share()?;
    let mut curves: Vec<Curve> = Vec::new();
    let mut tests = 0;
    for stored in results.iter().rev() {
        let at = stored.result.at_ms as f64 / DAY_MS as f64;
        for step in &stored.result.steps {
            for series in &step.series {
                let is_told = quantile.is_told_by(series.sent);
                let ms = quantile_ms(&series.bins, series.lost, share).filter(|_| is_told);
                let Some(ms) = ms else { continue };
                tests += 1;
                let name = curve_name(step.kind, series);
                let point = (at, ms);
                match curves.iter().position(|curve| curve.name == name) {
                    Some(at) => curves[at].points.push(point),
                    None if curves.len() < CURVES => curves.push(Curve::rings(&name, vec![point])),
                    None => {}
                }
            }
        }
    }
    for curve in &mut curves {
        curve.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let (first, last, most) = extent(&curves)?;
    let beside = ((last - first) * 0.03).max(0.01);
    let x = Scale::days("time, UTC", first - beside..last + beside);
    let what = match quantile {
        Quantile::P99 => "99th percentile of the round-trip time".to_owned(),
        other => format!("{} of the round-trip time", other.name()),
    };
    let y = Scale::linear(&format!("{what}, ms"), 0.0..most * 1.06 + 0.1);
    let runs = results.len();
    Some(Figure {
        diagram: Diagram {
            name: "results".to_owned(),
            title: format!("{what}, run by run"),
            panels: vec![Panel { x, y, curves }],
        },
        caption: format!("{tests} series of probes, from the newest {runs} runs of this device."),
        zoom: ("", ""),
        point_notes: Vec::new(),
    })
}

fn curve_name(kind: Kind, series: &SeriesResult) -> String {
    let kind = match kind {
        Kind::Upload => "upstream full",
        Kind::Download => "downstream full",
        Kind::Latency => "idle",
    };
    format!("{kind}, DSCP {}", series.dscp)
}
