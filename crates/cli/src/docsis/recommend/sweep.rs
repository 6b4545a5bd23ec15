//! The candidates in virtual time: bulk upload, call, page loads and probe, swept over settings,
//! round trips and congestion controls.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, anyhow};
use underload_docsis::recommend::{Choice, Upstream, table_2};
use underload_record::metric;
use underload_record::schema::RunRecord;

use super::choose::Outcome;
use crate::run;

/// What is swept.
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
    /// Of every condition.
    pub repeats: u32,
}

/// Congestion controls of the upload: of most servers and of the rest.
const CONGESTION_CONTROLS: [&str; 2] = ["cubic", "reno"];

/// Buffer sizes worth trying: 2^n and 1.5 x 2^n KiB that take 5 to 500 ms at the sustained rate,
/// in blocks of the modem and up to what it has, and the one of the guideline's Table 2.
pub fn buffers(upstream: &Upstream, block: u64, limit: u64) -> Vec<(String, Choice)> {
    let table = u64::from(table_2(upstream.sustained_bps).1);
    let sizes = (0..22).flat_map(|power| [1024_u64 << power, 1536 << power]);
    let seconds = |bytes: &u64| *bytes as f64 * 8.0 / upstream.sustained_bps as f64;
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
    let table = table_2(upstream.sustained_bps).1;
    let targets = [5, 10, 15, 20, 30, 50].map(|ms| (format!("target-{ms}ms"), of(ms)));
    let plain = (name_of(u64::from(table)), Choice::Buffer(table));
    targets.into_iter().chain([plain]).collect()
}

impl Sweep {
    /// The scenario file.
    pub fn scenario(&self) -> String {
        let up = &self.upstream;
        let mut text = format!(
            "title = \"What to set for an upstream of {}\"\n\
             description = \"\"\"\n\
             {} TCP upload(s), a telephone call and page loads over base round trips up to {} ms: \
             the sweep behind a recommendation.\n\"\"\"\n\
             repeats = {}\nseed = 1\n\n[path]\nup = \"{}\"\nup_queue = \"fifo:limit=64KiB\"\n\n",
            rate_name(up.sustained_bps),
            self.uploads,
            self.rtts_ms.last().copied().unwrap_or_default(),
            self.repeats,
            self.link(),
        );
        text.push_str(
            "[phases]\nidle = \"500ms\"\nramp = \"8s\"\nload = \"30s\"\ndrain = \"500ms\"\n\n",
        );
        self.flows(&mut text);
        for (name, choice) in &self.candidates {
            let queue = queue_of(*choice);
            let _ = write!(text, "[[arm]]\nname = \"{name}\"\npath.up_queue = \"{queue}\"\n\n");
        }
        let rtts: Vec<String> =
            self.rtts_ms.iter().map(|rtt| format!("\"{}\"", span(*rtt))).collect();
        let controls = CONGESTION_CONTROLS.map(|control| format!("\"{control}\""));
        let _ = write!(
            text,
            "[[sweep]]\nkey = \"path.rtt\"\nvalues = [{}]\n\n\
             [[sweep]]\nkey = \"flow.upload.congestion_control\"\nvalues = [{}]\n",
            rtts.join(", "),
            controls.join(", "),
        );
        text
    }

    /// The token bucket of the tier, and the wait for requests and grants behind it.
    fn link(&self) -> String {
        let up = &self.upstream;
        format!(
            "docsis:rate={}bit,burst={}B,peak={}bit,map=2ms,grant=4ms",
            up.sustained_bps, up.burst_bytes, up.peak_bps
        )
    }

