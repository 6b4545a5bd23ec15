//! `kind = "browser"`, `"dash"` and `"webrtc"`: real browsers, in the live world.

use serde::Serialize;
use underload_aqm::rate::Rate;
use underload_aqm::time::Span;
use underload_record::schema::{FlowDirection, Metric};
use underload_sim::application::interactive_video::InteractiveVideoConfig;
use underload_sim::application::video::VideoConfig;
use underload_sim::application::web::WebConfig;

use super::FlowKind;
use super::application::{MAX_LOADS, MAX_RATES, Script, VIDEO_BUFFERS};
use super::common::{Activity, DuringLoad, Kind, Properties};
use super::tcp::DEFAULT_CONTROL;
use crate::call_stats::CallDirection;
use crate::film_report::FilmReport;
use crate::keys::{Fault, keys, word, words};
use crate::page_loads::PageLoads;

/// The traffic of headless Chromiums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrowserFlow {
    /// A browser at the client loads the page of `kind = "web"` from a server.
    Pages {
        site: Site,
        /// Maximum number of loads.
        loads: u32,
        /// Time between the end of one load and the start of the next.
        pause: Span,
        fetches_script: bool,
    },
    /// In a browser at the client dash.js plays the film of `kind = "video"` from a server.
    Film {
        site: Site,
        player: DashPlayer,
        /// Longest video that the player buffers.
        buffer: Span,
    },
    /// A call between a browser at the client and one at the server, with the picture and the
    /// sound of the browsers' test devices.
    Call {
        direction: FlowDirection,
        /// The highest rate of the video in each direction.
        max_rate: Rate,
    },
}

/// How a page or a film is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    pub protocol: PageProtocol,
    /// Whether a connection serves more than one resource.
    pub keeps_alive: bool,
    /// Congestion control of the server's TCP connections.
    pub congestion_control: String,
}

/// The protocol that a page or a film is served by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageProtocol {
    /// HTTP/1.1 over TCP, without TLS.
    Http1,
    /// HTTP/2 over TLS 1.3, without which browsers do not speak it.
    Http2,
    /// HTTP/3 over QUIC, by the program `caddy`.
    Http3,
}

/// The rule by which dash.js chooses the bit rate of the next chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DashPlayer {
    Dynamic,
    Bola,
    Throughput,
}

words! {
    PageProtocol, word: Http1 Http2 Http3;
    DashPlayer, word: Dynamic Bola Throughput;
}

impl Site {
    /// Rejects keys of TCP for a protocol that has no TCP, or one connection per page.
    fn new(
        protocol: PageProtocol,
        keeps_alive: bool,
        congestion_control: Option<String>,
    ) -> Result<Self, Fault> {
        if !keeps_alive && protocol != PageProtocol::Http1 {
            let problem =
                "`false` needs protocol = \"http1\": the others have one connection per page";
            return Err(Fault::new("keep_alive", problem));
        }
        if congestion_control.is_some() && protocol == PageProtocol::Http3 {
            let problem = "needs protocol = \"http1\" or \"http2\": QUIC has that of `caddy`";
            return Err(Fault::new("congestion_control", problem));
        }
        let congestion_control = congestion_control.unwrap_or_else(|| DEFAULT_CONTROL.to_owned());
        Ok(Self { protocol, keeps_alive, congestion_control })
    }
}

impl BrowserFlow {
    /// Returns the site that is loaded; `None` for a call.
    pub fn site(&self) -> Option<&Site> {
        match self {
            Self::Pages { site, .. } | Self::Film { site, .. } => Some(site),
            Self::Call { .. } => None,
        }
    }
}

