//! `kind = "udp"`: datagrams at a constant rate.

use std::ops::RangeInclusive;

use serde::Serialize;
use underload_aqm::rate::Rate;
use underload_record::schema::FlowDirection;

use super::common::{Activity, COUNTS, Class, Kind};
use crate::keys::{Bytes, Fault, keys};
use crate::scenario::identity;

keys! {
    /// UDP at a constant rate.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
    pub struct UdpFlow {
        /// Direction of the datagrams.
        pub direction: FlowDirection = FlowDirection::Up,
        /// Flows per direction; 0 = the flow rests.
        pub count: u32 = 1 => COUNTS,
        /// Rate of each, counted as IP packets.
        #[serde(serialize_with = "identity::rate")]
        pub rate: Rate,
        /// Length of each IP packet.
        pub packet_bytes: Bytes as "packet" = Bytes(1_200) => PACKETS,
        /// Traffic class.
        pub class: Class [flat],
        /// The times at which the flow sends.
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
