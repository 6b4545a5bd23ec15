//! `kind = "interactive-video"`: a video call.

use std::ops::RangeInclusive;

use underload_aqm::rate::Rate;
use underload_record::schema::FlowDirection;
use underload_sim::application::ApplicationConfig;
use underload_sim::application::interactive_video::{InteractiveVideoConfig, RateControl};

use super::common::Application;
use crate::keys::{Fault, keys};

keys! {
    pub(in crate::scenario::flow) struct InteractiveVideoKeys {
        /// Direction of the video.
        direction: FlowDirection = FlowDirection::Both,
        /// How the sender adapts its rate.
        control: RateControl = RateControl::Gcc,
        /// The highest rate of the video.
        max_rate: Rate = InteractiveVideoConfig::default().max_rate => MAX_RATES,
    }
}

impl Application for InteractiveVideoKeys {
    const NAME: &str = "interactive-video";

    fn goes_both_ways(&self) -> bool {
        self.direction == FlowDirection::Both
    }

    fn config(self) -> Result<ApplicationConfig, Fault> {
        Ok(ApplicationConfig::InteractiveVideo(InteractiveVideoConfig {
            direction: self.direction.ways()[0],
            control: self.control,
            max_rate: self.max_rate,
        }))
    }
}

const MAX_RATES: RangeInclusive<Rate> =
    Rate::from_bits_per_second(300_000)..=Rate::from_bits_per_second(8_000_000);
