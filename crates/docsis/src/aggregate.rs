//! A Low Latency DOCSIS upstream as a configuration file describes it: the aggregate, its two
//! service flows, and the classifiers that lead packets into the low latency one.

use thiserror::Error;

use crate::code::{aggregate, classifier, flow, header, low_latency, top};
use crate::modem::{Modem, Rejection};
use crate::qos::{AqmEncodings, Rates, ServiceFlow};
use crate::tlv::{Config, Tlv};

/// An upstream aggregate with a low latency and a classic flow. Absent settings are `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LowLatencyUpstream {
    /// Rates of the aggregate (70.8, 70.9, 70.27).
    pub rates: Rates,
    /// The sustained rate in `rates`; above zero.
    pub sustained_bit_per_s: u64,
    pub low_latency: Member,
    pub classic: Member,
    /// Proactive grants of the low latency flow.
    pub proactive: Option<Proactive>,
    /// 42.5, in tenths.
    pub coupling_tenths: Option<u8>,
    /// 42.6, of 256.
    pub weight: Option<u8>,
    /// TLV 42.7: whether queue protection is on.
    pub protection: Option<bool>,
    /// TLV 42.8: queuing delay above which flows may be moved to the classic queue.
    pub critical_delay_us: Option<u16>,
    /// TLV 42.9: score that a flow may have at the critical delay.
    pub critical_score_us: Option<u16>,
    /// 42.10: scores decay at 2^x bytes/s.
    pub aging_exponent: Option<u8>,
    /// DSCPs that the classifiers lead into the low latency flow; rising, at least one.
    pub codepoints: Vec<u8>,
}

/// A service flow of the aggregate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub rates: Rates,
    pub aqm: AqmEncodings,
    /// The buffer that the modem selects; `None` without Buffer Control (35) and default (68).
    pub buffer_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proactive {
    /// 24.44, the time between grants.
    pub interval_us: u16,
    /// TLV 24.45: the rate of the grants.
    pub bit_per_s: u64,
}

/// Why a file describes no such upstream.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoLowLatency {
    #[error(
        "no upstream aggregate (70) has low latency encodings (42); accepted: a file with one, \
         such as `docsis recommend --aqm low-latency` writes"
    )]
    NoAggregate,
    #[error("{0} upstream aggregates have low latency encodings (42); accepted: one")]
    SeveralAggregates(usize),
    #[error("low latency support is turned off (91); accepted: 0")]
    TurnedOff,
    #[error("the aggregate has no maximum sustained rate (70.8); accepted: one above zero")]
    NoRate,
    #[error("the low latency flow (42.1) is not among the aggregate's flows (24 with 36)")]
    NoLowLatencyFlow,
    #[error("the aggregate has {0} classic flows (24 with 36); accepted: one")]
    ClassicFlows(usize),
    #[error("AQM is turned off (40.1 or 76); accepted: a classic flow with DOCSIS-PIE")]
    NoAqm,
    /// The queue `docsis-lld` puts ECT(1) into the low latency queue in any case.
    #[error("no classifier (22) leads ECT(1) into the low latency flow; accepted: 0x010101")]
    NoScalable,
    #[error("no classifier (22) leads a DSCP into the low latency flow; accepted: 0xb4b4fc, NQB")]
    NoCodepoint,
    #[error("the modem rejects the {0} flow's buffer: {1}")]
    Rejected(&'static str, Rejection),
}

impl LowLatencyUpstream {
    /// Returns the upstream of `config`, with the buffers that `modem` selects.
    ///
    /// # Errors
    /// If the file describes no such upstream or the modem rejects a buffer.
    pub fn from_config(config: &Config, modem: &Modem) -> Result<Self, NoLowLatency> {
        let on = |code| config.settings_of_type(code).any(|tlv: &Tlv| tlv.as_number() != Some(0));
        if on(top::LOW_LATENCY_DISABLE) {
            return Err(NoLowLatency::TurnedOff);
        }
        let encodings: Vec<(&Tlv, &Tlv)> = config
            .settings_of_type(top::UPSTREAM_AGGREGATE)
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
        let member = |flow: &ServiceFlow, name| {
            let rates = flow.rates;
            // A flow without a rate has the aggregate's.
            let bit_per_s = rates.sustained_bit_per_s.filter(|bit_per_s| *bit_per_s > 0);
            let mut sized = flow.clone();
            sized.rates.sustained_bit_per_s =
                Some(bit_per_s.map_or(sustained_bit_per_s, |own| own.min(sustained_bit_per_s)));
            let is_given = flow.buffer.is_some() || default_ms.is_some();
            let selected = is_given.then(|| modem.select(&sized, default_ms)).transpose();
            let buffer_bytes = selected.map_err(|error| NoLowLatency::Rejected(name, error))?;
            Ok(Member { rates, aqm: flow.aqm.clone().unwrap_or_default(), buffer_bytes })
        };
        Ok(Self {
            low_latency: member(fast, "low latency")?,
            classic: member(slow, "classic")?,
            proactive: proactive(tlv),
            coupling_tenths: inner.get(low_latency::COUPLING_FACTOR).filter(|tenths| *tenths < 255),
            weight: inner.get(low_latency::SCHEDULING_WEIGHT),
            protection: inner.number(low_latency::QUEUE_PROTECTION).map(|value| value != 0),
            critical_delay_us: inner.get(low_latency::CRITICAL_DELAY),
            critical_score_us: inner.get(low_latency::CRITICAL_SCORE),
            aging_exponent: inner.get(low_latency::AGING),
            codepoints: codepoints(config, fast.reference)?,
            sustained_bit_per_s,
            rates,
        })
    }
}

