//! `underload serve token`: keys, and tokens that are signed with them.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use underload_disk::{Access, create_directory, directory_of};
use underload_probe::control::Fingerprint;
use underload_service::{TokenKeys, TokenTerms};
use underload_terminal::console::{note, warning};
use underload_terminal::exit::OrBadInput;
use underload_terminal::home;

use super::{identity_directory, server_identity};
use underload_terminal::quantity::{from_to, rate};

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
    /// Creates a new key. The previous key stays valid until the next call. A running server reads
    /// the new keys.
    #[command(after_help = "\
Examples:
  underload serve token rotate --keys /etc/underload/keys")]
    Rotate {
        /// The file of keys, which is created if it does not exist.
        #[arg(long, value_name = "FILE")]
        keys: PathBuf,
    },
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
    /// Fingerprint of the server that accepts the token [default: the server of this machine].
    #[arg(long, value_name = "FINGERPRINT")]
    server: Option<Fingerprint>,
    /// Directory of the server's certificate [default: ~/.local/share/underload/server].
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    identity: Option<PathBuf>,
    /// How long the token is valid.
    #[arg(long, value_name = "TIME", value_parser = from_to("1s", "3650d"),
          default_value = "15min")]
    lifetime: Duration,
    /// Number of sessions for which the token is valid.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    uses: u32,
    /// Highest rate of its sessions in each direction [default: that of the server].
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<u64>,
    /// Longest session [default: that of the server].
    #[arg(long, value_name = "TIME", value_parser = from_to("1s", "1d"))]
    session_time: Option<Duration>,
}

pub const WHAT_CREATES_KEYS: &str =
    "no keys for tokens; `underload serve token rotate --keys FILE` creates them";

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Command::Rotate { keys: file } => {
            let folder = directory_of(file);
            create_directory(folder, Access::Owner)
                .with_context(|| folder.display().to_string())
                .or_bad_input()?;
            let keys = TokenKeys::rotate(file).or_bad_input()?;
            note!("{}: keys {keys:?}, the newest first", file.display());
            Ok(())
        }
        Command::New(new) => {
            let keys = TokenKeys::load(&new.keys).context(WHAT_CREATES_KEYS).or_bad_input()?;
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

/// Returns the fingerprint of this machine's server. Creates its certificate if it has none.
fn own_server(directory: Option<&PathBuf>) -> anyhow::Result<Fingerprint> {
    let path = identity_directory(directory)?;
    let is_first = !path.exists();
    let server = server_identity(directory, None)?.fingerprint();
    if is_first {
        warning!(
            "warning: {} had no certificate, so one was created. If your server's certificate is \
             in another directory, it refuses this token: name the directory with --identity",
            path.display()
        );
    }
    Ok(server)
}
