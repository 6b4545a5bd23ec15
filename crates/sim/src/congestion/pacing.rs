//! Pacing rates, with the bytes that they count in their type.
//!
//! Delivery rates are made of segments and so count payload, as Linux' `sk_pacing_rate` does. The
//! simulator's pacer charges packets with their headers. A sender that charges packets at a payload
//! rate is 52 / 1500 too slow, so the pacer takes only a [`PacketRate`].

use underload_aqm::time::Span;

use super::Setup;

/// Payload bytes per second, as delivery rates count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PayloadRate(u64);

impl PayloadRate {
    /// A rate of `bytes_per_s` payload bytes per second.
    pub const fn from_bytes_per_s(bytes_per_s: u64) -> Self {
        Self(bytes_per_s)
    }

    /// Payload bytes per second.
    pub const fn bytes_per_s(self) -> u64 {
        self.0
    }

    /// The rate of full packets that carry this payload.
    pub const fn to_packet_rate(self, sizes: SegmentSizes) -> PacketRate {
        let bytes = self.0 as u128 * sizes.packet_bytes as u128 / sizes.segment_bytes as u128;
        PacketRate(bytes as u64)
    }
}

/// Bytes per second of packets with their headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PacketRate(u64);

impl PacketRate {
    /// A rate of `bytes_per_s` bytes per second, headers included.
    pub const fn from_bytes_per_s(bytes_per_s: u64) -> Self {
        Self(bytes_per_s)
    }

    /// Bytes per second, headers included.
    pub const fn bytes_per_s(self) -> u64 {
        self.0
    }

    /// How long a packet of `packet_bytes`, headers included, takes at this rate; zero at rate
    /// zero.
    pub const fn time_for(self, packet_bytes: u32) -> Span {
        match (packet_bytes as u64 * 1_000_000_000).checked_div(self.0) {
            Some(nanos) => Span::from_nanos(nanos),
            None => Span::ZERO,
        }
    }
}

/// The bytes of a full segment.
#[derive(Clone, Copy, Debug)]
pub struct SegmentSizes {
    /// Bytes of its payload.
    pub segment_bytes: u32,
    /// Bytes of its packet, headers included.
    pub packet_bytes: u32,
}

impl From<&Setup> for SegmentSizes {
    fn from(setup: &Setup) -> Self {
        Self { segment_bytes: setup.segment_bytes, packet_bytes: setup.packet_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_packets_carry_the_payload_rate() {
        let sizes = SegmentSizes { segment_bytes: 1_448, packet_bytes: 1_500 };
        let payload = PayloadRate::from_bytes_per_s(1_448_000);
        assert_eq!(payload.to_packet_rate(sizes), PacketRate::from_bytes_per_s(1_500_000));
        let fastest = PayloadRate::from_bytes_per_s(u64::MAX / 2).to_packet_rate(sizes);
        assert!(fastest.bytes_per_s() > u64::MAX / 2, "the product needs more than 64 bits");
    }

    #[test]
    fn a_packet_takes_its_bytes_over_the_rate() {
        assert_eq!(
            PacketRate::from_bytes_per_s(1_000_000).time_for(1_500),
            Span::from_micros(1_500)
        );
        assert_eq!(PacketRate::default().time_for(1_500), Span::ZERO);
    }
}
