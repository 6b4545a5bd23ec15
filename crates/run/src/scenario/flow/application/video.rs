//! `kind = "video"`: adaptive video.

use serde::Deserialize;
use underload_aqm::time::Span;
use underload_sim::application::ApplicationConfig;
use underload_sim::application::video::{Player, VideoConfig};

use super::{Keys, algorithm};
use crate::scenario::error::Fault;
use crate::scenario::quantity::SpanText;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::scenario::flow) struct VideoKeys {
    #[serde(default)]
    player: Player,
    buffer: Option<SpanText>,
    congestion_control: Option<String>,
}

impl Keys for VideoKeys {
    fn check(self) -> Result<ApplicationConfig, Fault> {
        let buffer = self.buffer.map_or(VideoConfig::default().buffer, |buffer| buffer.0);
        if !(MIN_BUFFER..=MAX_BUFFER).contains(&buffer) {
            let problem = format!("{buffer} is out of range; expected 10s to 600s");
            return Err(Fault::new("buffer", problem));
        }
        let algorithm = algorithm(self.congestion_control.as_deref())?;
        Ok(ApplicationConfig::Video(VideoConfig { player: self.player, buffer, algorithm }))
    }
}

const MIN_BUFFER: Span = Span::from_secs(10);
const MAX_BUFFER: Span = Span::from_secs(600);
