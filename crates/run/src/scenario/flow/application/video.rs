//! `kind = "video"`: adaptive video.

use std::ops::RangeInclusive;

use underload_aqm::time::Span;
use underload_sim::application::ApplicationConfig;
use underload_sim::application::video::{Player, VideoConfig};

use super::common::{Application, algorithm};
use crate::keys::{Fault, keys};

keys! {
    pub(in crate::scenario::flow) struct VideoKeys {
        /// How the player chooses the rate of the next segment.
        player: Player = Player::Bb,
        /// The most video that the player holds.
        buffer: Span = VideoConfig::default().buffer => BUFFERS,
        /// The congestion control of the server.
        congestion_control: Option<String>,
    }
}

impl Application for VideoKeys {
    const NAME: &str = "video";

    fn config(self) -> Result<ApplicationConfig, Fault> {
        let Self { player, buffer, congestion_control } = self;
        let algorithm = algorithm(congestion_control.as_deref())?;
        Ok(ApplicationConfig::Video(VideoConfig { player, buffer, algorithm }))
    }
}

const BUFFERS: RangeInclusive<Span> = Span::from_secs(10)..=Span::from_secs(600);
