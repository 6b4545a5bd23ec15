//! The page of a sweep.

use std::path::{Path, PathBuf};

use maud::{Markup, html};
use underload_disk::{self as disk, Access};
use underload_record::schema::Extreme;
use underload_record::text::plain_text;
use underload_store::sweep::SweepCell;

use super::figures::{Headings, figures};
use super::parts::{head, table, unit_head, words_head};
use super::{PAGE_MARK, PageError, check_file_of, header};
use crate::sweep::{SweepOutcome, unit};

/// Writes `report.html` of a sweep into its directory, and returns its path. Replaces an earlier
/// report.
pub fn write_sweep_report(directory: &Path, outcome: &SweepOutcome) -> Result<PathBuf, PageError> {
    let page = sweep_page(outcome);
    let path = directory.join("report.html");
    check_file_of(directory, &path, PAGE_MARK)?;
    disk::write_whole(&path, page.as_bytes(), Access::Usual)
        .map_err(PageError::io(&path, "write"))?;
    Ok(path)
}

/// Renders the page: number of cells, means over each axis, best, worst and failed cells.
pub fn sweep_page(outcome: &SweepOutcome) -> String {
    let subject = &outcome.subject;
    let metric = subject.metrics.get(subject.ranked_by).map_or("", String::as_str);
    let (pictures, plots) = outcome.plots();
    let word = match subject.best {
        Extreme::Smallest => "smallest",
        Extreme::Largest => "largest",
    };
    let content = html! {
        header {
            "\n"
            p.kind { "a sweep of " (subject.scenario) ", simulated" } "\n"
            h1 { (subject.title) } "\n"
            @for line in outcome.result() { p.verdict { (line) } "\n" }
            p.note { (outcome.sentence()) "." } "\n"
            @for name in outcome.unknown_metrics() {
                div.warning role="note" {
                    p { strong { "Careful." } " No cell has the metric " code { (name) } "." }
                }
                "\n"
            }
        }
        "\n"
        @if !pictures.is_empty() {
            h2 { "What this sweep shows" } "\n"
            (figures(&pictures, Headings::Shown))
        }
        @if !plots.is_empty() {
            h2 { "Over each axis" } "\n"
            p.note {
                "Each point is the mean of " code { (metric) } " over all cells with that value, "
                "whatever their other axes are."
            }
            "\n"
            (figures(&plots, Headings::Shown))
        }
        (cells(outcome, &format!("Best by {metric}, {word} first"), &outcome.best))
        (cells(outcome, &format!("Worst by {metric}"), outcome.worst()))
        (failures(outcome))
        p.note {
            "Every cell is a row of " code { "cells.parquet" } ", every trial one of "
            code { "trials.parquet" } ". Means stand beside half of their 95 % interval over "
            "repeats."
        }
        "\n"
    };
    plain_text(&header::document(&subject.title, &content).into_string())
}

/// Renders the first failed cells.
fn failures(outcome: &SweepOutcome) -> Markup {
    let (failures, failed) = outcome.failures();
    html! {
        @if failed > 0 {
            h2 { "Failed" } "\n"
            p.note {
                "Cells of which a trial failed: " (failed) ". The first are here, all of them in "
                code { "cells.parquet" } "."
            }
            "\n"
            ul {
                "\n"
                @for cell in failures { li { (outcome.failure(cell)) } "\n" }
            }
            "\n"
        }
    }
}

fn cells(outcome: &SweepOutcome, title: &str, cells: &[SweepCell]) -> Markup {
    if cells.is_empty() {
        return html! {};
    }
    let texts = outcome.subject.axes.len() + 2;
    let is_text = |column: usize| (1..texts).contains(&column);
    let heading = html! {
        @for (column, name) in outcome.head().iter().enumerate() {
            @if is_text(column) {
                (words_head(name))
            } @else if column < texts || unit(name).is_empty() {
                (head(name))
            } @else {
                (unit_head(name, unit(name)))
            }
        }
    };
    let row = |cell: &SweepCell| {
        html! {
            tr {
                @for (column, text) in outcome.line(cell).iter().enumerate() {
                    @if is_text(column) { td.text { (text) } } @else { td.num { (text) } }
                }
            }
        }
    };
    let rows: Vec<Markup> = cells.iter().map(row).collect();
    html! { h2 { (title) } "\n" (table(title, &heading, &rows)) }
}

#[cfg(test)]
mod tests {
    use underload_record::schema::{Interval, PlotKind, PlotRecord};
    use underload_store::sweep::{AxisValue, SweepPlot, SweepSubject};

    use super::*;

    /// The position of the variant behind two axes.
    const VARIANT: usize = 2;

    fn outcome(cells: u64) -> SweepOutcome {
        with_plots(cells, Vec::new())
    }

