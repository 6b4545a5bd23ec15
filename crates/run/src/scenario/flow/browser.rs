//! `kind = "browser"`: a real browser that loads a page, in the live world.

use serde::Serialize;
use underload_aqm::time::Span;
use underload_sim::application::web::WebConfig;

use super::application::{MAX_LOADS, Script};
use super::common::{ActivityKeys, Kind};
use super::tcp::DEFAULT_CONTROL;
use crate::keys::{Fault, keys, word, words};

/// A headless Chromium at the client, which loads the page of `kind = "web"` from a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrowserFlow {
    pub protocol: PageProtocol,
    /// Whether a connection serves more than one resource.
    pub keeps_alive: bool,
    /// Maximum number of loads.
    pub loads: u32,
    /// Time between the end of one load and the start of the next.
    pub pause: Span,
    pub fetches_script: bool,
    /// Congestion control of the server's TCP connections.
    pub congestion_control: String,
    /// Since the start of the ramp; `None` to start with the load phase.
    pub start: Option<Span>,
    /// Since the start of the ramp; `None` to stop at the end of the load phase.
    pub stop: Option<Span>,
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

words! { PageProtocol, word: Http1 Http2 Http3; }

impl PageProtocol {
    /// Rejects a congestion control of TCP for a protocol that has no TCP.
    pub(super) fn check_control(self, congestion_control: Option<&str>) -> Result<(), Fault> {
        if congestion_control.is_some() && self == Self::Http3 {
            let problem = "needs protocol = \"http1\" or \"http2\": QUIC has that of `caddy`";
            return Err(Fault::new("congestion_control", problem));
        }
        Ok(())
    }
}

keys! {
    pub(super) struct BrowserKeys {
        /// The protocol of the server; `http1`: HTTP/1.1 without TLS, as the model's; `http2`:
        /// HTTP/2 over TLS 1.3; `http3`: HTTP/3 over QUIC, by the program `caddy`.
        protocol: PageProtocol = PageProtocol::Http1,
        /// Whether connections stay open after a response; `false` for `http1` only: a new one per
        /// resource, as the model's `chrome` has it.
        keep_alive: bool = true,
        /// Loads of the page, each with new connections, as far as the trial's time allows.
        loads: u32 = WebConfig::default().loads => 1..=MAX_LOADS,
        /// Time between two loads.
        pause: Span = WebConfig::default().pause,
        /// Whether the page leaves its script out, as if it came from the cache, or names it.
        script: Script = Script::Cached,
        /// The congestion control of the server; `http3` has that of `caddy`.
        congestion_control: Option<String> where default = "cubic",
        /// Start after the start of the ramp; by default with the load phase.
        start: Option<Span>,
        /// End after the start of the ramp; by default with the load phase.
        stop: Option<Span>,
    }
}

impl Kind for BrowserKeys {
    type Flow = BrowserFlow;
    const NAME: &str = "browser";
    const IS_SIMULATED: bool = false;

    fn check(self) -> Result<BrowserFlow, Fault> {
        let Self { protocol, keep_alive, loads, pause, script, congestion_control, .. } = self;
        if !keep_alive && protocol != PageProtocol::Http1 {
            let problem =
                "`false` needs protocol = \"http1\": the others have one connection per page";
            return Err(Fault::new("keep_alive", problem));
        }
        protocol.check_control(congestion_control.as_deref())?;
        let (start, stop) = (self.start, self.stop);
        let activity = ActivityKeys { start, stop, ..ActivityKeys::default() }.check()?;
        Ok(BrowserFlow {
            protocol,
            keeps_alive: keep_alive,
            loads,
            pause,
            fetches_script: script == Script::Fetched,
            congestion_control: congestion_control.unwrap_or_else(|| DEFAULT_CONTROL.to_owned()),
            start,
            stop: activity.stop,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::Scenario;

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
