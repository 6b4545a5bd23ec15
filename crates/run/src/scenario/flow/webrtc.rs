//! `kind = "webrtc"`: a video call between two real browsers, in the live world.

use underload_aqm::rate::Rate;
use underload_aqm::time::Span;
use underload_record::schema::FlowDirection;
use underload_sim::application::interactive_video::InteractiveVideoConfig;

use super::application::MAX_RATES;
use super::common::{ActivityKeys, Kind};
use crate::keys::{Fault, keys};

/// A call between a headless Chromium at the client and one at the server, with the picture and
/// the sound of the browsers' test devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebRtcFlow {
    pub direction: FlowDirection,
    /// The highest rate of the video in each direction.
    pub max_rate: Rate,
    /// Since the start of the ramp; `None` to start with the load phase.
    pub start: Option<Span>,
    /// Since the start of the ramp; `None` to stop at the end of the load phase.
    pub stop: Option<Span>,
}

keys! {
    pub(super) struct WebRtcKeys {
        /// Direction of picture and sound.
        direction: FlowDirection = FlowDirection::Both,
        /// The highest rate of the video in each direction.
        max_rate: Rate = InteractiveVideoConfig::default().max_rate => MAX_RATES,
        /// Start after the start of the ramp; by default with the load phase.
        start: Option<Span>,
        /// End after the start of the ramp; by default with the load phase.
        stop: Option<Span>,
    }
}

impl Kind for WebRtcKeys {
    type Flow = WebRtcFlow;
    const NAME: &str = "webrtc";
    const IS_SIMULATED: bool = false;

    fn check(self) -> Result<WebRtcFlow, Fault> {
        let Self { direction, max_rate, start, stop } = self;
        let stop = ActivityKeys { start, stop, ..ActivityKeys::default() }.check()?.stop;
        Ok(WebRtcFlow { direction, max_rate, start, stop })
    }
}
