//! Pages that a browser at the client loads from a server at the other end.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use underload_aqm::time::Span;
use underload_emu::machine::Ends;
use underload_scenario::Site;
use underload_sim::application::web::IMAGES;

use super::control::{Controlled, Signals};
use super::loading::{Loader, Loads};
use super::page::Page;
use super::website::Website;
use crate::error::Result;
use crate::world::live::plan::duration;
use crate::world::live::task::{Outcome, Task};
use underload_scenario::page_loads::PageLoads;

/// A browser and its server.
pub(super) struct Pages<'a> {
    name: &'a str,
    /// Images and scripts of the page.
    objects: u32,
    site: Website,
    browser: Controlled<Loads>,
    /// When the flow was stopped.
    stopped: Arc<OnceLock<Instant>>,
}

impl<'a> Pages<'a> {
    /// `longest`: the longest time that a load may take.
    pub(super) fn start(
        ends: &Ends,
        (name, site): (&'a str, &Site),
        (loads, pause, fetches_script): (u32, Span, bool),
        longest: Duration,
    ) -> Result<Self> {
        let site = Website::start(ends, site, Page::new(fetches_script))?;
        let stopped = Arc::new(OnceLock::new());
        let (pause, is_stopped) = (duration(pause), Arc::clone(&stopped));
        let address = site.address.clone();
        let run = move |tools: Vec<_>, signals: &Signals| {
            let loader = |tools| Loader { tools, address, loads, pause, stopped: is_stopped };
            tools.into_iter().next().map(loader).map_or(Ok(Loads::default()), |it| it.run(signals))
        };
        let browser = Controlled::start(&[ends.client()], &site.arguments, longest, run)?;
        let objects = IMAGES as u32 + u32::from(fetches_script);
        Ok(Self { name, objects, site, browser, stopped })
    }

    /// Returns a line of JSON for the browser, and one for each load.
    fn journal(&self, loads: &PageLoads) -> String {
        let browser = serde_json::json!({ "browser": self.browser.version });
        let lines = loads.finished.iter().filter_map(|load| serde_json::to_string(load).ok());
        let lines: Vec<String> = [browser.to_string()].into_iter().chain(lines).collect();
        lines.join("\n") + "\n"
    }
}

impl Task for Pages<'_> {
    fn begin(&mut self) -> Result<()> {
        self.browser.begin();
        Ok(())
    }

    /// Kills the browser: a load under way ends.
    fn stop(&mut self) {
        self.stopped.get_or_init(Instant::now);
        self.browser.kill();
    }

    fn finish(&mut self) -> Result<Outcome> {
        self.stop();
        let connections = self.site.connections();
        let (Loads { finished, unfinished }, failure) = self.browser.finish();
        let expected = self.objects;
        let incomplete = finished.iter().find(|load| load.objects != expected);
        let incomplete =
            incomplete.map(|load| format!("a page has {} of its {expected} objects", load.objects));
        let loads = PageLoads { finished, unfinished, connections };
        let text = self.journal(&loads);
        let record = self.site.record(self.name, "browser", loads.metrics());
        let text = text.into_bytes();
        Ok(Outcome { records: vec![record], problem: failure.or(incomplete), text })
    }
}
