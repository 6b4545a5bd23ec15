//! How well a line suits a call, a game, a web page and a video, by the rows of
//! [`SCALE`](super::SCALE).
//!
//! - **Call**: half the idle round trip plus the latency that the load adds, all of it one way.
//! - **Game**: the round trip under load.
//! - **Web page**: a round trip inside the load; underload takes a page for 10 of them (name,
//!   handshakes and four levels of files: our assumption).
//! - Call and game, by lost packets, too.
//! - **Video stream**: rates that Netflix publishes for 4K, 1080p and 720p; a stream buffers
//!   seconds, so delay hardly matters.

use serde::{Deserialize, Serialize};

use super::{Band, LoadedStep, StepJudgement, ms};
use crate::schema::VariantMetric;

/// Delay in the devices at both ends of a call: capture, packets of 20 ms, receive buffer.
const DEVICES_NS: i64 = 50_000_000;
/// Round trips that a page takes.
const PAGE_ROUND_TRIPS: i64 = 10;
/// Streams with the rate that each needs, Mbit/s; the highest rate first.
const STREAMS: [(Stream, f64); 3] =
    [(Stream::Uhd4k, 15.0), (Stream::Hd1080, 5.0), (Stream::Hd720, 3.0)];

crate::named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Stream {
        #[serde(rename = "4K")]
        Uhd4k = "4K",
        #[serde(rename = "1080p")]
        Hd1080 = "1080p",
        #[serde(rename = "720p")]
        Hd720 = "720p",
    }
}

crate::named! {
    /// How well a line suits a use, best first.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Suitability {
        Good = "good",
        Fair = "fair",
        Poor = "poor",
    }
}

crate::named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Use {
        #[serde(rename = "call")]
        Call = "call",
        #[serde(rename = "game")]
        Game = "game",
        #[serde(rename = "web page")]
        WebPage = "web page",
        #[serde(rename = "video stream")]
        VideoStream = "video stream",
    }
}

/// How well a line suits a use while others load it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UseJudgement {
    pub name: Use,
    pub suits: Suitability,
    /// The step that decides.
    pub step: String,
    /// The delay of a call from mouth to ear, the round trip of a game, or the load time of a page.
    /// `None` if too few probes came back, and for a stream.
    pub delay_ns: Option<i64>,
    /// As `delay_ns`, without load.
    pub idle_ns: Option<i64>,
    /// Lost packets, percent, if they make the use worse than good.
    pub lost_percent: Option<f64>,
    /// The rate down of a stream, Mbit/s.
    pub mbit_s: Option<f64>,
    /// The best stream that the rate carries; `None` for other uses, or if it carries none.
    pub stream: Option<Stream>,
    /// Whether the load filled the line.
    pub line_full: bool,
}

type Step<'a> = (&'a LoadedStep, &'a StepJudgement);

/// Judges each use for which numbers exist, by the worst valid step.
pub(super) fn judge(steps: &[LoadedStep], judged: &[StepJudgement]) -> Vec<UseJudgement> {
    let worst = |judge: fn(Step<'_>) -> Option<UseJudgement>| {
        let of_steps = steps.iter().zip(judged).filter_map(judge);
        of_steps.max_by_key(|it| (it.suits, it.delay_ns.unwrap_or(i64::MAX)))
    };
    [worst(call), worst(game), worst(page), video(steps)].into_iter().flatten().collect()
}

fn call((step, judged): Step<'_>) -> Option<UseJudgement> {
    let idle_ns = step.idle_p50_ns? / 2;
    let delay_ns = judged.beside?.added_ns.map(|added_ns| idle_ns.saturating_add(added_ns.max(0)));
    let it = interactive(step, Use::Call, delay_ns);
    let whole = |ns: i64| ns.saturating_add(DEVICES_NS);
    Some(UseJudgement { delay_ns: delay_ns.map(whole), idle_ns: Some(whole(idle_ns)), ..it })
}

fn game((step, judged): Step<'_>) -> Option<UseJudgement> {
    judged.beside?;
    Some(interactive(step, Use::Game, step.believed(step.answered_beside())?.ns))
}

/// Judges a page that is loaded over connections as busy as those of the load.
fn page((step, _): Step<'_>) -> Option<UseJudgement> {
    let inside_ns = step.believed(step.inside)?.ns;
    let whole = |ns: i64| ns.saturating_mul(PAGE_ROUND_TRIPS);
    Some(UseJudgement {
        suits: Band::of_delay(ms(inside_ns)).page,
        delay_ns: inside_ns.map(whole),
        idle_ns: step.idle_p50_ns.map(whole),
        lost_percent: None,
        ..interactive(step, Use::WebPage, inside_ns)
    })
}

/// The ratings of ITU-T G.107, Annex B, as MOS: 80 satisfies users, 70 does not satisfy some.
const MOS: (f64, f64) = (4.03, 3.60);

/// Returns how well the number of a simulated application suits its use: the delay of a video call
/// from camera to screen, the round trip of a game, the load of a page, and the quality of a call.
pub fn suitability(metric: &VariantMetric) -> Option<Suitability> {
    let value = metric.of_variant();
    Some(match metric.name.as_str() {
        "glass_to_glass_p99" => Band::of_delay(value - ms(Some(DEVICES_NS))).interactive,
        "round_trip_p99" => Band::of_delay(value).interactive,
        "page_load" => Band::of_delay(value * 1_000.0 / PAGE_ROUND_TRIPS as f64).page,
        "mos" if value >= MOS.0 => Suitability::Good,
        "mos" if value >= MOS.1 => Suitability::Fair,
        "mos" => Suitability::Poor,
        _ => return None,
    })
}

fn interactive(step: &LoadedStep, name: Use, delay_ns: Option<i64>) -> UseJudgement {
    let by_loss = Band::of_loss(step.lost_percent).interactive;
    UseJudgement {
        name,
        suits: Band::of_delay(ms(delay_ns)).interactive.max(by_loss),
        step: step.step.clone(),
        delay_ns,
        idle_ns: step.idle_p50_ns,
        lost_percent: (by_loss > Suitability::Good).then_some(step.lost_percent),
        mbit_s: None,
        stream: None,
        line_full: !step.is_held_back(),
    }
}

/// Judges video by the highest rate down. A load that did not fill the line proves what the line
/// carries, not what it cannot carry.
fn video(steps: &[LoadedStep]) -> Option<UseJudgement> {
    let rates = steps.iter().filter(|step| step.valid);
    let rates = rates.filter_map(|step| Some((step, step.mbit_s.down?)));
    let (step, rate) = rates.reduce(|a, b| if b.1 > a.1 { b } else { a })?;
    let stream = STREAMS.into_iter().find(|(_, needed)| rate >= *needed).map(|(stream, _)| stream);
    let suits = match stream {
        Some(Stream::Uhd4k | Stream::Hd1080) => Suitability::Good,
        Some(Stream::Hd720) => Suitability::Fair,
        None => Suitability::Poor,
    };
    let is_held_back = step.held_back.down;
    (suits == Suitability::Good || !is_held_back).then(|| UseJudgement {
        name: Use::VideoStream,
        suits,
        step: step.step.clone(),
        delay_ns: None,
        idle_ns: None,
        lost_percent: None,
        mbit_s: Some(rate),
        stream,
        line_full: !is_held_back,
    })
}
