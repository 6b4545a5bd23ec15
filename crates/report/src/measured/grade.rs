//! A letter for the delay that a load adds.
//!
//! The grade is of the larger of two delays that the load adds: to packets beside it, such as those
//! of a call, and to its own, such as those of a web page. The limits are those that DSLReports
//! published for its speed test and that other tests adopted. They apply them to the mean and
//! underload to the 99th percentile, because calls and games suffer from the worst moments, so its
//! letter is never better than theirs.

use underload_record::schema::{Added, Finding, Vantage};

/// Least added delay that leads to advice, ms: grade B.
pub(crate) const ADVICE_FROM_MS: f64 = 30.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grade {
    APlus,
    A,
    B,
    C,
    D,
    F,
}

impl Grade {
    /// Grades the difference of p99 under load and p50 idle, ms.
    pub(crate) fn of(added_ms: f64) -> Self {
        match added_ms {
            added if added < 5.0 => Self::APlus,
            added if added < ADVICE_FROM_MS => Self::A,
            added if added < 60.0 => Self::B,
            added if added < 200.0 => Self::C,
            added if added < 400.0 => Self::D,
            _ => Self::F,
        }
    }

    pub(crate) fn letter(self) -> &'static str {
        match self {
            Self::APlus => "A+",
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
            Self::F => "F",
        }
    }

    /// Returns what a user of the line notices if the grade is that of packets beside or inside the
    /// load.
    pub(crate) fn words(self, vantage: Vantage) -> &'static str {
        match vantage {
            Vantage::Beside => self.words_beside(),
            Vantage::Inside => self.words_inside(),
        }
    }

    fn words_inside(self) -> &'static str {
        match self {
            Self::APlus => "nobody notices that the line is busy",
            Self::A => "a page over a busy connection opens about as fast as over an idle one",
            Self::B => "a page over a busy connection opens a little later",
            Self::C => "a page over a busy connection opens noticeably later",
            Self::D => "a page over a busy connection opens slowly",
            Self::F => "whatever shares a busy connection stalls",
        }
    }

    fn words_beside(self) -> &'static str {
        match self {
            Self::APlus => "nobody notices that the line is busy",
            Self::A => "calls and games keep working while the line is busy",
            Self::B => "fast games notice that the line is busy, calls do not",
            Self::C => "fast games suffer while the line is busy, calls may lag",
            Self::D => "calls lag and fast games suffer while the line is busy",
            Self::F => "everything interactive stalls while the line is busy",
        }
    }
}

/// Returns the latency that the load of a step adds beside or inside itself, whichever is worse;
/// `None` if the step is invalid or both are unknown.
pub(crate) fn graded(finding: &Finding) -> Option<Added> {
    finding.added().filter(|_| finding.valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_belong_to_the_worse_grade() {
        let letters = [-1.0, 4.99, 5.0, 29.99, 30.0, 60.0, 199.9, 200.0, 399.9, 400.0, f64::NAN];
        let letters = letters.map(|added| Grade::of(added).letter());
        assert_eq!(letters, ["A+", "A+", "A", "A", "B", "C", "C", "D", "D", "F", "F"]);
    }
}
