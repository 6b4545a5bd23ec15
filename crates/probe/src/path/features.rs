//! Evidence as a vector of logarithms and shares.

use super::evidence::Evidence;

pub const FEATURES: usize = 18;

/// The model's input, in the order of [`FEATURE_NAMES`]; `None` for a feature that was not
/// measured.
pub type FeatureVector = [Option<f64>; FEATURES];

/// Names of the features in the model's file and in evidence.
pub const FEATURE_NAMES: [&str; FEATURES] = [
    "log round trip",
    "log rate",
    "log delay p50",
    "log delay p95 / p50",
    "log delay p5 / p50",
    "share at top",
    "log own flow / p50",
    "log p50 / DSCP 45",
    "log p50 / ECT(1)",
    "CE of ECT(0)",
    "CE of ECT(1)",
    "log swing period / round trip",
    "log loss share",
    "log overload delay / p99",
    "log overload spread",
    "log overload late / early",
    "overload lost",
    "overload lost more than its load",
];

/// Added to every delay before its ratio or logarithm is taken, ms, so that differences below half
/// a packet at 10 Mbit/s or within a host's noise hardly count.
const NOISE_MS: f64 = 0.5;

pub fn features(evidence: &Evidence) -> FeatureVector {
    let Evidence { tcp, .. } = evidence;
    let ratio = |a: f64, b: f64| ((a + NOISE_MS) / (b + NOISE_MS)).log10();
    // Classes may be separated under either load; the larger separation counts.
    let overload = evidence.overload;
    let separation = |under_tcp: Option<f64>, under_udp: Option<f64>| {
        let first = under_tcp.map(|class| ratio(tcp.p50_ms, class));
        let second = overload.zip(under_udp).map(|(udp, class)| ratio(udp.late_p50_ms, class));
        [first, second].into_iter().flatten().reduce(f64::max)
    };
    let swing = evidence.swing_period_ms.map(|period| (period / evidence.base_rtt_ms).log10());
    [
        Some(evidence.base_rtt_ms.max(0.1).log10()),
        Some(evidence.rate_bit_per_s.max(1.0).log10()),
        Some((tcp.p50_ms + NOISE_MS).log10()),
        Some(ratio(tcp.p95_ms, tcp.p50_ms)),
        Some(ratio(tcp.p5_ms, tcp.p50_ms)),
        Some(tcp.at_top),
        evidence.own_flow_ms.map(|own| ratio(own, tcp.p50_ms)),
        separation(evidence.nqb_ms, overload.and_then(|udp| udp.nqb_ms)),
        separation(evidence.ect1_ms, overload.and_then(|udp| udp.ect1_ms)),
        evidence.ce_of_ect0.map(f64::sqrt),
        evidence.ce_of_ect1.map(f64::sqrt),
        swing,
        evidence.loss_share.map(|share| (share + 1e-4).log10()),
        overload.map(|udp| ratio(udp.late_p50_ms, tcp.p99_ms)),
        overload.map(|udp| ratio(udp.late_p90_ms - udp.late_p10_ms, udp.late_p50_ms)),
        overload.map(|udp| ratio(udp.late_p50_ms, udp.early_ms)),
        overload.map(|udp| udp.lost),
        overload.and_then(|udp| Some(udp.lost - udp.load_lost?)),
    ]
}
