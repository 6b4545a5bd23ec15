//! The page of lines before and after a change.

use maud::{Markup, html};
use underload_record::comparison::{Comparison, Verdict};
use underload_record::text::plain_text;

use super::figures::{Headings, figures};
use super::header;
use super::history::change;
use super::parts::{Column, NOTHING, table_of};
use crate::plot::Plot;
use crate::plot::diagram::{Curve, Diagram, Panel, Scale};
use crate::words::{capital, significant};

/// A step of lines before and after a change.
#[derive(Debug)]
pub struct Pairs {
    pub step: String,
    /// The number that is compared, and its unit.
    pub number: (&'static str, &'static str),
    pub sentences: Vec<String>,
    /// The lines by name. A line of one side only has one value.
    pub lines: Vec<(String, Comparison)>,
    /// Lines that are not compared, each with the reason.
    pub left_out: Vec<String>,
}

/// The most lines of a table: more would make the page slow.
const LINES_MAX: usize = 1_000;
/// Larger values are lost probes.
const VALUE_MAX: f64 = 1e9;

/// Renders the comparison of each step: its sentences, a picture of the pairs, and the lines.
pub fn pairs_page(steps: &[Pairs]) -> String {
    let title = "Before and after";
    let content = html! {
        header {
            "\n"
            h1 { (title) } "\n"
            @for (number, step) in steps.iter().enumerate() {
                @for line in &step.sentences {
                    p.verdict.minor[number > 0] { (step.step) ": " (line) } "\n"
                }
            }
        }
        "\n"
        @for (number, step) in steps.iter().enumerate() {
            h2 { (step.step) } "\n"
            (figures(&step.plot(number).into_iter().collect::<Vec<Plot>>(), Headings::Shown))
            (step.table())
            @if step.lines.len() > LINES_MAX {
                p.note { "The first " (LINES_MAX) " of " (step.lines.len()) " lines." } "\n"
            }
            @for line in step.left_out.iter().take(LINES_MAX) {
                p.note { "Left out: " (line) } "\n"
            }
        }
    };
    plain_text(&header::document(title, &content).into_string())
}

impl Pairs {
    fn plot(&self, number: usize) -> Option<Plot> {
        let both = |it: &(String, Comparison)| Some((it.1.baseline_value?, it.1.value?));
        let pairs: Vec<(f64, f64)> = self.lines.iter().filter_map(both).collect();
        pairs_plot(format!("pairs-{number}"), self.number, &pairs)
    }

    fn table(&self) -> Markup {
        type Cells<'c> = Column<'c, (String, Comparison)>;
        let value = |value: Option<f64>, it: &Comparison| match value {
            Some(value) => significant(value),
            None if it.verdict == Verdict::Lost => "lost".to_owned(),
            None => NOTHING.to_owned(),
        };
        let columns = [
            Cells::names("line", |(line, _)| line.clone()),
            Cells::units("before", self.number.1, |(_, it)| value(it.baseline_value, it)),
            Cells::units("after", self.number.1, |(_, it)| value(it.value, it)),
            Cells::words("change", |(_, it)| match (it.verdict, it.value.zip(it.baseline_value)) {
                (Verdict::TooFew, Some((after, before))) if before > 0.0 => {
                    format!("{} times", significant(after / before))
                }
                (Verdict::NotMeasured, _) => NOTHING.to_owned(),
                (verdict, _) => change(verdict, it.range.as_ref()),
            }),
        ];
        let caption = format!("{}: {}, before and after", self.step, self.number.0);
        table_of(&caption, &columns, self.lines.iter().take(LINES_MAX))
    }
}

/// Draws pairs as rings, the later value over the earlier one, with a diagonal of unchanged values.
pub(super) fn pairs_plot(name: String, number: (&str, &str), pairs: &[(f64, f64)]) -> Option<Plot> {
    let values = pairs.iter().flat_map(|(before, after)| [*before, *after]);
    let values = || values.clone().filter(|value| *value > 0.0 && *value < VALUE_MAX);
    let range = values().reduce(f64::min)? / 1.3..values().reduce(f64::max)? * 1.3;
    let side =
        |name| Scale::logarithmic(&format!("{name}: {}, {}", number.0, number.1), range.clone());
    let (x, y) = (side("before"), side("after"));
    let diagonal = vec![(range.start, range.start), (range.end, range.end)];
    let curves = vec![Curve::line("unchanged", diagonal), Curve::rings("pair", pairs.to_vec())];
    let title = format!("{}: a pair below the diagonal became lower", capital(number.0));
    Some(Diagram { name, title, panels: vec![Panel { x, y, curves }] }.plot())
}
