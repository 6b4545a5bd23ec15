//! Consent to measure through a metered connection.

use std::io::{self, BufRead, IsTerminal as _};
use std::net::SocketAddr;

use anyhow::Context as _;
use underload_line::target::{Family, resolve};
use underload_probe::control::SERVER_PORT;
use underload_probe::network::{Line, metered};
use underload_terminal::console::{self, note};
use underload_terminal::exit::refuse;

use super::Arguments;

const CARRIES: &str = "a measurement moves all that a line carries, 125 MB in 10 s at 100 Mbit/s";

/// Asks on a terminal whether to measure through a metered connection. Returns the interfaces that
/// a series must not use while they are metered: the list is empty once the user has agreed.
///
/// # Errors
/// Returns an error if the user declines, or without a terminal if `--every` is given.
pub fn ask(arguments: &Arguments) -> anyhow::Result<Line> {
    let line = match arguments.dev.as_slice() {
        _ if arguments.yes => Line::Ignored,
        [] => Line::OfDefaultRoutes,
        names => Line::Named(names.to_vec()),
    };
    let Some(metered) = metered(&line) else { return Ok(line) };
    if arguments.dev.is_empty() && is_local(&arguments.host) {
        return Ok(Line::Ignored);
    }
    if io::stdin().is_terminal() && io::stderr().is_terminal() {
        console::ask(&format!("{metered}; {CARRIES}. Measure? [y/N] "));
        if !is_yes(&mut io::stdin().lock())? {
            refuse!("not measured: {metered}");
        }
        return Ok(Line::Ignored);
    }
    if arguments.every.is_some() {
        refuse!("--every: {metered}; {CARRIES}: expected --yes to measure through it");
    }
    note!("{metered}; {CARRIES}");
    Ok(line)
}

/// Whether the server is on this machine.
fn is_local(host: &str) -> bool {
    let is_loopback = |it: &SocketAddr| it.ip().is_loopback();
    resolve(host, SERVER_PORT, Family::Any)
        .is_ok_and(|target| target.addresses.iter().all(is_loopback))
}

/// Reads an answer; the end of the input is "no".
fn is_yes(input: &mut dyn BufRead) -> anyhow::Result<bool> {
    let mut answer = String::new();
    input.read_line(&mut answer).context("reading the answer")?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_consent() {
        for (answer, is_consent) in
            [("y\n", true), (" YES \n", true), ("n\n", false), ("\n", false), ("", false)]
        {
            assert_eq!(is_yes(&mut answer.as_bytes()).unwrap(), is_consent, "{answer:?}");
        }
    }
}
