//! Applications in virtual time, and how good they are for their users.
//!
//! An application is both of its ends. It sends datagrams, opens TCP connections of its own (the
//! engine's TCP, in both directions), and in the end reports a few numbers in its users' terms. It
//! starts with the load phase unless told otherwise, so that what it reports is the state under
//! load; whatever shares the path with it is the scenario's own flows.
//!
//! | application | sends | reports |
//! |---|---|---|
//! | [`voip`] | G.711 both ways | MOS, R, mouth-to-ear delay, lost and late frames |
//! | [`web`] | the guideline's page over TCP | page load time |
//! | [`game`] | small packets both ways | round trip |
//! | [`cloud_game`] | input up, 60 frames a second down | input-to-photon delay, frames late |
//! | [`video`] | chunks over TCP at a chosen bit rate | QoE, rebuffering, switches |
//! | [`interactive_video`] | a video call at a controlled rate | glass-to-glass delay, freezes |
//!
//! Every key with its default is in `docs/applications.md`.

pub mod cloud_game;
mod connection;
pub mod game;
pub mod interactive_video;
mod samples;
pub mod video;
pub mod voip;
pub mod web;

use std::fmt;

use serde::Deserialize;
use toml::Table;
use underload_aqm::packet::Packet;
use underload_aqm::rng::Rng;
use underload_aqm::time::Time;
use underload_record::schema::{Direction, Metric};

use crate::congestion::Algorithm;
use crate::flow::Port;
use crate::net::Segment;
use crate::scenario::error::Fault;
use crate::scenario::section::read_section;

use cloud_game::{CloudGame, CloudGameConfig};
use game::{Game, GameConfig};
use interactive_video::{InteractiveVideo, InteractiveVideoConfig};
use video::{Video, VideoConfig};
use voip::{Voip, VoipConfig};
use web::{Web, WebConfig};

/// An application to simulate.
#[derive(Clone, Debug, PartialEq)]
pub enum ApplicationConfig {
    /// A telephone call.
    Voip(VoipConfig),
    /// A web page.
    Web(WebConfig),
    /// An online game.
    Game(GameConfig),
    /// A game rendered far away.
    CloudGame(CloudGameConfig),
    /// Adaptive video.
    Video(VideoConfig),
    /// One direction of a video call.
    InteractiveVideo(InteractiveVideoConfig),
}

impl ApplicationConfig {
    /// Reads an application's own keys.
    pub(crate) fn read(name: &str, table: Table) -> Result<Self, Fault> {
        match name {
            "voip" => read_keys::<voip::VoipKeys>(table).map(Self::Voip),
            "web" => read_keys::<web::WebKeys>(table).map(Self::Web),
            "game" => read_keys::<game::GameKeys>(table).map(Self::Game),
            "cloud-game" => read_keys::<cloud_game::CloudGameKeys>(table).map(Self::CloudGame),
            "video" => read_keys::<video::VideoKeys>(table).map(Self::Video),
            "interactive-video" => read_keys::<interactive_video::InteractiveVideoKeys>(table)
                .map(Self::InteractiveVideo),
            other => Err(Fault::new("kind", format!("`{other}` is not simulated"))),
        }
    }

    /// Its name in scenarios and records.
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

    /// Both ends of it, sending nothing new from `stop` on.
    pub(crate) fn build(&self, stop: Time, rng: Rng) -> Box<dyn Application> {
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

/// Both ends of an application.
pub(crate) trait Application: fmt::Debug {
    fn start(&mut self, port: &mut Port<'_>);
    fn receive(&mut self, port: &mut Port<'_>, direction: Direction, packet: &Packet<Segment>);
    fn on_timer(&mut self, port: &mut Port<'_>);
    /// When `on_timer` is due; `Time::MAX`: never.
    fn deadline(&self) -> Time;
    /// What its users got, once everything has arrived.
    fn metrics(&self) -> Vec<Metric>;
    /// Bytes of memory beyond the structure itself.
    fn bytes_reserved(&self) -> usize;
}

/// The keys of an application in a scenario, and their meaning.
trait Keys: for<'de> Deserialize<'de> {
    type Config;

    fn check(self) -> Result<Self::Config, Fault>;
}

fn read_keys<K: Keys>(table: Table) -> Result<K::Config, Fault> {
    read_section::<K>(table).and_then(K::check)
}

/// The congestion control of a connection; CUBIC where none is named.
fn algorithm(name: Option<&str>) -> Result<Algorithm, Fault> {
    let name = name.unwrap_or(Algorithm::Cubic.name());
    Algorithm::from_name(name).ok_or_else(|| {
        let known = Algorithm::ALL.map(Algorithm::name).join(", ");
        Fault::new("congestion_control", format!("`{name}` is not simulated; expected {known}"))
    })
}

/// A number for the record.
fn metric(name: impl Into<String>, unit: &str, value: Option<f64>) -> Metric {
    Metric { name: name.into(), unit: unit.to_owned(), value }
}

/// `part` of `whole` in percent; `None` of nothing.
fn percent(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

/// A number of the standard normal distribution (Box and Muller), within three deviations.
fn normal(rng: &mut Rng) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(uniform(rng)));
    let angle = 2.0 * std::f64::consts::PI * uniform(rng);
    (radius * libm::cos(angle)).clamp(-3.0, 3.0)
}

/// A uniform number in (0, 1].
fn uniform(rng: &mut Rng) -> f64 {
    (f64::from(rng.next_u32()) + 1.0) / 4_294_967_296.0
}
