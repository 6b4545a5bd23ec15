//! `kind = "interactive-video"`: a video call.

use serde::Deserialize;
use underload_record::schema::FlowDirection;
use underload_sim::application::ApplicationConfig;
use underload_sim::application::interactive_video::{InteractiveVideoConfig, RateControl};

use super::Keys;
use crate::scenario::error::Fault;
use crate::scenario::quantity::RateText;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::scenario::flow) struct InteractiveVideoKeys {
    #[serde(default = "both")]
    direction: FlowDirection,
    #[serde(default)]
    control: RateControl,
    max_rate: Option<RateText>,
}

fn both() -> FlowDirection {
    FlowDirection::Both
}

impl Keys for InteractiveVideoKeys {
    fn goes_both_ways(&self) -> bool {
        self.direction == FlowDirection::Both
    }

    fn check(self) -> Result<ApplicationConfig, Fault> {
        let default = InteractiveVideoConfig::default();
        let max_rate = self.max_rate.map_or(default.max_rate, |rate| rate.0);
        if !(MIN_MAX_RATE..=MAX_MAX_RATE).contains(&max_rate.bits_per_second()) {
            return Err(Fault::new("max_rate", "is out of range; expected 300kbit to 8mbit"));
        }
        Ok(ApplicationConfig::InteractiveVideo(InteractiveVideoConfig {
            direction: self.direction.ways()[0],
            control: self.control,
            max_rate,
        }))
    }
}

const MIN_MAX_RATE: u64 = 300_000;
const MAX_MAX_RATE: u64 = 8_000_000;
