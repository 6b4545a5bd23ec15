//! `kind = "cloud-game"`: a game rendered far away.

use std::ops::RangeInclusive;

use serde::Serialize;
use underload_aqm::packet::Dscp;
use underload_aqm::rate::Rate;
use underload_aqm::time::Span;
use underload_sim::application::ApplicationConfig;
use underload_sim::application::cloud_game::CloudGameConfig;

use super::common::Application;
use crate::keys::{Fault, keys, word, words};

keys! {
    pub(in crate::scenario::flow) struct CloudGameKeys {
        /// Rate of the video.
        rate: Rate = CloudGameConfig::default().rate => RATES,
        /// The least rate of a video that adapts; a fifth of its rate.
        min_rate: Option<Rate>,
        /// Between a command's arrival and the picture that shows it.
        processing: Span = CloudGameConfig::default().processing => Span::ZERO..=MAX_PROCESSING,
        /// What the game asks of queues on the way.
        marking: GameMarking = GameMarking::None,
    }
}

/// What the game asks of queues on the way.
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
        let Self { rate, min_rate, processing, marking } = self;
        let least_rate = least_rate(marking, min_rate, rate)?;
        Ok(ApplicationConfig::CloudGame(CloudGameConfig { rate, least_rate, processing }))
    }
}

/// The least rate of a video that adapts.
fn least_rate(
    marking: GameMarking,
    given: Option<Rate>,
    rate: Rate,
) -> Result<Option<Rate>, Fault> {
    if marking != GameMarking::L4s {
        let problem = "goes with marking = \"l4s\": only then does the rate adapt";
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

const MIN_RATE: u64 = 100_000;
const RATES: RangeInclusive<Rate> =
    Rate::from_bits_per_second(MIN_RATE)..=Rate::from_bits_per_second(1_000_000_000);
const MAX_PROCESSING: Span = Span::from_secs(1);
/// Services recommend 15 Mbit/s for 1080p at 60 Hz and play from 3 Mbit/s or so on.
const RATE_OVER_MIN_RATE: u64 = 5;
