//! The command line of an agent.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use underload_aqm::config::{Kind, Value};
use underload_aqm::time::Span;
use underload_fleet::agent::Limits;
use underload_fleet::device::Attributes;
use underload_probe::network::current_network;
use underload_probe::service::Line;
use underload_record::schema::ValidityLimits;

use crate::Trust;
use crate::address::Address;
use crate::device::Config;
use crate::measure::Measurer;
use crate::spool::{BYTES_DEFAULT, BYTES_MIN};

/// What an agent is told.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Whom to ask, https://HOST[:PORT]; may be given several times, for when one is away.
    #[arg(long, value_name = "URL", required = true)]
    orchestrator: Vec<Address>,
    /// Where it keeps its key, and results until they are stored.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// A code of an operator, which makes this a device; needed once. Every user of a machine can
    /// read its command lines: UNDERLOAD_CODE in the environment does the same unseen.
    #[arg(long, value_name = "CODE")]
    enrol: Option<String>,
    /// The key of the orchestrators, "sha256:" and 64 digits [default: the system's authorities].
    #[arg(long, value_name = "KEY", value_parser = trust)]
    trust: Option<Trust>,
    /// The network interface that leads to the line, may be given several times, or none: a home
    /// that uses it is not measured [default: those of the default routes].
    #[arg(long, value_name = "NAME")]
    interface: Vec<String>,
    /// What a home may send or receive meanwhile, such as 1mbit; a plain number is kbit/s.
    #[arg(long, value_name = "RATE", default_value = QUIET_DEFAULT, value_parser = quiet_rate)]
    quiet_below: u64,
    /// Asks for the first time at a random instant within so many seconds: after a power cut of a
    /// region not all of them ask at once.
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(0..=86_400))]
    start_within: u64,
    /// Results wait in so many KiB of its disk at most.
    #[arg(long, value_name = "KIB", default_value_t = BYTES_DEFAULT >> 10,
        value_parser = clap::value_parser!(u64).range((BYTES_MIN >> 10)..=1 << 20))]
    spool: u64,
    /// A run of this line takes at most so many seconds, whatever an orchestrator asks for; so for
    /// the three limits below.
    #[arg(long, value_name = "SECONDS", default_value_t = RUN_MAX_S,
        value_parser = clap::value_parser!(u64).range(1..=RUN_MAX_S))]
    run_max: u64,
    /// Runs of this line in 24 hours, at most.
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().runs_per_day,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs_max: u32,
    /// MB (1,000,000 bytes) that runs of this line send and receive in 24 hours, at most.
    #[arg(long, value_name = "MB", default_value_t = Limits::default().bytes_per_day / MEGABYTE,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    day_max: u64,
    /// MB that runs of this line send and receive in 30 days, at most.
    #[arg(long, value_name = "MB", default_value_t = Limits::default().bytes_per_month / MEGABYTE,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    month_max: u64,
    /// Model of the modem or gateway.
    #[arg(long, default_value = "")]
    model: String,
    /// Its firmware.
    #[arg(long, default_value = "")]
    firmware: String,
    /// What the line is sold upstream, such as 35mbit; a plain number is Mbit/s.
    #[arg(long, value_name = "MBIT", default_value_t = 0.0, value_parser = mbit)]
    tier_up: f64,
    /// What the line is sold downstream, such as 1gbit; a plain number is Mbit/s.
    #[arg(long, value_name = "MBIT", default_value_t = 0.0, value_parser = mbit)]
    tier_down: f64,
    /// The segment of the access network that it shares with its neighbours.
    #[arg(long, default_value = "")]
    segment: String,
    /// Its region.
    #[arg(long, default_value = "")]
    region: String,
}

