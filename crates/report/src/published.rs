//! Published numbers beside measured ones, as text: for the page and for a terminal.

use std::fmt::Write as _;

use underload_record::schema::{Expectation, Shape, Verdict};

use crate::words::{significant, wrap};

/// Widest line in a terminal.
const COLUMNS: usize = 100;

/// The published numbers of one scenario, judged.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Figure {
    /// Name of the scenario, for example `bode/step`.
    pub scenario: String,
    /// Name of the figure, for example `Comcast 2021, Figure 5`.
    pub figure: String,
    /// Each number with the measured value.
    pub expectations: Vec<Expectation>,
}

/// Formats every number of every figure for a terminal, with a total, within 100 columns unless a
/// name is longer.
pub fn figures_table(figures: &[Figure]) -> String {
    let mut text = String::new();
    for figure in figures {
        let _ = writeln!(text, "{}: {}", figure.scenario, figure.figure);
        let _ = writeln!(text, "  {}", Count::new(&figure.expectations).words());
        text += &rows(&figure.expectations);
        text.push('\n');
    }
    let all = all_of(figures);
    let _ = writeln!(text, "In all {}: {}", crate::words::count(all.all, "number"), all.words());
    text
}

/// Formats the published numbers of one run, as [`figures_table`] does; empty if there are none.
pub fn published_table(expectations: &[Expectation]) -> String {
    if expectations.is_empty() {
        return String::new();
    }
    format!("{}\n{}", Count::new(expectations).words(), rows(expectations))
}

/// Returns what a number is of, the published number with its band, ours, the outcome, and why it is
/// not met; the last is `None` if there is nothing to explain.
pub fn published_cells(expected: &Expectation) -> ([String; 4], Option<&str>) {
    let unit = unit(expected);
    let cells = [
        what(expected),
        format!("{}{unit}", published(expected)),
        format!("{}{unit}", ours(expected)),
        outcome(expected),
    ];
    (cells, why(expected))
}

/// Describes the metric and variants of a published number.
pub(crate) fn what(expected: &Expectation) -> String {
    let Expectation { metric, variant, .. } = expected;
    match (&expected.curve, &expected.relative_to) {
        (Some(curve), _) => {
            let reach = match curve.within {
                within if within > 0.0 => format!(", the least within {} of it", given(within)),
                _ => String::new(),
            };
            match curve.shape {
                Shape::Peak => format!("variant {variant} with the largest {metric}{reach}"),
                Shape::Trough => format!("variant {variant} with the smallest {metric}{reach}"),
                Shape::Rising => format!("smallest step of {metric} over {variant}"),
                Shape::Flat => format!("largest over smallest {metric} of {variant}"),
            }
        }
        (None, Some(other)) => format!("{metric} of {variant} over that of {other}"),
        (None, None) => format!("{metric} of {variant}"),
    }
}

/// Formats the number with the band that counts as met, or the band alone, without unit.
pub(crate) fn published(expected: &Expectation) -> String {
    let band = match (expected.low, expected.high) {
        (Some(low), Some(high)) if (high - low).abs() < f64::EPSILON => given(low),
        (Some(low), Some(high)) => format!("{}–{}", given(low), given(high)),
        (Some(low), None) => format!("≥ {}", given(low)),
        (None, Some(high)) => format!("≤ {}", given(high)),
        (None, None) => "any".to_owned(),
    };
    match expected.value.map(given) {
        Some(value) if value != band => format!("{value} ({band})"),
        _ => band,
    }
}

/// Formats a number from a source with at most four digits.
fn given(value: f64) -> String {
    let digits = value.abs().max(f64::MIN_POSITIVE).log10().floor() as i32;
    let scale = 10_f64.powi(3 - digits.clamp(-6, 3));
    format!("{}", (value * scale).round() / scale)
}

/// Returns `met`, `missed, 3.2 ms above`, `not measured` or `short form`.
pub(crate) fn outcome(expected: &Expectation) -> String {
    match expected.verdict {
        Verdict::Met => "met".to_owned(),
        Verdict::NotMeasured => "not measured".to_owned(),
        Verdict::NotComparable => "short form".to_owned(),
        Verdict::Missed { by } => {
            let side = if by < 0.0 { "below" } else { "above" };
            let by = match expected.curve {
                Some(_) => given(by.abs()),
                None => significant(by.abs()),
            };
            format!("missed, {by}{} {side}", unit(expected))
        }
    }
}

