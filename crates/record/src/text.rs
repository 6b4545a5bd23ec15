//! Untrusted text, made safe for a terminal.

/// Replaces a character that a terminal would interpret instead of showing.
const UNSHOWN: char = '\u{fffd}';

/// Replaces characters that move a cursor, set a title or turn the text; line feeds remain.
pub fn plain_text(text: &str) -> String {
    text.chars().map(|c| if c == '\n' { c } else { shown(c) }).collect()
}

/// As [`plain_text`], on one line: for names and titles.
pub fn one_line(text: &str) -> String {
    text.chars().map(shown).collect()
}

fn shown(character: char) -> char {
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
        assert_eq!(plain_text(hostile), "a�]0;own�b�2J�c�\n�d�");
        assert_eq!(one_line("two\nlines"), "two�lines");
        assert_eq!(plain_text("36 µs – ≥ 1 \u{202f}ü"), "36 µs – ≥ 1 \u{202f}ü");
    }
}
