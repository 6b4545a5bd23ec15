//! The candidates in virtual time: bulk upload, call, page loads and probe, swept over settings,
//! round trips and congestion controls.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use underload_docsis::recommend::{Choice, Upstream, table_2};
use underload_record::metric;
use underload_record::schema::ArmSummary;
use underload_run::scenario::{Builder, Keys, Scenario};
use underload_run::{Destination, Settings};
use underload_terminal::exit::OrBadInput;

use super::choose::Outcome;
use crate::run;

/// Rates, round trips and candidates that are swept.
#[derive(Debug)]
pub struct Sweep {
    /// The tier.
    pub upstream: Upstream,
    /// Base round trips, ms, ascending.
    pub rtts_ms: Vec<f64>,
    /// Settings by name.
    pub candidates: Vec<(String, Choice)>,
    /// Uploads side by side.
    pub uploads: u32,
    /// Number of trials of every condition.
    pub repeats: u32,
}

/// The class of packets that low latency queues take.
const LOW_LATENCY_DSCP: u8 = 45;
/// Congestion controls of the upload: of most servers and of the rest.
const CONGESTION_CONTROLS: [&str; 2] = ["cubic", "reno"];

/// Buffer sizes worth trying: 2^n and 1.5 x 2^n KiB that take 5 to 500 ms at the sustained rate,
/// in blocks of the modem and up to what it has, and the one of the guideline's Table 2.
pub fn buffers(upstream: &Upstream, block: u64, limit: u64) -> Vec<(String, Choice)> {
    let table = u64::from(table_2(upstream.sustained_bit_per_s).1);
    let sizes = (0..22).flat_map(|power| [1024_u64 << power, 1536 << power]);
    let seconds = |bytes: &u64| *bytes as f64 * 8.0 / upstream.sustained_bit_per_s as f64;
    let worth = sizes.filter(|bytes| (0.005..=0.5).contains(&seconds(bytes)));
    let mut sizes: Vec<u64> = worth
        .map(|bytes| bytes.div_ceil(block) * block)
        .filter(|bytes| (4096..=limit).contains(bytes))
        .chain([table.min(limit)])
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes.into_iter().map(|bytes| (name_of(bytes), Choice::Buffer(bytes as u32))).collect()
}

/// `32KiB`, or bytes where it is no whole number of them.
pub fn name_of(bytes: u64) -> String {
    if bytes.is_multiple_of(1024) { format!("{}KiB", bytes / 1024) } else { format!("{bytes}B") }
}

/// Latency targets worth trying, ms, and for comparison the buffer of Table 2 without AQM.
pub fn targets(upstream: &Upstream, of: fn(u8) -> Choice) -> Vec<(String, Choice)> {
    let table = table_2(upstream.sustained_bit_per_s).1;
    let targets = [5, 10, 15, 20, 30, 50].map(|ms| (format!("target-{ms}ms"), of(ms)));
    let plain = (name_of(u64::from(table)), Choice::Buffer(table));
    targets.into_iter().chain([plain]).collect()
}

impl Sweep {
    /// What is run, under the name of the file that will hold it.
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
        let arm = |scenario: Builder, (name, choice): &(String, Choice)| {
            scenario.arm(name, Keys::new().set("path.up_queue", queue_of(*choice, &self.upstream)))
        };
        self.candidates
            .iter()
            .fold(self.flows(scenario), arm)
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