/// Returns the unit after a space; empty for a ratio.
fn unit(expected: &Expectation) -> String {
    match expected.unit.as_str() {
        "" | "1" => String::new(),
        unit => format!(" {unit}"),
    }
}

/// Formats the measured value, without unit.
pub(crate) fn ours(expected: &Expectation) -> String {
    let text = match expected.curve {
        Some(_) => given,
        None => significant,
    };
    expected.measured.map_or("–".to_owned(), text)
}

/// Returns why the number is not met: the scenario's cause, or its note.
fn why(expected: &Expectation) -> Option<&str> {
    if matches!(expected.verdict, Verdict::Met | Verdict::NotComparable) {
        return None;
    }
    let texts = [&expected.cause, &expected.note].into_iter();
    Some(texts.map(|text| text.trim()).find(|text| !text.is_empty()).unwrap_or("not known"))
}

fn rows(expectations: &[Expectation]) -> String {
    let all: Vec<_> = expectations.iter().map(published_cells).collect();
    let rows: Vec<_> = all
        .iter()
        .map(|([what, published, ours, outcome], why)| {
            ([published.clone(), format!("ours {ours}"), outcome.clone()], what, why)
        })
        .collect();
    let width = |column: usize| rows.iter().map(|(row, ..)| row[column].chars().count()).max();
    let widths = [0, 1, 2].map(|column| width(column).unwrap_or_default());
    let mut text = String::new();
    for (row, what, why) in &rows {
        let columns = row.iter().zip(widths);
        let columns: Vec<String> = columns.map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "  {}  {what}", columns.join("  "));
        if let Some(why) = why {
            for line in wrap(&format!("why: {why}"), COLUMNS - 6) {
                let _ = writeln!(text, "      {line}");
            }
        }
    }
    text
}

/// Published numbers by outcome.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Count {
    all: u64,
    met: u64,
    missed: u64,
    unmeasured: u64,
    short_form: u64,
}

impl Count {
    pub(crate) fn new<'a>(expectations: impl IntoIterator<Item = &'a Expectation>) -> Self {
        let mut count = Self::default();
        for expected in expectations {
            count.all += 1;
            let of_outcome = match expected.verdict {
                Verdict::Met => &mut count.met,
                Verdict::Missed { .. } => &mut count.missed,
                Verdict::NotMeasured => &mut count.unmeasured,
                Verdict::NotComparable => &mut count.short_form,
            };
            *of_outcome += 1;
        }
        count
    }

    /// Returns `Of 35 published numbers 30 are met and 5 missed.`; `None` without numbers.
    pub(crate) fn sentence(self) -> Option<String> {
        let Self { all, met, missed, unmeasured, short_form } = self;
        let unmeasured = match unmeasured {
            0 => String::new(),
            number => format!("; {number} not measured"),
        };
        Some(match (all, met, missed) {
            (0, ..) => return None,
            _ if short_form > 0 => {
                "This run is shorter than the published experiment, so its numbers are not \
                 compared with the published ones."
                    .to_owned()
            }
            (1, 1, _) => "The published number is met.".to_owned(),
            (1, _, 1) => "The published number is missed.".to_owned(),
            (1, ..) => "The published number was not measured.".to_owned(),
            _ => {
                let are = if met == 1 { "is" } else { "are" };
                format!(
                    "Of {all} published numbers {met} {are} met and {missed} missed{unmeasured}."
                )
            }
        })
    }

    fn words(self) -> String {
        let more = |number: u64, what: &str| match number {
            0 => String::new(),
            number => format!(", {number} {what}"),
        };
        let unmeasured = more(self.unmeasured, "not measured");
        let short_form = more(self.short_form, "not judged (short form)");
        format!("{} of {} met, {} missed{unmeasured}{short_form}", self.met, self.all, self.missed)
    }
}

fn all_of(figures: &[Figure]) -> Count {
    Count::new(figures.iter().flat_map(|figure| &figure.expectations))
}

#[cfg(test)]
mod tests {
    use underload_record::schema::Curve;

    use super::*;

