//! A video call between a browser at the client and one at the server.

use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use serde_json::{Value, json};
use underload_aqm::rate::Rate;
use underload_browser::{DevTools, DevToolsError};
use underload_emu::machine::Ends;
use underload_record::schema::{Direction, FlowDirection};
use underload_scenario::flows;

use super::control::{Controlled, Signals, parsed};
use crate::error::Result;
use crate::world::live::task::{Outcome, Task, record};
use underload_scenario::call_stats::{CallDirection, CallStats};

/// A call under way.
pub(super) struct Call<'a> {
    name: &'a str,
    direction: FlowDirection,
    browsers: Controlled<[Vec<CallStats>; 2]>,
}

/// A page of the call, in its browser.
struct Party {
    tools: DevTools,
    session: String,
}

/// A browser on a busy machine answers within this time.
const PATIENCE: Duration = Duration::from_secs(30);
/// Statistics are read at this interval.
const INTERVAL: Duration = Duration::from_secs(1);
/// A test picture and a test tone instead of camera and microphone, and no question to the user.
const MEDIA: [&str; 2] =
    ["--use-fake-device-for-media-stream=fps=30", "--use-fake-ui-for-media-stream"];
/// A page without a network that may use the camera, which needs a secure context.
const PAGE: &str = "file:///dev/null";
const SCRIPT: &str = include_str!("call.js");

impl<'a> Call<'a> {
    pub(super) fn start(
        ends: &Ends,
        name: &'a str,
        direction: FlowDirection,
        max_rate: Rate,
    ) -> Result<Self> {
        let max_rate = max_rate.bits_per_second();
        let run = move |tools, signals: &Signals| converse(tools, signals, direction, max_rate);
        let arguments = MEDIA.map(str::to_owned);
        let both = [ends.client(), ends.server()];
        let browsers = Controlled::start(&both, &arguments, PATIENCE, run)?;
        Ok(Self { name, direction, browsers })
    }
}

impl Task for Call<'_> {
    fn begin(&mut self) -> Result<()> {
        self.browsers.begin();
        Ok(())
    }

    fn stop(&mut self) {
        self.browsers.close();
    }

    fn finish(&mut self) -> Result<Outcome> {
        let (stats, problem) = self.browsers.finish();
        let mut lines = vec![json!({ "browser": self.browsers.version }).to_string()];
        for (end, stats) in ["client", "server"].into_iter().zip(&stats) {
            lines.extend(
                stats.iter().map(|stats| json!({ "end": end, "video": stats }).to_string()),
            );
        }
        let [client, server] = &stats;
        let (mut records, mut silent) = (Vec::new(), None);
        for (direction, name) in flows::loads(self.name, self.direction, 1) {
            let (one_way, call) = match direction {
                Direction::Up => {
                    (FlowDirection::Up, CallDirection { sender: client, receiver: server })
                }
                Direction::Down => {
                    (FlowDirection::Down, CallDirection { sender: server, receiver: client })
                }
            };
            if !call.has_video() && !client.is_empty() {
                silent = Some(format!("no video arrived in direction {direction}"));
            }
            records.push(record(name, "webrtc", one_way, call.metrics()));
        }
        let text = (lines.join("\n") + "\n").into_bytes();
        Ok(Outcome { records, problem: problem.or(silent), text })
    }
}

impl Party {
    fn open(mut tools: DevTools, sends: bool) -> Result<Self, DevToolsError> {
        let session = tools.open_page("")?;
        tools.navigate(&session, PAGE)?;
        let mut party = Self { tools, session };
        party.value(&format!("({SCRIPT})({sends})"))?;
        Ok(party)
    }

    fn value(&mut self, expression: &str) -> Result<Value, DevToolsError> {
        let value = self.tools.value(&self.session, expression);
        self.tools.take_events();
        value
    }

    fn stats(&mut self) -> Result<CallStats, DevToolsError> {
        parsed(&self.value("readStatistics()")?, "the statistics of a call")
    }
}

/// Connects the pages of both browsers, and reads their statistics until the call is to end.
/// Returns those of the client and of the server.
fn converse(
    tools: Vec<DevTools>,
    signals: &Signals,
    direction: FlowDirection,
    max_rate: u64,
) -> Result<[Vec<CallStats>; 2], DevToolsError> {
    let sends = |way| direction.ways().contains(&way);
    let ways = [Direction::Up, Direction::Down].into_iter();
    let parties = tools.into_iter().zip(ways).map(|(tools, way)| Party::open(tools, sends(way)));
    let mut parties = parties.collect::<Result<Vec<_>, _>>()?;
    let mut stats = [Vec::new(), Vec::new()];
    let is_asked = signals.wait();
    let [client, server] = parties.as_mut_slice() else { return Ok(stats) };
    if !is_asked {
        return Ok(stats);
    }
    // The page that sends makes the offer: an offer lists only the media of the page that makes it.
    let [first, second] =
        if sends(Direction::Up) { [&mut *client, &mut *server] } else { [&mut *server, client] };
    let offer = first.value("describe()")?;
    second.value(&format!("call.setRemoteDescription({offer})"))?;
    let answer = second.value("describe()")?;
    first.value(&format!("call.setRemoteDescription({answer})"))?;
    for party in &mut parties {
        party.value(&format!("limitVideo({max_rate})"))?;
    }
    loop {
        for (party, stats) in parties.iter_mut().zip(&mut stats) {
            stats.push(party.stats()?);
        }
        if signals.begin.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
            return Ok(stats);
        }
    }
}
