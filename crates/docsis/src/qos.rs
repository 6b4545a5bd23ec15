//! The settings that affect a flow's latency, as types: the checks and the modem model read them,
//! a recommendation writes them.

use crate::code::{aqm, buffer, flow, top};
use crate::tlv::{Config, Tlv};

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

    pub(crate) fn other(self) -> Self {
        Self::BOTH[1 - self as usize]
    }

    /// The type of a service flow.
    pub fn flow_code(self) -> u8 {
        [top::UPSTREAM_FLOW, top::DOWNSTREAM_FLOW][self as usize]
    }

    /// The type of a classifier that leads packets into a flow.
    pub(crate) fn classifier_code(self) -> u8 {
        [top::UPSTREAM_CLASSIFIER, top::DOWNSTREAM_CLASSIFIER][self as usize]
    }

    /// The type of an aggregate of flows.
    pub(crate) fn aggregate_code(self) -> u8 {
        [top::UPSTREAM_AGGREGATE, top::DOWNSTREAM_AGGREGATE][self as usize]
    }
}

/// Buffer Control (type 35): the size of a flow's queue in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BufferControl {
    /// The smallest accepted size.
    pub minimum: Option<u32>,
    pub target: Option<u32>,
    /// The largest accepted size.
    pub maximum: Option<u32>,
}

impl BufferControl {
    /// A target alone, which every modem accepts.
    pub fn target(bytes: u32) -> Self {
        Self { target: Some(bytes), ..Self::default() }
    }

    pub fn from_tlv(tlv: &Tlv) -> Self {
        Self {
            minimum: tlv.get(buffer::MINIMUM),
            target: tlv.get(buffer::TARGET),
            maximum: tlv.get(buffer::MAXIMUM),
        }
    }

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
    /// The default of the device.
    Default = 0,
    /// DOCSIS-PIE (RFC 8034).
    DocsisPie = 1,
    /// Immediate AQM, the ramp of a low latency queue.
    Immediate = 2,
}

impl AqmAlgorithm {
    fn from_code(code: u64) -> Option<Self> {
        [Self::Default, Self::DocsisPie, Self::Immediate]
            .into_iter()
            .find(|algorithm| *algorithm as u64 == code)
    }
}

/// AQM encodings (type 40) of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AqmEncodings {
    /// TLV 40.1: whether the AQM is off.
    pub disable: Option<bool>,
    /// 40.2: latency target of classic AQM.
    pub latency_target_ms: Option<u8>,
    /// TLV 40.3: the algorithm of the AQM.
    pub algorithm: Option<AqmAlgorithm>,
    /// 40.4: queuing delay from which immediate AQM marks every packet.
    pub immediate_max_threshold_us: Option<u16>,
    /// 40.5: width of immediate AQM's ramp, as 2^x nanoseconds.
    pub immediate_range_exponent: Option<u8>,
    /// 40.6: bin edges of the latency histogram. Empty if the setting is absent.
    pub histogram_edges: Vec<u16>,
}

impl AqmEncodings {
    /// Reads a type 40. Values that the specification does not define are `None`.
    pub fn from_tlv(tlv: &Tlv) -> Self {
        let edges = tlv.child(aqm::HISTOGRAM_EDGES).and_then(Tlv::as_bytes).unwrap_or_default();
        Self {
            disable: tlv.number(aqm::DISABLE).map(|value| value != 0),
            latency_target_ms: tlv.get(aqm::LATENCY_TARGET),
            algorithm: tlv.number(aqm::ALGORITHM).and_then(AqmAlgorithm::from_code),
            immediate_max_threshold_us: tlv.get(aqm::IMMEDIATE_MAX_THRESHOLD),
            immediate_range_exponent: tlv.get(aqm::IMMEDIATE_RANGE_EXPONENT),
            histogram_edges: edges
                .chunks_exact(2)
                .map(|edge| u16::from_be_bytes([edge[0], edge[1]]))
                .collect(),
        }
    }

