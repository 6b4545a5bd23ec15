//! `underload serve token`: keys, and tokens that are signed with them.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use underload_probe::control::Fingerprint;
use underload_service::{TokenKeys, TokenTerms};
use underload_terminal::console::{note, warning};
use underload_terminal::exit::OrBadInput;
use underload_terminal::home;

use super::{identity_directory, server_identity};
use crate::quantity::{duration, rate};

/// The command line of `underload serve token`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  underload serve token rotate --keys /etc/underload/keys
  underload serve token new --keys /etc/underload/keys > token")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Prints a new token.
    New(New),
    /// Makes a new key; the one before stays valid until the next time. A running server notices.
    Rotate(Rotate),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  underload serve token new --keys /etc/underload/keys > token
  underload serve token new --keys /etc/underload/keys --uses 100 --lifetime 30d --rate 1gbit")]
struct New {
    /// The file of keys.
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// Fingerprint of the server that it is for [default: the one that this machine would be].
    #[arg(long, value_name = "FINGERPRINT")]
    server: Option<Fingerprint>,
    /// Where the server keeps its certificate, if not in its usual place.
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    identity: Option<PathBuf>,
    /// How long it is good.
    #[arg(long, value_name = "TIME", value_parser = a_second_or_more,
          default_value = "15min")]
    lifetime: Duration,
    /// For how many sessions it is good.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    uses: u32,
    /// Highest rate of its sessions in either direction.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<u64>,
    /// Longest session.
    #[arg(long, value_name = "TIME", value_parser = a_second_or_more)]
    session_time: Option<Duration>,
}

/// Tokens count whole seconds: with less than one they could never be used.
fn a_second_or_more(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < Duration::from_secs(1) => Err("expected 1s or more".to_owned()),
        length => Ok(length),
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  underload serve token rotate --keys /etc/underload/keys")]
struct Rotate {
    /// The file of keys, made where it does not exist.
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
}

/// Makes what was asked for.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Command::Rotate(rotate) => {
            let keys = TokenKeys::rotate(&rotate.keys).or_bad_input()?;
            note!("{}: keys {keys:?}, the newest first", rotate.keys.display());
            Ok(())
        }
        Command::New(new) => {
            let keys = TokenKeys::load(&new.keys).or_bad_input()?;
            let server = match new.server {
                Some(server) => server,
                None => own_server(new.identity.as_ref())?,
            };
            let terms = TokenTerms {
                lifetime: new.lifetime,
                uses: new.uses,
                rate_bit_per_s: new.rate,
                duration: new.session_time,
            };
            let token = keys.issue(server, &terms)?;
            home::private_stdout()?;
            writeln!(std::io::stdout(), "{token}")?;
            Ok(())
        }
    }
}

/// The server that this machine is, or would be.
fn own_server(directory: Option<&PathBuf>) -> anyhow::Result<Fingerprint> {
    let place = identity_directory(directory)?;
    let is_first = !place.exists();
    let server = server_identity(directory, None)?.fingerprint();
    if is_first {
        warning!(
            "warning: no server had a certificate in {}, so one was made. If yours keeps it \
             elsewhere, name the place by --identity: it refuses this token",
            place.display()
        );
    }
    Ok(server)
}
