//! How a cable modem applies Buffer Control: which buffer size it selects, or that it rejects the
//! flow (CM-GL-Buffer-V01, section 6.1).
//!
//! A modem provides the sizes k x block up to its hardware's limit. Sizes from the minimum to the
//! maximum are acceptable; if none is, the modem rejects the flow and with it the whole
//! configuration. It selects the acceptable size closest to the target. The guideline does not
//! decide between two sizes that are equally close: this model selects the smaller, for less
//! latency. Without a target the supplier chooses: this model selects the size that it would use
//! without Buffer Control (type 68's time, or 100 ms, at the larger of the sustained and the peak
//! rate), moved into the acceptable range.

use std::fmt;

use serde::Serialize;
use thiserror::Error;

use crate::Config;
use crate::qos::{BufferControl, Direction, ServiceFlow};

/// Buffer that every certified modem can give a flow.
pub const GUARANTEED_BYTES: u64 = 24_576;
/// Microseconds between MAPs, each of which grants the bytes of as much time. No setting of a file
/// has it; 1 to 2 ms are usual.
pub const MAP_INTERVAL_US: u64 = 2_000;
/// Microseconds from a request's MAP boundary to its grant: that of DOCSIS 3.0, an assumption.
pub const GRANT_US: u64 = 4_000;
/// The largest frame with one VLAN tag.
pub(crate) const FRAME_BYTES: u64 = 1_522;
/// Drain time of a buffer without Buffer Control and type 68.
const DEFAULT_TARGET_MS: u16 = 100;

/// A modem's buffer hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Modem {
    block_bytes: u64,
    blocks: u64,
}

/// Buffer hardware without a single block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "a modem with {limit_bytes} bytes in blocks of {block_bytes} has no buffer; accepted: a \
    block of at least 1 byte and a limit of at least one block"
)]
pub struct NoBuffer {
    block_bytes: u64,
    limit_bytes: u64,
}

/// Why a modem refuses a service flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Rejection {
    #[error("minimum {minimum} is above maximum {maximum}")]
    Contradiction { minimum: u32, maximum: u32 },
    #[error("the modem has at most {largest} bytes, the minimum is {minimum}")]
    TooMuch { largest: u64, minimum: u32 },
    #[error("no multiple of {block} bytes lies between {minimum} and {maximum}")]
    Granularity { block: u64, minimum: u32, maximum: u32 },
}

/// The buffer of one upstream service flow of a file.
#[derive(Debug, Serialize)]
pub struct FlowBuffer {
    /// `None` if the flow has no reference, so the modem rejects it.
    pub reference: Option<u16>,
    pub buffer_bytes: Option<u64>,
    /// Time in which a full buffer drains. `None` if no rate limits the flow.
    pub drain_ms: Option<f64>,
    /// Why the modem rejects the flow.
    pub rejected: Option<String>,
}

/// A row of a table: reference, bytes, drain time in ms.
impl fmt::Display for FlowBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reference = self.reference.map_or("-".to_owned(), |number| number.to_string());
        match (&self.rejected, self.buffer_bytes.unwrap_or_default(), self.drain_ms) {
            (Some(why), ..) => write!(f, "{reference:>13}   rejected: {why}"),
            (None, bytes, Some(ms)) => write!(f, "{reference:>13}   {bytes:14}   {ms:14.1}"),
            (None, bytes, None) => write!(f, "{reference:>13}   {bytes:14}   no rate limit"),
        }
    }
}

impl Modem {
    /// A modem that manages `limit_bytes` in blocks of `block_bytes`.
    ///
    /// # Errors
    /// If `limit_bytes` is less than one block, or a block is empty.
    pub fn new(block_bytes: u64, limit_bytes: u64) -> Result<Self, NoBuffer> {
        match limit_bytes.checked_div(block_bytes) {
            Some(blocks @ 1..) => Ok(Self { block_bytes, blocks }),
            _ => Err(NoBuffer { block_bytes, limit_bytes }),
        }
    }

    /// The largest size that the modem provides, bytes.
    pub fn largest(&self) -> u64 {
        self.block_bytes * self.blocks
    }

    /// Returns the buffer of a flow in bytes. `default_ms` is type 68's value, if the file has one.
    pub fn select(&self, flow: &ServiceFlow, default_ms: Option<u16>) -> Result<u64, Rejection> {
        let control = flow.buffer.unwrap_or_default();
        let (first, last) = self.acceptable_blocks(&control)?;
        let wanted = match control.target {
            Some(target) => u64::from(target),
            None => self.default_bytes(flow, default_ms),
        };
        let below = wanted / self.block_bytes;
        let above_is_closer = wanted % self.block_bytes * 2 > self.block_bytes;
        let closest = below + u64::from(above_is_closer);
        Ok(closest.clamp(first, last) * self.block_bytes)
    }

