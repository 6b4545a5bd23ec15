//! `kind = "tcp"`: bulk transfer.

use std::ops::RangeInclusive;

use serde::Serialize;
use underload_aqm::time::Span;
use underload_record::schema::FlowDirection;
use underload_sim::congestion::PragueConfig;

use super::common::{Activity, COUNTS, DSCPS, Kind};
use crate::keys::{Bytes, Fault, keys};
use crate::scenario::identity;

keys! {
    /// Bulk TCP. The sender always has data.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
    pub struct TcpFlow {
        /// Direction of the payload.
        pub direction: FlowDirection = FlowDirection::Up,
        /// Flows per direction; 0 = the flow rests.
        pub count: u32 = 1 => COUNTS,
        /// Congestion control, always named: the machine's default may be any.
        pub congestion_control: String,
        /// Whether both ends negotiate ECN.
        pub ecn: bool = false,
        /// Differentiated Services codepoint.
        pub dscp: u8 = 0 => DSCPS,
        /// Bytes that the receiver accepts before it has acknowledged them; `None`: no limit that
        /// matters. Only in the sim world.
        pub receive_window_bytes: Option<Bytes> as "receive_window" => RECEIVE_WINDOWS,
        /// Whether to report how long each segment takes to arrive, retransmissions included. Only
        /// in the sim world.
        pub delivery: bool = false,
        /// Prague's target round trip, 0 = off; `None`: as Linux has it. Only in the sim world.
        #[serde(serialize_with = "identity::optional_span")]
        pub rtt_target: Option<Span> => Span::ZERO..=PragueConfig::MAX_RTT_TARGET,
        /// Rounds until Prague's target counts; `None`: as Linux has them. Only in the sim world.
        pub rtt_transition: Option<u32>,
        /// The times at which the flow sends.
        pub activity: Activity [flat],
    }
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
const RECEIVE_WINDOWS: RangeInclusive<Bytes> = Bytes(1_500)..=Bytes(1 << 30);

impl Kind for TcpFlow {
    type Flow = Self;
    const NAME: &str = "tcp";

    fn check(self) -> Result<Self, Fault> {
        let name = &self.congestion_control;
        let is_own = name.starts_with(OWN) && name.len() > OWN.len();
        let (marks, most) =
            if is_own { ("_-+:=,.%/", MAX_OWN_BYTES) } else { ("_-+:=", MAX_NAME_BYTES) };
        let plain = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
        if name.is_empty() || name.len() > most || !name.chars().all(plain) {
            let problem = "expected the name of a congestion control, such as \"cubic\"";
            return Err(Fault::new("congestion_control", problem));
        }
        let of_prague = [
            ("rtt_target", self.rtt_target.is_some()),
            ("rtt_transition", self.rtt_transition.is_some()),
        ];
        match of_prague.iter().find(|(_, is_given)| *is_given) {
            Some((key, _)) if name != "prague" => {
                Err(Fault::new(*key, format!("is a key of prague, not of {name}")))
            }
            _ => Ok(self),
        }
    }
}
