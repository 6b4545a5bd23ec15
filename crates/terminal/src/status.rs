//! Exit statuses of subcommands.

use std::io;
use std::process::ExitCode;

use crate::console;
use crate::exit::{BadInput, Stopped};

/// Returns the exit status of an outcome. Prints an error with its causes on one line.
///
/// A reader that closed the pipe (`underload queues | head -1`) ends with status 0. After a signal,
/// which also ends the reader, the signal's status takes precedence.
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

/// Like [`code`], for a subcommand that returns its own exit status.
pub fn own_code(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| code(Err(error)))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = |cause: &(dyn std::error::Error + 'static)| {
        let plain = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        // serde_json does not report an I/O error as its cause.
        plain.or_else(|| cause.downcast_ref::<serde_json::Error>()?.io_error_kind())
    };
    error.chain().filter_map(kind).any(|kind| kind == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;
    use crate::exit::message;

    #[test]
    fn a_signal_decides_the_exit_status_before_a_closed_pipe() {
        let interrupted =
            |error: anyhow::Error| error.context(Stopped::by_signal(2)).context("the sweep");
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
    fn a_closed_pipe_exits_with_success() {
        let closed = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(&anyhow::Error::from(closed).context("writing the table")));
        let of_json = serde_json::Error::io(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(is_broken_pipe(&anyhow::Error::from(of_json).context("writing JSON")));
        let full = serde_json::Error::io(io::Error::from(io::ErrorKind::StorageFull));
        assert!(!is_broken_pipe(&anyhow::Error::from(full)));
    }
}