    /// Returns the buffer of each upstream service flow of a file.
    pub fn buffers(&self, config: &Config) -> Vec<FlowBuffer> {
        let default_ms = config.default_target_ms();
        let buffer = |flow: Option<ServiceFlow>| {
            let missing = || "ServiceFlowReference (1) is missing".to_owned();
            let selected = flow.as_ref().ok_or_else(missing).and_then(|flow| {
                self.select(flow, default_ms).map_err(|rejection| rejection.to_string())
            });
            let rate = flow.as_ref().and_then(|flow| flow.rates.drain_bit_per_s());
            let buffer_bytes = selected.as_ref().ok().copied();
            let drain_us = buffer_bytes.zip(rate).and_then(|(b, rate)| drain_time_us(b, rate));
            FlowBuffer {
                reference: flow.map(|flow| flow.reference),
                buffer_bytes,
                drain_ms: drain_us.map(|us| us as f64 / 1000.0),
                rejected: selected.err(),
            }
        };
        let flows = config.settings_of_type(Direction::Upstream.flow_code());
        flows.map(ServiceFlow::from_tlv).map(buffer).collect()
    }

    fn acceptable_blocks(&self, control: &BufferControl) -> Result<(u64, u64), Rejection> {
        let minimum = control.minimum.unwrap_or(0);
        let maximum = control.maximum.unwrap_or(u32::MAX);
        let block = self.block_bytes;
        let first = u64::from(minimum).div_ceil(block).max(1);
        let last = control.maximum.map_or(self.blocks, |most| u64::from(most) / block);
        if minimum > maximum {
            Err(Rejection::Contradiction { minimum, maximum })
        } else if first > self.blocks {
            Err(Rejection::TooMuch { largest: self.largest(), minimum })
        } else if first > last {
            Err(Rejection::Granularity { block, minimum, maximum })
        } else {
            Ok((first, last.min(self.blocks)))
        }
    }

    /// The largest size, if no rate limits the flow.
    fn default_bytes(&self, flow: &ServiceFlow, default_ms: Option<u16>) -> u64 {
        let time_ms = u64::from(default_ms.unwrap_or(DEFAULT_TARGET_MS));
        let fastest = flow.rates.fastest_bit_per_s();
        fastest.map_or(self.largest(), |bit_per_s| bit_per_s.saturating_mul(time_ms) / 8_000)
    }
}

