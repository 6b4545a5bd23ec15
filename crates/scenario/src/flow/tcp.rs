//! `kind = "tcp"`: bulk transfer.

use std::ops::RangeInclusive;

use underload_aqm::rate::Rate;
use underload_aqm::time::Span;
use underload_record::schema::{FlowDirection, Metric};
use underload_sim::congestion::{Algorithm, PragueConfig};
use underload_sim::flow as sim;
use underload_sim::sprout;
use underload_sim::tcp::TcpConfig;

use super::FlowKind;
use super::common::{Activity, COUNTS, DSCPS, Kind, Properties, stop_problem};
use crate::keys::{Bytes, Fault, keys};

keys! {
    /// Bulk TCP, whose sender always has data.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TcpFlow {
        /// Direction of the payload.
        pub direction: FlowDirection = FlowDirection::Up,
        /// Flows per direction; 0 for a flow that only some variants use.
        pub count: u32 = 1 => COUNTS,
        /// Congestion control, on every machine.
        pub congestion_control: String = DEFAULT_CONTROL.to_owned(),
        /// Whether both ends negotiate ECN; DCTCP and Prague always do.
        pub ecn: bool = false,
        /// Differentiated Services codepoint of all packets.
        pub dscp: u8 = 0 => DSCPS,
        /// Most bytes in flight that the receiver accepts; sim only.
        pub receive_window_bytes: Option<Bytes> as "receive_window"
            where default = "2.5 MB, which Linux's send buffer of 4 MiB holds" => RECEIVE_WINDOWS,
        /// Highest rate of each flow, with IP headers: an application that paces its transfer; sim
        /// only.
        pub max_rate: Option<Rate> where default = "that of the congestion control" => MAX_RATES,
        /// Reports `delivery_p50`, `_p90`, `_p99` and `_max` in ms, from the first transmission of
        /// a segment to its first arrival, and `retransmitted` in %; sim only.
        pub delivery: bool = false,
        /// Prague's target round trip: flows with a shorter one behave like flows with this one; 0
        /// to disable; sim only.
        pub rtt_target: Option<Span> where default = "25ms"
            => Span::ZERO..=PragueConfig::MAX_RTT_TARGET,
        /// Rounds until Prague's target applies; sim only.
        pub rtt_transition: Option<u32> where default = "4",
    }
}

impl TcpFlow {
    /// Whether the caller has to provide its congestion control; see [`crate::own`].
    pub fn is_own(&self) -> bool {
        self.congestion_control.starts_with(OWN)
    }

    /// Whether its congestion control requests ECN whatever `ecn` says, as DCTCP does.
    pub fn always_uses_ecn(&self) -> bool {
        let known = Algorithm::from_name(&self.congestion_control);
        known.is_some_and(|algorithm| algorithm.required_ecn().is_some())
    }
}

/// The congestion control of a flow that names none.
pub const DEFAULT_CONTROL: &str = "cubic";
/// Prefix of the names of congestion controls that the caller provides.
const OWN: &str = "own:";
const MAX_NAME_BYTES: usize = 64;
/// The caller's names have parameters in them.
const MAX_OWN_BYTES: usize = 512;
/// A smaller window has no room for a segment.
const RECEIVE_WINDOWS: RangeInclusive<Bytes> = Bytes(1_500)..=Bytes(1 << 30);

const MAX_RATES: RangeInclusive<Rate> =
    Rate::from_bits_per_second(1_000)..=Rate::from_megabits_per_second(1_000_000);

impl Kind for (TcpFlow, Activity) {
    const NAME: &str = "tcp";

    fn check(self) -> Result<(FlowKind, Activity), Fault> {
        let (tcp, activity) = self;
        let name = &tcp.congestion_control;
        let is_own = name.starts_with(OWN) && name.len() > OWN.len();
        let (marks, most) =
            if is_own { ("_-+:=,.%/", MAX_OWN_BYTES) } else { ("_-+:=", MAX_NAME_BYTES) };
        let plain = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
        if name.is_empty() || name.len() > most || !name.chars().all(plain) {
            let problem = "expected the name of a congestion control, such as \"cubic\"";
            return Err(Fault::new("congestion_control", problem));
        }
        let of_prague = [
            ("rtt_target", tcp.rtt_target.is_some()),
            ("rtt_transition", tcp.rtt_transition.is_some()),
        ];
        match of_prague.iter().find(|(_, is_given)| *is_given) {
            Some((key, _)) if name != "prague" => {
                Err(Fault::new(*key, format!("is a key of prague, not of {name}")))
            }
            _ => Ok((FlowKind::Tcp(tcp), activity)),
        }
    }
}

impl Properties for TcpFlow {
    fn group(&self) -> (FlowDirection, u32) {
        (self.direction, self.count)
    }

    fn metrics(&self) -> Vec<Metric> {
        let notes_delivery = self.delivery && self.congestion_control != sprout::NAME;
        sim::FlowKind::Tcp(TcpConfig { notes_delivery, ..TcpConfig::default() }).metrics()
    }

    fn congestion_control(&self) -> Option<&str> {
        Some(&self.congestion_control)
    }

    fn sim_only_key(&self) -> Option<&'static str> {
        let keys = [
            ("receive_window", self.receive_window_bytes.is_some()),
            ("max_rate", self.max_rate.is_some()),
            ("delivery", self.delivery),
            ("rtt_target", self.rtt_target.is_some()),
            ("rtt_transition", self.rtt_transition.is_some()),
        ];
        keys.into_iter().find(|(_, is_given)| *is_given).map(|(key, _)| key)
    }

    fn live_problem(&self, activity: &Activity) -> Option<String> {
        stop_problem(activity)
    }
}