    /// Calls and a probe of the low latency class where a candidate has one.
    fn flows(&self, scenario: Builder) -> Builder {
        let upload = Keys::new()
            .set("direction", "up")
            .set("congestion_control", "cubic")
            .set("count", self.uploads);
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

    /// Runs the scenario into `directory` and reads what came out.
    pub fn run(&self, scenario: &Builder, directory: PathBuf) -> anyhow::Result<Vec<Outcome>> {
        let settings = Settings {
            destination: Destination::Directory(directory),
            uses_cache: true,
            commit: run::COMMIT,
            ..Settings::default()
        };
        let scenario = scenario.finish().or_bad_input().context("the sweep")?;
        let record = run::record(&scenario, settings).context("the sweep")?;
        // Sweeps vary fastest: each candidate has its arms one after the other.
        let arms_each = self.rtts_ms.len() * CONGESTION_CONTROLS.len();
        let arms = record.summaries.chunks(arms_each);
        let pairs = self.candidates.iter().zip(arms);
        pairs.map(|((name, choice), arms)| outcome(name, *choice, arms)).collect()
    }
}

/// What came out of a candidate's arms, the congestion controls of each round trip together.
fn outcome(name: &str, choice: Choice, arms: &[ArmSummary]) -> anyhow::Result<Outcome> {
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
    for arms in arms.chunks(CONGESTION_CONTROLS.len()) {
        let mut used = 0.0;
        for arm in arms {
            let needed = |wanted: &str| {
                let name = &arm.arm;
                metric(arm, wanted)
                    .ok_or_else(|| anyhow!("arm {name} of the sweep has no {wanted}"))
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
            pages.push(metric(arm, "page/page_load"));
        }
        outcome.utilisation_percent.push(used);
    }
    outcome.mos = scores.iter().sum::<f64>() / scores.len() as f64;
    pages.sort_by(|a, b| a.unwrap_or(f64::INFINITY).total_cmp(&b.unwrap_or(f64::INFINITY)));
    outcome.page_load_s = pages[pages.len() / 2];
    Ok(outcome)
}

/// The queue that a setting gives the modem. The buffer before DOCSIS-PIE alone is the standard's
/// default, 100 ms.
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

/// A time as a SPEC has it, to a microsecond.
fn span(ms: f64) -> String {
    let us = (ms * 1000.0).round() as u64;
    if us.is_multiple_of(1000) { format!("{}ms", us / 1000) } else { format!("{us}us") }
}

/// `10 Mbit/s`, with as many digits as it needs.
pub fn rate_name(bit_per_s: u64) -> String {
    format!("{} Mbit/s", bit_per_s as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use underload_run::scenario::Arm;

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
            let arms = candidates.len() * 3 * 2;
            let sweep = Sweep {
                upstream: TIER,
                rtts_ms: vec![20.0, 48.99, 120.0],
                candidates,
                uploads: 1,
                repeats: 2,
            };
            let scenario = sweep.scenario(Path::new("sweep")).finish().expect("a scenario");
            assert_eq!(scenario.arms.len(), arms);
            // The order that `run` counts on.
            let name = format!("{}/48990us/reno", sweep.candidates[0].0);
            assert_eq!(scenario.arms[3].name, name);
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
        let description = "2 TCP upload(s), a telephone call and page loads over base round trips \
                           up to 48.99 ms: the sweep behind a recommendation.";
        let file = FILE.replace("DESCRIPTION", description);
        assert_eq!(sweep.scenario(Path::new("sweep.toml")).text(), file);
        let read = Scenario::parse(&file, "sweep.toml").expect("a scenario");
        let built = sweep.scenario(Path::new("sweep.toml")).finish().expect("a scenario");
        let contents = |scenario: &Scenario| {
            let of = |arm: &Arm| (arm.name.clone(), arm.identity().to_owned());
            scenario.arms.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(contents(&built), contents(&read));
    }

    const FILE: &str = r#"title = "What to set for an upstream of 10 Mbit/s"
description = """
DESCRIPTION
"""
repeats = 3
seed = 1

[path]
up = "docsis:rate=10000000bit,burst=40960B,peak=12000000bit,map=2ms,grant=4ms"
up_queue = "fifo:limit=64KiB"

[phases]
idle = "500ms"
ramp = "8s"
load = "30s"
drain = "500ms"

[[flow]]
name = "upload"
kind = "tcp"
direction = "up"
congestion_control = "cubic"
count = 2

[[flow]]
name = "call"
kind = "voip"
jitter_buffer = "adaptive"
dscp = 45

[[flow]]
name = "page"
kind = "web"
browser = "chrome"
loads = 100

[[flow]]
name = "probe"
kind = "probe"
interval = "20ms"
classes = [{ dscp = 0 }, { dscp = 45 }]

[[arm]]
name = "target-50ms"
path.up_queue = "docsis-lld:target=50ms,classic-limit=187500B"

[[arm]]
name = "50KiB"
path.up_queue = "fifo:limit=51200B"

[[sweep]]
key = "path.rtt"
values = ["20ms", "48990us"]

[[sweep]]
key = "flow.upload.congestion_control"
values = ["cubic", "reno"]
"#;
}
