//! Applications: `kind = "voip"` and others, each with keys of its own.

use std::ops::RangeInclusive;

use serde::Serialize;
use underload_aqm::packet::Dscp;
use underload_aqm::rate::Rate;
use underload_aqm::time::Span;
use underload_record::schema::{FlowDirection, Metric};
use underload_sim::application::ApplicationConfig;
use underload_sim::application::cloud_game::CloudGameConfig;
use underload_sim::application::game::GameConfig;
use underload_sim::application::interactive_video::{InteractiveVideoConfig, RateControl};
use underload_sim::application::video::{Player, VideoConfig};
use underload_sim::application::voip::{JitterBuffer, VoipConfig};
use underload_sim::application::web::{Browser, WebConfig};
use underload_sim::congestion::Algorithm;
use underload_sim::flow as sim;

use super::FlowKind;
use super::common::{Activity, DSCPS, DuringLoad, Kind, Properties};
use crate::flows;
use crate::keys::{Fault, Section, keys, word, words};

pub(super) trait Application: Section {
    const NAME: &str;

    /// The codepoint that follows from its own keys; `None` if `dscp` alone sets it.
    fn own_dscp(&self) -> Option<u8> {
        None
    }

    /// Whether a second, equal application sends in the other direction.
    fn goes_both_ways(&self) -> bool {
        false
    }

    fn config(self) -> Result<ApplicationConfig, Fault>;
}

/// Returns the congestion control of a connection; CUBIC without a name.
fn algorithm(name: Option<&str>) -> Result<Algorithm, Fault> {
    let name = name.unwrap_or(Algorithm::Cubic.name());
    Algorithm::from_name(name).ok_or_else(|| {
        let known = Algorithm::names();
        Fault::new("congestion_control", format!("`{name}` is not simulated; expected {known}"))
    })
}

/// An application, which only the sim world can run.
#[derive(Debug, Clone, PartialEq)]
pub struct ApplicationFlow {
    pub config: ApplicationConfig,
    /// Whether a second, equal application sends in the other direction.
    pub is_both_ways: bool,
    /// Differentiated Services codepoint of all of its packets.
    pub dscp: u8,
}

impl ApplicationFlow {
    /// Returns the applications of an entry by name: `call`, or `call-up` and `call-down`.
    pub fn flows(&self, entry: &str) -> Vec<(String, ApplicationConfig)> {
        match &self.config {
            ApplicationConfig::InteractiveVideo(call) if self.is_both_ways => {
                let one_way = |(direction, name)| {
                    let config = InteractiveVideoConfig { direction, ..call.clone() };
                    (name, ApplicationConfig::InteractiveVideo(config))
                };
                flows::loads(entry, FlowDirection::Both, 1).map(one_way).collect()
            }
            config => vec![(entry.to_owned(), config.clone())],
        }
    }
}

keys! {
    /// The keys that all applications share.
    pub(super) struct SharedKeys {
        /// Differentiated Services codepoint of all packets.
        dscp: Option<u8> => DSCPS,
        times: DuringLoad [flat],
    }
}

pub(super) type ApplicationKeys<A> = (SharedKeys, A);

impl<A: Application> Kind for ApplicationKeys<A> {
    const NAME: &str = A::NAME;

    fn check(self) -> Result<(FlowKind, Activity), Fault> {
        let (SharedKeys { dscp, times }, keys) = self;
        let dscp = match (keys.own_dscp(), dscp) {
            (Some(own), Some(other)) if own != other => {
                let problem =
                    format!("{other} is not the codepoint that `marking` asks for, {own}");
                return Err(Fault::new("dscp", problem));
            }
            (own, dscp) => own.or(dscp).unwrap_or_default(),
        };
        let is_both_ways = keys.goes_both_ways();
        let flow = ApplicationFlow { config: keys.config()?, is_both_ways, dscp };
        Ok((FlowKind::Application(flow), times.0))
    }
}

impl Properties for ApplicationFlow {
    fn group(&self) -> (FlowDirection, u32) {
        (if self.is_both_ways { FlowDirection::Both } else { FlowDirection::Up }, 1)
    }

    fn metrics(&self) -> Vec<Metric> {
        sim::FlowKind::Application(self.config.clone()).metrics()
    }

    fn sim_only_key(&self) -> Option<&'static str> {
        Some("kind")
    }
}

keys! {
    /// A game has no keys of its own.
    pub(super) struct GameKeys {}
}

impl Application for GameKeys {
    const NAME: &str = "game";

    fn config(self) -> Result<ApplicationConfig, Fault> {
        Ok(ApplicationConfig::Game(GameConfig))
    }
}

keys! {
    pub(super) struct VoipKeys {
        /// `fixed`: the first frame waits for `delay`, and all others are played as long after
        /// their sending; `adaptive`: mean delay plus four deviations, set at the start of each
        /// talkspurt (Ramjee et al. 1994, algorithm 1; talkspurts of ITU-T P.59).
        jitter_buffer: JitterBufferName = JitterBufferName::Fixed,
        /// Wait of a fixed buffer.
        delay: Option<Span> where default = "40ms" => JITTER_BUFFERS,
        /// The longest wait that an adaptive buffer adds to the smallest measured delay.
        max_delay: Option<Span> where default = "200ms" => JITTER_BUFFERS,
        /// Whether receivers conceal lost frames (G.711 Appendix I).
        concealment: bool = true,
    }
}

