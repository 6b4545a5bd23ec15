//! `kind = "udp"`: datagrams at a constant rate.

use std::ops::RangeInclusive;

use underload_aqm::rate::Rate;
use underload_record::schema::{FlowDirection, Marking, Metric};
use underload_sim::flow as sim;
use underload_sim::flow::UdpConfig;

use super::FlowKind;
use super::common::{Activity, COUNTS, Kind, Properties, stop_problem};
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
    }
}

/// Fewer bytes cannot hold an IPv4 and a UDP header.
const PACKETS: RangeInclusive<Bytes> = Bytes(28)..=Bytes(9_000);

/// Lengths of the IP packets in the live world.
const LIVE_PACKETS: RangeInclusive<u64> = 64..=1_500;

impl Kind for (UdpFlow, Activity) {
    const NAME: &str = "udp";

    fn check(self) -> Result<(FlowKind, Activity), Fault> {
        let (udp, activity) = self;
        if udp.rate.is_zero() {
            return Err(Fault::new("rate", "0bit sends nothing; expected more"));
        }
        Ok((FlowKind::Udp(udp), activity))
    }
}

impl Properties for UdpFlow {
    fn group(&self) -> (FlowDirection, u32) {
        (self.direction, self.count)
    }

    fn metrics(&self) -> Vec<Metric> {
        let (rate, ecn) = (self.rate, self.marking.ecn);
        sim::FlowKind::Udp(UdpConfig { rate, payload_bytes: 0, ecn }).metrics()
    }

    fn live_problem(&self, activity: &Activity) -> Option<String> {
        if LIVE_PACKETS.contains(&self.packet_bytes.0) {
            return stop_problem(activity);
        }
        let (least, most) = (LIVE_PACKETS.start(), LIVE_PACKETS.end());
        Some(format!("packet: {}: the live world sends {least}B to {most}B", self.packet_bytes))
    }
}
