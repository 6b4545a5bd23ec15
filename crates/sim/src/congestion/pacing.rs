//! Pacing rates, with types for payload bytes and packet bytes.
//!
//! Delivery rates count payload, as Linux' `sk_pacing_rate` does, while the simulator's pacer
//! counts packets with their headers. A sender that paced packets at a payload rate would be
//! 52 / 1500 too slow, so the pacer accepts only a [`PacketRate`].

use underload_aqm::time::Span;

use super::Setup;

/// Payload bytes per second, as delivery rates count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PayloadRate(u64);

impl PayloadRate {
    pub const fn from_bytes_per_s(bytes_per_s: u64) -> Self {
        Self(bytes_per_s)
    }

    pub const fn bytes_per_s(self) -> u64 {
        self.0
    }

    /// Returns the rate of full packets with this payload.
    pub const fn to_packet_rate(self, sizes: SegmentSizes) -> PacketRate {
        PacketRate(scaled(self.0, sizes.packet_bytes as u64, sizes.segment_bytes as u64))
    }
}

/// Bytes per second of packets with their headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PacketRate(u64);

impl PacketRate {
    pub const fn from_bytes_per_s(bytes_per_s: u64) -> Self {
        Self(bytes_per_s)
    }

    pub const fn bytes_per_s(self) -> u64 {
        self.0
    }

    /// Returns the transmission time of `packet_bytes` at this rate; zero at rate zero.
    pub const fn time_for(self, packet_bytes: u32) -> Span {
        match (packet_bytes as u64 * 1_000_000_000).checked_div(self.0) {
            Some(nanos) => Span::from_nanos(nanos),
            None => Span::ZERO,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct SegmentSizes {
    /// Payload bytes of the packet.
    pub segment_bytes: u32,
    /// Payload and header bytes.
    pub packet_bytes: u32,
}

impl From<&Setup> for SegmentSizes {
    fn from(setup: &Setup) -> Self {
        Self { segment_bytes: setup.segment_bytes, packet_bytes: setup.packet_bytes }
    }
}

/// Returns `value * factor / divisor`, modulo 2^64. If the product fits in 64 bits, as those of all
/// usual rates do, so does the division, which then takes a fraction of the time.
#[inline]
pub(super) const fn scaled(value: u64, factor: u64, divisor: u64) -> u64 {
    match value.checked_mul(factor) {
        Some(product) => product / divisor,
        None => (value as u128 * factor as u128 / divisor as u128) as u64,
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
