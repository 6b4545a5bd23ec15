//! `kind = "tcp"`: bulk transfer.

use serde::{Deserialize, Serialize};
use underload_aqm::packet::Ecn;
use underload_aqm::time::Span;
use underload_record::schema::FlowDirection;
use underload_sim::congestion::PragueConfig;

use super::{Activity, ActivityKeys, checked_activity, checked_class, checked_count, one};
use crate::scenario::error::Fault;
use crate::scenario::identity;
use crate::scenario::quantity::{BytesText, SpanText};

/// Bulk TCP. The sender always has data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TcpFlow {
    /// Direction of the payload.
    pub direction: FlowDirection,
    /// Flows per direction; 0 = the flow rests.
    pub count: u32,
    /// Congestion control, always named: the machine's default may be any.
    pub congestion_control: String,
    /// Whether both ends negotiate ECN.
    pub ecn: bool,
    /// Differentiated Services codepoint.
    pub dscp: u8,
    /// What the receiver takes before it has acknowledged it, bytes; `None`: no limit that
    /// matters. Only in the sim world.
    pub receive_window_bytes: Option<u32>,
    /// Whether to report how long each segment takes to arrive, retransmissions included. Only in
    /// the sim world.
    pub delivery: bool,
    /// Prague's target round trip, and rounds until it counts; `None`: as Linux has them. Only in
    /// the sim world.
    #[serde(serialize_with = "identity::optional_span")]
    pub rtt_target: Option<Span>,
    /// See `rtt_target`.
    pub rtt_transition: Option<u32>,
    /// The times at which the flow sends.
    pub activity: Activity,
}

impl TcpFlow {
    /// Whether its congestion control is one that whoever runs the scenario brings along; see
    /// [`crate::own`].
    pub fn is_own(&self) -> bool {
        self.congestion_control.starts_with(OWN)
    }
}

/// What the name of an own congestion control begins with.
const OWN: &str = "own:";
/// Bytes of the name of a congestion control, at most; an own one has its parameters in it.
const MAX_NAME_BYTES: usize = 64;
const MAX_OWN_BYTES: usize = 512;
/// A smaller window holds no segment.
const MIN_RECEIVE_WINDOW_BYTES: u64 = 1_500;
const MAX_RECEIVE_WINDOW_BYTES: u64 = 1 << 30;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TcpKeys {
    #[serde(default)]
    direction: FlowDirection,
    #[serde(default = "one")]
    count: u32,
    congestion_control: String,
    #[serde(default)]
    ecn: bool,
    #[serde(default)]
    dscp: u8,
    receive_window: Option<BytesText>,
    #[serde(default)]
    delivery: bool,
    rtt_target: Option<SpanText>,
    rtt_transition: Option<u32>,
    start: Option<SpanText>,
    start_jitter: Option<SpanText>,
    stop: Option<SpanText>,
}

impl TcpKeys {
    pub(super) fn check(self) -> Result<TcpFlow, Fault> {
        let name = &self.congestion_control;
        let is_own = name.starts_with(OWN) && name.len() > OWN.len();
        let (marks, most) =
            if is_own { ("_-+:=,.%/", MAX_OWN_BYTES) } else { ("_-+:=", MAX_NAME_BYTES) };
        let plain = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
        if name.is_empty() || name.len() > most || !name.chars().all(plain) {
            let problem = "expected the name of a congestion control, such as \"cubic\"";
            return Err(Fault::new("congestion_control", problem));
        }
        let window = self.receive_window.map(|window| window.0);
        let range = MIN_RECEIVE_WINDOW_BYTES..=MAX_RECEIVE_WINDOW_BYTES;
        if let Some(bytes) = window.filter(|bytes| !range.contains(bytes)) {
            let problem = format!("{bytes}B is out of range; expected 1500B to 1024MiB");
            return Err(Fault::new("receive_window", problem));
        }
        let rtt_target = self.checked_rtt_target()?;
        let Self { start, start_jitter, stop, .. } = self;
        Ok(TcpFlow {
            direction: self.direction,
            count: checked_count(self.count)?,
            congestion_control: self.congestion_control,
            ecn: self.ecn,
            dscp: checked_class(self.dscp, Ecn::NotEct)?.dscp,
            receive_window_bytes: window.map(|bytes| bytes as u32),
            delivery: self.delivery,
            rtt_target,
            rtt_transition: self.rtt_transition,
            activity: checked_activity(ActivityKeys { start, start_jitter, stop })?,
        })
    }

    fn checked_rtt_target(&self) -> Result<Option<Span>, Fault> {
        let keys = [
            ("rtt_target", self.rtt_target.is_some()),
            ("rtt_transition", self.rtt_transition.is_some()),
        ];
        if let Some((key, _)) = keys.iter().find(|(_, given)| *given)
            && self.congestion_control != "prague"
        {
            let problem = format!("is a key of prague, not of {}", self.congestion_control);
            return Err(Fault::new(*key, problem));
        }
        let target = self.rtt_target.map(|SpanText(target)| target);
        if let Some(target) = target.filter(|target| *target > PragueConfig::MAX_RTT_TARGET) {
            let problem = format!("{target} is out of range; expected 0s (off) to 100ms");
            return Err(Fault::new("rtt_target", problem));
        }
        Ok(target)
    }
}
