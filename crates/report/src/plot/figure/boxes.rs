//! Box plots of repeats.

use underload_record::metric_over_trials;
use underload_record::schema::names_variant;
use underload_record::stats::nearest_rank;

use super::grid::{Grid, variants};
use super::picture::{Frame, Picture};
use crate::plot::canvas::Ink;
use crate::plot::scale::Scale;
use crate::plot::{Plot, chart};

const HEIGHT: u32 = 260;
const FILLED: f64 = 0.7;

/// The smallest value, the quartiles with the median, and the largest value of a cell.
pub(super) struct Spread {
    pub(super) line: usize,
    pub(super) x: usize,
    pub(super) five: [f64; 5],
}

pub(super) fn draw(picture: &Picture<'_>) -> Option<Plot> {
    let plot = picture.plot;
    let grid = Grid::of(picture, &plot.metric);
    let variants = variants(picture.run);
    let mut repeats: Option<(usize, usize)> = None;
    let mut spreads = Vec::new();
    for cell in &grid.cells {
        let named = variants.iter().filter(|variant| names_variant(&cell.point.variants, variant));
        let mut values: Vec<f64> = named
            .flat_map(|variant| metric_over_trials(&picture.run.record, variant, &plot.metric))
            .flatten()
            .filter(|value| value.is_finite())
            .collect();
        values.sort_by(f64::total_cmp);
        let Some(five) = five(&values) else { continue };
        let (least, most) = repeats.unwrap_or((usize::MAX, 0));
        repeats = Some((least.min(values.len()), most.max(values.len())));
        spreads.push(Spread { line: cell.line, x: cell.x, five });
    }
    let (least, most) = repeats?;
    let count = match (least, most) {
        (1, 1) => "1 trial".to_owned(),
        _ if least == most => format!("{most} trials"),
        _ => format!("{least} to {most} trials"),
    };
    let caption = format!(
        "Each box is of {count}: median, quartiles, smallest and largest.{}",
        if grid.has_published() { " Diamonds and brackets: published." } else { "" }
    );
    Some(paint(Frame { name: &picture.name, plot, caption }, &grid, &spreads))
}

/// Draws the boxes; `grid` has the published values.
pub(super) fn paint(frame: Frame<'_>, grid: &Grid, spreads: &[Spread]) -> Plot {
    let Frame { name, plot, caption } = frame;
    let x = Scale::linear("", 0.0..grid.xs.len() as f64);
    let y = grid.scale(plot, spreads.iter().flat_map(|spread| spread.five));
    let middles: Vec<f64> = (0..grid.xs.len()).map(|group| group as f64 + 0.5).collect();
    let names = grid.plain_legend();
    chart::with_legend(name, &plot.title, caption, HEIGHT, &names, |canvas, rows| {
        let mut panel = grid.panel(canvas, rows, (&x, &y), &middles, &plot.x_says);
        let width = FILLED / grid.lines.len() as f64;
        for Spread { line, x, five } in spreads {
            let [least, low, middle, high, most] = *five;
            let from = *x as f64 + (1.0 - FILLED) / 2.0 + width * *line as f64;
            let (from, to, centre) = (from + width * 0.1, from + width * 0.9, from + width / 2.0);
            let (pale, ink) = (Ink::Pale(*line), Ink::Solid(*line));
            panel.bar((from, low), (to, high), pale);
            panel.stroke((from, middle), (to, middle), ink, 2.5);
            for (near, far) in [(low, least), (high, most)] {
                panel.stroke((centre, near), (centre, far), ink, 1.2);
                let cap = (to - from) / 4.0;
                panel.stroke((centre - cap, far), (centre + cap, far), ink, 1.2);
            }
        }
        grid.draw_published(&mut panel, |cell| {
            cell.x as f64 + (1.0 - FILLED) / 2.0 + width * (cell.line as f64 + 0.5)
        });
    })
}

fn five(sorted: &[f64]) -> Option<[f64; 5]> {
    let (first, last) = (*sorted.first()?, *sorted.last()?);
    let rank = |share: f64| nearest_rank(sorted, share);
    Some([first, rank(0.25)?, rank(0.5)?, rank(0.75)?, last])
}
