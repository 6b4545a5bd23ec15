//! Commands that an operator sends to a running orchestrator: plans, codes, removals.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use underload_agent::Trust;
use underload_agent::address::Address;
use underload_agent::client::Client;
use underload_fleet::agent::Trouble;
use underload_fleet::device::{Attributes, DeviceId};
use underload_fleet::operator::{self, ApplyPlan, NewCodes, RemoveDevice, SetServerAddress};
use underload_fleet::store::CodeFor;
use underload_record::text::one_line;
use underload_terminal::console::note;
use underload_terminal::exit::{OrBadInput, bad_input};
use underload_terminal::home;

use super::lines::{self, List};
use super::orchestrator::{PORT, default_token};

/// Options that name the orchestrator and the operator.
#[derive(Debug, Args)]
pub(super) struct Reach {
    /// The orchestrator, https://HOST or https://HOST:PORT [default: this machine's].
    #[arg(long, value_name = "URL")]
    orchestrator: Option<Address>,
    /// A file with an operator's token [default: that of this machine's orchestrator].
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    /// Fingerprint of the orchestrator's key, "sha256:" and 64 digits [default: trust the system's
    /// authorities].
    #[arg(long, value_name = "KEY")]
    trust: Option<Trust>,
}

impl Reach {
    /// Sends `message` and returns the answer.
    pub(super) fn ask<M: operator::Message>(&self, message: &M) -> anyhow::Result<M::Answer> {
        self.ask_again(message, 0)
    }

    /// As [`Self::ask`], for one of many messages: waits if the orchestrator accepts no more now.
    pub(super) fn ask_patiently<M: operator::Message>(
        &self,
        message: &M,
    ) -> anyhow::Result<M::Answer> {
        self.ask_again(message, RETRIES)
    }

