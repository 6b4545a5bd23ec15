//! DOCSIS Buffer Control: which buffer size a cable modem gives a service flow (CM-GL-Buffer-V01,
//! DOCSIS 3.0 type 35), as a tail-drop queue of that size.
//!
//! # Principle
//! A modem provides the sizes `k * block` up to its hardware's `largest`. Sizes from `min` to `max`
//! are acceptable; if no size is, the service flow is rejected. The modem selects the acceptable
//! size that is closest to `target`. The guideline does not decide between two equally close sizes;
//! we select the smaller, which means less delay. Without a target the supplier chooses: we select
//! 100 ms at the peak rate (the default of DOCSIS 3.1), or the largest size if the rate is unknown.
//!
//! Every certified modem can provide 24,576 bytes; the guideline recommends setting only a target.
//! Sizes may also be written as times, which are converted at the link's sustained rate.
//!
//! The guideline counts bytes alone. A modem also has a limited number of packet descriptors, or
//! stores each packet in a separate memory block; `packets` limits the packets of the queue.
//!
//! # Validation
//! The tests are the guideline's statements and examples.

use core::fmt;

use crate::config::{Bytes, BytesOrSpan, ConfigError, Key, LinkFacts, Packets, Values, params};
use crate::queue::fifo::FifoConfig;
use crate::queue::store::{Limit, Overflow};
use crate::time::Span;

/// The three optional sizes of a service flow, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferControl {
    /// The smallest acceptable size.
    pub min: Option<u64>,
    /// The size to approach.
    pub target: Option<u64>,
    /// The largest acceptable size.
    pub max: Option<u64>,
}

/// Buffer sizes that a modem's hardware provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferHardware {
    /// Granularity in bytes; not zero.
    pub block: u64,
    /// The largest size of one flow's buffer.
    pub largest: u64,
}

/// No size that the modem provides is in the range, so the service flow is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected {
    control: BufferControl,
    hardware: BufferHardware,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BufferHardware { block, largest } = self.hardware;
        let min = self.control.min.unwrap_or(0);
        write!(f, "the service flow is rejected: no multiple of {block} bytes up to {largest} ")?;
        match self.control.max {
            Some(max) => write!(f, "lies between {min} and {max}"),
            None => write!(f, "is {min} or more"),
        }
    }
}

impl core::error::Error for Rejected {}

impl BufferControl {
    /// Returns the size that `hardware` provides for the target, else for `supplier_choice`.
    pub fn select(self, hardware: BufferHardware, supplier_choice: u64) -> Result<u64, Rejected> {
        let block = hardware.block;
        let first = self.min.unwrap_or(0).div_ceil(block).max(1);
        let last = self.max.unwrap_or(u64::MAX).min(hardware.largest) / block;
        if first > last {
            return Err(Rejected { control: self, hardware });
        }
        let wanted = self.target.unwrap_or(supplier_choice);
        let above_is_closer = wanted % block > block / 2;
        let closest = wanted / block + u64::from(above_is_closer);
        Ok(closest.clamp(first, last) * block)
    }
}

params! {
    define DEFINITION: "buffer-control",
        "tail-drop of the size that a cable modem selects under DOCSIS Buffer Control",
        source: "CM-GL-Buffer-V01 section 6", positional: Some(TARGET.name());
    TARGET: Option<BytesOrSpan> = "target", ("the supplier's choice: 100 ms at the peak rate"),
        "size to come close to";
    MIN: Option<BytesOrSpan> = "min", ("none"),
        "smallest size accepted; larger than the modem has: rejected";
    MAX: Option<BytesOrSpan> = "max", ("none"),
        "largest size accepted; below the smallest block: rejected";
    BLOCK: Bytes = "block", "1KiB" in "1B".."1024MiB", "granularity of the modem's sizes";
    LARGEST: Bytes = "largest", "1024MiB" in "64B".."1024MiB",
        "what the modem's hardware has; certified modems have 24KiB or more";
    PACKETS: Option<Packets> = "packets", ("no limit") in "1p".."16777216p",
        "packets that fit beside the limit in bytes: the modem's packet descriptors";
}

const SUPPLIER_CHOICE: Span = Span::from_millis(100);

