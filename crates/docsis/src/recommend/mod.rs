//! Recommended settings for a tier: the candidates, the choice among their simulated outcomes, and
//! what needs no traffic: the guideline's buffers, the expected utilisation, and the settings.

mod candidates;
mod choose;
mod words;

use serde::Serialize;
use thiserror::Error;

pub use candidates::{Aqm, Candidate};
pub use choose::{Outcome, Recommendation, Rule, Wish};
pub use words::rate_name;

use crate::aggregate::TOS_PATHS;
use crate::code::{aggregate, classifier, flow, low_latency, top};
use crate::mic::Extended;
use crate::modem::{FRAME_BYTES, GRANT_US, GUARANTEED_BYTES, MAP_INTERVAL_US};
use crate::qos::{AqmAlgorithm, AqmEncodings, BufferControl, Direction, Rates, ServiceFlow};
use crate::{Config, Tlv};

/// A tier of service in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Service {
    /// Downstream the queue is the CMTS's, which schedules its own packets: no requests and grants.
    pub direction: Direction,
    /// Maximum sustained traffic rate; not zero.
    #[serde(rename = "rate_bit_per_s")]
    pub sustained_bit_per_s: u64,
    /// Peak traffic rate; not below the sustained rate.
    pub peak_bit_per_s: u64,
    /// Maximum traffic burst: depth of the token bucket of the sustained rate.
    pub burst_bytes: u32,
}

/// A value that no tier has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ServiceError {
    #[error("rate: expected 100kbit to 10gbit")]
    Rate,
    #[error("peak: expected at least the sustained rate")]
    Peak,
    #[error("burst: expected 1522 bytes to 1024MiB")]
    Burst,
}

/// Buffer and AQM settings of a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Buffer Control with this target in bytes.
    Buffer(u32),
    /// DOCSIS-PIE with this latency target in ms.
    DocsisPie(u8),
    /// Low Latency DOCSIS. The latency target of the classic flow in ms.
    LowLatency(u8),
}

/// CM-GL-Buffer-V01, Table 2: upstream rate in bit/s, target buffer in bytes.
pub const TABLE_2: [(u64, u32); 4] = [
    (1_000_000, 8 * 1024),
    (2_000_000, 16 * 1024),
    (5_000_000, 32 * 1024),
    (10_000_000, 50 * 1024),
];

/// Returns the row of Table 2 whose rate is nearest by ratio.
pub fn table_2(bit_per_s: u64) -> (u64, u32) {
    let distance = |row: &(u64, u32)| (row.0 as f64 / bit_per_s as f64).ln().abs();
    let nearest = TABLE_2.into_iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    nearest.unwrap_or(TABLE_2[0])
}

/// Returns the long-run share of a drop-tail link that one Reno flow uses with a queue of `buffer`
/// bandwidth-delay products: `0.75 (1 + b)^2 / (1 + b + b^2)`, and 1 from `b = 1` on. The window
/// oscillates between half of `1 + b` and `1 + b`; the link is idle while the window is below 1.
pub fn reno_utilisation(buffer: f64) -> f64 {
    let b = buffer.clamp(0.0, 1.0);
    0.75 * (1.0 + b).powi(2) / (1.0 + b + b * b)
}

/// The smallest buffer, in bandwidth-delay products, with which one CUBIC flow keeps a drop-tail
/// link full: its window falls to 0.7 of `1 + b` (RFC 9438), which must not be below one.
pub const CUBIC_FULL_FROM: f64 = 1.0 / 0.7 - 1.0;

impl Service {
    /// Checks the values of a tier.
    ///
    /// # Errors
    /// If a value is outside of the range that its error states.
    pub fn new(
        direction: Direction,
        rate: u64,
        peak: u64,
        burst_bytes: u64,
    ) -> Result<Self, ServiceError> {
        if peak < rate {
            return Err(ServiceError::Peak);
        }
        if !(1522..=1 << 30).contains(&burst_bytes) {
            return Err(ServiceError::Burst);
        }
        if !(100_000..=10_000_000_000).contains(&rate) {
            return Err(ServiceError::Rate);
        }
        let burst_bytes = burst_bytes as u32;
        Ok(Self { direction, sustained_bit_per_s: rate, peak_bit_per_s: peak, burst_bytes })
    }

