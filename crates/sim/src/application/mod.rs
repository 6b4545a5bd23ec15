//! Applications in virtual time, with the quality that their users perceive.
//!
//! An application simulates both of its ends. It sends datagrams or opens TCP connections (the
//! engine's TCP, in both directions), and reports a few metrics in its users' terms. By default it
//! starts with the load phase, so that the metrics show the state under load. The scenario's other
//! flows share the path with it.
//!
//! | application | sends | reports |
//! |---|---|---|
//! | [`voip`] | G.711 in both directions | MOS, R, mouth-to-ear delay, lost and late frames |
//! | [`web`] | the guideline's page over TCP | page load time |
//! | [`game`] | small packets in both directions | round trip |
//! | [`cloud_game`] | input up, 60 frames a second down | lag, spikes, input-to-photon delay |
//! | [`video`] | chunks over TCP at a chosen bit rate | QoE, rebuffering, switches |
//! | [`interactive_video`] | a video call at a controlled rate | glass-to-glass delay, freezes |
//!
//! Every key with its default is in `docs/applications.md`.

pub mod cloud_game;
mod connection;
pub mod game;
pub mod interactive_video;
mod numbers;
mod samples;
pub mod video;
pub mod voip;
pub mod web;

pub use numbers::metric;

use underload_aqm::packet::Ecn;
use underload_aqm::rng::Rng;
use underload_aqm::time::Time;
use underload_record::schema::{Direction, PerDirection};

use crate::congestion::Algorithm;
use crate::endpoint::Endpoint;

use cloud_game::{CloudGame, CloudGameConfig};
use game::{Game, GameConfig};
use interactive_video::{InteractiveVideo, InteractiveVideoConfig};
use video::{Video, VideoConfig};
use voip::{Voip, VoipConfig};
use web::{Web, WebConfig};

#[derive(Clone, Debug, PartialEq)]
pub enum ApplicationConfig {
    Voip(VoipConfig),
    Web(WebConfig),
    Game(GameConfig),
    CloudGame(CloudGameConfig),
    Video(VideoConfig),
    InteractiveVideo(InteractiveVideoConfig),
}

impl ApplicationConfig {
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Voip(_) => "voip",
            Self::Web(_) => "web",
            Self::Game(_) => "game",
            Self::CloudGame(_) => "cloud-game",
            Self::Video(_) => "video",
            Self::InteractiveVideo(_) => "interactive-video",
        }
    }

    pub(crate) fn ecn(&self) -> Ecn {
        if let Self::CloudGame(config) = self { config.ecn() } else { Ecn::NotEct }
    }

    /// Returns the rate at the IP layer below which it does not work, bit/s: that of all its datagrams,
    /// with the lowest rate of an encoder. Zero in a direction in which it only takes longer.
    pub(crate) fn least_bit_per_s(&self) -> PerDirection<u64> {
        let (up, down) = match self {
            Self::Voip(_) => (voip::BIT_PER_S.into(), voip::BIT_PER_S.into()),
            Self::Web(_) => (0, 0),
            Self::Game(GameConfig) => (game::bit_per_s(game::UP), game::bit_per_s(game::DOWN)),
            Self::CloudGame(config) => {
                (0, config.least_rate.unwrap_or(config.rate).bits_per_second())
            }
            Self::Video(config) => (0, config.rates.first().map_or(0, |it| it.bits_per_second())),
            Self::InteractiveVideo(config) => {
                let [forwards, backwards] = interactive_video::LEAST_BIT_PER_S.map(u64::from);
                match config.direction {
                    Direction::Up => (forwards, backwards),
                    Direction::Down => (backwards, forwards),
                }
            }
        };
        PerDirection::new(up, down)
    }

    /// Returns the congestion control of its datagrams, if it is one of [`Algorithm`].
    pub(crate) fn congestion_control(&self) -> Option<&'static str> {
        (self.ecn() == Ecn::Ect1).then(|| Algorithm::Prague.name())
    }

    /// Creates both ends, which send no new data from `stop` on.
    pub(crate) fn build(&self, stop: Time, rng: Rng) -> Box<dyn Endpoint> {
        match self {
            Self::Voip(config) => Box::new(Voip::new(config, stop, &rng)),
            Self::Web(config) => Box::new(Web::new(config, stop, rng)),
            Self::Game(GameConfig) => Box::new(Game::new(stop, &rng)),
            Self::CloudGame(config) => Box::new(CloudGame::new(config, stop, rng)),
            Self::Video(config) => Box::new(Video::new(config, stop, rng)),
            Self::InteractiveVideo(config) => Box::new(InteractiveVideo::new(config, stop, rng)),
        }
    }
}
