//! The candidates for one direction of a cable line in virtual time: bulk load in this direction,
//! call, page loads and probe, swept over settings, round trips and congestion controls.

use std::path::Path;

use underload_docsis::modem::{GRANT_US, MAP_INTERVAL_US};
use underload_docsis::qos::Direction;
use underload_docsis::recommend::{Candidate, Choice, Outcome, Service, rate_name};
use underload_record::metric;
use underload_record::schema::{self, Marking, RunRecord, VariantSummary};

use crate::{Builder, Keys, Scenario};

/// A tier of service, and the settings that are tried on it.
#[derive(Debug)]
pub struct Tier {
    pub service: Service,
    /// Base round trips, ascending.
    pub rtts_ms: Vec<f64>,
    pub candidates: Vec<Candidate>,
    /// Number of simultaneous uploads, or downloads for a downstream.
    pub loads: u32,
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

/// Congestion controls of the load.
const CONGESTION_CONTROLS: [&str; 2] = ["cubic", "reno"];

impl Tier {
    /// Returns the scenario, named after `file`.
    pub fn scenario(&self, file: &Path) -> Builder {
        let (way, load) = self.words();
        let rate = rate_name(self.service.sustained_bit_per_s);
        let title = format!("What to set {way}stream at {rate}");
        let description = format!(
            "{} TCP {load}(s), a telephone call and page loads over base round trips up to {} ms: \
             the sweep behind a recommendation.\n",
            self.loads,
            self.rtts_ms.last().copied().unwrap_or_default(),
        );
        let queue = format!("{way}_queue");
        let path = Keys::new().set(way, self.link()).set(&queue, "fifo:limit=64KiB");
        // The load begins once the burst is spent: the sustained rate decides.
        let ramp = format!("{:.0}s", 8.0 + self.service.burst_seconds().ceil());
        let phases = [("idle", "500ms"), ("ramp", &ramp), ("load", "30s"), ("drain", "500ms")];
        let phases = phases.iter().fold(Keys::new(), |keys, (key, value)| keys.set(key, *value));
        let scenario = Scenario::build(&file.to_string_lossy())
            .set("title", title)
            .set("description", description)
            .set("repeats", self.repeats)
            .set("seed", 1)
            .path(path)
            .phases(phases);
        let variant = |scenario: Builder, candidate: &Candidate| {
            let chosen = queue_of(candidate.choice, &self.service);
            scenario.variant(&candidate.name, Keys::new().set(&format!("path.{queue}"), chosen))
        };
        self.candidates
            .iter()
            .fold(self.flows(scenario), variant)
            .sweep("path.rtt", self.rtts_ms.iter().map(|rtt| span(*rtt)).collect())
            .sweep(&format!("flow.{load}.congestion_control"), CONGESTION_CONTROLS.to_vec())
    }

    /// Returns the direction in keys of a path, and the name of the load.
    fn words(&self) -> (&'static str, &'static str) {
        match self.service.direction {
            Direction::Upstream => (schema::Direction::Up.name(), "upload"),
            Direction::Downstream => (schema::Direction::Down.name(), "download"),
        }
    }

    /// The token bucket of the tier, and the requests and grants of a modem.
    fn link(&self) -> String {
        let Service { direction, sustained_bit_per_s, peak_bit_per_s, burst_bytes } = self.service;
        let bucket = format!(
            "docsis:rate={sustained_bit_per_s}bit,burst={burst_bytes}B,peak={peak_bit_per_s}bit"
        );
        let (map, grant) = (MAP_INTERVAL_US / 1_000, GRANT_US / 1_000);
        match direction {
            Direction::Upstream => format!("{bucket},map={map}ms,grant={grant}ms"),
            Direction::Downstream => bucket,
        }
    }

    /// Load, call, page loads and probe. If candidates have a low latency class, the call is in
    /// this class, and the probe measures both classes.
    fn flows(&self, scenario: Builder) -> Builder {
        let (way, load) = self.words();
        let bulk = Keys::new()
            .set("direction", way)
            .set("congestion_control", "cubic")
            .set("count", self.loads)
            // The call makes the trials differ.
            .set("start_jitter", "0s");
        let mut call = Keys::new().set("jitter_buffer", "adaptive");
        let mut classes = vec![Keys::new().set("dscp", 0)];
        if self.candidates.iter().any(|it| matches!(it.choice, Choice::LowLatency(_))) {
            call = call.set("dscp", Marking::NQB);
            classes.push(Keys::new().set("dscp", Marking::NQB));
        }
        let probe = Keys::new().set("interval", "20ms").set("classes", classes);
        scenario
            .flow(load, "tcp", bulk)
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
        let used = ["utilisation.up", "utilisation.down"][self.service.direction as usize];
        let pairs = self.candidates.iter().zip(variants);
        pairs.map(|(candidate, variants)| outcome(candidate, variants, used)).collect()
    }
}

/// Returns the outcome of a candidate from its variants, averaged over the congestion controls. The
/// metric `used` is the link's utilisation.
fn outcome(
    candidate: &Candidate,
    variants: &[VariantSummary],
    used: &'static str,
) -> Result<Outcome, MissingMetric> {
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
        let mut utilisation = 0.0;
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
            utilisation += needed(used)? / CONGESTION_CONTROLS.len() as f64;
            scores.push(needed("call/mos")?);
            pages.push(metric(variant, "page/page_load"));
        }
        outcome.utilisation_percent.push(utilisation);
    }
    outcome.mos = scores.iter().sum::<f64>() / scores.len() as f64;
    pages.sort_by(|a, b| a.unwrap_or(f64::INFINITY).total_cmp(&b.unwrap_or(f64::INFINITY)));
    outcome.page_load_s = pages[pages.len() / 2];
    Ok(outcome)
}

/// Returns the modem's queue for a setting. DOCSIS-PIE alone has the standard's 100 ms of buffer.
fn queue_of(choice: Choice, service: &Service) -> String {
    match choice {
        Choice::Buffer(bytes) => format!("fifo:limit={bytes}B"),
        Choice::DocsisPie(target) => format!("docsis-pie:target={target}ms"),
        Choice::LowLatency(target) => {
            let buffer = service.classic_buffer_bytes(target);
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

    const UPSTREAM: Service = Service {
        direction: Direction::Upstream,
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
                service: UPSTREAM,
                rtts_ms: vec![20.0, 48.99, 120.0],
                candidates,
                loads: 1,
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
            service: UPSTREAM,
            rtts_ms: vec![20.0, 48.99],
            candidates: UPSTREAM.candidates(Aqm::LowLatency, 1024, 1 << 20).split_off(5),
            loads: 2,
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
