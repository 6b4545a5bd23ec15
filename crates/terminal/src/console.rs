//! What the terminal is told, and in which colours: the options that every command has.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU8, Ordering};

use anstream::AutoStream;
use clap::{Args, ColorChoice};

/// The options that every command has.
#[derive(Debug, Clone, Copy, Args)]
pub struct Options {
    /// Colours: auto is on a terminal, unless the environment has NO_COLOR.
    #[arg(
        long,
        global = true,
        display_order = LAST,
        value_name = "WHEN",
        default_value_t = ColorChoice::Auto,
        hide_possible_values = true,
        value_enum
    )]
    color: ColorChoice,
    /// Only results, warnings and errors: no progress, no notes.
    #[arg(short, long, global = true, display_order = LAST, conflicts_with = "verbose")]
    quiet: bool,
    /// More: each trial, each cause of an error, where things are read and kept.
    #[arg(short, long, global = true, display_order = LAST)]
    verbose: bool,
}

/// Behind the options of the command itself.
const LAST: usize = 900;

/// 0 quiet, 1 as usual, 2 verbose.
static LOUDNESS: AtomicU8 = AtomicU8::new(1);

impl Options {
    /// Holds from now on.
    pub fn apply(self) {
        let loudness = if self.quiet { 0 } else { 1 + u8::from(self.verbose) };
        LOUDNESS.store(loudness, Ordering::Relaxed);
        set_colors(self.color);
    }

    /// Returns the words of a command line that mean the same.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        let color = match self.color {
            ColorChoice::Auto => None,
            ColorChoice::Always => Some("--color=always"),
            ColorChoice::Never => Some("--color=never"),
        };
        let quiet = self.quiet.then_some("--quiet");
        let verbose = self.verbose.then_some("--verbose");
        color.into_iter().chain(quiet).chain(verbose)
    }
}

/// Colours of all that is printed from now on.
fn set_colors(choice: ColorChoice) {
    match choice {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    }
    .write_global();
}

/// What `--color` says in a command line that is not read yet: its help is coloured, too.
pub fn color_asked(words: impl Iterator<Item = std::ffi::OsString>) -> ColorChoice {
    let mut choice = ColorChoice::Auto;
    let mut is_value = false;
    for word in words.skip(1).take_while(|word| word != "--") {
        let Some(word) = word.to_str() else { continue };
        let value = if is_value { Some(word) } else { word.strip_prefix("--color=") };
        is_value = word == "--color";
        choice = match value {
            Some("always") => ColorChoice::Always,
            Some("never") => ColorChoice::Never,
            _ => choice,
        };
    }
    choice
}

/// Whether only results, warnings and errors are wanted.
pub fn is_quiet() -> bool {
    LOUDNESS.load(Ordering::Relaxed) == 0
}

/// Whether more is wanted than usual.
pub fn is_verbose() -> bool {
    LOUDNESS.load(Ordering::Relaxed) >= 2
}

/// Progress and prose on stderr, left out by `--quiet`.
pub fn say_note(text: fmt::Arguments<'_>) {
    if !is_quiet() {
        say_warning(text);
    }
}

/// What only `--verbose` tells.
pub fn say_detail(text: fmt::Arguments<'_>) {
    if is_verbose() {
        say_warning(text);
    }
}

/// What is always told on stderr. A stderr that is closed is no reason to end.
pub fn say_warning(text: fmt::Arguments<'_>) {
    let text = text.to_string();
    let mut stderr = io::stderr().lock();
    let _ = writeln!(stderr, "{}", paint(&text, on_stderr()));
}

/// Why the program ends; verbosely, each cause on a line of its own.
pub fn say_error(error: &anyhow::Error) {
    let causes = crate::exit::causes(error);
    let between = if is_verbose() { "\n  because " } else { ": " };
    say_warning(format_args!("error: {}", causes.join(between)));
}

/// Progress and prose: see [`say_note`].
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => { $crate::console::say_note(format_args!($($text)*)) };
}
/// What only `--verbose` tells: see [`say_detail`].
#[macro_export]
macro_rules! detail {
    ($($text:tt)*) => { $crate::console::say_detail(format_args!($($text)*)) };
}
/// What is always told: see [`say_warning`].
#[macro_export]
macro_rules! warning {
    ($($text:tt)*) => { $crate::console::say_warning(format_args!($($text)*)) };
}
pub use crate::{detail, note, warning};

fn on_stderr() -> bool {
    AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never
}

/// A result with its verdicts in colour, where stdout takes colours.
pub fn result(text: &str) -> Cow<'_, str> {
    paint(text, AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never)
}

/// Words that say how it went, and their colours: bold red, red, yellow, green.
const WORDS: [(&str, &str); 9] = [
    ("INVALID", "1;31"),
    ("INCOMPLETE", "1;31"),
    ("error:", "1;31"),
    ("failed", "31"),
    ("missed", "31"),
    ("MISSED", "31"),
    ("warning:", "33"),
    ("note:", "36"),
    ("met", "32"),
];

/// Text with the words that say how it went in their colours.
fn paint(text: &str, colored: bool) -> Cow<'_, str> {
    if !colored || !WORDS.iter().any(|(word, _)| text.contains(word)) {
        return Cow::Borrowed(text);
    }
    let is_inside = |c: char| c.is_alphanumeric() || "_-/.".contains(c);
    let mut painted = String::with_capacity(text.len() + 64);
    let mut rest = text;
    while !rest.is_empty() {
        let before = painted.chars().next_back();
        let starts = before.is_none_or(|c| !is_inside(c));
        let found = WORDS.iter().find(|(word, _)| {
            let after = || rest[word.len()..].chars().next();
            starts && rest.starts_with(word) && after().is_none_or(|c| !is_inside(c))
        });
        if let Some((word, code)) = found {
            let _ = write!(painted, "\u{1b}[{code}m{word}\u{1b}[0m");
            rest = &rest[word.len()..];
        } else if let Some(c) = rest.chars().next() {
            painted.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    Cow::Owned(painted)
}

/// `1 trial`, `2 trials`: a count with its word in the right number.
pub fn count(number: usize, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_words_are_painted() {
        assert_eq!(
            paint("2 missed, 3 met", true),
            "2 \u{1b}[31mmissed\u{1b}[0m, 3 \u{1b}[32mmet\u{1b}[0m"
        );
        for plain in ["a method", "unmet", "INVALIDATED", "not-met", "met/else"] {
            assert_eq!(paint(plain, true), plain);
        }
        assert_eq!(paint("INVALID", false), "INVALID");
    }

    #[test]
    fn colors_are_known_before_the_command_line_is_read() {
        let asked = |words: &[&str]| color_asked(words.iter().map(Into::into));
        assert_eq!(asked(&["underload", "run", "--color=never", "--help"]), ColorChoice::Never);
        assert_eq!(asked(&["underload", "--color", "always"]), ColorChoice::Always);
        assert_eq!(asked(&["underload", "link", "--", "ls", "--color=always"]), ColorChoice::Auto);
        assert_eq!(asked(&["underload", "--color", "sometimes"]), ColorChoice::Auto);
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(count(1, "error"), "1 error");
        assert_eq!((count(0, "flow"), count(2, "flow")), ("0 flows".into(), "2 flows".into()));
    }
}
