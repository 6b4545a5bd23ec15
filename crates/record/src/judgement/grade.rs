//! A letter for the delay that a load adds and for the packets that it loses, and the words of uses
//! that follow from it.
//!
//! The limits of delay are those that DSLReports published for its speed test and that other tests
//! adopted. They apply them to the mean and underload to the 99th percentile, because calls and games
//! suffer from the worst moments, so its letter is never better than theirs.
//!
//! Uses lie within the same limits. Below 60 ms calls and games are good: first-person games suffer
//! from 100 ms of round trip on (Claypool and Claypool, "Latency and player actions in online games",
//! 2006), and with 50 ms in the devices a call stays below the 150 ms of ITU-T G.114. From 200 ms on,
//! the limit of ITU-T G.1010 for interactive games, both are poor. A page of 10 round trips takes 2 s
//! at 200 ms and 4 s at 400 ms, which G.1010 prefers and accepts.
//!
//! The limits of loss are of speech. ITU-T G.1010 accepts 3 %, and 1 % goes unnoticed: by G.113
//! (G.711 with concealment, Bpl 25.1) they cost 10 and 4 points of the rating of G.107. Above 10 %,
//! which cost 27 points, many users are dissatisfied.

use serde::{Deserialize, Serialize};

use super::Suitability;

crate::named! {
    /// The grade of a load, best first.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum Grade {
        #[serde(rename = "A+")]
        APlus = "A+",
        A = "A",
        B = "B",
        C = "C",
        D = "D",
        F = "F",
    }
}

/// A row of the scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Band {
    pub grade: Grade,
    /// The row is for delays below this.
    pub below_ms: f64,
    /// The row is for losses up to this.
    pub lost_percent_max: f64,
    /// Calls and games.
    pub interactive: Suitability,
    pub page: Suitability,
}

/// The only scale of delays and losses: the grade, every use, the page and the documentation have
/// their words from it.
pub const SCALE: [Band; 6] = {
    use Suitability::{Fair, Good, Poor};
    const fn band(
        (grade, below_ms, lost_percent_max): (Grade, f64, f64),
        interactive: Suitability,
        page: Suitability,
    ) -> Band {
        Band { grade, below_ms, lost_percent_max, interactive, page }
    }
    [
        band((Grade::APlus, 5.0, 1.0), Good, Good),
        band((Grade::A, ADVICE_FROM_MS, 1.0), Good, Good),
        band((Grade::B, SHORT_MS, 1.0), Good, Good),
        band((Grade::C, 200.0, 3.0), Fair, Good),
        band((Grade::D, 400.0, 10.0), Poor, Fair),
        band((Grade::F, f64::INFINITY, f64::INFINITY), Poor, Poor),
    ]
};

/// Least added delay that leads to advice, ms: grade B.
pub const ADVICE_FROM_MS: f64 = 30.0;
/// A queue that adds less than this is short, ms: grade B and better.
pub const SHORT_MS: f64 = 60.0;

impl Band {
    /// Returns the row of a delay, ms.
    pub fn of_delay(ms: f64) -> &'static Self {
        SCALE.iter().find(|it| ms < it.below_ms).unwrap_or(&SCALE[SCALE.len() - 1])
    }

    /// Returns the best row of a loss, percent of the packets.
    pub fn of_loss(percent: f64) -> &'static Self {
        SCALE.iter().find(|it| percent <= it.lost_percent_max).unwrap_or(&SCALE[SCALE.len() - 1])
    }
}
