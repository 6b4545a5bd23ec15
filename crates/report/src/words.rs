//! Formatting of numbers and texts for people.

use underload_record::metric_unit;
use underload_record::schema::{
    Judged, Quantile, VariantLatency, VariantMetric, VariantRatio, VariantThroughput,
};
pub(crate) use underload_record::text::count;
pub use underload_record::text::{one_line, plain_text};

/// Formats nanoseconds as milliseconds with three significant digits: `0.052`, `1.74`, `251`.
pub(crate) fn ms(ns: impl Into<i128>) -> String {
    significant(ns.into() as f64 / 1e6)
}

/// Formats a quantile of all probes sent: `24.1 ms`, `a lost probe`.
pub(crate) fn judged_ms(value: Judged) -> String {
    match value {
        Judged::Answered(ns) => format!("{} ms", ms(ns)),
        Judged::Lost => LOST.to_owned(),
    }
}

/// A quantile that is a lost probe, in sentences.
pub(crate) const LOST: &str = "a lost probe";

/// Returns `p99`, or `p99 of all probes sent` if for any of the latencies that differs from the p99 of its
/// answered probes, as formatted.
pub(crate) fn judged_by<'a>(
    quantile: Quantile,
    latencies: impl IntoIterator<Item = &'a VariantLatency>,
) -> String {
    let differs = |latency: &VariantLatency| {
        let answered = latency.told_ns(quantile).map(|ns| judged_ms(Judged::Answered(ns)));
        answered != latency.judged(quantile).map(judged_ms)
    };
    let of_sent = if latencies.into_iter().any(differs) { " of all probes sent" } else { "" };
    format!("{}{of_sent}", quantile.name())
}

/// Formats bits per second as Mbit/s with three significant digits.
pub(crate) fn mbit(bit_per_s: f64) -> String {
    significant(bit_per_s / 1e6)
}

/// Formats with three significant digits and at most three decimals; zero is `0`.
pub fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 => 0,
        magnitude if magnitude >= 99.95 => 0,
        magnitude if magnitude >= 9.995 => 1,
        magnitude if magnitude >= 0.9995 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    // A number that rounds to zero is printed without a sign.
    match text.strip_prefix('-').filter(|digits| !digits.contains(|it| ('1'..='9').contains(&it))) {
        Some(_) => "0".to_owned(),
        None => text,
    }
}

/// Formats how flows of a direction divided it: `prague : classic 1.83`; at most [`MOST_SHARES`].
pub(crate) fn shares(carried: Option<&VariantThroughput>) -> Vec<String> {
    let ratios = carried.map_or(&[][..], |carried| &carried.ratios).iter().take(MOST_SHARES);
    let words = |ratio: &VariantRatio| {
        format!("{} : {} {}", ratio.flow, ratio.over, significant(ratio.value.mean))
    };
    ratios.map(words).collect()
}

const MOST_SHARES: usize = 3;

pub fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Groups digits in threes with a narrow space.
pub fn thousands(value: u64) -> String {
    let digits = value.to_string();
    if digits.len() < 5 { digits } else { grouped(&digits, '\u{202f}') }
}

/// Puts `separator` between groups of three digits.
pub fn grouped(digits: &str, separator: char) -> String {
    let mut grouped = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push(separator);
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a ratio: `9.5`, `27`.
pub(crate) fn factor(ratio: f64) -> String {
    if ratio >= 9.95 { format!("{ratio:.0}") } else { format!("{ratio:.1}") }
}

/// Joins names: `A, b and c`.
pub(crate) fn list(names: &[String]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    }
}

/// Formats the mean over repeats, or the largest of all maxima: `page load 2.31 s`, `mos 4.12`.
pub(crate) fn metric_words(metric: &VariantMetric) -> String {
    named_metric(metric, &metric_name(&metric.name))
}

/// Formats a number; one without a unit that is whole, such as a count, has no decimals.
pub(crate) fn number(value: f64, unit: &str) -> String {
    if unit.is_empty() && value.fract() == 0.0 { format!("{value:.0}") } else { significant(value) }
}

/// As [`metric_words`], with another name of the metric.
pub(crate) fn named_metric(metric: &VariantMetric, name: &str) -> String {
    let value = number(metric.of_variant(), &metric.unit);
    let is_named = |unit: &str| metric.name.split('_').any(|word| unit.eq_ignore_ascii_case(word));
    match metric.unit.as_str() {
        unit if unit.is_empty() || is_named(unit) => format!("{name} {value}"),
        unit => format!("{name} {value} {unit}"),
    }
}

/// Returns the name of a metric of an application in words: `camera-to-screen delay p50`.
pub(crate) fn metric_name(name: &str) -> String {
    name.replace("glass_to_glass", "camera-to-screen delay").replace('_', " ")
}

/// Returns the unit of a metric that is not of an application, for sentences.
pub(crate) fn usual_unit(name: &str) -> &'static str {
    let unit = metric_unit(name.rsplit('/').next().unwrap_or(name)).unwrap_or("ms");
    if unit == "1" { "" } else { unit }
}

/// Words that [`wrap`] leaves on the line of their number.
const UNITS: [&str; 8] = ["%", "ms", "s", "Hz", "Mbit/s", "packets", "dropped", "marked"];

/// Wraps at words, and inside words that are longer than a line: after commas or, without one, at
/// the end of the line. No name is cut off, and no unit is separated from its number.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let length = |text: &str| text.chars().count();
    let mut lines: Vec<String> = Vec::new();
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_unit = UNITS.contains(&word.trim_end_matches([',', ';', '.', ':', ')']));
        match words.last_mut() {
            Some(number) if is_unit && number.ends_with(|c: char| c.is_ascii_digit()) => {
                *number = format!("{number} {word}");
            }
            _ => words.push(word.to_owned()),
        }
    }
    for word in &words {
        let is_whole = length(word) <= columns;
        let parts = word.split_inclusive(|letter| letter == ',' && !is_whole);
        for (part, gap) in parts.zip(std::iter::once(" ").chain(std::iter::repeat(""))) {
            match lines.last_mut() {
                Some(line) if length(line) + gap.len() + length(part) <= columns => {
                    line.push_str(gap);
                    line.push_str(part);
                }
                _ => lines.push(part.to_owned()),
            }
        }
    }
    let full = |line: &String| {
        let characters: Vec<char> = line.chars().collect();
        characters.chunks(columns).map(String::from_iter).collect::<Vec<String>>()
    };
    lines.iter().flat_map(full).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        for (ns, text) in [
            (52_000, "0.052"),
            (1_740_000, "1.74"),
            (24_060_000, "24.1"),
            (99_960_000, "100"),
            (250_700_000, "251"),
            (0, "0"),
        ] {
            assert_eq!(ms(ns), text);
        }
        assert_eq!(thousands(1234), "1234");
        assert_eq!(thousands(26_000), "26\u{202f}000");
        assert_eq!(count(1, "trial"), "1 trial");
    }

    #[test]
    fn a_unit_is_on_the_line_of_its_number() {
        assert_eq!(wrap("up 12 marked (0 %), 30 ms", 16), ["up 12 marked", "(0 %), 30 ms"]);
        assert_eq!(wrap("at p50 of 30 ms", 12), ["at p50 of", "30 ms"]);
    }
}
