//! `underload export`: the trials of a run as files of another tool.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, bail};
use clap::Args;
use underload_disk::{self as disk, Access};
use underload_exchange::{Format, file_name, plain};
use underload_record::schema::TrialRecord;
use underload_scenario::no_variant;
use underload_store::RunDir;
use underload_terminal::console::{self, note};
use underload_terminal::exit::{OrBadInput, refuse};
use underload_terminal::help::choices;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  underload export runs/first --out files
  underload export runs/first --format csv --variant codel --out tables
  underload export runs/first --format csv --out all --json")]
pub struct Arguments {
    /// A run directory to read.
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Format of the files.
    #[arg(long, default_value = "flent", value_parser = choices(FORMATS))]
    pub format: Format,
    /// Only trials of this variant; may be given several times.
    #[arg(long = "variant", value_name = "NAME")]
    pub variant: Vec<String>,
    /// The directory for the files, each named after its trial.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Prints the list of written files as one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// A written file, for `--json`.
#[derive(serde::Serialize)]
struct Written {
    file: String,
    /// `None` for the table of all trials.
    trial: Option<u32>,
    variant: Option<String>,
}

/// The formats, for the help.
const FORMATS: [(Format, &str, &str); 2] = [
    (Format::Flent, "flent", "`.flent.gz`, which `flent -p PLOT FILE` draws"),
    (
        Format::Csv,
        "csv",
        "CSV tables: `-trials.csv`, and for each trial `-samples.csv` and `-series.csv`",
    ),
];

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut data = RunDir::read_trials(&arguments.run, |_| false).or_bad_input()?;
    let record = data.record.clone();
    let known: Vec<&str> = record.variants.iter().map(|it| it.name.as_str()).collect();
    if let Some(unknown) = arguments.variant.iter().find(|name| !known.contains(&name.as_str())) {
        refuse!("--variant: {}", no_variant(unknown, &known));
    }
    let is_wanted = |trial: &TrialRecord| {
        arguments.variant.is_empty() || arguments.variant.contains(&trial.variant)
    };
    if !record.trials.iter().any(is_wanted) {
        bail!("{}: no trial was finished", arguments.run.display());
    }
    let mut files = Vec::new();
    let mut store = |name: String, content: &[u8], trial: Option<&TrialRecord>| {
        fs::create_dir_all(&arguments.out)
            .with_context(|| format!("creating {}", arguments.out.display()))?;
        let path = arguments.out.join(name);
        write(&path, content)?;
        if !arguments.json {
            console::print(&format!("{}\n", path.display()))?;
        }
        let variant = trial.map(|trial| trial.variant.clone());
        let file = path.display().to_string();
        files.push(Written { file, trial: trial.map(|trial| trial.index), variant });
        anyhow::Ok(())
    };
    let scenario = record.scenario.name.as_str();
    let scenario = scenario.strip_suffix(".toml").unwrap_or(scenario);
    let mut wanted = record.clone();
    wanted.trials.retain(is_wanted);
    let mut table = arguments.format.of_run(&wanted)?;
    for trial in &wanted.trials {
        // A single trial at a time, to bound the memory: a run may have thousands.
        RunDir::read_trial(&arguments.run, trial.index, &mut data).or_bad_input()?;
        // After the first trial was read: an export of a damaged run leaves no file.
        if let Some((ending, content)) = table.take() {
            store(plain(scenario) + ending, &content, None)?;
        }
        let has_rows = !data.samples.is_empty() || !data.series.is_empty();
        let has_sent = trial.latencies.iter().any(|latency| latency.sent > 0);
        if !has_rows && has_sent && !matches!(arguments.format, Format::Flent) {
            note!("the run stored no samples or series; only the table of trials is exported");
            break;
        }
        for (ending, content) in arguments.format.of_trial(&data, trial)? {
            store(file_name(scenario, trial) + ending, &content, Some(trial))?;
        }
    }
    if arguments.json { console::print_json(&files) } else { Ok(()) }
}

/// Writes a file atomically: flent would read half a file. Refuses to change an existing one.
fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    match disk::write_new(path, content, Access::Usual) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if is_same(path, content).with_context(|| path.display().to_string())? {
                return Ok(());
            }
            refuse!("{}: another file exists; name a directory with --out", path.display())
        }
        written => written.with_context(|| format!("writing {}", path.display())),
    }
}

fn is_same(path: &Path, content: &[u8]) -> io::Result<bool> {
    let facts = fs::metadata(path)?;
    Ok(facts.is_file() && facts.len() == content.len() as u64 && fs::read(path)? == content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_does_not_overwrite_a_different_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("trial.flent.gz");
        write(&path, b"ours").expect("written");
        write(&path, b"ours").expect("the same again");
        let error = write(&path, b"another").expect_err("it is refused").to_string();
        assert!(error.contains("bad input"), "{error}");
        assert_eq!(fs::read(&path).expect("the first"), b"ours");
    }
}
