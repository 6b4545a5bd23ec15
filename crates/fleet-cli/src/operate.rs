//! Commands that an operator sends to a running orchestrator: plans, codes, removals.

use std::path::{Path, PathBuf};

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
        let token = match &self.token {
            Some(token) => token.clone(),
            None => token_of_this_machine()?,
        };
        let token = home::secret_line(&token).context("the operator's token").or_bad_input()?;
        let here = || format!("http://127.0.0.1:{PORT}").parse();
        let orchestrator = self.orchestrator.clone().map_or_else(here, Ok)?;
        let mut client = Client::new(vec![orchestrator], self.trust.unwrap_or(Trust::Authorities))?;
        let answer = client.ask_as_operator(&token, message);
        answer.map_err(|failure| match failure.trouble {
            Trouble::Refused | Trouble::Unfit | Trouble::Outdated => bad_input(failure),
            _ => anyhow!(failure),
        })
    }
}

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
    /// Makes a code for each line of a CSV file with some of the columns model, firmware, segment,
    /// region, configured, tier_up_bit_per_s, tier_down_bit_per_s; prints the lines with a column
    /// `code`.
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
const LINES_MAX: usize = 1_000_000;

impl Codes {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let lines = match &self.lines {
            Some(path) => lines(path).with_context(|| path.display().to_string()).or_bad_input()?,
            None => {
                let line = Attributes {
                    model: self.model.clone(),
                    segment: self.segment.clone(),
                    region: self.region.clone(),
                    ..Attributes::default()
                };
                vec![line; self.count as usize]
            }
        };
        home::private_stdout()?;
        let mut out = csv::Writer::from_writer(std::io::stdout().lock());
        if self.lines.is_some() {
            out.write_record(COLUMNS.iter().chain(&["code"])).context("writing the codes")?;
        }
        for lines in lines.chunks(CODES_PER_REQUEST) {
            let codes = self.make(lines)?;
            for (line, code) in lines.iter().zip(&codes) {
                let values = self.lines.is_some().then(|| values(line)).into_iter().flatten();
                out.write_record(values.chain([code.clone()])).context("writing the codes")?;
            }
            // Prints these codes even if the next request fails.
            out.flush().context("writing the codes")?;
        }
        Ok(())
    }

    fn make(&self, lines: &[Attributes]) -> anyhow::Result<Vec<String>> {
        let makes = if self.server { CodeFor::Server } else { CodeFor::Device };
        let attributes = lines.to_vec();
        Ok(self.reach.ask(&NewCodes { makes, attributes, valid_days: self.valid })?.codes)
    }
}

const COLUMNS: [&str; 7] = [
    "model", "firmware", "segment", "region", "configured", "tier_up_bit_per_s",
    "tier_down_bit_per_s",
];

/// A line of the file, by [`COLUMNS`]. `measured` is missing because devices report it.
#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Row {
    model: String,
    firmware: String,
    segment: String,
    region: String,
    configured: String,
    /// `None` for an empty cell.
    tier_up_bit_per_s: Option<u64>,
    tier_down_bit_per_s: Option<u64>,
}

impl Row {
    fn attributes(self) -> Attributes {
        Attributes {
            model: self.model,
            firmware: self.firmware,
            segment: self.segment,
            region: self.region,
            configured: self.configured,
            tier_up_bit_per_s: self.tier_up_bit_per_s.unwrap_or(0),
            tier_down_bit_per_s: self.tier_down_bit_per_s.unwrap_or(0),
            measured: String::new(),
        }
    }
}

fn values(line: &Attributes) -> [String; 7] {
    let Attributes { model, firmware, segment, region, configured, .. } = line.clone();
    let (up, down) = (line.tier_up_bit_per_s, line.tier_down_bit_per_s);
    [model, firmware, segment, region, configured, up.to_string(), down.to_string()]
}

/// Names the line and the column of a rate that is no number, or the column that is unknown.
fn row_error(error: csv::Error, columns: &csv::StringRecord) -> anyhow::Error {
    let csv::ErrorKind::Deserialize { pos: Some(at), err } = error.kind() else {
        return error.into();
    };
    match err.field().and_then(|field| columns.get(field as usize)) {
        Some(column) => anyhow!(
            "line {}: {column}: expected a whole number of bit/s, such as 35000000",
            at.line()
        ),
        None => anyhow!("line 1: {}", err.kind()),
    }
}

fn lines(path: &Path) -> anyhow::Result<Vec<Attributes>> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_path(path)?;
    let columns = reader.headers()?.clone();
    let mut lines = Vec::new();
    for line in reader.deserialize::<Row>() {
        let line = line.map_err(|error| row_error(error, &columns))?.attributes();
        let row = lines.len() + 2;
        if lines.len() >= LINES_MAX {
            return Err(anyhow!("more than {LINES_MAX} lines"));
        }
        if !line.is_acceptable() {
            return Err(anyhow!("line {row}: {}", Attributes::LIMITS));
        }
        lines.push(line);
    }
    if lines.is_empty() { Err(anyhow!("the file has no lines")) } else { Ok(lines) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Attributes>, String> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("lines.csv");
        std::fs::write(&path, text).expect("written");
        lines(&path).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn lines_are_read_by_their_columns() {
        let read_lines = read("region, model\nnorth, XB7\nsouth,\n").expect("lines");
        assert_eq!((read_lines.len(), read_lines[0].model.as_str()), (2, "XB7"));
        assert_eq!(read_lines[1].region, "south");
        let read_lines = read("model,tier_up_bit_per_s\nXB7,\nXB8,35000000\n").expect("lines");
        let rates: Vec<u64> = read_lines.iter().map(|line| line.tier_up_bit_per_s).collect();
        assert_eq!(rates, [0, 35_000_000], "an empty cell is unknown");
        let told = read("model,tier_up_bit_per_s\nXB7,1000000000000001\n").expect_err("no rate");
        assert!(told.contains("line 2") && told.contains("petabit"), "{told}");
        let told = read("model,tier_up_bit_per_s\nXB7,35mbit\n").expect_err("no number");
        assert!(told.starts_with("line 2: tier_up_bit_per_s: expected a whole"), "{told}");
        let told = read("model,measured\nXB7,PIE\n").expect_err("it is not listed");
        assert!(told.starts_with("line 1: unknown field `measured`, expected"), "{told}");
        let told = read("region,mac\nnorth,00:11\n").expect_err("no addresses");
        assert!(told.contains("mac"), "{told}");
        let told = read(&format!("model\nXB7\n{}\n", "x".repeat(65))).expect_err("too long");
        assert!(told.contains("line 3"), "{told}");
        assert!(read("model\n").is_err() && read("").is_err());
    }
}
