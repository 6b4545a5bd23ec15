//! The report of a run under way, for `underload run --watch`.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use underload_record::schema::RunRecord;
use underload_report::{LiveState, load_to_show, render_live, replace_page};
use underload_store::RunData;
use underload_terminal::console::{count, note};

use crate::present::open_in_desktop;

/// Least time between two versions of the page.
const BETWEEN_PAGES: Duration = Duration::from_secs(1);
/// A page is written at most for this part of the time, so that a large one does not slow the run.
const SHARE_OF_TIME: u32 = 10;
const LEAST_PATIENCE: Duration = Duration::from_secs(30);

/// A page that is written again as trials finish.
#[derive(Debug)]
pub struct LivePage {
    /// Whether the first version is to be opened in a browser.
    opens: bool,
    next: Instant,
    /// Whether a version of the page exists.
    pub is_written: bool,
    /// When the last version was begun, or the run.
    last: Instant,
    longest_gap: Duration,
}

impl LivePage {
    pub fn new(opens: bool) -> Self {
        let now = Instant::now();
        Self { opens, next: now, is_written: false, last: now, longest_gap: Duration::ZERO }
    }

    pub fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// Writes `report.html` of the trials that are finished; `left` trials are not. Without a
    /// record the trials are read from the directory.
    pub fn update(
        &mut self,
        directory: &Path,
        record: Option<RunRecord>,
        left: usize,
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        self.longest_gap = self.longest_gap.max(start - self.last);
        self.last = start;
        let path = directory.join("report.html");
        let record = match record {
            Some(record) => record,
            None => load_to_show(&[directory])?.pop().context("the run has no trials")?.record,
        };
        let (sentence, run) = live(record, left, &now());
        let written_unix_ms = jiff::Timestamp::now().as_millisecond();
        let patience = patience(self.longest_gap);
        let state = LiveState { sentence, written_unix_ms, patience };
        replace_page(&path, &render_live(&run, &state)?)?;
        if !std::mem::replace(&mut self.is_written, true) {
            note!("the page follows the run: {}", path.display());
            if self.opens {
                open_in_desktop(&path);
            }
        }
        self.next = next_page(start, start.elapsed());
        Ok(())
    }
}

/// Returns the sentence about the state of a run, and the run as the page shows it: the page has no
/// warning that the run was cut short.
fn live(mut record: RunRecord, left: usize, time: &str) -> (String, RunData) {
    let done = record.trials.len();
    let all = count(done + left, "trial");
    let state = format!(
        "Running: {done} of {all} are finished ({time}). This page reloads until the run ends."
    );
    record.complete = true;
    (state, RunData { record, samples: Vec::new(), series: Vec::new(), left_out: Vec::new() })
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%H:%M:%S UTC").to_string()
}

/// Returns after which time without a new version the run counts as ended early: far longer than
/// between any two versions up to now.
fn patience(longest_gap: Duration) -> Duration {
    LEAST_PATIENCE + longest_gap * 3
}

/// Returns when the page may be written again after one that was begun at `start` and took `cost`.
fn next_page(start: Instant, cost: Duration) -> Instant {
    start + BETWEEN_PAGES.max(cost * SHARE_OF_TIME)
}

#[cfg(test)]
mod tests {
    use underload_record::schema::World;
    use underload_record::synthetic::{self, BUFFER_CONTROL};
    use underload_run::{Destination, Settings};
    use underload_scenario::Scenario;
    use underload_store::RunDir;

    use super::*;

    #[test]
    fn the_page_reloads_and_shows_the_progress_of_the_run() {
        let text = "[path]\nup = \"5mbit\"\n[phases]\nidle = \"100ms\"\nload = \"100ms\"\n\
                    ramp = \"0s\"\ndrain = \"0s\"\n[[flow]]\nkind = \"probe\"\n";
        let scenario = Scenario::parse(text, "short").expect("a scenario");
        let settings = Settings { destination: Destination::Memory, ..Settings::default() };
        let run = underload_run::run(&scenario, &settings, &mut ()).expect("a run");
        let folder = tempfile::tempdir().expect("a folder");
        let written =
            || std::fs::read_to_string(folder.path().join("report.html")).expect("a page");
        let mut page = LivePage::new(false);
        assert!(page.is_due() && !page.is_written);
        page.update(folder.path(), Some(run.record.clone()), 3).expect("a page");
        let html = written();
        assert!(html.contains("<noscript><meta http-equiv=\"refresh\" content=\"2\">"), "{html}");
        assert!(html.contains("Running: 1 of 4 trials are finished ("), "{html}");
        assert!(page.is_written);

        std::fs::write(folder.path().join("report.html"), "of another program").expect("a file");
        let error = page.update(folder.path(), Some(run.record), 3).expect_err("not ours");
        assert!(error.to_string().contains("not written by this program"), "{error}");
    }

    /// After 2,000 trials the record of a run under way has none of them.
    #[test]
    fn trials_that_are_not_in_the_record_are_read_from_the_directory() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run");
        let mut record = synthetic::record(World::Sim, &[BUFFER_CONTROL]);
        let trials = synthetic::trials(&[BUFFER_CONTROL], 1, 100_000_000);
        record.complete = false;
        let mut run = RunDir::create(&path, record).expect("a run");
        for trial in &trials {
            run.append_trial(&trial.record, &trial.samples, &trial.series).expect("a trial");
        }
        LivePage::new(false).update(&path, None, 7).expect("a page");
        let html = std::fs::read_to_string(path.join("report.html")).expect("a page");
        assert!(html.contains("Running: 1 of 8 trials are finished ("), "{html}");
        assert!(html.contains("<p class=\"verdict\">") && !html.contains("cut short"), "{html}");
    }

    #[test]
    fn a_page_waits_three_trials_and_thirty_seconds() {
        assert_eq!(patience(Duration::ZERO), Duration::from_secs(30));
        assert_eq!(patience(Duration::from_secs(100)), Duration::from_secs(330));
    }

    #[test]
    fn pages_are_a_second_apart_and_cost_a_tenth_of_the_time_at_most() {
        let start = Instant::now();
        assert_eq!(next_page(start, Duration::from_millis(20)), start + Duration::from_secs(1));
        assert_eq!(next_page(start, Duration::from_secs(2)), start + Duration::from_secs(20));
    }
}
