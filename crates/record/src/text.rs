//! Errors in full, and untrusted text made safe for a terminal, a page, a spreadsheet, a shell and
//! Prometheus.

use std::fmt::Display;

/// Replaces a character that a terminal would interpret instead of showing.
const UNSHOWN: char = '\u{fffd}';

/// Returns an error and all its sources, outermost first, in one line.
pub fn in_full(error: &(dyn std::error::Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Replaces characters that move a cursor, set a title or turn the text; line feeds and tabs
/// remain.
pub fn plain_text(text: &str) -> String {
    text.chars().map(|c| if matches!(c, '\n' | '\t') { c } else { shown(c) }).collect()
}

/// As [`plain_text`], on one line: for names and titles.
pub fn one_line(text: &str) -> String {
    text.chars().map(shown).collect()
}

/// Returns a count with its noun in the singular or plural: `1 trial`, `2 trials`.
pub fn count<N: Copy + Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Returns a text as one word of a shell's command line.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./+:=,%@".contains(c);
    if text.chars().all(is_plain) && !text.is_empty() {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns a text as a field of CSV (RFC 4180) that no spreadsheet computes as a formula.
pub fn csv_field(text: &str) -> String {
    let text = one_line(text);
    let is_formula = text.trim_start().starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠']);
    let text = if is_formula { format!("'{text}") } else { text };
    if text.contains([',', '"', ';']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// Returns the value of a label of Prometheus' text format, without its quotes.
pub fn prometheus_label(text: &str) -> String {
    one_line(text).replace('\\', "\\\\").replace('"', "\\\"")
}

/// Returns the character, or a replacement if a terminal or a page would obey it.
pub fn shown(character: char) -> char {
    let turns = matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}' | '\u{feff}');
    if character.is_control() || turns { UNSHOWN } else { character }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced() {
        let hostile = "a\u{1b}]0;own\u{7}b\u{9b}2J\u{202e}c\r\n\td\u{7f}";
        assert_eq!(plain_text(hostile), "a�]0;own�b�2J�c�\n\td�");
        assert_eq!(one_line("two\nlines"), "two�lines");
        assert_eq!(prometheus_label("a\"b\\\nc"), "a\\\"b\\\\�c");
        assert_eq!(plain_text("36 µs – ≥ 1 \u{202f}ü"), "36 µs – ≥ 1 \u{202f}ü");
    }

    #[test]
    fn formulas_are_not_computed_by_spreadsheets() {
        for (text, field) in [
            ("=HYPERLINK(\"x\")", "\"'=HYPERLINK(\"\"x\"\")\""),
            ("+1", "'+1"),
            ("-1", "'-1"),
            (" @x", "' @x"),
            ("\t=1", "\u{fffd}=1"),
            ("a,b", "\"a,b\""),
            ("a\r\n=b", "a\u{fffd}\u{fffd}=b"),
            ("plain", "plain"),
        ] {
            assert_eq!(csv_field(text), field, "{text:?}");
        }
    }

    #[test]
    fn a_count_of_one_is_singular() {
        assert_eq!(count(1_u32, "error"), "1 error");
        assert_eq!(
            (count(0_usize, "flow"), count(2_u64, "flow")),
            ("0 flows".into(), "2 flows".into())
        );
    }

    #[test]
    fn a_word_is_quoted_for_a_shell() {
        for (text, word) in [("a;id", "'a;id'"), ("it's", r"'it'\''s'"), ("", "''"), ("a/b", "a/b")]
        {
            assert_eq!(shell_word(text), word);
        }
    }
}
