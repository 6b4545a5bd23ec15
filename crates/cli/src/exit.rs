//! How a subcommand's outcome becomes an exit status and one message on stderr.

use std::fmt;
use std::io;
use std::process::ExitCode;

use crate::console;

/// Marks an error as the input's fault: exit status 2 instead of 1.
#[derive(Debug)]
pub struct BadInput;

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bad input")
    }
}

impl std::error::Error for BadInput {}

/// Marks an error as the end that a signal asked for: exit status 128 + its number, as a shell
/// tells of a program that the signal ended.
#[derive(Debug, Clone, Copy)]
pub struct Stopped {
    status: u8,
}

impl Stopped {
    /// By the signal of that number.
    pub fn by(signal: usize) -> Self {
        Self { status: u8::try_from(128 + signal).unwrap_or(u8::MAX) }
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stopped by a signal")
    }
}

impl std::error::Error for Stopped {}

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
/// Who pressed Ctrl-C ended the reader as well: that is no such case.
pub fn code(outcome: anyhow::Result<()>) -> ExitCode {
    let Err(error) = outcome else {
        return ExitCode::SUCCESS;
    };
    let stopped = error.downcast_ref::<Stopped>();
    if stopped.is_none() && is_broken_pipe(&error) {
        return ExitCode::SUCCESS;
    }
    console::say_error(&error);
    if let Some(stopped) = stopped {
        return ExitCode::from(stopped.status);
    }
    if error.downcast_ref::<BadInput>().is_some() { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// As [`code`], for a subcommand that has an exit status of its own to give.
pub fn own_code(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| code(Err(error)))
}

/// The chain of causes on one line, outermost first, without the marks.
#[cfg(test)]
pub fn message(error: &anyhow::Error) -> String {
    causes(error).join(": ")
}

/// Each cause, outermost first, without the marks.
pub fn causes(error: &anyhow::Error) -> Vec<String> {
    let marks = [BadInput.to_string(), Stopped::by(0).to_string()];
    let causes = error.chain().map(ToString::to_string).filter(|cause| !marks.contains(cause));
    // Causes quote files of strangers.
    causes.map(|cause| underload_report::plain_text(&cause)).collect()
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
    fn what_a_signal_ended_has_its_status_whatever_the_reader_did() {
        let interrupted = |error: anyhow::Error| error.context(Stopped::by(2)).context("the sweep");
        let status = |error| format!("{:?}", code(Err(error)));
        assert_eq!(message(&interrupted(anyhow!("after 1 of 2"))), "the sweep: after 1 of 2");
        assert_eq!(
            status(interrupted(anyhow!("after 1 of 2"))),
            format!("{:?}", ExitCode::from(130))
        );
        let closed = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(status(interrupted(closed)), format!("{:?}", ExitCode::from(130)));
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