/// The upstream flows that belong to the aggregate `reference`.
fn members(config: &Config, reference: Option<u64>) -> Vec<(ServiceFlow, &Tlv)> {
    let flows = config
        .settings_of_type(top::UPSTREAM_FLOW)
        .filter_map(|tlv| Some((ServiceFlow::from_tlv(tlv)?, tlv)))
        .filter(|(flow, _)| reference.is_some() && flow.aggregate.map(u64::from) == reference);
    flows.collect()
}

fn is_without_aqm(flow: &ServiceFlow) -> bool {
    flow.aqm.as_ref().is_some_and(|aqm| aqm.disable == Some(true))
}

fn proactive(flow: &Tlv) -> Option<Proactive> {
    let bit_per_s = flow.number(flow::GUARANTEED_GRANT_RATE).filter(|bit_per_s| *bit_per_s > 0)?;
    let interval_us = flow.get(flow::GUARANTEED_GRANT_INTERVAL).filter(|us| *us > 0)?;
    Some(Proactive { interval_us, bit_per_s })
}

/// Returns the DSCPs that classifiers lead into the flow `reference`, for any ECN bits.
fn codepoints(config: &Config, reference: u16) -> Result<Vec<u8>, NoLowLatency> {
    let leads = |tlv: &&Tlv| tlv.number(classifier::FLOW_REFERENCE) == Some(reference.into());
    let ranges: Vec<TosRange> = config
        .settings_of_type(top::UPSTREAM_CLASSIFIER)
        .filter(leads)
        .flat_map(|tlv| TOS_PATHS.map(|[outer, inner]| tlv.child(outer)?.child(inner)?.as_bytes()))
        .filter_map(|range| range?.try_into().ok())
        .collect();
    if !matches_tos(&ranges, ECT1, ECN_BITS) {
        return Err(NoLowLatency::NoScalable);
    }
    let matches = |dscp: &u8| matches_tos(&ranges, dscp << 2, !ECN_BITS);
    let codepoints: Vec<u8> = (0..64).filter(matches).collect();
    if codepoints.is_empty() { Err(NoLowLatency::NoCodepoint) } else { Ok(codepoints) }
}

pub(crate) const ECN_BITS: u8 = 0b11;
pub(crate) const ECT1: u8 = 0b01;

/// Lowest, highest and mask of the DSCP and ECN byte, as in a classifier.
pub(crate) type TosRange = [u8; 3];

/// A classifier field that has a [`TosRange`].
pub(crate) const TOS_PATHS: [[u8; 2]; 2] =
    [[classifier::IPV4, header::IPV4_TOS], [classifier::IPV6, header::IPV6_TRAFFIC_CLASS]];

/// Returns whether a range whose mask includes some of `bits` contains `tos`.
pub(crate) fn matches_tos(ranges: &[TosRange], tos: u8, bits: u8) -> bool {
    ranges
        .iter()
        .any(|[low, high, mask]| mask & bits != 0 && (*low..=*high).contains(&(tos & mask)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::{BufferControl, Direction};
    use crate::recommend::{Choice, Service};

    const TIER: Service = Service {
        direction: Direction::Upstream,
        sustained_bit_per_s: 20_000_000,
        peak_bit_per_s: 24_000_000,
        burst_bytes: 40_960,
    };

    fn modem() -> Modem {
        Modem::new(1_024, 1 << 24).expect("a modem")
    }

    fn upstream(config: &Config) -> Result<LowLatencyUpstream, NoLowLatency> {
        LowLatencyUpstream::from_config(config, &modem())
    }

    #[test]
    fn a_recommended_file_reads_back() {
        let upstream = upstream(&TIER.configuration(Choice::LowLatency(10))).expect("an upstream");
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

    /// Returns the recommended file once for each top-level setting, with that setting changed or
    /// removed by `change`.
    fn changed(change: impl Fn(Tlv) -> Option<Tlv>) -> Config {
        let config = TIER.configuration(Choice::LowLatency(10));
        Config::new(config.tlvs().cloned().filter_map(change))
    }

    fn without(code: u8) -> Result<LowLatencyUpstream, NoLowLatency> {
        upstream(&changed(|tlv| (tlv.code != code).then_some(tlv)))
    }

    #[test]
    fn errors_name_missing_settings() {
        assert_eq!(without(top::UPSTREAM_AGGREGATE), Err(NoLowLatency::NoAggregate));
        assert_eq!(without(top::UPSTREAM_FLOW), Err(NoLowLatency::NoLowLatencyFlow));
        assert_eq!(without(top::UPSTREAM_CLASSIFIER), Err(NoLowLatency::NoScalable));
        let off = |code, value| {
            upstream(&changed(|tlv| {
                Some(if tlv.code == code { Tlv::u8(code, value) } else { tlv })
            }))
        };
        assert_eq!(off(top::LOW_LATENCY_DISABLE, 1), Err(NoLowLatency::TurnedOff));
        let plain = TIER.configuration(Choice::DocsisPie(10));
        assert_eq!(upstream(&plain), Err(NoLowLatency::NoAggregate));
        let without_flow = |number| {
            upstream(&changed(|tlv| {
                let reference = ServiceFlow::from_tlv(&tlv).map(|flow| flow.reference);
                (reference != Some(number)).then_some(tlv)
            }))
        };
        assert_eq!(without_flow(2), Err(NoLowLatency::NoLowLatencyFlow));
        assert_eq!(without_flow(1), Err(NoLowLatency::ClassicFlows(0)));
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
        let error = upstream(&impossible).expect_err("no modem has a gigabyte").to_string();
        assert!(error.contains("the modem rejects the classic flow's buffer"), "{error}");
    }
}
