//! The candidates in virtual time: bulk upload, call, page loads and probe, swept over settings,
//! round trips and congestion controls.

use std::path::{Path, PathBuf};

use anyhow::Context;
use underload_docsis::recommend::{Choice, Upstream, table_2};
use underload_record::metric;
use underload_record::schema::VariantSummary;
use underload_run::scenario::{Builder, Keys, Scenario};
use underload_run::{Destination, Settings};
use underload_terminal::exit::OrBadInput;

use super::choose::Outcome;
use crate::run;

#[derive(Debug)]
pub struct Sweep {
    pub upstream: Upstream,
    /// Base round trips, ascending.
    pub rtts_ms: Vec<f64>,
    pub candidates: Vec<(String, Choice)>,
    /// Number of simultaneous uploads.
    pub uploads: u32,
    /// Trials of every condition.
    pub repeats: u32,
}

/// NQB, the class of the low latency queue.
const LOW_LATENCY_DSCP: u8 = 45;
/// Congestion controls of the upload.
const CONGESTION_CONTROLS: [&str; 2] = ["cubic", "reno"];

/// Returns buffer candidates: 2^n and 1.5 x 2^n KiB that drain in 5 to 500 ms at the sustained
/// rate, rounded up to blocks of the modem and up to its limit, and the size of the
/// guideline's Table 2.
pub fn buffers(upstream: &Upstream, block: u64, limit: u64) -> Vec<(String, Choice)> {
    let table = u64::from(table_2(upstream.sustained_bit_per_s).1);
    let sizes = (0..22).flat_map(|power| [1024_u64 << power, 1536 << power]);
    let seconds = |bytes: &u64| *bytes as f64 * 8.0 / upstream.sustained_bit_per_s as f64;
    let mut sizes: Vec<u64> = sizes
        .filter(|bytes| (0.005..=0.5).contains(&seconds(bytes)))
        .map(|bytes| bytes.div_ceil(block) * block)
        .filter(|bytes| (4096..=limit).contains(bytes))
        .chain([table.min(limit)])
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes.into_iter().map(|bytes| (name_of(bytes), Choice::Buffer(bytes as u32))).collect()
}

/// Formats a size as `32KiB`, or in bytes if it is not a whole number of KiB.
pub fn name_of(bytes: u64) -> String {
    if bytes.is_multiple_of(1024) { format!("{}KiB", bytes / 1024) } else { format!("{bytes}B") }
}

/// Returns candidates with latency targets, and for comparison the buffer of Table 2 without AQM.
pub fn targets(upstream: &Upstream, choice: fn(u8) -> Choice) -> Vec<(String, Choice)> {
    let table = table_2(upstream.sustained_bit_per_s).1;
    let targets = [5, 10, 15, 20, 30, 50].map(|ms| (format!("target-{ms}ms"), choice(ms)));
    let plain = (name_of(u64::from(table)), Choice::Buffer(table));
    targets.into_iter().chain([plain]).collect()
}

