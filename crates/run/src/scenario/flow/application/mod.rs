//! Applications: `kind = "voip"` and others, each with keys of its own.

mod cloud_game;
mod interactive_video;
mod video;
mod voip;
mod web;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toml::Table;
use underload_aqm::packet::Ecn;
use underload_aqm::time::Span;
use underload_record::schema::FlowDirection;
use underload_sim::application::ApplicationConfig;
use underload_sim::application::game::GameConfig;
use underload_sim::application::interactive_video::InteractiveVideoConfig;
use underload_sim::congestion::Algorithm;

use super::{ActivityKeys, checked_activity, checked_class};
use crate::flows;
use crate::scenario::error::Fault;
use crate::scenario::identity;
use crate::scenario::quantity::SpanText;
use crate::scenario::section::read_section;
use crate::scenario::trace;

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

/// The keys that all applications share.
#[derive(Deserialize)]
struct SharedKeys {
    dscp: Option<u8>,
    start: Option<SpanText>,
    stop: Option<SpanText>,
}

/// The keys of one application, and what they mean.
pub(super) trait Keys: DeserializeOwned {
    /// The codepoint that its own keys ask for, beside the key `dscp`.
    fn own_dscp(&self) -> Option<u8> {
        None
    }

    /// Whether an application that goes one way goes the other way, too.
    fn goes_both_ways(&self) -> bool {
        false
    }

    fn check(self) -> Result<ApplicationConfig, Fault>;
}

/// Reads an application: the keys that all share, and its own.
pub(super) fn read<K: Keys>(mut table: Table) -> Result<ApplicationFlow, Fault> {
    let shared: Table = ["dscp", "start", "stop"]
        .into_iter()
        .filter_map(|key| table.remove(key).map(|value| (key.to_owned(), value)))
        .collect();
    let SharedKeys { dscp, start, stop } = read_section(shared)?;
    let has_start = start.is_some();
    let activity = checked_activity(ActivityKeys { start, stop, ..ActivityKeys::default() })?;
    let keys: K = read_section(table)?;
    let dscp = match (keys.own_dscp(), dscp) {
        (Some(own), Some(other)) if own != other => {
            let problem = format!("{other} is not the codepoint that `marking` asks for, {own}");
            return Err(Fault::new("dscp", problem));
        }
        (own, dscp) => own.or(dscp).unwrap_or_default(),
    };
    let is_both_ways = keys.goes_both_ways();
    Ok(ApplicationFlow {
        config: keys.check()?,
        is_both_ways,
        dscp: checked_class(dscp, Ecn::NotEct)?.dscp,
        start: has_start.then_some(activity.start),
        stop: activity.stop,
    })
}

/// The keys of an application with their forms.
pub(super) fn known<K: Keys>() -> Map<String, Value> {
    let mut keys = trace::keys::<SharedKeys>();
    keys.append(&mut trace::keys::<K>());
    keys
}

/// A game has nothing to set.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GameKeys {}

impl Keys for GameKeys {
    fn check(self) -> Result<ApplicationConfig, Fault> {
        Ok(ApplicationConfig::Game(GameConfig))
    }
}

/// The congestion control of a connection; CUBIC where none is named.
fn algorithm(name: Option<&str>) -> Result<Algorithm, Fault> {
    let name = name.unwrap_or(Algorithm::Cubic.name());
    Algorithm::from_name(name).ok_or_else(|| {
        let known = Algorithm::names();
        Fault::new("congestion_control", format!("`{name}` is not simulated; expected {known}"))
    })
}
