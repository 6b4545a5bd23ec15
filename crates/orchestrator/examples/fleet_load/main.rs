//! The load that an orchestrator sustains: `fleet_load uploads|steady|return [OPTIONS]`.
//!
//! The orchestrator is another process, over TLS on loopback and with SQLite in a scratch
//! directory; both share the processors of this machine. It has the default limits.
//!
//! - `uploads [--seconds N] [--rounds N]`: results as fast as 256 connections hand them in,
//!   compared with a server that only stores the bytes of these requests.
//! - `steady [--seconds N] [--devices N]`: the requests of ten million devices, at their rate.
//! - `return [--agents N] [--within SECONDS]`: agents that all return after an outage.

#![expect(clippy::print_stderr, reason = "an example prints its progress")]
#![expect(clippy::print_stdout, reason = "an example that prints its tables")]

mod bare;
mod client;
mod comeback;
mod fleet;
mod host;
mod steady;
mod uploads;

use std::path::Path;

use anyhow::{Context, bail};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["uploads", rest @ ..] => {
            uploads::run(number(rest, "--seconds", 5)?, number(rest, "--rounds", 5)?)
        }
        ["steady", rest @ ..] => {
            steady::run(number(rest, "--seconds", 600)?, number(rest, "--devices", 500_000)?)
        }
        ["return", rest @ ..] => {
            comeback::run(number(rest, "--agents", 100_000)?, number(rest, "--within", 60)?)
        }
        // The commands that the other processes run, started by this one.
        ["serve", directory] => host::serve(Path::new(directory)),
        ["serve-bare", directory] => bare::serve(Path::new(directory)),
        _ => bail!("usage: fleet_load uploads|steady|return [--seconds N] [--rounds N] ..."),
    }
}

/// Returns the value of an option; `None` if it is missing.
fn number(arguments: &[&str], name: &str, default: u32) -> anyhow::Result<u32> {
    let Some(place) = arguments.iter().position(|it| *it == name) else { return Ok(default) };
    let value = arguments.get(place + 1).with_context(|| format!("{name} needs a value"))?;
    value.parse().with_context(|| format!("{name} {value}"))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the quantile `share`.
fn quantile(sorted: &[u32], share: f64) -> u32 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0)
}
