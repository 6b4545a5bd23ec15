//! What one step of a measurement of a real line found.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CeAlarm, Phase, Quantile};

/// What one step of a measurement found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Finding {
    /// Its name, that of the arm: `down`, `up`, `loaded`.
    pub step: String,
    /// What it does, in a few words.
    pub label: String,
    /// Whether the machine was punctual enough for the numbers to be the line's.
    pub valid: bool,
    /// The reasons why the step is invalid; empty if it is valid.
    pub invalid_because: Vec<String>,
    /// Latency of each class, idle and under load.
    pub latencies: Vec<ClassLatency>,
    /// Payload in the load phase, Mbit/s, up; `None` where nothing loaded that way.
    pub goodput_up_mbit_s: Option<f64>,
    /// Goodput down, Mbit/s.
    pub goodput_down_mbit_s: Option<f64>,
    /// Goodput up as a share of the rate that the line is sold with, percent.
    pub tier_up_percent: Option<f64>,
    /// Goodput down as a share of the rate that the line is sold with, percent.
    pub tier_down_percent: Option<f64>,
    /// What a plain buffer in front of the bottleneck holds, KiB: the delay that the load added at
    /// p99, when such a buffer is full, at the rate measured. `None` where the load went both ways,
    /// added next to nothing or did not fill the line, or there are too few samples for a p99.
    pub buffer_kib: Option<f64>,
    /// Round trips per minute under load.
    pub rpm: Option<Rpm>,
    /// What happened to the marking of each class on its way.
    pub markings: Vec<MarkingFate>,
    /// How far the server's clock was ahead, ms; one-way delays assume this.
    pub clock_offset_ms: Option<f64>,
    /// Within this of the truth, ms, as far as one can know.
    pub clock_error_ms: Option<f64>,
    /// Flows with too many congestion marks.
    pub ce_alarms: Vec<CeAlarm>,
    /// The server's rate limit, not the line, held up the load that way.
    pub throttled_up: bool,
    /// Whether the server held the flows down to their granted rate.
    pub throttled_down: bool,
    /// The load up had a rate of its own (`--udp`) and next to all of it arrived: the line may
    /// carry more.
    #[serde(default)]
    pub capped_up: bool,
    /// The same of the load down.
    #[serde(default)]
    pub capped_down: bool,
    /// What a server of another kind told instead of probes; `None` of `underload serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<Box<ForeignTest>>,
}

/// A test against a server that answers no probes of ours. What such a server cannot tell is absent
/// from the finding: one-way delays, markings, percentiles of a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForeignTest {
    /// The test's name: `ndt7`, `responsiveness`.
    pub test: String,
    /// Smallest round trip of the loading connection, its handshake among them, ms: about what the
    /// line takes without load. `None` where the test does not tell it.
    pub smallest_ms: Option<f64>,
    /// Round trips under load by where they come from; what is nearest to a packet's first.
    pub loaded: Vec<Readings>,
    /// What else it told, as ends of sentences.
    pub told: Vec<String>,
    /// What it cannot tell, as a sentence's end.
    pub cannot_tell: String,
}

/// Round trips under load that were not taken on a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Readings {
    /// Whose: `smoothed readings of the loading connection`.
    pub of: String,
    /// How many, at least 1.
    pub count: u64,
    /// Median, ms.
    pub p50_ms: f64,
    /// 90th percentile, ms.
    pub p90_ms: f64,
    /// Largest, ms.
    pub max_ms: f64,
}

impl Readings {
    /// Of values in ms, nearest rank; `None` where there is none that is a number.
    pub fn of(of: &str, values_ms: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values_ms.into_iter().filter(|it| it.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let rank = |percent: usize| sorted.get((sorted.len() * percent).div_ceil(100).max(1) - 1);
        Some(Self {
            of: of.to_owned(),
            count: sorted.len() as u64,
            p50_ms: *rank(50)?,
            p90_ms: *rank(90)?,
            max_ms: *sorted.last()?,
        })
    }
}

impl ForeignTest {
    /// What the load adds to the median, ms, above the smallest round trip.
    pub fn added_ms(&self) -> Option<f64> {
        Some((self.loaded.first()?.p50_ms - self.smallest_ms?).max(0.0))
    }
}

/// Latency of one class in one phase, round trip.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassLatency {
    /// Name of the probe.
    pub probe: String,
    /// Idle or load.
    pub phase: Phase,
    /// From the answer to the one before, not on a schedule: a second view, never a headline.
    pub closed_loop: bool,
    /// Length of the window, s.
    pub window_s: f64,
    /// Probes sent.
    pub sent: u64,
    /// Share of these that was lost, percent.
    pub lost_percent: f64,
    /// Median, ms; `None` when nothing came back.
    pub p50_ms: Option<f64>,
    /// 90th percentile, ms; `None` below 50 samples, which could not tell it.
    pub p90_ms: Option<f64>,
    /// 95th percentile, ms; `None` below 100 samples.
    #[serde(default)]
    pub p95_ms: Option<f64>,
    /// 99th percentile, ms; `None` below 500 samples.
    pub p99_ms: Option<f64>,
    /// 99.9th percentile, ms; `None` below 5000 samples.
    pub p999_ms: Option<f64>,
    /// Largest, ms.
    pub max_ms: Option<f64>,
    /// The percentiles of all probes sent, ms, of which a lost one is longer than every answer:
    /// `None` where the percentile is a lost probe. Those that have too few samples are left out,
    /// and all of them where no probe was lost, since those above are the same.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub of_sent_ms: BTreeMap<Quantile, Option<f64>>,
    /// The same for each direction: 50th and 99th percentile above the smallest, ms, which needs no
    /// common clock (packet delay variation, RFC 5481). `None` below 500 samples.
    pub up_variation_ms: Option<[f64; 2]>,
    /// One-way delay variation down, ms.
    pub down_variation_ms: Option<[f64; 2]>,
}

