//! Errors with exit statuses.

use std::fmt;

use underload_record::text::plain_text;

/// Exit status of a line that is worse than a condition allows: `--fail-if`, `--alert`.
pub const WORSE: u8 = 3;

/// Marks an error as caused by the input: exit status 2 instead of 1.
#[derive(Debug)]
pub struct BadInput;

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bad input")
    }
}

impl std::error::Error for BadInput {}

/// Marks an error as caused by a signal: exit status 128 plus its number, as shells report it.
#[derive(Debug, Clone, Copy)]
pub struct Stopped {
    pub status: u8,
}

impl Stopped {
    /// The status for a signal number.
    pub fn by_signal(signal: usize) -> Self {
        Self { status: u8::try_from(128 + signal).unwrap_or(u8::MAX) }
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stopped by a signal")
    }
}

impl std::error::Error for Stopped {}

/// Marks errors as caused by the input.
pub trait OrBadInput<T, E> {
    /// Marks the error as caused by the input.
    fn or_bad_input(self) -> anyhow::Result<T>;
    /// Marks the error as caused by the input if `is_bad_input` says so.
    fn bad_input_if(self, is_bad_input: impl FnOnce(&E) -> bool) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> OrBadInput<T, E> for Result<T, E> {
    fn or_bad_input(self) -> anyhow::Result<T> {
        self.map_err(bad_input)
    }

    fn bad_input_if(self, is_bad_input: impl FnOnce(&E) -> bool) -> anyhow::Result<T> {
        self.map_err(|error| if is_bad_input(&error) { bad_input(error) } else { error.into() })
    }
}

/// Marks an error as caused by the input.
pub fn bad_input(error: impl Into<anyhow::Error>) -> anyhow::Error {
    // The mark is the outermost error, so that `causes` can remove it before the message is
    // printed.
    error.into().context(BadInput)
}

/// Returns an error that is the input's fault, as `anyhow::bail!` does with any other.
#[macro_export]
macro_rules! refuse {
    ($($text:tt)*) => { return Err($crate::exit::bad_input(::anyhow::anyhow!($($text)*))) };
}
pub use crate::refuse;

/// The causes on one line, outermost first.
#[cfg(test)]
pub fn message(error: &anyhow::Error) -> String {
    causes(error).join(": ")
}

/// Returns the causes without marks, outermost first.
pub fn causes(error: &anyhow::Error) -> Vec<String> {
    let marks = [BadInput.to_string(), Stopped::by_signal(0).to_string()];
    let causes = error.chain().map(ToString::to_string).filter(|cause| !marks.contains(cause));
    // Causes may quote untrusted files.
    causes.map(|cause| plain_text(&cause)).collect()
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};

    use super::*;

    #[test]
    fn bad_input_is_found_under_context_and_not_printed() {
        let outcome: anyhow::Result<()> = Err(anyhow!("rate: no unit")).or_bad_input();
        let error = outcome.context("scenario x.toml").unwrap_err();
        assert!(error.downcast_ref::<BadInput>().is_some());
        assert_eq!(message(&error), "scenario x.toml: rate: no unit");
    }

    #[test]
    fn foreign_text_cannot_control_the_terminal() {
        let error = anyhow!("scenario x: unknown key \u{1b}]0;own\u{7}");
        assert_eq!(message(&error), "scenario x: unknown key \u{fffd}]0;own\u{fffd}");
    }
}