impl Sweep {
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
        let variant = |scenario: Builder, (name, choice): &(String, Choice)| {
            scenario
                .variant(name, Keys::new().set("path.up_queue", queue_of(*choice, &self.upstream)))
        };
        self.candidates
            .iter()
            .fold(self.flows(scenario), variant)
            .sweep("path.rtt", self.rtts_ms.iter().map(|rtt| span(*rtt)).collect())
            .sweep("flow.upload.congestion_control", CONGESTION_CONTROLS.to_vec())
    }

    /// The token bucket of the tier, and the wait for requests and grants behind it.
    fn link(&self) -> String {
        let up = &self.upstream;
        format!(
            "docsis:rate={}bit,burst={}B,peak={}bit,map=2ms,grant=4ms",
            up.sustained_bit_per_s, up.burst_bytes, up.peak_bit_per_s
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
        if self.has_low_latency() {
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

    fn has_low_latency(&self) -> bool {
        self.candidates.iter().any(|(_, choice)| matches!(choice, Choice::LowLatency(_)))
    }

    /// Runs the scenario into `directory` and returns the outcome of each candidate.
    pub fn run(&self, scenario: &Builder, directory: PathBuf) -> anyhow::Result<Vec<Outcome>> {
        let settings = Settings {
            destination: Destination::Directory(directory),
            uses_cache: true,
            commit: run::COMMIT,
            ..Settings::default()
        };
        let scenario = scenario.finish().or_bad_input().context("the sweep")?;
        let record = run::record(&scenario, settings).context("the sweep")?;
        // Sweeps vary fastest: each candidate has its variants one after the other.
        let variants_each = self.rtts_ms.len() * CONGESTION_CONTROLS.len();
        let variants = record.summaries.chunks(variants_each);
        let pairs = self.candidates.iter().zip(variants);
        pairs.map(|((name, choice), variants)| outcome(name, *choice, variants)).collect()
    }
}

/// Returns the outcome of a candidate from its variants, averaged over the congestion controls.
fn outcome(name: &str, choice: Choice, variants: &[VariantSummary]) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome {
        name: name.to_owned(),
        choice,
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
            let needed = |wanted: &str| {
                let missing =
                    || format!("variant {} of the sweep has no {wanted}", variant.variant);
                metric(variant, wanted).with_context(missing)
            };
            let idle = needed("idle.rtt.p50")?;
            let added = |ms: f64| (ms - idle).max(0.0);
            outcome.added_p50_ms = outcome.added_p50_ms.max(added(needed("load.rtt.p50")?));
            outcome.added_p99_ms = outcome.added_p99_ms.max(added(needed("load.rtt.p99")?));
            if matches!(choice, Choice::LowLatency(_)) {
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

/// Formats a rate such as `10 Mbit/s`, with all its digits.
pub fn rate_name(bit_per_s: u64) -> String {
    format!("{} Mbit/s", bit_per_s as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use underload_run::scenario::Variant;

    use super::*;

    const TIER: Upstream = Upstream {
        sustained_bit_per_s: 10_000_000,
        peak_bit_per_s: 12_000_000,
        burst_bytes: 40_960,
    };

    fn sizes(bit_per_s: u64, limit: u64) -> Vec<u64> {
        let tier =
            Upstream { sustained_bit_per_s: bit_per_s, peak_bit_per_s: bit_per_s, burst_bytes: 0 };
        let sizes = buffers(&tier, 1024, limit).into_iter().map(|(_, choice)| match choice {
            Choice::Buffer(bytes) => u64::from(bytes) / 1024,
            other => panic!("{other:?}"),
        });
        sizes.collect()
    }

    #[test]
    fn buffers_span_5_to_500_milliseconds_and_include_table_2() {
        let all = sizes(10_000_000, 1 << 30);
        assert_eq!(all, [8, 12, 16, 24, 32, 48, 50, 64, 96, 128, 192, 256, 384, 512]);
        assert_eq!(sizes(1_000_000, 24 * 1024), [4, 6, 8, 12, 16, 24]);
    }

    #[test]
    fn the_sweep_is_a_scenario() {
        for candidates in [
            buffers(&TIER, 1024, 1 << 20),
            targets(&TIER, Choice::DocsisPie),
            targets(&TIER, Choice::LowLatency),
        ] {
            let variants = candidates.len() * 3 * 2;
            let sweep = Sweep {
                upstream: TIER,
                rtts_ms: vec![20.0, 48.99, 120.0],
                candidates,
                uploads: 1,
                repeats: 2,
            };
            let scenario = sweep.scenario(Path::new("sweep")).finish().expect("a scenario");
            assert_eq!(scenario.variants.len(), variants);
            // The order that `run` counts on.
            let name = format!("{}/48990us/reno", sweep.candidates[0].0);
            assert_eq!(scenario.variants[3].name, name);
        }
    }

    #[test]
    fn the_file_of_a_sweep_can_be_run_again_by_hand() {
        let sweep = Sweep {
            upstream: TIER,
            rtts_ms: vec![20.0, 48.99],
            candidates: targets(&TIER, Choice::LowLatency).split_off(5),
            uploads: 2,
            repeats: 3,
        };
        let builder = sweep.scenario(Path::new("sweep.toml"));
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