impl Properties for BrowserFlow {
    fn group(&self) -> (FlowDirection, u32) {
        match self {
            Self::Call { direction, .. } => (*direction, 1),
            Self::Pages { .. } | Self::Film { .. } => (FlowDirection::Up, 1),
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        match self {
            Self::Pages { .. } => PageLoads::default().metrics(),
            Self::Film { .. } => FilmReport::default().metrics(),
            Self::Call { .. } => CallDirection::default().metrics(),
        }
    }

    fn congestion_control(&self) -> Option<&str> {
        self.site().map(|site| site.congestion_control.as_str())
    }
}

keys! {
    pub(super) struct PageKeys {
        /// The protocol of the server; `http1`: HTTP/1.1 without TLS, as the model's; `http2`:
        /// HTTP/2 over TLS 1.3; `http3`: HTTP/3 over QUIC, by the program `caddy`.
        protocol: PageProtocol = PageProtocol::Http1,
        /// Whether connections stay open after a response; `false` for `http1` only: a new one per
        /// resource, as the model's `chrome` has it.
        keep_alive: bool = true,
        /// Number of page loads, each with new connections; fewer if the trial ends before.
        loads: u32 = WebConfig::default().loads => 1..=MAX_LOADS,
        /// Time between two loads.
        pause: Span = WebConfig::default().pause,
        /// Whether the page omits its script, as if cached, or refers to it.
        script: Script = Script::Cached,
        /// The congestion control of the server; `http3` has that of `caddy`.
        congestion_control: Option<String> where default = "cubic",
        times: DuringLoad [flat],
    }
}

impl Kind for PageKeys {
    const NAME: &str = "browser";
    const IS_SIMULATED: bool = false;

    fn check(self) -> Result<(FlowKind, Activity), Fault> {
        let Self { protocol, keep_alive, loads, pause, script, congestion_control, times } = self;
        let site = Site::new(protocol, keep_alive, congestion_control)?;
        let fetches_script = script == Script::Fetched;
        let pages = BrowserFlow::Pages { site, loads, pause, fetches_script };
        Ok((FlowKind::Browser(pages), times.0))
    }
}

keys! {
    pub(super) struct FilmKeys {
        /// The protocol of the server; `http1`: HTTP/1.1 without TLS, as the model's; `http2`:
        /// HTTP/2 over TLS 1.3; `http3`: HTTP/3 over QUIC, by the program `caddy`.
        protocol: PageProtocol = PageProtocol::Http1,
        /// How the player chooses the rate of the next chunk; `bola`: by its buffer; `throughput`:
        /// by its estimate of the path; `dynamic`: by either, as dash.js does on its own.
        player: DashPlayer = DashPlayer::Dynamic,
        /// Longest video that the player buffers.
        buffer: Span = VideoConfig::default().buffer => VIDEO_BUFFERS,
        /// The congestion control of the server; `http3` has that of `caddy`.
        congestion_control: Option<String> where default = "cubic",
        times: DuringLoad [flat],
    }
}

impl Kind for FilmKeys {
    const NAME: &str = "dash";
    const IS_SIMULATED: bool = false;

    fn check(self) -> Result<(FlowKind, Activity), Fault> {
        let Self { protocol, player, buffer, congestion_control, times } = self;
        let site = Site::new(protocol, true, congestion_control)?;
        Ok((FlowKind::Browser(BrowserFlow::Film { site, player, buffer }), times.0))
    }
}

keys! {
    pub(super) struct CallKeys {
        /// Direction of picture and sound.
        direction: FlowDirection = FlowDirection::Both,
        /// The highest rate of the video in each direction.
        max_rate: Rate = InteractiveVideoConfig::default().max_rate => MAX_RATES,
        times: DuringLoad [flat],
    }
}

impl Kind for CallKeys {
    const NAME: &str = "webrtc";
    const IS_SIMULATED: bool = false;

    fn check(self) -> Result<(FlowKind, Activity), Fault> {
        let Self { direction, max_rate, times } = self;
        Ok((FlowKind::Browser(BrowserFlow::Call { direction, max_rate }), times.0))
    }
}

#[cfg(test)]
mod tests {
    use crate::Scenario;

    #[test]
    fn keys_of_tcp_connections_are_refused_for_other_protocols() {
        for (kind, protocol, key, needs) in [
            ("browser", "http2", "keep_alive = false", "keep_alive: `false` needs"),
            ("browser", "http3", "keep_alive = false", "keep_alive: `false` needs"),
            ("browser", "http3", "congestion_control = \"reno\"", "congestion_control: needs"),
            ("dash", "http3", "congestion_control = \"reno\"", "congestion_control: needs"),
        ] {
            let text = format!(
                "[path]\nup = \"10mbit\"\n[[flow]]\nkind = \"probe\"\n\
                 [[flow]]\nkind = \"{kind}\"\nprotocol = \"{protocol}\"\n"
            );
            Scenario::parse(&text, "test").expect("a scenario");
            let error = Scenario::parse(&(text + key), "test").expect_err("refused").to_string();
            assert!(error.contains(&format!("flow.{kind}.{needs}")), "{error}");
        }
    }
}