    fn expected(low: f64, high: f64, measured: f64) -> Expectation {
        let mut expected = Expectation {
            metric: "load.rtt.mean".to_owned(),
            variant: "1mbit/*".to_owned(),
            low: Some(low),
            high: Some(high),
            unit: "ms".to_owned(),
            source: "a paper, Figure 1".to_owned(),
            ..Expectation::default()
        };
        expected.judge(Some(measured));
        expected
    }

    fn figures() -> Vec<Figure> {
        let met = Expectation { value: Some(20.0), ..expected(18.0, 22.0, 21.0) };
        let missed =
            Expectation { cause: "the line | is\nslower".to_owned(), ..expected(18.0, 22.0, 32.5) };
        let among = [("8KiB".to_owned(), 8.0), ("16KiB".to_owned(), 16.0)].into();
        let peak = Expectation {
            metric: "mos".to_owned(),
            variant: "1mbit/{}".to_owned(),
            curve: Some(Curve { shape: Shape::Peak, within: 0.0, among }),
            unit: "KiB".to_owned(),
            note: "read off".to_owned(),
            ..expected(16.0, 16.0, 8.0)
        };
        let mut unmeasured = expected(1.0, 2.0, 0.0);
        unmeasured.judge(None);
        let expectations = vec![met, missed, peak, unmeasured];
        let (scenario, figure) = ("paper/figure-1".to_owned(), "A paper, Figure 1".to_owned());
        vec![Figure { scenario, figure, expectations }]
    }

    #[test]
    fn the_table_of_figures_has_every_number_and_the_cause_of_a_miss() {
        let expected = "\
paper/figure-1: A paper, Figure 1
  1 of 4 met, 2 missed, 1 not measured
  20 (18–22) ms  ours 21.0 ms  met                    load.rtt.mean of 1mbit/*
  18–22 ms       ours 32.5 ms  missed, 10.5 ms above  load.rtt.mean of 1mbit/*
      why: the line | is slower
  16 KiB         ours 8 KiB    missed, 8 KiB below    variant 1mbit/{} with the largest mos
      why: read off
  1–2 ms         ours – ms     not measured           load.rtt.mean of 1mbit/*
      why: not known

In all 4 numbers: 1 of 4 met, 2 missed, 1 not measured
";
        let text = figures_table(&figures());
        assert_eq!(text, expected);
        let one = published_table(&figures()[0].expectations);
        assert!(one.starts_with("1 of 4 met, 2 missed, 1 not measured\n"), "{one}");
        let rows = one.split_once('\n').map_or("", |(_, rows)| rows);
        assert!(rows.ends_with("why: not known\n") && expected.contains(rows), "{one}");
        assert_eq!(published_table(&[]), "");
    }

    #[test]
    fn numbers_of_a_short_form_are_neither_met_nor_missed() {
        let mut figures = figures();
        for expected in &mut figures[0].expectations {
            expected.short_form = true;
            expected.judge(expected.measured);
        }
        let text = figures_table(&figures);
        let count = "0 of 4 met, 0 missed, 1 not measured, 3 not judged (short form)";
        assert!(text.contains(&format!("  {count}\n")), "{text}");
        assert!(text.contains("20 (18–22) ms  ours 21.0 ms  short form "), "{text}");
        assert_eq!(text.matches("why: ").count(), 1, "of what was not measured: {text}");
        let sentence = all_of(&figures).sentence().unwrap_or_default();
        assert!(sentence.starts_with("This run is shorter than the published"), "{sentence}");
        assert_eq!(Count::default().sentence(), None);
    }

    #[test]
    fn a_curve_is_described_by_the_number_that_is_compared() {
        let mut number = figures()[0].expectations[2].clone();
        number.curve = number.curve.map(|curve| Curve { within: 0.1, ..curve });
        let words = what(&number);
        assert_eq!(words, "variant 1mbit/{} with the largest mos, the least within 0.1 of it");
        number.curve = number.curve.map(|curve| Curve { shape: Shape::Rising, ..curve });
        assert_eq!(what(&number), "smallest step of mos over 1mbit/{}");
    }

    #[test]
    fn given_numbers_stay_short() {
        for (value, text) in
            [(8.0, "8"), (903.44, "903.4"), (26_000.0, "26000"), (0.05, "0.05"), (0.0, "0")]
        {
            assert_eq!(given(value), text);
        }
    }
}
