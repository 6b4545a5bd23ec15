//! `kind = "voip"`: a telephone call.

use std::ops::RangeInclusive;

use serde::Serialize;
use underload_aqm::time::Span;
use underload_sim::application::ApplicationConfig;
use underload_sim::application::voip::{JitterBuffer, VoipConfig};

use super::common::Application;
use crate::keys::{Fault, keys, word, words};

keys! {
    pub(in crate::scenario::flow) struct VoipKeys {
        /// Whether the first frame waits `delay`, or the wait follows the delays seen.
        jitter_buffer: JitterBufferName = JitterBufferName::Fixed,
        /// Wait of a fixed buffer.
        delay: Option<Span> => BUFFERS,
        /// The most that an adaptive buffer adds to the smallest delay seen.
        max_delay: Option<Span> => BUFFERS,
        /// Whether receivers conceal lost frames.
        concealment: bool = true,
    }
}

#[derive(Serialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum JitterBufferName {
    Fixed,
    Adaptive,
}

words! { JitterBufferName, word: Fixed Adaptive; }

impl Application for VoipKeys {
    const NAME: &str = "voip";

    fn config(self) -> Result<ApplicationConfig, Fault> {
        let jitter_buffer = match self.jitter_buffer {
            JitterBufferName::Fixed => {
                if self.max_delay.is_some() {
                    return Err(Fault::new("max_delay", "is for an adaptive jitter_buffer only"));
                }
                JitterBuffer::Fixed { delay: self.delay.unwrap_or(Span::from_millis(40)) }
            }
            JitterBufferName::Adaptive => {
                if self.delay.is_some() {
                    return Err(Fault::new("delay", "is for a fixed jitter_buffer only"));
                }
                JitterBuffer::Adaptive { max: self.max_delay.unwrap_or(Span::from_millis(200)) }
            }
        };
        Ok(ApplicationConfig::Voip(VoipConfig { jitter_buffer, concealment: self.concealment }))
    }
}

const BUFFERS: RangeInclusive<Span> = Span::ZERO..=Span::from_secs(1);
