//! Consent to measure through a metered connection.

use std::net::SocketAddr;

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
    match console::consent(&format!("{metered}; {CARRIES}. Measure?"))? {
        Some(true) => return Ok(Line::Ignored),
        Some(false) => refuse!("not measured: {metered}"),
        None => {}
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
