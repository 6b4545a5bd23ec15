//! Compares the cohorts of a plan by the collected results.
//!
//! A single pass over the results, in the order of arrival, sorts them by line (`sort`). Then one
//! line after the other is folded into its sums (`collect`, `days`) and added to what
//! `record::cohorts` compares, which is a few numbers of each line and series: so every line counts,
//! and few of them are open at a time.

mod change;
mod collect;
mod days;
mod quality;
mod sort;

use underload_fleet::plan::Plan;
use underload_fleet::schedule::Window;
use underload_fleet::store::{Archive, Filter, StoreError, StoredResult};
use underload_record::cohorts;
use underload_record::schema::CohortStudy;

pub use change::ChangeQuestion;
pub use collect::SORTED_IN_MEMORY;
pub(crate) use quality::lowest_score;
pub use sort::Sorter;

use change::Changes;
use collect::{Collector, TIMES};

/// Options of a study.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// Selects results; the study sets its plan.
    pub filter: Filter,
    /// The cohort that the others are compared with; `None` for the one named `control`, else the
    /// plan's last.
    pub against: Option<String>,
    /// Dimensions within which lines are also compared: names of attributes, `hour` and `month`.
    pub by: Vec<String>,
    /// Compares the same lines before and after a change, in place of the cohorts.
    pub change: Option<ChangeQuestion>,
    /// Seed of resampling; studies with equal seeds are equal.
    pub seed: u64,
}

/// Why a study is missing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    #[error("no plan `{plan}` was applied; known: {known}")]
    NoPlan {
        plan: String,
        /// The applied plans, separated by commas.
        known: String,
    },
    #[error("no results of a group `{cohort}`; there are: {known}")]
    NoCohort {
        cohort: String,
        /// The cohorts with results, separated by commas.
        known: String,
    },
    #[error("unknown dimension `{name}`; known: {known}")]
    NoDimension {
        name: String,
        /// All dimensions, separated by commas.
        known: String,
    },
    #[error("no results of plan `{plan}` yet; its runs are due {due}")]
    Nothing {
        plan: String,
        /// How often a line runs, as text.
        due: String,
    },
    #[error("no results of plan `{plan}` are of the lines that --where selects")]
    NoneOfThose { plan: String },
    #[error(
        "no line has a single change of `{attribute}`{when}; {excluded} have several, or at another time"
    )]
    NoChange {
        attribute: String,
        /// When a change is looked for, as the end of a phrase; empty for any time.
        when: &'static str,
        /// Number of lines with other changes.
        excluded: u64,
    },
    #[error("no single runs of plan `{plan}` are stored any more, only sums of {days}")]
    OnlySums { plan: String, days: String },
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

const DAY_MS: u64 = 86_400_000;

/// Compares the cohorts of a plan.
pub fn study(
    archive: &mut dyn Archive,
    plan: &str,
    question: &Question,
) -> Result<CohortStudy, StudyError> {
    let rows = archive.plans()?;
    let Some(row) = rows.iter().find(|row| row.name == plan) else {
        let known = listed(rows.iter().map(|row| row.name.as_str()));
        return Err(StudyError::NoPlan { plan: plan.to_owned(), known });
    };
    let parsed = Plan::parse(&row.text)
        .map_err(|error| StoreError::broken(format!("plan `{plan}`")).because(error))?;
    check_dimensions(&question.by)?;
    let filter = Filter { plan: Some(plan.to_owned()), ..question.filter.clone() };
    let change = question.change.as_ref().map(|it| Changes::read(archive, it)).transpose()?;
    let mut collector = Collector::new(&parsed, &question.by, change.is_some());
    let by: Vec<&str> = question.by.iter().map(String::as_str).collect();
    let mut sorted = Ok(());
    archive.visit_measured(&filter, &by, &mut |kept| {
        sorted = match &change {
            None => collector.see(kept),
            Some(changes) => match changes.side(kept) {
                Some(side) => collector.see(&StoredResult { cohort: side, ..kept.clone() }),
                None => Ok(()),
            },
        };
        sorted.is_ok()
    })?;
    sorted?;
    // Read after the results, so that days that are reduced to sums meanwhile are reported.
    let summed = archive.summed(&filter)?;
    let collected = collector.finish()?;
    let plan_name = || plan.to_owned();
    match (collected.results, summed.days) {
        (0, 0) if !question.filter.attributes.is_empty() => {
            return Err(StudyError::NoneOfThose { plan: plan_name() });
        }
        (0, 0) => return Err(StudyError::Nothing { plan: plan_name(), due: due_words(&parsed) }),
        (0, _) => {
            let days = crate::store::summed_words(summed);
            return Err(StudyError::OnlySums { plan: plan_name(), days });
        }
        _ => {}
    }
    let mut lines = collected.lines;
    match change {
        None => lines.reference = reference(&lines.cohorts, question.against.as_deref())?,
        Some(changes) => lines.change = Some(changes.study()),
    }
    let mut study = cohorts::study(&lines, question.seed);
    plan.clone_into(&mut study.plan);
    study.title = parsed.title;
    study.results = collected.results;
    study.late_runs = collected.late_runs;
    study.summed_days = u64::from(summed.days);
    study.summed_until_ms = (summed.days > 0).then(|| u64::from(summed.until_day) * DAY_MS);
    study.first_ms = collected.first_ms;
    study.last_ms = collected.last_ms;
    Ok(study)
}

/// Formats how often a run of a line is due on average: `about every 4 h`.
fn due_words(plan: &Plan) -> String {
    let every_s = plan.window.length().as_secs_f64() / plan.runs_per_day;
    let (count, unit) = match every_s {
        s if s >= 2.0 * 86_400.0 => (s / 86_400.0, "days"),
        s if s >= 7_200.0 => (s / 3_600.0, "h"),
        s if s >= 120.0 => (s / 60.0, "min"),
        s => (s, "s"),
    };
    let window =
        if plan.window.length() == Window::ALWAYS.length() { "" } else { " within its hours" };
    format!("about every {count:.0} {unit}{window}")
}

fn check_dimensions(by: &[String]) -> Result<(), StudyError> {
    let known: Vec<&str> =
        underload_fleet::device::Attributes::NAMES.into_iter().chain(TIMES).collect();
    let unknown = by.iter().find(|name| !known.contains(&name.as_str()));
    unknown.map_or(Ok(()), |name| {
        Err(StudyError::NoDimension { name: name.clone(), known: known.join(", ") })
    })
}

/// Returns names, separated by commas, or that there are none.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names = names.collect::<Vec<_>>().join(", ");
    if names.is_empty() { "none".to_owned() } else { names }
}

fn reference(cohorts: &[String], wanted: Option<&str>) -> Result<Option<usize>, StudyError> {
    let place = |name: &str| cohorts.iter().position(|cohort| cohort == name);
    let Some(wanted) = wanted else {
        return Ok((cohorts.len() > 1).then(|| place("control").unwrap_or(cohorts.len() - 1)));
    };
    let known = || listed(cohorts.iter().map(String::as_str));
    let missing = || StudyError::NoCohort { cohort: wanted.to_owned(), known: known() };
    place(wanted).ok_or_else(missing).map(Some)
}

#[cfg(test)]
mod tests;
