//! All variants at a glance: idle, p50 to the highest percentile known.

use underload_record::schema::{Phase, Quantile};

use super::Plot;
use super::canvas::{Across, Along, Canvas, Ink, style};
use super::chart::{self, WIDTH};
use super::scale::number;
use crate::subject::{Subject, usual_highest};
use crate::words;

const ROW: i32 = 40;
const TOP: i32 = 24;
const LEFT: i32 = 6;

/// Draws one row per variant; `None` if no variant has a working latency.
pub(super) fn working_latency(subjects: &[Subject<'_>]) -> Option<Plot> {
    let usual = usual_highest(subjects.iter().filter_map(|it| it.summary.headline(Phase::Load)));
    let rows: Vec<Row<'_>> = subjects.iter().filter_map(|it| Row::new(it, usual)).collect();
    // The axis ends at the largest p99.9: single outliers would leave no space for the rest.
    let end_ns = rows.iter().map(Row::end_ns).max()?;
    let scale = Scale { end_ms: nice_end(end_ns as f64 / 1e6) };
    let height = (TOP + ROW * rows.len() as i32 + 34) as u32;
    let caption = caption(usual, &rows);
    let title = "Working latency at a glance".to_owned();
    Some(chart::plot("overview", title, caption, height, |canvas| {
        scale.draw_grid(canvas, height as i32);
        let values = match usual {
            Quantile::P50 => "p50".to_owned(),
            high => format!("p50 / {}", high.name()),
        };
        let head = style(11.0, Ink::Muted, Across::Right, Along::Top);
        canvas.text(&values, (WIDTH as i32 - LEFT - 8, 2), head);
        for (number, row) in rows.iter().enumerate() {
            row.draw(canvas, &scale, TOP + ROW * number as i32);
        }
    }))
}

/// Explains the marks, and that quantiles of too few samples are left out.
fn caption(usual: Quantile, rows: &[Row<'_>]) -> String {
    let bar = match usual {
        Quantile::P50 => String::new(),
        high => format!("Bar: p50 to {}, ", high.name()),
    };
    let line = if rows.iter().any(|row| row.p999_ns.is_some()) { "line: to p99.9, " } else { "" };
    let parts = format!("{bar}{line}tick: p50, ring: idle p50. ");
    let fewest = Quantile::P99.fewest_samples();
    let has_p99 = |row: &Row<'_>| {
        let load = row.subject.summary.headline(Phase::Load);
        load.is_some_and(|load| load.told_ns(Quantile::P99).is_some())
    };
    let who = match rows {
        [only] if !has_p99(only) => "the variant does not have",
        all if !all.iter().any(has_p99) => "no variant has",
        _ => "most variants do not have",
    };
    let left_out = match usual {
        Quantile::P99 => "A quantile of too few samples is left out.".to_owned(),
        _ => format!("A p99 needs {fewest} samples, which {who}."),
    };
    let parts = parts[..1].to_uppercase() + &parts[1..];
    format!(
        "{parts}Round trip of the open-loop probe, all valid trials of a variant pooled. {left_out}"
    )
}

struct Scale {
    end_ms: f64,
}

impl Scale {
    fn x(&self, ns: i64) -> i32 {
        let width = f64::from(WIDTH as i32 - 2 * LEFT - 8);
        LEFT + (ns as f64 / 1e6 / self.end_ms * width).round() as i32
    }

    fn draw_grid(&self, canvas: &mut Canvas, height: i32) {
        let bottom = height - 32;
        let muted = |across| style(11.0, Ink::Muted, across, Along::Top);
        for quarter in 0..=4 {
            let ms = self.end_ms * f64::from(quarter) / 4.0;
            let x = self.x((ms * 1e6) as i64);
            canvas.polyline([(x, TOP - 6), (x, bottom)], Ink::Grid, 1.0);
            let anchor = match quarter {
                0 => Across::Left,
                4 => Across::Right,
                _ => Across::Center,
            };
            canvas.text(&number(ms), (x, bottom + 3), muted(anchor));
        }
        let at = (WIDTH as i32 - LEFT - 8, bottom + 17);
        canvas.text("round-trip time under load, ms", at, muted(Across::Right));
    }
}

/// Values of one variant in the overview.
struct Row<'a> {
    subject: &'a Subject<'a>,
    idle_p50_ns: Option<i64>,
    p50_ns: i64,
    /// The usual percentile of all rows, or the highest that this variant has samples for.
    high: (Quantile, i64),
    is_usual: bool,
    /// `None` with too few samples.
    p999_ns: Option<i64>,
}

impl<'a> Row<'a> {
    fn new(subject: &'a Subject<'a>, usual: Quantile) -> Option<Row<'a>> {
        let load = subject.summary.headline(Phase::Load)?;
        let idle = subject.summary.headline(Phase::Idle);
        let told = load.told_ns(usual).map(|ns| (usual, ns));
        let high = told.or_else(|| load.highest_told())?;
        Some(Row {
            subject,
            idle_p50_ns: idle.and_then(|idle| idle.value_ns(Quantile::P50)),
            p50_ns: load.value_ns(Quantile::P50)?,
            high,
            is_usual: high.0 == usual,
            p999_ns: load.told_ns(Quantile::P999),
        })
    }

    /// Returns the largest quantile that is drawn.
    fn end_ns(&self) -> i64 {
        self.p999_ns.unwrap_or(self.high.1)
    }

    fn draw(&self, canvas: &mut Canvas, scale: &Scale, top: i32) {
        let position = self.subject.position;
        let (variant, pale) = (Ink::Variant(position), Ink::Pale(position));
        let middle = top + 23;
        let name = style(12.0, Ink::Text, Across::Left, Along::Top);
        canvas.text(&chart::shorten(&self.subject.heading(), 50), (LEFT, top), name);
        let (p50, high) = (words::ms(self.p50_ns), words::ms(self.high.1));
        let values = match self.high.0 {
            Quantile::P50 if self.is_usual => format!("{p50} ms"),
            Quantile::P50 => format!("{p50} / – ms"),
            _ if self.is_usual => format!("{p50} / {high} ms"),
            other => format!("{p50} / {high} ms ({})", other.name()),
        };
        let right = style(12.0, Ink::Text, Across::Right, Along::Top);
        canvas.text(&values, (WIDTH as i32 - LEFT - 8, top), right);
        let (p50, high) = (scale.x(self.p50_ns), scale.x(self.high.1));
        let end = scale.x(self.end_ns()).max(p50 + 1);
        canvas.rectangle((p50, middle - 1), (end, middle + 1), variant);
        canvas.rectangle((p50, middle - 5), (high.max(p50 + 2), middle + 5), pale);
        canvas.rectangle((p50 - 2, middle - 7), (p50 + 2, middle + 7), variant);
        if let Some(idle) = self.idle_p50_ns {
            canvas.ring((scale.x(idle), middle), 4.0, Ink::Muted);
        }
    }
}

/// Returns the smallest round number of at least `value` whose quarter is short.
fn nice_end(value: f64) -> f64 {
    let power = 10f64.powf(value.max(0.001).log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|end| *end >= value).unwrap_or(value)
}
