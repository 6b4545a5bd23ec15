//! `kind = "udp"`: datagrams at a constant rate.

use serde::{Deserialize, Serialize};
use underload_aqm::rate::Rate;
use underload_record::schema::FlowDirection;

use super::{
    Activity, ActivityKeys, Class, EcnName, checked_activity, checked_class, checked_count, one,
};
use crate::scenario::error::Fault;
use crate::scenario::identity;
use crate::scenario::quantity::{BytesText, RateText, SpanText};

/// UDP at a constant rate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UdpFlow {
    /// Direction of the datagrams.
    pub direction: FlowDirection,
    /// Flows per direction; 0 = the flow rests.
    pub count: u32,
    /// Rate of each, counted as IP packets.
    #[serde(serialize_with = "identity::rate")]
    pub rate: Rate,
    /// Length of each IP packet, bytes.
    pub packet_bytes: u32,
    /// Traffic class.
    pub class: Class,
    /// The times at which the flow sends.
    pub activity: Activity,
}

/// Fewer bytes cannot hold an IPv4 and a UDP header.
const MIN_PACKET_BYTES: u64 = 28;
const MAX_PACKET_BYTES: u64 = 9_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UdpKeys {
    #[serde(default)]
    direction: FlowDirection,
    #[serde(default = "one")]
    count: u32,
    rate: RateText,
    packet: Option<BytesText>,
    #[serde(default)]
    dscp: u8,
    #[serde(default)]
    ecn: EcnName,
    start: Option<SpanText>,
    start_jitter: Option<SpanText>,
    stop: Option<SpanText>,
}

impl UdpKeys {
    pub(super) fn check(self) -> Result<UdpFlow, Fault> {
        if self.rate.0.is_zero() {
            return Err(Fault::new("rate", "0bit sends nothing; expected more"));
        }
        let bytes = self.packet.map_or(1_200, |packet| packet.0);
        if !(MIN_PACKET_BYTES..=MAX_PACKET_BYTES).contains(&bytes) {
            let problem = format!(
                "{bytes}B is out of range; expected {MIN_PACKET_BYTES}B to {MAX_PACKET_BYTES}B"
            );
            return Err(Fault::new("packet", problem));
        }
        let Self { start, start_jitter, stop, .. } = self;
        Ok(UdpFlow {
            direction: self.direction,
            count: checked_count(self.count)?,
            rate: self.rate.0,
            packet_bytes: bytes as u32,
            class: checked_class(self.dscp, self.ecn.codepoint())?,
            activity: checked_activity(ActivityKeys { start, start_jitter, stop })?,
        })
    }
}