impl Arguments {
    /// An agent as told; `stop` ends it.
    pub fn config(&self, stop: &Arc<AtomicBool>) -> Config {
        let bit_per_s = |mbit: f64| (mbit * 1e6) as u64;
        let (up, down) = (bit_per_s(self.tier_up), bit_per_s(self.tier_down));
        let line = match self.interface.as_slice() {
            [] => Line::OfDefaultRoutes,
            [none] if none == "none" => Line::Ignored,
            names => Line::Named(names.to_vec()),
        };
        Config {
            orchestrators: self.orchestrator.clone(),
            trust: self.trust.unwrap_or(Trust::Authorities),
            state: self.state.clone(),
            code: code(self.enrol.as_deref()),
            attributes: Attributes {
                model: self.model.clone(),
                firmware: self.firmware.clone(),
                tier_up_bit_per_s: up,
                tier_down_bit_per_s: down,
                segment: self.segment.clone(),
                region: self.region.clone(),
                ..Attributes::default()
            },
            measurer: Measurer {
                network: current_network(),
                line,
                busy_bit_per_s: self.quiet_below,
                tier_bit_per_s: (up, down),
                limits: ValidityLimits::default(),
                cancel: Arc::clone(stop),
                carrier: None,
            },
            spool_bytes: self.spool << 10,
            start_within: Span::from_secs(self.start_within),
            confirm_removal: CONFIRM_REMOVAL,
            limits: Limits {
                run_lasts: Span::from_secs(self.run_max),
                runs_per_day: self.runs_max,
                bytes_per_day: self.day_max * MEGABYTE,
                bytes_per_month: self.month_max * MEGABYTE,
            },
        }
    }
}

const MEGABYTE: u64 = 1_000_000;
/// No plan has a longer run.
const RUN_MAX_S: u64 = 3_600;
/// Long enough to mend an orchestrator whose store was restored from an old copy.
const CONFIRM_REMOVAL: Span = Span::from_secs(86_400);

/// The code of a command line, or else the one in [`CODE_VARIABLE`].
pub fn code(named: Option<&str>) -> Option<String> {
    let code = named.map(str::to_owned).or_else(|| std::env::var(CODE_VARIABLE).ok());
    code.filter(|code| !code.is_empty())
}

/// The variable of the environment that has a code.
pub const CODE_VARIABLE: &str = "UNDERLOAD_CODE";

fn trust(text: &str) -> Result<Trust, String> {
    text.parse().map(Trust::Pinned).map_err(|error| format!("{error}"))
}

/// [`BUSY_DEFAULT`](crate::measure::BUSY_DEFAULT), as it is written on a command line.
const QUIET_DEFAULT: &str = "250kbit";

/// A rate with its unit, bit/s.
fn rate(text: &str) -> Option<u64> {
    match Kind::Rate.read(text) {
        Some(Value::Rate(rate)) => Some(rate.bits_per_second()),
        _ => None,
    }
}

fn quiet_rate(text: &str) -> Result<u64, String> {
    let kbit = || text.parse::<u64>().ok()?.checked_mul(1_000);
    rate(text).or_else(kbit).ok_or_else(|| "expected a rate, such as 250kbit or 1mbit".to_owned())
}

fn mbit(text: &str) -> Result<f64, String> {
    let plain = || text.parse::<f64>().ok();
    let mbit = rate(text).map(|rate| rate as f64 / 1e6).or_else(plain);
    mbit.filter(|it| (0.0..=1e6).contains(it))
        .ok_or_else(|| "expected a rate up to 1000gbit, such as 35mbit".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::BUSY_DEFAULT;

    #[test]
    fn rates_have_units_and_plain_numbers_mean_what_they_did() {
        assert_eq!(quiet_rate(QUIET_DEFAULT), Ok(BUSY_DEFAULT));
        assert_eq!(quiet_rate("1gbit"), Ok(1_000_000_000));
        assert_eq!(quiet_rate("250"), Ok(250_000));
        assert_eq!((mbit("35mbit"), mbit("1gbit"), mbit("35.5")), (Ok(35.0), Ok(1e3), Ok(35.5)));
        for wrong in ["", "-1", "fast", "1gbyte", "99999999999999999999"] {
            assert!(quiet_rate(wrong).is_err_and(|told| told.contains("250kbit")), "{wrong}");
        }
        assert!(mbit("2000gbit").is_err() && mbit("nan").is_err() && mbit("-1").is_err());
    }
}
