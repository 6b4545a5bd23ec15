//! What an arm says, however it is written: `10mbit` and `10000kbit` are one thing.
//!
//! Everything is written out of what was understood, not of the text: a value that is given counts
//! as much as one that holds by default. Types of other crates are taken apart without `..`, so
//! that what one of them gains cannot be forgotten here.

use serde::{Serialize, Serializer};
use underload_aqm::rate::Rate;
use underload_aqm::time::Span;
use underload_sim::application::ApplicationConfig;
use underload_sim::application::cloud_game::CloudGameConfig;
use underload_sim::application::game::GameConfig;
use underload_sim::application::interactive_video::InteractiveVideoConfig;
use underload_sim::application::video::VideoConfig;
use underload_sim::application::voip::{JitterBuffer, VoipConfig};
use underload_sim::application::web::WebConfig;

/// A length of time as nanoseconds.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
pub(super) fn span<S: Serializer>(span: &Span, serializer: S) -> Result<S::Ok, S::Error> {
    span.as_nanos().serialize(serializer)
}

/// The same where there may be none.
#[expect(clippy::ref_option, reason = "serde hands out references")]
pub(super) fn optional_span<S: Serializer>(
    span: &Option<Span>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    span.map(Span::as_nanos).serialize(serializer)
}

/// A rate as bits per second.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
pub(super) fn rate<S: Serializer>(rate: &Rate, serializer: S) -> Result<S::Ok, S::Error> {
    rate.bits_per_second().serialize(serializer)
}

/// An application with what it is set to.
pub(super) fn application<S: Serializer>(
    config: &ApplicationConfig,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let name = config.name();
    match config {
        ApplicationConfig::Voip(VoipConfig { jitter_buffer, concealment }) => {
            let (kind, length) = match jitter_buffer {
                JitterBuffer::Fixed { delay } => ("fixed", delay),
                JitterBuffer::Adaptive { max } => ("adaptive", max),
            };
            (name, kind, length.as_nanos(), concealment).serialize(serializer)
        }
        ApplicationConfig::Web(web) => {
            let WebConfig { browser, loads, pause, fetches_script, algorithm, initial_window } =
                web;
            let transport = (algorithm.name(), initial_window);
            (name, browser, loads, pause.as_nanos(), fetches_script, transport)
                .serialize(serializer)
        }
        ApplicationConfig::Game(GameConfig) => name.serialize(serializer),
        ApplicationConfig::CloudGame(CloudGameConfig { rate, least_rate, processing }) => {
            let least = least_rate.map(Rate::bits_per_second);
            (name, rate.bits_per_second(), least, processing.as_nanos()).serialize(serializer)
        }
        ApplicationConfig::Video(VideoConfig { player, buffer, algorithm }) => {
            (name, player, buffer.as_nanos(), algorithm.name()).serialize(serializer)
        }
        ApplicationConfig::InteractiveVideo(call) => {
            let InteractiveVideoConfig { direction, control, max_rate } = call;
            (name, direction, control, max_rate.bits_per_second()).serialize(serializer)
        }
    }
}
