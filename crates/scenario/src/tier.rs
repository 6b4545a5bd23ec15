//! The candidates for a cable upstream in virtual time: bulk upload, call, page loads and probe,
//! swept over settings, round trips and congestion controls.

use std::path::Path;

use underload_docsis::modem::{GRANT_US, MAP_INTERVAL_US};
use underload_docsis::recommend::{Candidate, Choice, Outcome, Upstream, rate_name};
use underload_record::metric;
use underload_record::schema::{RunRecord, VariantSummary};

use crate::{Builder, Keys, Scenario};

/// A tier of upstream service, and what is tried on it.
#[derive(Debug)]
pub struct Tier {
    pub upstream: Upstream,
    /// Base round trips, ascending.
    pub rtts_ms: Vec<f64>,
    pub candidates: Vec<Candidate>,
    /// Number of simultaneous uploads.
    pub uploads: u32,
    /// Trials of every condition.
    pub repeats: u32,
}

/// A variant of the sweep without a metric that every variant has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("variant {variant} of the sweep has no {metric}")]
pub struct MissingMetric {
    pub variant: String,
    pub metric: &'static str,
}

/// NQB, the class of the low latency queue.
const LOW_LATENCY_DSCP: u8 = 45;
/// Congestion controls of the upload.
const CONGESTION_CONTROLS: [&str; 2] = ["cubic", "reno"];

impl Tier {
    /// Returns the scenario, named after `file`.
    pub fn scenario(&self, file: &Path) -> Builder {
        let up = &self.upstream;
        let title = format!("What to set for an upstream of {}", rate_name(up.sustained_bit_per_s));
        let description = format!(
            "{} TCP upload(s), a telephone call and page loads over base round trips up to {} ms: \
             the sweep behind a recommendation.\n",
            self.uploads,
            self.rtts_ms.last().copied().unwrap_or_default(),
        );
        let path = Keys::new().set("up", self.link()).set("up_queue", "fifo:limit=64KiB");
        let phases = [("idle", "500ms"), ("ramp", "8s"), ("load", "30s"), ("drain", "500ms")];
        let phases = phases.iter().fold(Keys::new(), |keys, (key, value)| keys.set(key, *value));
        let scenario = Scenario::build(&file.to_string_lossy())
            .set("title", title)
            .set("description", description)
            .set("repeats", self.repeats)
            .set("seed", 1)
            .path(path)
            .phases(phases);
        let variant = |scenario: Builder, candidate: &Candidate| {
            let queue = queue_of(candidate.choice, &self.upstream);
            scenario.variant(&candidate.name, Keys::new().set("path.up_queue", queue))
        };
        self.candidates
            .iter()
            .fold(self.flows(scenario), variant)
            .sweep("path.rtt", self.rtts_ms.iter().map(|rtt| span(*rtt)).collect())
            .sweep("flow.upload.congestion_control", CONGESTION_CONTROLS.to_vec())
    }

    /// The token bucket of the tier, and its requests and grants.
    fn link(&self) -> String {
        let up = &self.upstream;
        format!(
            "docsis:rate={}bit,burst={}B,peak={}bit,map={}ms,grant={}ms",
            up.sustained_bit_per_s,
            up.burst_bytes,
            up.peak_bit_per_s,
            MAP_INTERVAL_US / 1_000,
            GRANT_US / 1_000
        )
    }

    /// Upload, call, page loads and probe. If candidates have a low latency class, the call is in
    /// this class, and the probe measures both classes.
    fn flows(&self, scenario: Builder) -> Builder {
        let upload = Keys::new()
            .set("direction", "up")
            .set("congestion_control", "cubic")
            .set("count", self.uploads)
            // The call makes the trials differ.
            .set("start_jitter", "0s");
        let mut call = Keys::new().set("jitter_buffer", "adaptive");
        let mut classes = vec![Keys::new().set("dscp", 0)];
        if self.candidates.iter().any(|it| matches!(it.choice, Choice::LowLatency(_))) {
            call = call.set("dscp", LOW_LATENCY_DSCP);
            classes.push(Keys::new().set("dscp", LOW_LATENCY_DSCP));
        }
        let probe = Keys::new().set("interval", "20ms").set("classes", classes);
        scenario
            .flow("upload", "tcp", upload)
            .flow("call", "voip", call)
            .flow("page", "web", Keys::new().set("browser", "chrome").set("loads", 100))
            .flow("probe", "probe", probe)
    }

    /// Returns the outcome of each candidate from the record of the scenario.
    ///
    /// # Errors
    /// If a variant lacks one of the metrics that the outcomes consist of.
    pub fn outcomes(&self, record: &RunRecord) -> Result<Vec<Outcome>, MissingMetric> {
        // Sweeps vary fastest: each candidate has its variants one after the other.
        let variants_each = self.rtts_ms.len() * CONGESTION_CONTROLS.len();
        let variants = record.summaries.chunks(variants_each);
        let pairs = self.candidates.iter().zip(variants);
        pairs.map(|(candidate, variants)| outcome(candidate, variants)).collect()
    }
}