#[derive(Serialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum JitterBufferName {
    Fixed,
    Adaptive,
}

words! { JitterBufferName, word: Fixed Adaptive; }

impl Application for VoipKeys {
    const NAME: &str = "voip";

    fn config(self) -> Result<ApplicationConfig, Fault> {
        let jitter_buffer = match self.jitter_buffer {
            JitterBufferName::Fixed => {
                if self.max_delay.is_some() {
                    return Err(Fault::new("max_delay", "is for an adaptive jitter_buffer only"));
                }
                JitterBuffer::Fixed { delay: self.delay.unwrap_or(Span::from_millis(40)) }
            }
            JitterBufferName::Adaptive => {
                if self.delay.is_some() {
                    return Err(Fault::new("delay", "is for a fixed jitter_buffer only"));
                }
                JitterBuffer::Adaptive { max: self.max_delay.unwrap_or(Span::from_millis(200)) }
            }
        };
        Ok(ApplicationConfig::Voip(VoipConfig { jitter_buffer, concealment: self.concealment }))
    }
}

const JITTER_BUFFERS: RangeInclusive<Span> = Span::ZERO..=Span::from_secs(1);

keys! {
    pub(super) struct WebKeys {
        /// The browser whose connections are used; `internet-explorer`: 1 + 9 that stay open;
        /// `chrome`: six at a time, a new one per resource; `firefox`: six that stay open (that
        /// version's settings as shipped, which the guideline does not specify).
        browser: Browser = Browser::Chrome,
        /// Number of page loads; fewer if the trial ends before.
        loads: u32 = WebConfig::default().loads => 1..=MAX_LOADS,
        /// Time between two loads.
        pause: Span = WebConfig::default().pause,
        /// Whether the page's script comes from the cache, as in the guideline, or is fetched.
        script: Script = Script::Cached,
        /// Time that the browser itself takes in each load (cache, script, layout, drawing), which
        /// is added to every load time.
        processing: Span = WebConfig::default().processing => Span::ZERO..=Span::from_secs(60),
        /// The congestion control of both ends.
        congestion_control: Option<String> where default = "cubic",
        /// The initial congestion window, segments; 3 was common when the guideline was written.
        initial_window: u32 = WebConfig::default().initial_window => 1..=100,
    }
}

#[derive(Serialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Script {
    Cached,
    Fetched,
}

words! { Script, word: Cached Fetched; }

impl Application for WebKeys {
    const NAME: &str = "web";

    fn config(self) -> Result<ApplicationConfig, Fault> {
        Ok(ApplicationConfig::Web(WebConfig {
            browser: self.browser,
            loads: self.loads,
            pause: self.pause,
            fetches_script: self.script == Script::Fetched,
            processing: self.processing,
            algorithm: algorithm(self.congestion_control.as_deref())?,
            initial_window: self.initial_window,
        }))
    }
}

pub(super) const MAX_LOADS: u32 = 100_000;

keys! {
    pub(super) struct VideoKeys {
        /// How the player chooses the rate of the next chunk: `bb` (reservoir 5 s, cushion 10 s),
        /// `festive`, `bola` (BOLA-BASIC, gp 5), `robust-mpc` (horizon 5).
        player: Player = Player::Bb,
        /// Bit rates of the film, ascending, at most 10.
        rates: Option<Vec<Rate>> where default = "0.3, 0.75, 1.2, 1.85, 2.85 and 4.3 Mbit/s",
        /// Longest video that the player buffers.
        buffer: Span = VideoConfig::default().buffer => VIDEO_BUFFERS,
        /// The congestion control of the server.
        congestion_control: Option<String> where default = "cubic",
    }
}

impl Application for VideoKeys {
    const NAME: &str = "video";

    fn config(self) -> Result<ApplicationConfig, Fault> {
        let Self { player, rates, buffer, congestion_control } = self;
        let rates = rates.unwrap_or_else(|| VideoConfig::default().rates);
        let is_ascending = rates.is_sorted_by(|lower, higher| lower < higher);
        let is_possible = rates.iter().all(|rate| FILM_RATES.contains(rate));
        if !is_ascending || !is_possible || !(1..=MOST_RATES).contains(&rates.len()) {
            let problem = format!(
                "expected 1 to {MOST_RATES} rates, ascending, from {} to {}",
                FILM_RATES.start(),
                FILM_RATES.end()
            );
            return Err(Fault::new("rates", problem));
        }
        let algorithm = algorithm(congestion_control.as_deref())?;
        Ok(ApplicationConfig::Video(VideoConfig { player, rates, buffer, algorithm }))
    }
}

/// `robust-mpc` tries all plans of five chunks.
const MOST_RATES: usize = 10;
const FILM_RATES: RangeInclusive<Rate> =
    Rate::from_bits_per_second(10_000)..=Rate::from_bits_per_second(1_000_000_000);