    /// Calls and a probe of the low latency class where a candidate has one.
    fn flows(&self, text: &mut String) {
        let two = self.has_low_latency();
        let (dscp, classes) = if two {
            ("dscp = 45\n", "[{ dscp = 0 }, { dscp = 45 }]")
        } else {
            ("", "[{ dscp = 0 }]")
        };
        let _ = write!(
            text,
            "[[flow]]\nname = \"upload\"\nkind = \"tcp\"\ndirection = \"up\"\n\
             congestion_control = \"cubic\"\ncount = {}\n\n\
             [[flow]]\nname = \"call\"\nkind = \"voip\"\njitter_buffer = \"adaptive\"\n{dscp}\n\
             [[flow]]\nname = \"page\"\nkind = \"web\"\nbrowser = \"chrome\"\nloads = 100\n\n\
             [[flow]]\nname = \"probe\"\nkind = \"probe\"\ninterval = \"20ms\"\n\
             classes = {classes}\n\n",
            self.uploads,
        );
    }

    fn has_low_latency(&self) -> bool {
        self.candidates.iter().any(|(_, choice)| matches!(choice, Choice::LowLatency(_)))
    }

    /// Runs the scenario file at `file` into `directory` and reads what came out.
    pub fn run(&self, file: &Path, directory: &Path) -> anyhow::Result<Vec<Outcome>> {
        let arguments = run::Arguments::simulation(&file.to_string_lossy(), directory);
        let record = run::record(&arguments).context("the sweep")?;
        self.candidates.iter().map(|(name, choice)| self.outcome(&record, name, *choice)).collect()
    }

    fn outcome(&self, record: &RunRecord, name: &str, choice: Choice) -> anyhow::Result<Outcome> {
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
        for rtt in &self.rtts_ms {
            let mut used = 0.0;
            for control in CONGESTION_CONTROLS {
                let arm = arm_name(name, *rtt, control);
                let number = |wanted: &str| {
                    let summary = record.summaries.iter().find(|summary| summary.arm == arm);
                    summary.and_then(|summary| metric(summary, wanted))
                };
                let needed = |wanted: &str| {
                    number(wanted).ok_or_else(|| anyhow!("arm {arm} of the sweep has no {wanted}"))
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
                pages.push(number("page/page_load"));
            }
            outcome.utilisation_percent.push(used);
        }
        outcome.mos = scores.iter().sum::<f64>() / scores.len() as f64;
        pages.sort_by(|a, b| a.unwrap_or(f64::INFINITY).total_cmp(&b.unwrap_or(f64::INFINITY)));
        outcome.page_load_s = pages[pages.len() / 2];
        Ok(outcome)
    }
}

/// The arm of a condition, as sweeps name them.
fn arm_name(candidate: &str, rtt: f64, control: &str) -> String {
    format!("{candidate}/{}/{control}", span(rtt))
}

/// The queue that a setting gives the modem. Classic buffers before an AQM are the standard's
/// default, 100 ms.
fn queue_of(choice: Choice) -> String {
    match choice {
        Choice::Buffer(bytes) => format!("fifo:limit={bytes}B"),
        Choice::DocsisPie(target) => format!("docsis-pie:target={target}ms"),
        Choice::LowLatency(target) => format!("docsis-lld:target={target}ms"),
    }
}

/// A time as a SPEC has it, to a microsecond.
fn span(ms: f64) -> String {
    let us = (ms * 1000.0).round() as u64;
    if us.is_multiple_of(1000) { format!("{}ms", us / 1000) } else { format!("{us}us") }
}

/// `10 Mbit/s`, with as many digits as it needs.
pub fn rate_name(bps: u64) -> String {
    format!("{} Mbit/s", bps as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use underload_run::scenario::Scenario;

    const TIER: Upstream =
        Upstream { sustained_bps: 10_000_000, peak_bps: 12_000_000, burst_bytes: 40_960 };

    fn sizes(bps: u64, limit: u64) -> Vec<u64> {
        let tier = Upstream { sustained_bps: bps, peak_bps: bps, burst_bytes: 0 };
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
            let scenario = Scenario::parse(&sweep.scenario(), "sweep").expect("a scenario");
            assert_eq!(scenario.arms.len(), arms);
            let name = arm_name(&sweep.candidates[0].0, 48.99, "reno");
            assert!(scenario.arms.iter().any(|arm| arm.name == name), "{name}");
        }
    }
}
