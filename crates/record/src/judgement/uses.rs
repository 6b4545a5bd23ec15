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

use super::{Band, LoadedStep, StepJudgement};

/// Delay in the devices at both ends of a call, ms: capture, packets of 20 ms, receive buffer.
const DEVICES_MS: f64 = 50.0;
/// Round trips that a page takes.
const PAGE_ROUND_TRIPS: f64 = 10.0;
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
    /// The delay of a call from mouth to ear, the round trip of a game, or the load time of a page,
    /// ms. `None` if too few probes came back, and for a stream.
    pub delay_ms: Option<f64>,
    /// As `delay_ms`, without load.
    pub idle_ms: Option<f64>,
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
        let delay = |it: &UseJudgement| it.delay_ms.unwrap_or(f64::INFINITY);
        let of_steps = steps.iter().zip(judged).filter_map(judge);
        of_steps.max_by(|a, b| a.suits.cmp(&b.suits).then(delay(a).total_cmp(&delay(b))))
    };
    [worst(call), worst(game), worst(page), video(steps)].into_iter().flatten().collect()
}

fn call((step, judged): Step<'_>) -> Option<UseJudgement> {
    let idle_ms = step.idle_p50_ms? / 2.0;
    let ms = idle_ms + judged.beside?.ms().max(0.0);
    let it = interactive(step, Use::Call, ms);
    let whole = |ms: f64| Some(ms + DEVICES_MS).filter(|ms| ms.is_finite());
    Some(UseJudgement { delay_ms: whole(ms), idle_ms: whole(idle_ms), ..it })
}

fn game((step, judged): Step<'_>) -> Option<UseJudgement> {
    judged.beside?;
    Some(interactive(step, Use::Game, step.high_ms(step.answered_beside())?))
}

/// Judges a page that is loaded over connections as busy as those of the load.
fn page((step, _): Step<'_>) -> Option<UseJudgement> {
    let ms = step.high_ms(step.inside)?;
    Some(UseJudgement {
        suits: Band::of_delay(ms).page,
        delay_ms: Some(ms * PAGE_ROUND_TRIPS).filter(|ms| ms.is_finite()),
        idle_ms: step.idle_p50_ms.map(|ms| ms * PAGE_ROUND_TRIPS),
        lost_percent: None,
        ..interactive(step, Use::WebPage, ms)
    })
}

fn interactive(step: &LoadedStep, name: Use, ms: f64) -> UseJudgement {
    let by_loss = Band::of_loss(step.lost_percent).interactive;
    UseJudgement {
        name,
        suits: Band::of_delay(ms).interactive.max(by_loss),
        step: step.step.clone(),
        delay_ms: ms.is_finite().then_some(ms),
        idle_ms: step.idle_p50_ms,
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
        delay_ms: None,
        idle_ms: None,
        lost_percent: None,
        mbit_s: Some(rate),
        stream,
        line_full: !is_held_back,
    })
}
