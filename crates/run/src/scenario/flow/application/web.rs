//! `kind = "web"`: a page, loaded again and again.

use serde::Serialize;
use underload_aqm::time::Span;
use underload_sim::application::ApplicationConfig;
use underload_sim::application::web::{Browser, WebConfig};

use super::common::{Application, algorithm};
use crate::keys::{Fault, keys, word, words};

keys! {
    pub(in crate::scenario::flow) struct WebKeys {
        /// Which browser's connections.
        browser: Browser = Browser::Chrome,
        /// How often the page is loaded, if there is time.
        loads: u32 = WebConfig::default().loads => 1..=MAX_LOADS,
        /// Between two loads.
        pause: Span = WebConfig::default().pause,
        /// Whether the script is loaded, too.
        script: Script = Script::Cached,
        /// The congestion control of both ends.
        congestion_control: Option<String>,
        /// Segments.
        initial_window: u32 = WebConfig::default().initial_window => 1..=100,
    }
}

#[derive(Serialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Script {
    Cached,
    Fetched,
}

words! { Script, word: Cached Fetched; }

impl Application for WebKeys {
    const NAME: &str = "web";

    fn config(self) -> Result<ApplicationConfig, Fault> {
        Ok(ApplicationConfig::Web(WebConfig {
            browser: self.browser,
            loads: self.loads,
            pause: self.pause,
            fetches_script: self.script == Script::Fetched,
            algorithm: algorithm(self.congestion_control.as_deref())?,
            initial_window: self.initial_window,
        }))
    }
}

/// Loads per flow.
const MAX_LOADS: u32 = 100_000;
