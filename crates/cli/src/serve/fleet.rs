//! Command-line options that make a measurement server a member of a fleet.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use underload_agent::Trust;
use underload_agent::address::Address;
use underload_agent::arguments::code;
use underload_agent::client::Client;
use underload_agent::identity::Identity;
use underload_agent::member::{Member, MemberError};
use underload_fleet::message::ServerAddress;
use underload_terminal::console::warning;
use underload_terminal::exit::OrBadInput;

#[derive(Debug, Args)]
#[group(id = "fleet")]
pub struct Arguments {
    /// An orchestrator, https://HOST:PORT, whose leases the server accepts; may be given several
    /// times, for orchestrators that replace each other.
    #[arg(long = "fleet", value_name = "URL", requires_all = ["name", "public"])]
    #[arg(hide_short_help = true)]
    orchestrators: Vec<Address>,
    /// A code from the orchestrator's operator for this server; needed once. Other users of the
    /// machine can read command lines, but not UNDERLOAD_CODE in the environment.
    #[arg(long, value_name = "CODE", requires = "orchestrators", hide_short_help = true)]
    enrol: Option<String>,
    /// The server's name in the fleet.
    #[arg(long, value_name = "NAME", requires = "orchestrators", hide_short_help = true)]
    name: Option<String>,
    /// The address at which agents reach the server.
    #[arg(long, value_name = "HOST:PORT", requires = "orchestrators", hide_short_help = true)]
    public: Option<String>,
    /// The key of the orchestrators, "sha256:" and 64 digits [default: the system's authorities].
    #[arg(long, value_name = "KEY", requires = "orchestrators", hide_short_help = true)]
    fleet_trust: Option<Trust>,
}

impl Arguments {
    pub fn is_member(&self) -> bool {
        !self.orchestrators.is_empty()
    }

    /// Returns the server's membership, whose key is in the directory `state`. `None` without
    /// --fleet.
    pub fn member(
        &self,
        state: impl FnOnce() -> anyhow::Result<PathBuf>,
        fingerprint: String,
    ) -> anyhow::Result<Option<Member>> {
        if !self.is_member() {
            return Ok(None);
        }
        let trust = self.fleet_trust.unwrap_or(Trust::Authorities);
        let client = Client::new(self.orchestrators.clone(), trust)?;
        let identity =
            Identity::load_or_create(&state()?.join("fleet")).context("the server's fleet key")?;
        let address = ServerAddress {
            name: self.name.clone().unwrap_or_default(),
            address: self.public.clone().unwrap_or_default(),
            fingerprint,
        };
        let print = |line: &str| warning!("{line}");
        match Member::new(client, identity, code(self.enrol.as_deref()), address, print) {
            Err(error @ MemberError::NoCode) => Err(error).or_bad_input(),
            member => Ok(Some(member?)),
        }
    }
}
