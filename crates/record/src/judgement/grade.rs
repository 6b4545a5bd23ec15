//! A letter for the delay that a load adds.
//!
//! The limits are those that DSLReports published for its speed test and that other tests adopted.
//! They apply them to the mean and underload to the 99th percentile, because calls and games suffer
//! from the worst moments, so its letter is never better than theirs.

use serde::{Deserialize, Serialize};

/// Least added delay that leads to advice, ms: grade B.
pub const ADVICE_FROM_MS: f64 = 30.0;

crate::named! {
    /// The grade of an added delay, best first.
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

impl Grade {
    /// Grades a percentile under load minus the idle median, ms.
    pub fn of(added_ms: f64) -> Self {
        match added_ms {
            added if added < 5.0 => Self::APlus,
            added if added < ADVICE_FROM_MS => Self::A,
            added if added < 60.0 => Self::B,
            added if added < 200.0 => Self::C,
            added if added < 400.0 => Self::D,
            _ => Self::F,
        }
    }
}
