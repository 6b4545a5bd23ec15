//! `kind = "cloud-game"`: a game rendered far away.

use serde::Deserialize;
use underload_aqm::packet::Dscp;
use underload_aqm::rate::Rate;
use underload_aqm::time::Span;
use underload_sim::application::ApplicationConfig;
use underload_sim::application::cloud_game::CloudGameConfig;

use super::Keys;
use crate::scenario::error::Fault;
use crate::scenario::quantity::{RateText, SpanText};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::scenario::flow) struct CloudGameKeys {
    rate: Option<RateText>,
    min_rate: Option<RateText>,
    processing: Option<SpanText>,
    #[serde(default)]
    marking: GameMarking,
}

/// What the game asks of queues on the way.
#[derive(Deserialize, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum GameMarking {
    #[default]
    None,
    /// The low latency queue by its codepoint (RFC 9956).
    Nqb,
    /// The low latency queue and its marks, which the video's rate follows (RFC 9331).
    L4s,
}

impl Keys for CloudGameKeys {
    fn own_dscp(&self) -> Option<u8> {
        (self.marking == GameMarking::Nqb).then(|| Dscp::NON_QUEUE_BUILDING.value())
    }

    fn check(self) -> Result<ApplicationConfig, Fault> {
        let default = CloudGameConfig::default();
        let rate = self.rate.map_or(default.rate, |rate| rate.0);
        if !(MIN_RATE..=MAX_RATE).contains(&rate.bits_per_second()) {
            return Err(Fault::new("rate", "is out of range; expected 100kbit to 1gbit"));
        }
        let processing = self.processing.map_or(default.processing, |span| span.0);
        if processing > MAX_PROCESSING {
            let problem = format!("{processing} is out of range; expected 0ms to 1s");
            return Err(Fault::new("processing", problem));
        }
        let least_rate = least_rate(self.marking, self.min_rate, rate)?;
        Ok(ApplicationConfig::CloudGame(CloudGameConfig { rate, least_rate, processing }))
    }
}

/// The least rate of a video that adapts.
fn least_rate(
    marking: GameMarking,
    given: Option<RateText>,
    rate: Rate,
) -> Result<Option<Rate>, Fault> {
    if marking != GameMarking::L4s {
        let problem = "goes with marking = \"l4s\": only then does the rate adapt";
        return given.map_or(Ok(None), |_| Err(Fault::new("min_rate", problem)));
    }
    let fifth = (rate.bits_per_second() / RATE_OVER_MIN_RATE).max(MIN_RATE);
    let least = given.map_or(Rate::from_bits_per_second(fifth), |least| least.0);
    if !(MIN_RATE..=rate.bits_per_second()).contains(&least.bits_per_second()) {
        let problem = format!("{least} is out of range; expected 100kbit to the rate, {rate}");
        return Err(Fault::new("min_rate", problem));
    }
    Ok(Some(least))
}

const MIN_RATE: u64 = 100_000;
const MAX_RATE: u64 = 1_000_000_000;
const MAX_PROCESSING: Span = Span::from_secs(1);
/// Services recommend 15 Mbit/s for 1080p at 60 Hz and play from 3 Mbit/s or so on.
const RATE_OVER_MIN_RATE: u64 = 5;
