//! How well a line suits a call, a game, a web page and a video.
//!
//! Rules and sources, as in `docs/measure.md`:
//! - **Call**: ITU-T G.114 has 150 ms from mouth to ear as the delay that hardly any use notices,
//!   and 400 ms as the planning limit. underload adds half the idle round trip, the latency that
//!   the load adds at p99 (all of it one way), and 50 ms in the two devices.
//! - **Game**: first-person games suffer from 100 ms of round trip on (Claypool and Claypool,
//!   "Latency and player actions in online games", 2006); ITU-T G.1010 has 200 ms one way, 400
//!   round trip, as the limit of interactive games.
//! - Both: 1 % of lost packets goes unnoticed, 3 % is the limit for speech (G.1010).
//! - **Web page**: ITU-T G.1010 prefers a page within 2 s and accepts 4 s. underload takes a page
//!   for 10 round trips inside the load (name, handshakes and four levels of files: our
//!   assumption), at p99 of the loading connections: good up to 200 ms and fair up to 400 ms.
//! - **Video stream**: rates that Netflix publishes for 4K, 1080p and 720p; a stream buffers
//!   seconds, so delay hardly matters.

use std::fmt;

use underload_record::schema::{Finding, Phase};

/// Delay in the devices at both ends of a call, ms: capture, packets of 20 ms, receive buffer.
const DEVICES_MS: f64 = 50.0;
const CALL_MS: (f64, f64) = (150.0, 400.0);
const GAME_MS: (f64, f64) = (100.0, 400.0);
const PAGE_ROUND_TRIPS: f64 = 10.0;
const PAGE_MS: (f64, f64) = (2_000.0, 4_000.0);
const LOSS_PERCENT: (f64, f64) = (1.0, 3.0);
/// Rates of streams, Mbit/s.
const STREAMS: [(f64, &str); 3] = [(15.0, "4K"), (5.0, "1080p"), (3.0, "720p")];

/// How well a line suits a use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Suits {
    Good,
    Fair,
    Poor,
}

impl Suits {
    fn of(value: f64, (good, fair): (f64, f64)) -> Self {
        match value {
            value if value <= good => Self::Good,
            value if value <= fair => Self::Fair,
            _ => Self::Poor,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Fair => "fair",
            Self::Poor => "poor",
        }
    }
}

/// A use of the line while others load it, and how well the line suits it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Use {
    /// `call`, `game`, `web page` or `video stream`.
    pub(crate) name: &'static str,
    pub(crate) suits: Suits,
    /// The measured number behind the judgement.
    pub(crate) because: String,
    /// Whether the load filled the line.
    is_full: bool,
}

impl Use {
    /// Returns when the judgement applies; a stream depends on the rate alone.
    pub(crate) fn when(&self) -> &'static str {
        match (self.name, self.is_full) {
            (VIDEO, _) => "",
            (PAGE, true) => " on the busy connection",
            (PAGE, false) => " inside this load",
            (_, true) => " on the busy line",
            (_, false) => " beside this load",
        }
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, suits, because, .. } = self;
        write!(f, "A {name}{}: {}, {because}.", self.when(), suits.name())
    }
}

const VIDEO: &str = "video stream";
const PAGE: &str = "web page";

/// Judges each use for which numbers exist, by the worst valid step.
pub(crate) fn of(findings: &[Finding]) -> Vec<Use> {
    let of_steps = |judge: fn(&Finding) -> Option<(f64, Use)>| {
        let judged = findings.iter().filter_map(judge);
        judged.max_by(|a, b| a.1.suits.cmp(&b.1.suits).then(a.0.total_cmp(&b.0)))
    };
    let interactive = [of_steps(call), of_steps(game), of_steps(page)];
    interactive.into_iter().flatten().map(|(_, it)| it).chain(video(findings)).collect()
}

fn call(finding: &Finding) -> Option<(f64, Use)> {
    let idle_ms = finding.headline(Phase::Idle)?.p50_ms?;
    let added_ms = finding.added_beside_ms().filter(|_| finding.valid)?;
    let delay_ms = idle_ms / 2.0 + added_ms.max(0.0) + DEVICES_MS;
    let because = or_lost(delay_ms, format!("{delay_ms:.0} ms from mouth to ear"));
    Some((delay_ms, with_loss(finding, "call", Suits::of(delay_ms, CALL_MS), because)))
}

fn game(finding: &Finding) -> Option<(f64, Use)> {
    finding.added_beside_ms().filter(|_| finding.valid)?;
    let load = finding.headline(Phase::Load)?;
    let (_, delay_ms) = load.judged_ms()?;
    let because = or_lost(delay_ms, format!("round trips of {delay_ms:.0} ms"));
    Some((delay_ms, with_loss(finding, "game", Suits::of(delay_ms, GAME_MS), because)))
}

/// Judges a page that is loaded over connections as busy as those of the load.
fn page(finding: &Finding) -> Option<(f64, Use)> {
    let (_, round_trip_ms) = finding.worst_inside().filter(|_| finding.valid)?.highest_ms()?;
    let page_ms = round_trip_ms * PAGE_ROUND_TRIPS;
    let because = format!(
        "{PAGE_ROUND_TRIPS:.0} round trips of {round_trip_ms:.0} ms take {:.1} s",
        page_ms / 1e3
    );
    let (suits, is_full) = (Suits::of(page_ms, PAGE_MS), !finding.is_held_back());
    Some((page_ms, Use { name: PAGE, suits, because, is_full }))
}

/// Returns `because`, unless the delay is infinite because of lost probes.
fn or_lost(delay_ms: f64, because: String) -> String {
    if delay_ms.is_finite() { because } else { "too few probes came back".to_owned() }
}

fn with_loss(finding: &Finding, name: &'static str, suits: Suits, because: String) -> Use {
    let lost = finding.headline(Phase::Load).map_or(0.0, |load| load.lost_percent);
    let by_loss = Suits::of(lost, LOSS_PERCENT);
    let because = match by_loss {
        Suits::Good => because,
        _ => format!("{because} and {lost:.1} % of the packets lost"),
    };
    Use { name, suits: suits.max(by_loss), because, is_full: !finding.is_held_back() }
}

/// Judges video by the highest rate down. A load that did not fill the line proves what the line
/// carries, not what it cannot carry.
fn video(findings: &[Finding]) -> Option<Use> {
    let rate =
        |finding: &Finding| Some((finding.goodput_down_mbit_s?, finding.is_held_back_down()));
    let rates = findings.iter().filter(|it| it.valid).filter_map(rate);
    let (rate, is_held_back) = rates.reduce(|a, b| if b.0 > a.0 { b } else { a })?;
    let carried = STREAMS.into_iter().find(|(needed, _)| rate >= *needed);
    let (suits, because) = match carried {
        Some((needed, name)) => {
            let suits = if needed >= STREAMS[1].0 { Suits::Good } else { Suits::Fair };
            (suits, format!("{rate:.1} Mbit/s down carry {name} ({needed:.0} Mbit/s)"))
        }
        None => (Suits::Poor, format!("{rate:.1} Mbit/s down carry no 720p (3 Mbit/s)")),
    };
    let is_known = suits == Suits::Good || !is_held_back;
    is_known.then_some(Use { name: VIDEO, suits, because, is_full: !is_held_back })
}
