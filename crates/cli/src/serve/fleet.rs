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
use underload_terminal::exit::OrBadInput;

/// What makes a server one of a fleet.
#[derive(Debug, Args)]
#[group(id = "fleet")]
pub struct Arguments {
    /// An orchestrator, https://HOST:PORT, whose leases are honoured; may be given several
    /// times, for when one is away.
    #[arg(long = "fleet", value_name = "URL", requires_all = ["name", "public"])]
    orchestrators: Vec<Address>,
    /// A code that an orchestrator's operator made for a server; needed once. Every user of a
    /// machine can read its command lines: UNDERLOAD_CODE in the environment does the same unseen.
    #[arg(long, value_name = "CODE", requires = "orchestrators")]
    enrol: Option<String>,
    /// This server's name in the fleet.
    #[arg(long, value_name = "NAME", requires = "orchestrators")]
    name: Option<String>,
    /// Where lines reach it.
    #[arg(long, value_name = "HOST:PORT", requires = "orchestrators")]
    public: Option<String>,
    /// The key of the orchestrators, "sha256:" and 64 digits [default: the system's authorities].
    #[arg(long, value_name = "KEY", requires = "orchestrators")]
    fleet_trust: Option<Trust>,
}

impl Arguments {
    /// Whether it is one of a fleet.
    pub fn is_member(&self) -> bool {
        !self.orchestrators.is_empty()
    }

    /// Its place in the fleet, with a key that is kept there; `None` for a server of no fleet.
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
        let identity = Identity::load_or_create(&state()?.join("fleet")).context("its key")?;
        let address = ServerAddress {
            name: self.name.clone().unwrap_or_default(),
            address: self.public.clone().unwrap_or_default(),
            fingerprint,
        };
        let tell = |words: &str| eprintln!("{words}");
        match Member::new(client, identity, code(self.enrol.as_deref()), address, tell) {
            Err(error @ MemberError::NoCode) => Err(error).or_bad_input(),
            member => Ok(Some(member?)),
        }
    }
}