/// Returns how long a full buffer takes to drain, in microseconds, rounded down. `None` at rate 0.
pub fn drain_time_us(bytes: u64, bit_per_s: u64) -> Option<u64> {
    let us = (u128::from(bytes) * 8_000_000).checked_div(u128::from(bit_per_s))?;
    u64::try_from(us).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::recommend::TABLE_2;

    fn flow(minimum: Option<u32>, target: Option<u32>, maximum: Option<u32>) -> ServiceFlow {
        let mut flow = ServiceFlow::new(Direction::Upstream, 1);
        flow.rates.sustained_bit_per_s = Some(10_000_000);
        flow.buffer = Some(BufferControl { minimum, target, maximum });
        flow
    }

    fn modem() -> Modem {
        Modem::new(1024, 256 * 1024).unwrap()
    }

    /// Statement 1 of the guideline's section 6.1.
    #[test]
    fn a_range_without_a_size_rejects_the_flow() {
        let rejected = modem().select(&flow(Some(50_200), Some(50_500), Some(51_100)), None);
        let (minimum, maximum) = (50_200, 51_100);
        assert_eq!(rejected, Err(Rejection::Granularity { block: 1024, minimum, maximum }));
        let rejected = modem().select(&flow(Some(60_000), None, Some(100)), None);
        assert_eq!(rejected, Err(Rejection::Contradiction { minimum: 60_000, maximum: 100 }));
        assert!(modem().select(&flow(None, None, Some(100)), None).is_err(), "no empty buffer");
        assert_eq!(modem().select(&flow(Some(50_200), None, Some(51_200)), None), Ok(51_200));
    }

    /// Statement 2 of the guideline's section 6.1.
    #[test]
    fn the_closest_size_to_the_target_is_taken_and_of_two_the_smaller() {
        let select = |target| modem().select(&flow(None, Some(target), None), None);
        assert_eq!(select(51_200), Ok(51_200));
        assert_eq!(select(50_000), Ok(50_176));
        assert_eq!(select(1_536), Ok(1_024), "1024 and 2048 are equally close");
        assert_eq!(select(1_537), Ok(2_048));
        let bounded = flow(Some(8_192), Some(51_200), Some(16_384));
        assert_eq!(modem().select(&bounded, None), Ok(16_384));
    }

    /// Statement 3 of the guideline's section 6.1.
    #[test]
    fn without_a_target_the_default_is_moved_into_the_range() {
        assert_eq!(modem().select(&flow(None, None, None), None), Ok(124_928), "100 ms: 125,000");
        let mut absent = flow(None, None, None);
        let same = modem().select(&absent, None);
        absent.buffer = None;
        assert_eq!(modem().select(&absent, None), same, "an empty TLV equals an absent one");
        assert_eq!(modem().select(&absent, Some(50)), Ok(62_464), "50 ms: 62,500");
        assert_eq!(modem().select(&flow(None, None, Some(16_384)), None), Ok(16_384));
        assert_eq!(modem().select(&flow(Some(200_000), None, None), None), Ok(200_704));
    }

    /// Statement 5 of the guideline's section 6.1.
    #[test]
    fn hardware_with_24_kib_gives_exactly_that() {
        let small = Modem::new(1024, GUARANTEED_BYTES).unwrap();
        let all = Some(24_576);
        assert_eq!(small.select(&flow(all, all, all), None), Ok(24_576));
        let rejected = small.select(&flow(Some(24_577), None, None), None);
        assert_eq!(rejected, Err(Rejection::TooMuch { largest: 24_576, minimum: 24_577 }));
        assert_eq!(small.select(&flow(None, Some(51_200), None), None), Ok(24_576));
    }

    /// Statement 8: 65.5, 65.5, 52.4 and 40.96 ms.
    #[test]
    fn the_guidelines_targets_drain_in_the_times_it_states() {
        let times = TABLE_2.map(|(bit_per_s, bytes)| drain_time_us(u64::from(bytes), bit_per_s));
        assert_eq!(times, [Some(65_536), Some(65_536), Some(52_428), Some(40_960)]);
        assert_eq!(drain_time_us(1, 0), None);
    }

    #[test]
    fn hardware_without_a_block_is_refused() {
        assert!(Modem::new(0, 100).is_err());
        assert!(Modem::new(1024, 1000).is_err());
    }

    fn any_size() -> impl Strategy<Value = Option<u32>> {
        prop_oneof![
            Just(None),
            (0_u32..100_000).prop_map(Some),
            Just(Some(u32::MAX)),
            any::<u32>().prop_map(Some),
        ]
    }

    proptest! {
        /// Statements 1 and 2 against a search through every size.
        #[test]
        fn selection_is_what_trying_every_size_finds(
            block in 1_u64..3000, blocks in 1_u64..200,
            minimum in any_size(), target in any_size(), maximum in any_size(),
        ) {
            let modem = Modem::new(block, block * blocks).unwrap();
            let flow = flow(minimum, target, maximum);
            let wanted = target.map_or(125_000, u64::from);
            let acceptable = (1..=blocks).map(|k| k * block).filter(|size| {
                *size >= u64::from(minimum.unwrap_or(0))
                    && *size <= maximum.map_or(u64::MAX, u64::from)
            });
            let best = acceptable.min_by_key(|size| (size.abs_diff(wanted), *size));
            prop_assert_eq!(modem.select(&flow, None).ok(), best);
        }

        /// Statement 4 of the guideline's section 6.1.
        #[test]
        fn a_target_alone_is_never_rejected(
            block in 1_u64..100_000, blocks in 1_u64..1000, target: u32,
        ) {
            let modem = Modem::new(block, block * blocks).unwrap();
            prop_assert!(modem.select(&flow(None, Some(target), None), None).is_ok());
        }

        /// Statement 5: what every certified modem must be able to give.
        #[test]
        fn compliant_modems_accept_minima_up_to_24_kib(
            block in 1_u64..100_000, blocks in 1_u64..1000, minimum in 0..=24_576_u32,
        ) {
            let modem = Modem::new(block, block * blocks).unwrap();
            prop_assume!(modem.largest() >= GUARANTEED_BYTES);
            let size = modem.select(&flow(Some(minimum), None, None), None);
            prop_assert!(size.is_ok_and(|size| size >= u64::from(minimum)));
        }
    }
}
