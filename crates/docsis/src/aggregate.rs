//! A Low Latency DOCSIS upstream as a configuration file describes it: the aggregate, its two
//! service flows, and what leads packets into the low latency one.

use thiserror::Error;

use crate::code::{aggregate, classifier, flow, header, low_latency, top};
use crate::modem::{Modem, Rejection};
use crate::qos::{AqmEncodings, Rates, ServiceFlow};
use crate::tlv::{Config, Tlv};

/// An upstream aggregate with a low latency and a classic flow. What the file leaves out is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LowLatencyUpstream {
    /// Rates of the aggregate (70.8, 70.9, 70.27); there is a sustained one.
    pub rates: Rates,
    /// Its sustained rate, bit/s.
    pub sustained_bit_per_s: u64,
    /// The low latency flow.
    pub low_latency: Member,
    /// The classic flow.
    pub classic: Member,
    /// Proactive grants of the low latency flow.
    pub proactive: Option<Proactive>,
    /// 42.5, in tenths.
    pub coupling_tenths: Option<u8>,
    /// 42.6, of 256.
    pub weight: Option<u8>,
    /// 42.7.
    pub protection: Option<bool>,
    /// 42.8, microseconds.
    pub critical_delay_us: Option<u16>,
    /// 42.9, microseconds.
    pub critical_score_us: Option<u16>,
    /// 42.10, a power of two of bytes per second.
    pub aging_exponent: Option<u8>,
    /// Codepoints that its classifiers lead into the low latency flow; not empty, in order.
    pub codepoints: Vec<u8>,
}

/// A service flow of the aggregate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its own rates.
    pub rates: Rates,
    /// Its AQM.
    pub aqm: AqmEncodings,
    /// The buffer that the modem gives it, bytes; `None` where the file has no Buffer Control for
    /// it (35) and no default (68).
    pub buffer_bytes: Option<u64>,
}

/// Grants without requests (24.44 and 24.45).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proactive {
    /// Time between them, microseconds.
    pub interval_us: u16,
    /// Their rate, bit/s.
    pub bit_per_s: u64,
}

/// Why a file describes no such upstream.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoLowLatency {
    /// No 70 with a 42.
    #[error(
        "no upstream aggregate (70) has low latency encodings (42); accepted: a file with one, \
         such as `docsis recommend --aqm low-latency` writes"
    )]
    NoAggregate,
    /// More than one.
    #[error("{0} upstream aggregates have low latency encodings (42); accepted: one")]
    SeveralAggregates(usize),
    /// Type 91.
    #[error("low latency support is turned off (91); accepted: 0")]
    TurnedOff,
    /// Nothing to size queues by.
    #[error("the aggregate has no maximum sustained rate (70.8); accepted: one above zero")]
    NoRate,
    /// 42.1 leads nowhere.
    #[error("the low latency flow (42.1) is not among the aggregate's flows (24 with 36)")]
    NoLowLatencyFlow,
    /// None or several.
    #[error("the aggregate has {0} classic flows (24 with 36); accepted: one")]
    ClassicFlows(usize),
    /// 40.1 or 76.
    #[error("AQM is turned off (40.1 or 76); accepted: a classic flow with DOCSIS-PIE")]
    NoAqm,
    /// Nothing but the marking is known to `docsis-lld`.
    #[error("no classifier (22) leads ECT(1) into the low latency flow; accepted: 0x010101")]
    NoScalable,
    /// Nothing marked is led there.
    #[error("no classifier (22) leads a DSCP into the low latency flow; accepted: 0xb4b4fc, NQB")]
    NoCodepoint,
    /// The modem refuses a buffer.
    #[error("the modem rejects the {0} flow's buffer: {1}")]
    Rejected(&'static str, Rejection),
}

