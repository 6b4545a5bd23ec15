//! `kind = "udp"`: datagrams at a constant rate.

use std::ops::RangeInclusive;

use underload_aqm::rate::Rate;
use underload_record::schema::{FlowDirection, Marking};

use super::common::{Activity, COUNTS, Kind};
use crate::keys::{Bytes, Fault, keys};

keys! {
    /// UDP at a constant rate. The simulator reports `delay_p50`, `_p90`, `_p99` and `_max` in ms,
    /// one way, and `lost` in %, over the whole trial.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct UdpFlow {
        /// Direction of the datagrams.
        pub direction: FlowDirection = FlowDirection::Up,
        /// Flows per direction; 0 for a flow that only some variants use.
        pub count: u32 = 1 => COUNTS,
        /// Rate of each flow, with IP headers.
        pub rate: Rate,
        /// Length of each IP packet.
        pub packet_bytes: Bytes as "packet" = Bytes(1_200) => PACKETS,
        pub marking: Marking [flat],
        pub activity: Activity [flat],
    }
}

/// Fewer bytes cannot hold an IPv4 and a UDP header.
const PACKETS: RangeInclusive<Bytes> = Bytes(28)..=Bytes(9_000);

impl Kind for UdpFlow {
    type Flow = Self;
    const NAME: &str = "udp";

    fn check(self) -> Result<Self, Fault> {
        if self.rate.is_zero() {
            return Err(Fault::new("rate", "0bit sends nothing; expected more"));
        }
        Ok(self)
    }
}