    fn with_plots(cells: u64, plots: Vec<SweepPlot>) -> SweepOutcome {
        let subject = SweepSubject {
            title: "Rates <and> round trips".to_owned(),
            scenario: "comcast/upstream".to_owned(),
            axes: vec!["path.up".to_owned(), "path.rtt".to_owned()],
            parts: vec![
                ["1mbit", "10mbit", "100mbit"].map(str::to_owned).to_vec(),
                vec!["5ms".to_owned()],
                ["fifo/a", "codel"].map(str::to_owned).to_vec(),
            ],
            metrics: vec!["utilisation.up".to_owned(), "load.rtt.p99".to_owned(), "odd".to_owned()],
            requested: vec![true; 3],
            ranked_by: 1,
            best: Extreme::Smallest,
            cells: 120,
            plots,
        };
        let mut outcome = SweepOutcome::new(subject);
        for cell in 0..cells {
            let value = |mean: f64| {
                let (low, high) = (Some(mean - 1.0), Some(mean + 1.0));
                Some(Interval { mean, low, high, confidence: 0.95, repeats: 3 })
            };
            let has_failed = cell % 50 == 13;
            let part = (cell % 3) as usize;
            let axis = |text: &str| AxisValue { text: text.to_owned(), amount: None };
            let mean = if has_failed { None } else { value(((cell * 37) % 101) as f64) };
            outcome.add(
                &SweepCell {
                    cell,
                    id: format!("{cell:x}"),
                    values: vec![axis(["1mbit", "10mbit", "100mbit"][part]), axis("5ms")],
                    variant: if cell % 2 == 0 { "fifo/a" } else { "codel" }.to_owned(),
                    trials: 3,
                    failed: u64::from(has_failed) * 3,
                    error: has_failed.then(|| "no <such> queue\u{1b}[0m".to_owned()),
                    metrics: vec![value(50.0), mean, None],
                },
                &[Some(part), Some(0), Some((cell % 2) as usize)],
            );
        }
        outcome
    }

    #[test]
    fn the_page_lists_ends_and_failures_and_escapes_strangers() {
        let page = sweep_page(&outcome(120));
        assert_eq!(page.matches("<svg").count(), 1, "one axis has several values");
        assert!(page.contains("Rates &lt;and&gt; round trips"));
        assert!(page.contains("no &lt;such&gt; queue") && !page.contains('\u{1b}'));
        assert!(page.contains("120 cells, 360 trials, 3 of the cells failed"));
        assert!(page.contains("No cell has the metric <code>odd</code>"));
        assert!(page.contains("Best by load.rtt.p99") && page.contains("Worst by load.rtt.p99"));
        assert!(!sweep_page(&outcome(0)).contains("<svg"));
    }

    fn picture(kind: PlotKind, line: usize) -> SweepPlot {
        let is_scatter = kind == PlotKind::Scatter;
        SweepPlot {
            picture: PlotRecord { kind, title: format!("A {kind:?} <b>"), ..PlotRecord::default() },
            line: Some(line),
            x: (!is_scatter).then_some(0),
            metric: 1,
            x_metric: is_scatter.then_some(0),
            only: Vec::new(),
        }
    }

    #[test]
    fn sweep_plots_show_their_selected_cells() {
        let mut plots = [PlotKind::Sweep, PlotKind::Heat, PlotKind::Box, PlotKind::Scatter]
            .map(|kind| picture(kind, VARIANT));
        let page = sweep_page(&with_plots(120, plots.to_vec()));
        assert_eq!(page.matches("<svg").count(), 5);
        assert!(page.contains("A Heat &lt;b&gt;") && !page.contains("<b>"));
        // Both variants, and no third one: 40 cells of each rate, of which two failed, and one of 20.
        let captions = |plots: &[SweepPlot]| -> Vec<String> {
            let (drawn, _) = with_plots(120, plots.to_vec()).plots();
            drawn.into_iter().map(|plot| plot.caption).collect()
        };
        assert_eq!(captions(&plots)[0], "Each is the mean of all cells there.");
        assert_eq!(
            captions(&plots)[2],
            "Each box is of 19 to 20 cells: median, quartiles, smallest and largest."
        );
        assert_eq!(captions(&plots)[3], "A ring for each cell.");
        plots[2].only = vec![(VARIANT, "codel".to_owned())];
        plots[3].only = vec![(1, "6ms".to_owned())];
        let some = captions(&plots);
        assert_eq!(some.len(), 3, "one of which no cell is left");
        assert!(some[2].starts_with("Each box is of 19 cells"), "{some:?}");
        // A metric that no cell has.
        plots[0].metric = 2;
        assert_eq!(captions(&plots[..1]).len(), 0);
        let many: Vec<SweepPlot> = vec![picture(PlotKind::Scatter, VARIANT)];
        let many = with_plots(6_000, many).plots().0.remove(0);
        assert!(many.caption.contains("of 5880 cells, drawn at random"), "{}", many.caption);
        assert!(many.inline().matches("<circle").count() <= 1_000);
    }

    #[test]
    fn the_table_ranks_cells_from_both_ends() {
        let outcome = outcome(100);
        let rank = |cells: &[SweepCell]| -> Vec<f64> {
            cells.iter().filter_map(|cell| Some(cell.metrics[1]?.mean)).collect()
        };
        assert_eq!(rank(&outcome.best)[..3], [0.0, 1.0, 2.0]);
        assert_eq!(rank(outcome.worst())[..3], [100.0, 99.0, 98.0]);
        let table = outcome.table();
        assert!(table.starts_with("The smallest load.rtt.p99 is 0 ms (path.up = 1mbit"), "{table}");
        assert!(
            table.contains("\n100 of 120 cells, 300 trials, 2 of the cells failed\n"),
            "{table}"
        );
        assert!(table.contains("100 ±1.00"), "{table}");
        assert!(table.contains("cell 13, path.up = 10mbit, path.rtt = 5ms, codel: no <such>"));
        let json = outcome.to_json(Path::new("out")).expect("JSON");
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["best"][0]["metrics"]["load.rtt.p99"]["mean"], 0.0);
        assert_eq!((&json["complete"], &json["failed_cells"]), (&false.into(), &2.into()));
    }
}