    fn ask_again<M: operator::Message>(
        &self,
        message: &M,
        mut retries: u32,
    ) -> anyhow::Result<M::Answer> {
        let token = match &self.token {
            Some(token) => token.clone(),
            None => token_of_this_machine()?,
        };
        let token = home::secret_line(&token).context("the operator's token").or_bad_input()?;
        let here = || format!("http://127.0.0.1:{PORT}").parse();
        let orchestrator = self.orchestrator.clone().map_or_else(here, Ok)?;
        let mut client = Client::new(vec![orchestrator], self.trust.unwrap_or(Trust::Authorities))?;
        loop {
            let failure = match client.ask_as_operator(&token, message) {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            match failure.trouble {
                Trouble::Later { after_ms } if retries > 0 => {
                    retries -= 1;
                    std::thread::sleep(Duration::from_millis(after_ms));
                }
                Trouble::Refused | Trouble::Unfit | Trouble::Outdated => {
                    return Err(bad_input(failure));
                }
                _ => return Err(anyhow!(failure)),
            }
        }
    }
}

/// How often one of many messages is sent again.
const RETRIES: u32 = 10;

fn token_of_this_machine() -> anyhow::Result<PathBuf> {
    let token = default_token()?;
    if token.try_exists().is_ok_and(|exists| !exists) {
        return Err(bad_input(anyhow!(
            "no orchestrator was started on this machine ({} does not exist): start one with \
             `underload fleet orchestrator`, or name one with --orchestrator URL and its \
             operator's token with --token FILE",
            token.display()
        )));
    }
    Ok(token)
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  underload fleet plan apply low-latency-trial
  underload fleet plan apply my-plan.toml --orchestrator https://fleet.example --token token")]
pub(super) struct Apply {
    /// A plan's file, or the name of a built-in plan.
    pub plan: String,
    #[command(flatten)]
    reach: Reach,
}

impl Apply {
    /// Applies a plan whose load was printed.
    pub(super) fn apply(&self, text: &str) -> anyhow::Result<()> {
        let applied = self.reach.ask(&ApplyPlan { text: text.to_owned() })?;
        let name = &applied.name;
        note!("applied `{}`: its lines take part from now on", one_line(name));
        Ok(())
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  underload fleet plan stop low-latency-trial")]
pub(super) struct StopPlan {
    /// The plan's name. A stopped plan cannot be started again.
    name: String,
    #[command(flatten)]
    reach: Reach,
}

impl StopPlan {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        self.reach.ask(&operator::StopPlan { name: self.name.clone() }).map(drop)
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  underload fleet remove DEVICE --orchestrator https://fleet.example --token token")]
pub(super) struct Remove {
    /// The 32 digits of the device or server.
    device: DeviceId,
    #[command(flatten)]
    reach: Reach,
}

impl Remove {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        self.reach.ask(&RemoveDevice { device: self.device }).map(drop)
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  underload fleet server east --address east.example:4862")]
pub(super) struct Server {
    /// Name of the server.
    name: String,
    /// The address that agents connect to from now on. A server cannot change it by itself.
    #[arg(long, value_name = "HOST:PORT")]
    address: String,
    #[command(flatten)]
    reach: Reach,
}

impl Server {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let (name, address) = (self.name.clone(), self.address.clone());
        self.reach.ask(&SetServerAddress { name, address }).map(drop)
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  underload fleet code --model XB7 --segment cmts1/4
  underload fleet code --server
  underload fleet code --lines lines.csv > codes.csv")]
pub(super) struct Codes {
    /// Makes codes for measurement servers instead of devices.
    #[arg(long, conflicts_with = "lines")]
    server: bool,
    /// Number of codes to make.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "lines",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// Makes a code for each line of a CSV file with some of the columns of `underload fleet lines
    /// import`; prints the lines with a column `code`. Lines with an external_id are recorded.
    #[arg(long, value_name = "FILE")]
    lines: Option<PathBuf>,
    /// Days until the codes expire.
    #[arg(long, value_name = "DAYS", default_value_t = 30,
        value_parser = clap::value_parser!(u16).range(1..=366))]
    valid: u16,
    /// Model of the line's modem or gateway.
    #[arg(long, default_value = "", conflicts_with_all = ["server", "lines"])]
    model: String,
    /// Segment of the access network that the line shares with its neighbours.
    #[arg(long, default_value = "", conflicts_with_all = ["server", "lines"])]
    segment: String,
    /// Region of the line.
    #[arg(long, default_value = "", conflicts_with_all = ["server", "lines"])]
    region: String,
    #[command(flatten)]
    reach: Reach,
}

const CODES_PER_REQUEST: usize = 1_000;

impl Codes {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let list = self.lines.as_deref().map(|path| List::read(path, false)).transpose()?;
        let line = Attributes {
            model: self.model.clone(),
            segment: self.segment.clone(),
            region: self.region.clone(),
            ..Attributes::default()
        };
        let (updates, mut attributes) = match &list {
            Some(list) => (&list.updates[..], Vec::new()),
            None => (&[][..], vec![line; self.count as usize]),
        };
        // Lines with an identifier are recorded, and their codes have no attributes of their own.
        let is_recorded = updates.first().is_some_and(|update| !update.external_id.is_empty());
        if is_recorded {
            lines::put(&self.reach, updates, None, true)?;
        }
        for update in updates {
            let own = if is_recorded { Ok(Attributes::default()) } else { update.attributes() };
            attributes.push(own.or_bad_input()?);
        }
        home::private_stdout()?;
        let mut out = csv::Writer::from_writer(std::io::stdout().lock());
        if let Some(list) = &list {
            out.write_record(list.columns.iter().chain(["code"])).context("writing the codes")?;
        }
        for (chunk, attributes) in attributes.chunks(CODES_PER_REQUEST).enumerate() {
            let first = chunk * CODES_PER_REQUEST;
            let ids = updates.iter().skip(first).take(attributes.len());
            let ids = ids.filter(|_| is_recorded).map(|it| it.external_id.clone()).collect();
            for (place, code) in (first..).zip(self.make(attributes, ids)?) {
                let record = list.iter().flat_map(|list| list.records[place].iter());
                out.write_record(record.chain([&*code])).context("writing the codes")?;
            }
            // Prints these codes even if the next request fails.
            out.flush().context("writing the codes")?;
        }
        Ok(())
    }

    fn make(&self, attributes: &[Attributes], lines: Vec<String>) -> anyhow::Result<Vec<String>> {
        let makes = if self.server { CodeFor::Server } else { CodeFor::Device };
        let attributes = attributes.to_vec();
        let message = NewCodes { makes, attributes, lines, valid_days: self.valid };
        Ok(self.reach.ask_patiently(&message)?.codes)
    }
}