    /// Returns a burst that does not limit `rate`: two frames, the standard's default, and the bytes
    /// of a MAP interval, each of which carries at most a burst.
    pub fn default_burst_bytes(rate: u64) -> u64 {
        2 * FRAME_BYTES + bytes_in(rate, MAP_INTERVAL_US)
    }

    /// Returns the seconds in which `bytes` drain with a full token bucket, and with an empty one.
    pub fn drain_seconds(&self, bytes: u64) -> (f64, f64) {
        let bits = bytes as f64 * 8.0;
        let (sustained, peak) = (self.sustained_bit_per_s as f64, self.peak_bit_per_s as f64);
        let slow = bits / sustained;
        if self.peak_bit_per_s <= self.sustained_bit_per_s {
            return (slow, slow);
        }
        let burst_seconds = self.burst_seconds();
        let in_burst = peak * burst_seconds;
        let fast = if bits <= in_burst {
            bits / peak
        } else {
            burst_seconds + (bits - in_burst) / sustained
        };
        (fast, slow)
    }

    /// Returns for how long a full token bucket lets the peak rate pass.
    pub fn burst_seconds(&self) -> f64 {
        let excess = self.peak_bit_per_s.saturating_sub(self.sustained_bit_per_s);
        if excess == 0 { 0.0 } else { f64::from(self.burst_bytes) * 8.0 / excess as f64 }
    }

    /// Returns a configuration with these settings. The operator has to add the other direction's rate.
    pub fn configuration(&self, choice: Choice) -> Config {
        let flow = match choice {
            Choice::Buffer(bytes) => {
                ServiceFlow { buffer: Some(BufferControl::target(bytes)), ..self.flow() }
            }
            Choice::DocsisPie(target) => {
                ServiceFlow { aqm: Some(classic_aqm(target)), ..self.flow() }
            }
            Choice::LowLatency(target) => return low_latency(self, target),
        };
        let mut flows = [flow, ServiceFlow::new(self.direction.other(), OTHER_FLOW)];
        flows.sort_by_key(|flow| flow.direction.flow_code());
        let flows = flows.iter().map(ServiceFlow::to_tlv);
        Config::new([Tlv::u8(top::NETWORK_ACCESS_CONTROL, 1)].into_iter().chain(flows))
    }

    /// Returns the buffer of the classic flow of a low latency aggregate, bytes: three times its
    /// latency target, but at least the size that every certified modem has.
    ///
    /// Inactive DOCSIS-PIE drops nothing until a third of the buffer is full, but its probability
    /// marks the low latency flow. With this buffer it becomes active at its target.
    pub fn classic_buffer_bytes(&self, target_ms: u8) -> u32 {
        let bytes = u128::from(self.sustained_bit_per_s) * 3 * u128::from(target_ms) / 8_000;
        u32::try_from(bytes.max(u128::from(GUARANTEED_BYTES))).unwrap_or(u32::MAX)
    }

    /// Returns the smallest buffer of a modem that carries the rate, bytes: what arrives while a
    /// packet waits for its request and grant, and two frames.
    pub fn least_buffer_bytes(&self) -> u64 {
        2 * FRAME_BYTES + bytes_in(self.sustained_bit_per_s, MAP_INTERVAL_US + GRANT_US)
    }

    /// Returns the row of Table 2 for the rate; `None` downstream, for which the guideline has none.
    pub fn table_2(&self) -> Option<(u64, u32)> {
        (self.direction == Direction::Upstream).then(|| table_2(self.sustained_bit_per_s))
    }

    fn flow(&self) -> ServiceFlow {
        let differs = self.peak_bit_per_s > self.sustained_bit_per_s;
        let rates = Rates {
            sustained_bit_per_s: Some(self.sustained_bit_per_s),
            burst_bytes: (self.burst_bytes > 0).then_some(self.burst_bytes),
            peak_bit_per_s: differs.then_some(self.peak_bit_per_s),
        };
        ServiceFlow { rates, ..ServiceFlow::new(self.direction, CLASSIC_FLOW) }
    }
}

fn bytes_in(rate: u64, time_us: u64) -> u64 {
    (u128::from(rate) * u128::from(time_us) / 8_000_000) as u64
}

// References in a recommended file.
const CLASSIC_FLOW: u16 = 1;
const LOW_LATENCY_FLOW: u16 = 2;
const OTHER_FLOW: u16 = 3;
const AGGREGATE: u16 = 4;