pub(super) const VIDEO_BUFFERS: RangeInclusive<Span> = Span::from_secs(10)..=Span::from_secs(600);

keys! {
    pub(super) struct InteractiveVideoKeys {
        /// Direction of the video.
        direction: FlowDirection = FlowDirection::Both,
        /// How the sender adapts its rate; `gcc`: Google congestion control
        /// (draft-ietf-rmcat-gcc-02), by delay and loss; `loss`: its half by loss alone.
        control: RateControl = RateControl::Gcc,
        /// The highest rate of the encoder.
        max_rate: Rate = InteractiveVideoConfig::default().max_rate => MAX_RATES,
    }
}

impl Application for InteractiveVideoKeys {
    const NAME: &str = "interactive-video";

    fn goes_both_ways(&self) -> bool {
        self.direction == FlowDirection::Both
    }

    fn config(self) -> Result<ApplicationConfig, Fault> {
        Ok(ApplicationConfig::InteractiveVideo(InteractiveVideoConfig {
            direction: self.direction.ways()[0],
            control: self.control,
            max_rate: self.max_rate,
        }))
    }
}

pub(super) const MAX_RATES: RangeInclusive<Rate> =
    Rate::from_bits_per_second(300_000)..=Rate::from_bits_per_second(8_000_000);

keys! {
    pub(super) struct CloudGameKeys {
        /// Rate of the video, payload above UDP; with `l4s` the highest.
        rate: Rate = CloudGameConfig::default().rate => RATES,
        /// The lowest rate of the encoder with `l4s`, 100kbit to `rate`.
        min_rate: Option<Rate> where default = "a fifth of rate",
        /// Time for sampling, rendering, encoding, decoding and display, which is added to every
        /// input-to-photon delay.
        processing: Span = CloudGameConfig::default().processing => Span::ZERO..=MAX_PROCESSING,
        /// Frames per second; headsets of virtual reality show 72 to 120.
        frame_rate: u32 = CloudGameConfig::default().frame_rate => 10..=1_000,
        /// Time between two inputs, such as the poses of a head.
        input_interval: Span = CloudGameConfig::default().input_interval => INPUT_INTERVALS,
        /// Age, lag plus `processing`, at which a frame has no value: 20 ms in virtual reality.
        deadline: Span = CloudGameConfig::default().deadline => INPUT_INTERVALS,
        /// Marking of all packets, in both directions; `nqb`: DSCP 45, not ECT (RFC 9956); `l4s`:
        /// ECT(1), with a rate that follows the marks (RFC 9331).
        marking: GameMarking = GameMarking::None,
    }
}

/// The service that a game requests from the queues on its path.
#[derive(Serialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum GameMarking {
    None,
    /// The low latency queue by its codepoint (RFC 9956).
    Nqb,
    /// The low latency queue and its marks, which the video's rate follows (RFC 9331).
    L4s,
}

words! { GameMarking, word: None Nqb L4s; }

impl Application for CloudGameKeys {
    const NAME: &str = "cloud-game";

    fn own_dscp(&self) -> Option<u8> {
        (self.marking == GameMarking::Nqb).then(|| Dscp::NON_QUEUE_BUILDING.value())
    }

    fn config(self) -> Result<ApplicationConfig, Fault> {
        let Self { rate, processing, frame_rate, input_interval, deadline, .. } = self;
        let least_rate = least_rate(self.marking, self.min_rate, rate)?;
        Ok(ApplicationConfig::CloudGame(CloudGameConfig {
            rate,
            least_rate,
            processing,
            frame_rate,
            input_interval,
            deadline,
        }))
    }
}

/// Returns the lowest rate of a video that adapts; `None` for a constant rate.
fn least_rate(marks: GameMarking, given: Option<Rate>, rate: Rate) -> Result<Option<Rate>, Fault> {
    if marks != GameMarking::L4s {
        let problem = "needs marking = \"l4s\": only then does the rate adapt";
        return given.map_or(Ok(None), |_| Err(Fault::new("min_rate", problem)));
    }
    let fifth = (rate.bits_per_second() / RATE_OVER_MIN_RATE).max(MIN_RATE);
    let least = given.unwrap_or(Rate::from_bits_per_second(fifth));
    if !(MIN_RATE..=rate.bits_per_second()).contains(&least.bits_per_second()) {
        let problem = format!("{least} is out of range; expected 100kbit to the rate, {rate}");
        return Err(Fault::new("min_rate", problem));
    }
    Ok(Some(least))
}

const INPUT_INTERVALS: RangeInclusive<Span> = Span::from_millis(1)..=Span::from_secs(1);
const MIN_RATE: u64 = 100_000;
const RATES: RangeInclusive<Rate> =
    Rate::from_bits_per_second(MIN_RATE)..=Rate::from_bits_per_second(1_000_000_000);
const MAX_PROCESSING: Span = Span::from_secs(1);
/// Services recommend 15 Mbit/s for 1080p at 60 Hz, and work from about 3 Mbit/s.
const RATE_OVER_MIN_RATE: u64 = 5;