impl LowLatencyUpstream {
    /// The upstream of `config`, with the buffers that `modem` selects.
    ///
    /// # Errors
    /// What the file lacks, and what would be accepted.
    pub fn from_config(config: &Config, modem: &Modem) -> Result<Self, NoLowLatency> {
        let on = |code| config.of(code).any(|tlv: &Tlv| tlv.as_number() != Some(0));
        if on(top::LOW_LATENCY_DISABLE) {
            return Err(NoLowLatency::TurnedOff);
        }
        let encodings: Vec<(&Tlv, &Tlv)> = config
            .of(top::UPSTREAM_AGGREGATE)
            .filter_map(|tlv| Some((tlv, tlv.child(aggregate::LOW_LATENCY)?)))
            .collect();
        let (outer, inner) = match encodings[..] {
            [] => return Err(NoLowLatency::NoAggregate),
            [one] => one,
            _ => return Err(NoLowLatency::SeveralAggregates(encodings.len())),
        };
        let rates = Rates::from_tlv(outer);
        let sustained = rates.sustained_bit_per_s.filter(|bit_per_s| *bit_per_s > 0);
        let sustained_bit_per_s = sustained.ok_or(NoLowLatency::NoRate)?;
        let members = members(config, outer.number(aggregate::REFERENCE));
        let reference = inner.number(low_latency::FLOW_REFERENCE);
        let is_low_latency = |flow: &ServiceFlow| Some(u64::from(flow.reference)) == reference;
        let (fast, classic): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|(flow, _)| is_low_latency(flow));
        let Some((fast, tlv)) = fast.first() else { return Err(NoLowLatency::NoLowLatencyFlow) };
        let [(slow, _)] = &classic[..] else {
            return Err(NoLowLatency::ClassicFlows(classic.len()));
        };
        if on(top::AQM_DISABLE) || [fast, slow].into_iter().any(is_without_aqm) {
            return Err(NoLowLatency::NoAqm);
        }
        let default_ms = config.default_target_ms();
        let small = |code| inner.number(code).and_then(|value| u8::try_from(value).ok());
        let short = |code| inner.number(code).and_then(|value| u16::try_from(value).ok());
        Ok(Self {
            low_latency: Member::of(fast, sustained_bit_per_s, modem, default_ms)
                .map_err(|error| NoLowLatency::Rejected("low latency", error))?,
            classic: Member::of(slow, sustained_bit_per_s, modem, default_ms)
                .map_err(|error| NoLowLatency::Rejected("classic", error))?,
            proactive: proactive(tlv),
            coupling_tenths: small(low_latency::COUPLING_FACTOR).filter(|tenths| *tenths < 255),
            weight: small(low_latency::SCHEDULING_WEIGHT),
            protection: inner.number(low_latency::QUEUE_PROTECTION).map(|value| value != 0),
            critical_delay_us: short(low_latency::CRITICAL_DELAY),
            critical_score_us: short(low_latency::CRITICAL_SCORE),
            aging_exponent: small(low_latency::AGING),
            codepoints: codepoints(config, fast.reference)?,
            sustained_bit_per_s,
            rates,
        })
    }
}

impl Member {
    fn of(
        flow: &ServiceFlow,
        aggregate_bit_per_s: u64,
        modem: &Modem,
        default_ms: Option<u16>,
    ) -> Result<Self, Rejection> {
        let rates = flow.rates();
        // A flow without a rate has the aggregate's.
        let bit_per_s = rates
            .sustained_bit_per_s
            .filter(|bit_per_s| *bit_per_s > 0)
            .unwrap_or(aggregate_bit_per_s);
        let sized = ServiceFlow {
            sustained_bit_per_s: Some(bit_per_s.min(aggregate_bit_per_s)),
            ..flow.clone()
        };
        let is_given = flow.buffer.is_some() || default_ms.is_some();
        let buffer_bytes = is_given.then(|| modem.select(&sized, default_ms)).transpose()?;
        Ok(Self { rates, aqm: flow.aqm.clone().unwrap_or_default(), buffer_bytes })
    }
}

/// The upstream flows of the aggregate with that reference.
fn members(config: &Config, reference: Option<u64>) -> Vec<(ServiceFlow, &Tlv)> {
    let flows = config
        .of(top::UPSTREAM_FLOW)
        .filter_map(|tlv| Some((ServiceFlow::from_tlv(tlv)?, tlv)))
        .filter(|(flow, _)| reference.is_some() && flow.aggregate.map(u64::from) == reference);
    flows.collect()
}

fn is_without_aqm(flow: &ServiceFlow) -> bool {
    flow.aqm.as_ref().is_some_and(|aqm| aqm.disable == Some(true))
}

fn proactive(flow: &Tlv) -> Option<Proactive> {
    let bit_per_s = flow.number(flow::GUARANTEED_GRANT_RATE).filter(|bit_per_s| *bit_per_s > 0)?;
    let interval = flow.number(flow::GUARANTEED_GRANT_INTERVAL)?;
    let interval_us = u16::try_from(interval).ok().filter(|us| *us > 0)?;
    Some(Proactive { interval_us, bit_per_s })
}

