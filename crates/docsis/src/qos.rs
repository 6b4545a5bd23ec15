//! The settings that decide a flow's latency, as types: what checks and the modem model read, and
//! what a recommendation writes.

use crate::code::{aqm, buffer, flow, top};
use crate::tlv::{Config, Tlv};

/// Direction of a service flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the modem; the queue is the modem's.
    Upstream,
    /// To the modem; the queue is the CMTS's.
    Downstream,
}

impl Direction {
    pub(crate) const BOTH: [Self; 2] = [Self::Upstream, Self::Downstream];

    /// The direction of a service flow's type, 24 or 25.
    pub fn of(code: u8) -> Option<Self> {
        Self::BOTH.into_iter().find(|direction| direction.code() == code)
    }

    /// The type of a service flow of this direction.
    pub fn code(self) -> u8 {
        match self {
            Self::Upstream => top::UPSTREAM_FLOW,
            Self::Downstream => top::DOWNSTREAM_FLOW,
        }
    }

    /// The type of a classifier that leads packets into a flow of this direction.
    pub(crate) fn classifier_code(self) -> u8 {
        match self {
            Self::Upstream => top::UPSTREAM_CLASSIFIER,
            Self::Downstream => top::DOWNSTREAM_CLASSIFIER,
        }
    }

    /// The type of an aggregate of flows of this direction.
    pub(crate) fn aggregate_code(self) -> u8 {
        match self {
            Self::Upstream => top::UPSTREAM_AGGREGATE,
            Self::Downstream => top::DOWNSTREAM_AGGREGATE,
        }
    }
}

/// Buffer Control (type 35): the size of a flow's queue in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BufferControl {
    /// Smallest size accepted; absent means none is too small.
    pub minimum: Option<u32>,
    /// Size wanted.
    pub target: Option<u32>,
    /// Largest size accepted; absent means none is too large.
    pub maximum: Option<u32>,
}

impl BufferControl {
    /// A target alone, which no modem ever refuses.
    pub fn target(bytes: u32) -> Self {
        Self { target: Some(bytes), ..Self::default() }
    }

    /// The settings inside a type 35.
    pub fn from_tlv(tlv: &Tlv) -> Self {
        let number = |code| tlv.number(code).and_then(|bytes| u32::try_from(bytes).ok());
        Self {
            minimum: number(buffer::MINIMUM),
            target: number(buffer::TARGET),
            maximum: number(buffer::MAXIMUM),
        }
    }

    /// The type 35.
    pub fn to_tlv(self) -> Tlv {
        let sizes = [
            (buffer::MINIMUM, self.minimum),
            (buffer::TARGET, self.target),
            (buffer::MAXIMUM, self.maximum),
        ];
        let present = sizes.into_iter().filter_map(|(code, size)| Some(Tlv::u32(code, size?)));
        Tlv::nested(flow::BUFFER_CONTROL, present)
    }
}

/// Values of type 40.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AqmAlgorithm {
    /// Whatever the device uses by itself.
    Default,
    /// DOCSIS-PIE (RFC 8034).
    DocsisPie,
    /// Immediate AQM, the ramp of a low latency queue.
    Immediate,
}

impl AqmAlgorithm {
    /// The value on the wire.
    pub fn code(self) -> u8 {
        match self {
            Self::Default => 0,
            Self::DocsisPie => 1,
            Self::Immediate => 2,
        }
    }

    /// The algorithm of a value on the wire.
    pub fn from_code(code: u64) -> Option<Self> {
        [Self::Default, Self::DocsisPie, Self::Immediate]
            .into_iter()
            .find(|algorithm| u64::from(algorithm.code()) == code)
    }
}

/// AQM encodings (type 40) of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AqmEncodings {
    /// 40.1: whether AQM is turned off.
    pub disable: Option<bool>,
    /// 40.2: latency target of classic AQM, in milliseconds.
    pub latency_target_ms: Option<u8>,
    /// 40.3.
    pub algorithm: Option<AqmAlgorithm>,
    /// 40.4: queuing delay from which immediate AQM marks everything, in microseconds.
    pub immediate_max_threshold_us: Option<u16>,
    /// 40.5: width of immediate AQM's ramp, as 2^x nanoseconds.
    pub immediate_range_exponent: Option<u8>,
    /// 40.6: bin edges of the latency histogram; none leaves the setting out.
    pub histogram_edges: Vec<u16>,
}

