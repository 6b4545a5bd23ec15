//! The command line of an agent.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use underload_aqm::config::{Kind, Value};
use underload_aqm::time::Span;
use underload_fleet::agent::Limits;
use underload_fleet::device::Attributes;
use underload_fleet::plan::traffic_bytes;
use underload_probe::network::{Line, current_network};
use underload_record::schema::ValidityLimits;

use crate::Trust;
use crate::address::Address;
use crate::device::Config;
use crate::measure::Measurer;
use crate::spool::{BYTES_DEFAULT, BYTES_MIN};

/// Options of an agent.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Address of an orchestrator, https://HOST[:PORT]; may be given several times, in case one is
    /// unavailable.
    #[arg(long, value_name = "URL", required = true)]
    orchestrator: Vec<Address>,
    /// Directory for the key, and for results until an orchestrator has stored them.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// Code from an operator that enrols this device; needed once. Every user of a machine can read
    /// its command lines; the variable UNDERLOAD_CODE in the environment is not shown to them.
    #[arg(long, value_name = "CODE")]
    enrol: Option<String>,
    /// The orchestrators' key, "sha256:" and 64 digits [default: the system's authorities].
    #[arg(long, value_name = "KEY")]
    trust: Option<Trust>,
    /// Network interface of the line; may be given several times, or `none`. A home that uses the
    /// interface is not measured, nor is one whose connection is metered [default: the interfaces
    /// of the default routes].
    #[arg(long, value_name = "NAME")]
    interface: Vec<String>,
    /// Traffic of the home up to which its line is measured, such as 1mbit; a plain number is
    /// kbit/s.
    #[arg(long, value_name = "RATE", default_value = QUIET_DEFAULT, value_parser = quiet_rate)]
    quiet_below: u64,
    /// Longest time before the first request, which is random, so that devices do not send theirs
    /// together after a power cut.
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(0..=86_400))]
    #[arg(hide_short_help = true)]
    start_within: u64,
    /// Limit of the results that wait on disk.
    #[arg(long, value_name = "KIB", default_value_t = BYTES_DEFAULT >> 10,
        value_parser = clap::value_parser!(u64).range((BYTES_MIN >> 10)..=1 << 20))]
    #[arg(hide_short_help = true)]
    spool: u64,
    /// Longest run of this line, at most 1h; no orchestrator lifts this limit or the three below.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = run_max)]
    #[arg(hide_short_help = true)]
    run_max: Span,
    /// Most runs of this line in any 24 hours.
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().runs_per_day,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    #[arg(hide_short_help = true)]
    runs_max: u32,
    /// Most traffic of all runs of this line in any 24 hours, sent and received.
    #[arg(long, value_name = "SIZE", default_value = DAY_DEFAULT, value_parser = volume)]
    #[arg(hide_short_help = true)]
    day_max: u64,
    /// Most traffic of all runs of this line in any 30 days, sent and received.
    #[arg(long, value_name = "SIZE", default_value = MONTH_DEFAULT, value_parser = volume)]
    #[arg(hide_short_help = true)]
    month_max: u64,
    /// Model of the modem or gateway.
    #[arg(long, default_value = "")]
    model: String,
    /// Firmware of the modem or gateway.
    #[arg(long, default_value = "")]
    firmware: String,
    /// The rate that the line is sold with upstream, such as 35mbit; a plain number is Mbit/s.
    #[arg(long, value_name = "MBIT", default_value_t = 0.0, value_parser = mbit)]
    tier_up: f64,
    /// The rate that the line is sold with downstream, such as 1gbit; a plain number is Mbit/s.
    #[arg(long, value_name = "MBIT", default_value_t = 0.0, value_parser = mbit)]
    tier_down: f64,
    /// Segment of the access network that the line shares with its neighbours.
    #[arg(long, default_value = "")]
    segment: String,
    /// Region of the line.
    #[arg(long, default_value = "")]
    region: String,
}

impl Arguments {
    /// Returns the configuration of an agent that `stop` ends.
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
                run_lasts: self.run_max,
                runs_per_day: self.runs_max,
                bytes_per_day: self.day_max,
                bytes_per_month: self.month_max,
            },
        }
    }
}

