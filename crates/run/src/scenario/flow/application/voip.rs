//! `kind = "voip"`: a telephone call.

use serde::Deserialize;
use underload_aqm::time::Span;
use underload_sim::application::ApplicationConfig;
use underload_sim::application::voip::{JitterBuffer, VoipConfig};

use super::Keys;
use crate::scenario::error::Fault;
use crate::scenario::quantity::SpanText;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::scenario::flow) struct VoipKeys {
    #[serde(default)]
    jitter_buffer: JitterBufferName,
    delay: Option<SpanText>,
    max_delay: Option<SpanText>,
    #[serde(default = "yes")]
    concealment: bool,
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum JitterBufferName {
    #[default]
    Fixed,
    Adaptive,
}

impl Keys for VoipKeys {
    fn check(self) -> Result<ApplicationConfig, Fault> {
        let bounded = |key: &str, text: Option<SpanText>, default: Span| {
            let delay = text.map_or(default, |text| text.0);
            if delay > MAX_BUFFER {
                let problem = format!("{delay} is out of range; expected 0ms to 1s");
                return Err(Fault::new(key, problem));
            }
            Ok(delay)
        };
        let jitter_buffer = match self.jitter_buffer {
            JitterBufferName::Fixed => {
                if self.max_delay.is_some() {
                    return Err(Fault::new("max_delay", "is for an adaptive jitter_buffer only"));
                }
                let delay = bounded("delay", self.delay, Span::from_millis(40))?;
                JitterBuffer::Fixed { delay }
            }
            JitterBufferName::Adaptive => {
                if self.delay.is_some() {
                    return Err(Fault::new("delay", "is for a fixed jitter_buffer only"));
                }
                let max = bounded("max_delay", self.max_delay, Span::from_millis(200))?;
                JitterBuffer::Adaptive { max }
            }
        };
        Ok(ApplicationConfig::Voip(VoipConfig { jitter_buffer, concealment: self.concealment }))
    }
}

fn yes() -> bool {
    true
}

const MAX_BUFFER: Span = Span::from_secs(1);
