//! Messages on the terminal, their colours, and the options of every command.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, BufRead, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

use anstream::AutoStream;
use anyhow::Context as _;
use clap::{Args, ColorChoice};
use serde::Serialize;
use underload_disk::Access;
pub use underload_record::text::count;
use underload_record::text::{self, plain_text};

/// The options that every command has.
#[derive(Debug, Clone, Copy, Args)]
pub struct Options {
    /// Colours: auto is on a terminal, unless the environment has NO_COLOR.
    #[arg(
        long,
        global = true,
        display_order = LAST,
        hide_short_help = true,
        value_name = "WHEN",
        default_value_t = ColorChoice::Auto,
        hide_possible_values = true,
        value_enum
    )]
    color: ColorChoice,
    /// Only results, warnings and errors: no progress, no notes.
    #[arg(short, long, global = true, display_order = LAST, hide_short_help = true)]
    #[arg(conflicts_with = "verbose")]
    quiet: bool,
    /// More: each trial, each cause of an error, where things are read and kept.
    #[arg(short, long, global = true, display_order = LAST, hide_short_help = true)]
    verbose: bool,
}

/// Order in the help, which places these options after those of the command itself.
pub(crate) const LAST: usize = 900;

/// 0 quiet, 1 normal, 2 verbose.
static LOUDNESS: AtomicU8 = AtomicU8::new(1);

impl Options {
    /// Sets the colours and the verbosity of all later output.
    pub fn apply(self) {
        let loudness = if self.quiet { 0 } else { 1 + u8::from(self.verbose) };
        LOUDNESS.store(loudness, Ordering::Relaxed);
        set_colors(self.color);
    }

    /// Returns the same options as words of a command line.
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

fn set_colors(choice: ColorChoice) {
    match choice {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    }
    .write_global();
}

/// Returns the value of `--color` before parsing, because the help is coloured, too.
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

pub fn is_quiet() -> bool {
    LOUDNESS.load(Ordering::Relaxed) == 0
}

pub fn is_verbose() -> bool {
    LOUDNESS.load(Ordering::Relaxed) >= 2
}

/// Prints progress or a note to stderr, unless `--quiet` is set.
pub fn say_note(text: fmt::Arguments<'_>) {
    if !is_quiet() {
        say_warning(text);
    }
}

/// Prints a detail to stderr if `--verbose` is set.
pub fn say_detail(text: fmt::Arguments<'_>) {
    if is_verbose() {
        say_warning(text);
    }
}

/// Prints a warning to stderr, without characters that a terminal obeys. Errors are ignored, because stderr may be closed.
pub fn say_warning(text: fmt::Arguments<'_>) {
    let text = plain_text(&text.to_string());
    let mut stderr = io::stderr().lock();
    let _ = writeln!(stderr, "{}", paint(&text, on_stderr()));
}

/// Asks the person at the terminal. Returns whether the answer is yes; `None` without a terminal.
pub fn consent(question: &str) -> anyhow::Result<Option<bool>> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(None);
    }
    let mut stderr = io::stderr().lock();
    let _ = write!(stderr, "{question} [y/N] ").and_then(|()| stderr.flush());
    is_yes(&mut io::stdin().lock()).map(Some)
}

/// Reads an answer; the end of the input is "no".
fn is_yes(input: &mut dyn BufRead) -> anyhow::Result<bool> {
    let mut answer = String::new();
    input.read_line(&mut answer).context("reading the answer")?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Prints the error that ends the program; with `--verbose`, each cause on its own line.
pub fn say_error(error: &anyhow::Error) {
    let causes = crate::exit::causes(error);
    let between = if is_verbose() { "\n  because " } else { ": " };
    say_warning(format_args!("error: {}", causes.join(between)));
}

/// Returns a path as one word of a shell's command line.
pub fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let text = if text.starts_with('-') { format!("./{text}") } else { text };
    text::shell_word(&text)
}

/// Prints a note: see [`say_note`].
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => { $crate::console::say_note(format_args!($($text)*)) };
}
/// Prints a detail: see [`say_detail`].
#[macro_export]
macro_rules! detail {
    ($($text:tt)*) => { $crate::console::say_detail(format_args!($($text)*)) };
}
/// Prints a warning: see [`say_warning`].
#[macro_export]
macro_rules! warning {
    ($($text:tt)*) => { $crate::console::say_warning(format_args!($($text)*)) };
}
pub use crate::{detail, note, warning};

fn on_stderr() -> bool {
    AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never
}

/// Colours the verdicts in a result if stdout supports colours.
pub fn result(text: &str) -> String {
    let is_colored = AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never;
    paint(&plain_text(text), is_colored).into_owned()
}

pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("writing the result")
}

/// Prints a document as indented JSON on stdout.
pub fn print_json(document: &(impl Serialize + ?Sized)) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, document).context("writing JSON")?;
    writeln!(out).and_then(|()| out.flush()).context("writing JSON")
}

/// Prints a document as indented JSON, or else the text about it.
pub fn print_as(
    is_json: bool,
    document: &(impl Serialize + ?Sized),
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    if is_json { print_json(document) } else { print(&text()) }
}

/// Writes a file whole or not at all.
pub fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    underload_disk::write_whole(path, bytes, Access::Usual)
        .with_context(|| format!("writing {}", path.display()))
}

/// Words that are coloured: bold red, red, yellow, cyan, green.
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

/// Colours the words in [`WORDS`].
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_words_are_coloured() {
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
    fn only_yes_is_consent() {
        for (answer, is_consent) in
            [("y\n", true), (" YES \n", true), ("n\n", false), ("\n", false), ("", false)]
        {
            assert_eq!(is_yes(&mut answer.as_bytes()).expect("it reads"), is_consent, "{answer:?}");
        }
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
    fn paths_are_quoted_for_a_shell() {
        for (path, word) in [
            ("runs/first.toml", "runs/first.toml"),
            ("x z.toml", "'x z.toml'"),
            ("it's", r"'it'\''s'"),
            ("-x", "./-x"),
        ] {
            assert_eq!(shell_word(Path::new(path)), word);
        }
    }
}