impl AqmEncodings {
    /// The settings inside a type 40. Values that the specification does not define are left out.
    pub fn from_tlv(tlv: &Tlv) -> Self {
        let small = |code| tlv.number(code).and_then(|value| u8::try_from(value).ok());
        let edges = tlv.child(aqm::HISTOGRAM_EDGES).and_then(Tlv::as_bytes).unwrap_or_default();
        Self {
            disable: tlv.number(aqm::DISABLE).map(|value| value != 0),
            latency_target_ms: small(aqm::LATENCY_TARGET),
            algorithm: tlv.number(aqm::ALGORITHM).and_then(AqmAlgorithm::from_code),
            immediate_max_threshold_us: tlv
                .number(aqm::IMMEDIATE_MAX_THRESHOLD)
                .and_then(|us| u16::try_from(us).ok()),
            immediate_range_exponent: small(aqm::IMMEDIATE_RANGE_EXPONENT),
            histogram_edges: edges
                .chunks_exact(2)
                .map(|edge| u16::from_be_bytes([edge[0], edge[1]]))
                .collect(),
        }
    }

    /// The type 40.
    pub fn to_tlv(&self) -> Tlv {
        let edges: Vec<u8> = self.histogram_edges.iter().flat_map(|e| e.to_be_bytes()).collect();
        let settings = [
            self.disable.map(|disable| Tlv::u8(aqm::DISABLE, u8::from(disable))),
            self.latency_target_ms.map(|target| Tlv::u8(aqm::LATENCY_TARGET, target)),
            self.algorithm.map(|algorithm| Tlv::u8(aqm::ALGORITHM, algorithm.code())),
            self.immediate_max_threshold_us
                .map(|threshold| Tlv::u16(aqm::IMMEDIATE_MAX_THRESHOLD, threshold)),
            self.immediate_range_exponent
                .map(|exponent| Tlv::u8(aqm::IMMEDIATE_RANGE_EXPONENT, exponent)),
            (!edges.is_empty()).then(|| Tlv::bytes(aqm::HISTOGRAM_EDGES, edges)),
        ];
        Tlv::nested(flow::AQM, settings.into_iter().flatten())
    }
}

/// The rates of a service flow or an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rates {
    /// Sustained rate in bit/s; 0 is unlimited.
    pub sustained_bit_per_s: Option<u64>,
    /// Burst beyond the sustained rate, bytes.
    pub burst_bytes: Option<u32>,
    /// Peak rate in bit/s; 0 is unlimited.
    pub peak_bit_per_s: Option<u64>,
}

impl Rates {
    /// The rates inside a type 24, 25, 70 or 71.
    pub fn from_tlv(tlv: &Tlv) -> Self {
        let power = tlv.number(flow::RATE_UNIT).unwrap_or(0).min(3) as u32;
        let unit = 1000_u64.pow(power);
        let rate = |code| tlv.number(code).map(|rate| rate.saturating_mul(unit));
        Self {
            sustained_bit_per_s: rate(flow::SUSTAINED_RATE),
            burst_bytes: tlv.number(flow::BURST).and_then(|bytes| u32::try_from(bytes).ok()),
            peak_bit_per_s: rate(flow::PEAK_RATE),
        }
    }
}

/// A service flow (type 24 or 25) as far as latency is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceFlow {
    /// Direction of the flow.
    pub direction: Direction,
    /// By what number the file refers to it.
    pub reference: u16,
    /// Sustained rate in bit/s; 0 is unlimited.
    pub sustained_bit_per_s: Option<u64>,
    /// Token bucket depth in bytes.
    pub burst_bytes: Option<u32>,
    /// Peak rate in bit/s; 0 is unlimited.
    pub peak_bit_per_s: Option<u64>,
    /// Upstream scheduling: 2 best effort, 6 unsolicited grants.
    pub scheduling: Option<u8>,
    /// The aggregate that it belongs to.
    pub aggregate: Option<u16>,
    /// Size of its queue.
    pub buffer: Option<BufferControl>,
    /// Management of its queue.
    pub aqm: Option<AqmEncodings>,
}

impl ServiceFlow {
    /// A flow with nothing but a direction and a number.
    pub fn new(direction: Direction, reference: u16) -> Self {
        Self {
            direction,
            reference,
            sustained_bit_per_s: None,
            burst_bytes: None,
            peak_bit_per_s: None,
            scheduling: None,
            aggregate: None,
            buffer: None,
            aqm: None,
        }
    }

    /// The flow in a type 24 or 25; none for any other type or a flow without a number.
    pub fn from_tlv(tlv: &Tlv) -> Option<Self> {
        let Rates { sustained_bit_per_s, burst_bytes, peak_bit_per_s } = Rates::from_tlv(tlv);
        let short = |code| tlv.number(code).and_then(|value| u16::try_from(value).ok());
        Some(Self {
            direction: Direction::of(tlv.code)?,
            reference: short(flow::REFERENCE)?,
            sustained_bit_per_s,
            burst_bytes,
            peak_bit_per_s,
            scheduling: tlv.number(flow::SCHEDULING).and_then(|kind| u8::try_from(kind).ok()),
            aggregate: short(flow::AGGREGATE_REFERENCE),
            buffer: tlv.child(flow::BUFFER_CONTROL).map(BufferControl::from_tlv),
            aqm: tlv.child(flow::AQM).map(AqmEncodings::from_tlv),
        })
    }