/// Codepoints that classifiers lead into the flow `reference`, whatever the ECN bits are.
fn codepoints(config: &Config, reference: u16) -> Result<Vec<u8>, NoLowLatency> {
    let leads = |tlv: &&Tlv| tlv.number(classifier::FLOW_REFERENCE) == Some(reference.into());
    let places =
        [(classifier::IPV4, header::IPV4_TOS), (classifier::IPV6, header::IPV6_TRAFFIC_CLASS)];
    let ranges: Vec<[u8; 3]> = config
        .of(top::UPSTREAM_CLASSIFIER)
        .filter(leads)
        .flat_map(|tlv| places.map(|(outer, inner)| tlv.child(outer)?.child(inner)?.as_bytes()))
        .filter_map(|range| range?.try_into().ok())
        .collect();
    let takes = |tos: u8, bits: u8| {
        ranges
            .iter()
            .any(|[low, high, mask]| *mask & bits != 0 && (*low..=*high).contains(&(tos & *mask)))
    };
    if !takes(ECT1, ECN_BITS) {
        return Err(NoLowLatency::NoScalable);
    }
    let codepoints: Vec<u8> = (0..64).filter(|dscp| takes(dscp << 2, !ECN_BITS)).collect();
    if codepoints.is_empty() { Err(NoLowLatency::NoCodepoint) } else { Ok(codepoints) }
}

const ECN_BITS: u8 = 0b11;
const ECT1: u8 = 0b01;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::BufferControl;
    use crate::recommend::{Choice, Upstream};

    const TIER: Upstream = Upstream {
        sustained_bit_per_s: 20_000_000,
        peak_bit_per_s: 24_000_000,
        burst_bytes: 40_960,
    };

    fn modem() -> Modem {
        Modem::new(1_024, 1 << 24).expect("a modem")
    }

    fn of(config: &Config) -> Result<LowLatencyUpstream, NoLowLatency> {
        LowLatencyUpstream::from_config(config, &modem())
    }

    #[test]
    fn a_recommended_file_reads_back() {
        let upstream = of(&TIER.configuration(Choice::LowLatency(10))).expect("an upstream");
        assert_eq!(upstream.sustained_bit_per_s, 20_000_000);
        assert_eq!(upstream.rates.peak_bit_per_s, Some(24_000_000));
        assert_eq!(upstream.rates.burst_bytes, Some(40_960));
        assert_eq!(upstream.classic.aqm.latency_target_ms, Some(10));
        // Three targets are 75,000 bytes: 73 blocks of 1 KiB are 74,752.
        assert_eq!(upstream.classic.buffer_bytes, Some(74_752));
        assert_eq!(upstream.low_latency.buffer_bytes, None);
        assert_eq!((upstream.coupling_tenths, upstream.weight), (Some(20), Some(230)));
        assert_eq!((upstream.protection, upstream.proactive), (Some(true), None));
        assert_eq!(upstream.codepoints, [45]);
    }

    /// The recommended file with one setting at the top replaced, or left out.
    fn changed(change: impl Fn(Tlv) -> Option<Tlv>) -> Config {
        let config = TIER.configuration(Choice::LowLatency(10));
        Config::new(config.tlvs().cloned().filter_map(change))
    }

    fn without(code: u8) -> Result<LowLatencyUpstream, NoLowLatency> {
        of(&changed(|tlv| (tlv.code != code).then_some(tlv)))
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(without(top::UPSTREAM_AGGREGATE), Err(NoLowLatency::NoAggregate));
        assert_eq!(without(top::UPSTREAM_FLOW), Err(NoLowLatency::NoLowLatencyFlow));
        assert_eq!(without(top::UPSTREAM_CLASSIFIER), Err(NoLowLatency::NoScalable));
        let off = |code, value| {
            of(&changed(|tlv| Some(if tlv.code == code { Tlv::u8(code, value) } else { tlv })))
        };
        assert_eq!(off(top::LOW_LATENCY_DISABLE, 1), Err(NoLowLatency::TurnedOff));
        let plain = TIER.configuration(Choice::DocsisPie(10));
        assert_eq!(of(&plain), Err(NoLowLatency::NoAggregate));
        let classic_alone = changed(|tlv| {
            let reference = ServiceFlow::from_tlv(&tlv).map(|flow| flow.reference);
            (reference != Some(2)).then_some(tlv)
        });
        assert_eq!(of(&classic_alone), Err(NoLowLatency::NoLowLatencyFlow));
        let fast_alone = changed(|tlv| {
            let reference = ServiceFlow::from_tlv(&tlv).map(|flow| flow.reference);
            (reference != Some(1)).then_some(tlv)
        });
        assert_eq!(of(&fast_alone), Err(NoLowLatency::ClassicFlows(0)));
    }

    #[test]
    fn a_buffer_that_the_modem_rejects_is_refused() {
        let impossible = changed(|tlv| {
            let Some(mut flow) = ServiceFlow::from_tlv(&tlv).filter(|flow| flow.reference == 1)
            else {
                return Some(tlv);
            };
            flow.buffer =
                Some(BufferControl { minimum: Some(1 << 30), ..BufferControl::default() });
            Some(flow.to_tlv())
        });
        let error = of(&impossible).expect_err("no modem has a gigabyte").to_string();
        assert!(error.contains("the modem rejects the classic flow's buffer"), "{error}");
    }
}
