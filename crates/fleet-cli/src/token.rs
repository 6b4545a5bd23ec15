//! `underload fleet token`: makes and revokes the tokens of viewers and operators.

use std::io::Write as _;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand, ValueEnum};
use underload_fleet::store::{LogEntry, Needs, StoreError, Transaction};
use underload_orchestrator::http::system_ms;
use underload_orchestrator::operator::{Role, TokenName, new_secret, new_token, revoke};
use underload_orchestrator::store::Place;
use underload_terminal::exit::bad_input;
use underload_terminal::home;

use super::orchestrator::existing_store;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  underload fleet token new ana --role viewer
  underload fleet token revoke ana")]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Prints a new token, and revokes the one that had the same name.
    New(New),
    /// Revokes a token, and ends the sessions that were opened with it.
    Revoke(Revoke),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  underload fleet token new ana
  underload fleet token new ben --role operator --valid 30")]
struct New {
    /// Name of its owner, under which the log stores what an operator does.
    name: TokenName,
    /// The rights of the token's owner.
    #[arg(long, value_enum, default_value_t = MayDo::Viewer)]
    role: MayDo,
    /// Days until it expires.
    #[arg(long, value_name = "DAYS", default_value_t = 90,
        value_parser = clap::value_parser!(u16).range(1..=3_660))]
    valid: u16,
    /// The orchestrator's store [default: sqlite:~/.local/share/underload/fleet].
    #[arg(long, value_name = "STORE")]
    store: Option<Place>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  underload fleet token revoke ana")]
struct Revoke {
    /// Name of its owner.
    name: TokenName,
    /// The orchestrator's store [default: sqlite:~/.local/share/underload/fleet].
    #[arg(long, value_name = "STORE")]
    store: Option<Place>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MayDo {
    /// Reads results of cohorts, not of single devices.
    Viewer,
    /// Also reads single devices, makes codes, applies and stops plans, removes devices.
    Operator,
}

/// The author of these changes in the log: they need write access to the store and no token.
const SHELL: &str = "the store's owner";
const DAY_MS: u64 = 86_400_000;

impl Arguments {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            Command::New(new) => new.run(),
            Command::Revoke(it) => it.run(),
        }
    }
}

impl New {
    fn run(&self) -> anyhow::Result<()> {
        let role = match self.role {
            MayDo::Viewer => Role::Viewer,
            MayDo::Operator => Role::Operator,
        };
        let now_ms = system_ms();
        let until_ms = now_ms + u64::from(self.valid) * DAY_MS;
        let secret = new_secret().context("making a token")?;
        let token = change(self.store.as_ref(), |tx| {
            let token = new_token(tx, &self.name, role, until_ms, secret)?;
            tx.log(&entry(now_ms, format!("made the token {}", self.name)))?;
            Ok(token)
        })?;
        home::private_stdout()?;
        writeln!(std::io::stdout(), "{token}").context("writing the token")
    }
}

impl Revoke {
    fn run(&self) -> anyhow::Result<()> {
        let was_known = change(self.store.as_ref(), |tx| {
            let was_known = revoke(tx, &self.name)?;
            tx.log(&entry(system_ms(), format!("revoked the token {}", self.name)))?;
            Ok(was_known)
        })?;
        if was_known {
            return Ok(());
        }
        Err(bad_input(anyhow!("no token `{}`", self.name)))
    }
}

fn entry(at_ms: u64, what: String) -> LogEntry {
    LogEntry { at_ms, who: SHELL.to_owned(), what }
}

fn change<T>(
    named: Option<&Place>,
    make: impl FnOnce(&mut dyn Transaction) -> Result<T, StoreError>,
) -> anyhow::Result<T> {
    let place = existing_store(named)?;
    let change = || {
        let mut store = place.beside()?;
        let mut tx = store.begin(&Needs { admits: true, ..Needs::default() })?;
        let made = make(&mut *tx)?;
        tx.commit().map(|()| made)
    };
    change().with_context(|| place.to_string())
}