/// Returns the outcome of a candidate from its variants, averaged over the congestion controls.
fn outcome(candidate: &Candidate, variants: &[VariantSummary]) -> Result<Outcome, MissingMetric> {
    let mut outcome = Outcome {
        name: candidate.name.clone(),
        choice: candidate.choice,
        added_p50_ms: 0.0,
        added_p99_ms: 0.0,
        low_latency_added_p99_ms: None,
        utilisation_percent: Vec::new(),
        mos: 0.0,
        page_load_s: None,
    };
    let (mut pages, mut scores) = (Vec::new(), Vec::new());
    for variants in variants.chunks(CONGESTION_CONTROLS.len()) {
        let mut used = 0.0;
        for variant in variants {
            let needed = |wanted: &'static str| {
                let missing = || MissingMetric { variant: variant.variant.clone(), metric: wanted };
                metric(variant, wanted).ok_or_else(missing)
            };
            let idle = needed("idle.rtt.p50")?;
            let added = |ms: f64| (ms - idle).max(0.0);
            outcome.added_p50_ms = outcome.added_p50_ms.max(added(needed("load.rtt.p50")?));
            outcome.added_p99_ms = outcome.added_p99_ms.max(added(needed("load.rtt.p99")?));
            if matches!(candidate.choice, Choice::LowLatency(_)) {
                let own = added(needed("probe-dscp-45/load.rtt.p99")?);
                let worst = outcome.low_latency_added_p99_ms.unwrap_or(0.0).max(own);
                outcome.low_latency_added_p99_ms = Some(worst);
            }
            used += needed("utilisation.up")? / CONGESTION_CONTROLS.len() as f64;
            scores.push(needed("call/mos")?);
            pages.push(metric(variant, "page/page_load"));
        }
        outcome.utilisation_percent.push(used);
    }
    outcome.mos = scores.iter().sum::<f64>() / scores.len() as f64;
    pages.sort_by(|a, b| a.unwrap_or(f64::INFINITY).total_cmp(&b.unwrap_or(f64::INFINITY)));
    outcome.page_load_s = pages[pages.len() / 2];
    Ok(outcome)
}

/// Returns the modem's queue for a setting. DOCSIS-PIE alone has the standard's 100 ms of buffer.
fn queue_of(choice: Choice, upstream: &Upstream) -> String {
    match choice {
        Choice::Buffer(bytes) => format!("fifo:limit={bytes}B"),
        Choice::DocsisPie(target) => format!("docsis-pie:target={target}ms"),
        Choice::LowLatency(target) => {
            let buffer = upstream.classic_buffer_bytes(target);
            format!("docsis-lld:target={target}ms,classic-limit={buffer}B")
        }
    }
}

/// Formats a time for a SPEC, to a microsecond.
fn span(ms: f64) -> String {
    let us = (ms * 1000.0).round() as u64;
    if us.is_multiple_of(1000) { format!("{}ms", us / 1000) } else { format!("{us}us") }
}

#[cfg(test)]
mod tests {
    use underload_docsis::recommend::Aqm;

    use super::*;
    use crate::Variant;

    const UPSTREAM: Upstream = Upstream {
        sustained_bit_per_s: 10_000_000,
        peak_bit_per_s: 12_000_000,
        burst_bytes: 40_960,
    };

    #[test]
    fn every_aqm_makes_a_valid_scenario() {
        for aqm in Aqm::ALL {
            let candidates = UPSTREAM.candidates(aqm, 1024, 1 << 20);
            let variants = candidates.len() * 3 * 2;
            let tier = Tier {
                upstream: UPSTREAM,
                rtts_ms: vec![20.0, 48.99, 120.0],
                candidates,
                uploads: 1,
                repeats: 2,
            };
            let scenario = tier.scenario(Path::new("sweep")).finish().expect("a scenario");
            assert_eq!(scenario.variants.len(), variants);
            // The order that `outcomes` counts on.
            let name = format!("{}/48990us/reno", tier.candidates[0].name);
            assert_eq!(scenario.variants[3].name, name);
        }
    }

    #[test]
    fn the_file_of_a_sweep_repeats_its_run() {
        let tier = Tier {
            upstream: UPSTREAM,
            rtts_ms: vec![20.0, 48.99],
            candidates: UPSTREAM.candidates(Aqm::LowLatency, 1024, 1 << 20).split_off(5),
            uploads: 2,
            repeats: 3,
        };
        let builder = tier.scenario(Path::new("sweep.toml"));
        let text = builder.text();
        for part in [
            "2 TCP upload(s), a telephone call and page loads over base round trips up to 48.99 ms",
            "up = \"docsis:rate=10000000bit,burst=40960B,peak=12000000bit,map=2ms,grant=4ms\"",
            "path.up_queue = \"docsis-lld:target=50ms,classic-limit=187500B\"",
            "path.up_queue = \"fifo:limit=51200B\"",
            "values = [\"20ms\", \"48990us\"]",
            "dscp = 45\n",
            "count = 2\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let parsed = Scenario::parse(&text, "sweep.toml").expect("a scenario");
        let built = builder.finish().expect("a scenario");
        let variants = |scenario: &Scenario| {
            let variant = |variant: &Variant| (variant.name.clone(), variant.identity.clone());
            scenario.variants.iter().map(variant).collect::<Vec<_>>()
        };
        assert_eq!(variants(&built), variants(&parsed));
    }
}
