//! The rates of an aggregate and of its two service flows, and the parameters derived from them
//! (MULPIv3.1 annexes M and O).

use crate::queue::docsis_pie::UPDATE_INTERVAL;
use crate::rate::Rate;
use crate::service_flow::FlowRates;
use crate::time::Span;

/// The whole link, in the unit of the scheduling weight (TLV 42.6).
pub(super) const WHOLE_WEIGHT: u32 = 256;

/// The rates that the queue assumes.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    aggregate: u64,
    classic: u64,
    /// The most that the low latency flow is assumed to use: its share, or its own rate.
    low_latency_most: u64,
}

impl Rates {
    /// Returns the rates in an aggregate of `rate`; the low latency flow has `weight` of 256.
    pub fn new(rate: Rate, weight: u8, low_latency: FlowRates, classic: FlowRates) -> Self {
        let aggregate = rate.bits_per_second();
        let weighted = u128::from(aggregate) * u128::from(weight) / u128::from(WHOLE_WEIGHT);
        Self {
            aggregate,
            classic: classic.within(rate).bits_per_second(),
            low_latency_most: low_latency.within(rate).bits_per_second().min(weighted as u64),
        }
    }

    /// Returns the time of `classic_bytes` at the rate that the low latency flow leaves, estimated
    /// from the bits that it sent in the previous update interval (`qdelayCoupledC`): `r_L =
    /// min(weight * AMSR, MSR_L, bits / interval)`, `r_C = min(AMSR - r_L, MSR_C)`.
    pub fn classic_delay(&self, classic_bytes: u64, low_latency_bits: u64) -> Span {
        let second = u128::from(Span::from_secs(1).as_nanos());
        let interval = u128::from(UPDATE_INTERVAL.as_nanos());
        let measured = u128::from(low_latency_bits) * second / interval;
        let left = u128::from(self.aggregate) - measured.min(u128::from(self.low_latency_most));
        let rate = left.min(u128::from(self.classic)).max(1);
        let nanos = u128::from(classic_bytes) * 8 * second / rate;
        Span::from_nanos(nanos.min(u128::from(u64::MAX)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sustained(megabits: u64) -> FlowRates {
        FlowRates {
            sustained: Some(Rate::from_megabits_per_second(megabits)),
            ..FlowRates::UNLIMITED
        }
    }

    const NONE: FlowRates = FlowRates::UNLIMITED;

    /// 10 Mbit/s, of which the low latency flow may have 8.984; 12,500 bytes take 10 ms at the
    /// whole rate.
    fn delay_ms(low_latency: FlowRates, classic: FlowRates, low_latency_bits: u64) -> u64 {
        let rates = Rates::new(Rate::from_megabits_per_second(10), 230, low_latency, classic);
        rates.classic_delay(12_500, low_latency_bits).as_millis()
    }

    #[test]
    fn bytes_of_the_low_latency_flow_slow_the_classic_flow() {
        assert_eq!(delay_ms(NONE, NONE, 0), 10);
        // Half of the rate over 16 ms is 80,000 bits.
        assert_eq!(delay_ms(NONE, NONE, 80_000), 20);
        // The low latency flow counts with at most its weight, 230/256: 26/256 of the rate are
        // left.
        assert_eq!(delay_ms(NONE, NONE, 1_600_000), 98);
    }

    #[test]
    fn a_configured_rate_bounds_the_assumed_use_of_the_low_latency_flow() {
        // The low latency flow counts with at most 2 of 10 Mbit/s, whatever it sent: 8 are left.
        assert_eq!(delay_ms(sustained(2), NONE, 1_600_000), 12);
        assert_eq!(delay_ms(sustained(2), NONE, 16_000), 11, "1 Mbit/s was counted");
    }

    #[test]
    fn a_configured_rate_bounds_the_share_of_the_classic_flow() {
        assert_eq!(delay_ms(NONE, sustained(4), 0), 25);
        assert_eq!(delay_ms(NONE, sustained(4), 128_000), 50, "8 Mbit/s were counted, 2 are left");
        assert_eq!(delay_ms(NONE, sustained(40), 0), 10, "never more than the aggregate");
    }

    #[test]
    fn nothing_overflows_and_nothing_divides_by_zero() {
        let most = Rate::from_bits_per_second(u64::MAX);
        let rates = Rates::new(most, 255, NONE, NONE);
        assert_eq!(rates.classic_delay(u64::MAX, u64::MAX), Span::from_nanos(2_047_999_999_999));
        let least = Rates::new(Rate::from_bits_per_second(1), 255, NONE, NONE);
        assert_eq!(least.classic_delay(u64::MAX, u64::MAX), Span::from_nanos(u64::MAX));
    }
}
