//! `kind = "tcp"`: bulk transfer.

use serde::{Deserialize, Serialize};
use underload_aqm::packet::Ecn;
use underload_record::schema::FlowDirection;

use super::{Activity, checked_activity, checked_class, checked_count, one};
use crate::scenario::error::Fault;
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
    /// The times at which the flow sends.
    pub activity: Activity,
}

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
    start: Option<SpanText>,
    stop: Option<SpanText>,
}

impl TcpKeys {
    pub(super) fn check(self) -> Result<TcpFlow, Fault> {
        let name = &self.congestion_control;
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-+:=".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            let problem = "expected the name of a congestion control, such as \"cubic\"";
            return Err(Fault::new("congestion_control", problem));
        }
        let window = self.receive_window.map(|window| window.0);
        let range = MIN_RECEIVE_WINDOW_BYTES..=MAX_RECEIVE_WINDOW_BYTES;
        if let Some(bytes) = window.filter(|bytes| !range.contains(bytes)) {
            let problem = format!("{bytes}B is out of range; expected 1500B to 1024MiB");
            return Err(Fault::new("receive_window", problem));
        }
        Ok(TcpFlow {
            direction: self.direction,
            count: checked_count(self.count)?,
            congestion_control: self.congestion_control,
            ecn: self.ecn,
            dscp: checked_class(self.dscp, Ecn::NotEct)?.dscp,
            receive_window_bytes: window.map(|bytes| bytes as u32),
            delivery: self.delivery,
            activity: checked_activity(self.start, self.stop)?,
        })
    }
}