pub(crate) fn configure(values: &Values, link: &LinkFacts) -> Result<FifoConfig, ConfigError> {
    let bytes = |key: Key<Option<BytesOrSpan>>| match (values.get(key), link.rate) {
        (Some(BytesOrSpan::Span(span)), Some(rate)) => Ok(Some(rate.bytes_in(span))),
        (Some(BytesOrSpan::Span(_)), None) => {
            Err(values.refuse(key, "a size, because the link has no known rate"))
        }
        (Some(BytesOrSpan::Bytes(bytes)), _) => Ok(Some(bytes)),
        (None, _) => Ok(None),
    };
    let control = BufferControl { min: bytes(MIN)?, target: bytes(TARGET)?, max: bytes(MAX)? };
    let hardware = BufferHardware { block: values.get(BLOCK), largest: values.get(LARGEST) };
    let fastest = link.peak.max(link.rate);
    let supplier_choice = fastest.map_or(hardware.largest, |rate| rate.bytes_in(SUPPLIER_CHOICE));
    let selected = control.select(hardware, supplier_choice).map_err(|rejected| {
        let key = if control.min.is_some() { MIN } else { MAX };
        ConfigError::inside(DEFINITION.name, key.name(), rejected)
    })?;
    let packets = values.get(PACKETS).unwrap_or(u32::MAX);
    Ok(FifoConfig { limit: Limit { packets, bytes: selected }, overflow: Overflow::Tail })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Meta, Packet};
    use crate::qdisc::{Admit, Qdisc};
    use crate::queue::store::{NoAqm, Single};
    use crate::rate::Rate;
    use crate::registry::{QueueConfig, QueueSetup};
    use crate::time::Time;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    const PLENTY: BufferHardware = BufferHardware { block: 1_024, largest: 1 << 30 };
    const MINIMAL: BufferHardware = BufferHardware { block: 1_024, largest: 24_576 };

    fn select(sizes: [Option<u64>; 3], hardware: BufferHardware) -> Option<u64> {
        let [min, target, max] = sizes;
        BufferControl { min, target, max }.select(hardware, 64_000).ok()
    }

    #[test]
    fn an_empty_range_rejects_the_service_flow() {
        assert_eq!(select([Some(50_200), Some(50_500), Some(51_100)], PLENTY), None);
        assert_eq!(select([Some(60_000), None, Some(100)], PLENTY), None);
        assert_eq!(select([Some(24_577), None, None], MINIMAL), None);
        assert_eq!(select([None, None, Some(1_023)], PLENTY), None);
    }

    #[test]
    fn the_closest_acceptable_size_to_the_target_is_selected() {
        assert_eq!(select([None, Some(51_200), None], PLENTY), Some(51_200));
        assert_eq!(select([None, Some(50_000), None], PLENTY), Some(50_176));
        assert_eq!(select([Some(8_192), Some(51_200), Some(16_384)], PLENTY), Some(16_384));
        assert_eq!(select([None, Some(1_536), None], PLENTY), Some(1_024), "a tie: the smaller");
        let odd = BufferHardware { block: 3, largest: 3_000 };
        assert_eq!(select([None, Some(5), None], odd), Some(6));
        assert_eq!(select([None, Some(4), None], odd), Some(3));
    }

    #[test]
    fn without_a_target_any_acceptable_size_will_do() {
        assert_eq!(select([None; 3], PLENTY), Some(63_488), "62.5 blocks: a tie");
        assert_eq!(select([Some(100_000), None, None], PLENTY), Some(100_352));
        assert_eq!(select([None, None, Some(10_000)], PLENTY), Some(9_216));
    }

    #[test]
    fn a_target_alone_is_never_a_reason_to_reject() {
        for target in [0, 1, 51_200, u64::from(u32::MAX), u64::MAX] {
            assert!(select([None, Some(target), None], MINIMAL).is_some(), "{target}");
        }
        assert_eq!(select([None, Some(51_200), None], MINIMAL), Some(24_576));
    }

    #[test]
    fn every_certified_modem_has_24_kib() {
        assert_eq!(select([Some(24_576); 3], MINIMAL), Some(24_576));
    }

    fn limits(spec: &str) -> Result<Limit, ConfigError> {
        let rate = Some(Rate::from_megabits_per_second(10));
        let facts = LinkFacts { rate, ..LinkFacts::default() };
        match QueueSetup::parse(spec, &facts)?.config {
            QueueConfig::Fifo(fifo) => Ok(fifo.limit),
            other => panic!("{other:?}"),
        }
    }

    fn limit(spec: &str) -> Result<u64, ConfigError> {
        limits(spec).map(|limit| limit.bytes)
    }

    #[test]
    fn sizes_may_be_times_at_the_rate_of_the_link() {
        assert_eq!(limit("buffer-control:target=250KiB,block=1KiB"), Ok(256_000));
        assert_eq!(limit("buffer-control:250ms"), Ok(312_320), "312,500 B in blocks of 1 KiB");
        assert_eq!(limit("buffer-control"), Ok(124_928), "100 ms");
        assert_eq!(
            limits("buffer-control:250ms"),
            Ok(Limit::bytes(312_320)),
            "no limit in packets"
        );
        let error = limit("buffer-control:min=50200B,max=51100B").unwrap_err().to_string();
        assert!(error.contains("no multiple of 1024 bytes"), "{error}");
    }

    #[test]
    fn a_buffer_with_descriptors_is_full_of_bytes_or_of_packets() {
        let limit = limits("buffer-control:target=8KiB,packets=4p").expect("both limits");
        assert_eq!(limit, Limit { packets: 4, bytes: 8_192 });
        let accepted = |lens: &[u32]| {
            let mut queue = Single::new(NoAqm, limit, Overflow::Tail);
            let mut offer = |&len: &u32| {
                let packet = Packet { meta: Meta::new(len, 0), payload: () };
                queue.enqueue(Time::ZERO, packet, &mut ()) == Admit::Queued
            };
            lens.iter().map(&mut offer).collect::<Vec<bool>>()
        };
        assert_eq!(accepted(&[1_500, 1_500, 1_500, 1_500, 200]), [true, true, true, true, false]);
        assert_eq!(accepted(&[4_000, 4_000, 1_500, 192]), [true, true, false, true]);
        let error = limits("buffer-control:packets=0p").unwrap_err().to_string();
        assert!(error.contains("packets"), "{error}");
    }
}
