//! Runs scenarios in every world and compares working latency, goodput and drops, variant by
//! variant. A variant that a world cannot run stays in the table with the reason.

mod outcome;
mod table;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{fs, thread};

use anyhow::{Context, bail};

use crate::process::{build_program, fresh_folder, output, succeed, target};
use outcome::{Numbers, Outcome};

/// Scenarios, each with an optional override.
const CASES: [(&str, Option<&str>); 11] = [
    (TRANSPORTS, None),
    ("kernel/2mbit", None),
    ("kernel/20mbit", None),
    ("kernel/100mbit", None),
    ("kernel/20mbit-mixed", None),
    ("comcast/upstream", None),
    ("comcast/upstream", Some("flow.upload.congestion_control=bbr")),
    ("bode/step", None),
    ("low-latency/sharing", None),
    ("kernel/sharing", None),
    (PATHS, None),
];
/// The scenario whose flows' windows, round trips and pacing rates are compared, too.
const TRANSPORTS: &str = "kernel/transports";
/// A file with fifteen more paths, which runs only if it is named.
const PATHS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/worlds/paths.toml");
/// Worlds whose trials do not disturb each other.
const VIRTUAL: [&str; 3] = ["kernel", "kernel-tcp", "sim"];
pub const NAME: &str = "worlds";
pub const WHAT: &str =
    "scenarios in the simulator, the kernel and live, and what is within the goals (an hour)";
const USAGE: &str = "usage: cargo xtask bench worlds [--quick] [--live] [--stored] [--program FILE] \
                     [--seed N] [--repeat N] [PART OF A SCENARIO'S NAME...]";
/// Simulated trials of a variant whose spread is compared with Linux's number.
pub const SEEDS: &str = "10";

/// The results of a variant in each world.
type Outcomes = BTreeMap<&'static str, Outcome>;
/// The outcomes by case and variant.
type Results = BTreeMap<(usize, String), Outcomes>;

/// One trial of a variant in a world.
struct Job {
    case: usize,
    variant: String,
    world: &'static str,
}

struct Worlds {
    program: PathBuf,
    folder: PathBuf,
    /// Trials of each variant in each world. Several have means and standard deviations.
    repeats: String,
    options: Vec<String>,
    /// Runs only what no earlier command stored.
    is_stored: bool,
}

/// Runs the cases, or those whose names contain one of the last arguments, and prints the
/// tables. `--live` adds the live world: last, one trial at once. `--repeat` compares means of the
/// worlds `kernel` and `sim`.
pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let (mut program, mut parts) = (None, Vec::new());
    let (mut worlds, mut options) = (VIRTUAL.to_vec(), Vec::new());
    let (mut is_stored, mut repeats) = (false, "1".to_owned());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word}: no value\n{USAGE}"));
        match *word {
            "--quick" => options.push("--short".to_owned()),
            "--live" => worlds.push("live"),
            "--stored" => is_stored = true,
            "--seed" => options.extend(["--seed".to_owned(), (*value()?).to_owned()]),
            "--repeat" => {
                repeats = value()?.to_string();
                worlds.retain(|world| *world != "kernel-tcp");
            }
            "--program" => program = Some(PathBuf::from(value()?)),
            option if option.starts_with('-') => bail!("unknown option {option}\n{USAGE}"),
            part => parts.push(part),
        }
    }
    let is_wanted = |case: &usize| match CASES[*case].0 {
        name if parts.is_empty() => name != PATHS,
        name => parts.iter().any(|part| name.contains(part)),
    };
    let cases: Vec<usize> = (0..CASES.len()).filter(is_wanted).collect();
    if cases.is_empty() {
        bail!("no scenario of these names: {}\n{USAGE}", parts.join(", "));
    }
    let program = program.map_or_else(build_program, Ok)?;
    let program = fs::canonicalize(&program).with_context(|| program.display().to_string())?;
    let folder = target().join("worlds");
    let compared = Worlds { program, folder, repeats, options, is_stored };
    for &case in cases.iter().filter(|_| !is_stored) {
        fresh_folder(&compared.folder(case))?;
    }
    print!("{}", compared.compare(&cases, &worlds)?);
    Ok(())
}

impl Worlds {
    /// Returns the folder of a case's runs.
    fn folder(&self, case: usize) -> PathBuf {
        self.folder.join(case.to_string())
    }