    /// Its rates.
    pub fn rates(&self) -> Rates {
        let Self { sustained_bit_per_s, burst_bytes, peak_bit_per_s, .. } = *self;
        Rates { sustained_bit_per_s, burst_bytes, peak_bit_per_s }
    }

    /// The type 24 or 25, active from registration on. Rates beyond four bytes of bit/s are
    /// written in the smallest unit that holds them, rounded down.
    pub fn to_tlv(&self) -> Tlv {
        let largest =
            self.sustained_bit_per_s.into_iter().chain(self.peak_bit_per_s).max().unwrap_or(0);
        let fits = |unit: &u8| u32::try_from(largest / 1000_u64.pow(u32::from(*unit))).is_ok();
        let unit = (0..3).find(fits).unwrap_or(3);
        let scale = 1000_u64.pow(u32::from(unit));
        let rate = |code, bit_per_s: u64| {
            Tlv::u32(code, u32::try_from(bit_per_s / scale).unwrap_or(u32::MAX))
        };
        let settings = [
            Some(Tlv::u16(flow::REFERENCE, self.reference)),
            Some(Tlv::u8(flow::PARAMETER_SET, 7)),
            self.sustained_bit_per_s.map(|bit_per_s| rate(flow::SUSTAINED_RATE, bit_per_s)),
            self.burst_bytes.map(|bytes| Tlv::u32(flow::BURST, bytes)),
            self.scheduling.map(|kind| Tlv::u8(flow::SCHEDULING, kind)),
            self.peak_bit_per_s.map(|bit_per_s| rate(flow::PEAK_RATE, bit_per_s)),
            self.buffer.map(BufferControl::to_tlv),
            self.aggregate.map(|reference| Tlv::u16(flow::AGGREGATE_REFERENCE, reference)),
            self.aqm.as_ref().map(AqmEncodings::to_tlv),
            (unit > 0).then(|| Tlv::u8(flow::RATE_UNIT, unit)),
        ];
        Tlv::nested(self.direction.code(), settings.into_iter().flatten())
    }

    /// The larger of the sustained and the peak rate, which sizes default buffers; none when
    /// neither limits the flow.
    pub fn fastest_bit_per_s(&self) -> Option<u64> {
        self.sustained_bit_per_s
            .into_iter()
            .chain(self.peak_bit_per_s)
            .max()
            .filter(|bit_per_s| *bit_per_s > 0)
    }

    /// The rate at which a full queue drains once the burst is spent: the sustained rate.
    pub fn drain_bit_per_s(&self) -> Option<u64> {
        self.sustained_bit_per_s
            .filter(|bit_per_s| *bit_per_s > 0)
            .or_else(|| self.fastest_bit_per_s())
    }
}

impl Config {
    /// What the file gives upstream flows without a target of their own (type 68), milliseconds.
    pub fn default_target_ms(&self) -> Option<u16> {
        let setting = self.of(top::DEFAULT_TARGET_BUFFER).next()?;
        u16::try_from(setting.as_number()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_read_back_as_they_were_written() {
        let mut flow = ServiceFlow::new(Direction::Upstream, 7);
        assert_eq!(ServiceFlow::from_tlv(&flow.to_tlv()), Some(flow.clone()));
        flow.sustained_bit_per_s = Some(10_000_000);
        flow.burst_bytes = Some(40_960);
        flow.peak_bit_per_s = Some(12_000_000);
        flow.scheduling = Some(2);
        flow.aggregate = Some(5);
        flow.buffer =
            Some(BufferControl { minimum: Some(1), target: Some(2), maximum: Some(u32::MAX) });
        flow.aqm = Some(AqmEncodings {
            disable: Some(false),
            latency_target_ms: Some(10),
            algorithm: Some(AqmAlgorithm::DocsisPie),
            immediate_max_threshold_us: Some(1000),
            immediate_range_exponent: Some(19),
            histogram_edges: vec![20, 40, 60],
        });
        assert_eq!(ServiceFlow::from_tlv(&flow.to_tlv()), Some(flow));
    }

    #[test]
    fn rates_past_four_bytes_use_the_rate_unit() {
        let mut flow = ServiceFlow::new(Direction::Downstream, 1);
        flow.sustained_bit_per_s = Some(8_000_000_000);
        let tlv = flow.to_tlv();
        assert_eq!(tlv.number(flow::RATE_UNIT), Some(1));
        assert_eq!(tlv.number(flow::SUSTAINED_RATE), Some(8_000_000));
        assert_eq!(ServiceFlow::from_tlv(&tlv), Some(flow));
    }
}
