//! `underload fleet study`: compares the cohorts of a plan by the collected results.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;
use underload_disk::Access;
use underload_fleet::device::Attributes;
use underload_fleet::store::{Archive, Filter};
use underload_orchestrator::store::Place;
use underload_orchestrator::study::{ChangeQuestion, Question, StudyError, study};
use underload_record::text::one_line;
use underload_report::{cohort_page, cohort_table};
use underload_terminal::console;
use underload_terminal::exit::{OrBadInput, bad_input};

use super::lines::{moment, pairs};
use super::orchestrator::existing_store;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  underload fleet study comcast-study --store sqlite:fleet --html study.html
  underload fleet study low-latency-trial --store sqlite:fleet --by region,hour
  underload fleet study low-latency-trial --store sqlite:fleet --changed configured
  underload fleet study low-latency-trial --before 2026-11-01 --after 2026-11-08")]
pub(super) struct Arguments {
    /// Name of the plan.
    plan: String,
    /// The orchestrator's store: sqlite:DIR or postgres://USER@HOST/DATABASE [default:
    /// sqlite:~/.local/share/underload/fleet].
    #[arg(long, value_name = "STORE")]
    store: Option<Place>,
    /// Compares with this cohort [default: the one named control, else the plan's last].
    #[arg(long, value_name = "COHORT")]
    against: Option<String>,
    /// Also compares within groups of lines with an equal value of one of these: model, firmware,
    /// tier, segment, region, configured, measured, hour, month.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    by: Vec<String>,
    /// Only lines with this value, such as model=XB7; may be given several times.
    #[arg(long = "where", value_name = "NAME=VALUE")]
    only: Vec<String>,
    /// Compares the same lines before and after this attribute changed, each at its own change as
    /// recorded by `underload fleet lines`, with lines that did not change [default with --before:
    /// configured].
    #[arg(long, value_name = "NAME", value_parser = Attributes::RECORDED, conflicts_with = "against")]
    changed: Option<String>,
    /// Compares results before this day or time, UTC, ...
    #[arg(long, value_name = "DATE", value_parser = moment, requires = "after",
        conflicts_with = "against")]
    before: Option<u64>,
    /// ... with those from this day or time on. Lines that changed are those that did in between.
    #[arg(long, value_name = "DATE", value_parser = moment, requires = "before")]
    after: Option<u64>,
    /// Seed of random numbers; equal seeds give equal intervals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writes a page to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let place = existing_store(self.store.as_ref())?;
        let mut archive = place.archive().with_context(|| place.to_string())?;
        let question = Question {
            filter: self.filter()?,
            against: self.against.clone(),
            by: self.by.clone(),
            change: self.change()?,
            seed: self.seed,
        };
        let study = match study(archive.as_mut(), &self.plan, &question) {
            Err(StudyError::Store(error)) => return Err(error).context("reading the store"),
            study => study.or_bad_input()?,
        };
        if let Some(path) = &self.html {
            let page = cohort_page(&study);
            underload_disk::write_whole(path, page.as_bytes(), Access::Usual)
                .with_context(|| format!("{}: cannot write", path.display()))?;
        }
        if self.json {
            return console::print_json(&study);
        }
        let mut text = cohort_table(&study);
        // Outcomes are counted over all lines, not over those that --where selects.
        if self.only.is_empty() {
            text += &why_not(archive.as_mut(), &self.plan)?;
        }
        console::print(&text)
    }

    fn change(&self) -> anyhow::Result<Option<ChangeQuestion>> {
        let between_ms = self.before.zip(self.after);
        if between_ms.is_some_and(|(before, after)| before > after) {
            return Err(bad_input(anyhow!("--before is later than --after")));
        }
        let usual = between_ms.map(|_| "configured".to_owned());
        let attribute = self.changed.clone().or(usual);
        Ok(attribute.map(|attribute| ChangeQuestion { attribute, between_ms }))
    }

    fn filter(&self) -> anyhow::Result<Filter> {
        let known = Attributes::NAMES;
        let attributes = pairs(&self.only)?;
        if let Some(name) = attributes.keys().find(|name| !known.contains(&name.as_str())) {
            let names = known.join(", ");
            return Err(bad_input(anyhow!("`{name}`: expected NAME=VALUE with one of {names}")));
        }
        Ok(Filter { attributes, ..Filter::default() })
    }
}

const REASONS_MAX: usize = 5;

/// Lists why runs did not measure, by kind of reason, the most frequent first.
fn why_not(archive: &mut dyn Archive, plan: &str) -> anyhow::Result<String> {
    let filter = Filter { plan: Some(plan.to_owned()), ..Filter::default() };
    let outcomes = archive.outcomes(&filter).context("reading the store")?;
    let mut reasons = outcomes.kinds_of_reasons();
    reasons.retain(|of| !of.reason.is_empty());
    reasons.sort_by_key(|of| Reverse(of.count));
    let mut text = String::new();
    if !reasons.is_empty() {
        text += "\nwhy runs did not measure\n";
    }
    for of in reasons.iter().take(REASONS_MAX) {
        let (outcome, reason) = (of.outcome.name(), one_line(&of.reason));
        let _ = writeln!(text, "  {:>8}  {outcome}: {reason}", of.count);
    }
    if let Some(others) = reasons.get(REASONS_MAX..).filter(|others| !others.is_empty()) {
        let runs: u64 = others.iter().map(|of| of.count).sum();
        let _ = writeln!(text, "  {runs:>8}  for other reasons");
    }
    Ok(text)
}
