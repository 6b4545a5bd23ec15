//! `[cohort.lines]`: a study's access lines, each measured several times a day.
//!
//! A drawn value is the same in all runs of a line, or belongs to a run (`of = "run"`). Lines that
//! are not eligible are drawn and counted, but not measured. A day is divided evenly among its
//! runs, each of which is at a random minute of its part.

use std::collections::BTreeMap;

use underload_aqm::rng::Rng;
use underload_record::schema::StudyRecord;
use underload_record::{DAY, LINE};

use super::tables::Conditions;
use crate::keys::{Fault, keys};
use crate::study::Distribution;

keys! {
    /// The lines of a study, how often each is measured, and the two classes that are compared.
    #[derive(Debug, Clone, PartialEq)]
    pub(super) struct Lines {
        /// Lines that are drawn.
        count: u32 => 1..=LINES_MOST,
        /// Days on which each line is measured.
        days: u32 = 1 => 1..=DAYS_MOST,
        /// Runs of a line on a day, each at a random minute of its part of the day.
        runs_per_day: u32 = 6 => 1..=RUNS_MOST,
        /// The probe whose lag is expected to be shorter.
        class: String,
        /// The probe whose lag is expected to be longer.
        against: String,
        /// The share of a line's highest rate below which a run is void.
        full_percent: f64 = 95.0,
        /// Draws that lines are grouped by.
        by: Vec<String> = Vec::new(),
        /// The values that an eligible line may have drawn, by the draw's name; other lines are
        /// counted and not measured.
        eligible: BTreeMap<String, Vec<String>> = BTreeMap::new(),
        /// The lowest version that an eligible line may have drawn, such as `6.5`, by the draw's
        /// name; 6.10 is newer than 6.5.
        eligible_from: BTreeMap<String, String> = BTreeMap::new(),
    }
}

/// The condition with the minute of the day at which a run begins.
pub(super) const MINUTE: &str = "minute";
/// Conditions of every run of a line.
pub(super) const OWN: [&str; 3] = [LINE, DAY, MINUTE];
const MINUTES_PER_DAY: u32 = 24 * 60;
const LINES_MOST: u32 = 10_000;
const DAYS_MOST: u32 = 366;
const RUNS_MOST: u32 = 144;

/// The line and the run that a repeat measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    line: u32,
    day: u32,
    run: u32,
}

impl Lines {
    pub(super) fn check(&self) -> Result<(), Fault> {
        if !(self.full_percent > 0.0 && self.full_percent <= 100.0) {
            return Err(Fault::new("full_percent", "expected more than 0 and at most 100"));
        }
        for (name, least) in &self.eligible_from {
            if version(least).is_none() {
                let problem = format!("`{least}`: expected a version, such as \"6.5\"");
                return Err(Fault::new(format!("eligible_from.{name}"), problem));
            }
        }
        Ok(())
    }

    /// Rejects names that no draw of lines has. `draws` are names, with whether they are of runs.
    pub(super) fn check_names(&self, draws: &[(&str, bool)]) -> Result<(), Fault> {
        let Self { by, eligible, eligible_from, .. } = self;
        let by = by.iter().map(|name| ("by", name));
        let eligible = eligible.keys().map(|name| ("eligible", name));
        let from = eligible_from.keys().map(|name| ("eligible_from", name));
        for (key, name) in by.chain(eligible).chain(from) {
            let problem = match draws.iter().find(|(known, _)| known == name) {
                Some((_, false)) => continue,
                Some((_, true)) => {
                    format!("`{name}` is drawn for every run; expected a draw of lines")
                }
                None => {
                    let known: Vec<&str> = draws.iter().map(|(name, _)| *name).collect();
                    format!("no draw is named `{name}`; expected one of {}", known.join(", "))
                }
            };
            return Err(Fault::new(key, problem));
        }
        Ok(())
    }

    /// Rejects classes that are not among `probes`.
    pub(super) fn check_probes(&self, probes: &[String]) -> Result<(), Fault> {
        let classes = [("class", &self.class), ("against", &self.against)];
        match classes.into_iter().find(|(_, class)| !probes.contains(class)) {
            None => Ok(()),
            Some((key, class)) => {
                let known = probes.join(", ");
                let problem = format!("no probe is named `{class}`; expected one of {known}");
                Err(Fault::new(key, problem))
            }
        }
    }

    /// Whether one of its keys names this draw.
    pub(super) fn uses(&self, draw: &str) -> bool {
        let Self { by, eligible, eligible_from, .. } = self;
        by.iter().any(|name| name == draw)
            || eligible.contains_key(draw)
            || eligible_from.contains_key(draw)
    }

    /// Returns the numbers of the eligible lines, from 0.
    pub(super) fn eligible(&self, draws: &[(String, Distribution)], seed: u64) -> Vec<u32> {
        (0..self.count).filter(|line| self.is_eligible(*line, draws, seed)).collect()
    }

    fn is_eligible(&self, line: u32, draws: &[(String, Distribution)], seed: u64) -> bool {
        draws.iter().all(|(name, distribution)| {
            let drawn = || distribution.draw(&mut line_stream(seed, line).child(name));
            let is_listed = |values: &Vec<String>| values.contains(&drawn());
            let is_new = |least: &String| version(&drawn()) >= version(least);
            self.eligible.get(name).is_none_or(is_listed)
                && self.eligible_from.get(name).is_none_or(is_new)
        })
    }

    /// Returns the runs of a variant over `lines` lines.
    pub(super) fn repeats(&self, lines: usize) -> u64 {
        lines as u64 * u64::from(self.days) * u64::from(self.runs_per_day)
    }

