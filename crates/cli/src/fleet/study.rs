//! `underload fleet study`: the cohorts of a plan compared, from what was collected.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::Args;
use underload_disk::Access;
use underload_fleet::store::{Archive, Filter};
use underload_orchestrator::store::{PostgresStore, SqliteArchive};
use underload_orchestrator::study::{Question, StudyError, study};
use underload_report::{cohort_page, cohort_table};

use crate::exit::{OrBadInput, bad_input};

/// The command line of `underload fleet study`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  underload fleet study comcast-study --store sqlite:fleet --html study.html
  underload fleet study low-latency-trial --store sqlite:fleet --by region,hour")]
pub(super) struct Arguments {
    /// The plan, by its name.
    plan: String,
    /// Where results were collected: sqlite:DIR or postgres://USER@HOST/DATABASE.
    #[arg(long, value_name = "STORE")]
    store: String,
    /// Compares with this cohort [default: the one named control, else the plan's last].
    #[arg(long, value_name = "COHORT")]
    against: Option<String>,
    /// Compares lines that have these in common, each by itself: model, firmware, tier, segment,
    /// region, configured, measured, hour.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    by: Vec<String>,
    /// Only lines that have this, such as model=XB7; may be given several times.
    #[arg(long = "where", value_name = "NAME=VALUE")]
    only: Vec<String>,
    /// The same seed gives the same intervals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writes the page there.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Compares, writes and prints.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let mut archive = open(&self.store)?;
        let question = Question {
            filter: self.filter()?,
            against: self.against.clone(),
            by: self.by.clone(),
            seed: self.seed,
        };
        let study = match study(archive.as_mut(), &self.plan, &question) {
            Err(StudyError::Store(error)) => return Err(error).context("reading the store"),
            study => study.or_bad_input()?,
        };
        if let Some(path) = &self.html {
            let page = cohort_page(&study).context("drawing the page")?;
            underload_disk::write_whole(path, page.as_bytes(), Access::Usual)
                .with_context(|| format!("{}: cannot write", path.display()))?;
        }
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &study).context("writing the study")?;
            return writeln!(out).context("writing the study");
        }
        out.write_all(cohort_table(&study).as_bytes()).context("writing the study")
    }

    fn filter(&self) -> anyhow::Result<Filter> {
        let known = underload_fleet::device::Attributes::NAMES;
        let mut filter = Filter::default();
        for text in &self.only {
            let pair = text.split_once('=').filter(|(name, _)| known.contains(name));
            let (name, value) = pair.ok_or_else(|| {
                let names = known.join(", ");
                bad_input(anyhow!("`{text}`: expected NAME=VALUE with one of {names}"))
            })?;
            filter.attributes.insert(name.to_owned(), value.to_owned());
        }
        Ok(filter)
    }
}

/// Who answers questions about a store; several may ask while an orchestrator writes.
fn open(store: &str) -> anyhow::Result<Box<dyn Archive>> {
    if let Some(directory) = store.strip_prefix("sqlite:") {
        let archive =
            SqliteArchive::open(Path::new(directory)).with_context(|| store.to_owned())?;
        return Ok(Box::new(archive));
    }
    if ["postgres://", "postgresql://"].iter().any(|scheme| store.starts_with(scheme)) {
        // An address may hold a password, so it is not told.
        let store = PostgresStore::connect(store).context("the PostgreSQL store")?;
        return Ok(Box::new(store.archive().context("the PostgreSQL store")?));
    }
    Err(bad_input(anyhow!("the store is none of sqlite:DIR and postgres://...")))
}