    fn compare(&self, cases: &[usize], worlds: &[&'static str]) -> anyhow::Result<String> {
        let mut results = Results::new();
        let mut jobs = Vec::new();
        for &case in cases {
            let simulated = self.simulate(case)?;
            for (variant, numbers) in simulated {
                for &world in worlds.iter().filter(|world| **world != "sim") {
                    jobs.push(Job { case, variant: variant.clone(), world });
                }
                let of_sim = Outcomes::from([("sim", Outcome::Numbers(Box::new(numbers)))]);
                results.insert((case, variant), of_sim);
            }
        }
        // Live trials come last, one at a time: they disturb each other.
        let (live, side_by_side): (Vec<_>, Vec<_>) =
            jobs.into_iter().partition(|job| job.world == "live");
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.run_all(&side_by_side, cores, &mut results)?;
        self.run_all(&live, 1, &mut results)?;
        Ok(table::text(worlds, &results))
    }

    /// Runs jobs on `threads` threads, and adds their outcomes to `results`.
    fn run_all(&self, jobs: &[Job], threads: usize, results: &mut Results) -> anyhow::Result<()> {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        let work = || -> anyhow::Result<()> {
            while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let outcome = self.run_job(job);
                if outcome.is_err() {
                    next.store(jobs.len(), Ordering::Relaxed);
                }
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                done.push((job, outcome?));
                let (name, all) = (CASES[job.case].0, jobs.len());
                eprintln!("{} of {all}: {name}, {}, {}", done.len(), job.variant, job.world);
            }
            Ok(())
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })?;
        for (job, outcome) in done.into_inner().unwrap_or_else(PoisonError::into_inner) {
            let of_variant = results.entry((job.case, job.variant.clone())).or_default();
            of_variant.insert(job.world, outcome);
        }
        Ok(())
    }

    /// Runs all variants of a case in the simulator and returns their numbers by name. Flows start
    /// at the same instant, as in the other worlds; in the trials that measure the spread, within
    /// one second.
    fn simulate(&self, case: usize) -> anyhow::Result<Vec<(String, Numbers)>> {
        let [out, seeds] = ["sim", "sim-seeds"].map(|name| self.folder(case).join(name));
        for (out, repeats) in [(&out, self.repeats.as_str()), (&seeds, SEEDS)] {
            if !(self.is_stored && out.exists()) {
                let mut command = self.command(case, "sim", repeats, out);
                output(command.arg("--no-cache"))?;
            }
        }
        let mut variants = self.read(case, &out)?;
        for ((_, numbers), (_, of_seeds)) in variants.iter_mut().zip(outcome::read(&seeds)?) {
            numbers.others.extend(of_seeds.trials.into_values());
        }
        Ok(variants)
    }

    /// Reads the numbers of a run, with the means of flows if the case is about these.
    fn read(&self, case: usize, run: &Path) -> anyhow::Result<Vec<(String, Numbers)>> {
        let mut variants = outcome::read(run)?;
        if [TRANSPORTS, PATHS].contains(&CASES[case].0) {
            let tables = run.join("csv");
            let mut export = Command::new(&self.program);
            export.args(["--quiet", "export", "--format", "csv", "--out"]).arg(&tables).arg(run);
            succeed(export.stdout(Stdio::null()))?;
            outcome::add_means(run, &tables, &mut variants)?;
        }
        Ok(variants)
    }

    fn run_job(&self, job: &Job) -> anyhow::Result<Outcome> {
        let Job { case, variant, world } = job;
        let out = self.folder(*case).join(format!("{world}-{}", variant.replace('/', "-")));
        let refusal = out.with_extension("refused");
        if !(self.is_stored && (out.exists() || refusal.exists())) {
            let mut command = self.command(*case, world, &self.repeats, &out);
            let output = command.args(["--variant", variant]).output();
            let output = output.with_context(|| format!("{command:?}"))?;
            // Status 1 means that the trial is invalid: the record says so.
            if !output.status.success() && !out.join("run.json").exists() {
                let text = String::from_utf8_lossy(&output.stderr);
                let Some(reason) = outcome::refusal(CASES[*case].0, variant, &text) else {
                    bail!("{command:?}: {}: {text}", output.status);
                };
                fs::write(&refusal, reason)?;
            }
        }
        if refusal.exists() {
            return Ok(Outcome::Refused(fs::read_to_string(refusal)?));
        }
        let numbers = self.read(*case, &out)?.into_iter().next();
        let (_, numbers) = numbers.with_context(|| format!("{}: no variant", out.display()))?;
        Ok(Outcome::Numbers(Box::new(numbers)))
    }

    fn command(&self, case: usize, world: &str, repeats: &str, out: &Path) -> Command {
        let (scenario, change) = CASES[case];
        let mut command = Command::new(&self.program);
        command.args(["--quiet", "run", scenario, "--world", world, "--repeat", repeats, "--out"]);
        command.arg(out).args(&self.options).stdin(Stdio::null());
        if let Some(change) = change {
            command.args(["--set", change]);
        }
        command
    }
}
