//! Applications: `kind = "voip"` and others, each with keys of its own.

mod cloud_game;
mod common;
mod interactive_video;
mod video;
mod voip;
mod web;

use serde::Serialize;
use underload_aqm::time::Span;
use underload_record::schema::FlowDirection;
use underload_sim::application::ApplicationConfig;
use underload_sim::application::game::GameConfig;
use underload_sim::application::interactive_video::InteractiveVideoConfig;

use super::common::{ActivityKeys, DSCPS, Kind};
use crate::flows;
use crate::keys::{Fault, keys};
use crate::scenario::identity;

use common::Application;

pub(super) use cloud_game::CloudGameKeys;
pub(super) use interactive_video::InteractiveVideoKeys;
pub(super) use video::VideoKeys;
pub(super) use voip::VoipKeys;
pub(super) use web::WebKeys;

/// An application that only the sim world can run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ApplicationFlow {
    /// The application with its own keys.
    #[serde(serialize_with = "identity::application")]
    pub config: ApplicationConfig,
    /// Whether a second one goes the other way: of an application that goes one way.
    #[serde(skip_serializing_if = "is_false")]
    pub is_both_ways: bool,
    /// Differentiated Services codepoint of all of its packets.
    pub dscp: u8,
    /// Since the start of the ramp; `None`: with the load phase.
    #[serde(serialize_with = "identity::optional_span")]
    pub start: Option<Span>,
    /// Since the start of the ramp; `None`: at the end of the load phase.
    #[serde(serialize_with = "identity::optional_span")]
    pub stop: Option<Span>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_false(value: &bool) -> bool {
    !value
}

impl ApplicationFlow {
    /// The applications that an entry stands for, with their names: `call`, or `call-up` and
    /// `call-down` where it goes both ways.
    pub fn flows(&self, entry: &str) -> Vec<(String, ApplicationConfig)> {
        match &self.config {
            ApplicationConfig::InteractiveVideo(call) if self.is_both_ways => {
                let one_way = |(direction, name)| {
                    let config = InteractiveVideoConfig { direction, ..call.clone() };
                    (name, ApplicationConfig::InteractiveVideo(config))
                };
                flows::loads(entry, FlowDirection::Both, 1).map(one_way).collect()
            }
            config => vec![(entry.to_owned(), config.clone())],
        }
    }
}

keys! {
    /// The keys that all applications share.
    pub(super) struct SharedKeys {
        /// Differentiated Services codepoint of all of its packets.
        dscp: Option<u8> => DSCPS,
        /// Since the start of the ramp; by default with the load phase.
        start: Option<Span>,
        /// Since the start of the ramp; by default at the end of the load phase.
        stop: Option<Span>,
    }
}

/// The keys that all applications share, and those of one.
pub(super) type ApplicationKeys<A> = (SharedKeys, A);

impl<A: Application> Kind for ApplicationKeys<A> {
    type Flow = ApplicationFlow;
    const NAME: &str = A::NAME;

    fn check(self) -> Result<ApplicationFlow, Fault> {
        let (SharedKeys { dscp, start, stop }, keys) = self;
        let activity = ActivityKeys { start, stop, ..ActivityKeys::default() }.check()?;
        let dscp = match (keys.own_dscp(), dscp) {
            (Some(own), Some(other)) if own != other => {
                let problem =
                    format!("{other} is not the codepoint that `marking` asks for, {own}");
                return Err(Fault::new("dscp", problem));
            }
            (own, dscp) => own.or(dscp).unwrap_or_default(),
        };
        let is_both_ways = keys.goes_both_ways();
        let (config, stop) = (keys.config()?, activity.stop);
        Ok(ApplicationFlow { config, is_both_ways, dscp, start, stop })
    }
}

keys! {
    /// A game has nothing to set.
    pub(super) struct GameKeys {}
}

impl Application for GameKeys {
    const NAME: &str = "game";

    fn config(self) -> Result<ApplicationConfig, Fault> {
        Ok(ApplicationConfig::Game(GameConfig))
    }
}
