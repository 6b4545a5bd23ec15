//! A film that dash.js plays in a browser at the client, from a server at the other end.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use underload_aqm::time::Span;
use underload_browser::{DevTools, DevToolsError};
use underload_disk::folders;
use underload_emu::machine::Ends;
use underload_scenario::{DashPlayer, Site};
use underload_sim::application::video::LADDER;

use super::control::{Controlled, Signals, parsed};
use super::film::{Film, MANIFEST};
use super::website::Website;
use crate::error::{Doing as _, Result};
use crate::world::live::task::{Outcome, Task};
use underload_scenario::film_report::FilmReport;

/// A browser that plays films, and the server of the films.
pub(super) struct Films<'a> {
    name: &'a str,
    site: Website,
    browser: Controlled<FilmReport>,
}

/// The message to a user without dash.js.
pub(super) const MISSING: &str = "no dash.js, which plays films (npm install --prefix \
    ~/.cache/underload dashjs@5, or UNDERLOAD_DASHJS=FILE for its dash.mediaplayer.min.js)";
/// Where `npm` puts the script, below the folder of caches.
const USUAL: &str = "node_modules/dashjs/dist/modern/umd/dash.mediaplayer.min.js";
/// A browser on a busy machine answers within this time.
const PATIENCE: Duration = Duration::from_secs(30);
/// The player starts without a click of a user.
const AUTOPLAY: &str = "--autoplay-policy=no-user-gesture-required";
const SCRIPT: &str = include_str!("film.js");

/// Returns the file of dash.js that `UNDERLOAD_DASHJS` names, or the one that `npm` installed;
/// `None` if there is no such file.
pub(super) fn dash_js() -> Option<PathBuf> {
    let named = std::env::var_os("UNDERLOAD_DASHJS").map(PathBuf::from);
    named.or_else(|| Some(folders::cache()?.join(USUAL))).filter(|file| file.is_file())
}

impl<'a> Films<'a> {
    pub(super) fn start(
        ends: &Ends,
        (name, site): (&'a str, &Site),
        player: DashPlayer,
        buffer: Span,
    ) -> Result<Self> {
        let file = dash_js().ok_or(MISSING).of_world()?;
        let dash_js = std::fs::read_to_string(&file);
        let dash_js = dash_js.doing(format!("reading {}", file.display()))?;
        let site = Website::start(ends, site, Film)?;
        let settings = json!({
            "player": player,
            "bufferSeconds": buffer.as_secs_f64(),
            "lowestKilobits": LADDER[0] * 1e3,
        });
        let address = format!("{}{MANIFEST}", site.address);
        let run = move |tools: Vec<_>, signals: &Signals| {
            let Some(tools) = tools.into_iter().next() else { return Ok(FilmReport::default()) };
            watch(tools, signals, &dash_js, &settings, &address)
        };
        let mut arguments = site.arguments.clone();
        arguments.push(AUTOPLAY.to_owned());
        let browser = Controlled::start(&[ends.client()], &arguments, PATIENCE, run)?;
        Ok(Self { name, site, browser })
    }
}

impl Task for Films<'_> {
    fn begin(&mut self) -> Result<()> {
        self.browser.begin();
        Ok(())
    }

    fn stop(&mut self) {
        self.browser.close();
    }

    fn finish(&mut self) -> Result<Outcome> {
        let (report, failure) = self.browser.finish();
        let error = report.error.as_ref().map(|error| format!("dash.js: {error}"));
        let empty = report.chunks.is_empty().then(|| "no chunk of the film arrived".to_owned());
        let header = json!({ "browser": self.browser.version, "dash.js": report.player });
        let chunks = report.chunks.iter().map(|chunk| json!({ "chunk": chunk }));
        let states = report.states.iter().map(|state| json!({ "state": state }));
        let lines = [header].into_iter().chain(chunks).chain(states);
        let lines: Vec<String> = lines.map(|line| line.to_string()).collect();
        let record = self.site.record(self.name, "dash", report.metrics());
        let problem = failure.or(error).or(empty);
        let text = (lines.join("\n") + "\n").into_bytes();
        Ok(Outcome { records: vec![record], problem, text })
    }
}

/// Opens a page with the player, plays the film from the start of the flow to its end, and returns
/// the page's report.
fn watch(
    mut tools: DevTools,
    signals: &Signals,
    dash_js: &str,
    settings: &Value,
    address: &str,
) -> Result<FilmReport, DevToolsError> {
    let session = tools.open_page("")?;
    // An error would repeat the whole script.
    let refused = |answer: String| DevToolsError::Refused { what: "dash.js".to_owned(), answer };
    tools.value(&session, &format!("{dash_js}\n;0")).map_err(|error| match error {
        DevToolsError::Refused { answer, .. } => refused(answer),
        other => other,
    })?;
    if tools.value(&session, &format!("({SCRIPT})({settings})"))?.is_null() {
        return Err(refused("the file defines no `dashjs.MediaPlayer`".to_owned()));
    }
    if !signals.wait() {
        return Ok(FilmReport::default());
    }
    tools.value(&session, &format!("play({})", json!(address)))?;
    // Closed at the end of the flow.
    let _ = signals.begin.recv();
    parsed(&tools.value(&session, "report()")?, "the report of a film")
}
