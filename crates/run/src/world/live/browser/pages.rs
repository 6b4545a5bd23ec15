//! Pages that a browser at the client loads from a server at the other end.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use underload_emu::machine::{Ends, SERVER_V4};
use underload_record::schema::{FlowDirection, FlowRecord};
use underload_sim::application::web::IMAGES;

use super::caddy::Caddy;
use super::control::{Controlled, Signals};
use super::loading::{Loader, Loads};
use super::server::PageServer;
use super::{Outcome, Task, record};
use crate::error::{Doing as _, RunError, chain};
use crate::page_loads::PageLoads;
use crate::scenario::{BrowserFlow, PageProtocol};
use crate::world::live::plan::duration;

/// A browser and its server.
pub(super) struct Pages<'a> {
    name: &'a str,
    flow: &'a BrowserFlow,
    server: PageServer,
    caddy: Option<Caddy>,
    browser: Controlled<Loads>,
    /// When the flow was stopped.
    stopped: Arc<OnceLock<Instant>>,
}

impl<'a> Pages<'a> {
    /// `longest`: the longest time that a load may take.
    pub(super) fn start(
        ends: &Ends,
        (name, flow): (&'a str, &'a BrowserFlow),
        longest: Duration,
    ) -> Result<Self, RunError> {
        let listener = ends
            .server()
            .open(|| TcpListener::bind((SERVER_V4, 0)))
            .doing("opening the page's socket")?;
        let of_server = listener.local_addr().of_world()?;
        let server = PageServer::start(listener, flow)?;
        let is_http3 = flow.protocol == PageProtocol::Http3;
        let caddy = is_http3.then(|| Caddy::start(ends.server(), of_server)).transpose()?;
        let address = url(flow, caddy.as_ref().map_or(of_server, |caddy| caddy.address));
        let stopped = Arc::new(OnceLock::new());
        let (loads, pause, is_stopped) = (flow.loads, duration(flow.pause), Arc::clone(&stopped));
        let run = move |tools: Vec<_>, signals: &Signals| {
            let loader = |tools| Loader { tools, address, loads, pause, stopped: is_stopped };
            tools.into_iter().next().map(loader).map_or(Ok(Loads::default()), |it| it.run(signals))
        };
        // Without the key Chromium would refuse the certificate, and connect a second time.
        let trust = |key: &String| format!("--ignore-certificate-errors-spki-list={key}");
        let key = caddy.as_ref().map(|caddy| &caddy.key).or(server.key.as_ref());
        // Without an earlier answer that offers HTTP/3, Chromium would speak HTTP/1.1.
        let quic = |caddy: &Caddy| format!("--origin-to-force-quic-on={}", caddy.address);
        let arguments = key.map(trust).into_iter().chain(caddy.as_ref().map(quic));
        let arguments: Vec<String> = arguments.collect();
        let browser = Controlled::start(&[ends.client()], &arguments, longest, run)?;
        Ok(Self { name, flow, server, caddy, browser, stopped })
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
    fn begin(&mut self) {
        self.browser.begin();
    }

    /// Kills the browser: a load under way ends.
    fn stop(&mut self) {
        self.stopped.get_or_init(Instant::now);
        self.browser.kill();
    }

    fn finish(&mut self) -> Outcome {
        self.stop();
        let is_ours = self.caddy.is_none();
        let connections = is_ours.then(|| self.server.connections());
        let (loads, failure) = match self.browser.join() {
            Ok(loads) => (loads.unwrap_or_default(), None),
            Err(error) => (Loads::default(), Some(chain(&error))),
        };
        let Loads { finished, unfinished } = loads;
        let expected = IMAGES as u32 + u32::from(self.flow.fetches_script);
        let incomplete = finished.iter().find(|load| load.objects != expected);
        let incomplete =
            incomplete.map(|load| format!("a page has {} of its {expected} objects", load.objects));
        let loads = PageLoads { finished, unfinished, connections };
        let text = self.journal(&loads);
        let record = FlowRecord {
            congestion_control: is_ours.then(|| self.flow.congestion_control.clone()),
            ..record(self.name.to_owned(), "browser", FlowDirection::Both, loads.metrics())
        };
        Outcome { records: vec![record], problem: failure.or(incomplete), text }
    }
}

fn url(flow: &BrowserFlow, address: SocketAddr) -> String {
    let scheme = match flow.protocol {
        PageProtocol::Http1 => "http",
        PageProtocol::Http2 | PageProtocol::Http3 => "https",
    };
    format!("{scheme}://{address}/")
}