    pub fn to_tlv(&self) -> Tlv {
        let edges: Vec<u8> = self.histogram_edges.iter().flat_map(|e| e.to_be_bytes()).collect();
        let settings = [
            self.disable.map(|disable| Tlv::u8(aqm::DISABLE, u8::from(disable))),
            self.latency_target_ms.map(|target| Tlv::u8(aqm::LATENCY_TARGET, target)),
            self.algorithm.map(|algorithm| Tlv::u8(aqm::ALGORITHM, algorithm as u8)),
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
    /// Maximum sustained rate; 0 is unlimited.
    pub sustained_bit_per_s: Option<u64>,
    /// Depth of the token bucket.
    pub burst_bytes: Option<u32>,
    /// Peak rate; 0 is unlimited.
    pub peak_bit_per_s: Option<u64>,
}

impl Rates {
    /// Reads a type 24, 25, 70 or 71.
    pub fn from_tlv(tlv: &Tlv) -> Self {
        let power = tlv.number(flow::RATE_UNIT).unwrap_or(0).min(3) as u32;
        let unit = 1000_u64.pow(power);
        let rate = |code| tlv.number(code).map(|rate| rate.saturating_mul(unit));
        Self {
            sustained_bit_per_s: rate(flow::SUSTAINED_RATE),
            burst_bytes: tlv.get(flow::BURST),
            peak_bit_per_s: rate(flow::PEAK_RATE),
        }
    }

    /// The larger of sustained and peak rate, for default buffers. `None` if neither is limited.
    pub(crate) fn fastest_bit_per_s(&self) -> Option<u64> {
        self.sustained_bit_per_s.max(self.peak_bit_per_s).filter(|bit_per_s| *bit_per_s > 0)
    }

    /// The rate at which a full queue drains once the burst is spent: the sustained rate, or the
    /// peak rate if the sustained rate does not limit the flow.
    pub fn drain_bit_per_s(&self) -> Option<u64> {
        let sustained = self.sustained_bit_per_s.filter(|bit_per_s| *bit_per_s > 0);
        sustained.or_else(|| self.fastest_bit_per_s())
    }
}

/// A service flow (type 24 or 25): the settings that affect latency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceFlow {
    pub direction: Direction,
    pub reference: u16,
    pub rates: Rates,
    /// Upstream scheduling: 2 best effort, 6 unsolicited grants.
    pub scheduling: Option<u8>,
    /// Reference of the aggregate that the flow belongs to.
    pub aggregate: Option<u16>,
    pub buffer: Option<BufferControl>,
    pub aqm: Option<AqmEncodings>,
}

impl ServiceFlow {
    /// A flow without optional settings.
    pub fn new(direction: Direction, reference: u16) -> Self {
        let (rates, scheduling, aggregate, buffer, aqm) = Default::default();
        Self { direction, reference, rates, scheduling, aggregate, buffer, aqm }
    }

    /// Reads a type 24 or 25. `None` for any other type or a flow without a reference.
    pub fn from_tlv(tlv: &Tlv) -> Option<Self> {
        Some(Self {
            direction: Direction::BOTH.into_iter().find(|way| way.flow_code() == tlv.code)?,
            reference: tlv.get(flow::REFERENCE)?,
            rates: Rates::from_tlv(tlv),
            scheduling: tlv.get(flow::SCHEDULING),
            aggregate: tlv.get(flow::AGGREGATE_REFERENCE),
            buffer: tlv.child(flow::BUFFER_CONTROL).map(BufferControl::from_tlv),
            aqm: tlv.child(flow::AQM).map(AqmEncodings::from_tlv),
        })
    }

    /// Returns the type 24 or 25, active from registration on. If a rate in bit/s does not fit into
    /// four bytes, both rates have the smallest unit that fits, rounded down.
    pub fn to_tlv(&self) -> Tlv {
        let Rates { sustained_bit_per_s, burst_bytes, peak_bit_per_s } = self.rates;
        let largest = self.rates.fastest_bit_per_s().unwrap_or(0);
        let fits = |unit: &u8| u32::try_from(largest / 1000_u64.pow(u32::from(*unit))).is_ok();
        let unit = (0..3).find(fits).unwrap_or(3);
        let scale = 1000_u64.pow(u32::from(unit));
        let rate = |code, bit_per_s: u64| {
            Tlv::u32(code, u32::try_from(bit_per_s / scale).unwrap_or(u32::MAX))
        };
        let settings = [
            Some(Tlv::u16(flow::REFERENCE, self.reference)),
            Some(Tlv::u8(flow::PARAMETER_SET, 7)),
            sustained_bit_per_s.map(|bit_per_s| rate(flow::SUSTAINED_RATE, bit_per_s)),
            burst_bytes.map(|bytes| Tlv::u32(flow::BURST, bytes)),
            self.scheduling.map(|kind| Tlv::u8(flow::SCHEDULING, kind)),
            peak_bit_per_s.map(|bit_per_s| rate(flow::PEAK_RATE, bit_per_s)),
            self.buffer.map(BufferControl::to_tlv),
            self.aggregate.map(|reference| Tlv::u16(flow::AGGREGATE_REFERENCE, reference)),
            self.aqm.as_ref().map(AqmEncodings::to_tlv),
            (unit > 0).then(|| Tlv::u8(flow::RATE_UNIT, unit)),
        ];
        Tlv::nested(self.direction.flow_code(), settings.into_iter().flatten())
    }
}

impl Config {
    /// Type 68: the target of upstream flows that have no target, milliseconds.
    pub fn default_target_ms(&self) -> Option<u16> {
        let setting = self.settings_of_type(top::DEFAULT_TARGET_BUFFER).next()?;
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
        flow.rates = Rates {
            sustained_bit_per_s: Some(10_000_000),
            burst_bytes: Some(40_960),
            peak_bit_per_s: Some(12_000_000),
        };
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
        flow.rates.sustained_bit_per_s = Some(8_000_000_000);
        let tlv = flow.to_tlv();
        assert_eq!(tlv.number(flow::RATE_UNIT), Some(1));
        assert_eq!(tlv.number(flow::SUSTAINED_RATE), Some(8_000_000));
        assert_eq!(ServiceFlow::from_tlv(&tlv), Some(flow));
    }
}