fn classic_aqm(target_ms: u8) -> AqmEncodings {
    AqmEncodings {
        disable: Some(false),
        latency_target_ms: Some(target_ms),
        algorithm: Some(AqmAlgorithm::DocsisPie),
        ..AqmEncodings::default()
    }
}

/// Two flows in an aggregate, classifiers, and the extended MIC that a CMTS requires for it.
fn low_latency(service: &Service, target_ms: u8) -> Config {
    let (l4s, nqb) = ([0x01, 0x01, 0x01], [0xb4, 0xb4, 0xfc]);
    let matches = TOS_PATHS.into_iter().flat_map(|[outer, inner]| {
        [l4s, nqb].map(|range| Tlv::nested(outer, [Tlv::bytes(inner, range)]))
    });
    let mut settings = vec![Tlv::u8(top::NETWORK_ACCESS_CONTROL, 1)];
    let code = service.direction.classifier_code();
    settings
        .extend((1..).zip(matches).map(|(reference, range)| classifier(code, reference, range)));
    let member = |reference, aqm| ServiceFlow {
        aggregate: Some(AGGREGATE),
        aqm: Some(aqm),
        ..ServiceFlow::new(service.direction, reference)
    };
    let immediate =
        AqmEncodings { algorithm: Some(AqmAlgorithm::Immediate), ..AqmEncodings::default() };
    let buffer = Some(BufferControl::target(service.classic_buffer_bytes(target_ms)));
    let classic = ServiceFlow { buffer, ..member(CLASSIC_FLOW, classic_aqm(target_ms)) };
    settings.push(classic.to_tlv());
    settings.push(member(LOW_LATENCY_FLOW, immediate).to_tlv());
    settings.push(ServiceFlow::new(service.direction.other(), OTHER_FLOW).to_tlv());
    settings.push(aggregate(service));
    settings.push(Tlv::u8(top::LOW_LATENCY_DISABLE, 0));
    let covered = [
        top::NETWORK_ACCESS_CONTROL,
        code,
        top::UPSTREAM_FLOW,
        top::DOWNSTREAM_FLOW,
        top::EXTENSION,
        service.direction.aggregate_code(),
        top::LOW_LATENCY_DISABLE,
    ];
    settings.push(Extended::covering(covered));
    Config::new(settings)
}

/// Leads packets whose type-of-service or traffic class byte is in `range` to that flow.
fn classifier(code: u8, reference: u8, range: Tlv) -> Tlv {
    let settings = [
        Tlv::u8(classifier::REFERENCE, reference),
        Tlv::u16(classifier::FLOW_REFERENCE, LOW_LATENCY_FLOW),
        Tlv::u8(classifier::PRIORITY, 64),
        Tlv::u8(classifier::ACTIVATION, 1),
        range,
    ];
    Tlv::nested(code, settings)
}

