//! `kind = "cloud-game"`: a game rendered far away.

use serde::Deserialize;
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
    processing: Option<SpanText>,
}

impl Keys for CloudGameKeys {
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
        Ok(ApplicationConfig::CloudGame(CloudGameConfig { rate, processing }))
    }
}

const MIN_RATE: u64 = 100_000;
const MAX_RATE: u64 = 1_000_000_000;
const MAX_PROCESSING: Span = Span::from_secs(1);
