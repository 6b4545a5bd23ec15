//! How a subcommand's outcome becomes an exit status and one message on stderr.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// Marks an error as the input's fault: exit status 2 instead of 1.
#[derive(Debug)]
pub struct BadInput;

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bad input")
    }
}

impl std::error::Error for BadInput {}

/// Says that an error is the input's fault.
pub trait OrBadInput<T> {
    /// Turns the error into one that ends the program with status 2.
    fn or_bad_input(self) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> OrBadInput<T> for Result<T, E> {
    fn or_bad_input(self) -> anyhow::Result<T> {
        self.map_err(bad_input)
    }
}

/// An error that is the input's fault.
pub fn bad_input(error: impl Into<anyhow::Error>) -> anyhow::Error {
    // The mark goes outermost, where `code` finds it and leaves it out of the message.
    error.into().context(BadInput)
}

/// The exit status of an outcome; an error is printed with its causes on one line.
///
/// A reader that closed the pipe (`underload queues | head -1`) has had what it wanted: status 0.
pub fn code(outcome: anyhow::Result<()>) -> ExitCode {
    let Err(error) = outcome else {
        return ExitCode::SUCCESS;
    };
    if is_broken_pipe(&error) {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {}", message(&error));
    if error.downcast_ref::<BadInput>().is_some() { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// As [`code`], for a subcommand that has an exit status of its own to give.
pub fn own_code(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| code(Err(error)))
}

/// The chain of causes, outermost first, without the mark.
pub fn message(error: &anyhow::Error) -> String {
    let mark = BadInput.to_string();
    let causes: Vec<String> =
        error.chain().map(ToString::to_string).filter(|cause| *cause != mark).collect();
    // Causes quote files of strangers.
    underload_report::plain_text(&causes.join(": "))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = |cause: &(dyn std::error::Error + 'static)| {
        let plain = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        // What a writer said is not among the causes of what the encoder says.
        plain.or_else(|| cause.downcast_ref::<serde_json::Error>()?.io_error_kind())
    };
    error.chain().filter_map(kind).any(|kind| kind == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn bad_input_is_found_under_context_and_not_printed() {
        let outcome: anyhow::Result<()> = Err(anyhow!("rate: no unit")).or_bad_input();
        let error = outcome.context("scenario x.toml").unwrap_err();
        assert!(error.downcast_ref::<BadInput>().is_some());
        assert_eq!(message(&error), "scenario x.toml: rate: no unit");
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let closed = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(&anyhow::Error::from(closed).context("writing the table")));
        let of_json = serde_json::Error::io(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(is_broken_pipe(&anyhow::Error::from(of_json).context("writing JSON")));
        let full = serde_json::Error::io(io::Error::from(io::ErrorKind::StorageFull));
        assert!(!is_broken_pipe(&anyhow::Error::from(full)));
    }

    #[test]
    fn a_strangers_words_do_not_drive_the_terminal() {
        let error = anyhow!("scenario x: unknown key \u{1b}]0;own\u{7}");
        assert_eq!(message(&error), "scenario x: unknown key \u{fffd}]0;own\u{fffd}");
    }
}
