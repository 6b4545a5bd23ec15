//! Forms in which results are stored, and for how long.
//!
//! For a few days results are rows of the database. Then a day is moved to columns: each run with
//! its bins. After that only the sums over similar lines remain, which the database has of every
//! day. A day moves as a whole, by the day on which its runs began.

use serde::{Deserialize, Serialize};

/// Days for which each form is stored, counted with the day of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Rows of the database.
    pub raw_days: u32,
    /// Each run with its bins; also counted from the day of the runs.
    pub bins_days: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self { raw_days: 7, bins_days: 90 }
    }
}

/// The form in which a day is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// Rows of the database.
    Raw,
    /// Each run with its bins, as columns.
    Bins,
    /// Sums over similar lines.
    Sums,
}

impl Retention {
    /// Returns the form of a day; both arguments count days since 1970. The present day is always
    /// [`Form::Raw`].
    pub fn form(self, day: u32, today: u32) -> Form {
        match today.saturating_sub(day) {
            age if age < self.raw_days.max(1) => Form::Raw,
            age if age < self.bins_days => Form::Bins,
            _ => Form::Sums,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_passes_through_every_form_of_retention() {
        let rules = Retention::default();
        let forms = [100, 94, 93, 11, 10, 0].map(|day| rules.form(day, 100));
        assert_eq!(forms, [Form::Raw, Form::Raw, Form::Bins, Form::Bins, Form::Sums, Form::Sums]);
        assert_eq!(rules.form(101, 100), Form::Raw, "of a clock that is ahead");
        // The present day is never folded.
        assert_eq!(Retention { raw_days: 0, bins_days: 0 }.form(7, 7), Form::Raw);
    }
}
