//! The trials of a run as files of other tools and as tables.

use std::io;

use underload_record::schema::{RunRecord, TrialRecord};
use underload_store::{RunData, write_samples_csv, write_series_csv, write_trials_csv};

use crate::flent_file;

/// A format of exported files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Flent,
    Csv,
}

/// The end of a file's name, and the content.
pub type Content = (&'static str, Vec<u8>);

impl Format {
    /// Returns the files of a trial. `data` has its samples and series.
    ///
    /// # Errors
    /// Returns the error of the encoder; none fails in memory.
    pub fn of_trial(self, data: &RunData, trial: &TrialRecord) -> io::Result<Vec<Content>> {
        Ok(match self {
            Self::Flent => vec![(".flent.gz", flent_file(data, trial)?)],
            Self::Csv => {
                let (mut samples, mut series) = (Vec::new(), Vec::new());
                write_samples_csv(&mut samples, data)?;
                write_series_csv(&mut series, data)?;
                vec![("-samples.csv", samples), ("-series.csv", series)]
            }
        })
    }

    /// Returns the table with a row per trial; `None` for flent, which has none.
    ///
    /// # Errors
    /// As [`Format::of_trial`].
    pub fn of_run(self, record: &RunRecord) -> io::Result<Option<Content>> {
        Ok(match self {
            Self::Flent => None,
            Self::Csv => {
                let mut table = Vec::new();
                write_trials_csv(&mut table, &record.trials)?;
                Some(("-trials.csv", table))
            }
        })
    }
}

/// Returns the start of the names of a trial's files. Names of scenarios and variants may have any
/// characters, file names only harmless ones.
pub fn file_name(scenario: &str, trial: &TrialRecord) -> String {
    plain(&format!("{scenario}-{}-{}", trial.variant, trial.repeat))
}

/// Returns a text as the start of a file name.
pub fn plain(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = text.chars().map(plain).collect();
    // A scenario's path may begin with a dot; the file must not be hidden.
    name.trim_start_matches(['.', '_']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_stay_in_their_folder() {
        let trial =
            TrialRecord { variant: "../a b".to_owned(), repeat: 2, ..TrialRecord::default() };
        assert_eq!(file_name("./comcast/upstream", &trial), "comcast_upstream-.._a_b-2");
    }
}