    /// Returns what a repeat measures: every line once, then every line again.
    pub(super) fn place(&self, eligible: &[u32], repeat: u32) -> Place {
        let lines = eligible.len().max(1) as u32;
        let line = eligible.get((repeat % lines) as usize).copied().unwrap_or_default();
        let turn = repeat / lines;
        Place { line, day: turn / self.runs_per_day, run: turn % self.runs_per_day }
    }

    /// Returns the random streams of a line and of its run, and the values of the conditions in
    /// [`OWN`].
    pub(super) fn streams(&self, seed: u64, place: Place) -> (Rng, Rng, Conditions) {
        let line = line_stream(seed, place.line);
        let run = line.child(&format!("day {} run {}", place.day, place.run));
        let part = MINUTES_PER_DAY / self.runs_per_day;
        let minute = part * place.run + run.child(MINUTE).below(part);
        let own = [(LINE, place.line), (DAY, place.day), (MINUTE, minute)];
        let own = own.map(|(name, value)| (name.to_owned(), value.to_string()));
        (line, run, own.into())
    }

    /// Returns the record of the study before its lines are measured.
    pub(super) fn study(&self, eligible: usize) -> StudyRecord {
        let Self { count, class, against, full_percent, by, .. } = self;
        StudyRecord {
            class: class.clone(),
            against: against.clone(),
            full_percent: *full_percent,
            by: by.clone(),
            lines: *count,
            ineligible: count - eligible as u32,
            runs_left_out: 0,
            groups: Vec::new(),
        }
    }
}

fn line_stream(seed: u64, line: u32) -> Rng {
    Rng::new(seed).child("cohort").child(&format!("line {line}"))
}

/// Parses the numbers of a version.
fn version(text: &str) -> Option<Vec<u32>> {
    text.split('.').map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(more: &str) -> Result<Lines, Fault> {
        let text = format!("count = 40\ndays = 2\nclass = \"a\"\nagainst = \"b\"\n{more}");
        let lines: Lines = crate::keys::from_text(&text)?;
        lines.check().map(|()| lines)
    }

    fn choice(name: &str, values: &[&str]) -> (String, Distribution) {
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        (name.to_owned(), Distribution::choice(values, None).expect("a choice"))
    }

    #[test]
    fn every_line_is_measured_in_every_part_of_every_day() {
        let lines = lines("").expect("right");
        let eligible: Vec<u32> = (0..40).collect();
        assert_eq!(lines.repeats(eligible.len()), 480);
        let mut seen = BTreeMap::new();
        for repeat in 0..480 {
            let place = lines.place(&eligible, repeat);
            let (_, _, own) = lines.streams(7, place);
            let number = |name: &str| own[name].parse::<u32>().expect("a number");
            let part = number(MINUTE) / 240;
            assert!(seen.insert((number(LINE), number(DAY), part), number(MINUTE)).is_none());
        }
        assert_eq!(seen.len(), 480);
        let minutes: std::collections::BTreeSet<u32> =
            seen.into_values().map(|m| m % 240).collect();
        assert!(minutes.len() > 150, "random minutes: {}", minutes.len());
    }

    #[test]
    fn a_line_draws_equal_values_in_all_runs_and_seeds_differ() {
        let lines = lines("").expect("right");
        let draw = |seed, line, run| {
            let (mut of_line, mut of_run, _) = lines.streams(seed, Place { line, day: 0, run });
            (of_line.next_u32(), of_run.next_u32())
        };
        assert_eq!(draw(1, 3, 0).0, draw(1, 3, 5).0);
        assert_ne!(draw(1, 3, 0).1, draw(1, 3, 5).1);
        assert_ne!(draw(1, 3, 0).0, draw(1, 4, 0).0);
        assert_ne!(draw(1, 3, 0).0, draw(2, 3, 0).0);
    }

    #[test]
    fn only_eligible_lines_are_measured() {
        let lines = lines(
            "eligible = { model = [\"XB7\", \"XB8\"] }\neligible_from = { firmware = \"6.5\" }",
        );
        let lines = lines.expect("right");
        let draws = [
            choice("model", &["XB6", "XB7", "XB8"]),
            choice("firmware", &["6.4.9", "6.5", "6.10"]),
        ];
        let eligible = lines.eligible(&draws, 5);
        assert!(!eligible.is_empty() && eligible.len() < 40);
        for line in 0..40 {
            let drawn = |(name, how): &(String, Distribution)| {
                how.draw(&mut line_stream(5, line).child(name))
            };
            let is_one = drawn(&draws[0]) != "XB6" && drawn(&draws[1]) != "6.4.9";
            assert_eq!(eligible.contains(&line), is_one, "line {line}");
        }
        let study = lines.study(eligible.len());
        assert_eq!(study.lines, study.ineligible + eligible.len() as u32);
    }

    #[test]
    fn faults_name_their_key() {
        for (more, key) in [
            ("runs_per_day = 0", "runs_per_day"),
            ("runs_per_day = 145", "runs_per_day"),
            ("full_percent = 101.0", "full_percent"),
            ("eligible_from = { firmware = \"new\" }", "eligible_from.firmware"),
        ] {
            assert_eq!(lines(more).expect_err(more).key, key, "{more}");
        }
        let by = lines("by = [\"model\", \"calls\"]").expect("right");
        let fault = by.check_names(&[("model", false), ("calls", true)]).expect_err("of runs");
        assert!(fault.problem.contains("`calls` is drawn for every run"), "{}", fault.problem);
        let fault = by.check_names(&[("calls", false)]).expect_err("no such draw");
        assert!(fault.problem.contains("no draw is named `model`"), "{}", fault.problem);
    }
}
