//! `kind = "dash"`: a film by the player dash.js in a real browser, in the live world.

use serde::Serialize;
use underload_aqm::time::Span;
use underload_sim::application::video::VideoConfig;

use super::application::VIDEO_BUFFERS;
use super::browser::PageProtocol;
use super::common::{ActivityKeys, Kind};
use super::tcp::DEFAULT_CONTROL;
use crate::keys::{Fault, keys, word, words};

/// A headless Chromium at the client, in which dash.js plays the film of `kind = "video"` from a
/// server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DashFlow {
    pub protocol: PageProtocol,
    pub player: DashPlayer,
    /// Video that the player buffers, at most.
    pub buffer: Span,
    /// Congestion control of the server's TCP connections.
    pub congestion_control: String,
    /// Since the start of the ramp; `None` to start with the load phase.
    pub start: Option<Span>,
    /// Since the start of the ramp; `None` to stop at the end of the load phase.
    pub stop: Option<Span>,
}

/// The rule by which dash.js chooses the bit rate of the next chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DashPlayer {
    Dynamic,
    Bola,
    Throughput,
}

words! { DashPlayer, word: Dynamic Bola Throughput; }

keys! {
    pub(super) struct DashKeys {
        /// The protocol of the server; `http1`: HTTP/1.1 without TLS, as the model's; `http2`:
        /// HTTP/2 over TLS 1.3; `http3`: HTTP/3 over QUIC, by the program `caddy`.
        protocol: PageProtocol = PageProtocol::Http1,
        /// How the player chooses the rate of the next chunk; `bola`: by its buffer; `throughput`:
        /// by its estimate of the path; `dynamic`: by either, as dash.js does on its own.
        player: DashPlayer = DashPlayer::Dynamic,
        /// Video that the player buffers, at most.
        buffer: Span = VideoConfig::default().buffer => VIDEO_BUFFERS,
        /// The congestion control of the server; `http3` has that of `caddy`.
        congestion_control: Option<String> where default = "cubic",
        /// Start after the start of the ramp; by default with the load phase.
        start: Option<Span>,
        /// End after the start of the ramp; by default with the load phase.
        stop: Option<Span>,
    }
}

impl Kind for DashKeys {
    type Flow = DashFlow;
    const NAME: &str = "dash";
    const IS_SIMULATED: bool = false;

    fn check(self) -> Result<DashFlow, Fault> {
        let Self { protocol, player, buffer, congestion_control, start, stop } = self;
        protocol.check_control(congestion_control.as_deref())?;
        let stop = ActivityKeys { start, stop, ..ActivityKeys::default() }.check()?.stop;
        let congestion_control = congestion_control.unwrap_or_else(|| DEFAULT_CONTROL.to_owned());
        Ok(DashFlow { protocol, player, buffer, congestion_control, start, stop })
    }
}
