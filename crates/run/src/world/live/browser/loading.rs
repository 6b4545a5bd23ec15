//! The thread that makes a browser load a page repeatedly.

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde_json::json;
use underload_aqm::time::Span;
use underload_browser::{DevTools, DevToolsError};

use super::control::{Signals, parsed};
use underload_scenario::page_loads::PageTiming;

/// The loads of one flow.
pub(super) struct Loader {
    pub tools: DevTools,
    pub address: String,
    pub loads: u32,
    pub pause: Duration,
    /// When the flow was stopped, just before its browser is killed.
    pub stopped: Arc<OnceLock<Instant>>,
}

#[derive(Debug, Default)]
pub(super) struct Loads {
    pub finished: Vec<PageTiming>,
    /// Time from the start of a load to the end of the flow, which came first.
    pub unfinished: Option<Span>,
}

/// An open page in a new browser context, without connections, cache or TLS sessions of earlier
/// loads.
struct Page {
    context: String,
    session: String,
}

/// Resolves to the times of the load once its event has ended.
const TIMING: &str = "new Promise((resolve) => {
    const look = () => {
        const [load] = performance.getEntriesByType('navigation');
        if (load.loadEventEnd === 0) return setTimeout(look, 1);
        const images = [...document.images].filter((image) => image.naturalWidth > 0).length;
        const scripts = performance.getEntriesByType('resource')
            .filter((entry) => entry.initiatorType === 'script' && entry.responseEnd > 0).length;
        resolve({ ...load.toJSON(), objects: images + scripts });
    };
    look();
})";

impl Loader {
    /// Opens an empty page, waits for the start of the flow, and loads the page until the browser
    /// is killed.
    ///
    /// # Errors
    /// Returns an error if the browser fails before the flow was stopped.
    pub(super) fn run(mut self, signals: &Signals) -> Result<Loads, DevToolsError> {
        let mut loads = Loads::default();
        let mut page = self.open()?;
        if !signals.wait() {
            return Ok(loads);
        }
        for number in 1..=self.loads {
            let begun = Instant::now();
            match self.load(&page) {
                Ok(timing) => loads.finished.push(timing),
                Err(error) => {
                    let stopped = self.stopped.get().ok_or(error)?;
                    let length = stopped.saturating_duration_since(begun);
                    loads.unfinished = Some(Span::from_nanos(length.as_nanos() as u64));
                    break;
                }
            }
            if number == self.loads {
                break;
            }
            let next = Instant::now() + self.pause;
            match self.replace(&page) {
                Ok(other) => page = other,
                Err(_) if self.stopped.get().is_some() => break,
                Err(error) => return Err(error),
            }
            let rest = next.saturating_duration_since(Instant::now());
            if signals.begin.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
                break;
            }
        }
        Ok(loads)
    }

    fn load(&mut self, page: &Page) -> Result<PageTiming, DevToolsError> {
        let Self { tools, address, .. } = self;
        tools.navigate(&page.session, address)?;
        let timing = tools.value(&page.session, TIMING)?;
        tools.take_events();
        parsed(&timing, "the times of a load")
    }

    fn open(&mut self) -> Result<Page, DevToolsError> {
        let context = self.tools.call("", "Target.createBrowserContext", &json!({}))?;
        let context = context["browserContextId"].as_str().unwrap_or_default().to_owned();
        let session = self.tools.open_page(&context)?;
        Ok(Page { context, session })
    }

    /// Closes a page and opens another.
    fn replace(&mut self, page: &Page) -> Result<Page, DevToolsError> {
        let context = json!({ "browserContextId": page.context });
        self.tools.call("", "Target.disposeBrowserContext", &context)?;
        self.open()
    }
}
