//! `kind = "web"`: a page, loaded again and again.

use serde::Deserialize;
use underload_sim::application::ApplicationConfig;
use underload_sim::application::web::{Browser, WebConfig};

use super::{Keys, algorithm};
use crate::scenario::error::Fault;
use crate::scenario::quantity::SpanText;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::scenario::flow) struct WebKeys {
    #[serde(default)]
    browser: Browser,
    loads: Option<u32>,
    pause: Option<SpanText>,
    #[serde(default)]
    script: Script,
    congestion_control: Option<String>,
    initial_window: Option<u32>,
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Script {
    #[default]
    Cached,
    Fetched,
}

impl Keys for WebKeys {
    fn check(self) -> Result<ApplicationConfig, Fault> {
        let default = WebConfig::default();
        let loads = self.loads.unwrap_or(default.loads);
        if !(1..=MAX_LOADS).contains(&loads) {
            let problem = format!("{loads} is out of range; expected 1 to {MAX_LOADS}");
            return Err(Fault::new("loads", problem));
        }
        let initial_window = self.initial_window.unwrap_or(default.initial_window);
        if !(1..=100).contains(&initial_window) {
            let problem = format!("{initial_window} is out of range; expected 1 to 100 segments");
            return Err(Fault::new("initial_window", problem));
        }
        Ok(ApplicationConfig::Web(WebConfig {
            browser: self.browser,
            loads,
            pause: self.pause.map_or(default.pause, |pause| pause.0),
            fetches_script: self.script == Script::Fetched,
            algorithm: algorithm(self.congestion_control.as_deref())?,
            initial_window,
        }))
    }
}

/// Loads per flow.
const MAX_LOADS: u32 = 100_000;