/// Round trips per minute, each value with its formula.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rpm {
    /// draft-ietf-ippm-responsiveness-09.
    pub draft_09: f64,
    /// As goresponsiveness prints it for 90th percentiles.
    pub goresponsiveness_p90: f64,
    /// Responsiveness as goresponsiveness prints it for trimmed means, round trips per minute.
    pub goresponsiveness_trimmed_mean: f64,
    /// From UDP probes and TCP's own round trips instead of HTTP exchanges.
    pub approximated_from_packets: bool,
}

/// What happened to a class's marking.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MarkingFate {
    /// Name of the probe.
    pub probe: String,
    /// The marking as sent, for example `dscp 45 ect1`.
    pub sent: String,
    /// Answers that told.
    pub answers: u64,
    /// Arrived at the server unchanged, percent.
    pub up_kept_percent: f64,
    /// Arrived there with CE, percent.
    pub up_ce_percent: f64,
    /// The marking that arrived most often upstream, if it is another one.
    pub up_became: Option<String>,
    /// The answers came back with the same marking, percent; `None` where the server may not send
    /// it.
    pub down_kept_percent: Option<f64>,
    /// Answers came back with CE, percent.
    pub down_ce_percent: f64,
    /// What came back most often, if it is something else.
    pub down_became: Option<String>,
}

impl Finding {
    /// The headline: the first open-loop probe in this phase.
    pub fn headline(&self, phase: Phase) -> Option<&ClassLatency> {
        self.latencies.iter().find(|latency| !latency.closed_loop && latency.phase == phase)
    }

    /// Whether something else than the line limited the load up: a full line may do worse.
    pub fn is_held_back_up(&self) -> bool {
        self.throttled_up || self.capped_up
    }

    /// Whether something else than the line limited the load down.
    pub fn is_held_back_down(&self) -> bool {
        self.throttled_down || self.capped_down
    }

    /// Whether the load left room on the line, whichever way it went.
    pub fn is_held_back(&self) -> bool {
        self.is_held_back_up() || self.is_held_back_down()
    }

    /// Returns the worst latency that the load adds, ms: the highest known percentile of all probes
    /// sent under load, minus the idle median. Infinite if that percentile is a lost probe; `None`
    /// if either of the two is unknown.
    pub fn added_ms(&self) -> Option<f64> {
        let (idle, load) = (self.headline(Phase::Idle)?, self.headline(Phase::Load)?);
        Some(load.judged_ms()?.1 - idle.p50_ms?)
    }
}

impl ClassLatency {
    /// The highest percentile above the median that is known, and its value, ms.
    pub fn highest_ms(&self) -> Option<(Quantile, f64)> {
        let known = [self.p99_ms, self.p95_ms, self.p90_ms];
        let mut pairs = Quantile::HIGHEST_FIRST.into_iter().zip(known);
        pairs.find_map(|(quantile, value)| Some((quantile, value?)))
    }

    /// Returns the percentile of [`Self::highest_ms`] and its value over all probes sent, ms, by
    /// which a step is graded. Infinite if the percentile is a lost probe.
    pub fn judged_ms(&self) -> Option<(Quantile, f64)> {
        let (quantile, answered_ms) = self.highest_ms()?;
        let known = self.of_sent_ms.get(&quantile);
        let judged_ms = known.map_or(answered_ms, |of_sent| of_sent.unwrap_or(f64::INFINITY));
        Some((quantile, judged_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_of_numbers_alone() {
        assert_eq!(Readings::of("x", [f64::NAN, f64::INFINITY]), None);
        let readings = Readings::of("x", [3.0, 1.0, f64::NAN, 2.0, 4.0]).unwrap();
        assert_eq!((readings.count, readings.p50_ms), (4, 2.0));
        assert_eq!((readings.p90_ms, readings.max_ms), (4.0, 4.0));
        let one = Readings::of("x", [7.0]).unwrap();
        assert_eq!((one.p50_ms, one.p90_ms, one.max_ms), (7.0, 7.0, 7.0));
    }
}