/// The aggregate has the rates, in the encoding of a service flow; its flows have no rates.
fn aggregate(service: &Service) -> Tlv {
    const RATES: [u8; 4] = [flow::SUSTAINED_RATE, flow::BURST, flow::PEAK_RATE, flow::RATE_UNIT];
    let flow = service.flow().to_tlv();
    let rates = flow.children().iter().filter(|tlv| RATES.contains(&tlv.code)).cloned();
    let low_latency = Tlv::nested(
        aggregate::LOW_LATENCY,
        [
            Tlv::u16(low_latency::FLOW_REFERENCE, LOW_LATENCY_FLOW),
            Tlv::u8(low_latency::COUPLING_FACTOR, 20),
            Tlv::u8(low_latency::SCHEDULING_WEIGHT, 230),
            Tlv::u8(low_latency::QUEUE_PROTECTION, 1),
        ],
    );
    let reference = Tlv::u16(aggregate::REFERENCE, AGGREGATE);
    let settings = [reference].into_iter().chain(rates).chain([low_latency]);
    Tlv::nested(service.direction.aggregate_code(), settings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Severity, check};
    use crate::mic::Secret;

    const TIER: Service = Service {
        direction: Direction::Upstream,
        sustained_bit_per_s: 10_000_000,
        peak_bit_per_s: 12_000_000,
        burst_bytes: 40_960,
    };

    #[test]
    fn utilisation_is_that_of_the_derivation() {
        for (buffer, expected) in [(0.0, 0.75), (0.1, 0.8176), (0.25, 0.8929), (0.5, 0.9643)] {
            assert!((reno_utilisation(buffer) - expected).abs() < 5e-5, "b = {buffer}");
        }
        assert!((reno_utilisation(1.0) - 1.0).abs() < 1e-12);
        assert!((reno_utilisation(7.0) - 1.0).abs() < 1e-12);
        assert!((CUBIC_FULL_FROM - 0.43).abs() < 0.002);
    }

    #[test]
    fn table_2_uses_the_nearest_rate() {
        assert_eq!(table_2(10_000_000).1, 51_200);
        assert_eq!(table_2(300_000).0, 1_000_000);
        assert_eq!(table_2(3_000_000).0, 2_000_000);
        assert_eq!(table_2(3_500_000).0, 5_000_000);
        assert_eq!(table_2(1_000_000_000).0, 10_000_000);
    }

    #[test]
    fn the_least_buffer_stores_6_milliseconds_and_two_frames() {
        assert_eq!(TIER.least_buffer_bytes(), 7_500 + 3_044);
    }

    #[test]
    fn a_buffer_drains_at_the_peak_rate_until_the_burst_is_spent() {
        let close = |value: f64, expected: f64| {
            assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
        };
        // 40,960 B more than the sustained rate brings last 163.84 ms, in which 245,760 B leave.
        let (fast, slow) = TIER.drain_seconds(51_200);
        close(fast, 51_200.0 * 8.0 / 12e6);
        close(slow, 0.04096);
        let (fast, slow) = TIER.drain_seconds(262_144);
        close(fast, 0.16384 + (262_144.0 - 245_760.0) * 8.0 / 10e6);
        close(slow, 0.209_715_2);
        let plain = Service { peak_bit_per_s: 10_000_000, ..TIER };
        assert_eq!(plain.drain_seconds(1_000).0.to_bits(), plain.drain_seconds(1_000).1.to_bits());
    }

    #[test]
    fn every_choice_makes_a_file_that_passes_the_checks() {
        let secret = Secret::new(b"a secret");
        for choice in [Choice::Buffer(51_200), Choice::DocsisPie(10), Choice::LowLatency(10)] {
            let fast = Service {
                direction: Direction::Upstream,
                sustained_bit_per_s: 6_000_000_000,
                peak_bit_per_s: 6_000_000_000,
                burst_bytes: 1_500_000,
            };
            let down = Service { direction: Direction::Downstream, ..fast };
            for tier in [TIER, fast, down] {
                let mut config = tier.configuration(choice);
                config.seal(Some(&secret)).expect("a MIC");
                let bytes = config.encode().expect("it fits");
                let findings = check(&bytes, Some(&secret));
                let bad = |f: &&crate::check::Finding| f.severity != Severity::Note;
                let bad: Vec<_> = findings.iter().filter(bad).collect();
                assert!(bad.is_empty(), "{choice:?}: {bad:?}");
            }
        }
    }

    #[test]
    fn the_classic_flow_beside_a_low_latency_one_has_three_targets_of_buffer() {
        let at = |sustained_bit_per_s, target_ms| {
            let tier = Service { sustained_bit_per_s, peak_bit_per_s: sustained_bit_per_s, ..TIER };
            let config = tier.configuration(Choice::LowLatency(target_ms));
            let flows: Vec<_> =
                config.settings_of_type(24).filter_map(ServiceFlow::from_tlv).collect();
            assert_eq!(flows[1].buffer, None, "the low latency flow's is the modem's");
            flows[0].buffer.and_then(|buffer| buffer.target)
        };
        assert_eq!(at(50_000_000, 10), Some(187_500));
        assert_eq!(at(10_000_000, 10), Some(37_500));
        assert_eq!(at(10_000_000, 5), Some(24_576), "not below what every modem has");
        assert_eq!(at(u64::MAX, 255), Some(u32::MAX));
    }

    #[test]
    fn a_buffer_choice_is_what_the_modem_model_selects() {
        let config = TIER.configuration(Choice::Buffer(51_200));
        let flow = config.settings_of_type(24).find_map(ServiceFlow::from_tlv).expect("a flow");
        let modem = crate::modem::Modem::new(1_024, 262_144).expect("a modem");
        assert_eq!(modem.select(&flow, None), Ok(51_200));
    }
}