/// The defaults of [`Limits`], as written on a command line.
const DAY_DEFAULT: &str = "5GB";
const MONTH_DEFAULT: &str = "50GB";
/// Time to repair an orchestrator whose store was restored from a backup.
const CONFIRM_REMOVAL: Span = Span::from_secs(86_400);

/// Returns the code of a command line, or else the one in [`CODE_VARIABLE`].
pub fn code(named: Option<&str>) -> Option<String> {
    let code = named.map(str::to_owned).or_else(|| std::env::var(CODE_VARIABLE).ok());
    code.filter(|code| !code.is_empty())
}

/// Environment variable of the enrolment code.
pub const CODE_VARIABLE: &str = "UNDERLOAD_CODE";

/// [`BUSY_DEFAULT`](crate::measure::BUSY_DEFAULT), as written on a command line.
const QUIET_DEFAULT: &str = "250kbit";

/// Parses a rate with its unit, bit/s.
fn rate(text: &str) -> Option<u64> {
    let Some(Value::Rate(rate)) = Kind::Rate.read(text) else { return None };
    Some(rate.bits_per_second())
}

/// The error of an option: names the accepted values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected {0}")]
struct Expected(&'static str);

fn run_max(text: &str) -> Result<Span, Expected> {
    let most = Limits::default().run_lasts;
    match Kind::Span.read(text) {
        Some(Value::Span(span)) if span > Span::ZERO && span <= most => Ok(span),
        _ => Err(Expected("a time up to 1h, such as 90s or 5min")),
    }
}

fn volume(text: &str) -> Result<u64, Expected> {
    let bytes = traffic_bytes(text).filter(|bytes| *bytes > 0);
    bytes.ok_or(Expected("a size above 0 with its unit, such as 500MB or 5GB"))
}

fn quiet_rate(text: &str) -> Result<u64, Expected> {
    let kbit = || text.parse::<u64>().ok()?.checked_mul(1_000);
    rate(text).or_else(kbit).ok_or(Expected("a rate, such as 250kbit or 1mbit"))
}

fn mbit(text: &str) -> Result<f64, Expected> {
    let mbit = rate(text).map(|rate| rate as f64 / 1e6).or_else(|| text.parse().ok());
    let mbit = mbit.filter(|it| (0.0..=1e6).contains(it));
    mbit.ok_or(Expected("a rate up to 1000gbit, such as 35mbit"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::BUSY_DEFAULT;

    #[test]
    fn limits_have_units_and_the_defaults_of_the_rules() {
        let defaults = Limits::default();
        assert_eq!(volume(DAY_DEFAULT), Ok(defaults.bytes_per_day));
        assert_eq!(volume(MONTH_DEFAULT), Ok(defaults.bytes_per_month));
        assert_eq!(run_max("1h"), Ok(defaults.run_lasts));
        assert_eq!((run_max("90s"), volume("500MB")), (Ok(Span::from_secs(90)), Ok(500_000_000)));
        for wrong in ["", "0", "0MB", "-1GB", "much", "1mbit"] {
            assert!(volume(wrong).is_err_and(|told| told.0.contains("500MB")), "{wrong}");
        }
        for wrong in ["", "0s", "2h", "61min", "-1s"] {
            assert!(run_max(wrong).is_err_and(|told| told.0.contains("up to 1h")), "{wrong}");
        }
    }

    #[test]
    fn rates_with_and_without_units_are_accepted() {
        assert_eq!(quiet_rate(QUIET_DEFAULT), Ok(BUSY_DEFAULT));
        assert_eq!(quiet_rate("1gbit"), Ok(1_000_000_000));
        assert_eq!(quiet_rate("250"), Ok(250_000));
        assert_eq!((mbit("35mbit"), mbit("1gbit"), mbit("35.5")), (Ok(35.0), Ok(1e3), Ok(35.5)));
        for wrong in ["", "-1", "fast", "1gbyte", "99999999999999999999"] {
            assert!(quiet_rate(wrong).is_err_and(|told| told.0.contains("250kbit")), "{wrong}");
        }
        assert!(mbit("2000gbit").is_err() && mbit("nan").is_err() && mbit("-1").is_err());
    }
}
